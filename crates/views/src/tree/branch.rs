//! This client's copy of one view. The handler is asked when a user looks at the view, but no more often than its
//! recency requires.
//!
//! Invariants: concurrent users share one request; a handler that does not answer is asked again, and until it
//! answers the view shows its last known content.

use super::memory::ViewsMemory;
use super::moves::{Move, MoveEnd};
use super::naming::{DIRECTORY_PROPERTY, EntryName};
use super::overlay::Overlay;
use super::path_index::{Entry, PathIndex};
use super::place::Place;
use super::stale::Stale;
use super::tree_error::TreeError;
use super::view_status::{HandlerOutage, ViewStatus};
use crate::{Changes, Cursor, ObjectName, PackedObject, Rule, Ruleset, Unlisted, ViewError, ViewId, Views};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use store::{Clock, KeyedLocks, Timestamp};
use tokio::sync::{Notify, watch};

/// Number of objects requested at once.
const PAGE_OBJECTS: usize = 8192;
/// Wait before a handler that did not answer is asked again, so that not every user waits for it.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Wait before a view that needs too much memory is tried again.
const TOO_LARGE_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Maximum wait of a user for an answer, if older content of the view is known. The request goes on in the background.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

/// The dependencies and settings of a [`Branch`].
#[derive(Debug)]
pub(super) struct BranchParts {
    pub(super) ruleset: Arc<Ruleset>,
    pub(super) views: Arc<dyn Views>,
    /// Maximum age of the view's content before the handler is asked again, if the ruleset does not set it.
    pub(super) recency: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// Wakes the task that passes on stale names.
    pub(super) stale_notify: Arc<Notify>,
    pub(super) memory: Arc<ViewsMemory>,
    /// Whether the handler of this process has the objects' records as well, so that they do not count as memory of the
    /// view.
    pub(super) has_shared_records: bool,
}

/// A view of a tree, with this client's copy of its content.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) ruleset: Arc<Ruleset>,
    recency: Duration,
    views: Arc<dyn Views>,
    clock: Arc<dyn Clock>,
    /// Counter that changes with every change at the handler, if the handler has one.
    change_counter: Option<watch::Receiver<u64>>,
    /// Wakes the task that passes on stale names.
    stale_notify: Arc<Notify>,
    /// Held during a request to the handler.
    asking: KeyedLocks<()>,
    memory: Arc<ViewsMemory>,
    has_shared_records: bool,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    overlay: Overlay,
    view: Option<ViewId>,
    cursor: Option<Cursor>,
    /// Number of requests for changes that were begun.
    ask_count: u64,
    /// Time at which the last successful request began; `None` if there was none.
    known_at: Option<Timestamp>,
    /// The handler's counter when that request began.
    known_count: Option<u64>,
    /// If the handler does not answer: since when and why, and when it is asked again.
    outage: Option<(HandlerOutage, Timestamp)>,
    /// Containers that the handler cannot read.
    unlisted: Vec<Unlisted>,
    /// Whether a request takes longer than users wait. No other request is begun meanwhile.
    is_answer_late: bool,
    /// If the view needs too much memory: when it is tried again.
    too_large_until: Option<Timestamp>,
    /// Memory of the view as [`ViewsMemory`] has it, in bytes.
    counted_bytes: usize,
}

impl Branch {
    pub(super) fn new(parts: BranchParts, moves: &[Move]) -> Self {
        let BranchParts { ruleset, views, recency, clock, stale_notify, memory, has_shared_records } = parts;
        let state = RwLock::new(State {
            overlay: Overlay::new(PathIndex::new(ruleset.directories), moves),
            view: None,
            cursor: None,
            ask_count: 0,
            known_at: None,
            known_count: None,
            outage: None,
            unlisted: Vec::new(),
            is_answer_late: false,
            too_large_until: None,
            counted_bytes: 0,
        });
        let recency = ruleset.recency.unwrap_or(recency);
        // Changes by age alone do not change the handler's counter.
        let change_counter = views.change_counter().filter(|_| !ruleset.has_ages());
        Self {
            ruleset,
            recency,
            views,
            clock,
            change_counter,
            stale_notify,
            asking: KeyedLocks::default(),
            memory,
            has_shared_records,
            state,
        }
    }

    pub(super) fn recency(&self) -> Duration {
        self.recency
    }

    /// Calls `read` with the index of what the view shows, under the view's read lock.
    pub(super) fn with_index<T>(&self, read: impl FnOnce(&PathIndex) -> T) -> T {
        read(&self.read().overlay.index)
    }

    /// Calls `change` with the index of what the view shows, under the view's write lock, and then wakes the task that
    /// passes on stale names.
    pub(super) fn change_index<T>(&self, change: impl FnOnce(&mut PathIndex) -> T) -> T {
        let changed = change(&mut self.write().overlay.index);
        self.stale_notify.notify_one();
        changed
    }

    /// Returns the memory of the view, in bytes. Records that the handler of this process has as well do not count.
    pub(super) fn memory_bytes(&self) -> usize {
        self.with_index(|index| index.memory_bytes(self.has_shared_records))
    }

    /// Takes the directories with stale names: each once, with at most `limit` names in all.
    pub(super) fn take_stale(&self, limit: usize) -> Vec<Stale> {
        let mut stale = self.write().overlay.take_stale(limit);
        let name = self.ruleset.name.as_bytes();
        stale.iter_mut().for_each(|stale| stale.directory.insert(0, name.into()));
        stale
    }

    /// Returns the known entry of a path within the view; `None` if there is none.
    pub(super) fn find(&self, path: &[&[u8]]) -> Option<Entry> {
        self.with_index(|index| index.find(path))
    }

    pub(super) fn list(
        &self,
        path: &[&[u8]],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Option<Vec<(EntryName, Entry)>> {
        self.with_index(|index| index.list(path, after, limit))
    }

    /// Returns whether a place is free, or holds the object that a file made there would replace: one with the same
    /// key in the same directory.
    pub(super) fn is_free(&self, place: &Place) -> bool {
        let object = ObjectName { container: place.container.as_str().into(), key: place.key.clone() };
        let directory = place.properties.get(DIRECTORY_PROPERTY);
        self.with_index(|index| {
            let occupant = index.get(&object);
            occupant
                .is_none_or(|occupant| occupant.property(DIRECTORY_PROPERTY) == directory.map(String::as_str))
        })
    }

    /// Applies a change by this client: the object's new state, or `None` if it is gone. Properties and tags that are not known keep
    /// their last known values.
    pub(super) fn apply_local(&self, object: &ObjectName, shown: Option<&PackedObject>) {
        let now = self.clock.now();
        let mut state = self.write();
        let shown = shown.map(|shown| match state.overlay.index.get(object) {
            Some(known) => with_known_metadata(shown, &known),
            None => shown.clone(),
        });
        let shown = shown.filter(|shown| self.would_show(shown, now));
        if shown.is_some() || self.could_show(object) {
            state.overlay.apply_local(object, shown, now);
        }
        drop(state);
        self.stale_notify.notify_one();
    }

    /// Notes that this client begins to change an object, so that the handler's reports until [`Branch::end_change`]
    /// are kept.
    pub(super) fn begin_change(&self, object: &ObjectName) {
        self.write().overlay.begin_change(object);
    }

    /// Notes that a change has ended.
    pub(super) fn end_change(&self, object: &ObjectName) {
        self.write().overlay.end_change(object);
    }

    /// Shows objects in the directories that they are being moved to, and with them the directories that were made
    /// here, in one step.
    pub(super) fn begin_moves(&self, moves: &[Move], made: Option<[&[&[u8]]; 2]>) {
        let overlay = &mut self.write().overlay;
        if let Some([from, to]) = made {
            overlay.index.move_made_directories(from, to);
        }
        moves.iter().for_each(|object_move| overlay.begin_move(object_move));
        self.stale_notify.notify_one();
    }

    /// Ends a move: from now on the object's own property counts.
    pub(super) fn end_move(&self, object_move: &Move, end: &MoveEnd) {
        self.write().overlay.end_move(object_move);
        match end {
            MoveEnd::Placed(shown) => self.apply_local(&object_move.object, Some(shown)),
            MoveEnd::Gone => {
                self.write().overlay.apply_remote(&object_move.object, None);
                self.stale_notify.notify_one();
            }
        }
    }

    /// Returns whether the ruleset matches an object that this client has just accessed.
    fn would_show(&self, object: &PackedObject, now: Timestamp) -> bool {
        self.ruleset.matches(&object.unpack().state(Some(now)), now)
    }

    /// Returns whether the handler may report an object as shown, perhaps late: whether its container and key match.
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
            objects: state.overlay.index.len(),
            known: state.known_at,
            outage: state.outage.as_ref().map(|(outage, _)| outage.clone()),
            unlisted: state.unlisted.clone(),
        }
    }

    /// Brings the content up to date as far as its recency requires and the handler answers. Waits at most
    /// [`ANSWER_WAIT_MAX`] if older content is known. Fails only if the handler has never answered.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<(), TreeError> {
        let Some(ask_count) = self.ask_count_if_due() else { return self.current_error() };
        let is_known = self.read().known_at.is_some();
        let mut request = Box::pin(Arc::clone(self).ask_in_turn(ask_count));
        if !is_known {
            return request.await;
        }
        if let Ok(outcome) = tokio::time::timeout(ANSWER_WAIT_MAX, &mut request).await {
            return outcome;
        }
        self.mark_late();
        tokio::spawn(request);
        Ok(())
    }

    /// Notes that the handler does not answer in time.
    fn mark_late(&self) {
        let now = self.clock.now();
        let mut state = self.write();
        if !std::mem::replace(&mut state.is_answer_late, true) && state.outage.is_none() {
            let why = "the handler does not answer".to_owned();
            state.outage = Some((HandlerOutage { since: now, why }, now));
        }
    }

    /// Fetches changes, if a user has looked at the view before and the handler's counter does not show that nothing
    /// has changed. A failure is part of the view's status.
    pub(super) async fn follow(self: &Arc<Self>) {
        let ask_count = {
            let state = self.read();
            state.known_at.map(|_| state.ask_count).filter(|_| !self.is_up_to_date(state.known_count))
        };
        if let Some(ask_count) = ask_count {
            Arc::clone(self).ask_in_turn(ask_count).await.ok();
        }
    }

    /// Returns whether a local change may still take precedence over the handler's state.
    pub(super) fn has_pending(&self) -> bool {
        self.read().overlay.has_pending()
    }

    /// Ends the precedence of local changes that have expired.
    pub(super) fn expire_pending(&self) {
        let now = self.clock.now();
        self.write().overlay.expire_pending(now);
    }

    /// Fetches changes, unless another call began to since `ask_count` was read. Fails only if the handler has never
    /// answered.
    async fn ask_in_turn(self: Arc<Self>, ask_count: u64) -> Result<(), TreeError> {
        let _asking = self.asking.lock(&()).await;
        if self.read().ask_count > ask_count {
            // Another call began to fetch after this one was made, so its result counts for both.
            return self.current_error();
        }
        let began = self.clock.now();
        let known_count = self.change_counter.as_ref().map(|counter| *counter.borrow());
        self.write().ask_count += 1;
        let outcome = self.fetch_changes().await;
        let mut state = self.write();
        state.is_answer_late = false;
        match outcome {
            Ok(()) => {
                (state.known_at, state.known_count) = (Some(began), known_count);
                (state.outage, state.too_large_until) = (None, None);
            }
            Err(error) => {
                let now = self.clock.now();
                let since = state.outage.take().map_or(now, |(outage, _)| outage.since);
                state.outage =
                    Some((HandlerOutage { since, why: error.to_string() }, now.after(RETRY_AFTER)));
                let is_too_large = matches!(error, ViewError::TooLarge(_));
                state.too_large_until = is_too_large.then(|| now.after(TOO_LARGE_RETRY_AFTER));
                if state.known_at.is_none() {
                    return Err(TreeError::View(error));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of requests so far if another one is due; `None` if the known content or error is recent
    /// enough.
    fn ask_count_if_due(&self) -> Option<u64> {
        let now = self.clock.now();
        let state = self.read();
        // If the clock was set back, the content does not count as recent.
        let is_recent = |known: Timestamp| known <= now && now.since(known) < self.recency;
        let is_waiting = |retry_at: Timestamp| now < retry_at && retry_at <= now.after(RETRY_AFTER);
        let is_known = state.known_at.is_some();
        let is_reported_current = |known: Timestamp| {
            known <= now && now.since(known) < RETRY_AFTER && self.is_up_to_date(state.known_count)
        };
        let is_too_large = |until: Timestamp| now < until && until <= now.after(TOO_LARGE_RETRY_AFTER);
        let is_usable = state.is_answer_late
            || state.too_large_until.is_some_and(is_too_large)
            || state.known_at.is_some_and(|known| is_recent(known) || is_reported_current(known))
            || (is_known && state.outage.as_ref().is_some_and(|(_, retry_at)| is_waiting(*retry_at)));
        (!is_usable).then_some(state.ask_count)
    }

    /// Returns whether the handler's counter is still `known_count`, so that nothing has changed. False without a
    /// counter.
    fn is_up_to_date(&self, known_count: Option<u64>) -> bool {
        self.change_counter.as_ref().is_some_and(|counter| known_count == Some(*counter.borrow()))
    }

    /// Returns the error of the last request if none has ever succeeded.
    fn current_error(&self) -> Result<(), TreeError> {
        let state = self.read();
        match &state.outage {
            Some((outage, _)) if state.known_at.is_none() && state.too_large_until.is_some() => {
                Err(TreeError::View(ViewError::TooLarge(outage.why.clone())))
            }
            Some((outage, _)) if state.known_at.is_none() => {
                Err(TreeError::View(ViewError::Unreachable(outage.why.clone())))
            }
            _ => Ok(()),
        }
    }

    /// Fetches all pages of changes. The whole content replaces the known one in one step, after its last page.
    async fn fetch_changes(&self) -> Result<(), ViewError> {
        let mut new_index: Option<PathIndex> = None;
        let mut cursor = self.read().cursor.clone();
        loop {
            let mut changes = self.fetch_page(cursor.as_ref()).await?;
            let unlisted = std::mem::take(&mut changes.unlisted);
            cursor = Some(changes.cursor.clone());
            let has_more = changes.has_more;
            if changes.is_beginning {
                new_index = Some(PathIndex::new(self.ruleset.directories));
            }
            self.check_memory(new_index.as_ref())?;
            match &mut new_index {
                Some(index) => add_to_index(index, changes),
                None => self.apply_changes(changes),
            }
            if !has_more {
                self.note_unlisted(unlisted);
                break;
            }
        }
        let mut state = self.write();
        if let Some(index) = new_index {
            state.overlay.replace_all(index);
        }
        state.cursor = cursor;
        self.count_memory(&mut state);
        let now = self.clock.now();
        state.overlay.expire_pending(now);
        if state.overlay.has_stale() {
            self.stale_notify.notify_one();
        }
        Ok(())
    }

    /// Fails if the memory of all views is used up, so that no further page may be added to the view, or to
    /// `new_index`, the content that replaces it.
    fn check_memory(&self, new_index: Option<&PathIndex>) -> Result<(), ViewError> {
        self.count_memory(&mut self.write());
        if self.memory.has_room_for(new_index.map_or(0, |new| new.memory_bytes(self.has_shared_records))) {
            return Ok(());
        }
        let (name, limit_mib) = (&self.ruleset.name, self.memory.max_bytes() >> 20);
        Err(ViewError::TooLarge(format!(
            "with view '{name}' all views need more than {limit_mib} MiB, their share of --memory-limit: let rulesets match fewer objects, or raise the limit"
        )))
    }

    /// Tells [`ViewsMemory`] how much the view uses now.
    fn count_memory(&self, state: &mut State) {
        let now_bytes = state.overlay.index.memory_bytes(self.has_shared_records);
        let before_bytes = std::mem::replace(&mut state.counted_bytes, now_bytes);
        self.memory.note(before_bytes, now_bytes);
    }

    /// Records the containers that cannot be read, and logs new ones.
    fn note_unlisted(&self, unlisted: Vec<Unlisted>) {
        let mut state = self.write();
        for Unlisted { container, why } in unlisted.iter().filter(|entry| !state.unlisted.contains(entry)) {
            tracing::warn!(
                view = self.ruleset.name,
                container,
                why,
                "a container of the view cannot be read: its objects are shown as last known, or not at all, until it can"
            );
        }
        state.unlisted = unlisted;
    }

    /// Fetches one page of changes. Opens the view first if it is not open, or if the handler does not know it any
    /// more.
    async fn fetch_page(&self, cursor: Option<&Cursor>) -> Result<Changes, ViewError> {
        let known = self.read().view;
        if let Some(view) = known {
            match self.views.changes(view, cursor, PAGE_OBJECTS).await {
                Err(ViewError::Unknown) => {}
                answer => return answer,
            }
        }
        let view = self.views.open(&self.ruleset).await?;
        self.write().view = Some(view);
        self.views.changes(view, cursor, PAGE_OBJECTS).await
    }

    /// Applies one page of changes, in one step.
    fn apply_changes(&self, changes: Changes) {
        let mut state = self.write();
        for object in &changes.gone {
            state.overlay.apply_remote(object, None);
        }
        for shown in changes.shown {
            state.overlay.apply_remote(&shown.name(), Some(shown));
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

/// Returns an object with the properties and tags of `known` where its own are not known.
fn with_known_metadata(object: &PackedObject, known: &PackedObject) -> PackedObject {
    let mut shown = object.unpack();
    if shown.properties.is_some() && shown.tags.is_some() {
        return object.clone();
    }
    let known = known.unpack();
    shown.properties = shown.properties.or(known.properties);
    shown.tags = shown.tags.or(known.tags);
    PackedObject::from(shown)
}

fn add_to_index(index: &mut PathIndex, changes: Changes) {
    changes.gone.iter().for_each(|object| index.remove(object));
    changes.shown.into_iter().for_each(|shown| index.put(shown));
}
