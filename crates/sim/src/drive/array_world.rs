//! Worlds of the drive on an array: its devices fail, are missing, come back stale, rot and are replaced, and clients notice nothing.
//!
//! Besides what every world of the drive checks: as long as enough devices are in sync no call fails; what one of them has wrong is
//! read from the others; who is out of sync is never read, in whatever order devices are named; a rebuild that is cut short changes nothing.

use super::drive_client::{Client, Going};
use super::drive_world::{FAULTS, MIB, check, keep, steps_of, summed_up, told};
use crate::device::{Fired, SimDevice};
use crate::files::machine::in_runtime;
use crate::runner::Lives;
use crate::trace::Tale;
use crate::{Report, RuntimeClock};
use drive::device::{Array, BLOCK_BYTES, BlockDevice, Buffer, Found, Io, MemberState, Shape};
use drive::{Drive, FormatOptions, OpenOptions, Pace};
use futures_util::future::{join, try_join_all};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Entropy;

const SHAPES: [(usize, usize); 6] = [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2), (3, 3)];

/// Lets others go on between the steps.
struct Turns;

#[async_trait::async_trait]
impl Pace for Turns {
    async fn after(&self, _: u64) {
        tokio::task::yield_now().await;
    }
}

/// Scrubs the drive, or rebuilds a device that was out, while clients use it.
async fn care(
    drive: &Drive,
    out: Option<(usize, Io)>,
    entropy: &Entropy,
    is_sound: bool,
    report: &mut Report,
) -> Result<(), String> {
    let Some((number, device)) = out else {
        return match drive.scrub_at(&Turns, |_| ()).await {
            Ok(scrubbed) if scrubbed.damaged.is_empty() => {
                report.count("scrubs while clients work");
                Ok(())
            }
            outcome if is_sound => Err(format!("a scrub while clients work: {outcome:?}")),
            _ => Ok(()),
        };
    };
    let array = drive.array().ok_or("no array")?;
    match array.rebuild_at(number.to_string(), &device, entropy, &Turns, |_, _| ()).await {
        Ok(_) => {
            report.count("rebuilds while clients work");
            Ok(())
        }
        // An earlier round has rebuilt it.
        Err(_) if array.has_member(&number.to_string()) => Ok(()),
        // Sectors of rows that nobody uses may be lost on more devices than there is parity for.
        Err(drive::Error::NotComputable { .. }) => {
            report.count("rebuilds that cannot compute a row");
            Ok(())
        }
        Err(error) if is_sound => Err(format!("a rebuild while clients work: {error}")),
        Err(_) => Ok(()),
    }
}

pub(super) struct World {
    shape: Shape,
    /// The machine's devices, members or not, all on one power.
    devices: Vec<SimDevice>,
    /// Those that fail in this life, also if nobody has noticed yet.
    failing: Vec<usize>,
    clock: Arc<RuntimeClock>,
    options: OpenOptions,
    clients: Vec<Client>,
    entropy: Entropy,
    /// For sectors that cannot be read.
    faults: Entropy,
    fired: Fired,
    tale: Tale,
    report: Report,
}

impl Lives for World {
    const KIND: &'static str = "array";

    fn begin(seed: u64, tale: &Tale) -> Result<Self, String> {
        let entropy = Entropy::new(seed);
        let (data, parity) = SHAPES[entropy.below(SHAPES.len() as u64) as usize];
        let shape = Shape { data, parity };
        let each_bytes = (16 + data as u64 + entropy.below(3) * 8) * MIB / data as u64 + 2 * MIB;
        let first = SimDevice::new(each_bytes);
        let others = (1..shape.members()).map(|_| first.beside(each_bytes));
        let devices: Vec<SimDevice> = std::iter::once(first.clone()).chain(others).collect();
        let longest = [20_000, 300_000, 1_500_000][entropy.below(3) as usize];
        let clients = (0..1 + entropy.below(2))
            .map(|number| Client::new(number, entropy.next_u64(), longest, tale.clone()))
            .collect();
        let index_bytes = [4 << 10, 64 << 10, 1 << 20][entropy.below(3) as usize];
        let options = OpenOptions { index_bytes, ..OpenOptions::default() };
        let (clock, report) = (Arc::new(RuntimeClock::default()), Report::default());
        let world = Self {
            shape,
            devices,
            failing: Vec::new(),
            clock,
            options,
            clients,
            entropy,
            faults: Entropy::new(seed ^ FAULTS),
            fired: Fired::default(),
            tale: tale.clone(),
            report,
        };
        told("array", Array::format(world.named(), shape, &world.entropy))?;
        let device: Arc<dyn BlockDevice> = Arc::new(told("open", Found::look(world.named()).open(false))?);
        told("format", Drive::format(&device, FormatOptions { zone_bytes: Some(MIB) }, &world.entropy))?;
        Ok(world)
    }

    fn lives(&mut self) -> Result<(), String> {
        for life in 0..1 + self.entropy.below(4) {
            self.tale.tell(format!("life {life}, in sync {:?}", self.in_sync()?));
            in_runtime(async || self.life().await)?;
            self.lose();
            match self.entropy.below(3) {
                0 => self.rot()?,
                1 => self.rebuild()?,
                _ => {}
            }
            if self.faults.below(2) == 0 {
                self.spoil()?;
            }
        }
        in_runtime(async || {
            let drive = self.open(&[])?;
            self.compare(&drive).await
        })
    }

    fn steps(&self) -> u64 {
        steps_of(&self.clients)
    }

    fn reported(self) -> Report {
        summed_up(self.report, &self.clients, self.fired, &self.devices)
    }
}

impl World {
    fn named(&self) -> Vec<(String, Io)> {
        let named = |(n, device): (usize, &SimDevice)| (n.to_string(), Io::from(Arc::new(device.clone())));
        self.devices.iter().enumerate().map(named).collect()
    }

    /// The devices in some order, without these.
    fn shuffled(&self, without: &[usize]) -> Vec<(String, Io)> {
        let mut left: Vec<_> =
            self.named().into_iter().enumerate().filter(|(n, _)| !without.contains(n)).collect();
        let mut shuffled = Vec::new();
        while !left.is_empty() {
            shuffled.push(left.swap_remove(self.entropy.below(left.len() as u64) as usize).1);
        }
        shuffled
    }

    /// Which devices are in sync.
    fn in_sync(&self) -> Result<Vec<usize>, String> {
        let info = Found::look(self.named()).info().ok_or("no array")?;
        let number = |state: &MemberState| match state {
            MemberState::InSync(name) => name.parse().ok(),
            _ => None,
        };
        Ok(info.members.iter().filter_map(number).collect())
    }

    /// Some devices that may be lost now.
    fn spare(&self) -> Result<Vec<usize>, String> {
        let mut in_sync = self.in_sync()?;
        in_sync.retain(|number| !self.failing.contains(number));
        let most = in_sync.len().checked_sub(self.shape.data).ok_or("too few are in sync")? as u64;
        let count = self.entropy.below(most + 1);
        Ok((0..count)
            .map(|_| in_sync.swap_remove(self.entropy.below(in_sync.len() as u64) as usize))
            .collect())
    }

    fn lose(&mut self) {
        self.clients.iter_mut().for_each(Client::forget_readers);
        self.failing.clear();
        let power_goes = self.entropy.below(2) == 0;
        let spoils = [0, 1, 3, 20][self.faults.below(4) as usize];
        for device in &self.devices {
            device.heal();
            if power_goes {
                device.crash_spoiling(self.entropy.next_u64(), spoils);
            }
            if self.faults.below(6) == 0 {
                device.spoil_unwritten(self.faults.next_u64(), 1 + self.faults.below(8));
            }
            drop(device.take_operations());
        }
    }

    fn open(&self, without: &[usize]) -> Result<Drive, String> {
        let array = told("open the array", Found::look(self.shuffled(without)).open(false))?;
        told("open", Drive::open(Io::Array(Arc::new(array)), self.options, self.clock.clone()))
    }

    async fn compare(&mut self, drive: &Drive) -> Result<(), String> {
        check(drive).await?;
        for client in &mut self.clients {
            client.is_faulty = false;
            client.compare(drive).await?;
        }
        Ok(())
    }

    async fn life(&mut self) -> Result<(), String> {
        if self.entropy.below(4) == 0 {
            self.open_without_power();
        }
        let without = if self.entropy.below(3) == 0 { self.spare()? } else { Vec::new() };
        self.tale.tell(format!("open without {without:?}"));
        self.report.count(if without.is_empty() { "openings" } else { "openings without some" });
        let drive = self.open(&without)?;
        self.compare(&drive).await?;
        for _ in 0..1 + self.entropy.below(3) {
            if self.entropy.below(2) == 0 {
                self.fail_some()?;
            }
            let power_goes = self.entropy.below(3) == 0;
            if self.round(&drive, power_goes, &without).await? {
                return Ok(());
            }
            self.compare(&drive).await?;
        }
        if self.entropy.below(2) == 0 { told("close", drive.close().await) } else { Ok(()) }
    }

    /// Opens it while the power goes.
    fn open_without_power(&mut self) {
        self.devices[0].cut_power_after(self.entropy.below(30 * self.devices.len() as u64));
        if self.open(&[]).is_err() {
            self.report.count("power cuts while opening");
        }
        self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
    }

    /// Some devices, as many as may be lost, fail from now on at random, or for good.
    fn fail_some(&mut self) -> Result<(), String> {
        for number in self.spare()? {
            self.report.count("devices that fail");
            self.failing.push(number);
            self.tale.tell(format!("device {number} fails"));
            if self.faults.below(3) == 0 {
                self.devices[number].fail_reads_at_random(self.faults.next_u64(), 1 + self.faults.below(40));
                continue;
            }
            match self.entropy.below(2) {
                0 => self.devices[number].break_down(),
                _ => self.devices[number].fail_at_random(self.entropy.next_u64(), 1 + self.entropy.below(60)),
            }
        }
        Ok(())
    }

    /// Everybody does some things; whether the life is over.
    async fn round(&mut self, drive: &Drive, power_goes: bool, without: &[usize]) -> Result<bool, String> {
        let ops = 4 + self.entropy.below(20);
        if power_goes {
            self.report.count("power cuts");
            self.devices[0].cut_power_after(self.entropy.below(12 * ops * self.devices.len() as u64));
        }
        let seed = self.entropy.next_u64();
        let is_sound = !power_goes && self.failing.is_empty();
        let out = without.iter().copied().find(|_| self.faults.below(3) == 0);
        let out = out.map(|number| (number, Io::from(Arc::new(self.devices[number].clone()))));
        let cares = out.is_some() || self.faults.below(4) == 0;
        let (entropy, report) = (&self.entropy, &mut self.report);
        let caring = async {
            match cares {
                true => care(drive, out, entropy, is_sound, report).await,
                false => Ok(()),
            }
        };
        let clients = self.clients.iter_mut().map(|client| {
            client.is_faulty = power_goes;
            client.live(drive, ops)
        });
        tokio::select! {
            biased;
            () = drive.keep_up() => {}
            outcome = keep(drive, seed, power_goes) => outcome?,
            (went, cared) = join(try_join_all(clients), caring) => {
                let went = went?;
                cared?;
                return Ok(went.contains(&Going::Down) || power_goes);
            }
        }
        Err("upkeep came to an end".into())
    }

    /// One device has something else than was written: everything is read all the same, and is whole again after a scrub.
    fn rot(&mut self) -> Result<(), String> {
        let in_sync = self.in_sync()?;
        if in_sync.len() <= self.shape.data {
            return Ok(());
        }
        let rotten = in_sync[self.entropy.below(in_sync.len() as u64) as usize];
        let (device, len) = (&self.devices[rotten], self.devices[rotten].len_bytes());
        for _ in 0..1 + self.entropy.below(400) {
            let ranges = [MIB..len, MIB..len, MIB..2 * MIB, len - 3 * MIB..len];
            device.flip(self.entropy.next_u64(), ranges[self.entropy.below(4) as usize].clone());
        }
        if self.entropy.below(2) == 0 {
            let blocks = 1 + self.entropy.below(300);
            let at = MIB + self.entropy.below((len - MIB) / BLOCK_BYTES - blocks) * BLOCK_BYTES;
            told("rot", device.write_at(at, &Buffer::zeroed((blocks * BLOCK_BYTES) as usize)))?;
            told("rot", device.flush())?;
        }
        self.tale.tell(format!("device {rotten} rots"));
        self.report.count("rots");
        in_runtime(async || {
            let drive = self.open(&[])?;
            self.compare(&drive).await?;
            let scrubbed = told("scrub", drive.scrub(|_| ()).await)?;
            if scrubbed.mended > 0 {
                self.report.count("rots that were mended");
            }
            match scrubbed.damaged.as_slice() {
                [] => Ok(()),
                damaged => Err(format!("after rot of one device: {}", damaged.join("; "))),
            }
        })?;
        self.clients.iter_mut().for_each(Client::forget_readers);
        Ok(())
    }

    /// Each device has sectors that cannot be read, in each row no more than may be lost: everything is read all the same and, after a scrub,
    /// also without as many devices as may be lost.
    fn spoil(&mut self) -> Result<(), String> {
        let in_sync = self.in_sync()?;
        let spare = in_sync.len().checked_sub(self.shape.data).ok_or("too few are in sync")?;
        if spare == 0 {
            return Ok(());
        }
        self.tale.tell("sectors become unreadable");
        let len = self.devices[0].len_bytes();
        let first = self.faults.below((len - MIB) / BLOCK_BYTES);
        let (count, is_dense) = (1 + self.faults.below(600), self.faults.below(2) == 0);
        // Each row once: twice would be more than may be lost.
        let rows: BTreeSet<u64> = (0..count)
            .map(|n| if is_dense { first + n } else { self.faults.below((len - MIB) / BLOCK_BYTES) })
            .collect();
        for row in rows {
            let at = MIB + row * BLOCK_BYTES;
            let mut left = in_sync.clone();
            for _ in 0..1 + self.faults.below(spare as u64) {
                let device = left.swap_remove(self.faults.below(left.len() as u64) as usize);
                if at < len {
                    self.devices[device].spoil(at..at + BLOCK_BYTES);
                }
            }
        }
        let mut without = in_sync.clone();
        while without.len() > spare {
            without.swap_remove(self.faults.below(without.len() as u64) as usize);
        }
        in_runtime(async || {
            let drive = self.open(&[])?;
            if self.faults.below(2) == 0 {
                self.compare(&drive).await?;
            }
            let scrubbed = told("scrub", drive.scrub(|_| ()).await)?;
            if scrubbed.mended > 0 {
                self.report.count("unreadable sectors that were mended");
            }
            if let [damaged, ..] = scrubbed.damaged.as_slice() {
                return Err(format!("sectors could not be read, and a scrub says: {damaged}"));
            }
            drop(drive);
            self.clients.iter_mut().for_each(Client::forget_readers);
            let whole: Vec<SimDevice> = self.devices.iter().map(SimDevice::fork).collect();
            let whole = std::mem::replace(&mut self.devices, whole);
            let compared = match self.open(&without) {
                Ok(drive) => self.compare(&drive).await.map(drop),
                Err(error) => Err(error),
            };
            self.devices = whole;
            compared.map_err(|error| format!("after a scrub, without {without:?}: {error}"))
        })?;
        self.clients.iter_mut().for_each(Client::forget_readers);
        Ok(())
    }

    /// Devices become members until none is missing, some of them new; the power goes meanwhile some times.
    fn rebuild(&mut self) -> Result<(), String> {
        for _ in 0..self.shape.members() {
            let in_sync = self.in_sync()?;
            if in_sync.len() == self.shape.members() {
                break;
            }
            let out =
                (0..self.devices.len()).find(|number| !in_sync.contains(number)).ok_or("nobody is out")?;
            if self.entropy.below(2) == 0 {
                self.devices[out] = self.devices[out].beside(self.devices[out].len_bytes());
            }
            if self.entropy.below(3) == 0 {
                self.devices[0].cut_power_after(self.entropy.below(300));
                if self.rebuild_on(out).is_err() {
                    self.report.count("rebuilds cut short");
                }
                self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
            }
            if !self.in_sync()?.contains(&out) {
                self.rebuild_on(out)?;
                self.report.count("rebuilds");
            }
        }
        let in_sync = self.in_sync()?;
        self.tale.tell(format!("rebuilt, in sync {in_sync:?}"));
        if in_sync.len() < self.shape.members() { Err("a member is missing still".into()) } else { Ok(()) }
    }

    fn rebuild_on(&self, number: usize) -> Result<(), String> {
        let array = Arc::new(told("open for a rebuild", Found::look(self.shuffled(&[number])).open(false))?);
        let device = Io::from(Arc::new(self.devices[number].clone()));
        told("rebuild", array.rebuild(number.to_string(), &device, &self.entropy, |_, _| ())).map(drop)
    }
}
