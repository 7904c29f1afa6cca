//! The event handler: which objects are in which views, kept true by hints.
//!
//! Owns the state of the objects of the containers that some ruleset names, in memory, divided by the hash of container and key
//! into shards behind a lock each; who is right when hints, listings and looks differ; and what changed since when. From
//! `../shared/papers/delvefs.txt`, section III-C.
//!
//! Refuses: to know where hints come from, what a client does with a view, what time it is.
//!
//! Invariants: what a hint says is applied or noted before it is acknowledged; the store is right, and whoever may be wrong is
//! looked at; no lock is held while something waits.

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
pub use hint_sink::Ear;
use shard::Shard;
use state_dir::Keeper;
#[cfg(feature = "fuzz")]
pub use state_fuzz::state as fuzz_state;
use stats::Counts;
pub use stats::{HandlerStats, HintCounts, ViewStats};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Buckets, Clock, Entropy};
use tokio::sync::watch;
use verify::Looks;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a handler is made of.
#[derive(Debug)]
pub struct HandlerParts {
    /// Whose objects they are.
    pub buckets: Arc<dyn Buckets>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// For the name of this life of the state.
    pub entropy: Entropy,
    /// Where the state is kept; in memory only if `None`.
    pub dir: Option<PathBuf>,
    /// The rest.
    pub config: HandlerConfig,
}

/// What a handler must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HandlerConfig {
    /// Somebody says when objects are read: by hints, or as `file-atime` in their user metadata. Otherwise rulesets that ask for
    /// it are refused.
    pub knows_accessed: bool,
}

/// Why a handler does not start.
#[derive(Debug, thiserror::Error)]
#[error("the state of views in {dir}: {what}")]
pub struct HandlerError {
    dir: String,
    what: String,
}

/// Who knows what the views of many clients show.
#[derive(Debug)]
pub struct Handler {
    me: std::sync::Weak<Self>,
    buckets: Arc<dyn Buckets>,
    clock: Arc<dyn Clock>,
    config: HandlerConfig,
    epoch: u64,
    /// How often the state was gone on with.
    life: u32,
    /// Which start of the machine this is.
    boot: Vec<u8>,
    shards: Box<[Mutex<Shard>]>,
    registry: Mutex<Registry>,
    looks: Looks,
    keeper: Option<Keeper>,
    counts: Counts,
    /// How often something changed.
    news: watch::Sender<u64>,
}

/// Views and containers.
#[derive(Debug, Default)]
struct Registry {
    /// By number; `None` where one was forgotten.
    views: Vec<Option<Arc<View>>>,
    by_text: HashMap<String, u32>,
    containers: Arc<Containers>,
    /// How many there ever were, forgotten ones too: the number of the next.
    container_count: u32,
    /// There is a view that names containers by patterns.
    has_patterns: bool,
    /// Buckets of which somebody spoke and that no view names, while there are patterns.
    strangers: HashSet<Box<str>>,
}

type Containers = HashMap<Arc<str>, Arc<Container>>;

/// The state is divided into so many parts: enough that threads seldom meet, and few enough that a cursor is small.
const SHARDS: usize = 64;
// A bit of each: see `Unkept`.
const _: () = assert!(SHARDS <= u64::BITS as usize);

impl Handler {
    /// A handler with the state that it had when it ended, if that was kept.
    ///
    /// # Errors
    /// If what is kept cannot be read or written.
    pub async fn start(parts: HandlerParts) -> Result<Arc<Self>, HandlerError> {
        let dir = parts.dir.clone().unwrap_or_default();
        let restored = store::blocking(move || Ok(restore::restore(parts))).await;
        let (handler, looks) = restored.map_err(|error| HandlerError::new(&dir, error.to_string()))??;
        handler.resume(looks).await;
        let weak = Arc::downgrade(&handler);
        tokio::spawn(store::supervise("upkeep of views", move || maintenance::take_care(weak.clone())));
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

    /// Wakes those who wait for news.
    fn say_news(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Itself, for what goes on after a call ended.
    fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }
}

/// The part of the state that a hash belongs to; not by the bits that tables use.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Of a key in a container.
fn hash(container: u32, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(container))
}
