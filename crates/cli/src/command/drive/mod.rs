//! `tenon drive`: makes, inspects, checks, scrubs, rebuilds and exports object drives.

use crate::bucket::ProcessContext;
use crate::bucket::devices::{Devices, OpenDrive};
use crate::bucket::drive_holder;
use crate::bucket::drives::{Drives, DrivesOptions};
use crate::bucket::export::{self, ExportTotals};
use crate::command::progress::Progress;
use crate::command::units;
use crate::serving::device_rebuild;
use crate::serving::scrub::{self, Rate};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use drive::device::{Array, ArrayInfo, BlockDevice, FileDevice, Found, Io, MemberState, Rebuilt, Shape};
use drive::pool::Membership;
use drive::{Drive as ObjectDrive, FormatOptions, OpenOptions, Scrubbed, ZoneUse};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::Buckets;
use store_dir::{DirBuckets, DirOptions};
use tokio::runtime::Runtime;

/// Exit code if damage was found.
pub(crate) const EXIT_DAMAGED: u8 = 4;

/// Zones in one line of a map.
const ZONES_PER_LINE: usize = 64;

/// Make and maintain object drives: objects on raw block devices, without a file system.
///
/// `tenon serve drive:///DEVICE` serves the buckets of a drive by S3, `tenon mount drive:///DEVICE DIR` mounts them
/// as directories.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a drive from one or several block devices or files; their contents are lost
    Format {
        /// Block devices, or files to use as such
        #[arg(required = true, value_name = "DEVICE")]
        devices: Vec<PathBuf>,
        /// With several devices, the number that hold data [default: all that hold no parity]
        #[arg(long, value_name = "K")]
        data: Option<usize>,
        /// With several devices, the number that hold parity: as many may be lost
        #[arg(long, value_name = "M")]
        parity: Option<usize>,
        /// Create the files, each with this length
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        size: Option<u64>,
        /// Length of a zone, a power of two of at least 1 MiB (default: chosen by the device's length)
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        zone: Option<u64>,
        /// Format devices even if they are not empty
        #[arg(long)]
        force: bool,
    },
    /// Rebuild the missing device of a drive on several devices; the contents of the new device are lost
    ///
    /// If the other devices have parity left, the drive is scrubbed first, so that no wrong data is computed from a
    /// damaged device. If a process serves or mounts the drive, that process rebuilds the device and continues to
    /// serve.
    Rebuild {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...
        #[arg(required = true, value_name = "DRIVE")]
        devices: Vec<PathBuf>,
        /// The new device, or a device that missed writes
        #[arg(required = true)]
        device: PathBuf,
        /// Rebuild even if the new device is not empty
        #[arg(long)]
        force: bool,
        /// Do not scrub the drive first
        #[arg(long)]
        no_scrub: bool,
        /// If the drive is served, read at most this many bytes per second [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        rate: Option<u64>,
    },
    /// Join several drives into a pool, or add empty drives to a pool
    ///
    /// Each key of a pool is stored on one of its drives. Name all drives: those in the pool, and those to add. Of
    /// the drives that are in no pool yet, only one may have objects.
    Join {
        /// The drives: /dev/a /dev/b ..., or /dev/a+/dev/b+... or drive:///dev/a+/dev/b+..., each a device or an array:
        /// /dev/a+/dev/b,/dev/c,...
        #[arg(required = true, value_name = "DRIVES")]
        drives: Vec<PathBuf>,
    },
    /// Show the layout and usage of a drive, or of the drives of a pool
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
    /// Check the index against the space map, block by block; objects are not read
    ///
    /// If the drive is too damaged to be opened, reports what is intact; `tenon drive export --before-damage` copies
    /// it.
    Check {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
    /// Read everything and verify its checksums; damaged blocks are rewritten from the other devices
    ///
    /// If a process serves or mounts the drive, that process scrubs it and continues to serve. Interrupting the
    /// command also stops the scrub.
    Scrub {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Read at most this many bytes per second [default: no limit; 64MiB if the drive is served]
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        rate: Option<u64>,
    },
    /// Copy objects to files, with a directory for each bucket; `tenon serve dirs:///DIR` serves them
    ///
    /// An interrupted export is resumed. The exit code is 1 if an object was left out: it is damaged, cannot be read,
    /// or cannot be stored as a file.
    Export {
        /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Export a pool although some of its drives are missing
        #[arg(long)]
        degraded: bool,
        /// Copy what is intact on a damaged drive: the state before the first damaged frame of its log, and the
        /// readable part of its index; losses are listed on standard error
        #[arg(long)]
        before_damage: bool,
        /// Target directory; created if it does not exist
        #[arg(required = true)]
        dir: PathBuf,
        /// Export only this bucket
        #[arg(long, value_name = "NAME")]
        bucket: Option<String>,
    },
}

impl Drive {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = Runtime::new().context("cannot start")?;
        let context = ProcessContext::system()?;
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        match self.action {
            Action::Format { devices, data, parity, size, zone: zone_bytes, force } => {
                let shape = shape(devices.len(), data, parity)?;
                NewDrive { paths: &devices, shape, size, zone_bytes, force }.make(&context)?;
            }
            Action::Rebuild { devices, device, force, no_scrub, rate } => {
                let devices = parse_one_drive(&devices)?;
                if let Some(holder) = drive_holder::holder_of_devices(&devices) {
                    return device_rebuild::request_rebuild(
                        &holder,
                        &devices,
                        &device,
                        (force, no_scrub),
                        rate,
                    );
                }
                return runtime.block_on(rebuild(&devices, &device, force, no_scrub, &context));
            }
            Action::Join { drives } => runtime.block_on(join(&parse_drives_to_join(&drives)?, &context))?,
            Action::Info { drives, json } => {
                runtime.block_on(show_info(&parse_drives(&drives)?, json, read_only, &context))?;
            }
            Action::Map { drives } => {
                let open = async |devices: Devices| {
                    print_map(&devices.open(read_only, &context).await?.drive);
                    Ok(ExitCode::SUCCESS)
                };
                return runtime.block_on(on_each(&parse_drives(&drives)?, open));
            }
            Action::Check { drives } => {
                let check = async |devices: Devices| check_drive(&devices, read_only, &context).await;
                return runtime.block_on(on_each(&parse_drives(&drives)?, check));
            }
            Action::Scrub { drives, rate } => {
                let drives = parse_drives(&drives)?;
                if let Some(code) = scrub::request_scrub(&drives, rate)? {
                    return Ok(code);
                }
                let scrub = async |devices: Devices| scrub(&devices, rate, &context).await;
                return runtime.block_on(on_each(&drives, scrub));
            }
            Action::Export { drives, degraded, before_damage, dir, bucket } => {
                let (options, drives) = (OpenOptions { before_damage, ..read_only }, parse_drives(&drives)?);
                let export = async {
                    let opened = drives.open(DrivesOptions { options, degraded }, &context).await?;
                    let lost = opened.all().iter().map(print_losses).sum::<usize>();
                    // A pool can only be opened if all of its drives are intact, so what is left is read drive by
                    // drive.
                    let buckets = opened.buckets_to_export(degraded || before_damage).await?;
                    let code = export(&buckets, &dir, bucket.as_deref(), &context).await?;
                    Ok(if lost == 0 { code } else { ExitCode::from(EXIT_DAMAGED) })
                };
                return runtime.block_on(export);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Parses drives. One word names one or several drives; several words are the devices of one drive.
fn parse_drives(words: &[PathBuf]) -> Result<Drives> {
    match words {
        [word] => Drives::parse(&word.to_string_lossy()),
        devices => Ok(Devices::of(devices.iter().map(PathBuf::as_path))?.into()),
    }
}

/// Parses the drives to join. Several words are several drives.
fn parse_drives_to_join(words: &[PathBuf]) -> Result<Drives> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    match words.as_slice() {
        [word] => Drives::parse(word),
        words => Drives::parse_each(words.iter().map(AsRef::as_ref)),
    }
}

/// Parses the devices of one drive.
fn parse_one_drive(words: &[PathBuf]) -> Result<Devices> {
    match words {
        [word] => Devices::parse(&word.to_string_lossy()),
        devices => Devices::of(devices.iter().map(PathBuf::as_path)),
    }
}

/// Runs `act` on each drive, and prints which drive it is if there are several. Returns the last exit code that is
/// not success.
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

/// Returns the shape of the array that several devices form; `None` for one device.
fn shape(devices: usize, data: Option<usize>, parity: Option<usize>) -> Result<Option<Shape>> {
    match (devices, data, parity) {
        (1, None, None) => Ok(None),
        (1, ..) => {
            bail!("one device cannot have parity: name more devices, or leave out --data and --parity")
        }
        (_, _, None) => {
            bail!(
                "give --parity, the number of devices that may be lost; with 0, losing one device loses the whole drive"
            )
        }
        (_, Some(data), Some(parity)) if data + parity != devices => {
            bail!("--data {data} and --parity {parity} do not add up to the {devices} devices that are named")
        }
        (_, _, Some(parity)) if parity >= devices => {
            bail!("--parity {parity} leaves no device for data")
        }
        (_, _, Some(parity)) => Ok(Some(Shape { data: devices - parity, parity })),
    }
}

/// A drive to format.
struct NewDrive<'a> {
    paths: &'a [PathBuf],
    shape: Option<Shape>,
    /// Length of the files to create, in bytes; `None` to use existing devices.
    size: Option<u64>,
    zone_bytes: Option<u64>,
    force: bool,
}

impl NewDrive<'_> {
    /// Formats the drive. If that fails, removes the files that were created for it.
    fn make(&self, context: &ProcessContext) -> Result<()> {
        let new: Vec<&PathBuf> = self.paths.iter().filter(|path| !path.exists()).collect();
        let made = self.format(context);
        if made.is_err() {
            for path in new {
                let _ = std::fs::remove_file(path);
            }
        }
        made
    }

    fn format(&self, context: &ProcessContext) -> Result<()> {
        let named = Devices::of(self.paths.iter().map(PathBuf::as_path))?;
        let mut devices = Vec::new();
        for path in self.paths {
            devices.push((path.display().to_string(), empty_device(path, self.size, self.force)?));
        }
        let device = match self.shape {
            Some(shape) => array_of(devices, shape, context)?,
            None => devices.swap_remove(0).1.device(),
        };
        ObjectDrive::format(&device, FormatOptions { zone_bytes: self.zone_bytes }, &context.entropy)?;
        println!("formatted {named} as a drive; serve it with `tenon serve drive://{named}`");
        Ok(())
    }
}

/// Opens or creates a device. Refuses one that is not empty, unless `force` is set.
fn empty_device(path: &Path, size: Option<u64>, force: bool) -> Result<Io> {
    let device = match size {
        Some(len_bytes) if !path.exists() => FileDevice::create(path, len_bytes)?,
        Some(_) => bail!("{} already exists; leave out --size to format it", path.display()),
        None => FileDevice::open(path)?,
    };
    if !force && !is_blank(&device)? {
        bail!("{} is not empty; --force formats it, and its contents are lost", path.display());
    }
    Ok(Io::open(device))
}

fn array_of(
    devices: Vec<(String, Io)>,
    shape: Shape,
    context: &ProcessContext,
) -> Result<Arc<dyn BlockDevice>> {
    Array::format(devices.clone(), shape, &context.entropy)?;
    Ok(Arc::new(Found::look(devices).open(false)?))
}

async fn rebuild(
    devices: &Devices,
    path: &Path,
    force: bool,
    no_scrub: bool,
    context: &ProcessContext,
) -> Result<ExitCode> {
    let device = FileDevice::open(path)?;
    let is_blank = is_blank(&device)?;
    let io = Io::open(device);
    let array = Arc::new(devices.array_without(path, &io)?);
    if !force && !is_blank && !array.was_member(&io) {
        bail!("{} is not empty; --force rebuilds the drive on it, and its contents are lost", path.display());
    }
    let mut code = ExitCode::SUCCESS;
    if array.spare() > 0 && !no_scrub {
        let (io, clock) = (Io::Array(array.clone()), context.clock.clone());
        let open = move || ObjectDrive::open(io, OpenOptions::default(), clock);
        let drive = tokio::task::spawn_blocking(open).await??;
        code = scrub_open(&drive, None).await?;
        drive.close().await?;
    }
    let rebuilt = rebuild_on(array, path, io, context).await?;
    Ok(device_rebuild::print_outcome(path, rebuilt.member, rebuilt.rows_lost, code))
}

async fn rebuild_on(array: Arc<Array>, path: &Path, io: Io, context: &ProcessContext) -> Result<Rebuilt> {
    let (name, entropy) = (path.display().to_string(), context.entropy.clone());
    let rebuilt = tokio::task::spawn_blocking(move || {
        let progress = Progress::start();
        let show = |done: u64, all: u64| progress.show(&format!("{}% rebuilt", done * 100 / all));
        array.rebuild(name, &io, &entropy, show)
    });
    Ok(rebuilt.await??)
}

/// Returns whether the beginning of a device is all zeros. File systems, partition tables and drives have their
/// signatures there.
pub(crate) fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    let mut beginning = drive::device::Buffer::zeroed((128 << 10).min(device.len_bytes() as usize));
    device.read_at(0, &mut beginning).context("cannot read the device")?;
    Ok(beginning.iter().all(|&byte| byte == 0))
}

/// Joins drives into a pool.
async fn join(drives: &Drives, context: &ProcessContext) -> Result<()> {
    let opened = drives.open(DrivesOptions::default(), context).await?;
    let pool = drive::pool::join(&opened.all(), &context.entropy).await?;
    for drive in opened.all() {
        drive.close().await?;
    }
    println!(
        "joined {} drives into the pool {:016x}; serve it with `tenon serve drive://{drives}`",
        pool.drives.len(),
        pool.pool
    );
    Ok(())
}

/// Prints each of the drives, and the free space of all.
async fn show_info(
    drives: &Drives,
    json: bool,
    options: OpenOptions,
    context: &ProcessContext,
) -> Result<()> {
    let opened = drives.open(DrivesOptions { options, degraded: false }, context).await?;
    let mut described = Vec::new();
    for (devices, open) in &opened.drives {
        described.push((devices, open, open.drive.membership().await?));
    }
    if let [(_, open, membership)] = described.as_slice() {
        if json {
            println!("{}", info_json(open, membership.as_ref()));
        } else {
            print_info(open, membership.as_ref());
        }
        return Ok(());
    }
    let infos: Vec<drive::Info> = opened.all().iter().map(ObjectDrive::info).collect();
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
        print_info(open, membership.as_ref());
        println!();
    }
    println!("{} drives     {} MiB, {} available", described.len(), len_bytes >> 20, available_bytes >> 20);
    Ok(())
}

/// Returns a drive's position in its pool, from 1, and the number of the pool's drives.
fn position(drive: &ObjectDrive, membership: &Membership) -> (usize, usize) {
    (membership.number_of(drive.id()).map_or(0, |number| number + 1), membership.drives.len())
}

fn info_json(OpenDrive { drive, array }: &OpenDrive, membership: Option<&Membership>) -> serde_json::Value {
    let info = drive.info();
    let pool = |membership: &Membership| {
        let (number, drives) = position(drive, membership);
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

fn print_info(OpenDrive { drive, array }: &OpenDrive, membership: Option<&Membership>) {
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
        let (number, drives) = position(drive, membership);
        println!("pool           {:016x}, drive {number} of {drives}", membership.pool);
    }
    array.iter().for_each(print_array);
}

fn print_array(array: &ArrayInfo) {
    println!("devices        {} of data, {} of parity", array.shape.data, array.shape.parity);
    for (number, member) in array.members.iter().enumerate() {
        let (state, name) = member_state(member);
        println!("{number:>14} {state}{}{name}", if name.is_empty() { "" } else { ": " });
    }
}

fn array_json(array: &ArrayInfo) -> serde_json::Value {
    let member = |member| {
        let (state, device) = member_state(member);
        serde_json::json!({ "state": state, "device": device })
    };
    let members: Vec<_> = array.members.iter().map(member).collect();
    serde_json::json!({ "data": array.shape.data, "parity": array.shape.parity, "members": members })
}

fn member_state(member: &MemberState) -> (&str, &str) {
    match member {
        MemberState::InSync(name) => ("in sync", name),
        MemberState::Stale(name) => ("stale", name),
        MemberState::Missing => ("missing", ""),
    }
}

fn print_map(drive: &ObjectDrive) {
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
        "each character is a zone of {} MiB: . free, 0-9 runs by fill, a-j pack zone by live data",
        zone_bytes >> 20
    );
    for (line, zones) in zones.chunks(ZONES_PER_LINE).enumerate() {
        println!("{:>8} {}", line * ZONES_PER_LINE, zones.iter().collect::<String>());
    }
}

/// Prints what opening the drive before its damage left out. Returns the number of losses.
fn print_losses(drive: &ObjectDrive) -> usize {
    drive.losses().iter().for_each(|line| eprintln!("left out: {line}"));
    drive.losses().len()
}

/// Checks a drive. If damage keeps it from being opened, reports what is intact.
async fn check_drive(devices: &Devices, options: OpenOptions, context: &ProcessContext) -> Result<ExitCode> {
    let error = match devices.open(options, context).await {
        Ok(opened) => return check_open(&opened.drive).await,
        Err(error) => error,
    };
    let is_damage = error.chain().any(|cause| cause.downcast_ref().is_some_and(drive::Error::is_damage));
    if !is_damage {
        return Err(error);
    }
    let before = OpenOptions { before_damage: true, ..options };
    // Without superblock or manifest nothing can be opened; the first error says why.
    let Ok(opened) = devices.open(before, context).await else { return Err(error) };
    println!("the drive cannot be used: {:#}", error.root_cause());
    check_open(&opened.drive).await?;
    println!(
        "`tenon drive export --before-damage {devices} DIR` copies what is intact; do not change the devices before that"
    );
    Ok(ExitCode::from(EXIT_DAMAGED))
}

async fn check_open(drive: &ObjectDrive) -> Result<ExitCode> {
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
    context: &ProcessContext,
) -> Result<ExitCode> {
    let usable = || format!("cannot use {}", dir.display());
    std::fs::create_dir_all(dir).with_context(usable)?;
    let (clock, entropy) = (context.clock.clone(), context.entropy.clone());
    let to = DirBuckets::open(dir, DirOptions::default(), clock, entropy).with_context(usable)?;
    let progress = Progress::start();
    let show = |so_far: &ExportTotals| progress.show(&format!("{} objects copied", so_far.objects));
    let mut exported = ExportTotals::default();
    for buckets in from {
        let left_out = |line: &str| println!("{line}");
        export::export(&**buckets, &to, bucket, &mut exported, left_out, &show).await?;
    }
    drop(progress);
    let ExportTotals { objects, bytes, kept, failed } = exported;
    println!("{objects} objects, {} MiB copied; {kept} already exported; {failed} left out", bytes >> 20);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn scrub(devices: &Devices, rate: Option<u64>, context: &ProcessContext) -> Result<ExitCode> {
    let open = |read_only| devices.open(OpenOptions { read_only, ..OpenOptions::default() }, context);
    let opened = open(true).await?;
    let drive = match opened.array {
        // An array is opened for writing, so that damaged blocks are repaired from its other devices.
        Some(_) => {
            drop(opened);
            open(false).await?.drive
        }
        None => opened.drive,
    };
    scrub_open(&drive, rate).await
}

/// Scrubs an open drive, and prints the outcome. Returns the exit code.
async fn scrub_open(drive: &ObjectDrive, rate: Option<u64>) -> Result<ExitCode> {
    let progress = Progress::start();
    let show = |so_far: &Scrubbed| progress.show(&format!("{} objects read", so_far.objects));
    let scrubbed = drive.scrub_at(&Rate::new(rate), show).await?;
    drop(progress);
    Ok(scrub::print_scrubbed(&scrubbed))
}
