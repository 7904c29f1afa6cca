//! A world from its first mount to its last: each ends by a crash or in order, and the next finds what must be there.

use super::machine::{Loss, Machine, Mount, in_runtime, told};
use super::program::{EXPIRED, Program};
use super::scenario::Setting;
use crate::Report;
use crate::runner::Lives;
use crate::trace::Tale;
use futures_util::future::{join_all, try_join_all};
use std::time::Duration;
use store::Entropy;
use vfs::{Caller, Ino};

/// A crash comes within so many calls for each op of a program.
const CALLS_OF_OP: u64 = 2;
/// An orderly end takes no longer.
const PATIENCE: Duration = Duration::from_secs(600);

/// How a life ended.
enum End {
    Crash(Loss),
    InOrder,
}

pub(super) struct World {
    machine: Machine,
    programs: Vec<Program>,
    /// What the last life's end took.
    lost: Option<Loss>,
    report: Report,
}

impl Lives for World {
    const KIND: &'static str = "files";

    fn begin(seed: u64, tale: &Tale) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let machine = Machine::new(seed, Setting::of(&entropy), entropy, tale.clone())?;
        let programs = (0..machine.setting.programs)
            .map(|number| Program::new(number, machine.setting, machine.entropy.next_u64(), tale.clone()))
            .collect();
        Ok(Self { machine, programs, lost: None, report: Report::default() })
    }

    fn steps(&self) -> u64 {
        self.programs.iter().map(|program| program.ops).sum()
    }

    fn reported(mut self) -> Report {
        self.programs.iter().for_each(|program| self.report.add(&program.report));
        self.report
    }

    fn lives(&mut self) -> Result<(), String> {
        let lives = self.machine.setting.lives;
        for life in 0..lives {
            self.machine.tale.tell(format!("life {life}"));
            self.life(life == 0)?;
        }
        self.machine.tale.tell("the end");
        in_runtime(async || self.end().await)
    }
}

impl World {
    fn life(&mut self, is_first: bool) -> Result<(), String> {
        let end = in_runtime(async || {
            let mount = self.mount(is_first).await?;
            let end = self.run(&mount).await;
            self.machine.has_synced(mount.synced(), mount.fs.moves_synced_bytes());
            end
        })?;
        self.lost = match end {
            End::Crash(loss) => {
                self.report.count(if loss == Loss::Power { "power cuts" } else { "kills" });
                self.machine.lose(loss)?;
                Some(loss)
            }
            End::InOrder => {
                self.report.count("orderly ends");
                None
            }
        };
        if self.machine.rot()? {
            self.report.count("rotten logs");
        }
        Ok(())
    }

    /// Mounts, and compares what is there with what must be.
    async fn mount(&mut self, is_first: bool) -> Result<Mount, String> {
        let mount = self.machine.mount().await?;
        let _calm = mount.weather.calm();
        if self.lost == Some(Loss::Power) {
            // No machine boots faster.
            tokio::time::sleep(EXPIRED).await;
        }
        told("recover", mount.fs.recover().await)?;
        if is_first {
            for program in &self.programs {
                let caller = Caller { uid: 0, gid: 0, umask: 0 };
                let made = mount.fs.mkdir(caller, Ino::ROOT, program.root.as_bytes(), 0o755).await;
                told("mkdir", made)?;
            }
            told("sync", mount.fs.sync().await)?;
        }
        for program in &mut self.programs {
            // An orderly end loses as little as possible.
            program.recover(&mount, self.lost.unwrap_or(Loss::Process)).await?;
        }
        mount.audit().await?;
        Ok(mount)
    }

    async fn run(&mut self, mount: &Mount) -> Result<End, String> {
        let (entropy, setting) = (&self.machine.entropy, self.machine.setting);
        let calls = setting.ops * setting.programs * CALLS_OF_OP;
        let calls_to_crash = (entropy.below(3) > 0).then(|| 1 + entropy.below(calls));
        let loss = match setting.write_back && entropy.below(2) == 0 {
            true => Loss::Process,
            false => Loss::Power,
        };
        mount.weather.begin(calls_to_crash);
        let programs = self.programs.iter_mut().map(|program| program.live(mount, setting.ops));
        let crashed = tokio::select! {
            biased;
            () = mount.weather.crash() => true,
            done = try_join_all(programs) => done.map(|_| false)?,
        };
        if crashed {
            return Ok(End::Crash(loss));
        }
        mount.weather.end();
        self.end_in_order(mount).await?;
        Ok(End::InOrder)
    }

    async fn end_in_order(&mut self, mount: &Mount) -> Result<(), String> {
        let left = join_all(self.programs.iter_mut().map(|program| program.leave(mount))).await;
        left.into_iter().collect::<Result<(), String>>()?;
        let _calm = mount.weather.calm();
        // Faults of the past may be told once more.
        if mount.fs.shutdown(PATIENCE).await.is_err() {
            told("shutdown", mount.fs.shutdown(PATIENCE).await)?;
        }
        mount.fs.moves_end().await;
        for program in &mut self.programs {
            program.check(&mount.fs, &mount.weather).await?;
            program.model.synced(mount.weather.struck());
        }
        mount.audit().await?;
        if let Some(log) = &mount.writeback
            && self.machine.entropy.below(2) == 0
        {
            log.drained().await;
            mount.checkpoint()?;
        }
        Ok(())
    }

    /// In fine weather: everything is there, for a mount that knows nothing too, and garbage can be collected.
    async fn end(&mut self) -> Result<(), String> {
        let mount = self.mount(false).await?;
        let _calm = mount.weather.calm();
        told("sync", mount.fs.sync().await)?;
        mount.fs.moves_end().await;
        told("collecting garbage", mount.fs.collect_garbage(false).await)?;
        if let Some(log) = &mount.writeback {
            log.drained().await;
        }
        for program in &mut self.programs {
            program.check(&mount.fs, &mount.weather).await?;
        }
        mount.audit().await?;
        if self.machine.setting.by_path() {
            let elsewhere = self.machine.elsewhere(mount.record.clone())?;
            // Further names of a file are known on one machine only.
            for program in self.programs.iter().filter(|program| !program.model.has_links()) {
                program.check_elsewhere(&elsewhere).await?;
            }
        }
        match told("garbage", mount.fs.collect_garbage(true).await)?.first() {
            None => Ok(()),
            Some(key) => Err(format!("{key} is garbage that was not collected")),
        }
    }
}
