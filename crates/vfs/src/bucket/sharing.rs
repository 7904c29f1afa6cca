//! Other machines mount the bucket too.
//!
//! What must be one machine's alone is agreed by [leases](store::leases) in the bucket; and it is remembered here which
//! files' attributes another mount may have changed, as their objects were stored anew with the same bytes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use meta::{Ino, Inode, Observed, Stored};
use store::leases::Leases;
use store::{Entropy, ObjectKey, ObjectStore, Timestamp};

use crate::config::Config;
use crate::layout::Layout;
use crate::{Error, Result};

/// More are forgotten: the next listing finds them again.
const UNSURE_MAX: usize = 1 << 16;

/// Headers that were read so soon after they had been stored may have been stored again in the same second, the finest
/// that S3 says.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) leases: Leases,
    unsure: Mutex<HashSet<Ino>>,
    /// Keys that something is being renamed to, and whether that came to nothing.
    arriving: Mutex<HashMap<ObjectKey, bool>>,
}

/// A key that something is being renamed to.
#[derive(Debug)]
pub(crate) struct Arriving<'s> {
    sharing: &'s Sharing,
    key: ObjectKey,
}

impl Sharing {
    /// `None` where nobody else mounts the bucket.
    pub(crate) fn of(
        store: &Arc<dyn ObjectStore>,
        entropy: &Arc<Entropy>,
        layout: &Layout,
        config: &Config,
    ) -> Result<Option<Self>> {
        if !config.is_shared {
            return Ok(None);
        }
        if !layout.follows_paths() {
            return Err(Error::Volume(
                "says that it is named by inode: its names are on one machine, and it cannot be shared"
                    .into(),
            ));
        }
        if config.write_back {
            let why = "nothing is shared with write-back: what waits in the log nobody else sees";
            return Err(Error::new(libc::EINVAL, why));
        }
        Ok(Some(Self {
            leases: Leases::new(store.clone(), layout.leases(), entropy.clone()),
            unsure: Mutex::default(),
            arriving: Mutex::default(),
        }))
    }

    /// A listing shows an object with the bytes that are known: its headers may be others.
    /// `known_at` is the wall-clock time at which its headers were read; `None`: by an earlier mount.
    pub(crate) fn listed(&self, known: &Inode, seen: &Observed, known_at: Option<Timestamp>) {
        let was_just_stored = match (known_at, stored_at(seen.object.as_ref())) {
            (Some(known_at), Some(stored_at)) => known_at.since(stored_at) < SETTLED_AFTER,
            _ => true,
        };
        if was_just_stored || !is_stored_in_same_second(known, seen) {
            self.mark_unsure(known.ino);
        }
    }

    /// What the headers of the bytes that are known say, if they may be another mount's: nobody changed attributes here since
    /// the look, by the wall-clock time of the look. What is only known here stays. A time of change that lies ahead of the
    /// wall clock is from before the clock was set back, or from another machine.
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

    fn mark_unsure(&self, ino: Ino) {
        let mut unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        if unsure.len() >= UNSURE_MAX {
            unsure.clear();
        }
        unsure.insert(ino);
    }

    /// Whether the attributes of a file are to be looked at again; who asks does so.
    pub(crate) fn take_unsure(&self, ino: Ino) -> bool {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino)
    }

    /// Something is renamed to a key, which nobody else does meanwhile.
    pub(crate) fn track_arrival(&self, key: &ObjectKey) -> Arriving<'_> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), false);
        Arriving { sharing: self, key: key.clone() }
    }

    /// What was renamed to a key was changed by somebody else before it moved.
    pub(crate) fn mark_void(&self, to: &ObjectKey) {
        if let Some(is_void) = self.arriving.lock().unwrap_or_else(PoisonError::into_inner).get_mut(to) {
            *is_void = true;
        }
    }
}

fn stored_at(object: Option<&Stored>) -> Option<Timestamp> {
    object.and_then(|object| object.last_modified)
}

/// Whether an object was stored when it was known to be, as far as headers say: in the same second.
fn is_stored_in_same_second(known: &Inode, seen: &Observed) -> bool {
    let second = |object| stored_at(object).map(Timestamp::secs);
    second(known.object()).is_some() && second(known.object()) == second(seen.object.as_ref())
}

impl Arriving<'_> {
    pub(crate) fn is_void(&self) -> bool {
        self.sharing.arriving.lock().unwrap_or_else(PoisonError::into_inner).get(&self.key) == Some(&true)
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.sharing.arriving.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
