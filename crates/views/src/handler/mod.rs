//! The event handler: tracks which objects are in which views, from event hints, bucket listings and HEAD requests.
//!
//! Owns the state of all objects in containers that some ruleset names. The state is in memory, divided into shards
//! by the hash of container and key; each shard has a lock of its own. Owns also the rules for conflicts between
//! hints, listings and HEAD results, and the history of changes from which clients are served. From
//! `../shared/papers/delvefs.txt`, section III-C.
//!
//! Refuses: to know where hints come from, what a client does with a view, what time it is.
//!
//! Invariants: a hint is applied or logged before it is acknowledged; the store is authoritative, and an object whose
//! state is in doubt is verified by a HEAD request; no lock is held across an await.

mod change_log;
mod container;
mod frames;
mod hint_sink;
mod key_rules;
mod listing;
mod maintenance;
mod matcher;
mod object_record;
mod reconcile;
mod restore;
mod shard;
mod state_dir;
#[cfg(feature = "fuzz")]
mod state_fuzz;
mod stats;
mod table;
mod value_predicates;
mod verify;
mod views;

use container::{Container, View};
use hashbrown::{HashMap, HashSet};
pub use hint_sink::HintSink;
use shard::Shard;
use state_dir::StateDir;
#[cfg(feature = "fuzz")]
pub use state_fuzz::state as fuzz_state;
use stats::Counts;
pub use stats::{HandlerStats, HintCounts, ViewStats};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Buckets, Clock, Entropy};
use tokio::sync::watch;
use verify::VerifyQueue;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The dependencies and settings of a [`Handler`].
#[derive(Debug)]
pub struct HandlerParts {
    /// The buckets whose objects are tracked.
    pub buckets: Arc<dyn Buckets>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Source of the random epoch, which identifies one history of the state.
    pub entropy: Entropy,
    /// Directory of the persistent state; `None` keeps the state in memory only.
    pub dir: Option<PathBuf>,
    /// Further settings.
    pub config: HandlerConfig,
}

/// Settings of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HandlerConfig {
    /// Whether access times of objects are known, from access events or from `file-atime` in user metadata. If not,
    /// rulesets with rules on access times are refused.
    pub knows_accessed: bool,
}

/// Reason why a handler cannot use its state directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the event handler's state directory {dir}: {what}")]
pub struct HandlerError {
    dir: String,
    what: String,
}

/// The event handler: the state of objects and views that many clients share.
#[derive(Debug)]
pub struct Handler {
    weak_self: std::sync::Weak<Self>,
    buckets: Arc<dyn Buckets>,
    clock: Arc<dyn Clock>,
    config: HandlerConfig,
    epoch: u64,
    /// Number of this process run: 1 for a new state, one more for each start on an existing state.
    incarnation: u32,
    /// The machine's boot id. After another boot, unsynced log writes may be missing.
    boot: Vec<u8>,
    shards: Box<[Mutex<Shard>]>,
    registry: Mutex<Registry>,
    verify_queue: VerifyQueue,
    state_dir: Option<StateDir>,
    counts: Counts,
    /// Counter that is incremented when any view may have changed.
    change_counter: watch::Sender<u64>,
}

/// All views and containers.
#[derive(Debug, Default)]
struct Registry {
    /// Views, indexed by number; `None` for a forgotten view.
    views: Vec<Option<Arc<View>>>,
    by_text: HashMap<String, u32>,
    containers: Arc<Containers>,
    /// Number of the next container. Numbers of forgotten containers are not used again.
    container_count: u32,
    /// Whether some view names containers by a pattern.
    has_patterns: bool,
    /// Negative cache, used while `has_patterns`: buckets that hints named and that no view wants.
    unwanted_buckets: HashSet<Box<str>>,
}

type Containers = HashMap<Arc<str>, Arc<Container>>;

/// Number of shards: large enough that threads rarely contend, small enough that a cursor, which has two versions per
/// shard, stays short.
const SHARDS: usize = 64;
// `UnwrittenShards` has one bit per shard.
const _: () = assert!(SHARDS <= u64::BITS as usize);

impl Handler {
    /// Starts a handler, from the persistent state in `parts.dir` if there is one.
    ///
    /// # Errors
    /// If the state directory cannot be read or written.
    pub async fn start(parts: HandlerParts) -> Result<Arc<Self>, HandlerError> {
        let dir = parts.dir.clone().unwrap_or_default();
        let restored = store::blocking(move || Ok(restore::restore(parts))).await;
        let (handler, pending) = restored.map_err(|error| HandlerError::new(&dir, error.to_string()))??;
        handler.resume_pending_work(pending).await;
        let weak = Arc::downgrade(&handler);
        tokio::spawn(store::supervise("maintenance of views", move || maintenance::run(weak.clone())));
        Ok(handler)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn containers(&self) -> Arc<Containers> {
        Arc::clone(&self.registry().containers)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shard_at(shard_of(hash))
    }

    fn shard_at(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the receivers of [`Views::change_counter`](crate::Views::change_counter).
    fn notify_changed(&self) {
        self.change_counter.send_modify(|count| *count += 1);
    }

    /// Returns an owning reference to this handler, for tasks that outlive the call that spawns them.
    fn arc_self(&self) -> Option<Arc<Self>> {
        self.weak_self.upgrade()
    }
}

/// Returns the shard of a hash. Uses the upper half of the hash, because hash tables use the lower bits.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Returns the hash of a key in a container.
fn hash(container: u32, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(container))
}
