//! Answers clients: opens views and returns their changes.

use super::change_log::{ChangeLog, LogRecord, RecordKind};
use super::container::{Container, View, text_of};
use super::matcher::{Matcher, TimeCuts};
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
        let needs_accessed = ruleset.rules.iter().any(|rule| matches!(rule, Rule::Accessed(_)));
        if needs_accessed && !self.config.knows_accessed {
            return Err(ViewError::Refused(format!(
                "ruleset '{}' asks when objects were last read, but this handler gets no access events; configure them, or use 'modified'",
                ruleset.name
            )));
        }
        let view = self.find_or_add_view(ruleset);
        self.register_containers(&view).await?;
        self.ready_containers(&view).await?;
        self.flush_log().map_err(state_error)?;
        Ok(view.id())
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let view = self.touch_view(view).ok_or(ViewError::Unknown)?;
        let containers = self.ready_containers(&view).await?;
        // Matchers are rebuilt here instead of in `open`, so that one rebuild serves many views that are opened in a
        // row.
        for container in &containers {
            if container.is_outdated.load(Ordering::Acquire) {
                self.rebuild_matcher(container);
            }
        }
        let now = self.clock.now();
        let following = since
            .and_then(|cursor| self.cursor_versions(&view, cursor))
            .and_then(|versions| self.changes_since(&view, &containers, versions, limit, now));
        let beginning = || {
            let changes = self.changes_since(&view, &containers, &[0; 2 * SHARDS], limit, now)?;
            Some(Changes { is_beginning: true, ..changes })
        };
        let changes = following.or_else(beginning).ok_or(ViewError::Unknown)?;
        // The log must have what the client is told. Otherwise the client could never be told that an object is gone.
        self.flush_log().map_err(state_error)?;
        Ok(changes)
    }

    fn change_counter(&self) -> Option<watch::Receiver<u64>> {
        Some(self.change_counter.subscribe())
    }
}

impl Handler {
    fn find_or_add_view(&self, ruleset: &Ruleset) -> Arc<View> {
        let mut registry = self.registry();
        let text = text_of(&ruleset.rules);
        let now = self.clock.now();
        let known = registry.by_text.get(&text).and_then(|number| registry.views[*number as usize].as_ref());
        if let Some(view) = known {
            view.touch(now);
            return Arc::clone(view);
        }
        let view =
            Arc::new(View::new(registry.views.len() as u32, self.incarnation, ruleset.rules.clone(), now));
        registry.add(&view);
        let rules = format!("view:\n{text}");
        self.log_record(LogRecord {
            kind: RecordKind::View,
            number: view.number,
            version: u64::from(view.incarnation),
            body: rules.as_bytes(),
        });
        view
    }

    /// Returns a view and notes the request, under the lock under which idle views are forgotten.
    fn touch_view(&self, id: ViewId) -> Option<Arc<View>> {
        let registry = self.registry();
        let view = registry.views.get(id.0 as u32 as usize)?.as_ref().filter(|view| view.id() == id)?;
        view.touch(self.clock.now());
        Some(Arc::clone(view))
    }

    /// Returns the container of a name, which is added, with the views that name it, if it is not known.
    pub(super) fn find_or_add_container(&self, name: &str) -> Arc<Container> {
        let mut registry = self.registry();
        if let Some(container) = registry.containers.get(name) {
            return Arc::clone(container);
        }
        let number = registry.container_count;
        registry.container_count += 1;
        let container = Arc::new(Container::new(number, name.into(), self.clock.now()));
        registry.views_of(name).for_each(|view| container.add_view(view));
        self.rebuild_matcher(&container);
        self.log_record(LogRecord { kind: RecordKind::Container, number, version: 0, body: name.as_bytes() });
        let mut containers = (*registry.containers).clone();
        containers.insert(Arc::clone(&container.name), Arc::clone(&container));
        registry.containers = Arc::new(containers);
        container
    }

    /// Adds and lists the container of a name that is not known, if some view names it by a pattern.
    pub(super) fn add_if_wanted(&self, name: &str) -> Option<Arc<Container>> {
        let mut registry = self.registry();
        if !registry.has_patterns || registry.unwanted_buckets.contains(name) {
            return None;
        }
        if registry.views_of(name).next().is_none() {
            registry.remember_unwanted_bucket(name);
            return None;
        }
        drop(registry);
        let container = self.find_or_add_container(name);
        self.relist(&container);
        Some(container)
    }

    /// Rebuilds the container's matcher, if its views have changed.
    pub(super) fn rebuild_matcher(&self, container: &Container) {
        self.rebuild_matcher_at(container, self.clock.now());
    }

    pub(super) fn rebuild_matcher_at(&self, container: &Container, now: Timestamp) {
        let mut rules = container.rules();
        if !container.is_outdated.swap(false, Ordering::AcqRel) {
            return;
        }
        let views = rules.views.iter().map(|view| (view.number, view.rules.as_slice()));
        rules.matcher = Arc::new(Matcher::new(views));
        rules.time_cuts = Arc::new(rules.matcher.time_cuts(now));
        for shard in 0..SHARDS {
            self.shard_at(shard).set_matcher(container.number, &rules.matcher, &rules.time_cuts);
        }
    }

    /// Adds the containers that a view names; for patterns, those that match now.
    pub(super) async fn register_containers(&self, view: &View) -> Result<(), ViewError> {
        let (mut names, has_patterns) = view.containers();
        if has_patterns {
            let all = self.buckets.list().await.map_err(|error| store_error("*", error))?;
            names.extend(all.into_iter().filter(|name| view.names(name)));
        }
        names.iter().for_each(|name| drop(self.find_or_add_container(name)));
        view.has_containers.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the containers of a view after they were listed. Those that cannot be listed are included if others
    /// can.
    async fn ready_containers(&self, view: &View) -> Result<Vec<Arc<Container>>, ViewError> {
        if !view.has_containers.load(Ordering::Acquire) {
            self.register_containers(view).await?;
        }
        let all = self.containers();
        let containers: Vec<Arc<Container>> =
            all.values().filter(|container| container.has_view(view.number)).cloned().collect();
        let has_patterns = view.containers().1;
        let listings = containers.iter().map(|container| self.ensure_listed(container, view));
        let listings = futures_util::future::join_all(listings).await;
        let is_none_listed = listings.iter().all(Result::is_err);
        for (container, listed) in containers.iter().zip(listings) {
            match listed {
                // The view shows the other containers.
                Err(error) if is_bucket_error(&error) && (has_patterns || !is_none_listed) => {}
                Err(error) => return Err(store_error(&container.name, error)),
                Ok(()) => {}
            }
        }
        Ok(containers)
    }

    /// Returns the versions in a cursor, if the cursor belongs to this view. A view that was forgotten and opened
    /// again has another id.
    fn cursor_versions<'c>(&self, view: &View, cursor: &'c Cursor) -> Option<&'c [u64]> {
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
        let mut queries: Vec<ContainerQuery> =
            containers.iter().map(|container| ContainerQuery::new(container, now)).collect();
        let mut versions = since.to_vec();
        for (shard, since) in versions.chunks_exact_mut(2).enumerate() {
            let room = limit.max(1).saturating_sub(found.shown.len() + found.gone.len());
            let until = self.changes_of_shard(
                shard,
                view.number,
                &mut queries,
                (since[0], since[1]),
                room,
                &mut found,
            )?;
            (since[0], since[1]) = until;
        }
        queries.iter().for_each(|query| self.log_moment(&query.container, now));
        found.cursor.versions = versions.into_iter().chain([view.id().0]).collect();
        Some(found)
    }

    /// Logs the moment of an answer if the container's views have rules on ages, so that a restarted handler knows
    /// for which moment clients were told.
    fn log_moment(&self, container: &Container, now: Timestamp) {
        let mut rules = container.rules();
        if rules.matcher.has_ages() && rules.last_moment != Some(now) {
            rules.last_moment = Some(now);
            self.log_record(LogRecord {
                kind: RecordKind::Time,
                number: container.number,
                version: now.0 as u64,
                body: &[],
            });
        }
    }

    /// Adds the changes of a shard since version `since` to `found`. Returns the version up to which they were added,
    /// and the departures floor of the shard. Returns `None` if departures that the client needs were dropped, so
    /// that it needs the whole content of the view.
    ///
    /// Departures from before the client's first request do not matter to it. A client that is still reading the
    /// whole content may therefore have `since < floor`, as long as the floor is the one of its last answer,
    /// `last_floor`.
    fn changes_of_shard(
        &self,
        shard: usize,
        view: u32,
        queries: &mut [ContainerQuery],
        (since, last_floor): (u64, u64),
        room: usize,
        found: &mut Changes,
    ) -> Option<(u64, u64)> {
        let mut shard = self.shard_at(shard);
        for query in queries.iter_mut() {
            if let Some((table, log)) = shard.table(query.container.number) {
                query.sync_with(table, log);
            }
        }
        if room == 0 {
            found.has_more |= shard.log.version() > since;
            return Some((since, last_floor));
        }
        let floors = queries.iter().map(|query| shard.departures_floor(query.container.number));
        let floor = floors.max().unwrap_or(0);
        if since > 0 && since < floor && last_floor != floor {
            return None;
        }
        let mut changes = Vec::new();
        for query in queries.iter_mut() {
            let Some((table, _)) = shard.table(query.container.number) else { continue };
            query.matcher.extend_membership(view, &mut query.is_in);
            table.changes(view, &query.is_in, since, &mut changes);
        }
        let mut until = shard.log.version();
        if changes.len() > room {
            found.has_more = true;
            changes.sort_unstable_by_key(|(version, _, _)| *version);
            changes.truncate(room);
            until = changes.last().map_or(since, |(version, _, _)| *version);
        }
        for (_, number, change) in changes {
            let Some(query) = queries.iter().find(|query| query.container.number == number) else {
                continue;
            };
            let Some((table, _)) = shard.table(number) else { continue };
            found.add(&query.container, table, change);
        }
        Some((until, floor))
    }
}

/// A container during one request for changes.
struct ContainerQuery {
    container: Arc<Container>,
    matcher: Arc<Matcher>,
    time_cuts: Arc<TimeCuts>,
    /// Whether the view is in each set of the matcher, by set id.
    is_in: Vec<bool>,
}

impl ContainerQuery {
    fn new(container: &Arc<Container>, now: Timestamp) -> Self {
        let mut rules = container.rules();
        if rules.matcher.has_ages() && rules.time_cuts.now != now {
            rules.time_cuts = Arc::new(rules.matcher.time_cuts(now));
        }
        let (matcher, time_cuts) = (Arc::clone(&rules.matcher), Arc::clone(&rules.time_cuts));
        Self { container: Arc::clone(container), matcher, time_cuts, is_in: Vec::new() }
    }

    /// Moves the table to the moment of the request. If the table has a newer matcher than the request, the request
    /// uses that.
    fn sync_with(&mut self, table: &mut Table, log: &mut ChangeLog) {
        if Arc::ptr_eq(&self.matcher, &table.matcher) {
            table.advance(&self.time_cuts, log);
        } else {
            self.matcher = Arc::clone(&table.matcher);
            self.time_cuts = Arc::clone(table.time_cuts());
            self.is_in.clear();
        }
    }
}

impl Changes {
    fn add(&mut self, container: &Container, table: &Table, change: Change) {
        match change {
            Change::Shown(slot) => {
                let known = table.known(slot);
                if let (Some(live), Some(name)) = (known.live, object_name(container, known.key)) {
                    self.shown.push(Arc::new(Shown {
                        name,
                        size_bytes: live.size_bytes,
                        etag: live.etag(),
                        modified: live.modified,
                        content_type: live.content_type.flatten().map(str::to_owned),
                        properties: live.properties.map(Pairs::to_map),
                        tags: live.tags.map(Pairs::to_map),
                    }));
                }
            }
            Change::Gone(key) => self.gone.extend(object_name(container, &key)),
        }
    }
}

impl Registry {
    pub(super) fn add(&mut self, view: &Arc<View>) {
        self.by_text.insert(view.text.clone(), view.number);
        self.views.push(Some(Arc::clone(view)));
        self.has_patterns |= view.containers().1;
        self.unwanted_buckets.clear();
        let named = self.containers.values().filter(|container| view.names(&container.name));
        named.for_each(|container| container.add_view(view));
    }

    /// Returns the views that name a container.
    pub(super) fn views_of(&self, container: &str) -> impl Iterator<Item = &Arc<View>> {
        self.views.iter().flatten().filter(move |view| view.names(container))
    }

    fn remember_unwanted_bucket(&mut self, name: &str) {
        /// With more names than this the cache is cleared.
        const UNWANTED_BUCKETS_MAX: usize = 65_536;
        if self.unwanted_buckets.len() >= UNWANTED_BUCKETS_MAX {
            self.unwanted_buckets.clear();
        }
        self.unwanted_buckets.insert(name.into());
    }
}

fn object_name(container: &Container, key: &[u8]) -> Option<ObjectName> {
    Some(ObjectName { container: Arc::clone(&container.name), key: ObjectKey::try_from(key).ok()? })
}

fn state_error(error: std::io::Error) -> ViewError {
    ViewError::Refused(format!("cannot write the event handler's state: {error}"))
}

fn store_error(container: &str, source: StoreError) -> ViewError {
    ViewError::Store { container: container.to_owned(), source }
}

/// Returns whether an error concerns one bucket only, so that others may be readable.
fn is_bucket_error(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSuchBucket(_) | StoreError::Denied(_))
}
