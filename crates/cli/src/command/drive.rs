//! `tenon drive`: an object drive, looked at without serving it.

use crate::bucket::World;
use crate::devices::{Devices, OpenDrive};
use crate::drives::{Drives, Opening};
use crate::exporting::{self, Exported};
use crate::held;
use crate::progress::Progress;
use crate::rebuilding;
use crate::scrubbing::{self, Rate};
use crate::units;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use drive::device::{Array, ArrayInfo, BlockDevice, FileDevice, Found, Io, MemberState, Rebuilt, Shape};
use drive::pool::Membership;
use drive::{Drive as Opened, FormatOptions, OpenOptions, Scrubbed, ZoneUse};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::Buckets;
use store::dir::{DirBuckets, DirOptions};
use tokio::runtime::Runtime;

/// Something is damaged.
pub(crate) const EXIT_DAMAGED: u8 = 4;

/// How many zones are shown in a line of a map.
const ZONES_A_LINE: usize = 64;

/// Make and look after an object drive: objects on a raw block device, without a file system.
///
/// `tenon serve drive:///DEVICE` serves its buckets by S3, `tenon mount drive:///DEVICE DIR` shows them as directories.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a drive of a block device or a file, or of several; what was there is gone
    Format {
        /// Block devices, or files that stand for them
        #[arg(required = true, value_name = "DEVICE")]
        devices: Vec<PathBuf>,
        /// Of several devices, so many hold data [default: all that hold no parity]
        #[arg(long, value_name = "K")]
        data: Option<usize>,
        /// Of several devices, so many hold parity: as many may be lost
        #[arg(long, value_name = "M")]
        parity: Option<usize>,
        /// Make the file, of this length; of several each
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        size: Option<u64>,
        /// The length of a zone, a power of two of at least 1 MiB; without it as fits the device
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        zone: Option<u64>,
        /// Also if there is something on it
        #[arg(long)]
        force: bool,
    },
    /// Make a device the one that is missing of a drive on several; what was on it is gone
    ///
    /// As long as the other devices have parity left, the drive is scrubbed first, so that nothing wrong is computed from a damaged device.
    /// If a process serves or mounts the drive, that process rebuilds the device, while it serves on.
    Rebuild {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...
        #[arg(required = true, value_name = "DRIVE")]
        devices: Vec<PathBuf>,
        /// The new device, or one that missed writes
        #[arg(required = true)]
        device: PathBuf,
        /// Also if there is something else on it
        #[arg(long)]
        force: bool,
        /// Do not scrub the drive first
        #[arg(long)]
        no_scrub: bool,
        /// If the drive is served, read at most so much per second [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        rate: Option<u64>,
    },
    /// Make one pool of several drives, or add empty drives to a pool
    ///
    /// A key of a pool lives on one of its drives. Name all: those that the pool has, and those that it is to have. Of drives that are of no
    /// pool yet one may have objects.
    Join {
        /// The drives: /dev/a /dev/b ..., or /dev/a+/dev/b+... or drive:///dev/a+/dev/b+..., each a device or an array:
        /// /dev/a+/dev/b,/dev/c,...
        #[arg(required = true, value_name = "DRIVES")]
        drives: Vec<PathBuf>,
    },
    /// Show what there is on a drive, or on the drives of a pool
    Info {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show what each zone is used for
    Map {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
    /// Compare the index with the space, block by block; objects are not read
    ///
    /// If the drive is too damaged to be opened, it says what is whole; `tenon drive export --before-damage` copies that.
    Check {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
    /// Read everything and compare it with its checksums; what other devices have right is written anew
    ///
    /// If a process serves or mounts the drive, that process scrubs it, while it serves on. If the command is interrupted, so is the scrub.
    Scrub {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Read at most so much per second [default: no limit; 64MiB if the drive is served]
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        rate: Option<u64>,
    },
    /// Copy objects into a directory, a directory for each bucket; `tenon serve dirs:///DIR` serves them
    ///
    /// Goes on where it was interrupted. Exit code 1 if an object was left out: it is damaged, cannot be read, or no file can be it.
    Export {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Of a pool, what there is on drives that are not missing
        #[arg(long)]
        degraded: bool,
        /// Copy what is whole of a damaged drive: the state before the first damaged frame of its log, and what can be read of its
        /// index; the rest is named on standard error
        #[arg(long)]
        before_damage: bool,
        /// Where to; made if it is not there
        #[arg(required = true)]
        dir: PathBuf,
        /// This bucket only
        #[arg(long, value_name = "NAME")]
        bucket: Option<String>,
    },
}

impl Drive {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = Runtime::new().context("cannot start")?;
        let world = World::real()?;
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        match self.action {
            Action::Format { devices, data, parity, size, zone: zone_bytes, force } => {
                let shape = shape(devices.len(), data, parity)?;
                NewDrive { paths: &devices, shape, size, zone_bytes, force }.make(&world)?;
            }
            Action::Rebuild { devices, device, force, no_scrub, rate } => {
                let devices = one_drive(&devices)?;
                if let Some(holder) = held::holder_of(&devices) {
                    return rebuilding::ask(&holder, &devices, &device, (force, no_scrub), rate);
                }
                return runtime.block_on(rebuild(&devices, &device, force, no_scrub, &world));
            }
            Action::Join { drives } => runtime.block_on(joining(&joined(&drives)?, &world))?,
            Action::Info { drives, json } => {
                runtime.block_on(shown(&named(&drives)?, json, read_only, &world))?;
            }
            Action::Map { drives } => {
                let open = async |devices: Devices| {
                    map(&devices.open(read_only, &world).await?.drive);
                    Ok(ExitCode::SUCCESS)
                };
                return runtime.block_on(on_each(&named(&drives)?, open));
            }
            Action::Check { drives } => {
                let check = async |devices: Devices| check_any(&devices, read_only, &world).await;
                return runtime.block_on(on_each(&named(&drives)?, check));
            }
            Action::Scrub { drives, rate } => {
                let drives = named(&drives)?;
                if let Some(code) = scrubbing::ask(&drives, rate)? {
                    return Ok(code);
                }
                let scrub = async |devices: Devices| scrub(&devices, rate, &world).await;
                return runtime.block_on(on_each(&drives, scrub));
            }
            Action::Export { drives, degraded, before_damage, dir, bucket } => {
                let (options, drives) = (OpenOptions { before_damage, ..read_only }, named(&drives)?);
                let export = async {
                    let opened = drives.open(Opening { options, degraded }, &world).await?;
                    let lost = opened.all().iter().map(told_losses).sum::<usize>();
                    // A pool would want all of its drives to be whole: what is left is read drive by drive.
                    let buckets = opened.exported(degraded || before_damage).await?;
                    let code = export(&buckets, &dir, bucket.as_deref(), &world).await?;
                    Ok(if lost == 0 { code } else { ExitCode::from(EXIT_DAMAGED) })
                };
                return runtime.block_on(export);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One word names drives; several are the devices of one.
fn named(words: &[PathBuf]) -> Result<Drives> {
    match words {
        [word] => Drives::parse(&word.to_string_lossy()),
        devices => Ok(Devices::of(devices.iter().map(PathBuf::as_path))?.into()),
    }
}

/// The drives to join: several words are several drives.
fn joined(words: &[PathBuf]) -> Result<Drives> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    match words.as_slice() {
        [word] => Drives::parse(word),
        words => Drives::each_of(words.iter().map(AsRef::as_ref)),
    }
}

/// The devices of the one drive that words name.
fn one_drive(words: &[PathBuf]) -> Result<Devices> {
    match words {
        [word] => Devices::parse(&word.to_string_lossy()),
        devices => Devices::of(devices.iter().map(PathBuf::as_path)),
    }
}

/// Does something to each drive, and says of several which it is. Returns the first exit code that tells of damage.
async fn on_each(drives: &Drives, act: impl AsyncFn(Devices) -> Result<ExitCode>) -> Result<ExitCode> {
    let all: Vec<&Devices> = drives.each().collect();
    let mut code = ExitCode::SUCCESS;
    for devices in &all {
        if all.len() > 1 {
            println!("{devices}");
        }
        let of_one = act((*devices).clone()).await?;
        if of_one != ExitCode::SUCCESS {
            code = of_one;
        }
    }
    Ok(code)
}

/// What several devices are to be; `None` for one.
fn shape(devices: usize, data: Option<usize>, parity: Option<usize>) -> Result<Option<Shape>> {
    match (devices, data, parity) {
        (1, None, None) => Ok(None),
        (1, ..) => bail!("one device has no parity: name more, or leave out --data and --parity"),
        (_, _, None) => {
            bail!(
                "of several devices --parity says how many may be lost; with 0 the loss of one is the loss of all"
            )
        }
        (_, Some(data), Some(parity)) if data + parity != devices => {
            bail!("{data} of data and {parity} of parity are not the {devices} devices that are named")
        }
        (_, _, Some(parity)) if parity >= devices => {
            bail!("with {parity} devices of parity none is left for data")
        }
        (_, _, Some(parity)) => Ok(Some(Shape { data: devices - parity, parity })),
    }
}

/// A drive that is to be made.
struct NewDrive<'a> {
    paths: &'a [PathBuf],
    shape: Option<Shape>,
    /// The length of the files that are made for it; none are made without.
    size: Option<u64>,
    zone_bytes: Option<u64>,
    force: bool,
}

impl NewDrive<'_> {
    /// Makes the drive. If that fails, files that were made for it are removed.
    fn make(&self, world: &World) -> Result<()> {
        let new: Vec<&PathBuf> = self.paths.iter().filter(|path| !path.exists()).collect();
        let made = self.format(world);
        if made.is_err() {
            for path in new {
                let _ = std::fs::remove_file(path);
            }
        }
        made
    }

    fn format(&self, world: &World) -> Result<()> {
        let named = Devices::of(self.paths.iter().map(PathBuf::as_path))?;
        let mut devices = Vec::new();
        for path in self.paths {
            devices.push((path.display().to_string(), empty_device(path, self.size, self.force)?));
        }
        let device = match self.shape {
            Some(shape) => array_of(devices, shape, world)?,
            None => devices.swap_remove(0).1.device(),
        };
        Opened::format(&device, FormatOptions { zone_bytes: self.zone_bytes }, &world.entropy)?;
        println!("{named} is a drive; serve it with `tenon serve drive://{named}`");
        Ok(())
    }
}

/// A device on which there is nothing.
fn empty_device(path: &Path, size: Option<u64>, force: bool) -> Result<Io> {
    let device = match size {
        Some(len_bytes) if !path.exists() => FileDevice::create(path, len_bytes)?,
        Some(_) => bail!("{} is there already; leave out --size to make a drive of it", path.display()),
        None => FileDevice::open(path)?,
    };
    if !force && !is_blank(&device)? {
        bail!(
            "there is something on {}; --force makes a drive of it all the same, and it is gone",
            path.display()
        );
    }
    Ok(Io::open(device))
}

fn array_of(devices: Vec<(String, Io)>, shape: Shape, world: &World) -> Result<Arc<dyn BlockDevice>> {
    Array::format(devices.clone(), shape, &world.entropy)?;
    Ok(Arc::new(Found::look(devices).open(false)?))
}

async fn rebuild(
    devices: &Devices,
    path: &Path,
    force: bool,
    no_scrub: bool,
    world: &World,
) -> Result<ExitCode> {
    let device = FileDevice::open(path)?;
    let is_blank = is_blank(&device)?;
    let io = Io::open(device);
    let array = Arc::new(devices.array_for(path, &io)?);
    if !force && !is_blank && !array.was_member(&io) {
        bail!("there is something on {}; --force rebuilds the drive on it all the same", path.display());
    }
    let mut code = ExitCode::SUCCESS;
    if array.spare() > 0 && !no_scrub {
        let (io, clock) = (Io::Array(array.clone()), world.clock.clone());
        let open = move || Opened::open(io, OpenOptions::default(), clock);
        let drive = tokio::task::spawn_blocking(open).await??;
        code = scrub_open(&drive, None).await?;
        drive.close().await?;
    }
    let rebuilt = rebuild_on(array, path, io, world).await?;
    Ok(rebuilding::show(path, rebuilt.member, rebuilt.rows_lost, code))
}

async fn rebuild_on(array: Arc<Array>, path: &Path, io: Io, world: &World) -> Result<Rebuilt> {
    let (name, entropy) = (path.display().to_string(), world.entropy.clone());
    let rebuilt = tokio::task::spawn_blocking(move || {
        let progress = Progress::start();
        let tell = |done: u64, all: u64| progress.tell(&format!("{}% rebuilt", done * 100 / all));
        array.rebuild(name, &io, &entropy, tell)
    });
    Ok(rebuilt.await??)
}

/// Whether the beginning, where file systems, partition tables and drives say what they are, is empty.
pub(crate) fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    let mut beginning = drive::device::Buffer::zeroed((128 << 10).min(device.len_bytes() as usize));
    device.read_at(0, &mut beginning).context("cannot read the device")?;
    Ok(beginning.iter().all(|&byte| byte == 0))
}

/// Makes a pool of drives.
async fn joining(drives: &Drives, world: &World) -> Result<()> {
    let opened = drives.open(Opening::default(), world).await?;
    let pool = drive::pool::join(&opened.all(), &world.entropy).await?;
    for drive in opened.all() {
        drive.close().await?;
    }
    println!(
        "{} drives are the pool {:016x}; serve it with `tenon serve drive://{drives}`",
        pool.drives.len(),
        pool.pool
    );
    Ok(())
}

/// Shows each of the drives, and what is free on all.
async fn shown(drives: &Drives, json: bool, options: OpenOptions, world: &World) -> Result<()> {
    let opened = drives.open(Opening { options, degraded: false }, world).await?;
    let mut described = Vec::new();
    for (devices, open) in &opened.drives {
        described.push((devices, open, open.drive.membership().await?));
    }
    if let [(_, open, membership)] = described.as_slice() {
        if json {
            println!("{}", info_json(open, membership.as_ref()));
        } else {
            info(open, membership.as_ref());
        }
        return Ok(());
    }
    let infos: Vec<drive::Info> = opened.all().iter().map(Opened::info).collect();
    let len_bytes: u64 = infos.iter().map(|info| info.len_bytes).sum();
    let available_bytes: u64 = infos.iter().map(|info| info.available_bytes).sum();
    if json {
        let each: Vec<_> = described.iter().map(|(_, open, of)| info_json(open, of.as_ref())).collect();
        let whole = serde_json::json!({
            "len_bytes": len_bytes, "available_bytes": available_bytes, "drives": each,
        });
        println!("{whole}");
        return Ok(());
    }
    for (devices, open, membership) in &described {
        println!("{devices}");
        info(open, membership.as_ref());
        println!();
    }
    println!("{} drives     {} MiB, {} available", described.len(), len_bytes >> 20, available_bytes >> 20);
    Ok(())
}

/// A drive's place in its pool, from 1, and how many drives that has.
fn place(drive: &Opened, membership: &Membership) -> (usize, usize) {
    (membership.number_of(drive.id()).map_or(0, |number| number + 1), membership.drives.len())
}

fn info_json(OpenDrive { drive, array }: &OpenDrive, membership: Option<&Membership>) -> serde_json::Value {
    let info = drive.info();
    let pool = |membership: &Membership| {
        let (number, drives) = place(drive, membership);
        serde_json::json!({ "id": format!("{:016x}", membership.pool), "drive": number, "drives": drives })
    };
    serde_json::json!({
        "id": format!("{:016x}", info.id),
        "len_bytes": info.len_bytes,
        "zone_bytes": info.zone_bytes,
        "available_bytes": info.available_bytes,
        "free_run_bytes_max": info.free_run_bytes_max,
        "pack_zones": info.pack_zones,
        "pack_live_bytes": info.pack_live_bytes,
        "tables": info.tables.len(),
        "table_bytes": info.table_bytes(),
        "table_entries": info.table_entries(),
        "log_bytes": info.log_bytes,
        "array": array.as_ref().map(array_json),
        "pool": membership.map(pool),
    })
}

fn info(OpenDrive { drive, array }: &OpenDrive, membership: Option<&Membership>) {
    let info = drive.info();
    let mib = |bytes: u64| bytes >> 20;
    println!("drive          {:016x}", info.id);
    println!("size           {} MiB in zones of {} MiB", mib(info.len_bytes), mib(info.zone_bytes));
    println!(
        "available      {} MiB, at most {} in one run",
        mib(info.available_bytes),
        mib(info.free_run_bytes_max)
    );
    println!("pack zones     {}, {} MiB of them alive", info.pack_zones, mib(info.pack_live_bytes));
    let (tables, entries) = (info.tables.len(), info.table_entries());
    println!("index          {tables} tables, {entries} entries, {} MiB", mib(info.table_bytes()));
    println!("log            {} MiB to read at the next opening", mib(info.log_bytes));
    if let Some(membership) = membership {
        let (number, drives) = place(drive, membership);
        println!("pool           {:016x}, drive {number} of {drives}", membership.pool);
    }
    array.iter().for_each(show_array);
}

fn show_array(array: &ArrayInfo) {
    println!("devices        {} of data, {} of parity", array.shape.data, array.shape.parity);
    for (number, member) in array.members.iter().enumerate() {
        let (state, name) = told(member);
        println!("{number:>14} {state}{}{name}", if name.is_empty() { "" } else { ": " });
    }
}

fn array_json(array: &ArrayInfo) -> serde_json::Value {
    let member = |member| {
        let (state, device) = told(member);
        serde_json::json!({ "state": state, "device": device })
    };
    let members: Vec<_> = array.members.iter().map(member).collect();
    serde_json::json!({ "data": array.shape.data, "parity": array.shape.parity, "members": members })
}

fn told(member: &MemberState) -> (&str, &str) {
    match member {
        MemberState::InSync(name) => ("in sync", name),
        MemberState::Stale(name) => ("stale", name),
        MemberState::Missing => ("missing", ""),
    }
}

fn map(drive: &Opened) {
    let zone_bytes = drive.info().zone_bytes;
    let digit = |bytes: u64| char::from_digit((bytes * 9 / zone_bytes) as u32, 10).unwrap_or('9');
    let zones: Vec<char> = drive
        .map()
        .into_iter()
        .map(|zone| match zone {
            ZoneUse::Free => '.',
            ZoneUse::Pack { live_bytes } => char::from(b'a' + (live_bytes * 9 / zone_bytes).min(9) as u8),
            ZoneUse::Runs { used_bytes } => digit(used_bytes),
        })
        .collect();
    println!(
        "a character is a zone of {} MiB: . free, 0-9 runs and how full, a-j pack zone and how much alive",
        zone_bytes >> 20
    );
    for (line, zones) in zones.chunks(ZONES_A_LINE).enumerate() {
        println!("{:>8} {}", line * ZONES_A_LINE, zones.iter().collect::<String>());
    }
}

/// Prints what an opening before the damage left out. Returns how much that is.
fn told_losses(drive: &Opened) -> usize {
    drive.losses().iter().for_each(|line| eprintln!("left out: {line}"));
    drive.losses().len()
}

/// Checks a drive or, where it cannot be opened, says what of it is whole.
async fn check_any(devices: &Devices, options: OpenOptions, world: &World) -> Result<ExitCode> {
    let error = match devices.open(options, world).await {
        Ok(opened) => return check(&opened.drive).await,
        Err(error) => error,
    };
    let is_damage = error.chain().any(|cause| cause.downcast_ref().is_some_and(drive::Error::is_damage));
    if !is_damage {
        return Err(error);
    }
    let before = OpenOptions { before_damage: true, ..options };
    // A drive without superblocks or manifest has said why.
    let Ok(opened) = devices.open(before, world).await else { return Err(error) };
    println!("the drive cannot be used: {:#}", error.root_cause());
    check(&opened.drive).await?;
    println!(
        "`tenon drive export --before-damage {devices} DIR` copies what is whole; keep the devices as they are until then"
    );
    Ok(ExitCode::from(EXIT_DAMAGED))
}

async fn check(drive: &Opened) -> Result<ExitCode> {
    let checked = drive.check().await?;
    checked.problems.iter().for_each(|line| println!("{line}"));
    let mib = |blocks: u64| (blocks * drive::device::BLOCK_BYTES) >> 20;
    println!(
        "{} objects, {} parts; {} MiB in runs, {} in pack zones, {} of the index, {} free; {} problems",
        checked.objects,
        checked.parts,
        mib(checked.object_blocks),
        mib(checked.zone_blocks),
        mib(checked.held_blocks),
        mib(checked.free_blocks),
        checked.problems.len()
    );
    Ok(if checked.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) })
}

async fn export(
    from: &[Arc<dyn Buckets>],
    dir: &Path,
    bucket: Option<&str>,
    world: &World,
) -> Result<ExitCode> {
    let usable = || format!("cannot use {}", dir.display());
    std::fs::create_dir_all(dir).with_context(usable)?;
    let (clock, entropy) = (world.clock.clone(), world.entropy.clone());
    let to = DirBuckets::open(dir, DirOptions::default(), clock, entropy).with_context(usable)?;
    let progress = Progress::start();
    let tell = |so_far: &Exported| progress.tell(&format!("{} objects copied", so_far.objects));
    let mut exported = Exported::default();
    for buckets in from {
        let left_out = |line: &str| println!("{line}");
        exporting::export(&**buckets, &to, bucket, &mut exported, left_out, &tell).await?;
    }
    drop(progress);
    let Exported { objects, bytes, kept, failed } = exported;
    println!("{objects} objects, {} MiB copied; {kept} were there; {failed} left out", bytes >> 20);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn scrub(devices: &Devices, rate: Option<u64>, world: &World) -> Result<ExitCode> {
    let open = |read_only| devices.open(OpenOptions { read_only, ..OpenOptions::default() }, world);
    let opened = open(true).await?;
    let drive = match opened.array {
        // What is damaged is mended where there is something to mend it from.
        Some(_) => {
            drop(opened);
            open(false).await?.drive
        }
        None => opened.drive,
    };
    scrub_open(&drive, rate).await
}

/// Scrubs a drive, and prints what was found.
async fn scrub_open(drive: &Opened, rate: Option<u64>) -> Result<ExitCode> {
    let progress = Progress::start();
    let tell = |so_far: &Scrubbed| progress.tell(&format!("{} objects read", so_far.objects));
    let scrubbed = drive.scrub_at(&Rate::new(rate), tell).await?;
    drop(progress);
    Ok(scrubbing::show(&scrubbed))
}
