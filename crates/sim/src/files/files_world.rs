//! The files world: sessions that each end in a crash or a clean shutdown. The next session checks what is left.

use super::bystanders::Bystanders;
use super::fault_injector::STALL;
use super::log_disk::FiredReads;
use super::machine::{CrashKind, Machine, Mount, in_paused_runtime, require_ok};
use super::program::{Program, REVALIDATION_WAIT};
use super::scenario::Scenario;
use crate::Report;
use crate::runner::SimulatedWorld;
use crate::trace::Trace;
use futures_util::future::{join_all, try_join_all};
use std::time::Duration;
use store::Entropy;
use vfs::{Caller, Ino};

/// Calls per op, for the draw of the crash point.
const CALLS_PER_OP: u64 = 2;
/// Timeout of a clean shutdown, which may wait for an upload that takes [`STALL`].
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2 * STALL.as_secs());
/// Maximum time of an export, with slow copies.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);
/// Seeds of worlds without write-back in which crashes are kills. No regression seed has these remainders.
const KILL_MODULUS: u64 = 13;
const KILL_REMAINDERS: [u64; 3] = [0, 1, 3];

/// The end of a session.
enum SessionEnd {
    Crash(CrashKind),
    Orderly,
}

pub(super) struct FilesWorld {
    machine: Machine,
    programs: Vec<Program>,
    /// Without write-back, each crash is a kill; in other worlds each crash is a power loss.
    is_always_killed: bool,
    /// The crash at the end of the previous session, if any.
    last_crash: Option<CrashKind>,
    bystanders: Bystanders,
    report: Report,
}

impl SimulatedWorld for FilesWorld {
    const KIND: &'static str = "files";

    fn create(seed: u64, trace: &Trace) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let machine = Machine::new(seed, Scenario::draw(&entropy), entropy, trace.clone())?;
        let programs = (0..machine.scenario.programs)
            .map(|number| Program::new(number, machine.scenario, machine.entropy.next_u64(), trace.clone()))
            .collect();
        let bystanders = Bystanders::draw(seed, machine.scenario);
        let is_always_killed = KILL_REMAINDERS.contains(&(seed % KILL_MODULUS));
        Ok(Self {
            machine,
            programs,
            is_always_killed,
            last_crash: None,
            bystanders,
            report: Report::default(),
        })
    }

    fn steps(&self) -> u64 {
        self.programs.iter().map(|program| program.ops).sum()
    }

    fn into_report(mut self) -> Report {
        self.programs.iter().for_each(|program| self.report.add(&program.report));
        let FiredReads { passing, lasting } = self.machine.fired_log_reads();
        for (fired, event) in [
            (passing, "worlds with log reads that failed once"),
            (lasting, "worlds with reads of unreadable ranges of logs"),
        ] {
            if fired > 0 {
                self.report.count(event);
            }
        }
        self.report
    }

    fn run(&mut self) -> Result<(), String> {
        let sessions = self.machine.scenario.sessions;
        for session in 0..sessions {
            self.machine.trace.push(format!("session {session}"));
            self.run_session(session == 0)?;
        }
        self.machine.trace.push("final check");
        in_paused_runtime(async || self.final_check().await)
    }
}

impl FilesWorld {
    fn run_session(&mut self, is_first: bool) -> Result<(), String> {
        let end = in_paused_runtime(async || {
            let mount = self.mount(is_first).await?;
            let end = self.run_programs(&mount).await;
            self.machine.record_synced(mount.synced(), mount.fs.moves().synced_journal_bytes());
            end
        })?;
        self.last_crash = match end {
            SessionEnd::Crash(crash_kind) => {
                self.report.count(if crash_kind == CrashKind::Power { "power cuts" } else { "kills" });
                self.machine.lose_unsynced(crash_kind)?;
                Some(crash_kind)
            }
            SessionEnd::Orderly => {
                self.report.count("clean shutdowns");
                None
            }
        };
        if self.machine.spoil_log()? {
            self.report.count("unreadable ranges of logs");
        }
        if self.machine.corrupt_log()? {
            self.report.count("corrupted logs");
        }
        if self.machine.corrupt_moves()? {
            self.report.count("corrupted journals of moves");
        }
        Ok(())
    }

    /// Mounts the volume and compares its content with the model.
    async fn mount(&mut self, is_first: bool) -> Result<Mount, String> {
        let mount = self.machine.mount().await?;
        let _pause = mount.injector.pause_faults();
        if self.last_crash == Some(CrashKind::Power) {
            // A reboot takes at least this long.
            tokio::time::sleep(REVALIDATION_WAIT).await;
        }
        require_ok("recover", mount.fs.recover().await)?;
        if is_first {
            for program in &self.programs {
                let caller = Caller { uid: 0, gid: 0, umask: 0 };
                let made = mount.fs.mkdir(caller, Ino::ROOT, program.root.as_bytes(), 0o755).await;
                require_ok("mkdir", made)?;
            }
            require_ok("sync", mount.fs.sync().await)?;
        }
        for program in &mut self.programs {
            // A clean shutdown is as durable as a crash of the process.
            program.recover(&mount, self.last_crash.unwrap_or(CrashKind::Process)).await?;
        }
        mount.audit().await?;
        Ok(mount)
    }

    async fn run_programs(&mut self, mount: &Mount) -> Result<SessionEnd, String> {
        let (entropy, scenario) = (&self.machine.entropy, self.machine.scenario);
        let calls = scenario.ops * scenario.programs * CALLS_PER_OP;
        let calls_to_crash = (entropy.below(3) > 0).then(|| 1 + entropy.below(calls));
        let is_kill = match scenario.write_back {
            true => entropy.below(2) == 0,
            false => self.is_always_killed,
        };
        let crash_kind = match is_kill {
            true => CrashKind::Process,
            false => CrashKind::Power,
        };
        mount.injector.start(calls_to_crash);
        self.bystanders.begin(mount, &mut self.report);
        let programs = self.programs.iter_mut().map(|program| program.run_ops(mount, scenario.ops));
        let has_crashed = tokio::select! {
            biased;
            () = mount.injector.wait_for_crash() => true,
            done = try_join_all(programs) => done.map(|_| false)?,
        };
        if has_crashed {
            return Ok(SessionEnd::Crash(crash_kind));
        }
        mount.injector.cancel_crash();
        self.shut_down(mount).await?;
        Ok(SessionEnd::Orderly)
    }

    async fn shut_down(&mut self, mount: &Mount) -> Result<(), String> {
        let closed = join_all(self.programs.iter_mut().map(|program| program.close_all(mount))).await;
        closed.into_iter().collect::<Result<(), String>>()?;
        let _pause = mount.injector.pause_faults();
        // Background failures from before the pause may be reported once more.
        if mount.fs.shutdown(SHUTDOWN_TIMEOUT).await.is_err() {
            require_ok("shutdown", mount.fs.shutdown(SHUTDOWN_TIMEOUT).await)?;
        }
        mount.fs.moves().wait_until_complete().await;
        for program in &mut self.programs {
            program.check(&mount.fs, &mount.injector).await?;
            program.model.record_sync(mount.injector.fault_count());
        }
        self.bystanders.end(&self.machine, mount, &mut self.report).await?;
        mount.audit().await?;
        if let Some(log) = &mount.writeback
            && self.machine.entropy.below(2) == 0
        {
            log.drained().await;
            mount.checkpoint()?;
        }
        Ok(())
    }

    /// Checks, without faults, the content of this mount and of a new one without metadata, and that no garbage is left.
    async fn final_check(&mut self) -> Result<(), String> {
        let mount = self.mount(false).await?;
        let _pause = mount.injector.pause_faults();
        require_ok("sync", mount.fs.sync().await)?;
        mount.fs.moves().wait_until_complete().await;
        // An export in the background keeps its file open, and garbage of open files stays.
        tokio::time::sleep(EXPORT_TIME_MAX).await;
        require_ok("garbage collection", mount.fs.admin().collect_garbage(false).await)?;
        if let Some(log) = &mount.writeback {
            log.drained().await;
        }
        for program in &mut self.programs {
            program.check(&mount.fs, &mount.injector).await?;
            program.model.record_sync(mount.injector.fault_count());
        }
        self.bystanders.check_imported(&mount).await?;
        mount.audit().await?;
        if self.machine.scenario.by_path() {
            let other_mount = self.machine.mount_elsewhere(mount.record.clone())?;
            // Hard links are known on one machine only.
            for program in self.programs.iter().filter(|program| !program.model.has_links()) {
                program.check_other_mount(&other_mount).await?;
            }
        }
        match require_ok("garbage", mount.fs.admin().collect_garbage(true).await)?.first() {
            None => Ok(()),
            Some(key) => Err(format!("the garbage {key} was not collected")),
        }
    }
}
