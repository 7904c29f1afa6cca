//! Write-back: a store that acknowledges a change once a local log has it, and uploads it to the bucket later.
//!
//! An acknowledged change survives the end of the process, and after [`ObjectStore::sync`] the loss of power. Reads
//! and listings show the bucket with the pending changes applied. Changes are uploaded in the background, only the
//! newest of each key. After a restart the log is opened again and the upload continues.
//!
//! A precondition is checked against a pending change of the key, or else when the change is uploaded; with
//! [`WritebackOptions::checks_at_once`] it is also checked in the bucket first. An upload that meets another client's
//! object stores our bytes under the key that [`WritebackOptions::lost`] returns, or as [`ConflictCallbacks`] decide.
//!
//! Invariants: an acknowledged change is in the log until it is in the bucket. The bucket never has a change whose
//! record the log could lose with the power, because after that loss the object would be taken for another client's;
//! except a new object under a key of which the log has nothing else. No object in the bucket is replaced while a
//! pending object is made of it. The log is at most as long as its limit, plus the changes that are being made, the
//! notes, and a few segments that are about to be removed.

mod activity;
mod admission;
mod bucket_side;
mod condition;
mod drain;
mod early_upload;
mod errors;
mod etags;
mod extent;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod kept_notes;
mod log_damage;
mod log_record;
mod logged_upload;
mod make_change;
mod merged_listing;
mod notes;
mod object_store;
mod options;
mod pending;
mod replay;
mod send_memory;
mod sources;
mod unfinished_renames;
mod unsynced_keys;
mod upload_conflict;
mod upload_result;

pub use log::segmented::{ReadFaults, VERSIONS, stored_version};
pub use log_damage::LogDamage;
pub use options::{SharedKeys, WritebackOptions};
pub use unfinished_renames::UnfinishedRename;

use crate::conflict::Decisions;
use activity::Activity;
use bucket_side::BucketSide;
use errors::{closed, failed};
use etags::Etags;
use extent::Extent;
use kept_notes::Notes;
use log::{SegmentedLog, segmented};
use log_record::{ObjectDescription, Record};
use pending::Pending;
use replay::{Replay, Replayed};
use send_memory::SendMemory;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::{Attributes, Clock, ETag, Entropy, ObjectRef, ObjectStore, Result, StoreError, Tags, blocking};
use tokio::time::Instant;

/// The changes that are still to be uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Number of pending changes.
    pub changes: usize,
    /// Number of bytes in the log that are still to be uploaded.
    pub bytes: u64,
    /// Number of changes that the bucket refuses, as far as is known.
    pub refused: usize,
}

/// A store that logs changes in front of another store.
#[derive(Debug)]
pub struct Writeback {
    me: Weak<Self>,
    bucket: BucketSide,
    log: SegmentedLog,
    pending: Mutex<Pending>,
    /// Number of the next change. See [`Writeback::lock_changes`].
    next_change: Mutex<u64>,
    notes: Notes,
    etags: Etags,
    stamps: Stamps,
    options: WritebackOptions,
    activity: Activity,
    conflicts: Decisions,
    damage: LogDamage,
}

/// Sources of the times and etags of objects.
#[derive(Debug)]
struct Stamps {
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
}

impl Stamps {
    /// Returns the description of an object that is stored now, with a new provisional etag.
    fn describe(&self, attributes: Attributes, tags: Tags) -> ObjectDescription {
        let etag = ETag::provisional(self.entropy.next_u64());
        ObjectDescription { etag, stored_at: self.clock.now(), attributes, tags }
    }
}

/// Damages a frame of a log so that no change is lost, for simulators: its magic or the checksum of its position, or any byte of a frame
/// that only says which notes are not needed any more. The frame behind damaged lengths is found by its head, which must be readable. `pick`
/// returns a number below its argument. Returns a description of the damage; `None` if the log has no frames.
pub fn rot(dir: &Path, pick: impl FnMut(u64) -> u64) -> io::Result<Option<String>> {
    let is_spare = |header: &[u8]| matches!(log_record::decode(header), Some(Record::NotesDone { .. }));
    segmented::rot(dir, is_spare, pick)
}

/// Returns the synced bodies in a log that no pending change, no earlier one of its key and no note refers to, for simulators: such a body
/// may become unreadable. Each is a segment's number and a range.
pub fn unused_bodies(dir: &Path) -> io::Result<Vec<(u64, Range<u64>)>> {
    let mut replay = Replay::default();
    let mut bodies = segmented::synced_bodies(dir, |event| replay.apply(event))?;
    let Replayed { pending, notes, .. } = replay.finish();
    let changes = || pending.overlay_from(&[]).map(|(_, change)| change);
    let newest = changes().filter_map(|change| change.object.as_deref());
    // The bytes of an earlier change identify its object in the bucket.
    let objects = newest.chain(changes().flat_map(|change| change.earlier_attempts().flatten()));
    let extents = objects.flat_map(|object| &object.extents).chain(notes.iter().map(|(_, extent)| extent));
    let used: Vec<(u64, Range<u64>)> = extents
        .filter_map(|extent| match extent {
            Extent::Log(segment, range) => Some((segment.number, range.clone())),
            Extent::Bucket(..) => None,
        })
        .collect();
    bodies.retain(|(number, body)| {
        let reads = |(other, range): &(u64, Range<u64>)| {
            other == number && range.start < body.end && body.start < range.end
        };
        !used.iter().any(reads)
    });
    Ok(bodies)
}

/// Like [`Writeback::open`], on a disk on which some reads fail. For simulators.
pub fn open_with(
    dir: &Path,
    bucket: Arc<dyn ObjectStore>,
    options: WritebackOptions,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    faults: ReadFaults,
) -> io::Result<Arc<Writeback>> {
    let mut replay = Replay::default();
    let log = SegmentedLog::open_with(dir, "write-back log", faults, |event| replay.apply(event))?;
    let replayed = replay.finish();
    let damage = LogDamage::of(dir, &replayed);
    let Replayed { pending, last_change, notes, aliases, .. } = replayed;
    // Etags that were not reported are only in the log, which is shortened once they are reported.
    if options.keys_are_used_once || aliases.is_empty() {
        log.reclaim()?;
    }
    let conflicts = Decisions::new(options.lost.clone(), entropy.clone());
    let writeback = Arc::new_cyclic(|me| Writeback {
        me: me.clone(),
        bucket: BucketSide { store: bucket, memory: SendMemory::new(options.memory_bytes) },
        log,
        pending: Mutex::new(pending),
        next_change: Mutex::new(last_change + 1),
        notes: Notes::of(notes),
        etags: Etags::of(aliases),
        stamps: Stamps { clock, entropy },
        options,
        activity: Activity::default(),
        conflicts,
        damage,
    });
    writeback.start();
    Ok(writeback)
}

impl Writeback {
    /// Opens the log in `dir` in front of a bucket. Returns `WouldBlock` if another process has the log open. Logged
    /// changes are visible at once and are uploaded if a runtime is running.
    pub fn open(
        dir: &Path,
        bucket: Arc<dyn ObjectStore>,
        options: WritebackOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> io::Result<Arc<Self>> {
        open_with(dir, bucket, options, clock, entropy, ReadFaults::default())
    }

    /// Returns how many changes and notes a log in `dir`, which may be missing, holds that the bucket does not have.
    /// Returns `WouldBlock` if a process has the log open.
    pub fn waiting_in(dir: &Path) -> io::Result<usize> {
        if !dir.is_dir() {
            return Ok(0);
        }
        let _lock = segmented::lock_dir(dir)?;
        let mut replay = Replay::default();
        segmented::scan(dir, |event| replay.apply(event))?;
        let Replayed { pending, notes, .. } = replay.finish();
        Ok(pending.len() + notes.len())
    }

    /// Returns the losses found when the log was opened.
    pub fn damage(&self) -> &LogDamage {
        &self.damage
    }

    /// Returns the renames whose old object the log does not delete yet, as those that a kill has interrupted.
    pub fn unfinished_renames(&self) -> Vec<UnfinishedRename> {
        let renames = self.pending().renames.all();
        let aliases = self.etags.aliases();
        let unfinished = |(from, copy): (ObjectRef, ObjectRef)| {
            let uploaded = |object: &ObjectRef| {
                let there = aliases.bucket_tag(&object.key, &object.etag);
                (there != object.etag).then_some(there)
            };
            let from = aliases.with_issued_tag(from);
            UnfinishedRename { from_uploaded: uploaded(&from), copy_uploaded: uploaded(&copy), from, copy }
        };
        renames.into_iter().map(unfinished).collect()
    }

    /// Returns what is still to be uploaded.
    pub fn backlog(&self) -> Backlog {
        let pending = self.pending();
        Backlog { changes: pending.len(), bytes: pending.bytes(), refused: pending.refused_count() }
    }

    /// Returns the numbers of the log's segments, and how many bytes of each survive the loss of power, as far as
    /// this process knows. Simulators cut the rest.
    pub fn synced(&self) -> Vec<(u64, u64)> {
        self.log.synced()
    }

    /// Waits until everything is uploaded, except changes that the bucket refuses once more.
    pub async fn drained(&self) {
        self.activity.urgent_callers.fetch_add(1, Ordering::AcqRel);
        let _urgent = UrgentDrain(self);
        self.pending().retry_refused(Instant::now());
        self.activity.wake.notify_one();
        loop {
            let progress = self.activity.progress.notified();
            if self.pending().has_only_refused() {
                return;
            }
            progress.await;
        }
    }

    /// Waits until no change that was made before the call is pending, whatever is changed meanwhile: the bucket has
    /// it, or it was set aside or replaced by a newer change.
    pub async fn drained_so_far(&self) {
        let newest = self.lock_changes().saturating_sub(1);
        self.activity.urgent_callers.fetch_add(1, Ordering::AcqRel);
        let _urgent = UrgentDrain(self);
        self.activity.wake.notify_one();
        loop {
            let progress = self.activity.progress.notified();
            if self.pending().oldest_number().is_none_or(|oldest| oldest > newest) {
                return;
            }
            progress.await;
        }
    }

    /// Makes everything appended so far survive the loss of power.
    async fn sync_log(&self) -> Result<()> {
        let me = self.me.upgrade().ok_or_else(closed)?;
        blocking(move || me.log.sync()).await.map_err(failed)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether changes are uploaded without delay, given the number of pending changes.
    fn is_urgent(&self, pending: usize) -> bool {
        self.activity.urgent_callers.load(Ordering::Acquire) > 0
            || self.log.bytes() > self.options.limit_bytes / 2
            || pending > self.options.limit_changes / 2
    }

    /// Returns an object with the bucket's etag. Fails if the etag was issued so long ago that its translation is
    /// forgotten, because the bucket may have another object by now, unless keys are used once.
    fn bucket_ref(&self, object: &ObjectRef) -> Result<ObjectRef> {
        let etag = self.etags.aliases().bucket_tag(&object.key, &object.etag);
        if etag.is_provisional() && !self.options.keys_are_used_once {
            return Err(StoreError::PreconditionFailed(object.key.clone()));
        }
        Ok(ObjectRef { etag, ..object.clone() })
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        // Ends the upload task.
        self.activity.wake.notify_one();
    }
}

/// Guard of a caller that wants everything uploaded without delay. Dropping it takes back the request.
struct UrgentDrain<'w>(&'w Writeback);

impl Drop for UrgentDrain<'_> {
    fn drop(&mut self) {
        self.0.activity.urgent_callers.fetch_sub(1, Ordering::AcqRel);
    }
}
