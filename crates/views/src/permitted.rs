//! Restricts the views of a handler elsewhere to what this client's credentials may read. The handler has credentials
//! of its own, which may read more, and shows all that they may read.
//!
//! Owns the check which objects the client sees: those in containers that its credentials may open.
//!
//! Refuses: to check single objects. Invariants: no object is shown before its container was checked; when the result
//! for a container changes, clients get the whole content of their views again, in one step.

use crate::{Changes, Cursor, PackedObject, Ruleset, Unlisted, ViewError, ViewId, Views, containers};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Buckets, Clock, StoreError, Timestamp};
use tokio::sync::watch;

/// A container that may be opened is checked again after this time, when a client asks.
const ALLOWED_TTL: Duration = Duration::from_secs(30);
/// A container that may not be opened is checked again after this time, when a client asks.
const DENIED_TTL: Duration = Duration::from_secs(10);

/// Views, restricted to the containers that some credentials may open.
#[derive(Debug)]
pub struct Permitted {
    views: Arc<dyn Views>,
    buckets: Arc<dyn Buckets>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rulesets: HashMap<ViewId, Arc<Ruleset>>,
    /// Results of the checks, by container.
    verdicts: BTreeMap<Arc<str>, Verdict>,
    /// Number of changes of a result. Part of every cursor, so that a change invalidates all cursors.
    verdict_changes: u64,
}

#[derive(Debug)]
struct Verdict {
    /// Whether the container may be opened; if not, the reason.
    may_see: Result<(), String>,
    checked_at: Timestamp,
}

impl Permitted {
    /// Restricts `views` to the buckets that the credentials of `buckets` may open.
    pub fn new(views: Arc<dyn Views>, buckets: Arc<dyn Buckets>, clock: Arc<dyn Clock>) -> Self {
        Self { views, buckets, clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether containers may be opened, and records the results.
    async fn check(&self, containers: Vec<Arc<str>>) {
        let checked = join_all(containers.into_iter().map(|container| async move {
            let result = self.buckets.open(&container).await.map(drop);
            (container, result)
        }));
        for (container, result) in checked.await {
            self.state().record(container, result, self.clock.now());
        }
    }
}

#[async_trait::async_trait]
impl Views for Permitted {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let view = self.views.open(ruleset).await?;
        self.state().rulesets.insert(view, Arc::new(ruleset.clone()));
        Ok(view)
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let ruleset = self.state().rulesets.get(&view).cloned().ok_or(ViewError::Unknown)?;
        let expired = self.state().expired(&ruleset, self.clock.now());
        self.check(expired).await;
        let verdict_changes = self.state().verdict_changes;
        let since = since.and_then(|since| without_verdict_changes(since, verdict_changes));
        let mut changes = self.views.changes(view, since.as_ref(), limit).await?;
        let unchecked = self.state().unchecked(&changes);
        self.check(unchecked).await;
        let state = self.state();
        changes.shown.retain(|shown| state.may_see(shown.container()));
        changes.unlisted.extend(state.hidden(&ruleset));
        changes.cursor = with_verdict_changes(&changes.cursor, verdict_changes);
        Ok(changes)
    }

    fn change_counter(&self) -> Option<watch::Receiver<u64>> {
        self.views.change_counter()
    }
}

impl State {
    /// Returns the containers of a view whose check has expired.
    fn expired(&self, ruleset: &Ruleset, now: Timestamp) -> Vec<Arc<str>> {
        let expired = self.verdicts_of(ruleset).filter(|(_, verdict)| !verdict.is_recent(now));
        expired.map(|(container, _)| Arc::clone(container)).collect()
    }

    /// Returns the containers of the shown objects in `changes` that were not checked yet.
    fn unchecked(&self, changes: &Changes) -> Vec<Arc<str>> {
        let named: BTreeSet<&Arc<str>> = changes.shown.iter().map(PackedObject::container).collect();
        named.into_iter().filter(|name| !self.verdicts.contains_key(*name)).cloned().collect()
    }

    /// Records the result of a check. If the check itself failed, the previous result stays; without one, the
    /// container is hidden.
    fn record(&mut self, container: Arc<str>, result: Result<(), StoreError>, checked_at: Timestamp) {
        let before = self.verdicts.remove(&container).map(|verdict| verdict.may_see);
        let was_allowed = before.as_ref().map(Result::is_ok);
        let is_conclusive =
            matches!(&result, Ok(()) | Err(StoreError::Denied(_) | StoreError::NoSuchBucket(_)));
        let may_see = match before {
            Some(before) if !is_conclusive => before,
            _ => result.map_err(|error| error.to_string()),
        };
        if was_allowed.is_some_and(|was_allowed| was_allowed != may_see.is_ok()) {
            self.verdict_changes += 1;
        }
        self.verdicts.insert(container, Verdict { may_see, checked_at });
    }

    fn may_see(&self, container: &str) -> bool {
        self.verdicts.get(container).is_some_and(|verdict| verdict.may_see.is_ok())
    }

    /// Returns the hidden containers of a view, with the reasons.
    fn hidden(&self, ruleset: &Ruleset) -> Vec<Unlisted> {
        let hidden = self.verdicts_of(ruleset).filter_map(|(container, verdict)| {
            let why = verdict.may_see.clone().err()?;
            Some(Unlisted { container: container.to_string(), why })
        });
        hidden.collect()
    }

    /// Returns the results for the containers that a ruleset names.
    fn verdicts_of<'s>(&'s self, ruleset: &'s Ruleset) -> impl Iterator<Item = (&'s Arc<str>, &'s Verdict)> {
        let is_named = |container: &str| containers(&ruleset.rules).any(|name| name.names(container));
        self.verdicts.iter().filter(move |(container, _)| is_named(container))
    }
}

impl Verdict {
    fn is_recent(&self, now: Timestamp) -> bool {
        let ttl = if self.may_see.is_ok() { ALLOWED_TTL } else { DENIED_TTL };
        // If the clock was set back, the check counts as expired.
        self.checked_at <= now && now.since(self.checked_at) < ttl
    }
}

/// Adds the number of changes of results to a cursor, which is valid while that number stays the same.
fn with_verdict_changes(cursor: &Cursor, verdict_changes: u64) -> Cursor {
    let versions = cursor.versions.iter().copied().chain([verdict_changes]);
    Cursor { epoch: cursor.epoch, versions: versions.collect() }
}

/// Removes the number of changes of results from a cursor; `None` if the number is not `verdict_changes` any more, so
/// that the client needs the whole content.
fn without_verdict_changes(cursor: &Cursor, verdict_changes: u64) -> Option<Cursor> {
    let (last, versions) = cursor.versions.split_last()?;
    (*last == verdict_changes).then(|| Cursor { epoch: cursor.epoch, versions: versions.into() })
}
