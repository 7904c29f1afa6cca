//! A world from formatting to the last deletion: lives that end in order, by a kill, by the loss of power, or by a device that fails.

use super::drive_client::{Client, Going};
use crate::device::{Fired, OperationKind, SimDevice};
use crate::files::machine::in_runtime;
use crate::runner::Lives;
use crate::trace::Tale;
use crate::{Report, RuntimeClock};
use drive::device::{BLOCK_BYTES, BlockDevice};
use drive::{Drive, FormatOptions, OpenOptions, Use};
use futures_util::future::try_join_all;
use std::sync::Arc;
use store::{Buckets, Entropy};

pub(super) const MIB: u64 = 1 << 20;

/// An empty drive on rows of one block holds no more: the zones of the log that are being written and its reserve of what waits for a checkpoint, a table of what was deleted, and the manifest.
const USED_OF_EMPTY_BLOCKS: u64 = 3 * (MIB / 4096) + 80;

/// Makes the faults of a world's sectors others than its other events.
pub(super) const FAULTS: u64 = 0x5ec7_0125_0000_0000;

pub(super) struct World {
    device: SimDevice,
    clock: Arc<RuntimeClock>,
    options: OpenOptions,
    clients: Vec<Client>,
    entropy: Entropy,
    /// For sectors that cannot be read, so that the rest of a seed's world is as it was before there were any.
    faults: Entropy,
    fired: Fired,
    tale: Tale,
    report: Report,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    InOrder,
    Kill,
    PowerCut,
    Failure,
}

impl Lives for World {
    const KIND: &'static str = "drive";

    fn begin(seed: u64, tale: &Tale) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let len_bytes = (16 + entropy.below(3) * 8) * MIB;
        let rows = Entropy::new(!seed);
        let row_blocks = if rows.below(4) == 0 { 2 + rows.below(4) } else { 1 };
        let device = SimDevice::in_rows(len_bytes + (row_blocks - 1) * MIB, row_blocks * BLOCK_BYTES);
        let longest = [20_000, 300_000, 1_500_000][entropy.below(3) as usize];
        let clients = (0..1 + entropy.below(3))
            .map(|number| Client::new(number, entropy.next_u64(), longest, tale.clone()))
            .collect();
        let index_bytes = [4 << 10, 64 << 10, 1 << 20][entropy.below(3) as usize];
        let read_cache_bytes = [0, 100 << 10, 2 << 20, 64 << 20][(seed % 4) as usize];
        let options = OpenOptions { index_bytes, read_cache_bytes, ..OpenOptions::default() };
        let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
        let format = FormatOptions { zone_bytes: Some(MIB) };
        Drive::format(&as_device, format, &entropy).map_err(|error| format!("format: {error}"))?;
        let clock = Arc::new(RuntimeClock::default());
        let faults = Entropy::new(seed ^ FAULTS);
        let (fired, tale, report) = (Fired::default(), tale.clone(), Report::default());
        Ok(Self { device, clock, options, clients, entropy, faults, fired, tale, report })
    }

    fn lives(&mut self) -> Result<(), String> {
        for life in 0..1 + self.entropy.below(4) {
            self.tale.tell(format!("life {life}"));
            let end = in_runtime(async || self.life().await)?;
            self.lose(end);
        }
        self.tale.tell("the end");
        in_runtime(async || self.end().await)?;
        self.rot()
    }

    fn steps(&self) -> u64 {
        steps_of(&self.clients)
    }

    fn reported(self) -> Report {
        summed_up(self.report, &self.clients, self.fired, std::slice::from_ref(&self.device))
    }
}

/// How much the clients of a world have done.
pub(super) fn steps_of(clients: &[Client]) -> u64 {
    clients.iter().map(|client| client.steps).sum()
}

/// The report of a world that has ended: `fired` are the faults of devices that are gone.
pub(super) fn summed_up(
    mut report: Report,
    clients: &[Client],
    mut fired: Fired,
    devices: &[SimDevice],
) -> Report {
    clients.iter().for_each(|client| report.add(&client.report));
    devices.iter().for_each(|device| fired.add(device.fired()));
    count_fired(&mut report, fired);
    report
}

/// Counts the world for each kind of fault that met somebody in it.
fn count_fired(report: &mut Report, fired: Fired) {
    let kinds = [
        (fired.unreadable, "worlds with reads of unreadable sectors"),
        (fired.passing, "worlds with reads that failed once"),
        (fired.rotten, "worlds with reads of flipped bits"),
        (fired.spoiled, "worlds with sectors that a power cut made unreadable"),
    ];
    kinds.into_iter().filter(|(times, _)| *times > 0).for_each(|(_, what)| report.count(what));
}

impl World {
    fn lose(&mut self, end: End) {
        self.clients.iter_mut().for_each(Client::forget_readers);
        self.tale.tell(format!("{end:?}"));
        self.report.count(match end {
            End::InOrder => "orderly ends",
            End::Kill => "kills",
            End::PowerCut => "power cuts",
            End::Failure => "failures of the device",
        });
        self.device.heal();
        let power_goes = match end {
            End::PowerCut => true,
            End::InOrder | End::Failure => self.entropy.below(2) == 0,
            End::Kill => false,
        };
        if power_goes {
            // A power cut in the middle of a write leaves sectors that cannot be read, on some devices.
            self.device.crash_spoiling(self.entropy.next_u64(), [0, 1, 3, 20][self.faults.below(4) as usize]);
        }
        if self.faults.below(3) == 0 {
            // Sectors that hold nothing: nobody may need them.
            self.device.spoil_unwritten(self.faults.next_u64(), 1 + self.faults.below(8));
        }
        drop(self.device.take_operations());
    }

    /// Opens, the power going meanwhile some times.
    fn open(&mut self) -> Result<Drive, String> {
        while self.entropy.below(6) == 0 {
            self.device.cut_power_after(self.entropy.below(12));
            if Drive::open(Arc::new(self.device.clone()), self.options, self.clock.clone()).is_err() {
                self.report.count("power cuts while opening");
            }
            self.device.crash(self.entropy.next_u64());
        }
        let opened = Drive::open(Arc::new(self.device.clone()), self.options, self.clock.clone());
        opened.map_err(|error| format!("open: {error}"))
    }

    async fn life(&mut self) -> Result<End, String> {
        let drive = self.open()?;
        check(&drive).await?;
        for client in &mut self.clients {
            client.is_faulty = false;
            client.compare(&drive).await?;
        }
        if self.entropy.below(6) == 0 {
            let filler = self.entropy.below(self.clients.len() as u64) as usize;
            self.clients[filler].fill(&drive).await?;
        }
        let ends = [End::InOrder, End::Kill, End::PowerCut, End::PowerCut, End::Failure];
        let end = ends[self.entropy.below(5) as usize];
        let rounds = 1 + self.entropy.below(3);
        for round in 0..rounds {
            let is_last = round + 1 == rounds;
            let passes = !is_last && self.faults.below(3) == 0;
            self.tale.tell(format!("round {round}{}", if passes { ", in which reads fail" } else { "" }));
            if passes {
                self.device.fail_reads_at_random(self.faults.next_u64(), 5 + self.faults.below(60));
            }
            if self.round(&drive, if is_last { end } else { End::InOrder }, passes).await? {
                return Ok(end);
            }
            if passes {
                // The drive goes on, as nothing that was to be written failed.
                self.device.heal();
                for client in &mut self.clients {
                    client.forget_readers();
                    client.is_faulty = false;
                }
            }
            check(&drive).await?;
            for client in &mut self.clients {
                client.glance(&drive).await?;
            }
        }
        if self.entropy.below(2) == 0 {
            told("close", drive.close().await)?;
        }
        Ok(end)
    }

    /// Everybody does some things, and upkeep what it has to; whether the life is over.
    async fn round(&mut self, drive: &Drive, end: End, passes: bool) -> Result<bool, String> {
        let ops = 4 + self.entropy.below(30);
        match end {
            End::PowerCut => self.device.cut_power_after(self.entropy.below(12 * ops)),
            End::Failure => self.device.fail_at_random(self.entropy.next_u64(), 3 * ops),
            End::InOrder | End::Kill => {}
        }
        let is_cut = matches!(end, End::PowerCut | End::Failure);
        let is_faulty = is_cut || passes;
        let polls = 1 + self.entropy.below(8 * ops);
        let seed = self.entropy.next_u64();
        let clients = self.clients.iter_mut().map(|client| {
            client.is_faulty = is_faulty;
            client.live(drive, ops)
        });
        let killed = async {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            if end != End::Kill {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = drive.keep_up() => {}
            outcome = keep(drive, seed, is_faulty) => outcome?,
            () = killed => return Ok(true),
            went = try_join_all(clients) => {
                let is_down = went?.contains(&Going::Down);
                return Ok(is_cut || is_down && !passes);
            }
        }
        Err("upkeep came to an end".into())
    }

    /// What is there is what must be; then everything is deleted, and so is what it took.
    async fn end(&mut self) -> Result<(), String> {
        let drive = self.open()?;
        check(&drive).await?;
        for client in &mut self.clients {
            client.is_faulty = false;
            client.compare(&drive).await?;
            if self.entropy.below(5) == 0 {
                client.fill(&drive).await?;
            }
        }
        if self.entropy.below(2) == 0 {
            return told("close", drive.close().await);
        }
        for client in &mut self.clients {
            client.leave(&drive).await?;
        }
        told("maintain", drive.maintain().await)?;
        told("close", drive.close().await)?;
        // What is free shows with the next change.
        told("create", drive.create("last").await)?;
        told("delete", Buckets::delete(&drive, "last").await)?;
        let checked = check(&drive).await?;
        let used = checked.object_blocks + checked.held_blocks + checked.zone_blocks;
        match checked.objects == 0
            && checked.parts == 0
            && used <= USED_OF_EMPTY_BLOCKS + 32 * self.device.row_bytes() / BLOCK_BYTES
        {
            true => Ok(()),
            false => Err(format!("a drive of which everything was deleted is not empty: {checked:?}")),
        }
    }

    /// Flips bits: what can still be read is what must be.
    fn rot(&mut self) -> Result<(), String> {
        let device = self.device.fork();
        let options = OpenOptions { read_only: self.entropy.below(2) == 0, ..self.options };
        let before: Vec<Client> = self.clients.iter().map(Client::remembered).collect();
        in_runtime(async || {
            if self.entropy.below(2) == 0 {
                // The last change may be lost: a frame that rots is like one that was never whole.
                let drive =
                    told("open", Drive::open(Arc::new(device.clone()), self.options, self.clock.clone()))?;
                for client in &mut self.clients {
                    client.live(&drive, 1).await?;
                }
            }
            // A table of the index alone, which the next checkpoint is to take along: the log has frames that no table has.
            let spoils_table = self.faults.below(3) == 0 && self.spoil_table(&device).await?;
            let options = OpenOptions { read_only: options.read_only && !spoils_table, ..options };
            let where_to = self.faults.below(3);
            let flips = if spoils_table { 0 } else { 1 + self.entropy.below(40) };
            for _ in 0..flips {
                let len = device.len_bytes();
                let (all, log) = (8192..len, len * 3 / 4..len);
                let ranges = match where_to {
                    0 => [0..8192, 0..len, 0..len, 8192..4 * MIB],
                    // The superblocks stay, so that more is left to be found.
                    1 => [all.clone(), all.clone(), all, 8192..4 * MIB],
                    _ => [log.clone(), log.clone(), log.clone(), log],
                };
                device.flip(self.entropy.next_u64(), ranges[self.entropy.below(4) as usize].clone());
            }
            let is_more_spoiled = !spoils_table && self.faults.below(2) == 0;
            let spoiled = if is_more_spoiled { 1 + self.faults.below(20) } else { 0 };
            for _ in 0..spoiled {
                // The index lies in the beginning, the log at the end.
                let blocks = device.len_bytes() / BLOCK_BYTES;
                let ranges = [2..blocks, 2..1024.min(blocks), blocks * 3 / 4..blocks];
                let range = &ranges[self.faults.below(3) as usize];
                let at = (range.start + self.faults.below(range.end - range.start)) * BLOCK_BYTES;
                device.spoil(at..at + BLOCK_BYTES);
            }
            self.report.count("rots");
            let opened = Drive::open(Arc::new(device.clone()), options, self.clock.clone());
            let outcome = match opened {
                Ok(drive) => self.use_rotten(&drive, &before, options.read_only).await,
                Err(error) => {
                    self.report.count("rots that opening found");
                    self.salvage(&device, &error)
                }
            };
            self.fired.add(device.fired());
            outcome
        })
    }

    /// Something is stored, in a short table and in the log; then blocks of a table of the index cannot be read. Returns whether there is one.
    async fn spoil_table(&mut self, device: &SimDevice) -> Result<bool, String> {
        let drive = told("open", Drive::open(Arc::new(device.clone()), self.options, self.clock.clone()))?;
        for closes in [true, false] {
            for client in &mut self.clients {
                client.live(&drive, 1 + self.faults.below(3)).await?;
                client.forget_readers();
            }
            if !closes {
                continue;
            }
            match drive.close().await {
                Ok(()) | Err(drive::Error::Full) => {}
                Err(error) => return Err(format!("close: {error}")),
            }
        }
        let mut areas = told("layout", drive.layout())?;
        areas.retain(|area| area.what == Use::Index);
        if areas.is_empty() {
            return Ok(false);
        }
        let area = areas[self.faults.below(areas.len() as u64) as usize];
        for _ in 0..1 + self.faults.below(3) {
            let at = area.at + self.faults.below(area.len_bytes / BLOCK_BYTES) * BLOCK_BYTES;
            device.spoil(at..at + BLOCK_BYTES);
        }
        self.report.count("tables of the index with unreadable blocks");
        Ok(true)
    }

    /// A drive that can be opened answers rightly or with errors; a scrub tells what is wrong, and checkpoints go on.
    async fn use_rotten(&mut self, drive: &Drive, before: &[Client], read_only: bool) -> Result<(), String> {
        let mut is_found = false;
        for (client, before) in self.clients.iter().zip(before) {
            if !client.compare_rotten(drive, before).await? {
                self.report.count("rots that reading found");
                is_found = true;
            }
        }
        let scrubbed = told("scrub of what is rotten", drive.scrub(|_| ()).await)?;
        if is_found && scrubbed.damaged.is_empty() {
            return Err("what reading found a scrub did not".into());
        }
        if !read_only {
            match drive.close().await {
                Ok(()) | Err(drive::Error::Full) => {}
                Err(error) => return Err(format!("a checkpoint of what is rotten: {error}")),
            }
        }
        Ok(())
    }

    /// Opens what is whole of a drive that cannot be opened, which says that it is not all.
    fn salvage(&mut self, device: &SimDevice, why: &drive::Error) -> Result<(), String> {
        let options = OpenOptions { before_damage: true, ..self.options };
        drop(device.take_operations());
        match Drive::open(Arc::new(device.clone()), options, self.clock.clone()) {
            Ok(drive) if drive.losses().is_empty() => Err(format!("nothing is lost, and yet: {why}")),
            Ok(_) => {
                self.report.count("rotten drives that were opened before the damage");
                match device.take_operations().iter().all(|done| done.kind == OperationKind::Read) {
                    true => Ok(()),
                    false => Err("a rotten drive was written to".into()),
                }
            }
            // Neither superblock, or no manifest.
            Err(_) => Ok(()),
        }
    }
}

/// Upkeep at random moments; never done.
pub(super) async fn keep(drive: &Drive, seed: u64, is_faulty: bool) -> Result<(), String> {
    let entropy = Entropy::new(seed);
    loop {
        for _ in 0..entropy.below(60) {
            tokio::task::yield_now().await;
        }
        let kept = match entropy.below(3) {
            0 => drive.close().await,
            _ => drive.maintain().await,
        };
        match kept {
            Err(drive::Error::Full) | Ok(()) => {}
            Err(_) if is_faulty => std::future::pending().await,
            Err(error) => return Err(format!("upkeep: {error}")),
        }
    }
}

pub(super) async fn check(drive: &Drive) -> Result<drive::Checked, String> {
    let checked = told("check", drive.check().await)?;
    match checked.problems.as_slice() {
        [] => Ok(checked),
        problems => Err(format!("check: {}", problems.join("; "))),
    }
}

pub(super) fn told<T, E: std::fmt::Display>(what: &str, outcome: Result<T, E>) -> Result<T, String> {
    outcome.map_err(|error| format!("{what}: {error}"))
}
