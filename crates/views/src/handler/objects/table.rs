//! The objects of one container in one shard, with the views that each is in, in the order of their changes.
//!
//! Owns the state. Objects in the same set of views form a linked list in the order of their versions. The changes of
//! a view are read from the ends of the lists of those sets that contain the view. A change moves its object to the
//! end of one list, however many views see the object. Departures, which are keys that left a set, are kept in a
//! queue of bounded length ([`Table::history_max`]).
//!
//! Refuses: to ask a store, to wait. Invariants: a live object is in the list of its set, a tombstone in the list of
//! tombstones; versions ascend along a list; `times` holds all live objects if the matcher has rules on ages, else none.

use super::change_log::{ChangeLog, RecordKind};
use super::departures::{Departure, Departures};
use super::judgement::TrustLimits;
use super::matcher::{KeyClassId, Matcher, Needs, TimeCuts, ViewSet, ViewSetId};
use super::membership::Membership;
use super::slots::{List, Seen, SlotState, Slots};
use super::time_index::TimeIndex;
use crate::object_record::{ObjectRecord, key_of};
use hashbrown::HashMap;
use std::sync::Arc;

/// The known state of one container's objects in one shard.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) slots: Slots,
    /// The slots of live objects, by their set of views.
    lists: HashMap<ViewSetId, List>,
    /// Absent objects, kept because a late hint might announce them again.
    tombstones: List,
    live_count: usize,
    membership: Membership,
    departures: Departures,
    times: TimeIndex,
    pub(super) trust_limits: TrustLimits,
    /// Scratch space for a packed record.
    packed: Vec<u8>,
}

/// A change in a view: a slot that it shows, or a key that left it.
#[derive(Debug)]
pub(super) enum Change {
    Shown(u32),
    Gone(Box<[u8]>),
}

/// Minimum for the number of departures, and of tombstones, that a table keeps.
const HISTORY_MIN: usize = 1024;

impl Table {
    pub(super) fn new(container: u32, matcher: Arc<Matcher>, time_cuts: Arc<TimeCuts>) -> Self {
        Self {
            slots: Slots::new(container),
            lists: HashMap::new(),
            tombstones: List::EMPTY,
            live_count: 0,
            membership: Membership::new(matcher, time_cuts),
            departures: Departures::default(),
            times: TimeIndex::default(),
            trust_limits: TrustLimits::default(),
            packed: Vec::new(),
        }
    }

    pub(super) fn container(&self) -> u32 {
        self.slots.container
    }

    pub(super) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(super) fn departures_floor(&self) -> u64 {
        self.departures.floor()
    }

    pub(super) fn set_departures_floor(&mut self, version: u64) {
        self.departures.set_floor(version);
    }

    pub(super) fn live_count(&self) -> usize {
        self.live_count
    }

    /// Returns the approximate memory of the table, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.membership.memory_bytes()
            + self.departures.memory_bytes()
            + self.times.memory_bytes()
    }

    /// Returns the sets that have objects, with the number of their objects.
    pub(super) fn set_sizes(&self) -> impl Iterator<Item = (ViewSet, usize)> {
        let filled = self.lists.iter().filter(|(_, list)| list.count > 0);
        filled.map(|(set, list)| (self.membership.views(*set), list.count))
    }

    /// Returns the class of a key, whether or not its object is known; `None` if no view wants the key.
    pub(super) fn class_of(&mut self, key: &[u8]) -> Option<KeyClassId> {
        self.membership.class_of(key)
    }

    pub(super) fn needs(&mut self, class: KeyClassId) -> Needs {
        self.membership.needs(class)
    }

    /// Replaces the known state of an object, and logs the change. `seen` says how the object was seen during the
    /// listing in progress; `None` if no listing runs, or to mark the object as absent at the end of one.
    pub(super) fn put(
        &mut self,
        hash: u64,
        class: KeyClassId,
        known: &ObjectRecord<'_>,
        seen: Option<Seen>,
        log: &mut ChangeLog,
    ) {
        let mut packed = std::mem::take(&mut self.packed);
        self.pack(class, known, &mut packed);
        let version = log.append(RecordKind::Object, self.container(), &packed);
        let slot = self.store(hash, class, &packed, version);
        self.packed = packed;
        if let Some(seen) = seen {
            self.slots.set_seen(slot, seen);
        }
        self.prune_history(seen.is_some());
    }

    /// Packs a record, without the metadata that no view needs.
    fn pack(&mut self, class: KeyClassId, known: &ObjectRecord<'_>, into: &mut Vec<u8>) {
        into.clear();
        let needs = self.membership.needs(class);
        ObjectRecord { live: known.live.map(|live| needs.trim(live)), ..*known }.pack(into);
    }

    /// Loads a record of a snapshot or, if `is_log`, of a log in the order of versions. Ignores a malformed record, and
    /// one whose key no view wants.
    pub(super) fn load_record(&mut self, hash: u64, record: &[u8], version: u64, is_log: bool) {
        let Some(known) = ObjectRecord::read(record) else { return };
        let Some(class) = self.class_of(known.key) else { return };
        if is_log && self.slots.find(hash, known.key).is_some() {
            // The set that the object left is not known, because the matcher of that time is not.
            self.departures.push(Departure { version, key: known.key.into(), from: None });
        }
        let mut packed = std::mem::take(&mut self.packed);
        self.pack(class, &known, &mut packed);
        self.store(hash, class, &packed, version);
        self.packed = packed;
        self.prune_history(false);
    }

    /// Stores a packed record in place of the known one of the same key. Returns its slot, which is at the end of its
    /// list.
    fn store(&mut self, hash: u64, class: KeyClassId, record: &[u8], version: u64) -> u32 {
        let live = ObjectRecord::read(record).and_then(|known| known.live);
        let set = live.map(|live| self.membership.set_of(class, &live));
        let state = SlotState { version, class, set: set.unwrap_or(ViewSetId::NONE) };
        let slot = match self.slots.find(hash, key_of(record)) {
            Some(slot) => {
                self.detach(slot, version, set);
                self.slots.replace(slot, record);
                self.slots.set_state(slot, state);
                slot
            }
            None => self.slots.insert(hash, record, state),
        };
        self.attach(slot);
        slot
    }

    /// Removes a slot from its list and from the index of times. Records a departure if `next`, the object's next
    /// set, is another set or none.
    fn detach(&mut self, slot: u32, version: u64, next: Option<ViewSetId>) {
        let set = self.slots.state(slot).set;
        let Some(live) = self.slots.live(slot) else {
            return self.slots.unlink(slot, &mut self.tombstones);
        };
        if self.membership.has_ages() {
            self.times.remove(slot, &live);
        }
        if set != ViewSetId::NONE && next != Some(set) {
            let from = Some(self.membership.views(set));
            self.departures.push(Departure { version, key: self.slots.key(slot).into(), from });
        }
        self.live_count -= 1;
        self.slots.unlink(slot, self.lists.entry(set).or_insert(List::EMPTY));
    }

    /// Adds a slot to the end of its list and, if views have rules on ages, to the index of times.
    fn attach(&mut self, slot: u32) {
        let Some(live) = self.slots.live(slot) else {
            return self.slots.link(slot, &mut self.tombstones);
        };
        if self.membership.has_ages() {
            self.times.insert(slot, &live);
        }
        self.live_count += 1;
        let set = self.slots.state(slot).set;
        self.slots.link(slot, self.lists.entry(set).or_insert(List::EMPTY));
    }

    /// Returns how many departures, and how many tombstones, are kept.
    fn history_max(&self) -> usize {
        HISTORY_MIN.max(self.live_count / 4)
    }

    /// Drops the oldest departures and, unless `keep_tombstones`, the oldest tombstones. They have to stay while a
    /// listing is in progress: an entry of the listing may be older than the removal.
    fn prune_history(&mut self, keep_tombstones: bool) {
        let history_max = self.history_max();
        self.departures.prune(history_max);
        while !keep_tombstones && self.tombstones.count > history_max {
            self.drop_tombstone(self.tombstones.head);
        }
    }

    /// Forgets an absent object. Hints of unknown objects with an order up to that of the tombstone are verified from
    /// now on.
    fn drop_tombstone(&mut self, slot: u32) {
        let order = self.slots.known(slot).order;
        self.trust_limits.forgotten_order_max = self.trust_limits.forgotten_order_max.max(order);
        self.slots.unlink(slot, &mut self.tombstones);
        self.slots.remove(slot);
    }

    /// Sets another matcher: recomputes the sets of all objects, and drops objects that no view wants any more.
    pub(super) fn set_matcher(
        &mut self,
        matcher: &Arc<Matcher>,
        time_cuts: &Arc<TimeCuts>,
        log: &mut ChangeLog,
    ) {
        // First applies the passing of time to the old rules, so that departures are recorded. Changing the matcher
        // itself moves no object into or out of a view that is in both.
        self.advance(&Arc::new(self.membership.matcher().time_cuts(time_cuts.now)), log);
        self.membership = Membership::new(Arc::clone(matcher), Arc::clone(time_cuts));
        self.times = TimeIndex::default();
        let mut live = self.live_slots();
        live.sort_unstable_by_key(|slot| self.slots.state(*slot).version);
        let tombstones = self.tombstone_slots();
        (self.lists, self.tombstones, self.live_count) = (HashMap::new(), List::EMPTY, 0);
        for slot in live.into_iter().chain(tombstones) {
            self.reclassify(slot);
        }
    }

    /// Finds the class and the set of a slot that is in no list, and attaches or drops it.
    fn reclassify(&mut self, slot: u32) {
        let Some(class) = self.membership.class_of(self.slots.key(slot)) else {
            if self.slots.live(slot).is_none() {
                // A tombstone that is dropped limits the hints that are trusted.
                self.slots.link(slot, &mut self.tombstones);
                return self.drop_tombstone(slot);
            }
            return self.slots.remove(slot);
        };
        let live = self.slots.live(slot);
        let set = live.map_or(ViewSetId::NONE, |live| self.membership.set_of(class, &live));
        let version = self.slots.state(slot).version;
        self.slots.set_state(slot, SlotState { version, class, set });
        self.attach(slot);
    }

    /// Moves to another moment: recomputes the sets of the objects that this can change.
    pub(super) fn advance(&mut self, time_cuts: &Arc<TimeCuts>, log: &mut ChangeLog) {
        if !self.membership.has_ages() || self.membership.time_cuts() == time_cuts {
            return;
        }
        let ranges = self.membership.move_to(time_cuts);
        for slot in self.times.in_ranges(ranges) {
            self.refresh_set(slot, log);
        }
        self.prune_history(true);
    }

    /// Recomputes the set of an object. A change is logged as a record of the object: otherwise clients that do not
    /// know of the change yet would not learn of it after a restart.
    fn refresh_set(&mut self, slot: u32, log: &mut ChangeLog) {
        let (state, live) = (self.slots.state(slot), self.slots.live(slot));
        let Some(set) = live.map(|live| self.membership.set_of(state.class, &live)) else { return };
        if set != state.set {
            let version = log.append(RecordKind::Object, self.container(), self.slots.record(slot));
            self.detach(slot, version, Some(set));
            self.slots.set_state(slot, SlotState { version, set, ..state });
            self.attach(slot);
        }
    }

    /// Appends the changes of a view after version `since`, each with its version and the container's number; for
    /// version 0, everything that the view shows. `is_in` says for each set whether the view is in it.
    pub(super) fn changes(
        &self,
        view_number: u32,
        is_in: &[bool],
        since: u64,
        into: &mut Vec<(u64, u32, Change)>,
    ) {
        let container = self.container();
        for (_, list) in self.lists.iter().filter(|(set, _)| is_set(is_in, **set)) {
            let newest_first = self.slots.walk_back(*list).map(|slot| (self.slots.state(slot).version, slot));
            let changed = newest_first.take_while(|(version, _)| *version > since);
            into.extend(changed.map(|(version, slot)| (version, container, Change::Shown(slot))));
        }
        if since > 0 {
            let departed = self.departures.since(view_number, since);
            let gone = departed.filter(|departure| !self.is_shown(&departure.key, is_in));
            into.extend(gone.map(|gone| (gone.version, container, Change::Gone(gone.key.clone()))));
        }
    }

    fn is_shown(&self, key: &[u8], is_in: &[bool]) -> bool {
        let set = self.slots.find_key(key).map(|slot| self.slots.state(slot).set);
        set.is_some_and(|set| set != ViewSetId::NONE && is_set(is_in, set))
    }

    /// Returns the slots of all live objects.
    pub(super) fn live_slots(&self) -> Vec<u32> {
        self.lists.values().flat_map(|list| self.slots.walk(*list)).collect()
    }

    /// Returns the slots of all tombstones.
    pub(super) fn tombstone_slots(&self) -> Vec<u32> {
        self.slots.walk(self.tombstones).collect()
    }
}

fn is_set(is_in: &[bool], set: ViewSetId) -> bool {
    is_in.get(set.0 as usize).copied().unwrap_or(false)
}
