//! What a client may see of what a handler elsewhere shows: a handler knows what its own credentials may read.
//!
//! Owns the judgement which objects are shown to a client: those of containers that its own credentials may list, or look into,
//! by what the keys begin with that a ruleset wants.
//!
//! Refuses: to judge objects one by one. Invariants: nothing is shown before it was judged; where a judgement becomes another, views
//! begin anew in one step.

use crate::ruleset::beginnings::beginnings;
use crate::{Changes, Cursor, ObjectName, Ruleset, Shown, Unlisted, ViewError, ViewId, Views, containers};
use futures_util::future::join_all;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Buckets, Clock, ListRequest, ObjectKey, StoreError, Timestamp};
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
    opened: HashMap<ViewId, Arc<Opened>>,
    verdicts: BTreeMap<Place, Verdict>,
    /// How often a verdict became another.
    turns: u64,
}

#[derive(Debug)]
struct Opened {
    ruleset: Ruleset,
    /// What the keys begin with that it wants.
    beginnings: Vec<String>,
}

/// A container, and what keys in it begin with.
type Place = (Arc<str>, String);

#[derive(Debug, Clone)]
struct Verdict {
    /// Or why not.
    may_see: Result<(), String>,
    at: Timestamp,
    /// A key there, which may be looked at where nobody may list.
    key: ObjectKey,
}

impl Permitted {
    /// What credentials of some buckets may see of views.
    pub fn new(views: Arc<dyn Views>, buckets: Arc<dyn Buckets>, clock: Arc<dyn Clock>) -> Self {
        Self { views, buckets, clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges again where that was long ago.
    async fn judge_again(&self, opened: &Opened) {
        let now = self.clock.now();
        let old: Vec<(Place, ObjectKey)> = {
            let state = self.state();
            let old = state.verdicts.iter().filter(|(place, verdict)| {
                opened.has(place) && !verdict.is_recent(now)
            });
            old.map(|(place, verdict)| (place.clone(), verdict.key.clone())).collect()
        };
        self.judge_all(old).await;
    }

    /// Judges what nobody has judged yet.
    async fn judge_new(&self, opened: &Opened, shown: &[Arc<Shown>]) {
        let mut new: BTreeMap<Place, ObjectKey> = BTreeMap::new();
        {
            let state = self.state();
            let mut last: Option<Place> = None;
            for shown in shown {
                let Some(place) = opened.place(&shown.name) else { continue };
                // Neighbours are of one place.
                if last.as_ref() != Some(&place) {
                    if !state.verdicts.contains_key(&place) {
                        new.entry(place.clone()).or_insert_with(|| shown.name.key.clone());
                    }
                    last = Some(place);
                }
            }
        }
        self.judge_all(new.into_iter().collect()).await;
    }

    async fn judge_all(&self, places: Vec<(Place, ObjectKey)>) {
        let judged = join_all(places.into_iter().map(|(place, key)| async move {
            let said = self.judge(&place, &key).await;
            (place, key, said)
        }));
        for (place, key, said) in judged.await {
            self.state().note(place, key, said, self.clock.now());
        }
    }

    /// Whether objects there may be listed or looked at.
    async fn judge(&self, (container, beginning): &Place, key: &ObjectKey) -> Result<(), StoreError> {
        let store = self.buckets.open(container).await?;
        let prefix = beginning.clone().into_bytes().into();
        match store.list(ListRequest { prefix, limit: 1, ..ListRequest::default() }).await {
            Err(refused @ StoreError::Denied(_)) => match store.find(key).await {
                Err(StoreError::Denied(_)) => Err(refused),
                looked => looked.map(drop),
            },
            listed => listed.map(drop),
        }
    }
}

#[async_trait::async_trait]
impl Views for Permitted {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let view = self.views.open(ruleset).await?;
        let beginnings = beginnings([ruleset.rules.as_slice()].into_iter());
        let opened = Arc::new(Opened { ruleset: ruleset.clone(), beginnings });
        self.state().opened.insert(view, opened);
        Ok(view)
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let opened = self.state().opened.get(&view).cloned().ok_or(ViewError::Unknown)?;
        self.judge_again(&opened).await;
        let turns = self.state().turns;
        let since = since.and_then(|since| without_turns(since, turns));
        let mut changes = self.views.changes(view, since.as_ref(), limit).await?;
        self.judge_new(&opened, &changes.shown).await;
        let state = self.state();
        changes.shown.retain(|shown| state.may_see(&opened, &shown.name));
        changes.unlisted.extend(state.hidden(&opened));
        changes.cursor = with_turns(&changes.cursor, turns);
        Ok(changes)
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        self.views.news()
    }
}

impl State {
    /// What could not be judged stays as it was, and is hidden if it was nothing.
    fn note(&mut self, place: Place, key: ObjectKey, said: Result<(), StoreError>, at: Timestamp) {
        let before = self.verdicts.get(&place).map(|verdict| verdict.may_see.clone());
        let may_see = match (said, &before) {
            (Ok(()), _) => Ok(()),
            (Err(error @ (StoreError::Denied(_) | StoreError::NoSuchBucket(_))), _) | (Err(error), None) => {
                Err(error.to_string())
            }
            (Err(_), Some(before)) => before.clone(),
        };
        if before.is_some_and(|before| before.is_ok() != may_see.is_ok()) {
            self.turns += 1;
        }
        self.verdicts.insert(place, Verdict { may_see, at, key });
    }

    fn may_see(&self, opened: &Opened, object: &ObjectName) -> bool {
        let verdict = opened.place(object).and_then(|place| self.verdicts.get(&place));
        verdict.is_some_and(|verdict| verdict.may_see.is_ok())
    }

    fn hidden(&self, opened: &Opened) -> Vec<Unlisted> {
        let own = self.verdicts.iter().filter(|(place, _)| opened.has(place));
        let hidden = own.filter_map(|((container, _), verdict)| {
            let why = verdict.may_see.clone().err()?;
            Some(Unlisted { container: container.to_string(), why })
        });
        let mut hidden: Vec<Unlisted> = hidden.collect();
        hidden.dedup();
        hidden
    }
}

impl Opened {
    /// By what is judged whether an object may be seen.
    fn place(&self, object: &ObjectName) -> Option<Place> {
        let key = object.key.as_bytes();
        let beginning = self.beginnings.iter().find(|beginning| key.starts_with(beginning.as_bytes()))?;
        Some((Arc::clone(&object.container), beginning.clone()))
    }

    /// Whether objects of a place may be in the view.
    fn has(&self, (container, beginning): &Place) -> bool {
        self.beginnings.contains(beginning)
            && containers(&self.ruleset.rules).any(|name| name.names(container))
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
