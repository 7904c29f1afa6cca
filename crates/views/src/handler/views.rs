//! Clients ask.

use super::change_log::{Mark, Pen, Record};
use super::container::{Container, View, text_of};
use super::matcher::{Matcher, Moment};
use super::object_record::Pairs;
use super::table::{Change, Table};
use super::{Handler, Registry, SHARDS};
use crate::{Changes, Cursor, ObjectName, Rule, Ruleset, Shown, ViewError, ViewId, Views};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{ObjectKey, StoreError, Timestamp};
use tokio::sync::watch;

#[async_trait::async_trait]
impl Views for Handler {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let asks_accessed = ruleset.rules.iter().any(|rule| matches!(rule, Rule::Accessed(_)));
        if asks_accessed && !self.config.knows_accessed {
            return Err(ViewError::Refused(format!(
                "ruleset '{}' asks when objects were last read, which nobody says here: have access events sent, or use 'modified'",
                ruleset.name
            )));
        }
        let view = self.view_of(ruleset);
        self.find_containers(&view).await?;
        self.ready(&view).await?;
        self.keep().map_err(not_kept)?;
        Ok(view.id())
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let view = self.asked_view(view).ok_or(ViewError::Unknown)?;
        let containers = self.ready(&view).await?;
        // Not before: of many that are opened in a row all come into force at once.
        for container in &containers {
            if container.is_outdated.load(Ordering::Acquire) {
                self.put_in_force(container);
            }
        }
        let now = self.clock.now();
        let following = since
            .and_then(|cursor| self.versions(&view, cursor))
            .and_then(|versions| self.changes_since(&view, &containers, versions, limit, now));
        let beginning = || {
            let changes = self.changes_since(&view, &containers, &[0; 2 * SHARDS], limit, now)?;
            Some(Changes { is_beginning: true, ..changes })
        };
        let changes = following.or_else(beginning).ok_or(ViewError::Unknown)?;
        // What a client was told must not be forgotten: it could never be told that it is gone.
        self.keep().map_err(not_kept)?;
        Ok(changes)
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        Some(self.news.subscribe())
    }
}

impl Handler {
    fn view_of(&self, ruleset: &Ruleset) -> Arc<View> {
        let mut registry = self.registry();
        let text = text_of(&ruleset.rules);
        let now = self.clock.now();
        let known = registry.by_text.get(&text).and_then(|number| registry.views[*number as usize].as_ref());
        if let Some(view) = known {
            view.is_asked(now);
            return Arc::clone(view);
        }
        let view = Arc::new(View::new(registry.views.len() as u32, self.life, ruleset.rules.clone(), now));
        registry.add(&view);
        let rules = format!("view:\n{text}");
        self.note(Record {
            mark: Mark::View,
            number: view.number,
            version: u64::from(view.life),
            body: rules.as_bytes(),
        });
        view
    }

    /// A view that somebody asks for. Noted under the lock under which views are forgotten.
    fn asked_view(&self, id: ViewId) -> Option<Arc<View>> {
        let registry = self.registry();
        let view = registry.views.get(id.0 as u32 as usize)?.as_ref().filter(|view| view.id() == id)?;
        view.is_asked(self.clock.now());
        Some(Arc::clone(view))
    }

    /// A container by name, with the views that name it.
    pub(super) fn container(&self, name: &str) -> Arc<Container> {
        let mut registry = self.registry();
        if let Some(container) = registry.containers.get(name) {
            return Arc::clone(container);
        }
        let number = registry.container_count;
        registry.container_count += 1;
        let container = Arc::new(Container::new(number, name.into(), self.clock.now()));
        registry.views_of(name).for_each(|view| container.add(view));
        self.put_in_force(&container);
        self.note(Record { mark: Mark::Container, number, version: 0, body: name.as_bytes() });
        let mut containers = (*registry.containers).clone();
        containers.insert(Arc::clone(&container.name), Arc::clone(&container));
        registry.containers = Arc::new(containers);
        container
    }

    /// The container of a name that nobody has opened, if some view names it by a pattern: it is listed, then.
    pub(super) fn stranger(&self, name: &str) -> Option<Arc<Container>> {
        let mut registry = self.registry();
        if !registry.has_patterns || registry.strangers.contains(name) {
            return None;
        }
        if registry.views_of(name).next().is_none() {
            registry.remember_stranger(name);
            return None;
        }
        drop(registry);
        let container = self.container(name);
        self.list_again(&container);
        Some(container)
    }

    /// Puts the rulesets in force that came since.
    pub(super) fn put_in_force(&self, container: &Container) {
        self.put_in_force_at(container, self.clock.now());
    }

    pub(super) fn put_in_force_at(&self, container: &Container, now: Timestamp) {
        let mut rules = container.rules();
        if !container.is_outdated.swap(false, Ordering::AcqRel) {
            return;
        }
        let views = rules.views.iter().map(|view| (view.number, view.rules.as_slice()));
        rules.matcher = Arc::new(Matcher::new(views));
        rules.moment = Arc::new(rules.matcher.moment(now));
        for shard in 0..SHARDS {
            self.shard_at(shard).switch(container.number, &rules.matcher, &rules.moment);
        }
    }

    /// Finds what a view names, now.
    pub(super) async fn find_containers(&self, view: &View) -> Result<(), ViewError> {
        let (mut names, has_patterns) = view.containers();
        if has_patterns {
            let all = self.buckets.list().await.map_err(|error| of_store("*", error))?;
            names.extend(all.into_iter().filter(|name| view.names(name)));
        }
        names.iter().for_each(|name| drop(self.container(name)));
        view.has_containers.store(true, Ordering::Release);
        Ok(())
    }

    /// The containers of a view, which are listed, but those that cannot be.
    async fn ready(&self, view: &View) -> Result<Vec<Arc<Container>>, ViewError> {
        if !view.has_containers.load(Ordering::Acquire) {
            self.find_containers(view).await?;
        }
        let all = self.containers();
        let containers: Vec<Arc<Container>> =
            all.values().filter(|container| container.has(view.number)).cloned().collect();
        let has_patterns = view.containers().1;
        let listings = containers.iter().map(|container| self.listed(container, view));
        let listings = futures_util::future::join_all(listings).await;
        let is_none_listed = listings.iter().all(Result::is_err);
        for (container, listed) in containers.iter().zip(listings) {
            match listed {
                // The others go on.
                Err(error) if is_of_one(&error) && (has_patterns || !is_none_listed) => {}
                Err(error) => return Err(of_store(&container.name, error)),
                Ok(()) => {}
            }
        }
        Ok(containers)
    }

    /// How far a cursor is, if it is of this view: one that was forgotten and came again is another.
    fn versions<'c>(&self, view: &View, cursor: &'c Cursor) -> Option<&'c [u64]> {
        let (last, versions) = cursor.versions.split_last()?;
        let is_ours = cursor.epoch == self.epoch && *last == view.id().0 && versions.len() == 2 * SHARDS;
        is_ours.then_some(versions)
    }

    fn changes_since(
        &self,
        view: &View,
        containers: &[Arc<Container>],
        since: &[u64],
        limit: usize,
        now: Timestamp,
    ) -> Option<Changes> {
        let mut found = Changes {
            cursor: Cursor { epoch: self.epoch, versions: Arc::new([]) },
            is_beginning: false,
            has_more: false,
            shown: Vec::new(),
            gone: Vec::new(),
            unlisted: containers.iter().filter_map(|container| container.unlisted()).collect(),
        };
        let mut asked: Vec<Asked> = containers.iter().map(|container| Asked::new(container, now)).collect();
        let mut versions = since.to_vec();
        for (shard, since) in versions.chunks_exact_mut(2).enumerate() {
            let room = limit.max(1).saturating_sub(found.shown.len() + found.gone.len());
            let until = self.changes_of_shard(
                shard,
                view.number,
                &mut asked,
                (since[0], since[1]),
                room,
                &mut found,
            )?;
            (since[0], since[1]) = until;
        }
        asked.iter().for_each(|asked| self.note_time(&asked.container, now));
        found.cursor.versions = versions.into_iter().chain([view.id().0]).collect();
        Some(found)
    }

    /// Where time alone changes sets, who goes on with the state must know for which moment they were told.
    fn note_time(&self, container: &Container, now: Timestamp) {
        let mut rules = container.rules();
        if rules.matcher.has_ages() && rules.noted != Some(now) {
            rules.noted = Some(now);
            self.note(Record {
                mark: Mark::Time,
                number: container.number,
                version: now.0 as u64,
                body: &[],
            });
        }
    }

    /// Adds what changed in a shard since a version, and says up to where; `None` if nobody knows any more what left since. What
    /// had left before the client began is no matter: with the version goes up to where that was forgotten.
    fn changes_of_shard(
        &self,
        shard: usize,
        view: u32,
        asked: &mut [Asked],
        (since, forgotten): (u64, u64),
        room: usize,
        found: &mut Changes,
    ) -> Option<(u64, u64)> {
        let mut shard = self.shard_at(shard);
        for asked in asked.iter_mut() {
            if let Some((table, pen)) = shard.table(asked.container.number) {
                asked.come_to(table, pen);
            }
        }
        if room == 0 {
            found.has_more |= shard.pen.version() > since;
            return Some((since, forgotten));
        }
        let floors = asked.iter().map(|asked| shard.left_floor(asked.container.number));
        let floor = floors.max().unwrap_or(0);
        if since > 0 && since < floor && forgotten != floor {
            return None;
        }
        let mut changes = Vec::new();
        for asked in asked.iter_mut() {
            let Some((table, _)) = shard.table(asked.container.number) else { continue };
            asked.matcher.add_sets_with(view, &mut asked.is_in);
            table.changes(view, &asked.is_in, since, &mut changes);
        }
        let mut until = shard.pen.version();
        if changes.len() > room {
            found.has_more = true;
            changes.sort_unstable_by_key(|(version, _, _)| *version);
            changes.truncate(room);
            until = changes.last().map_or(since, |(version, _, _)| *version);
        }
        for (_, number, change) in changes {
            let Some(asked) = asked.iter().find(|asked| asked.container.number == number) else { continue };
            let Some((table, _)) = shard.table(number) else { continue };
            found.add(&asked.container, table, change);
        }
        Some((until, floor))
    }
}

/// A container as one question sees it.
struct Asked {
    container: Arc<Container>,
    matcher: Arc<Matcher>,
    moment: Arc<Moment>,
    /// Of the matcher's sets, whether the view is in them.
    is_in: Vec<bool>,
}

impl Asked {
    fn new(container: &Arc<Container>, now: Timestamp) -> Self {
        let mut rules = container.rules();
        if rules.matcher.has_ages() && rules.moment.now != now {
            rules.moment = Arc::new(rules.matcher.moment(now));
        }
        let (matcher, moment) = (Arc::clone(&rules.matcher), Arc::clone(&rules.moment));
        Self { container: Arc::clone(container), matcher, moment, is_in: Vec::new() }
    }

    /// Goes on with a table, which may have other rules than when the question came.
    fn come_to(&mut self, table: &mut Table, pen: &mut Pen) {
        if Arc::ptr_eq(&self.matcher, &table.matcher) {
            table.advance(&self.moment, pen);
        } else {
            self.matcher = Arc::clone(&table.matcher);
            self.moment = Arc::clone(table.moment());
            self.is_in.clear();
        }
    }
}

impl Changes {
    fn add(&mut self, container: &Container, table: &Table, change: Change) {
        match change {
            Change::Shown(slot) => {
                let known = table.known(slot);
                if let (Some(there), Some(name)) = (known.there, name(container, known.key)) {
                    self.shown.push(Arc::new(Shown {
                        name,
                        size_bytes: there.size_bytes,
                        etag: there.etag(),
                        modified: there.modified,
                        content_type: there.content_type.flatten().map(str::to_owned),
                        properties: there.properties.map(Pairs::to_map),
                        tags: there.tags.map(Pairs::to_map),
                    }));
                }
            }
            Change::Gone(key) => self.gone.extend(name(container, &key)),
        }
    }
}

impl Registry {
    pub(super) fn add(&mut self, view: &Arc<View>) {
        self.by_text.insert(view.text.clone(), view.number);
        self.views.push(Some(Arc::clone(view)));
        self.has_patterns |= view.containers().1;
        self.strangers.clear();
        let named = self.containers.values().filter(|container| view.names(&container.name));
        named.for_each(|container| container.add(view));
    }

    /// Those that name a container.
    pub(super) fn views_of(&self, container: &str) -> impl Iterator<Item = &Arc<View>> {
        self.views.iter().flatten().filter(move |view| view.names(container))
    }

    fn remember_stranger(&mut self, name: &str) {
        /// More names than this are asked for anew.
        const STRANGERS_MAX: usize = 65_536;
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.clear();
        }
        self.strangers.insert(name.into());
    }
}

fn name(container: &Container, key: &[u8]) -> Option<ObjectName> {
    Some(ObjectName { container: Arc::clone(&container.name), key: ObjectKey::try_from(key).ok()? })
}

fn not_kept(error: std::io::Error) -> ViewError {
    ViewError::Refused(format!("the views' state cannot be kept: {error}"))
}

fn of_store(container: &str, source: StoreError) -> ViewError {
    ViewError::Store { container: container.to_owned(), source }
}

/// Whether the error is of the bucket, so that the others may do.
fn is_of_one(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSuchBucket(_) | StoreError::Denied(_))
}
