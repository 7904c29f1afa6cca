//! What a client may see of what a handler elsewhere shows: a handler knows what its own credentials may read.
//!
//! Owns the judgement which objects are shown to a client: those of containers that its own credentials may open.
//!
//! Refuses: to judge objects one by one. Invariants: nothing is shown before its container was judged; where a judgement becomes
//! another, views begin anew in one step.

use crate::{Changes, Cursor, Ruleset, Unlisted, ViewError, ViewId, Views, containers};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Buckets, Clock, StoreError, Timestamp};
use tokio::sync::watch;

/// What may be seen is judged again after so long, when somebody looks.
const SEEN_FOR: Duration = Duration::from_secs(30);
/// The same of what may not be seen.
const HIDDEN_FOR: Duration = Duration::from_secs(10);

/// Views, of which a client sees what it may.
#[derive(Debug)]
pub struct Permitted {
    views: Arc<dyn Views>,
    buckets: Arc<dyn Buckets>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    opened: HashMap<ViewId, Arc<Ruleset>>,
    /// By container.
    verdicts: BTreeMap<Arc<str>, Verdict>,
    /// How often a verdict became another.
    turns: u64,
}

#[derive(Debug)]
struct Verdict {
    /// Or why not.
    may_see: Result<(), String>,
    at: Timestamp,
}

impl Permitted {
    /// What credentials of some buckets may see of views.
    pub fn new(views: Arc<dyn Views>, buckets: Arc<dyn Buckets>, clock: Arc<dyn Clock>) -> Self {
        Self { views, buckets, clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn judge(&self, containers: Vec<Arc<str>>) {
        let judged = join_all(containers.into_iter().map(|container| async move {
            let said = self.buckets.open(&container).await.map(drop);
            (container, said)
        }));
        for (container, said) in judged.await {
            self.state().note(container, said, self.clock.now());
        }
    }
}

#[async_trait::async_trait]
impl Views for Permitted {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let view = self.views.open(ruleset).await?;
        self.state().opened.insert(view, Arc::new(ruleset.clone()));
        Ok(view)
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let ruleset = self.state().opened.get(&view).cloned().ok_or(ViewError::Unknown)?;
        let old = self.state().old(&ruleset, self.clock.now());
        self.judge(old).await;
        let turns = self.state().turns;
        let since = since.and_then(|since| without_turns(since, turns));
        let mut changes = self.views.changes(view, since.as_ref(), limit).await?;
        let new = self.state().unjudged(&changes);
        self.judge(new).await;
        let state = self.state();
        changes.shown.retain(|shown| state.may_see(&shown.name.container));
        changes.unlisted.extend(state.hidden(&ruleset));
        changes.cursor = with_turns(&changes.cursor, turns);
        Ok(changes)
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        self.views.news()
    }
}

impl State {
    /// Containers of a view that were judged long ago.
    fn old(&self, ruleset: &Ruleset, now: Timestamp) -> Vec<Arc<str>> {
        let old = self.of(ruleset).filter(|(_, verdict)| !verdict.is_recent(now));
        old.map(|(container, _)| Arc::clone(container)).collect()
    }

    /// Containers that nobody has judged yet.
    fn unjudged(&self, changes: &Changes) -> Vec<Arc<str>> {
        let named: BTreeSet<&Arc<str>> = changes.shown.iter().map(|shown| &shown.name.container).collect();
        named.into_iter().filter(|name| !self.verdicts.contains_key(*name)).cloned().collect()
    }

    /// What could not be judged stays as it was, and is hidden if it was nothing.
    fn note(&mut self, container: Arc<str>, said: Result<(), StoreError>, at: Timestamp) {
        let before = self.verdicts.remove(&container).map(|verdict| verdict.may_see);
        let was_seen = before.as_ref().map(Result::is_ok);
        let is_judgement = matches!(&said, Ok(()) | Err(StoreError::Denied(_) | StoreError::NoSuchBucket(_)));
        let may_see = match before {
            Some(before) if !is_judgement => before,
            _ => said.map_err(|error| error.to_string()),
        };
        if was_seen.is_some_and(|was_seen| was_seen != may_see.is_ok()) {
            self.turns += 1;
        }
        self.verdicts.insert(container, Verdict { may_see, at });
    }

    fn may_see(&self, container: &str) -> bool {
        self.verdicts.get(container).is_some_and(|verdict| verdict.may_see.is_ok())
    }

    /// What is left out of a view, and why.
    fn hidden(&self, ruleset: &Ruleset) -> Vec<Unlisted> {
        let hidden = self.of(ruleset).filter_map(|(container, verdict)| {
            let why = verdict.may_see.clone().err()?;
            Some(Unlisted { container: container.to_string(), why })
        });
        hidden.collect()
    }

    /// What was judged of the containers that a ruleset names.
    fn of<'s>(&'s self, ruleset: &'s Ruleset) -> impl Iterator<Item = (&'s Arc<str>, &'s Verdict)> {
        let names = |container: &str| containers(&ruleset.rules).any(|name| name.names(container));
        self.verdicts.iter().filter(move |(container, _)| names(container))
    }
}

impl Verdict {
    fn is_recent(&self, now: Timestamp) -> bool {
        let lasts = if self.may_see.is_ok() { SEEN_FOR } else { HIDDEN_FOR };
        // A clock that was put back says nothing.
        self.at <= now && now.since(self.at) < lasts
    }
}

/// A cursor that is good for as long as all verdicts are as they were.
fn with_turns(cursor: &Cursor, turns: u64) -> Cursor {
    let versions = cursor.versions.iter().copied().chain([turns]);
    Cursor { epoch: cursor.epoch, versions: versions.collect() }
}

fn without_turns(cursor: &Cursor, turns: u64) -> Option<Cursor> {
    let (last, versions) = cursor.versions.split_last()?;
    (*last == turns).then(|| Cursor { epoch: cursor.epoch, versions: versions.into() })
}
