//! A machine with a mount of the shared volume: its engine, its file system, and the actors that run them.

use super::database::SimulatedDatabase;
use super::network::{LinkState, NetworkLink};
use super::scheduler::{ActorId, Job, Scheduler};
use crate::trace::Trace;
use meta_remote::{RemoteEngine, RemoteOptions, Task};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::memory::MemoryStore;
use store::wrap::{Call, Layer, Wrapped};
use store::{Clock, Entropy, ObjectStore, StoreError, Timestamp};
use tempfile::TempDir;
use vfs::{Atime, Config, Dependencies, Filesystem, VolumeRecord};

/// A file system in memory, where fsync is free.
const MEMORY_FS_DIR: &str = "/dev/shm";

/// Memory limit of a mount.
const MEMORY_BYTES: u64 = 64 << 20;

/// The wall clock of a machine: the time of the simulation, with an offset.
pub(super) struct WallClock {
    scheduler: Arc<Scheduler>,
    offset_ns: AtomicI64,
    /// Readings so far. Each is a little later than the one before.
    readings: AtomicI64,
}

/// Noon of 2026-01-01 UTC.
const NOON_NS: i64 = 1_767_268_800_000_000_000;

impl WallClock {
    pub(super) fn new(scheduler: Arc<Scheduler>) -> Arc<Self> {
        Arc::new(Self { scheduler, offset_ns: AtomicI64::new(0), readings: AtomicI64::new(0) })
    }

    /// Sets the clock forward or back.
    pub(super) fn step(&self, by_s: i64) {
        self.offset_ns.fetch_add(by_s * 1_000_000_000, Ordering::SeqCst);
    }

    fn elapsed_ns(&self) -> i64 {
        let elapsed = self.scheduler.elapsed().as_nanos() as i64;
        elapsed + self.readings.fetch_add(1, Ordering::SeqCst) * 100
    }
}

impl std::fmt::Debug for WallClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WallClock").finish_non_exhaustive()
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp(NOON_NS + self.elapsed_ns() + self.offset_ns.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.elapsed_ns().unsigned_abs())
    }
}

/// The bucket as a machine reaches it: not at all once the machine has died.
#[derive(Clone)]
struct BucketLink(Arc<NetworkLink>);

impl std::fmt::Debug for BucketLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BucketLink").field(&self.0.state()).finish()
    }
}

impl Layer for BucketLink {
    async fn around<T: Send>(
        &self,
        _call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        match self.0.state() {
            LinkState::Dead => Err(StoreError::Unavailable("the machine has died".into())),
            _ => work.await,
        }
    }
}

/// The parts of a mount, and its settings.
#[derive(Clone)]
pub(super) struct MountPlan {
    pub(super) name: String,
    pub(super) is_strict: bool,
    pub(super) has_notifications: bool,
    pub(super) bucket: MemoryStore,
    pub(super) record: VolumeRecord,
    pub(super) seed: u64,
}

/// A machine with a mount.
pub(super) struct Machine {
    pub(super) plan: MountPlan,
    pub(super) link: Arc<NetworkLink>,
    pub(super) clock: Arc<WallClock>,
    scheduler: Arc<Scheduler>,
    /// The actor of programs, and that of background work.
    actors: [ActorId; 2],
    mounted: Mutex<Option<Arc<Mounted>>>,
    /// Whether mounting has failed.
    has_failed: AtomicBool,
    /// Whether programs are to end.
    pub(super) is_stopping: AtomicBool,
    /// Programs and jobs that have not ended.
    running: AtomicUsize,
    dir: TempDir,
    trace: Trace,
}

/// A mounted volume.
pub(super) struct Mounted {
    pub(super) fs: Arc<Filesystem>,
    pub(super) engine: Arc<RemoteEngine<SimulatedDatabase>>,
    pub(super) store: Arc<dyn ObjectStore>,
}

impl Machine {
    /// Starts a machine, which does not mount yet.
    pub(super) fn start(
        scheduler: &Arc<Scheduler>,
        link: Arc<NetworkLink>,
        plan: MountPlan,
        trace: Trace,
    ) -> Result<Arc<Self>, String> {
        let memory = Path::new(MEMORY_FS_DIR);
        let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Ok(Arc::new(Self {
            plan,
            link,
            clock: WallClock::new(scheduler.clone()),
            scheduler: scheduler.clone(),
            actors: scheduler.start_pair(),
            mounted: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            dir: dir.map_err(|error| format!("cannot make the cache directory: {error}"))?,
            trace,
        }))
    }

    /// Begins to mount, on the actor of background work, whose runtime then follows the log.
    pub(super) fn begin_mount(self: &Arc<Self>) {
        self.has_failed.store(false, Ordering::SeqCst);
        let me = self.clone();
        self.run_on(1, async move {
            if let Err(error) = me.mount().await {
                me.trace.push(format!("{} cannot mount: {error}", me.plan.name));
                me.has_failed.store(true, Ordering::SeqCst);
            }
        });
    }

    async fn mount(&self) -> Result<(), String> {
        let database = SimulatedDatabase::new(self.link.clone(), self.plan.has_notifications);
        let options = RemoteOptions {
            holder: self.plan.name.clone(),
            is_exclusive: false,
            is_strict: self.plan.is_strict,
            cache_bytes: 1 << 20,
            ..RemoteOptions::default()
        };
        let engine = RemoteEngine::open_simulated(database, options, self.scheduler.clone());
        let engine = Arc::new(engine.map_err(|error| error.to_string())?);
        let store: Arc<dyn ObjectStore> =
            Arc::new(Wrapped::new(self.plan.bucket.clone(), BucketLink(self.link.clone())));
        let dependencies = Dependencies {
            store: store.clone(),
            clock: self.clock.clone(),
            entropy: Arc::new(Entropy::new(self.plan.seed)),
            engine: engine.clone(),
            record: Some(self.plan.record.clone()),
        };
        let config = Config {
            atime: Atime::Off,
            memory_limit_bytes: MEMORY_BYTES,
            ..Config::new(self.dir.path().join("cache"))
        };
        let fs = Filesystem::mount(dependencies, config).map_err(|error| error.to_string())?;
        fs.recover().await.map_err(|error| error.to_string())?;
        self.trace.push(format!("{} has mounted", self.plan.name));
        *self.slot() = Some(Arc::new(Mounted { fs, engine, store }));
        Ok(())
    }

    /// Returns the mounted volume.
    pub(super) fn mounted(&self) -> Option<Arc<Mounted>> {
        self.slot().clone()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// Runs a program.
    pub(super) fn run(self: &Arc<Self>, program: impl Future<Output = ()> + Send + 'static) {
        self.run_on(0, program);
    }

    fn run_on(self: &Arc<Self>, actor: usize, work: impl Future<Output = ()> + Send + 'static) {
        self.running.fetch_add(1, Ordering::SeqCst);
        let me = self.clone();
        let job: Job = Box::new(move || -> Task {
            Box::pin(async move {
                let _running = Running(me);
                work.await;
            })
        });
        self.scheduler.give(self.actors[actor], job);
    }

    /// Returns whether programs or jobs go on.
    pub(super) fn is_busy(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    /// Drops the mounted volume, and ends the actors. Nothing may be running.
    pub(super) fn stop(self: &Arc<Self>) {
        let me = self.clone();
        self.run_on(1, async move {
            let mounted = me.slot().take();
            drop(mounted);
        });
        self.actors.iter().rev().for_each(|actor| self.scheduler.stop_when_idle(*actor));
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Mounted>>> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program or job that goes on.
struct Running(Arc<Machine>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}
