//! The dual world: mount sessions with rounds of concurrent changes, and checks after each round.

use super::endpoint_client::EndpointClient;
use super::file_client::FileClient;
use super::foreign_writer::ForeignWriter;
use super::key_history::Moment;
use super::quiescent_check;
use super::shared_state::SharedState;
use crate::Report;
use crate::files::machine::{CrashKind, Machine, Mount, in_paused_runtime, require_ok};
use crate::files::scenario::Scenario;
use crate::runner::SimulatedWorld;
use crate::trace::Trace;
use futures_util::future::{FutureExt as _, LocalBoxFuture, try_join_all};
use std::time::Duration;
use store::Entropy;
use vfs::{Mapping, Naming};

/// Calls per op, for the draw of the crash point.
const CALLS_PER_OP: u64 = 3;
/// Time after which cached knowledge of the bucket has expired and is revalidated.
const REVALIDATION_WAIT: Duration = Duration::from_secs(6);
/// Time in which a file is closed after the request that had it open.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// Publish intervals of open files, in milliseconds, and the share of worlds that have one.
const PUBLISH_INTERVALS_MS: [u64; 4] = [2, 20, 100, 700];
const PUBLISH_ONE_IN_WORLDS: u64 = 4;
/// Salt of the draw, chosen so that the regression seeds have no publish interval.
const PUBLISH_SALT: u64 = 71 << 32;

enum RoundEnd {
    Crash(CrashKind),
    Completed,
}

pub(super) struct DualWorld {
    machine: Machine,
    shared: SharedState,
    publish_interval: Option<Duration>,
    file_client: FileClient,
    clients: Vec<EndpointClient>,
    foreign_writer: Option<ForeignWriter>,
}

/// Draws a files scenario with latency, in which about half of the volumes are by path.
fn draw_scenario(entropy: &Entropy) -> Scenario {
    let scenario = Scenario { is_slow: true, sessions: 1 + entropy.below(3), ..Scenario::draw(entropy) };
    match entropy.below(3) {
        0 => Scenario { naming: Naming::FilePath, mapping: Mapping::Whole, ..scenario },
        _ => scenario,
    }
}

/// Draws the publish interval from entropy of its own, so that worlds without one are unchanged.
fn draw_publish_interval(seed: u64) -> Option<Duration> {
    let entropy = Entropy::new(!seed ^ PUBLISH_SALT);
    let after = PUBLISH_INTERVALS_MS[entropy.below(PUBLISH_INTERVALS_MS.len() as u64) as usize];
    (entropy.below(PUBLISH_ONE_IN_WORLDS) == 0).then_some(Duration::from_millis(after))
}

impl SimulatedWorld for DualWorld {
    const KIND: &'static str = "dual";

    fn create(seed: u64, trace: &Trace) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let scenario = draw_scenario(&entropy);
        let machine = Machine::new(seed, scenario, entropy, trace.clone())?;
        let publish_interval = draw_publish_interval(seed);
        trace.push(format!("publish interval {publish_interval:?}"));
        let shared = SharedState::new(
            scenario,
            machine.clock.clone(),
            machine.entropy.next_u64(),
            trace.clone(),
            (
                REVALIDATION_WAIT.as_nanos() as Moment,
                publish_interval.map(|after| after.as_nanos() as Moment),
            ),
        );
        let clients =
            (0..1 + machine.entropy.below(2)).map(|number| EndpointClient::new(number, shared.clone()));
        let foreign_writer =
            scenario.by_path().then(|| ForeignWriter::new(shared.clone(), machine.bucket.clone()));
        let (file_client, clients) = (FileClient::new(shared.clone()), clients.collect());
        Ok(Self { machine, shared, publish_interval, file_client, clients, foreign_writer })
    }

    fn run(&mut self) -> Result<(), String> {
        let mut last_crash = None;
        for session in 0..self.machine.scenario.sessions {
            self.shared.trace_line(format!("session {session}"));
            last_crash = self.run_session(last_crash)?;
        }
        self.shared.trace_line("final check".into());
        in_paused_runtime(async || self.final_check(last_crash).await)
    }

    fn steps(&self) -> u64 {
        self.shared.inner.borrow().steps
    }

    fn into_report(self) -> Report {
        self.shared.inner.borrow().report.clone()
    }
}

impl DualWorld {
    fn corrupt_log(&mut self) -> Result<(), String> {
        if self.machine.corrupt_log()? {
            self.shared.count("corrupted logs");
        }
        if self.machine.corrupt_moves()? {
            self.shared.count("corrupted journals of moves");
        }
        Ok(())
    }

    /// Runs a session and returns the crash at its end, if any.
    fn run_session(&mut self, last_crash: Option<CrashKind>) -> Result<Option<CrashKind>, String> {
        let end = in_paused_runtime(async || {
            let mount = self.mount(last_crash).await?;
            let end = self.run_rounds(&mount).await;
            if self.shared.by_path && matches!(end, Ok(RoundEnd::Crash(CrashKind::Power))) {
                let now = self.shared.now();
                self.shared.inner.borrow_mut().history.lose_recent_moves(now);
            }
            self.file_client.unmount();
            self.machine.record_synced(mount.synced(), mount.fs.moves().synced_journal_bytes());
            end
        })?;
        let RoundEnd::Crash(crash_kind) = end else {
            self.shared.count("clean shutdowns");
            self.corrupt_log()?;
            return Ok(None);
        };
        self.shared.count(if crash_kind == CrashKind::Power { "power cuts" } else { "kills" });
        self.machine.lose_unsynced(crash_kind)?;
        self.corrupt_log()?;
        if crash_kind == CrashKind::Power && (self.shared.write_back || !self.shared.by_path) {
            let mut inner = self.shared.inner.borrow_mut();
            let synced = inner.history.lose_power();
            if self.shared.write_back {
                // Content kept after a conflict waits in the write-back log like any other.
                inner.lost_to_bucket.retain(|(at, _)| *at <= synced);
            }
        }
        let loses_uploads = crash_kind == CrashKind::Power && self.shared.write_back;
        self.clients.iter_mut().for_each(|client| client.recover(loses_uploads));
        self.file_client.recover();
        Ok(Some(crash_kind))
    }

    async fn mount(&mut self, last_crash: Option<CrashKind>) -> Result<Mount, String> {
        let mount = self.machine.mount().await?;
        {
            let _pause = mount.injector.pause_faults();
            if last_crash == Some(CrashKind::Power) {
                // A reboot takes at least this long.
                tokio::time::sleep(REVALIDATION_WAIT).await;
            }
            require_ok("recover", mount.fs.recover().await)?;
        }
        if let Some(after) = self.publish_interval {
            self.shared.count("mounts that publish open files");
            mount.fs.publisher().publish_in_background(after);
        }
        self.check_quiescent(&mount).await?;
        Ok(mount)
    }

    async fn run_rounds(&mut self, mount: &Mount) -> Result<RoundEnd, String> {
        let rounds = 1 + self.machine.entropy.below(4);
        let last = self.machine.entropy.below(3 * rounds / 2 + 1);
        for round in 0..rounds {
            self.shared.trace_line(format!("round {round}"));
            if let RoundEnd::Crash(crash_kind) = self.run_round(mount, round == last).await? {
                return Ok(RoundEnd::Crash(crash_kind));
            }
            self.check_quiescent(mount).await?;
        }
        self.shut_down(mount).await?;
        Ok(RoundEnd::Completed)
    }

    /// Runs all clients concurrently until they are done or the machine crashes.
    async fn run_round(&mut self, mount: &Mount, crashes: bool) -> Result<RoundEnd, String> {
        let entropy = &self.machine.entropy;
        let ops: Vec<u64> = (0..4).map(|_| 1 + entropy.below(8)).collect();
        let calls = ops.iter().sum::<u64>() * CALLS_PER_OP;
        let calls_to_crash = crashes.then(|| 1 + entropy.below(calls));
        let crash_kind = if entropy.below(2) == 0 { CrashKind::Process } else { CrashKind::Power };
        mount.injector.start(calls_to_crash);
        let kernel = self.file_client.kernel(mount);
        let mut all: Vec<LocalBoxFuture<'_, Result<(), String>>> =
            vec![self.file_client.run_ops(mount, 2 * ops[0]).boxed_local()];
        for (client, ops) in self.clients.iter_mut().zip(&ops[1..]) {
            all.push(client.run_ops(mount, *ops).boxed_local());
        }
        all.extend(
            self.foreign_writer
                .as_mut()
                .map(|foreign_writer| foreign_writer.run_ops(mount, ops[3]).boxed_local()),
        );
        tokio::select! {
            biased;
            () = mount.injector.wait_for_crash() => return Ok(RoundEnd::Crash(crash_kind)),
            done = try_join_all(all) => drop(done?),
            () = kernel.process_invalidations() => {}
        }
        if mount.injector.has_crashed() {
            // The crash was at the last commit of the round.
            return Ok(RoundEnd::Crash(crash_kind));
        }
        mount.injector.cancel_crash();
        Ok(RoundEnd::Completed)
    }

    /// Checks all views of the namespace after all clients have stopped, without faults, and after the revalidation time.
    async fn check_quiescent(&mut self, mount: &Mount) -> Result<(), String> {
        self.shared.trace_line("all clients have stopped".into());
        let _pause = mount.injector.pause_faults();
        if let Some(foreign_writer) =
            self.foreign_writer.as_mut().filter(|_| self.machine.entropy.below(3) > 0)
        {
            foreign_writer.deliver_all_hints(mount).await?;
        }
        tokio::time::sleep(REVALIDATION_WAIT).await;
        if mount.fs.sync().await.is_err() {
            // Background failures from before the pause may be reported once more.
            require_ok("sync", mount.fs.sync().await)?;
        }
        mount.fs.moves().wait_until_complete().await;
        if let Some(log) = &mount.writeback {
            log.drained().await;
        }
        tokio::time::sleep(REVALIDATION_WAIT).await;
        let endpoint = vfs::objects(&mount.fs, b"");
        // Draws whether the files or the endpoint are read first.
        let is_first = self.machine.entropy.below(2) == 0;
        let early = if is_first { Some(quiescent_check::walk_files(&mount.fs).await?) } else { None };
        let objects = quiescent_check::read_objects(endpoint.as_ref()).await?;
        if self.shared.by_path {
            // With write-back an object keeps the tag that the log gave it until the mount ends.
            let compares_tags = !self.shared.write_back;
            let bucket = quiescent_check::read_objects(&self.machine.bucket).await?;
            quiescent_check::compare_stores("endpoint and bucket", &objects, &bucket, compares_tags)?;
        }
        for tree in early.into_iter().chain([quiescent_check::walk_files(&mount.fs).await?]) {
            quiescent_check::compare_files(&tree, &objects)?;
        }
        quiescent_check::compare_stores(
            "endpoint now and a moment later",
            &objects,
            &quiescent_check::read_objects(endpoint.as_ref()).await?,
            true,
        )?;
        let found = quiescent_check::check_final(&self.shared, &objects)?;
        mount.audit().await?;
        self.check_open_files(mount).await?;
        self.shared.conditional_writes.take();
        let now = self.shared.now();
        self.shared.inner.borrow_mut().history.reset(found, now);
        Ok(())
    }

    /// Checks that no file is open that no client has open. A request that ends or is dropped closes its file in the background.
    async fn check_open_files(&self, mount: &Mount) -> Result<(), String> {
        let expected = self.file_client.open_files();
        if mount.fs.admin().open_files() > expected {
            tokio::time::sleep(CLOSED_WITHIN).await;
        }
        match mount.fs.admin().open_files() {
            open if open > expected => {
                Err(format!("{open} files are open, of which the clients have {expected}"))
            }
            _ => Ok(()),
        }
    }

    async fn shut_down(&mut self, mount: &Mount) -> Result<(), String> {
        let _pause = mount.injector.pause_faults();
        require_ok("shutdown", mount.fs.shutdown(Duration::from_secs(600)).await)
    }

    /// Checks that a new mount without metadata shows the same, and that no garbage is left.
    async fn final_check(&mut self, last_crash: Option<CrashKind>) -> Result<(), String> {
        let mount = self.mount(last_crash).await?;
        let _pause = mount.injector.pause_faults();
        for client in &mut self.clients {
            client.abort_upload(&mount).await?;
        }
        // A file that is being read stays open a moment longer.
        tokio::time::sleep(REVALIDATION_WAIT).await;
        require_ok("garbage collection", mount.fs.admin().collect_garbage(false).await)?;
        self.check_quiescent(&mount).await?;
        if self.shared.by_path {
            let other_mount = self.machine.mount_elsewhere(mount.record.clone())?;
            let objects = quiescent_check::read_objects(&self.machine.bucket).await?;
            let cold =
                quiescent_check::compare_files(&quiescent_check::walk_files(&other_mount).await?, &objects);
            cold.map_err(|what| format!("on another mount: {what}"))?;
        }
        match require_ok("garbage", mount.fs.admin().collect_garbage(true).await)?.first() {
            None => Ok(()),
            Some(key) => Err(format!("the garbage {key} was not collected")),
        }
    }
}
