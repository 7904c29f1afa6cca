//! Worlds of several drives as a pool: power cuts, kills, devices that fail or rot, drives that join, and openings without one.
//!
//! Besides what every world of the drive checks: everything of a key is on one drive, the drives agree on their buckets, and without one
//! drive the answer is what there is or that it cannot be known, never another one.

use super::drive_client::{Client, Going, kind};
use super::drive_world::{End, FAULTS, MIB, check, keep, steps_of, summed_up, told};
use super::observe::key_of;
use crate::device::{Fired, SimDevice};
use crate::files::machine::in_runtime;
use crate::runner::Lives;
use crate::trace::Tale;
use crate::{Report, RuntimeClock};
use drive::device::{BLOCK_BYTES, BlockDevice};
use drive::pool::{self, Pool, PoolOptions};
use drive::{Drive, FormatOptions, OpenOptions};
use futures_util::future::{select_all, try_join_all};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use store::{Buckets, Entropy, GetOptions, ListRequest, StoreError};

const DRIVES_MAX: usize = 4;

pub(super) struct World {
    /// One for each drive, all on one power.
    devices: Vec<SimDevice>,
    clock: Arc<RuntimeClock>,
    options: OpenOptions,
    clients: Vec<Client>,
    entropy: Entropy,
    fired: Fired,
    tale: Tale,
    report: Report,
}

impl Lives for World {
    const KIND: &'static str = "pool";

    fn begin(seed: u64, tale: &Tale) -> Result<Self, String> {
        let entropy = Entropy::new(seed ^ FAULTS);
        let first = SimDevice::new(16 * MIB);
        let others = 1 + entropy.below(2);
        let others = (0..others).map(|_| first.beside((16 + entropy.below(3) * 8) * MIB));
        let devices: Vec<SimDevice> = std::iter::once(first.clone()).chain(others).collect();
        let longest = [20_000, 300_000, 1_500_000][entropy.below(3) as usize];
        let clients = (0..1 + entropy.below(2)).map(|number| {
            let mut client = Client::new(number, entropy.next_u64(), longest, tale.clone());
            client.is_of_pool = true;
            client
        });
        let clients = clients.collect();
        let index_bytes = [4 << 10, 64 << 10, 1 << 20][entropy.below(3) as usize];
        let options = OpenOptions { index_bytes, ..OpenOptions::default() };
        let (clock, fired, tale) = (Arc::new(RuntimeClock::default()), Fired::default(), tale.clone());
        let report = Report::default();
        let world = Self { devices, clock, options, clients, entropy, fired, tale, report };
        world.devices.iter().try_for_each(|device| world.format(device))?;
        in_runtime(async || {
            let drives = world.drives(&world.devices)?;
            told("join", pool::join(&drives, &world.entropy).await).map(drop)
        })?;
        Ok(world)
    }

    fn lives(&mut self) -> Result<(), String> {
        for life in 0..1 + self.entropy.below(4) {
            self.tale.tell(format!("life {life}"));
            let end = in_runtime(async || self.life().await)?;
            self.lose(end);
            if self.devices.len() < DRIVES_MAX && self.entropy.below(4) == 0 {
                self.grow()?;
            }
        }
        self.tale.tell("the end");
        self.without_one()?;
        in_runtime(async || self.end().await)?;
        self.rot()
    }

    fn steps(&self) -> u64 {
        steps_of(&self.clients)
    }

    fn reported(self) -> Report {
        summed_up(self.report, &self.clients, self.fired, &self.devices)
    }
}

impl World {
    fn format(&self, device: &SimDevice) -> Result<(), String> {
        let device: Arc<dyn BlockDevice> = Arc::new(device.clone());
        told("format", Drive::format(&device, FormatOptions { zone_bytes: Some(MIB) }, &self.entropy))
    }

    fn open_one(&self, device: &SimDevice, options: OpenOptions) -> drive::Result<Drive> {
        Drive::open(Arc::new(device.clone()), options, self.clock.clone())
    }

    fn drives(&self, devices: &[SimDevice]) -> Result<Vec<Drive>, String> {
        devices.iter().map(|device| told("open", self.open_one(device, self.options))).collect()
    }

    fn any_device(&self) -> usize {
        self.entropy.below(self.devices.len() as u64) as usize
    }

    fn lose(&mut self, end: End) {
        self.clients.iter_mut().for_each(Client::forget_readers);
        self.tale.tell(format!("{end:?}"));
        self.report.count(match end {
            End::InOrder => "orderly ends",
            End::Kill => "kills",
            End::PowerCut => "power cuts",
            End::Failure => "failures of a device",
        });
        let power_goes = match end {
            End::PowerCut => true,
            End::InOrder | End::Failure => self.entropy.below(2) == 0,
            End::Kill => false,
        };
        let spoils = [0, 1, 3, 20][self.entropy.below(4) as usize];
        for device in &self.devices {
            device.heal();
            if power_goes {
                device.crash_spoiling(self.entropy.next_u64(), spoils);
            }
            if self.entropy.below(4) == 0 {
                device.spoil_unwritten(self.entropy.next_u64(), 1 + self.entropy.below(8));
            }
            drop(device.take_operations());
        }
    }

    /// Opens the pool, the power going meanwhile some times.
    async fn open(&mut self) -> Result<Pool, String> {
        while self.entropy.below(6) == 0 {
            self.devices[0].cut_power_after(self.entropy.below(30));
            let opened = match self.drives(&self.devices) {
                Ok(drives) => told("open", Pool::open(drives, PoolOptions::default()).await).map(drop),
                Err(error) => Err(error),
            };
            if opened.is_err() {
                self.report.count("power cuts while opening");
            }
            self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
        }
        let drives = self.drives(&self.devices)?;
        told("open the pool", Pool::open(drives, PoolOptions::default()).await)
    }

    async fn compare(&mut self, pool: &Pool) -> Result<(), String> {
        for (_, drive) in pool.drives() {
            check(&drive).await?;
        }
        for client in &mut self.clients {
            client.is_faulty = false;
            client.compare(pool).await?;
        }
        self.check_homes(pool).await
    }

    /// Each key that is an object is one on one drive, and the drives have the same buckets.
    async fn check_homes(&self, pool: &Pool) -> Result<(), String> {
        let names = told("list", pool.list().await)?;
        for (number, drive) in pool.drives() {
            let found = told("list", drive.list().await)?;
            if found != names {
                return Err(format!("drive {number} has the buckets {found:?}, the pool {names:?}"));
            }
        }
        for name in names {
            let mut homes = BTreeMap::new();
            for (number, drive) in pool.drives() {
                let store = told("open", Buckets::open(&drive, &name).await)?;
                let page =
                    told("list", store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await)?;
                for (object, _) in page.entries.into_iter().filter_map(store::ListEntry::into_object) {
                    if let Some(other) = homes.insert(object.key.clone(), number) {
                        return Err(format!("{:?} is on the drives {other} and {number}", object.key));
                    }
                }
            }
        }
        Ok(())
    }

    async fn life(&mut self) -> Result<End, String> {
        let pool = self.open().await?;
        self.compare(&pool).await?;
        if self.entropy.below(8) == 0 {
            self.clients[0].fill(&pool).await?;
        }
        let ends = [End::InOrder, End::Kill, End::PowerCut, End::PowerCut, End::Failure];
        let end = ends[self.entropy.below(5) as usize];
        let rounds = 1 + self.entropy.below(3);
        for round in 0..rounds {
            let is_last = round + 1 == rounds;
            let passes = !is_last && self.entropy.below(3) == 0;
            self.tale.tell(format!("round {round}{}", if passes { ", in which reads fail" } else { "" }));
            if passes {
                let (seed, one_in) = (self.entropy.next_u64(), 5 + self.entropy.below(60));
                self.devices[self.any_device()].fail_reads_at_random(seed, one_in);
            }
            if self.round(&pool, if is_last { end } else { End::InOrder }, passes).await? {
                return Ok(end);
            }
            if passes {
                // A change of all drives that failed on one of them is ended by the next opening.
                return Ok(End::Kill);
            }
            self.compare(&pool).await?;
        }
        if self.entropy.below(2) == 0 {
            for (_, drive) in pool.drives() {
                told("close", drive.close().await)?;
            }
        }
        Ok(end)
    }

    /// Everybody does some things; whether the life is over.
    async fn round(&mut self, pool: &Pool, end: End, passes: bool) -> Result<bool, String> {
        let ops = 4 + self.entropy.below(30);
        match end {
            End::PowerCut => self.devices[0].cut_power_after(self.entropy.below(12 * ops)),
            End::Failure => {
                self.devices[self.any_device()].fail_at_random(self.entropy.next_u64(), 3 * ops);
            }
            End::InOrder | End::Kill => {}
        }
        let is_cut = matches!(end, End::PowerCut | End::Failure);
        let is_faulty = is_cut || passes;
        let polls = 1 + self.entropy.below(8 * ops);
        let drives = pool.drives();
        let keeping = drives.iter().map(|(_, drive)| Box::pin(drive.keep_up()));
        let seeds: Vec<u64> = drives.iter().map(|_| self.entropy.next_u64()).collect();
        let upkeep =
            drives.iter().zip(seeds).map(|((_, drive), seed)| Box::pin(keep(drive, seed, is_faulty)));
        let clients = self.clients.iter_mut().map(|client| {
            client.is_faulty = is_faulty;
            client.live(pool, ops)
        });
        let killed = pin!(async {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            if end != End::Kill {
                std::future::pending::<()>().await;
            }
        });
        tokio::select! {
            biased;
            _ = select_all(keeping) => {}
            (outcome, ..) = select_all(upkeep) => outcome?,
            () = killed => return Ok(true),
            went = try_join_all(clients) => {
                let is_down = went?.contains(&Going::Down);
                return Ok(is_cut || is_down && !passes);
            }
        }
        Err("upkeep came to an end".into())
    }

    /// An empty drive joins; the power goes meanwhile some times.
    fn grow(&mut self) -> Result<(), String> {
        let device = self.devices[0].beside((16 + self.entropy.below(2) * 8) * MIB);
        self.format(&device)?;
        self.devices.push(device);
        in_runtime(async || {
            if self.entropy.below(2) == 0 {
                let drives = self.drives(&self.devices)?;
                self.devices[0].cut_power_after(self.entropy.below(20));
                if pool::join(&drives, &self.entropy).await.is_err() {
                    self.report.count("joins cut short");
                }
                drop(drives);
                self.devices.iter().for_each(|device| device.crash(self.entropy.next_u64()));
            }
            let drives = self.drives(&self.devices)?;
            told("join", pool::join(&drives, &self.entropy).await)?;
            self.report.count("drives that joined");
            self.tale.tell(format!("{} drives", drives.len()));
            Ok(())
        })
    }

    /// Without one drive each object is what it must be, or cannot be known; nothing is listed.
    fn without_one(&mut self) -> Result<(), String> {
        let away = self.any_device();
        let devices: Vec<SimDevice> = self.devices.iter().map(SimDevice::fork).collect();
        in_runtime(async || {
            let here = devices.iter().enumerate().filter(|(number, _)| *number != away);
            let here: Vec<SimDevice> = here.map(|(_, device)| device.clone()).collect();
            let drives = self.drives(&here)?;
            if Pool::open(drives.clone(), PoolOptions::default()).await.is_ok() {
                return Err("a pool was opened without one of its drives".into());
            }
            let pool = told("open", Pool::open(drives, PoolOptions { degraded: true }).await)?;
            self.report.count("openings without a drive");
            for client in &self.clients {
                let store = match Buckets::open(&pool, &client.bucket).await {
                    Err(StoreError::NoSuchBucket(_)) => continue,
                    opened => told("open", opened)?,
                };
                if let Ok(page) = store.list(ListRequest { limit: 10, ..ListRequest::default() }).await {
                    return Err(format!("without a drive {} keys are listed", page.entries.len()));
                }
                for key in client.models.iter().flat_map(|model| model.keys.keys()) {
                    let may_be = |etag| {
                        let current = client.models.iter().filter_map(|model| model.current(key));
                        current
                            .into_iter()
                            .any(|kept| kept.etag.is_none() || kept.etag.as_ref() == Some(etag))
                    };
                    match store.get(&key_of(key), GetOptions::default()).await {
                        Ok(object) if may_be(&object.meta.object.etag) => {}
                        Ok(object) => return Err(format!("without a drive {key} is {:?}", object.meta)),
                        Err(error) if kind(&error) == "device" => {}
                        Err(error) => return Err(format!("without a drive {key}: {error}")),
                    }
                }
            }
            Ok(())
        })
    }

    /// Compares everything; then deletes everything some times.
    async fn end(&mut self) -> Result<(), String> {
        let pool = self.open().await?;
        self.compare(&pool).await?;
        if self.entropy.below(2) == 0 {
            // A log ends with a checkpoint: of the last frame nobody can tell rot from a write that was cut short.
            for (_, drive) in pool.drives() {
                told("close", drive.close().await)?;
            }
            return Ok(());
        }
        for client in &mut self.clients {
            client.leave(&pool).await?;
        }
        for (number, drive) in pool.drives() {
            told("maintain", drive.maintain().await)?;
            told("close", drive.close().await)?;
            let checked = check(&drive).await?;
            if checked.objects + checked.parts > 0 {
                return Err(format!(
                    "drive {number}, of which everything was deleted, is not empty: {checked:?}"
                ));
            }
        }
        Ok(())
    }

    /// One drive rots, or has sectors that cannot be read: what can be read is what must be, and a scrub finds what reading finds.
    fn rot(&mut self) -> Result<(), String> {
        let rotten = self.any_device();
        let devices: Vec<SimDevice> = self.devices.iter().map(SimDevice::fork).collect();
        let (device, len) = (&devices[rotten], devices[rotten].len_bytes());
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
        self.report.count("rots");
        let outcome = in_runtime(async || {
            let Ok(drives) = self.drives(&devices) else {
                self.report.count("rots that opening found");
                return Ok(());
            };
            let Ok(pool) = Pool::open(drives.clone(), PoolOptions::default()).await else { return Ok(()) };
            let mut is_found = false;
            for client in &self.clients {
                if !client.compare_rotten(&pool, client).await? {
                    self.report.count("rots that reading found");
                    is_found = true;
                }
            }
            let mut damaged = Vec::new();
            for drive in &drives {
                damaged.extend(told("scrub of what is rotten", drive.scrub(|_| ()).await)?.damaged);
            }
            match is_found && damaged.is_empty() {
                true => Err("what reading found a scrub did not".into()),
                false => Ok(()),
            }
        });
        devices.iter().for_each(|device| self.fired.add(device.fired()));
        outcome
    }
}
