//! State for a bucket that several machines mount.
//!
//! [Leases](staging::leases) in the bucket serialize operations that only one mount may do at a time. This module also remembers
//! files whose attributes another mount may have changed: objects that were stored again with the same bytes.

use meta::{Ino, Inode, Observed, Stored};
use staging::leases::Leases;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Entropy, ObjectKey, ObjectStore, Timestamp};

use crate::config::Config;
use crate::layout::Layout;
use crate::volumes::rules::VolumeRules;
use crate::{Error, Result};

/// Maximum files to remember as unsure. Above it all are forgotten; the next listing finds them again.
const UNSURE_MAX: usize = 1 << 16;

/// Headers that were read within this time after the object was stored may be outdated: S3 times have a resolution of one
/// second, so the object may have been stored again in the same second.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The state that a mount of a shared bucket needs besides a mount's usual state.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) leases: Leases,
    /// Files whose attributes another mount may have changed.
    unsure: Mutex<HashSet<Ino>>,
    /// Destination keys of renames under way, each with whether the rename turned out void.
    arriving: Mutex<HashMap<ObjectKey, bool>>,
}

/// The destination key of a rename under way. Tracking ends when this guard is dropped.
#[derive(Debug)]
pub(crate) struct Arriving<'s> {
    sharing: &'s Sharing,
    key: ObjectKey,
}

impl Sharing {
    /// Returns the sharing state, or `None` if the mount is configured as the only one. Fails for a volume that cannot
    /// be shared, or with write-back.
    pub(crate) fn of(
        store: &Arc<dyn ObjectStore>,
        entropy: &Arc<Entropy>,
        layout: &Layout,
        rules: &VolumeRules,
        config: &Config,
    ) -> Result<Option<Self>> {
        if !config.is_shared {
            return Ok(None);
        }
        if !rules.can_be_shared {
            return Err(Error::Volume(
                "says that it is named by inode: its names exist on one machine only, so it cannot be shared"
                    .into(),
            ));
        }
        if config.write_back {
            let why = "a shared bucket cannot use write-back: other mounts do not see changes in the log";
            return Err(Error::new(libc::EINVAL, why));
        }
        Ok(Some(Self {
            leases: Leases::new(store.clone(), layout.leases_prefix(), entropy.clone()),
            unsure: Mutex::default(),
            arriving: Mutex::default(),
        }))
    }

    /// Records that a listing shows the known bytes of a file, whose headers another mount may have changed. `known_at` is the
    /// wall-clock time at which the headers were read, `None` if an earlier mount read them.
    pub(crate) fn listed(&self, known: &Inode, seen: &Observed, known_at: Option<Timestamp>) {
        let was_just_stored = match (known_at, stored_at(seen.object.as_ref())) {
            (Some(known_at), Some(stored_at)) => known_at.since(stored_at) < SETTLED_AFTER,
            _ => true,
        };
        if was_just_stored || !is_stored_in_same_second(known, seen) {
            self.mark_unsure(known.ino);
        }
    }

    /// Returns the attributes in the headers of unchanged bytes if another mount may have stored them. Returns `None`
    /// if they are known, the look has no headers or is from an earlier mount, or attributes were changed here after
    /// the look, by the wall clock. Attributes that only this mount knows are kept. A ctime in the future was set
    /// before the clock was set back, or by another machine, and does not count as a later change.
    pub(crate) fn attributes(
        &self,
        known: &Inode,
        seen: &Observed,
        looked_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Observed> {
        let looked_at = looked_at?;
        let changed_since = (looked_at..=now).contains(&known.ctime);
        if !seen.exact || !known.exact || known.kind != seen.kind || changed_since {
            return None;
        }
        let is_same = (known.mode, known.uid, known.gid, known.rdev, known.mtime)
            == (seen.mode, seen.uid, seen.gid, seen.rdev, seen.mtime);
        let (atime, btime) = (known.atime.max(seen.atime), known.btime);
        match is_same {
            true if is_stored_in_same_second(known, seen) => None,
            true => Some(Observed { atime, btime, ctime: known.ctime, ..seen.clone() }),
            false => Some(Observed { atime, btime, ctime: seen.ctime.min(looked_at), ..seen.clone() }),
        }
    }

    /// Notes that another mount may have changed a file's attributes.
    fn mark_unsure(&self, ino: Ino) {
        let mut unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        if unsure.len() >= UNSURE_MAX {
            unsure.clear();
        }
        unsure.insert(ino);
    }

    /// Removes a file from those with possibly outdated attributes. If this returns true, the caller must read the headers
    /// again.
    pub(crate) fn take_unsure(&self, ino: Ino) -> bool {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino)
    }

    /// Tracks the destination key of a rename. The caller makes sure that no other rename to this key runs.
    pub(crate) fn track_arrival(&self, key: &ObjectKey) -> Arriving<'_> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), false);
        Arriving { sharing: self, key: key.clone() }
    }

    /// Records that a rename to a key had no effect, because another client changed the object before it moved.
    pub(crate) fn mark_void(&self, to: &ObjectKey) {
        if let Some(is_void) = self.arriving.lock().unwrap_or_else(PoisonError::into_inner).get_mut(to) {
            *is_void = true;
        }
    }
}

/// Returns when an object was stored, if known.
fn stored_at(object: Option<&Stored>) -> Option<Timestamp> {
    object.and_then(|object| object.last_modified)
}

/// Returns whether an object was stored in the same second as the known one, as far as headers tell.
fn is_stored_in_same_second(known: &Inode, seen: &Observed) -> bool {
    let second = |object| stored_at(object).map(Timestamp::secs);
    second(known.object()).is_some() && second(known.object()) == second(seen.object.as_ref())
}

impl Arriving<'_> {
    /// Returns whether the rename had no effect.
    pub(crate) fn is_void(&self) -> bool {
        self.sharing.arriving.lock().unwrap_or_else(PoisonError::into_inner).get(&self.key) == Some(&true)
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.sharing.arriving.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
