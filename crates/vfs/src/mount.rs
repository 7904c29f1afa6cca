//! The surroundings of a mount: its settings, layout, rules, store, clock and randomness. All parts share one.

use meta::{Ino, Moment, Name, OpContext, Origin};
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy, ObjectKey, ObjectStore, StoreError, Timestamp};

use crate::bucket::headers::Defaults;
use crate::config::Config;
use crate::layout::Layout;
use crate::memory_limit::MemoryLimit;
use crate::moments::Moments;
use crate::volumes::rules::VolumeRules;
use crate::{Error, Result};

/// Settings, layout, rules, store, clock and randomness of a mount, which no part changes.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) moments: Arc<Moments>,
    pub(crate) entropy: Arc<Entropy>,
    pub(crate) config: Config,
    pub(crate) memory: Arc<MemoryLimit>,
    pub(crate) layout: Layout,
    /// The rules of the kind of volume that is mounted.
    pub(crate) rules: VolumeRules,
    /// Owner, group and modes of files and directories without such headers: their object has none, or they are directories without an object.
    pub(crate) defaults: Defaults,
}

impl Mount {
    /// Returns how long a front end may cache entries and attributes.
    pub(crate) fn ttl(&self) -> Duration {
        self.config.metadata_ttl
    }

    /// Returns the wall-clock time, for times of inodes and for display. Order events by [`Mount::moment`] instead.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the present moment, which is later than every earlier observation and change. An observation of the bucket has
    /// the moment at which its request began.
    pub(crate) fn moment(&self) -> Moment {
        self.moments.now()
    }

    /// Returns the moment at which the monotonic clock showed `reading`; before the mount, a moment that is older than every
    /// other.
    pub(crate) fn moment_at(&self, reading: Duration) -> Moment {
        self.moments.at(reading)
    }

    /// Returns the context of a change that `origin` makes now.
    pub(crate) fn context(&self, origin: Origin) -> OpContext {
        let Config { uid, gid, .. } = self.config;
        let at = self.config.batch.as_ref().map_or_else(|| self.moment(), |batch| batch.at);
        OpContext { now: self.now(), at, uid, gid, origin }
    }

    /// Returns whether an observation made at `seen_at` is within the revalidation time.
    pub(crate) fn is_fresh(&self, seen_at: Moment) -> bool {
        self.moment().since(seen_at) < self.config.metadata_ttl
    }

    /// Fails with EROFS on a read-only mount.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.config.read_only { Err(Error::READ_ONLY) } else { Ok(()) }
    }

    /// Returns an unused key for content of an inode; `bucket` is its bucket, if the directories at the root are buckets.
    pub(crate) fn content_key(&self, bucket: Option<&Name>, ino: Ino) -> Result<ObjectKey, StoreError> {
        let key = self.layout.content_key(bucket, ino, self.entropy.next_u64());
        key.map_err(|error| StoreError::Invalid(error.to_string()))
    }
}
