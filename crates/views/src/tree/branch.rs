//! One ruleset's directory: asked for when it is looked at, and no more often than its recency says.
//!
//! Invariants: of several who look at one time one asks; a handler that is lost is asked again, and until it answers there is
//! what was there.

use super::journal::Move;
use super::move_worker::End;
use super::naming::EntryName;
use super::overlay::Told;
use super::path_index::{Entry, Names};
use super::{DIRECTORY_PROPERTY, Lost, News, Place, Stale, TreeError, TreeParts, ViewStatus};
use crate::{Changes, Cursor, ObjectName, Rule, Ruleset, Shown, Unlisted, ViewError, ViewId, Views};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use store::{Claims, Clock, Timestamp};
use tokio::sync::{Notify, watch};

/// Objects asked for at once.
const PAGE: usize = 8192;
/// A handler that is lost is asked again after so long, so that not everybody who looks waits for it.
const AGAIN: Duration = Duration::from_secs(1);
/// Who looks at a view that is known waits so long for an answer, and then goes on with what there is.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Branch {
    pub(super) ruleset: Arc<Ruleset>,
    recency: Duration,
    views: Arc<dyn Views>,
    clock: Arc<dyn Clock>,
    /// Where the handler says when something changes.
    news: Option<watch::Receiver<u64>>,
    /// Who passes on what is stale.
    stirred: Arc<Notify>,
    turn: Claims<()>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    told: Told,
    view: Option<ViewId>,
    cursor: Option<Cursor>,
    /// How often the handler was begun to be asked.
    asked: u64,
    /// When the last answer was asked for that came, and what the handler's number was then.
    known: Option<Timestamp>,
    heard: Option<u64>,
    lost: Option<(Lost, Timestamp)>,
    /// What it said cannot be read.
    unlisted: Vec<Unlisted>,
    /// Somebody asks for longer than others wait: nobody else does meanwhile.
    is_late: bool,
}

impl Branch {
    pub(super) fn new(
        ruleset: Arc<Ruleset>,
        parts: &TreeParts,
        stirred: Arc<Notify>,
        moves: &[Move],
    ) -> Self {
        let told = Told::new(Names::new(ruleset.directories), moves);
        let state = RwLock::new(State {
            told,
            view: None,
            cursor: None,
            asked: 0,
            known: None,
            heard: None,
            lost: None,
            unlisted: Vec::new(),
            is_late: false,
        });
        let recency = ruleset.recency.unwrap_or(parts.recency);
        let (views, clock) = (parts.views.clone(), parts.clock.clone());
        // What time alone changes nobody says.
        let news = views.news().filter(|_| !ruleset.has_ages());
        Self { ruleset, recency, views, clock, news, stirred, turn: Claims::default(), state }
    }

    pub(super) fn recency(&self) -> Duration {
        self.recency
    }

    pub(super) fn names<T>(&self, look: impl FnOnce(&Names) -> T) -> T {
        look(&self.read().told.names)
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Names) -> T) -> T {
        let changed = change(&mut self.write().told.names);
        self.stirred.notify_one();
        changed
    }

    /// The directories in which something happened, each once, with so many names at most.
    pub(super) fn take_stale(&self, limit: usize) -> Vec<Stale> {
        let mut stale = self.write().told.take_stale(limit);
        let name = self.ruleset.name.as_bytes();
        stale.iter_mut().for_each(|stale| stale.directory.insert(0, name.into()));
        stale
    }

    pub(super) fn find(&self, path: &[&[u8]]) -> Option<Entry> {
        self.names(|names| names.find(path))
    }

    pub(super) fn list(
        &self,
        path: &[&[u8]],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Option<Vec<(EntryName, Entry)>> {
        self.names(|names| names.list(path, after, limit))
    }

    /// Whether no other object of the view is at a place: what is there would be the file itself.
    pub(super) fn is_free(&self, place: &Place) -> bool {
        let object = ObjectName { container: place.container.as_str().into(), key: place.key.clone() };
        let directory = place.properties.get(DIRECTORY_PROPERTY);
        self.names(|names| {
            let there = names.get(&object).map(|shown| shown.properties.as_ref());
            there.is_none_or(|properties| {
                properties.and_then(|said| said.get(DIRECTORY_PROPERTY)) == directory
            })
        })
    }

    /// Takes what this client did to objects, as one step. What it does not say is as it was.
    pub(super) fn tell(&self, news: &[News]) {
        let now = self.clock.now();
        let mut state = self.write();
        for (object, shown) in news {
            let shown = shown.clone().map(|shown| match state.told.names.get(object) {
                Some(known) => with_known(shown, known),
                None => shown,
            });
            let shown = shown.filter(|shown| self.would_show(shown, now));
            if shown.is_some() || self.could_show(object) {
                state.told.tell(object, shown, now);
            }
        }
        drop(state);
        self.stirred.notify_one();
    }

    /// This client begins to change an object.
    pub(super) fn begin_change(&self, object: &ObjectName) {
        self.write().told.begin_change(object);
    }

    /// A change that began has ended.
    pub(super) fn end_change(&self, object: &ObjectName) {
        self.write().told.end_change(object);
    }

    /// Shows objects where they are to lie, and with them the directories that were made here, as one step.
    pub(super) fn move_all(&self, moves: &[Move], made: Option<[&[&[u8]]; 2]>) {
        let told = &mut self.write().told;
        if let Some([from, to]) = made {
            told.names.move_made(from, to);
        }
        moves.iter().for_each(|one| told.begin_move(one));
        self.stirred.notify_one();
    }

    /// A move has ended: from now on the object lies where it says.
    pub(super) fn has_moved(&self, one: &Move, end: &End) {
        self.write().told.end_move(one);
        match end {
            End::Says(shown) => self.tell(&[(one.object.clone(), Some(shown.clone()))]),
            End::Gone => {
                self.write().told.heard(&one.object, None);
                self.stirred.notify_one();
            }
        }
    }

    /// Whether the ruleset shows an object that somebody here has just had in hand.
    fn would_show(&self, shown: &Shown, now: Timestamp) -> bool {
        self.ruleset.matches(&shown.state(Some(now)), now)
    }

    /// Whether the handler may say that an object is seen: it may be late.
    fn could_show(&self, object: &ObjectName) -> bool {
        self.ruleset.rules.iter().all(|rule| match rule {
            Rule::Container(names) => names.iter().any(|name| name.names(&object.container)),
            Rule::Object(keys) => keys.iter().any(|key| key.matches(object.key.as_bytes())),
            _ => true,
        })
    }

    pub(super) fn status(&self) -> ViewStatus {
        let state = self.read();
        ViewStatus {
            name: self.ruleset.name.clone(),
            objects: state.told.names.len(),
            known: state.known,
            lost: state.lost.as_ref().map(|(lost, _)| lost.clone()),
            unlisted: state.unlisted.clone(),
        }
    }

    /// Sees to it that what is here is as recent as it must be, if the handler answers. An error if it never did.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<(), TreeError> {
        let Some(asked) = self.needs_asking() else { return Ok(()) };
        let is_known = self.read().known.is_some();
        let mut asking = Box::pin(Arc::clone(self).ask_in_turn(asked));
        if !is_known {
            return asking.await;
        }
        if let Ok(outcome) = tokio::time::timeout(PATIENCE, &mut asking).await {
            return outcome;
        }
        self.is_late();
        tokio::spawn(asking);
        Ok(())
    }

    /// The handler takes its time.
    fn is_late(&self) {
        let now = self.clock.now();
        let mut state = self.write();
        if !std::mem::replace(&mut state.is_late, true) && state.lost.is_none() {
            let why = "the handler does not answer".to_owned();
            state.lost = Some((Lost { since: now, why }, now));
        }
    }

    /// Takes what changed, if somebody has looked at the view before. Failures are met by who looks next.
    pub(super) async fn follow(self: &Arc<Self>) {
        let asked = {
            let state = self.read();
            state.known.map(|_| state.asked).filter(|_| !self.is_all(state.heard))
        };
        if let Some(asked) = asked {
            Arc::clone(self).ask_in_turn(asked).await.ok();
        }
    }

    /// Whether something this client did is believed more than the handler, for a time.
    pub(super) fn believes(&self) -> bool {
        self.read().told.believes()
    }

    /// Ends what was believed long enough.
    pub(super) fn settle(&self) {
        let now = self.clock.now();
        self.write().told.settle(now);
    }

    /// Asks, unless somebody began to since it had been asked so often.
    async fn ask_in_turn(self: Arc<Self>, asked: u64) -> Result<(), TreeError> {
        let _turn = self.turn.claim(&()).await;
        if self.read().asked > asked {
            // Who had the turn began to ask after this call did.
            return self.standing();
        }
        let began = self.clock.now();
        let heard = self.news.as_ref().map(|news| *news.borrow());
        self.write().asked += 1;
        let outcome = self.ask().await;
        let mut state = self.write();
        state.is_late = false;
        match outcome {
            Ok(()) => (state.known, state.heard, state.lost) = (Some(began), heard, None),
            Err(error) => {
                let now = self.clock.now();
                let since = state.lost.take().map_or(now, |(lost, _)| lost.since);
                state.lost = Some((Lost { since, why: error.to_string() }, now.after(AGAIN)));
                if state.known.is_none() {
                    return Err(TreeError::View(error));
                }
            }
        }
        Ok(())
    }

    /// How often somebody has asked so far, if somebody should again.
    fn needs_asking(&self) -> Option<u64> {
        let now = self.clock.now();
        let state = self.read();
        // A clock that was put back says nothing.
        let is_recent = |known: Timestamp| known <= now && now.since(known) < self.recency;
        let waits = |again: Timestamp| now < again && again <= now.after(AGAIN);
        let is_known = state.known.is_some();
        let is_said_to_be =
            |known: Timestamp| known <= now && now.since(known) < AGAIN && self.is_all(state.heard);
        let goes_on = state.is_late
            || state.known.is_some_and(|known| is_recent(known) || is_said_to_be(known))
            || (is_known && state.lost.as_ref().is_some_and(|(_, again)| waits(*again)));
        (!goes_on).then_some(state.asked)
    }

    /// Whether the handler says that nothing has changed since it said a number.
    fn is_all(&self, heard: Option<u64>) -> bool {
        self.news.as_ref().is_some_and(|news| heard == Some(*news.borrow()))
    }

    fn standing(&self) -> Result<(), TreeError> {
        let state = self.read();
        match &state.lost {
            Some((lost, _)) if state.known.is_none() => {
                Err(TreeError::View(ViewError::Unreachable(lost.why.clone())))
            }
            _ => Ok(()),
        }
    }

    /// Fetches what changed, to the end.
    async fn ask(&self) -> Result<(), ViewError> {
        let mut anew: Option<Names> = None;
        let mut cursor = self.read().cursor.clone();
        loop {
            let mut changes = self.page(cursor.as_ref()).await?;
            let unlisted = std::mem::take(&mut changes.unlisted);
            cursor = Some(changes.cursor.clone());
            let has_more = changes.has_more;
            if changes.is_beginning {
                anew = Some(Names::new(self.ruleset.directories));
            }
            match &mut anew {
                Some(names) => fill(names, changes),
                None => self.hear(changes),
            }
            if !has_more {
                self.is_without(unlisted);
                break;
            }
        }
        let mut state = self.write();
        if let Some(names) = anew {
            state.told.begin_anew(names);
        }
        state.cursor = cursor;
        let now = self.clock.now();
        state.told.settle(now);
        if state.told.is_stirred() {
            self.stirred.notify_one();
        }
        Ok(())
    }

    /// Takes note of what cannot be read, and says so where that is news.
    fn is_without(&self, unlisted: Vec<Unlisted>) {
        let mut state = self.write();
        for Unlisted { container, why } in unlisted.iter().filter(|one| !state.unlisted.contains(one)) {
            tracing::warn!(view = self.ruleset.name, container, why, "a view is without a container");
        }
        state.unlisted = unlisted;
    }

    async fn page(&self, cursor: Option<&Cursor>) -> Result<Changes, ViewError> {
        let known = self.read().view;
        if let Some(view) = known {
            match self.views.changes(view, cursor, PAGE).await {
                Err(ViewError::Unknown) => {}
                answer => return answer,
            }
        }
        let view = self.views.open(&self.ruleset).await?;
        self.write().view = Some(view);
        self.views.changes(view, cursor, PAGE).await
    }

    /// Takes a part of what changed, as one step.
    fn hear(&self, changes: Changes) {
        let mut state = self.write();
        for object in &changes.gone {
            state.told.heard(object, None);
        }
        for shown in changes.shown {
            let name = shown.name.clone();
            state.told.heard(&name, Some(shown));
        }
        state.cursor = Some(changes.cursor);
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is new of an object, with the metadata that is known besides.
fn with_known(shown: Arc<Shown>, known: &Shown) -> Arc<Shown> {
    if shown.properties.is_some() && shown.tags.is_some() {
        return shown;
    }
    let mut shown = Arc::unwrap_or_clone(shown);
    shown.properties = shown.properties.or_else(|| known.properties.clone());
    shown.tags = shown.tags.or_else(|| known.tags.clone());
    Arc::new(shown)
}

fn fill(names: &mut Names, changes: Changes) {
    changes.gone.iter().for_each(|object| names.remove(object));
    changes.shown.into_iter().for_each(|shown| names.put(shown));
}
