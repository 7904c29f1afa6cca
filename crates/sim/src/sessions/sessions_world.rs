//! The world of several machines: its set-up, its faults, and the checks at its end.

use super::machine::{Machine, MountPlan, Mounted};
use super::network::{LinkState, Network, NetworkLink};
use super::oracle::{Oracle, Outcome};
use super::program::{
    CALLER, COUNTERS, FILES, Places, Program, SLOTS, bytes_of, look_at_names, read_whole, slot_name, tag_of,
};
use super::scheduler::{Scheduler, TICK};
use crate::Report;
use crate::runner::SimulatedWorld;
use crate::trace::Trace;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use store::memory::{MemoryLimits, MemoryStore};
use store::{Clock, Entropy, ObjectStore};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use vfs::{Audit, Filesystem, Ino, Lock, LockKind, LockOwner, Mapping, Naming, VolumeRecord};

/// Simulated time before the first actor starts, so that no clock of an actor is ahead of it.
const HEAD_START: Duration = Duration::from_secs(3600);

/// Maximum time for the programs of a world.
const PROGRAMS_MAX: Duration = Duration::from_secs(3600);

/// Time after the end of all faults in which mounts recover.
const RECOVERY: Duration = Duration::from_secs(16);

/// Time within which a lock of a dead machine is free (S665), with the delays of the network.
const LOCK_FREED_WITHIN: Duration = Duration::from_secs(15);

/// Time within which a change ends although a strict machine has died (S670), with the delays of the network.
const CHANGE_MADE_WITHIN: Duration = Duration::from_secs(15);

/// Time after which the files of a dead machine that have no name are removed (S654).
const SILENCE: Duration = Duration::from_secs(305);

/// The settings of a world.
#[derive(Debug, Clone)]
struct Scenario {
    machines: u64,
    programs: u64,
    steps: u64,
    faults: u64,
    mapping: Mapping,
    losses_per_mille: u64,
    delay_ms_max: u64,
    has_notifications: bool,
    /// Whether the database may come back without its newest commits.
    goes_back: bool,
}

impl Scenario {
    fn draw(entropy: &Entropy) -> Self {
        Self {
            machines: 2 + entropy.below(3),
            programs: 1 + entropy.below(2),
            steps: 4 + entropy.below(12),
            faults: entropy.below(6),
            mapping: if entropy.below(3) == 0 { Mapping::Chunked { bytes: 1 << 20 } } else { Mapping::Whole },
            losses_per_mille: [0, 0, 5, 40][entropy.below(4) as usize],
            delay_ms_max: [1, 5, 50, 400][entropy.below(4) as usize],
            has_notifications: entropy.below(4) > 0,
            goes_back: entropy.below(3) == 0,
        }
    }
}

/// A world of several machines.
pub(super) struct SessionsWorld {
    scenario: Scenario,
    entropy: Entropy,
    trace: Trace,
    oracle: Arc<Oracle>,
    /// The database and the links to it; made with the runtime.
    network: Option<Arc<Network>>,
    machines: Vec<Arc<Machine>>,
    /// Machines that have died, whose programs may not know it yet.
    dead: Vec<Arc<Machine>>,
    /// Machines that have been started so far.
    started: u64,
    /// Programs that have been started so far.
    programs: u64,
    report: Report,
}

/// A result that a job on an actor leaves.
type Slot<T> = Arc<Mutex<Option<T>>>;

impl SimulatedWorld for SessionsWorld {
    const KIND: &'static str = "sessions";

    fn create(seed: u64, trace: &Trace) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let scenario = Scenario::draw(&entropy);
        trace.push(format!("{scenario:?}"));
        let oracle = Arc::new(Oracle::default());
        Ok(Self {
            scenario,
            entropy,
            trace: trace.clone(),
            oracle,
            network: None,
            machines: Vec::new(),
            dead: Vec::new(),
            started: 0,
            programs: 0,
            report: Report::default(),
        })
    }

    fn run(&mut self) -> Result<(), String> {
        let scheduler: Arc<OnceLock<Arc<Scheduler>>> = Arc::default();
        let parked = scheduler.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || {
                if let Some(scheduler) = parked.get() {
                    scheduler.run_actors(Instant::now());
                }
            })
            .build()
            .map_err(|error| format!("cannot make a runtime: {error}"))?;
        let done = runtime.block_on(async {
            sleep(HEAD_START).await;
            let made = Scheduler::new(Handle::current(), Instant::now());
            let _ = scheduler.set(made.clone());
            self.network = Some(Network::new(self.entropy.next_u64(), self.oracle.moments(), made.now()));
            self.live(&made).await
        });
        if let Some(scheduler) = scheduler.get() {
            scheduler.end();
        }
        {
            let _runtime = runtime.enter();
            self.machines.clear();
            self.dead.clear();
        }
        self.report.add(&self.oracle.report());
        if let Some(network) = &self.network {
            self.report.add(&network.report());
        }
        done
    }

    fn steps(&self) -> u64 {
        self.oracle.report().of("steps")
    }

    fn into_report(self) -> Report {
        self.report
    }
}

impl SessionsWorld {
    fn network(&self) -> Result<&Arc<Network>, String> {
        self.network.as_ref().ok_or_else(|| "the world has not begun".to_owned())
    }

    fn tell(&self, what: &str) {
        if let Some(network) = &self.network {
            self.trace.push(format!("{:?} {what}", network.elapsed()));
        }
    }

    async fn live(&mut self, scheduler: &Arc<Scheduler>) -> Result<(), String> {
        tokio::spawn(async {
            loop {
                sleep(TICK).await;
            }
        });
        let plan = self.make_volume(scheduler).await?;
        for _ in 0..self.scenario.machines {
            self.add_machine(scheduler, &plan)?;
        }
        self.wait_until_mounted(scheduler).await?;
        let places = self.make_places(scheduler).await?;
        self.network()?.forget_history();
        for machine in self.machines.clone() {
            self.start_programs(&machine, &places);
        }
        self.inject_faults(scheduler, &plan, &places).await?;
        self.heal()?;
        self.wait_for_programs(scheduler).await?;
        sleep(RECOVERY).await;
        self.check_at_rest(scheduler, &places).await?;
        self.unmount_all(scheduler).await?;
        sleep(SILENCE).await;
        self.check_leftovers(scheduler, &plan, &places).await
    }

    /// Makes the bucket with its record.
    async fn make_volume(&self, scheduler: &Arc<Scheduler>) -> Result<MountPlan, String> {
        let clock: Arc<dyn Clock> = super::machine::WallClock::new(scheduler.clone());
        let limits = MemoryLimits { part_bytes_min: 1, ..MemoryLimits::default() };
        let bucket = MemoryStore::with_limits(clock.clone(), limits);
        let record = VolumeRecord::new(self.scenario.mapping, Naming::Inode, 7, clock.now());
        let record = record.map_err(|error| error.to_string())?;
        record.write(&bucket as &dyn ObjectStore, b"").await.map_err(|error| error.to_string())?;
        let has_notifications = self.scenario.has_notifications;
        Ok(MountPlan { name: String::new(), is_strict: false, has_notifications, bucket, record, seed: 0 })
    }

    /// Starts a machine that mounts the volume.
    fn add_machine(&mut self, scheduler: &Arc<Scheduler>, plan: &MountPlan) -> Result<(), String> {
        self.started += 1;
        let plan = MountPlan {
            name: format!("machine {}", self.started),
            is_strict: self.entropy.below(3) == 0,
            ..plan.clone()
        };
        self.mount(scheduler, plan)
    }

    fn mount(&mut self, scheduler: &Arc<Scheduler>, plan: MountPlan) -> Result<(), String> {
        if plan.is_strict {
            self.report.count("strict mounts");
        }
        let Scenario { losses_per_mille, delay_ms_max, .. } = self.scenario;
        let link = NetworkLink::new(self.network()?.clone(), losses_per_mille, delay_ms_max);
        // The names that a mount draws for objects must be new.
        let plan = MountPlan { seed: self.entropy.next_u64(), ..plan };
        let machine = Machine::start(scheduler, link, plan, self.trace.clone())?;
        machine.begin_mount();
        self.machines.push(machine);
        self.report.count("mounts");
        Ok(())
    }

    /// Waits until all machines have mounted. Those that could not try again.
    async fn wait_until_mounted(&self, scheduler: &Scheduler) -> Result<(), String> {
        let until = Instant::now() + PROGRAMS_MAX;
        loop {
            let waiting: Vec<_> =
                self.machines.iter().filter(|machine| machine.mounted().is_none()).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            waiting.iter().filter(|machine| machine.has_failed()).for_each(|machine| machine.begin_mount());
            self.pause(scheduler, until, "mounts").await?;
        }
    }

    /// Lets time pass. Fails if something has failed, or the time is over.
    async fn pause(&self, scheduler: &Scheduler, until: Instant, what: &str) -> Result<(), String> {
        sleep(TICK).await;
        if let Some(failure) = scheduler.failure().or_else(|| self.oracle.failure()) {
            return Err(failure);
        }
        if Instant::now() > until {
            return Err(format!("{what} do not end"));
        }
        Ok(())
    }

    /// Runs work on a machine, and returns its result.
    async fn ask<T, F>(
        &self,
        scheduler: &Scheduler,
        machine: &Arc<Machine>,
        work: impl FnOnce(Arc<Mounted>) -> F,
    ) -> Result<T, String>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let mounted = machine.mounted().ok_or("the machine has not mounted")?;
        let (slot, until): (Slot<Result<T, String>>, _) = (Arc::default(), Instant::now() + PROGRAMS_MAX);
        let (work, result) = (work(mounted), slot.clone());
        machine.run(async move {
            let done = work.await;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        });
        loop {
            self.pause(scheduler, until, "calls").await?;
            if let Some(done) = slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return done.map_err(|what| format!("{}: {what}", machine.plan.name));
            }
        }
    }

    /// Makes the files and directories that programs share.
    async fn make_places(&self, scheduler: &Scheduler) -> Result<Places, String> {
        let Some(first) = self.machines.first() else { return Err("no machine".into()) };
        let places =
            self.ask(scheduler, first, |mounted| async move { make_places(&mounted.fs).await }).await?;
        for (file, _) in places.files.iter().enumerate() {
            let id = self.oracle.begin_write(file, 0);
            self.oracle.end_write(file, &id, Outcome::Done);
        }
        Ok(places)
    }

    fn start_programs(&mut self, machine: &Arc<Machine>, places: &Places) {
        for _ in 0..self.scenario.programs {
            self.programs += 1;
            let program = Program {
                machine: machine.clone(),
                oracle: self.oracle.clone(),
                places: places.clone(),
                entropy: Entropy::new(self.entropy.next_u64()),
                trace: self.trace.clone(),
                number: self.programs,
                owners: 0,
                steps: self.scenario.steps,
            };
            machine.run(program.run());
        }
    }

    async fn inject_faults(
        &mut self,
        scheduler: &Arc<Scheduler>,
        plan: &MountPlan,
        places: &Places,
    ) -> Result<(), String> {
        for _ in 0..self.scenario.faults {
            sleep(Duration::from_millis(self.entropy.below(6000))).await;
            if let Some(failure) = scheduler.failure().or_else(|| self.oracle.failure()) {
                return Err(failure);
            }
            self.inject_fault(scheduler, plan, places).await?;
        }
        Ok(())
    }

    async fn inject_fault(
        &mut self,
        scheduler: &Arc<Scheduler>,
        plan: &MountPlan,
        places: &Places,
    ) -> Result<(), String> {
        let at = self.entropy.below(self.machines.len() as u64) as usize;
        let machine = self.machines[at].clone();
        match self.entropy.below(9) {
            0 | 1 => self.cut(&machine, LinkState::Silent, "partitions"),
            2 => self.cut(&machine, LinkState::Refused, "refused connections"),
            3 => {
                self.note(&machine, "lost connections");
                machine.link.close_all();
            }
            4 | 5 => self.restart_database().await?,
            6 => self.crash(scheduler, machine, plan, places).await?,
            7 => self.remount(scheduler, machine, places).await?,
            _ => {
                self.note(&machine, "clock steps");
                machine.clock.step(self.entropy.below(7200).cast_signed() - 3600);
            }
        }
        Ok(())
    }

    fn note(&mut self, machine: &Machine, what: &'static str) {
        self.report.count(what);
        self.tell(&format!("{}: {what}", machine.plan.name));
    }

    /// Draws the time that a fault lasts: mostly short, sometimes longer than a lease, or than the budget of a call.
    fn draw_time(&self) -> Duration {
        let most_ms = [500, 5000, 15_000, 40_000][self.entropy.below(4) as usize];
        Duration::from_millis(50 + self.entropy.below(most_ms))
    }

    /// Cuts a link for a time. Other faults may happen meanwhile.
    fn cut(&mut self, machine: &Machine, state: LinkState, what: &'static str) {
        if machine.link.state() != LinkState::Up {
            return;
        }
        self.note(machine, what);
        machine.link.set(state);
        let time = self.draw_time();
        machine.link.end_cut_after(state, time);
        self.tell(&format!("for {time:?}"));
    }

    /// Kills the database and starts it again, in some worlds without its newest commits.
    async fn restart_database(&mut self) -> Result<(), String> {
        let network = self.network()?.clone();
        self.report.count("killed databases");
        self.tell("the database is killed");
        network.kill_server();
        sleep(self.draw_time()).await;
        if self.scenario.goes_back && self.entropy.below(4) > 0 {
            let commits = 1 + self.entropy.below(12) as usize;
            if let Some(lost_since) = network.go_back(commits) {
                self.report.count("lost commits");
                self.oracle.go_back(lost_since);
                self.tell(&format!("the database has lost the commits since moment {lost_since}"));
            }
        }
        network.start_server();
        self.tell("the database runs");
        Ok(())
    }

    /// Lets a machine die. It returns later, or another one takes its place, or none.
    async fn crash(
        &mut self,
        scheduler: &Arc<Scheduler>,
        machine: Arc<Machine>,
        plan: &MountPlan,
        places: &Places,
    ) -> Result<(), String> {
        self.note(&machine, "dead machines");
        machine.link.set(LinkState::Dead);
        self.machines.retain(|other| !Arc::ptr_eq(other, &machine));
        self.dead.push(machine.clone());
        let returns = self.entropy.below(3);
        if returns == 2 && !self.machines.is_empty() {
            return Ok(());
        }
        sleep(self.draw_time()).await;
        match returns {
            0 => self.mount(scheduler, machine.plan.clone())?,
            _ => self.add_machine(scheduler, plan)?,
        }
        self.resume(scheduler, places).await
    }

    /// Unmounts a volume, and mounts it again.
    async fn remount(
        &mut self,
        scheduler: &Arc<Scheduler>,
        machine: Arc<Machine>,
        places: &Places,
    ) -> Result<(), String> {
        self.note(&machine, "unmounts");
        machine.is_stopping.store(true, Ordering::SeqCst);
        self.wait_until_idle(scheduler, &machine, "programs of a machine that unmounts").await?;
        let _ = self.ask(scheduler, &machine, shut_down).await;
        self.machines.retain(|other| !Arc::ptr_eq(other, &machine));
        self.end_machine(scheduler, &machine, "the unmount").await?;
        self.mount(scheduler, machine.plan.clone())?;
        self.resume(scheduler, places).await
    }

    /// Starts programs on the machine that was added last, once it has mounted.
    async fn resume(&mut self, scheduler: &Arc<Scheduler>, places: &Places) -> Result<(), String> {
        self.wait_until_mounted(scheduler).await?;
        if let Some(machine) = self.machines.last().cloned() {
            self.start_programs(&machine, places);
        }
        Ok(())
    }

    async fn wait_until_idle(
        &self,
        scheduler: &Scheduler,
        machine: &Machine,
        what: &str,
    ) -> Result<(), String> {
        let until = Instant::now() + PROGRAMS_MAX;
        while machine.is_busy() {
            self.pause(scheduler, until, what).await?;
        }
        Ok(())
    }

    /// Ends a machine whose programs end.
    async fn end_machine(
        &self,
        scheduler: &Scheduler,
        machine: &Arc<Machine>,
        what: &str,
    ) -> Result<(), String> {
        self.wait_until_idle(scheduler, machine, what).await?;
        machine.stop();
        self.wait_until_idle(scheduler, machine, what).await
    }

    /// Ends all faults.
    fn heal(&self) -> Result<(), String> {
        self.network()?.calm_down();
        self.network()?.start_server();
        self.machines.iter().for_each(|machine| machine.link.set(LinkState::Up));
        self.tell("all faults end");
        Ok(())
    }

    async fn wait_for_programs(&self, scheduler: &Scheduler) -> Result<(), String> {
        for machine in &self.machines {
            self.wait_until_idle(scheduler, machine, "programs").await?;
        }
        match self.oracle.failure() {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    /// Checks that all mounts work, show the same, and show what the model says.
    async fn check_at_rest(&self, scheduler: &Scheduler, places: &Places) -> Result<(), String> {
        self.tell("all programs have ended");
        for machine in &self.machines {
            let known = places.clone();
            self.ask(scheduler, machine, |mounted| async move { check_locks(&mounted.fs, &known).await })
                .await?;
        }
        let mut seen = None;
        for machine in &self.machines {
            let (known, oracle) = (places.clone(), self.oracle.clone());
            let look =
                |mounted: Arc<Mounted>| async move { look_at_rest(&mounted.fs, &known, &oracle).await };
            let found = self.ask(scheduler, machine, look).await?;
            // Bytes that were deleted in the lost time are gone (S660), but a mount may have them in its cache.
            let has_all_bytes = !self.oracle.has_gone_back();
            if let Some(other) = seen.replace(found.clone())
                && (other.0 != found.0 || has_all_bytes && other.1 != found.1)
            {
                return Err(format!("two mounts show different names: {other:?} and {found:?}"));
            }
        }
        let Some((present, tags)) = seen else { return Ok(()) };
        self.oracle.check_at_rest(&present, &tags)?;
        let Some(machine) = self.machines.first() else { return Ok(()) };
        self.ask(scheduler, machine, |mounted| async move { check_tables(&mounted) }).await
    }

    async fn unmount_all(&mut self, scheduler: &Scheduler) -> Result<(), String> {
        for machine in std::mem::take(&mut self.dead) {
            self.end_machine(scheduler, &machine, "programs of a dead machine").await?;
        }
        for machine in std::mem::take(&mut self.machines) {
            self.ask(scheduler, &machine, shut_down).await?;
            self.end_machine(scheduler, &machine, "the last unmount").await?;
        }
        Ok(())
    }

    /// Mounts the volume alone, and checks that nothing is left of dead machines.
    async fn check_leftovers(
        &mut self,
        scheduler: &Arc<Scheduler>,
        plan: &MountPlan,
        places: &Places,
    ) -> Result<(), String> {
        self.add_machine(scheduler, plan)?;
        self.wait_until_mounted(scheduler).await?;
        let Some(machine) = self.machines.first().cloned() else { return Ok(()) };
        let (record, known, has_gone_back) =
            (plan.record.clone(), places.clone(), self.oracle.has_gone_back());
        self.ask(scheduler, &machine, move |mounted| async move {
            check_leftovers(&mounted, &record, &known, has_gone_back).await
        })
        .await?;
        self.unmount_all(scheduler).await
    }
}

async fn make_places(fs: &Filesystem) -> Result<Places, String> {
    let failed = |error: vfs::Error| format!("the set-up failed: {error}");
    let names = fs.mkdir(CALLER, Ino::ROOT, b"names", 0o755).await.map_err(failed)?.ino;
    let unnamed = fs.mkdir(CALLER, Ino::ROOT, b"unnamed", 0o755).await.map_err(failed)?.ino;
    let mut places = Places { files: Vec::new(), counters: Vec::new(), names, unnamed };
    for number in 0..FILES + COUNTERS {
        let name = format!("file{number}").into_bytes();
        let made = fs.create(CALLER, Ino::ROOT, &name, 0o644, libc::O_CREAT | libc::O_WRONLY).await;
        let (attr, opened) = made.map_err(failed)?;
        fs.write(opened.handle, 0, &bytes_of(0)).await.map_err(failed)?;
        fs.release(opened.handle).await.map_err(failed)?;
        let inodes = if number < FILES { &mut places.files } else { &mut places.counters };
        inodes.push(attr.ino);
    }
    Ok(places)
}

/// Checks that all locks are free within the stated time, and that changes are made.
async fn check_locks(fs: &Filesystem, places: &Places) -> Result<(), String> {
    for (counter, ino) in places.counters.iter().enumerate() {
        let opened =
            fs.open(*ino, libc::O_RDWR).await.map_err(|error| format!("cannot open a counter: {error}"))?;
        let owner = LockOwner { locker: vfs::Locker::default(), session: 2, id: 1 };
        let kind = LockKind::Exclusive;
        let lock = Lock { owner, handle: opened.handle, first: 0, last: u64::MAX, kind, pid: 1 };
        let taken = fs.locks().take(*ino, lock, sleep(LOCK_FREED_WITHIN)).await;
        taken.map_err(|error| format!("the lock of counter {counter} is not freed: {error}"))?;
        let closed = fs.release(opened.handle).await;
        let ended = fs.locks().closed(*ino, opened.handle).await;
        closed.and(ended).map_err(|error| format!("cannot close a counter: {error}"))?;
    }
    let began = Instant::now();
    let name = slot_name(SLOTS);
    let made = fs.mkdir(CALLER, places.unnamed, &name, 0o755).await;
    made.map_err(|error| format!("a change fails without faults: {error}"))?;
    let removed = fs.rmdir(places.unnamed, &name).await;
    removed.map_err(|error| format!("a change fails without faults: {error}"))?;
    if began.elapsed() > CHANGE_MADE_WITHIN {
        return Err(format!("two changes took {:?}", began.elapsed()));
    }
    Ok(())
}

/// Reads all that programs share. Returns which names are there, and the tags of all named files.
async fn look_at_rest(
    fs: &Filesystem,
    places: &Places,
    oracle: &Oracle,
) -> Result<(Vec<bool>, Vec<u64>), String> {
    for (file, ino) in places.files.iter().enumerate() {
        let began = oracle.now();
        let read = read_whole(fs, *ino).await;
        match read {
            Ok(bytes) => oracle.check_read(file, began, tag_of(&bytes)?)?,
            // Bytes that were replaced in the lost time may be gone (S660).
            Err(_) if oracle.has_gone_back() => {}
            Err(error) => return Err(format!("file {file} cannot be read: {error}")),
        }
    }
    look_at_names(fs, places, oracle.has_gone_back()).await
}

fn check_tables(mounted: &Mounted) -> Result<(), String> {
    let violations = mounted.fs.check().map_err(|error| format!("cannot check the tables: {error}"))?;
    if violations.is_empty() { Ok(()) } else { Err(violations.join("; ")) }
}

async fn shut_down(mounted: Arc<Mounted>) -> Result<(), String> {
    let ended = mounted.fs.shutdown(Duration::from_secs(120)).await;
    ended.map_err(|error| format!("cannot unmount: {error}"))
}

/// Checks that the metadata and the bucket agree, and that no file without a name is left.
async fn check_leftovers(
    mounted: &Mounted,
    record: &VolumeRecord,
    places: &Places,
    has_gone_back: bool,
) -> Result<(), String> {
    let failed = |what: &'static str| move |error: vfs::Error| format!("{what}: {error}");
    let left = mounted.fs.recover().await.map_err(failed("cannot recover"))?;
    if left > 0 {
        return Err(format!("{left} files without a name are left after the first recovery"));
    }
    look_at_names(&mounted.fs, places, has_gone_back).await?;
    mounted.fs.admin().collect_garbage(false).await.map_err(failed("cannot collect garbage"))?;
    let keys = vfs::KeySpace { record: Some(record), ..vfs::KeySpace::default() };
    let audit = Audit::make(&*mounted.engine, &*mounted.store, keys).await.map_err(failed("cannot audit"))?;
    if let Some(violation) = audit.violations.first() {
        return Err(violation.clone());
    }
    match (audit.missing.first(), audit.unused.first()) {
        // Bytes that were replaced in the lost time may be gone (S660).
        (Some((ino, key)), _) if !has_gone_back => {
            Err(format!("{key}, the content of inode {ino}, is missing"))
        }
        (_, Some(key)) => Err(format!("the garbage {key} was not collected")),
        (_, None) => Ok(()),
    }
}
