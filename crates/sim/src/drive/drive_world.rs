//! The drive world: sessions that end in a clean shutdown, a kill, a power cut or a device failure. At the end all is deleted.

use super::drive_client::{CallOutcome, DriveClient};
use super::session::{
    FAULT_SALT, MIB, SessionEnd, check, compare_all, draw_clients, final_report, format_drive,
    maintain_at_random, require_ok, round_line, total_steps,
};
use crate::device::{Fired, OperationKind, SimDevice};
use crate::files::machine::in_paused_runtime;
use crate::runner::SimulatedWorld;
use crate::trace::Trace;
use crate::{Report, RuntimeClock};
use drive::device::{BLOCK_BYTES, BlockDevice};
use drive::{Drive, OpenOptions, Use};
use futures_util::future::try_join_all;
use std::sync::Arc;
use store::{Buckets, Entropy};

/// Maximum number of blocks in use on an empty drive with rows of one block, apart from zones of the log: the reserve of the log for a
/// checkpoint, a table of deletions, and the manifest.
const EMPTY_DRIVE_BLOCKS_MAX: u64 = 80;

/// Maximum number of zones of the log that are in use on an empty drive.
const EMPTY_DRIVE_ZONES_MAX: u64 = 3;

/// Seeds of worlds in which checkpoints fail. No regression seed has these remainders.
const CHECKPOINT_MODULUS: u64 = 5;
const CHECKPOINT_REMAINDERS: [u64; 2] = [1, 2];

/// Salt of the draw of checkpoints that fail.
const CHECKPOINT_SALT: u64 = 0x6368_6563_6b70_0000;

/// Returns the length of zones in the world of a seed: 2 or 4 MiB in a quarter of the worlds and 64 MiB in a few, as on larger devices,
/// otherwise 1 MiB.
fn draw_zone_bytes(seed: u64) -> u64 {
    match (seed % 8, seed % 64) {
        (_, 6) => 64 * MIB,
        (1, _) => 2 * MIB,
        (5, _) => 4 * MIB,
        _ => MIB,
    }
}

/// Returns how many times as many zones as usual the device has in the world of a seed: some hundred in a few worlds.
fn draw_zone_factor(seed: u64) -> u64 {
    if seed % 64 == 10 { 20 } else { 1 }
}

pub(super) struct DriveWorld {
    device: SimDevice,
    zone_bytes: u64,
    clock: Arc<RuntimeClock>,
    options: OpenOptions,
    clients: Vec<DriveClient>,
    entropy: Entropy,
    /// Entropy for unreadable sectors, separate so that the other events of a seed do not depend on it.
    fault_entropy: Entropy,
    has_failing_checkpoints: bool,
    /// Draws which checkpoints fail.
    checkpoint_entropy: Entropy,
    fired: Fired,
    trace: Trace,
    report: Report,
}

impl SimulatedWorld for DriveWorld {
    const KIND: &'static str = "drive";

    fn create(seed: u64, trace: &Trace) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let zone_bytes = draw_zone_bytes(seed);
        let len_bytes = (16 + entropy.below(3) * 8) * zone_bytes * draw_zone_factor(seed);
        let rows = Entropy::new(!seed);
        let row_blocks = if rows.below(4) == 0 { 2 + rows.below(4) } else { 1 };
        let device = SimDevice::in_rows(len_bytes + (row_blocks - 1) * zone_bytes, row_blocks * BLOCK_BYTES);
        let (clients, options) = draw_clients(&entropy, 3, trace);
        let read_cache_bytes = [0, 100 << 10, 2 << 20, 64 << 20][(seed % 4) as usize];
        let options = OpenOptions { read_cache_bytes, ..options };
        let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
        format_drive(&as_device, zone_bytes, &entropy)?;
        let clock = Arc::new(RuntimeClock::default());
        let fault_entropy = Entropy::new(seed ^ FAULT_SALT);
        let (fired, trace, mut report) = (Fired::default(), trace.clone(), Report::default());
        if zone_bytes > MIB {
            report.count("worlds with long zones");
        }
        let has_failing_checkpoints = CHECKPOINT_REMAINDERS.contains(&(seed % CHECKPOINT_MODULUS));
        Ok(Self {
            device,
            zone_bytes,
            clock,
            options,
            clients,
            entropy,
            fault_entropy,
            has_failing_checkpoints,
            checkpoint_entropy: Entropy::new(seed ^ CHECKPOINT_SALT),
            fired,
            trace,
            report,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        for session in 0..1 + self.entropy.below(4) {
            self.trace.push(format!("session {session}"));
            let end = in_paused_runtime(async || self.run_session().await)?;
            self.end_session(end);
        }
        self.trace.push("final check");
        in_paused_runtime(async || self.final_check().await)?;
        self.check_corruption()
    }

    fn steps(&self) -> u64 {
        total_steps(&self.clients)
    }

    fn into_report(self) -> Report {
        final_report(self.report, &self.clients, self.fired, std::slice::from_ref(&self.device))
    }
}

impl DriveWorld {
    fn end_session(&mut self, end: SessionEnd) {
        self.device.heal();
        let loses_power = end.end(&mut self.clients, &self.entropy, &self.trace, &mut self.report);
        if loses_power {
            // On some devices a power cut in the middle of a write leaves unreadable sectors.
            self.device
                .crash_spoiling(self.entropy.next_u64(), [0, 1, 3, 20][self.fault_entropy.below(4) as usize]);
        }
        if self.fault_entropy.below(3) == 0 {
            // Sectors without data: no operation may need them.
            self.device.spoil_unwritten(self.fault_entropy.next_u64(), 1 + self.fault_entropy.below(8));
        }
        drop(self.device.take_operations());
    }

    /// Opens the drive, in some cases after attempts during power cuts.
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

    async fn run_session(&mut self) -> Result<SessionEnd, String> {
        let drive = self.open()?;
        check(&drive).await?;
        compare_all(&mut self.clients, &drive).await?;
        if self.entropy.below(6) == 0 {
            let filler = self.entropy.below(self.clients.len() as u64) as usize;
            self.clients[filler].fill(&drive).await?;
        }
        let end = SessionEnd::draw(&self.entropy);
        let rounds = 1 + self.entropy.below(3);
        for round in 0..rounds {
            let is_last = round + 1 == rounds;
            let has_read_errors = !is_last && self.fault_entropy.below(3) == 0;
            self.trace.push(round_line(round, has_read_errors));
            if has_read_errors {
                self.device
                    .fail_reads_at_random(self.fault_entropy.next_u64(), 5 + self.fault_entropy.below(60));
            }
            if self
                .run_round(&drive, if is_last { end } else { SessionEnd::Orderly }, has_read_errors)
                .await?
            {
                return Ok(end);
            }
            if has_read_errors {
                // No write failed, so that the session continues.
                self.device.heal();
                for client in &mut self.clients {
                    client.drop_readers();
                    client.is_faulty = false;
                }
            }
            if self.has_failing_checkpoints
                && self.checkpoint_entropy.below(2) == 0
                && self.fail_checkpoint(&drive).await?
            {
                return Ok(SessionEnd::Failure);
            }
            check(&drive).await?;
            for client in &mut self.clients {
                client.compare_known(&drive).await?;
            }
        }
        if self.entropy.below(2) == 0 {
            require_ok("close", drive.close().await)?;
        }
        Ok(end)
    }

    /// Makes a checkpoint while the drive can write neither tables nor the manifest, and returns whether it failed. After a failure the
    /// log must be as long as before, so that the next checkpoint is not late. The session ends then, as the drive may accept no more
    /// writes.
    async fn fail_checkpoint(&mut self, drive: &Drive) -> Result<bool, String> {
        let log_bytes = drive.info().log_bytes;
        // Tables are at the beginning of the device, behind the superblocks, and the log is at its end.
        self.device.fail_writes(2 * BLOCK_BYTES..self.device.len_bytes() / 2);
        let outcome = drive.close().await;
        self.device.heal();
        if outcome.is_ok() {
            return Ok(false);
        }
        self.report.count("failed checkpoints");
        match drive.info().log_bytes {
            left if left == log_bytes => Ok(true),
            left => Err(format!("after a failed checkpoint the log has {left} bytes instead of {log_bytes}")),
        }
    }

    /// Runs all clients and the maintenance concurrently. Returns whether the session is over.
    async fn run_round(
        &mut self,
        drive: &Drive,
        end: SessionEnd,
        has_read_errors: bool,
    ) -> Result<bool, String> {
        let ops = 4 + self.entropy.below(30);
        match end {
            SessionEnd::PowerCut => self.device.cut_power_after(self.entropy.below(12 * ops)),
            SessionEnd::Failure => self.device.fail_at_random(self.entropy.next_u64(), 3 * ops),
            SessionEnd::Orderly | SessionEnd::Kill => {}
        }
        let is_cut = end.is_cut();
        let is_faulty = is_cut || has_read_errors;
        let polls = 1 + self.entropy.below(8 * ops);
        let seed = self.entropy.next_u64();
        let clients = self.clients.iter_mut().map(|client| {
            client.is_faulty = is_faulty;
            client.run_ops(drive, ops)
        });
        tokio::select! {
            biased;
            () = drive.run_maintenance() => {}
            outcome = maintain_at_random(drive, seed, is_faulty) => outcome?,
            () = end.kill_after(polls) => return Ok(true),
            outcomes = try_join_all(clients) => {
                let is_down = outcomes?.contains(&CallOutcome::DeviceDown);
                return Ok(is_cut || is_down && !has_read_errors);
            }
        }
        Err("`run_maintenance` ended".into())
    }

    /// Compares all buckets with their models. Then deletes everything, which must free all space.
    async fn final_check(&mut self) -> Result<(), String> {
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
            return require_ok("close", drive.close().await);
        }
        for client in &mut self.clients {
            client.delete_all(&drive).await?;
        }
        require_ok("maintain", drive.maintain().await)?;
        require_ok("close", drive.close().await)?;
        // The next change updates the free space.
        require_ok("create", drive.create("last").await)?;
        require_ok("delete", Buckets::delete(&drive, "last").await)?;
        let checked = check(&drive).await?;
        let used = checked.object_blocks + checked.held_blocks + checked.zone_blocks;
        let used_max = EMPTY_DRIVE_ZONES_MAX * self.zone_bytes / BLOCK_BYTES
            + EMPTY_DRIVE_BLOCKS_MAX
            + 32 * self.device.row_bytes() / BLOCK_BYTES;
        match checked.objects == 0 && checked.parts == 0 && used <= used_max {
            true => Ok(()),
            false => Err(format!("the drive is not empty after all was deleted: {checked:?}")),
        }
    }

    /// Corrupts a copy of the device: what can still be read must be correct.
    fn check_corruption(&mut self) -> Result<(), String> {
        let device = self.device.fork();
        let options = OpenOptions { read_only: self.entropy.below(2) == 0, ..self.options };
        let before: Vec<DriveClient> = self.clients.iter().map(DriveClient::snapshot).collect();
        in_paused_runtime(async || {
            if self.entropy.below(2) == 0 {
                // The last change may be lost, as a corrupted last frame looks like an incomplete one.
                let drive = require_ok(
                    "open",
                    Drive::open(Arc::new(device.clone()), self.options, self.clock.clone()),
                )?;
                for client in &mut self.clients {
                    client.run_ops(&drive, 1).await?;
                }
            }
            // Corrupts only a table of the index. The log has newer frames, so that the next checkpoint has to read the table.
            let spoils_table = self.fault_entropy.below(3) == 0 && self.spoil_index_table(&device).await?;
            let options = OpenOptions { read_only: options.read_only && !spoils_table, ..options };
            let flip_area = self.fault_entropy.below(3);
            let flips = if spoils_table { 0 } else { 1 + self.entropy.below(40) };
            for _ in 0..flips {
                let len = device.len_bytes();
                let (all, log) = (8192..len, len * 3 / 4..len);
                let ranges = match flip_area {
                    0 => [0..8192, 0..len, 0..len, 8192..4 * MIB],
                    // Spare the superblocks, so that more of the corruption is found later.
                    1 => [all.clone(), all.clone(), all, 8192..4 * MIB],
                    _ => [log.clone(), log.clone(), log.clone(), log],
                };
                device.flip(self.entropy.next_u64(), ranges[self.entropy.below(4) as usize].clone());
            }
            let spoils_more = !spoils_table && self.fault_entropy.below(2) == 0;
            let spoiled = if spoils_more { 1 + self.fault_entropy.below(20) } else { 0 };
            for _ in 0..spoiled {
                // The index is at the beginning of the device, and the log at the end.
                let blocks = device.len_bytes() / BLOCK_BYTES;
                let ranges = [2..blocks, 2..1024.min(blocks), blocks * 3 / 4..blocks];
                let range = &ranges[self.fault_entropy.below(3) as usize];
                let at = (range.start + self.fault_entropy.below(range.end - range.start)) * BLOCK_BYTES;
                device.spoil(at..at + BLOCK_BYTES);
            }
            self.report.count("corruptions");
            let opened = Drive::open(Arc::new(device.clone()), options, self.clock.clone());
            let outcome = match opened {
                Ok(drive) => self.use_corrupted(&drive, &before, options.read_only).await,
                Err(error) => {
                    self.report.count("corruptions found by opening");
                    self.salvage(&device, &error)
                }
            };
            self.fired.add(device.fired());
            outcome
        })
    }

    /// Stores changes in a small table and in the log, and then makes blocks of an index table unreadable. Returns false if
    /// there is no table.
    async fn spoil_index_table(&mut self, device: &SimDevice) -> Result<bool, String> {
        let drive =
            require_ok("open", Drive::open(Arc::new(device.clone()), self.options, self.clock.clone()))?;
        for closes in [true, false] {
            for client in &mut self.clients {
                client.run_ops(&drive, 1 + self.fault_entropy.below(3)).await?;
                client.drop_readers();
            }
            if !closes {
                continue;
            }
            match drive.close().await {
                Ok(()) | Err(drive::Error::Full) => {}
                Err(error) => return Err(format!("close: {error}")),
            }
        }
        let mut areas = require_ok("layout", drive.layout())?;
        areas.retain(|area| area.what == Use::Index);
        if areas.is_empty() {
            return Ok(false);
        }
        let area = areas[self.fault_entropy.below(areas.len() as u64) as usize];
        for _ in 0..1 + self.fault_entropy.below(3) {
            let at = area.at + self.fault_entropy.below(area.len_bytes / BLOCK_BYTES) * BLOCK_BYTES;
            device.spoil(at..at + BLOCK_BYTES);
        }
        self.report.count("index tables with unreadable blocks");
        Ok(true)
    }

    /// Uses a corrupted drive that can be opened: results are correct or errors, a scrub finds the damage, and checkpoints still work.
    async fn use_corrupted(
        &mut self,
        drive: &Drive,
        before: &[DriveClient],
        read_only: bool,
    ) -> Result<(), String> {
        if !read_only && self.fault_entropy.below(2) == 0 {
            // A read or a scrub marks a damaged table before the checkpoint meets it.
            return close_corrupted(drive).await;
        }
        let mut is_found = false;
        for (client, before) in self.clients.iter().zip(before) {
            if !client.compare_corrupted(drive, before).await? {
                self.report.count("corruptions found by reading");
                is_found = true;
            }
        }
        let scrubbed = require_ok("scrub of a corrupted drive", drive.scrub(|_| ()).await)?;
        if is_found && scrubbed.damaged.is_empty() {
            return Err("a scrub missed damage that a read found".into());
        }
        if read_only { Ok(()) } else { close_corrupted(drive).await }
    }

    /// Opens a drive that cannot be opened normally up to its damage. The drive must report losses, and must not be written to.
    fn salvage(&mut self, device: &SimDevice, why: &drive::Error) -> Result<(), String> {
        let options = OpenOptions { before_damage: true, ..self.options };
        drop(device.take_operations());
        match Drive::open(Arc::new(device.clone()), options, self.clock.clone()) {
            Ok(drive) if drive.losses().is_empty() => {
                Err(format!("the drive reports no losses, but could not be opened: {why}"))
            }
            Ok(_) => {
                self.report.count("corrupted drives opened up to the damage");
                match device.take_operations().iter().all(|done| done.kind == OperationKind::Read) {
                    true => Ok(()),
                    false => Err("a drive opened up to its damage was written to".into()),
                }
            }
            // Both superblocks or the manifest are damaged.
            Err(_) => Ok(()),
        }
    }
}

/// Closes a corrupted drive: the checkpoint succeeds, or there is no space for it.
async fn close_corrupted(drive: &Drive) -> Result<(), String> {
    match drive.close().await {
        Ok(()) | Err(drive::Error::Full) => Ok(()),
        Err(error) => Err(format!("checkpoint of a corrupted drive: {error}")),
    }
}
