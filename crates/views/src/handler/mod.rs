//! The event handler: tracks which objects are in which views, from event hints, bucket listings and HEAD requests. From
//! `../shared/papers/delvefs.txt`, section III-C.
//!
//! Owns nothing but its parts, which it joins. From the bottom:
//! - `objects`: what is known of all objects, which views each is in, and the judgement of what hints, listings and HEAD results change;
//! - `state_log`: the log of changes and the snapshots, in files of `frames`;
//! - `verifier`: the queue of objects to verify by HEAD requests;
//! - `lister`: the listings of containers;
//! - `registry`: the views and containers;
//! - `hint_sink` and `changes`: what sources bring, and what clients ask.
//!
//! Does not know where hints come from and what a client does with a view; reads the time only from the clock that it is given.
//!
//! Invariants: a hint is applied or logged before it is acknowledged; the store is authoritative, and an object whose
//! state is in doubt is verified by a HEAD request; no lock is held across an await.

mod changes;
mod container;
mod frames;
#[cfg(feature = "fuzz")]
mod fuzz;
mod hint_sink;
mod lister;
mod listing_state;
mod maintenance;
mod objects;
mod registry;
mod restore;
mod saved_state;
mod state_log;
mod stats;
mod verifier;
mod view;

pub use frames::{VERSIONS, stored_version};
#[cfg(feature = "fuzz")]
pub use fuzz::state as fuzz_state;
pub use hint_sink::HintSink;
pub use stats::{HandlerStats, HintCounts, ViewStats};

use lister::Lister;
use objects::{LogRecord, Objects, RecordKind};
use registry::Registry;
use state_log::{LogFiles, StateLog};
use stats::HintCounters;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Buckets, Clock, Entropy};
use verifier::Verifier;

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
    /// Settings of the handler.
    pub config: HandlerConfig,
}

/// Settings of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HandlerConfig {
    /// Whether access times of objects are known, from access events or from `file-atime` in user metadata. If not,
    /// rulesets with rules on access times are refused.
    pub knows_accessed: bool,
    /// Maximum memory of all objects, in bytes; `None` is unlimited. A view whose objects need more is refused.
    pub memory_max_bytes: Option<usize>,
}

/// Reason why a handler cannot use its state directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the event handler's state directory {dir}: {reason}")]
pub struct HandlerError {
    dir: String,
    reason: String,
}

/// The event handler: the state of objects and views that many clients share.
#[derive(Debug)]
pub struct Handler {
    registry: Arc<Registry>,
    objects: Arc<Objects>,
    log: Arc<StateLog>,
    verifier: Arc<Verifier>,
    lister: Arc<Lister>,
    buckets: Arc<dyn Buckets>,
    clock: Arc<dyn Clock>,
    config: HandlerConfig,
    incarnation: Incarnation,
    hint_counts: HintCounters,
}

/// A process run of the handler, which continues a history of the state.
#[derive(Debug)]
struct Incarnation {
    /// Random number that identifies the history; part of every cursor.
    epoch: u64,
    /// 1 for a new state, one more for each start on an existing state.
    number: u32,
    /// The machine's boot id. After another boot, unsynced log writes may be missing.
    boot: Vec<u8>,
}

/// Versions of incarnation N begin at N shifted left by this many bits. So a version that was assigned but not logged
/// before the process ended is not assigned again.
const INCARNATION_BITS: u32 = 40;

impl HandlerError {
    fn new(dir: &Path, reason: String) -> Self {
        Self { dir: dir.display().to_string(), reason }
    }
}

impl Incarnation {
    /// Returns the record with which the process run begins.
    fn record(&self) -> LogRecord<'_> {
        LogRecord { kind: RecordKind::Incarnation, number: self.number, version: 0, body: &self.boot }
    }
}

impl Handler {
    /// Starts a handler, from the persistent state in `parts.dir` if there is one.
    ///
    /// # Errors
    /// If the state directory cannot be read or written.
    pub async fn start(parts: HandlerParts) -> Result<Arc<Self>, HandlerError> {
        let dir = parts.dir.clone().unwrap_or_default();
        let restored = store::blocking(move || Ok(restore::restore(parts))).await;
        let (handler, pending) = restored.map_err(|error| HandlerError::new(&dir, error.to_string()))??;
        let handler = Arc::new(handler);
        handler.resume_pending_work(pending).await;
        let weak = Arc::downgrade(&handler);
        tokio::spawn(store::supervise("maintenance of views", move || maintenance::run(weak.clone())));
        if handler.log.dir().is_some() {
            let (weak, due) = (Arc::downgrade(&handler), handler.log.snapshot_due());
            let run = move || maintenance::write_snapshots(weak.clone(), Arc::clone(&due));
            tokio::spawn(store::supervise("snapshots of views", run));
        }
        Ok(handler)
    }

    fn new(parts: HandlerParts, incarnation: Incarnation, files: Option<LogFiles>) -> Self {
        let HandlerParts { buckets, clock, config, .. } = parts;
        let first_version = u64::from(incarnation.number) << INCARNATION_BITS;
        let objects = Arc::new(Objects::new(first_version, files.is_some()));
        let log = Arc::new(StateLog::new(Arc::clone(&objects), files));
        let verifier = Verifier::new(Arc::clone(&buckets), Arc::clone(&objects), Arc::clone(&log));
        let verifier = Arc::new(verifier);
        let lister = Arc::new(Lister::new(
            Arc::clone(&buckets),
            Arc::clone(&clock),
            Arc::clone(&verifier),
            (Arc::clone(&objects), Arc::clone(&log)),
            config.memory_max_bytes.unwrap_or(usize::MAX),
        ));
        let (objects_of, log_of, clock_of) = (Arc::clone(&objects), Arc::clone(&log), Arc::clone(&clock));
        let registry = Arc::new(Registry::new(objects_of, log_of, clock_of, incarnation.number));
        Self {
            registry,
            objects,
            log,
            verifier,
            lister,
            buckets,
            clock,
            config,
            incarnation,
            hint_counts: HintCounters::default(),
        }
    }

    /// Lists all containers again. Returns when the listings have ended, whether they succeeded or failed; if one was
    /// in progress before, when that one has ended.
    pub async fn list_all_again(&self) {
        let containers = self.registry.containers();
        let listings = containers.values().map(|container| self.lister.relist(container));
        for mut listing in listings.collect::<Vec<_>>() {
            listing.wait_for(Option::is_some).await.ok();
        }
    }

    /// Waits until no listing is in progress and every queued object has been verified or given up.
    pub async fn wait_until_idle(&self) {
        loop {
            for container in self.registry.containers().values() {
                let running = container.listing().running();
                if let Some(mut running) = running {
                    // An error means that the listing task is gone, which ends the listing, too.
                    let _ = running.wait_for(Option::is_some).await;
                }
            }
            self.verifier.wait_until_idle().await;
            let containers = self.registry.containers();
            if containers.values().all(|container| container.listing().running().is_none()) {
                return;
            }
        }
    }

    /// Writes a snapshot now, to make the next start fast. Does nothing without a state directory.
    ///
    /// # Errors
    /// If the snapshot cannot be written. The state is complete without it.
    pub async fn snapshot(&self) -> Result<(), HandlerError> {
        let Some(dir) = self.log.dir() else { return Ok(()) };
        let mut beginning = Vec::new();
        self.incarnation.record().append(&mut beginning);
        let (log, registry, verifier) =
            (Arc::clone(&self.log), Arc::clone(&self.registry), Arc::clone(&self.verifier));
        let write = move || {
            log.write_snapshot(|into| {
                into.append(&mut beginning);
                registry.write_snapshot(into);
                for (container, key) in verifier.pending() {
                    LogRecord::append_verify_pending(container, &key, into);
                }
            })
        };
        store::blocking(write).await.map_err(|error| HandlerError::new(dir, error.to_string()))
    }
}
