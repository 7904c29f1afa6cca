//! The known state of all objects, and the views that each is in.
//!
//! Owns the state of the objects of all containers, in memory, divided into shards by the hash of container and key; each shard has a lock
//! of its own. Owns also the judgement of hints, listings and HEAD results, and the history of changes from which clients are served.
//!
//! Refuses: to ask a store, to write a file, to wait, to know what time it is.
//!
//! Invariant: a change has its version, and is buffered for the log, before the lock of its shard is released.

mod apply;
mod change_log;
mod departures;
mod judgement;
mod key_rules;
mod matcher;
mod membership;
mod shard;
mod slots;
mod table;
mod time_index;
mod value_predicates;

pub(super) use change_log::{LogRecord, RecordKind};
pub(super) use judgement::{ApplyOutcome, HeadResult, UnverifiedHint};
pub(super) use matcher::{Matcher, Needs, TimeCuts};

use crate::object_record::key_of;
use crate::{ObjectName, PackedObject};
use change_log::{ChangeLog, LogBuffer, UnwrittenShards};
use events::Hint;
use shard::Shard;
use slots::hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{ListEntry, ObjectKey, Timestamp};
use table::{Change, Table};
use tokio::sync::watch;

/// Number of shards: large enough that threads rarely contend, small enough that a cursor, which has two versions per
/// shard, stays short.
pub(super) const SHARDS: usize = 64;
// `UnwrittenShards` has one bit per shard.
const _: () = assert!(SHARDS <= u64::BITS as usize);

/// The known state of all objects.
#[derive(Debug)]
pub(super) struct Objects {
    shards: Box<[Mutex<Shard>]>,
    unwritten_shards: Arc<UnwrittenShards>,
    /// Counter that is incremented when any view may have changed.
    change_counter: watch::Sender<u64>,
}

/// A container as one request for changes sees it: the rules at one moment, and which of their sets of views have the requested view.
#[derive(Debug)]
pub(super) struct ContainerQuery {
    number: u32,
    name: Arc<str>,
    matcher: Arc<Matcher>,
    /// The bounds of all rules about times, as absolute times at the moment of the request.
    time_cuts: Arc<TimeCuts>,
    /// Whether the view is in each set of the matcher, by set id.
    is_in: Vec<bool>,
}

/// Changes of a view that a request found.
#[derive(Debug, Default)]
pub(super) struct FoundChanges {
    pub(super) shown: Vec<PackedObject>,
    pub(super) gone: Vec<ObjectName>,
    /// Whether more changes are known.
    pub(super) has_more: bool,
}

/// The position from which a request for one shard's changes begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardCursor {
    /// The version up to which changes were returned.
    pub(super) version: u64,
    /// The departures floor of the shard at the last request.
    pub(super) departures_floor: u64,
}

/// The version of an object's known state before a HEAD request, to discard the result if the state changes meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VersionBefore {
    /// `None` if the object is not known.
    version: Option<u64>,
    /// Whether a view needs the object's tags.
    pub(super) needs_tags: bool,
}

/// Totals over all objects.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) objects: usize,
    pub(super) memory_bytes: usize,
    /// Number of objects in each view, by number.
    pub(super) view_sizes: Vec<usize>,
}

impl Objects {
    /// Returns an empty state. `first_version` is below the versions of all changes; `is_logged` says whether changes are buffered for a
    /// log.
    pub(super) fn new(first_version: u64, is_logged: bool) -> Self {
        let unwritten_shards = Arc::<UnwrittenShards>::default();
        let buffer = |shard| is_logged.then(|| LogBuffer::new(shard, &unwritten_shards));
        let shards = (0..SHARDS).map(|shard| Mutex::new(Shard::new(first_version, buffer(shard)))).collect();
        Self { shards, unwritten_shards, change_counter: watch::Sender::default() }
    }

    fn shard(&self, container: u32, key: &[u8]) -> MutexGuard<'_, Shard> {
        self.shard_at(shard_of(hash(container, key)))
    }

    fn shard_at(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `change` for a container's table in each shard.
    fn for_each_table(&self, container: u32, mut change: impl FnMut(&mut Table, &mut ChangeLog)) {
        for shard in 0..SHARDS {
            if let Some((table, log)) = self.shard_at(shard).table(container) {
                change(table, log);
            }
        }
    }

    /// Wakes the receivers of the change counter.
    pub(super) fn notify_changed(&self) {
        self.change_counter.send_modify(|count| *count += 1);
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.change_counter.subscribe()
    }

    /// Applies a hint, unless it cannot be trusted. `running_listing` returns the number of the container's listing in
    /// progress, and is called while the object's shard is locked.
    pub(super) fn apply_hint(
        &self,
        container: u32,
        hint: &Hint<'_>,
        now: Timestamp,
        has_room: bool,
        running_listing: impl FnOnce() -> Option<u32>,
    ) -> ApplyOutcome {
        let mut shard = self.shard(container, &hint.key);
        let listing = running_listing();
        match shard.table(container) {
            Some((table, log)) => table.apply_hint(hint, now, listing, has_room, log),
            None => ApplyOutcome::Unwanted,
        }
    }

    /// Applies an entry of listing number `listing`. `verify_metadata` says that known metadata, which a listing does
    /// not show, may be wrong.
    pub(super) fn apply_entry(
        &self,
        container: u32,
        entry: &ListEntry,
        listing: u32,
        verify_metadata: bool,
    ) -> ApplyOutcome {
        match self.shard(container, entry.text()).table(container) {
            Some((table, log)) => table.apply_entry(entry, listing, verify_metadata, log),
            None => ApplyOutcome::Unwanted,
        }
    }

    /// Removes the objects of a container that a listing did not return. Returns the keys of objects to verify.
    pub(super) fn remove_unlisted(&self, container: u32, listing: u32) -> Vec<Box<[u8]>> {
        let mut unverified = Vec::new();
        self.for_each_table(container, |table, log| unverified.extend(table.remove_unlisted(listing, log)));
        self.notify_changed();
        unverified
    }

    /// Makes hints from up to `until` untrusted where they announce an object that is absent or not known: the hint of
    /// its removal may be lost.
    pub(super) fn distrust_hints_until(&self, container: u32, until: Timestamp) {
        self.for_each_table(container, |table, _| table.trust_limits.hints_lost_until = Some(until));
    }

    /// Logs that an object has to be verified. Returns false if the container is not known.
    pub(super) fn log_verify_pending(&self, container: u32, key: &[u8]) -> bool {
        let mut shard = self.shard(container, key);
        let table = shard.table(container);
        table.map(|(table, log)| table.log_verify_pending(key, log)).is_some()
    }

    /// Returns the version of the known state before a verification; `None` if no view names the container or wants the
    /// key.
    pub(super) fn version_before(&self, container: u32, key: &[u8]) -> Option<VersionBefore> {
        let mut shard = self.shard(container, key);
        let (table, _) = shard.table(container)?;
        let class = table.class_of(key)?;
        Some(VersionBefore { version: version_of(table, key), needs_tags: table.needs(class).tags })
    }

    /// Applies the result of a HEAD request, `None` for an absent object. Returns false if the known state changed
    /// since `before`, so that the result was discarded.
    pub(super) fn apply_head(
        &self,
        container: u32,
        key: &[u8],
        head: Option<&HeadResult>,
        (before, hint): (VersionBefore, Option<&UnverifiedHint>),
        running_listing: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let mut shard = self.shard(container, key);
        let listing = running_listing();
        let Some((table, log)) = shard.table(container) else { return true };
        let is_unchanged = version_of(table, key) == before.version;
        if is_unchanged {
            table.apply_head(key, head, hint, listing, log);
        }
        is_unchanged
    }

    /// Sets the matcher of a container, and recomputes the views of its objects.
    pub(super) fn set_matcher(&self, container: u32, matcher: &Arc<Matcher>, time_cuts: &Arc<TimeCuts>) {
        for shard in 0..SHARDS {
            self.shard_at(shard).set_matcher(container, matcher, time_cuts);
        }
    }

    /// Drops the objects of a container that no view names any more.
    pub(super) fn forget(&self, container: u32) {
        (0..SHARDS).for_each(|shard| self.shard_at(shard).forget(container));
    }

    /// Loads a record of a container's object from a file: a log if `is_log`, else a snapshot. Records of a log come in
    /// the order of their versions.
    pub(super) fn load_record(&self, container: u32, record: &[u8], version: u64, is_log: bool) {
        let key = key_of(record);
        if let Some((table, _)) = self.shard(container, key).table(container) {
            table.load_record(hash(container, key), record, version, is_log);
        }
    }

    /// Notes that departures of a shard up to a version are not known.
    pub(super) fn set_departures_floor(&self, shard: usize, version: u64) {
        self.shard_at(shard).set_departures_floor(version);
    }

    /// Moves the buffered records of all changes to `into`.
    pub(super) fn drain_log_into(&self, into: &mut Vec<u8>) {
        self.unwritten_shards.take().for_each(|shard| self.shard_at(shard).log.drain_into(into));
    }

    /// Appends the snapshot of a shard: its version, and the records of its objects in the order of their versions.
    pub(super) fn write_shard(&self, number: usize, into: &mut Vec<u8>) {
        let shard = self.shard_at(number);
        let version = shard.log.version();
        LogRecord { kind: RecordKind::Shard, number: number as u32, version, body: &[] }.append(into);
        for table in shard.tables() {
            let mut slots = [table.live_slots(), table.tombstone_slots()].concat();
            slots.sort_unstable_by_key(|slot| table.slots.state(*slot).version);
            for slot in slots {
                let (version, record) = (table.slots.state(slot).version, table.slots.record(slot));
                LogRecord::append_object(RecordKind::Object, table.container(), version, record, into);
            }
        }
    }

    /// Adds the changes of a shard since `since` to `found`, `room` at most. Returns where the next request begins. Returns `None` if
    /// departures that the client needs were dropped, so that it needs the whole content of the view.
    ///
    /// Departures from before the client's first request do not matter to it. A client that is still reading the
    /// whole content may therefore have a version below the floor, as long as the floor is the one of its last answer.
    pub(super) fn changes_of_shard(
        &self,
        shard: usize,
        view_number: u32,
        queries: &mut [ContainerQuery],
        since: ShardCursor,
        room: usize,
        found: &mut FoundChanges,
    ) -> Option<ShardCursor> {
        let mut shard = self.shard_at(shard);
        for query in queries.iter_mut() {
            if let Some((table, log)) = shard.table(query.number) {
                query.sync_with(table, log);
            }
        }
        if room == 0 {
            found.has_more |= shard.log.version() > since.version;
            return Some(since);
        }
        let floors = queries.iter().map(|query| shard.departures_floor(query.number));
        let departures_floor = floors.max().unwrap_or(0);
        let is_past_floor = since.version == 0 || since.version >= departures_floor;
        if !is_past_floor && since.departures_floor != departures_floor {
            return None;
        }
        let mut changes = Vec::new();
        for query in queries.iter_mut() {
            let Some((table, _)) = shard.table(query.number) else { continue };
            query.matcher.extend_membership(view_number, &mut query.is_in);
            table.changes(view_number, &query.is_in, since.version, &mut changes);
        }
        let mut version = shard.log.version();
        if changes.len() > room {
            found.has_more = true;
            changes.sort_unstable_by_key(|(version, _, _)| *version);
            changes.truncate(room);
            version = changes.last().map_or(since.version, |(version, _, _)| *version);
        }
        for (_, number, change) in changes {
            let query = queries.iter().find(|query| query.number == number);
            let Some((query, (table, _))) = query.zip(shard.table(number)) else { continue };
            found.add(&query.name, table, change);
        }
        Some(ShardCursor { version, departures_floor })
    }

    /// Returns the approximate memory of all objects, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_shard = |shard| self.shard_at(shard).tables().map(Table::memory_bytes).sum::<usize>();
        (0..SHARDS).map(of_shard).sum()
    }

    /// Returns totals, with the number of objects in each of the views with numbers below `views`.
    pub(super) fn totals(&self, views: usize) -> Totals {
        let mut totals = Totals { view_sizes: vec![0; views], ..Totals::default() };
        for shard in 0..SHARDS {
            for table in self.shard_at(shard).tables() {
                totals.objects += table.live_count();
                totals.memory_bytes += table.memory_bytes();
                for (set, count) in table.set_sizes() {
                    set.iter().for_each(|view| totals.view_sizes[*view as usize] += count);
                }
            }
        }
        totals
    }
}

impl ContainerQuery {
    pub(super) fn new(number: u32, name: Arc<str>, matcher: Arc<Matcher>, time_cuts: Arc<TimeCuts>) -> Self {
        Self { number, name, matcher, time_cuts, is_in: Vec::new() }
    }

    /// Moves the table to the moment of the request. If the table has a newer matcher than the request, the request
    /// uses that.
    fn sync_with(&mut self, table: &mut Table, log: &mut ChangeLog) {
        if Arc::ptr_eq(&self.matcher, table.membership().matcher()) {
            table.advance(&self.time_cuts, log);
        } else {
            self.matcher = Arc::clone(table.membership().matcher());
            self.time_cuts = Arc::clone(table.membership().time_cuts());
            self.is_in.clear();
        }
    }
}

impl FoundChanges {
    pub(super) fn len(&self) -> usize {
        self.shown.len() + self.gone.len()
    }

    fn add(&mut self, container: &Arc<str>, table: &Table, change: Change) {
        match change {
            Change::Shown(slot) => self.shown.extend(PackedObject::new(container, table.slots.record(slot))),
            Change::Gone(key) => {
                let key = ObjectKey::try_from(&*key).ok();
                self.gone.extend(key.map(|key| ObjectName { container: Arc::clone(container), key }));
            }
        }
    }
}

/// Returns the shard of an object.
pub(super) fn shard_of_object(container: u32, key: &[u8]) -> usize {
    shard_of(hash(container, key))
}

/// Returns the shard of a hash. Uses the upper half of the hash, because hash tables use the lower bits.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

fn version_of(table: &Table, key: &[u8]) -> Option<u64> {
    table.slots.find_key(key).map(|slot| table.slots.state(slot).version)
}
