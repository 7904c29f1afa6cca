//! A world from its first mount to its last, round by round.

use super::endpoint_client::Client;
use super::file_client::Program;
use super::foreign_writer::Stranger;
use super::key_history::Moment;
use super::quiescent_check;
use super::shared_state::Stage;
use crate::Report;
use crate::files::machine::{Loss, Machine, Mount, in_runtime, told};
use crate::files::scenario::Setting;
use crate::runner::Lives;
use crate::trace::Tale;
use futures_util::future::{FutureExt as _, LocalBoxFuture, try_join_all};
use std::time::Duration;
use store::Entropy;
use vfs::{Mapping, Naming, Objects};

/// A crash comes within so many calls for each thing that somebody does.
const CALLS_OF_OP: u64 = 3;
/// After so long everything that is known of the bucket is looked at again.
const EXPIRED: Duration = Duration::from_secs(6);

/// What is written to a file that stays open is stored so long after, in milliseconds, in one of so many worlds.
const PUBLISHES_AFTER_MS: [u64; 4] = [2, 20, 100, 700];
const PUBLISHES_ONE_OF: u64 = 4;
/// Such that it is none of those that failed once for other reasons.
const PUBLISHES_SALT: u64 = 71 << 32;

enum End {
    Crash(Loss),
    Round,
}

pub(super) struct World {
    machine: Machine,
    stage: Stage,
    publishes_after: Option<Duration>,
    program: Program,
    clients: Vec<Client>,
    stranger: Option<Stranger>,
}

/// As those of files, but that half of the volumes are named by path and everything overlaps.
fn setting(entropy: &Entropy) -> Setting {
    let setting = Setting { is_slow: true, lives: 1 + entropy.below(3), ..Setting::of(entropy) };
    match entropy.below(3) {
        0 => Setting { naming: Naming::FilePath, mapping: Mapping::Whole, ..setting },
        _ => setting,
    }
}

/// Drawn from numbers of its own, so that the other worlds stay as they are.
fn publishes_after(seed: u64) -> Option<Duration> {
    let entropy = Entropy::new(!seed ^ PUBLISHES_SALT);
    let after = PUBLISHES_AFTER_MS[entropy.below(PUBLISHES_AFTER_MS.len() as u64) as usize];
    (entropy.below(PUBLISHES_ONE_OF) == 0).then_some(Duration::from_millis(after))
}

impl Lives for World {
    const KIND: &'static str = "dual";

    fn begin(seed: u64, tale: &Tale) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let setting = setting(&entropy);
        let machine = Machine::new(seed, setting, entropy, tale.clone())?;
        let publishes_after = publishes_after(seed);
        tale.tell(format!("what is written is stored after {publishes_after:?}"));
        let stage = Stage::new(
            setting,
            machine.clock.clone(),
            machine.entropy.next_u64(),
            tale.clone(),
            (EXPIRED.as_nanos() as Moment, publishes_after.map(|after| after.as_nanos() as Moment)),
        );
        let clients = (0..1 + machine.entropy.below(2)).map(|number| Client::new(number, stage.clone()));
        let stranger = setting.by_path().then(|| Stranger::new(stage.clone(), machine.bucket.clone()));
        let (program, clients) = (Program::new(stage.clone()), clients.collect());
        Ok(Self { machine, stage, publishes_after, program, clients, stranger })
    }

    fn lives(&mut self) -> Result<(), String> {
        let mut lost = None;
        for life in 0..self.machine.setting.lives {
            self.stage.tell(format!("life {life}"));
            lost = self.life(lost)?;
        }
        self.stage.tell("the end".into());
        in_runtime(async || self.end(lost).await)
    }

    fn steps(&self) -> u64 {
        self.stage.inner.borrow().steps
    }

    fn reported(self) -> Report {
        self.stage.inner.borrow().report.clone()
    }
}

impl World {
    fn rot(&mut self) -> Result<(), String> {
        if self.machine.rot()? {
            self.stage.count("rotten logs");
        }
        Ok(())
    }

    /// What its end took.
    fn life(&mut self, lost: Option<Loss>) -> Result<Option<Loss>, String> {
        let end = in_runtime(async || {
            let mount = self.mount(lost).await?;
            let end = self.rounds(&mount).await;
            self.machine.has_synced(mount.synced(), mount.fs.moves_synced_bytes());
            end
        })?;
        let End::Crash(loss) = end else {
            self.stage.count("orderly ends");
            self.rot()?;
            return Ok(None);
        };
        self.stage.count(if loss == Loss::Power { "power cuts" } else { "kills" });
        self.machine.lose(loss)?;
        self.rot()?;
        if loss == Loss::Power && (self.stage.write_back || !self.stage.by_path) {
            let mut inner = self.stage.inner.borrow_mut();
            let synced = inner.history.lose_power();
            if self.stage.write_back {
                // What is kept aside waits in the log like anything else.
                inner.kept.retain(|(at, _)| *at <= synced);
            }
        }
        let loses_uploads = loss == Loss::Power && self.stage.write_back;
        self.clients.iter_mut().for_each(|client| client.recover(loses_uploads));
        self.program.recover();
        Ok(Some(loss))
    }

    async fn mount(&mut self, lost: Option<Loss>) -> Result<Mount, String> {
        let mount = self.machine.mount().await?;
        {
            let _calm = mount.weather.calm();
            if lost == Some(Loss::Power) {
                // No machine boots faster.
                tokio::time::sleep(EXPIRED).await;
            }
            told("recover", mount.fs.recover().await)?;
        }
        if let Some(after) = self.publishes_after {
            self.stage.count("mounts that store what is being written");
            mount.fs.publish_in_background(after);
        }
        self.settle(&mount).await?;
        Ok(mount)
    }

    async fn rounds(&mut self, mount: &Mount) -> Result<End, String> {
        let rounds = 1 + self.machine.entropy.below(4);
        let last = self.machine.entropy.below(3 * rounds / 2 + 1);
        for round in 0..rounds {
            self.stage.tell(format!("round {round}"));
            if let End::Crash(loss) = self.round(mount, round == last).await? {
                return Ok(End::Crash(loss));
            }
            self.settle(mount).await?;
        }
        self.end_in_order(mount).await?;
        Ok(End::Round)
    }

    /// Everybody does some things, or the machine crashes.
    async fn round(&mut self, mount: &Mount, crashes: bool) -> Result<End, String> {
        let entropy = &self.machine.entropy;
        let ops: Vec<u64> = (0..4).map(|_| 1 + entropy.below(8)).collect();
        let calls = ops.iter().sum::<u64>() * CALLS_OF_OP;
        let calls_to_crash = crashes.then(|| 1 + entropy.below(calls));
        let loss = if entropy.below(2) == 0 { Loss::Process } else { Loss::Power };
        mount.weather.begin(calls_to_crash);
        let mut all: Vec<LocalBoxFuture<'_, Result<(), String>>> =
            vec![self.program.live(mount, 2 * ops[0]).boxed_local()];
        for (client, ops) in self.clients.iter_mut().zip(&ops[1..]) {
            all.push(client.live(mount, *ops).boxed_local());
        }
        all.extend(self.stranger.as_mut().map(|stranger| stranger.live(mount, ops[3]).boxed_local()));
        tokio::select! {
            biased;
            () = mount.weather.crash() => return Ok(End::Crash(loss)),
            done = try_join_all(all) => drop(done?),
        }
        if mount.weather.has_crashed() {
            // At the last commit of all.
            return Ok(End::Crash(loss));
        }
        mount.weather.end();
        Ok(End::Round)
    }

    /// Everybody has stopped, the weather is fine and time passes: what is there is what may be, from all sides.
    async fn settle(&mut self, mount: &Mount) -> Result<(), String> {
        self.stage.tell("all have stopped".into());
        let _calm = mount.weather.calm();
        if let Some(stranger) = self.stranger.as_mut().filter(|_| self.machine.entropy.below(3) > 0) {
            stranger.tell_all(mount).await?;
        }
        tokio::time::sleep(EXPIRED).await;
        if mount.fs.sync().await.is_err() {
            // Faults of the past may be told once more.
            told("sync", mount.fs.sync().await)?;
        }
        mount.fs.moves_end().await;
        if let Some(log) = &mount.writeback {
            log.drained().await;
        }
        tokio::time::sleep(EXPIRED).await;
        let endpoint = Objects::new(mount.fs.clone(), b"");
        // Either may be asked first.
        let is_first = self.machine.entropy.below(2) == 0;
        let early = if is_first { Some(quiescent_check::tree(&mount.fs).await?) } else { None };
        let objects = quiescent_check::objects(&endpoint).await?;
        if self.stage.by_path {
            // What has waited in a log keeps the tag that it was given there as long as the mount lives.
            let compares_tags = !self.stage.write_back;
            let bucket = quiescent_check::objects(&self.machine.bucket).await?;
            quiescent_check::same("endpoint and bucket", &objects, &bucket, compares_tags)?;
        }
        for tree in early.into_iter().chain([quiescent_check::tree(&mount.fs).await?]) {
            quiescent_check::agree(&tree, &objects)?;
        }
        quiescent_check::same(
            "now and a moment later",
            &objects,
            &quiescent_check::objects(&endpoint).await?,
            true,
        )?;
        let found = quiescent_check::be(&self.stage, &objects)?;
        mount.audit().await?;
        self.stage.conditions.take();
        let now = self.stage.now();
        self.stage.inner.borrow_mut().history.settle(found, now);
        Ok(())
    }

    async fn end_in_order(&mut self, mount: &Mount) -> Result<(), String> {
        let _calm = mount.weather.calm();
        told("shutdown", mount.fs.shutdown(Duration::from_secs(600)).await)
    }

    /// A mount that knows nothing sees the same, and nothing is left that nobody needs.
    async fn end(&mut self, lost: Option<Loss>) -> Result<(), String> {
        let mount = self.mount(lost).await?;
        let _calm = mount.weather.calm();
        for client in &mut self.clients {
            client.leave(&mount).await?;
        }
        // What is being read is open for a moment longer.
        tokio::time::sleep(EXPIRED).await;
        told("collecting garbage", mount.fs.collect_garbage(false).await)?;
        self.settle(&mount).await?;
        if self.stage.by_path {
            let elsewhere = self.machine.elsewhere(mount.record.clone())?;
            let objects = quiescent_check::objects(&self.machine.bucket).await?;
            let cold = quiescent_check::agree(&quiescent_check::tree(&elsewhere).await?, &objects);
            cold.map_err(|what| format!("elsewhere: {what}"))?;
        }
        match told("garbage", mount.fs.collect_garbage(true).await)?.first() {
            None => Ok(()),
            Some(key) => Err(format!("{key} is garbage that was not collected")),
        }
    }
}
