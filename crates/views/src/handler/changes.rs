//! Answers clients: opens views and returns their changes.

use super::Handler;
use super::container::Container;
use super::listing_state::ListingError;
use super::objects::{ContainerQuery, FoundChanges, LogRecord, RecordKind, SHARDS, ShardCursor};
use super::view::View;
use crate::{Changes, Cursor, Rule, Ruleset, ViewError, ViewId, Views};
use std::sync::Arc;
use store::{StoreError, Timestamp};
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
        let view = self.registry.find_or_add_view(ruleset);
        if view.refusal(self.clock.now()).is_none() {
            self.register_containers(&view).await?;
        }
        self.ready_containers(&view).await?;
        self.log.flush().map_err(state_error)?;
        Ok(view.id())
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let view = self.registry.touch_view(view).ok_or(ViewError::Unknown)?;
        let containers = self.ready_containers(&view).await?;
        let now = self.clock.now();
        // Matchers are rebuilt here instead of in `open`, so that one rebuild serves many views that are opened in a
        // row.
        containers.iter().for_each(|container| container.rebuild_matcher(&self.objects, now));
        let following = since
            .and_then(|cursor| self.cursor_versions(&view, cursor))
            .and_then(|versions| self.changes_since(&view, &containers, versions, limit, now));
        let beginning = || {
            let changes = self.changes_since(&view, &containers, &[0; 2 * SHARDS], limit, now)?;
            Some(Changes { is_beginning: true, ..changes })
        };
        let changes = following.or_else(beginning).ok_or(ViewError::Unknown)?;
        // The log must have what the client is told. Otherwise the client could never be told that an object is gone.
        self.log.flush().map_err(state_error)?;
        Ok(changes)
    }

    fn change_counter(&self) -> Option<watch::Receiver<u64>> {
        Some(self.objects.subscribe())
    }
}

impl Handler {
    /// Adds the containers that a view names to the registry, and the view to each; for patterns, the buckets that
    /// match now.
    async fn register_containers(&self, view: &Arc<View>) -> Result<(), ViewError> {
        let (mut names, has_patterns) = view.containers();
        if has_patterns {
            let all = self.buckets.list().await.map_err(|error| store_error("*", error))?;
            names.extend(all.into_iter().filter(|name| view.names(name)));
        }
        // A container that is known already lacks the view if the view was refused before for lack of memory.
        names.iter().for_each(|name| self.registry.find_or_add_container(name).add_view(view));
        view.set_has_containers(true);
        Ok(())
    }

    /// Returns the containers of a view after they were listed. A container that does not exist or that the store
    /// denies is returned too, without its objects or with those last known, if another one could be listed or the view
    /// names containers by patterns; otherwise its error is returned.
    async fn ready_containers(&self, view: &Arc<View>) -> Result<Vec<Arc<Container>>, ViewError> {
        if let Some(why) = view.refusal(self.clock.now()) {
            return Err(ViewError::TooLarge(why));
        }
        if !view.has_containers() {
            self.register_containers(view).await?;
        }
        let all = self.registry.containers();
        let containers: Vec<Arc<Container>> =
            all.values().filter(|container| container.has_view(view.number)).cloned().collect();
        let has_patterns = view.containers().1;
        let listings = containers.iter().map(|container| self.lister.ensure_listed(container, view));
        let listings = futures_util::future::join_all(listings).await;
        let is_none_listed = listings.iter().all(Result::is_err);
        for (container, listed) in containers.iter().zip(listings) {
            match listed {
                // The view shows the other containers, and reports this one as unlisted.
                Err(error) if is_bucket_error(&error) && (has_patterns || !is_none_listed) => {}
                Err(ListingError::Store(error)) => return Err(store_error(&container.name, error)),
                Err(ListingError::NoRoom(why)) => return Err(ViewError::TooLarge(why)),
                Ok(()) => {}
            }
        }
        Ok(containers)
    }

    /// Returns the versions in a cursor; `None` if the cursor is of another epoch or another view. A view that was
    /// forgotten and opened again has another id.
    fn cursor_versions<'c>(&self, view: &View, cursor: &'c Cursor) -> Option<&'c [u64]> {
        let (last, versions) = cursor.versions.split_last()?;
        let is_ours =
            cursor.epoch == self.incarnation.epoch && *last == view.id().0 && versions.len() == 2 * SHARDS;
        is_ours.then_some(versions)
    }

    /// Returns the changes of a view since the versions of a cursor: for each shard its version and its departures floor. Returns `None` if
    /// the client needs the whole content.
    fn changes_since(
        &self,
        view: &View,
        containers: &[Arc<Container>],
        since: &[u64],
        limit: usize,
        now: Timestamp,
    ) -> Option<Changes> {
        let mut found = FoundChanges::default();
        let mut queries: Vec<ContainerQuery> =
            containers.iter().map(|container| container.query(now)).collect();
        let mut versions = Vec::with_capacity(since.len() + 1);
        for (shard, since) in since.chunks_exact(2).enumerate() {
            let since = ShardCursor { version: since[0], departures_floor: since[1] };
            let room = limit.max(1).saturating_sub(found.len());
            let next =
                self.objects.changes_of_shard(shard, view.number, &mut queries, since, room, &mut found)?;
            versions.extend([next.version, next.departures_floor]);
        }
        containers.iter().for_each(|container| self.log_moment(container, now));
        versions.push(view.id().0);
        let FoundChanges { shown, gone, has_more } = found;
        Some(Changes {
            cursor: Cursor { epoch: self.incarnation.epoch, versions: versions.into() },
            is_beginning: false,
            has_more,
            shown,
            gone,
            unlisted: containers.iter().filter_map(|container| container.unlisted()).collect(),
        })
    }

    /// Logs the moment of an answer if the container's views have rules on ages, so that a restarted handler knows
    /// for which moment clients were told.
    fn log_moment(&self, container: &Container, now: Timestamp) {
        if container.note_moment(now) {
            let (kind, number, version) = (RecordKind::Time, container.number, now.0 as u64);
            self.log.append(LogRecord { kind, number, version, body: &[] });
        }
    }
}

/// Returns the answer to a request whose changes could not be written to the log.
fn state_error(error: std::io::Error) -> ViewError {
    ViewError::Refused(format!(
        "the event handler does not answer because it cannot write its state: {error}"
    ))
}

fn store_error(container: &str, source: StoreError) -> ViewError {
    ViewError::Store { container: container.to_owned(), source }
}

/// Returns whether an error concerns one bucket only, so that others may be readable.
fn is_bucket_error(error: &ListingError) -> bool {
    matches!(error, ListingError::Store(StoreError::NoSuchBucket(_) | StoreError::Denied(_)))
}
