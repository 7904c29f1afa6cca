//! The array world: a drive on an array whose devices fail, are missing, return stale, get corrupted and are replaced.
//!
//! Checked in addition to the checks of a drive world: while enough devices are in sync no call fails; data that is wrong on one device
//! is read from the others; devices out of sync are never read, in whatever order the devices are listed; an interrupted rebuild changes
//! nothing.

use super::drive_client::{CallOutcome, DriveClient};
use super::session::{
    FAULT_SALT, MIB, check, compare_all, draw_clients, draw_shared_zone_bytes, final_report, format_drive,
    maintain_at_random, require_ok, total_steps,
};
use crate::device::{Fired, SimDevice};
use crate::files::machine::in_paused_runtime;
use crate::runner::SimulatedWorld;
use crate::trace::Trace;
use crate::{Report, RuntimeClock};
use drive::device::{Array, BLOCK_BYTES, BlockDevice, Buffer, Found, Io, MemberState, Shape};
use drive::{Drive, OpenOptions, Pace};
use futures_util::future::{join, try_join_all};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Entropy;

const SHAPES: [(usize, usize); 6] = [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2), (3, 3)];

/// A pace of maintenance that yields to other tasks after each step.
struct YieldPace;

#[async_trait::async_trait]
impl Pace for YieldPace {
    async fn after(&self, _: u64) {
        tokio::task::yield_now().await;
    }
}

/// Scrubs the drive, or rebuilds a device that was missing, while clients use the drive.
async fn maintain_under_load(
    drive: &Drive,
    out: Option<(usize, Io)>,
    entropy: &Entropy,
    is_sound: bool,
    report: &mut Report,
) -> Result<(), String> {
    let Some((number, device)) = out else {
        return match drive.scrub_at(&YieldPace, |_| ()).await {
            Ok(scrubbed) if scrubbed.damaged.is_empty() => {
                report.count("scrubs under load");
                Ok(())
            }
            outcome if is_sound => Err(format!("a scrub under load failed: {outcome:?}")),
            _ => Ok(()),
        };
    };
    let array = drive.array().ok_or("no array")?;
    match array.rebuild_in_use(number.to_string(), &device, entropy, &YieldPace, |_, _| ()).await {
        Ok(_) => {
            report.count("rebuilds under load");
            Ok(())
        }
        // An earlier round has already rebuilt the device.
        Err(_) if array.has_member(&number.to_string()) => Ok(()),
        // Sectors of unused rows may be lost on more devices than there is parity for.
        Err(drive::Error::NotComputable { .. }) => {
            report.count("rebuilds with a row that cannot be computed");
            Ok(())
        }
        Err(error) if is_sound => Err(format!("a rebuild under load failed: {error}")),
        Err(_) => Ok(()),
    }
}

pub(super) struct ArrayWorld {
    shape: Shape,
    /// All devices of the machine, members or not, with a common power supply.
    devices: Vec<SimDevice>,
    /// Devices with injected failures in this session, detected or not.
    failing: Vec<usize>,
    clock: Arc<RuntimeClock>,
    options: OpenOptions,
    clients: Vec<DriveClient>,
    entropy: Entropy,
    /// Entropy for unreadable sectors.
    fault_entropy: Entropy,
    fired: Fired,
    trace: Trace,
    report: Report,
}

impl SimulatedWorld for ArrayWorld {
    const KIND: &'static str = "array";

    fn create(seed: u64, trace: &Trace) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let (data, parity) = SHAPES[entropy.below(SHAPES.len() as u64) as usize];
        let shape = Shape { data, parity };
        let zone_bytes = draw_shared_zone_bytes(seed);
        let each_bytes = (16 + data as u64 + entropy.below(3) * 8) * zone_bytes / data as u64 + 2 * MIB;
        let first = SimDevice::new(each_bytes);
        let others = (1..shape.members()).map(|_| first.beside(each_bytes));
        let devices: Vec<SimDevice> = std::iter::once(first.clone()).chain(others).collect();
        let (clients, options) = draw_clients(&entropy, 2, trace);
        let (clock, report) = (Arc::new(RuntimeClock::default()), Report::default());
        let world = Self {
            shape,
            devices,
            failing: Vec::new(),
            clock,
            options,
            clients,
            entropy,
            fault_entropy: Entropy::new(seed ^ FAULT_SALT),
            fired: Fired::default(),
            trace: trace.clone(),
            report,
        };
        require_ok("array", Array::format(world.named_devices(), shape, &world.entropy))?;
        let device: Arc<dyn BlockDevice> =
            Arc::new(require_ok("open", Found::look(world.named_devices()).open(false))?);
        format_drive(&device, zone_bytes, &world.entropy)?;
        Ok(world)
    }

    fn run(&mut self) -> Result<(), String> {
        for session in 0..1 + self.entropy.below(4) {
            self.trace.push(format!("session {session}, in sync {:?}", self.in_sync()?));
            in_paused_runtime(async || self.run_session().await)?;
            self.end_session();
            match self.entropy.below(3) {
                0 => self.check_corruption()?,
                1 => self.rebuild()?,
                _ => {}
            }
            if self.fault_entropy.below(2) == 0 {
                self.spoil()?;
            }
        }
        in_paused_runtime(async || {
            let drive = self.open(&[])?;
            self.compare(&drive).await
        })
    }

    fn steps(&self) -> u64 {
        total_steps(&self.clients)
    }

    fn into_report(self) -> Report {
        final_report(self.report, &self.clients, self.fired, &self.devices)
    }
}

impl ArrayWorld {
    fn named_devices(&self) -> Vec<(String, Io)> {
        let named = |(n, device): (usize, &SimDevice)| (n.to_string(), Io::from(Arc::new(device.clone())));
        self.devices.iter().enumerate().map(named).collect()
    }

    /// Returns the devices in random order, except for those in `without`.
    fn shuffled(&self, without: &[usize]) -> Vec<(String, Io)> {
        let mut left: Vec<_> =
            self.named_devices().into_iter().enumerate().filter(|(n, _)| !without.contains(n)).collect();
        let mut shuffled = Vec::new();
        while !left.is_empty() {
            shuffled.push(left.swap_remove(self.entropy.below(left.len() as u64) as usize).1);
        }
        shuffled
    }

    /// Returns the numbers of the devices that are in sync.
    fn in_sync(&self) -> Result<Vec<usize>, String> {
        let info = Found::look(self.named_devices()).info().ok_or("no array")?;
        let number = |state: &MemberState| match state {
            MemberState::InSync(name) => name.parse().ok(),
            _ => None,
        };
        Ok(info.members.iter().filter_map(number).collect())
    }

    /// Draws devices that may be lost in addition to those already missing.
    fn removable_devices(&self) -> Result<Vec<usize>, String> {
        let mut in_sync = self.in_sync()?;
        in_sync.retain(|number| !self.failing.contains(number));
        let most = in_sync.len().checked_sub(self.shape.data).ok_or("too few devices are in sync")? as u64;
        let count = self.entropy.below(most + 1);
        Ok((0..count)
            .map(|_| in_sync.swap_remove(self.entropy.below(in_sync.len() as u64) as usize))
            .collect())
    }

    fn end_session(&mut self) {
        self.clients.iter_mut().for_each(DriveClient::drop_readers);
        self.failing.clear();
        let loses_power = self.entropy.below(2) == 0;
        let spoils = [0, 1, 3, 20][self.fault_entropy.below(4) as usize];
        for device in &self.devices {
            device.heal();
            if loses_power {
                device.crash_spoiling(self.entropy.next_u64(), spoils);
            }
            if self.fault_entropy.below(6) == 0 {
                device.spoil_unwritten(self.fault_entropy.next_u64(), 1 + self.fault_entropy.below(8));
            }
            drop(device.take_operations());
        }
    }

    fn open(&self, without: &[usize]) -> Result<Drive, String> {
        let array = require_ok("open the array", Found::look(self.shuffled(without)).open(false))?;
        require_ok("open", Drive::open(Io::Array(Arc::new(array)), self.options, self.clock.clone()))
    }

    async fn compare(&mut self, drive: &Drive) -> Result<(), String> {
        check(drive).await?;
        compare_all(&mut self.clients, drive).await
    }

    async fn run_session(&mut self) -> Result<(), String> {
        if self.entropy.below(4) == 0 {
            self.open_during_power_cut();
        }
        let without = if self.entropy.below(3) == 0 { self.removable_devices()? } else { Vec::new() };
        self.trace.push(format!("open without {without:?}"));
        self.report.count(if without.is_empty() { "openings" } else { "openings with missing devices" });
        let drive = self.open(&without)?;
        self.compare(&drive).await?;
        for _ in 0..1 + self.entropy.below(3) {
            if self.entropy.below(2) == 0 {
                self.fail_devices()?;
            }
            let loses_power = self.entropy.below(3) == 0;
            if self.run_round(&drive, loses_power, &without).await? {
                return Ok(());
            }
            self.compare(&drive).await?;
        }
        if self.entropy.below(2) == 0 { require_ok("close", drive.close().await) } else { Ok(()) }
    }

    /// Opens the drive during a power cut.
    fn open_during_power_cut(&mut self) {
        self.devices[0].cut_power_after(self.entropy.below(30 * self.devices.len() as u64));
        if self.open(&[]).is_err() {
            self.report.count("power cuts while opening");
        }
        self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
    }

    /// Makes as many random devices fail as may be lost: at random, or for good.
    fn fail_devices(&mut self) -> Result<(), String> {
        for number in self.removable_devices()? {
            self.report.count("failing devices");
            self.failing.push(number);
            self.trace.push(format!("device {number} fails"));
            if self.fault_entropy.below(3) == 0 {
                self.devices[number]
                    .fail_reads_at_random(self.fault_entropy.next_u64(), 1 + self.fault_entropy.below(40));
                continue;
            }
            match self.entropy.below(2) {
                0 => self.devices[number].break_down(),
                _ => self.devices[number].fail_at_random(self.entropy.next_u64(), 1 + self.entropy.below(60)),
            }
        }
        Ok(())
    }

    /// Runs all clients concurrently. Returns whether the session is over.
    async fn run_round(
        &mut self,
        drive: &Drive,
        loses_power: bool,
        without: &[usize],
    ) -> Result<bool, String> {
        let ops = 4 + self.entropy.below(20);
        if loses_power {
            self.report.count("power cuts");
            self.devices[0].cut_power_after(self.entropy.below(12 * ops * self.devices.len() as u64));
        }
        let seed = self.entropy.next_u64();
        let is_sound = !loses_power && self.failing.is_empty();
        let out = without.iter().copied().find(|_| self.fault_entropy.below(3) == 0);
        let out = out.map(|number| (number, Io::from(Arc::new(self.devices[number].clone()))));
        let has_maintenance = out.is_some() || self.fault_entropy.below(4) == 0;
        let (entropy, report) = (&self.entropy, &mut self.report);
        let maintenance = async {
            match has_maintenance {
                true => maintain_under_load(drive, out, entropy, is_sound, report).await,
                false => Ok(()),
            }
        };
        let clients = self.clients.iter_mut().map(|client| {
            client.is_faulty = loses_power;
            client.run_ops(drive, ops)
        });
        tokio::select! {
            biased;
            () = drive.run_maintenance() => {}
            outcome = maintain_at_random(drive, seed, loses_power) => outcome?,
            (outcomes, maintained) = join(try_join_all(clients), maintenance) => {
                let outcomes = outcomes?;
                maintained?;
                return Ok(outcomes.contains(&CallOutcome::DeviceDown) || loses_power);
            }
        }
        Err("`run_maintenance` ended".into())
    }

    /// Corrupts one device: all data must be readable, and consistent again after a scrub.
    fn check_corruption(&mut self) -> Result<(), String> {
        let in_sync = self.in_sync()?;
        if in_sync.len() <= self.shape.data {
            return Ok(());
        }
        let corrupted = in_sync[self.entropy.below(in_sync.len() as u64) as usize];
        let (device, len) = (&self.devices[corrupted], self.devices[corrupted].len_bytes());
        for _ in 0..1 + self.entropy.below(400) {
            let ranges = [MIB..len, MIB..len, MIB..2 * MIB, len - 3 * MIB..len];
            device.flip(self.entropy.next_u64(), ranges[self.entropy.below(4) as usize].clone());
        }
        if self.entropy.below(2) == 0 {
            let blocks = 1 + self.entropy.below(300);
            let at = MIB + self.entropy.below((len - MIB) / BLOCK_BYTES - blocks) * BLOCK_BYTES;
            require_ok("corrupt", device.write_at(at, &Buffer::zeroed((blocks * BLOCK_BYTES) as usize)))?;
            require_ok("corrupt", device.flush())?;
        }
        self.trace.push(format!("device {corrupted} is corrupted"));
        self.report.count("corruptions");
        in_paused_runtime(async || {
            let drive = self.open(&[])?;
            self.compare(&drive).await?;
            let scrubbed = require_ok("scrub", drive.scrub(|_| ()).await)?;
            if scrubbed.repaired > 0 {
                self.report.count("scrubs that repaired corruption");
            }
            match scrubbed.damaged.as_slice() {
                [] => Ok(()),
                damaged => Err(format!("after corruption of one device: {}", damaged.join("; "))),
            }
        })?;
        self.clients.iter_mut().for_each(DriveClient::drop_readers);
        Ok(())
    }

    /// Makes sectors unreadable, in each row on no more devices than may be lost. All data must be readable and, after a scrub, also
    /// without as many devices as may be lost.
    fn spoil(&mut self) -> Result<(), String> {
        let in_sync = self.in_sync()?;
        let spare = in_sync.len().checked_sub(self.shape.data).ok_or("too few devices are in sync")?;
        if spare == 0 {
            return Ok(());
        }
        self.trace.push("sectors become unreadable");
        let len = self.devices[0].len_bytes();
        let first = self.fault_entropy.below((len - MIB) / BLOCK_BYTES);
        let (count, is_dense) = (1 + self.fault_entropy.below(600), self.fault_entropy.below(2) == 0);
        // Use each row once: two draws of a row could exceed the number of devices that may be lost.
        let rows: BTreeSet<u64> = (0..count)
            .map(|n| if is_dense { first + n } else { self.fault_entropy.below((len - MIB) / BLOCK_BYTES) })
            .collect();
        for row in rows {
            let at = MIB + row * BLOCK_BYTES;
            let mut left = in_sync.clone();
            for _ in 0..1 + self.fault_entropy.below(spare as u64) {
                let device = left.swap_remove(self.fault_entropy.below(left.len() as u64) as usize);
                if at < len {
                    self.devices[device].spoil(at..at + BLOCK_BYTES);
                }
            }
        }
        let mut without = in_sync.clone();
        while without.len() > spare {
            without.swap_remove(self.fault_entropy.below(without.len() as u64) as usize);
        }
        in_paused_runtime(async || {
            let drive = self.open(&[])?;
            if self.fault_entropy.below(2) == 0 {
                self.compare(&drive).await?;
            }
            let scrubbed = require_ok("scrub", drive.scrub(|_| ()).await)?;
            if scrubbed.repaired > 0 {
                self.report.count("scrubs that repaired unreadable sectors");
            }
            if let [damaged, ..] = scrubbed.damaged.as_slice() {
                return Err(format!("a scrub did not repair unreadable sectors: {damaged}"));
            }
            drop(drive);
            self.clients.iter_mut().for_each(DriveClient::drop_readers);
            let whole: Vec<SimDevice> = self.devices.iter().map(SimDevice::fork).collect();
            let whole = std::mem::replace(&mut self.devices, whole);
            let compared = match self.open(&without) {
                Ok(drive) => self.compare(&drive).await.map(drop),
                Err(error) => Err(error),
            };
            self.devices = whole;
            compared.map_err(|error| format!("after a scrub, without {without:?}: {error}"))
        })?;
        self.clients.iter_mut().for_each(DriveClient::drop_readers);
        Ok(())
    }

    /// Rebuilds until no member is missing, partly on new devices and partly with power cuts.
    fn rebuild(&mut self) -> Result<(), String> {
        for _ in 0..self.shape.members() {
            let in_sync = self.in_sync()?;
            if in_sync.len() == self.shape.members() {
                break;
            }
            let out = (0..self.devices.len())
                .find(|number| !in_sync.contains(number))
                .ok_or("no device is missing")?;
            if self.entropy.below(2) == 0 {
                self.devices[out] = self.devices[out].beside(self.devices[out].len_bytes());
            }
            if self.entropy.below(3) == 0 {
                self.devices[0].cut_power_after(self.entropy.below(300));
                if self.rebuild_on(out).is_err() {
                    self.report.count("interrupted rebuilds");
                }
                self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
            }
            if !self.in_sync()?.contains(&out) {
                self.rebuild_on(out)?;
                self.report.count("rebuilds");
            }
        }
        let in_sync = self.in_sync()?;
        self.trace.push(format!("rebuilt, in sync {in_sync:?}"));
        if in_sync.len() < self.shape.members() { Err("a member is still missing".into()) } else { Ok(()) }
    }

    fn rebuild_on(&self, number: usize) -> Result<(), String> {
        let array =
            Arc::new(require_ok("open for a rebuild", Found::look(self.shuffled(&[number])).open(false))?);
        let device = Io::from(Arc::new(self.devices[number].clone()));
        require_ok("rebuild", array.rebuild(number.to_string(), &device, &self.entropy, |_, _| ())).map(drop)
    }
}
