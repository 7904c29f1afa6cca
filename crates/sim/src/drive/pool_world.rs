//! The pool world: several drives with power cuts, kills, device failures, corruption, added drives, and openings without one drive.
//!
//! Checked in addition to the checks of a drive world: all versions of a key are on one drive; the drives have the same buckets; without
//! one drive a read returns the correct object or an error.

use super::drive_client::{CallOutcome, DriveClient, error_kind};
use super::observe::object_key;
use super::session::{
    FAULT_SALT, MIB, SessionEnd, check, compare_all, draw_clients, draw_shared_zone_bytes, final_report,
    format_drive, maintain_at_random, require_ok, round_line, total_steps,
};
use crate::device::{Fired, SimDevice};
use crate::files::machine::in_paused_runtime;
use crate::runner::SimulatedWorld;
use crate::trace::Trace;
use crate::{Report, RuntimeClock};
use drive::device::{BLOCK_BYTES, BlockDevice};
use drive::pool::{self, Pool, PoolOptions};
use drive::{Drive, OpenOptions};
use futures_util::future::{select_all, try_join_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Buckets, Entropy, GetOptions, ListRequest, StoreError};

const DRIVES_MAX: usize = 4;

pub(super) struct PoolWorld {
    /// One device for each drive, with a common power supply.
    devices: Vec<SimDevice>,
    zone_bytes: u64,
    clock: Arc<RuntimeClock>,
    options: OpenOptions,
    clients: Vec<DriveClient>,
    entropy: Entropy,
    fired: Fired,
    trace: Trace,
    report: Report,
}

impl SimulatedWorld for PoolWorld {
    const KIND: &'static str = "pool";

    fn create(seed: u64, trace: &Trace) -> Result<Self, String> {
        let entropy = Entropy::new(seed ^ FAULT_SALT);
        let zone_bytes = draw_shared_zone_bytes(seed);
        let first = SimDevice::new(16 * zone_bytes);
        let others = 1 + entropy.below(2);
        let others = (0..others).map(|_| first.beside((16 + entropy.below(3) * 8) * zone_bytes));
        let devices: Vec<SimDevice> = std::iter::once(first.clone()).chain(others).collect();
        let (mut clients, options) = draw_clients(&entropy, 2, trace);
        clients.iter_mut().for_each(|client| client.is_pooled = true);
        let (clock, fired, trace) = (Arc::new(RuntimeClock::default()), Fired::default(), trace.clone());
        let report = Report::default();
        let world = Self { devices, zone_bytes, clock, options, clients, entropy, fired, trace, report };
        world.devices.iter().try_for_each(|device| world.format(device))?;
        in_paused_runtime(async || {
            let drives = world.drives(&world.devices)?;
            require_ok("join", pool::join(&drives, &world.entropy).await).map(drop)
        })?;
        Ok(world)
    }

    fn run(&mut self) -> Result<(), String> {
        for session in 0..1 + self.entropy.below(4) {
            self.trace.push(format!("session {session}"));
            let end = in_paused_runtime(async || self.run_session().await)?;
            self.end_session(end);
            if self.devices.len() < DRIVES_MAX && self.entropy.below(4) == 0 {
                self.add_drive()?;
            }
        }
        self.trace.push("final check");
        self.check_degraded()?;
        in_paused_runtime(async || self.final_check().await)?;
        self.check_corruption()
    }

    fn steps(&self) -> u64 {
        total_steps(&self.clients)
    }

    fn into_report(self) -> Report {
        final_report(self.report, &self.clients, self.fired, &self.devices)
    }
}

impl PoolWorld {
    fn format(&self, device: &SimDevice) -> Result<(), String> {
        let device: Arc<dyn BlockDevice> = Arc::new(device.clone());
        format_drive(&device, self.zone_bytes, &self.entropy)
    }

    fn open_one(&self, device: &SimDevice, options: OpenOptions) -> drive::Result<Drive> {
        Drive::open(Arc::new(device.clone()), options, self.clock.clone())
    }

    fn drives(&self, devices: &[SimDevice]) -> Result<Vec<Drive>, String> {
        devices.iter().map(|device| require_ok("open", self.open_one(device, self.options))).collect()
    }

    fn any_device(&self) -> usize {
        self.entropy.below(self.devices.len() as u64) as usize
    }

    fn end_session(&mut self, end: SessionEnd) {
        let loses_power = end.end(&mut self.clients, &self.entropy, &self.trace, &mut self.report);
        let spoils = [0, 1, 3, 20][self.entropy.below(4) as usize];
        for device in &self.devices {
            device.heal();
            if loses_power {
                device.crash_spoiling(self.entropy.next_u64(), spoils);
            }
            if self.entropy.below(4) == 0 {
                device.spoil_unwritten(self.entropy.next_u64(), 1 + self.entropy.below(8));
            }
            drop(device.take_operations());
        }
    }

    /// Opens the pool, in some cases after attempts during power cuts.
    async fn open(&mut self) -> Result<Pool, String> {
        while self.entropy.below(6) == 0 {
            self.devices[0].cut_power_after(self.entropy.below(30));
            let opened = match self.drives(&self.devices) {
                Ok(drives) => require_ok("open", Pool::open(drives, PoolOptions::default()).await).map(drop),
                Err(error) => Err(error),
            };
            if opened.is_err() {
                self.report.count("power cuts while opening");
            }
            self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
        }
        let drives = self.drives(&self.devices)?;
        require_ok("open the pool", Pool::open(drives, PoolOptions::default()).await)
    }

    async fn compare(&mut self, pool: &Pool) -> Result<(), String> {
        for (_, drive) in pool.drives() {
            check(&drive).await?;
        }
        compare_all(&mut self.clients, pool).await?;
        self.check_homes(pool).await
    }

    /// Checks that each object is on one drive only, and that the drives have the same buckets.
    async fn check_homes(&self, pool: &Pool) -> Result<(), String> {
        let names = require_ok("list", pool.list().await)?;
        for (number, drive) in pool.drives() {
            let found = require_ok("list", drive.list().await)?;
            if found != names {
                return Err(format!("drive {number} has the buckets {found:?}, the pool {names:?}"));
            }
        }
        for name in names {
            let mut homes = BTreeMap::new();
            for (number, drive) in pool.drives() {
                let store = require_ok("open", Buckets::open(&drive, &name).await)?;
                let page = require_ok(
                    "list",
                    store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await,
                )?;
                for (object, _) in page.entries.into_iter().filter_map(store::ListEntry::into_object) {
                    if let Some(other) = homes.insert(object.key.clone(), number) {
                        return Err(format!("{:?} is on the drives {other} and {number}", object.key));
                    }
                }
            }
        }
        Ok(())
    }

    async fn run_session(&mut self) -> Result<SessionEnd, String> {
        let pool = self.open().await?;
        self.compare(&pool).await?;
        if self.entropy.below(8) == 0 {
            self.clients[0].fill(&pool).await?;
        }
        let end = SessionEnd::draw(&self.entropy);
        let rounds = 1 + self.entropy.below(3);
        for round in 0..rounds {
            let is_last = round + 1 == rounds;
            let has_read_errors = !is_last && self.entropy.below(3) == 0;
            self.trace.push(round_line(round, has_read_errors));
            if has_read_errors {
                let (seed, one_in) = (self.entropy.next_u64(), 5 + self.entropy.below(60));
                self.devices[self.any_device()].fail_reads_at_random(seed, one_in);
            }
            if self.run_round(&pool, if is_last { end } else { SessionEnd::Orderly }, has_read_errors).await?
            {
                return Ok(end);
            }
            if has_read_errors {
                // The next opening completes a change of all drives that failed on one of them.
                return Ok(SessionEnd::Kill);
            }
            self.compare(&pool).await?;
        }
        if self.entropy.below(2) == 0 {
            for (_, drive) in pool.drives() {
                require_ok("close", drive.close().await)?;
            }
        }
        Ok(end)
    }

    /// Runs all clients and the maintenance concurrently. Returns whether the session is over.
    async fn run_round(
        &mut self,
        pool: &Pool,
        end: SessionEnd,
        has_read_errors: bool,
    ) -> Result<bool, String> {
        let ops = 4 + self.entropy.below(30);
        match end {
            SessionEnd::PowerCut => self.devices[0].cut_power_after(self.entropy.below(12 * ops)),
            SessionEnd::Failure => {
                self.devices[self.any_device()].fail_at_random(self.entropy.next_u64(), 3 * ops);
            }
            SessionEnd::Orderly | SessionEnd::Kill => {}
        }
        let is_cut = end.is_cut();
        let is_faulty = is_cut || has_read_errors;
        let polls = 1 + self.entropy.below(8 * ops);
        let drives = pool.drives();
        let maintenance_loops = drives.iter().map(|(_, drive)| Box::pin(drive.run_maintenance()));
        let seeds: Vec<u64> = drives.iter().map(|_| self.entropy.next_u64()).collect();
        let maintenance = drives
            .iter()
            .zip(seeds)
            .map(|((_, drive), seed)| Box::pin(maintain_at_random(drive, seed, is_faulty)));
        let clients = self.clients.iter_mut().map(|client| {
            client.is_faulty = is_faulty;
            client.run_ops(pool, ops)
        });
        tokio::select! {
            biased;
            _ = select_all(maintenance_loops) => {}
            (outcome, ..) = select_all(maintenance) => outcome?,
            () = end.kill_after(polls) => return Ok(true),
            outcomes = try_join_all(clients) => {
                let is_down = outcomes?.contains(&CallOutcome::DeviceDown);
                return Ok(is_cut || is_down && !has_read_errors);
            }
        }
        Err("`run_maintenance` ended".into())
    }

    /// Adds an empty drive, in some cases after an attempt during a power cut.
    fn add_drive(&mut self) -> Result<(), String> {
        let device = self.devices[0].beside((16 + self.entropy.below(2) * 8) * self.zone_bytes);
        self.format(&device)?;
        self.devices.push(device);
        in_paused_runtime(async || {
            if self.entropy.below(2) == 0 {
                let drives = self.drives(&self.devices)?;
                self.devices[0].cut_power_after(self.entropy.below(20));
                if pool::join(&drives, &self.entropy).await.is_err() {
                    self.report.count("interrupted joins");
                }
                drop(drives);
                self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
            }
            let drives = self.drives(&self.devices)?;
            require_ok("join", pool::join(&drives, &self.entropy).await)?;
            self.report.count("joined drives");
            self.trace.push(format!("{} drives", drives.len()));
            Ok(())
        })
    }

    /// Opens the pool without one drive: a read returns the correct object or an error, and listings fail.
    fn check_degraded(&mut self) -> Result<(), String> {
        let missing = self.any_device();
        let devices: Vec<SimDevice> = self.devices.iter().map(SimDevice::fork).collect();
        in_paused_runtime(async || {
            let present = devices.iter().enumerate().filter(|(number, _)| *number != missing);
            let present: Vec<SimDevice> = present.map(|(_, device)| device.clone()).collect();
            let drives = self.drives(&present)?;
            if Pool::open(drives.clone(), PoolOptions::default()).await.is_ok() {
                return Err("the pool was opened without one of its drives, though not as degraded".into());
            }
            let pool = require_ok("open", Pool::open(drives, PoolOptions { degraded: true }).await)?;
            self.report.count("degraded pool openings");
            for client in &self.clients {
                let store = match Buckets::open(&pool, &client.bucket).await {
                    Err(StoreError::NoSuchBucket(_)) => continue,
                    opened => require_ok("open", opened)?,
                };
                if let Ok(page) = store.list(ListRequest { limit: 10, ..ListRequest::default() }).await {
                    return Err(format!("without a drive {} keys are listed", page.entries.len()));
                }
                for key in client.models.iter().flat_map(|model| model.keys.keys()) {
                    let may_be = |etag| {
                        let current = client.models.iter().filter_map(|model| model.current(key));
                        current
                            .into_iter()
                            .any(|version| version.etag.is_none() || version.etag.as_ref() == Some(etag))
                    };
                    match store.get(&object_key(key), GetOptions::default()).await {
                        Ok(object) if may_be(&object.meta.object.etag) => {}
                        Ok(object) => return Err(format!("without a drive {key} is {:?}", object.meta)),
                        Err(error) if error_kind(&error) == "device" => {}
                        Err(error) => return Err(format!("without a drive {key}: {error}")),
                    }
                }
            }
            Ok(())
        })
    }

    /// Compares everything, and then deletes everything in half of the cases.
    async fn final_check(&mut self) -> Result<(), String> {
        let pool = self.open().await?;
        self.compare(&pool).await?;
        if self.entropy.below(2) == 0 {
            // End the log with a checkpoint: corruption of the last frame cannot be told from an incomplete write.
            for (_, drive) in pool.drives() {
                require_ok("close", drive.close().await)?;
            }
            return Ok(());
        }
        for client in &mut self.clients {
            client.delete_all(&pool).await?;
        }
        for (number, drive) in pool.drives() {
            require_ok("maintain", drive.maintain().await)?;
            require_ok("close", drive.close().await)?;
            let checked = check(&drive).await?;
            if checked.objects + checked.parts > 0 {
                return Err(format!("drive {number} is not empty after all was deleted: {checked:?}"));
            }
        }
        Ok(())
    }

    /// Corrupts one drive, also by unreadable sectors: what can be read must be correct, and a scrub must find what a read finds.
    fn check_corruption(&mut self) -> Result<(), String> {
        let corrupted = self.any_device();
        let devices: Vec<SimDevice> = self.devices.iter().map(SimDevice::fork).collect();
        let (device, len) = (&devices[corrupted], devices[corrupted].len_bytes());
        for _ in 0..self.entropy.below(30) {
            let ranges = [2 * BLOCK_BYTES..len, 2 * BLOCK_BYTES..4 * MIB, len * 3 / 4..len];
            device.flip(self.entropy.next_u64(), ranges[self.entropy.below(3) as usize].clone());
        }
        for _ in 0..self.entropy.below(20) {
            let blocks = len / BLOCK_BYTES;
            let ranges = [2..blocks, 2..1024, blocks * 3 / 4..blocks];
            let range = &ranges[self.entropy.below(3) as usize];
            let at = (range.start + self.entropy.below(range.end - range.start)) * BLOCK_BYTES;
            device.spoil(at..at + BLOCK_BYTES);
        }
        self.report.count("corruptions");
        let outcome = in_paused_runtime(async || {
            let Ok(drives) = self.drives(&devices) else {
                self.report.count("corruptions found by opening");
                return Ok(());
            };
            let Ok(pool) = Pool::open(drives.clone(), PoolOptions::default()).await else { return Ok(()) };
            let mut is_found = false;
            for client in &self.clients {
                if !client.compare_corrupted(&pool, client).await? {
                    self.report.count("corruptions found by reading");
                    is_found = true;
                }
            }
            let mut damaged = Vec::new();
            for drive in &drives {
                damaged.extend(require_ok("scrub of a corrupted drive", drive.scrub(|_| ()).await)?.damaged);
            }
            match is_found && damaged.is_empty() {
                true => Err("a scrub missed damage that a read found".into()),
                false => Ok(()),
            }
        });
        devices.iter().for_each(|device| self.fired.add(device.fired()));
        outcome
    }
}
