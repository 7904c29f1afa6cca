//! `tenon drive`: an object drive, looked at without serving it.

use crate::bucket::World;
use crate::local::open_drive;
use crate::progress::Progress;
use crate::units;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use drive::device::{BlockDevice, FileDevice};
use drive::{Drive as Opened, FormatOptions, Scrubbed, ZoneUse};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Something is damaged.
const EXIT_DAMAGED: u8 = 4;

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
    /// Make a drive of a block device or a file; what was there is gone
    Format {
        /// A block device, or a file that stands for one
        device: PathBuf,
        /// Make the file, of this length
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        size: Option<u64>,
        /// The length of a zone, a power of two of at least 1 MiB; without it as fits the device
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        zone: Option<u64>,
        /// Also if there is something on it
        #[arg(long)]
        force: bool,
    },
    /// Show what there is on a drive
    Info {
        /// The drive's device
        device: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show what each zone is used for
    Map {
        /// The drive's device
        device: PathBuf,
    },
    /// Compare the index with the space, block by block; objects are not read
    Check {
        /// The drive's device
        device: PathBuf,
    },
    /// Read everything and compare it with its checksums
    Scrub {
        /// The drive's device
        device: PathBuf,
    },
}

impl Drive {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = Runtime::new().context("cannot start")?;
        let world = World::real()?;
        let open = |device: &Path| runtime.block_on(open_drive(device, true, &world));
        match self.action {
            Action::Format { device, size, zone, force } => format(&device, size, zone, force, &world)?,
            Action::Info { device, json } => info(&open(&device)?, json),
            Action::Map { device } => map(&open(&device)?),
            Action::Check { device } => return runtime.block_on(check(&open(&device)?)),
            Action::Scrub { device } => return runtime.block_on(scrub(&open(&device)?)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn format(path: &Path, size: Option<u64>, zone: Option<u64>, force: bool, world: &World) -> Result<()> {
    let device = match size {
        Some(len_bytes) if !path.exists() => FileDevice::create(path, len_bytes)?,
        Some(_) => bail!("{} is there already; leave out --size to make a drive of it", path.display()),
        None => FileDevice::open(path)?,
    };
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    if !force && !is_blank(&*device)? {
        bail!(
            "there is something on {}; --force makes a drive of it all the same, and it is gone",
            path.display()
        );
    }
    Opened::format(&device, FormatOptions { zone_bytes: zone }, &world.entropy)?;
    println!("{} is a drive; serve it with `tenon serve drive://{0}`", absolute(path).display());
    Ok(())
}

/// Whether the beginning, where file systems, partition tables and drives say what they are, is empty.
fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    let mut beginning = drive::device::Buffer::zeroed((128 << 10).min(device.len_bytes() as usize));
    device.read_at(0, &mut beginning).context("cannot read the device")?;
    Ok(beginning.iter().all(|&byte| byte == 0))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn info(drive: &Opened, json: bool) {
    let info = drive.info();
    let entries: u64 = info.tables.iter().map(|(_, entries)| entries).sum();
    let table_bytes: u64 = info.tables.iter().map(|(len_bytes, _)| len_bytes).sum();
    if json {
        let shown = serde_json::json!({
            "id": format!("{:016x}", info.id),
            "len_bytes": info.len_bytes,
            "zone_bytes": info.zone_bytes,
            "available_bytes": info.available_bytes,
            "free_run_bytes_max": info.free_run_bytes_max,
            "pack_zones": info.pack_zones,
            "pack_live_bytes": info.pack_live_bytes,
            "tables": info.tables.len(),
            "table_bytes": table_bytes,
            "table_entries": entries,
            "log_bytes": info.log_bytes,
        });
        return println!("{shown}");
    }
    let mib = |bytes: u64| bytes >> 20;
    println!("drive          {:016x}", info.id);
    println!("size           {} MiB in zones of {} MiB", mib(info.len_bytes), mib(info.zone_bytes));
    println!(
        "available      {} MiB, at most {} in one run",
        mib(info.available_bytes),
        mib(info.free_run_bytes_max)
    );
    println!("pack zones     {}, {} MiB of them alive", info.pack_zones, mib(info.pack_live_bytes));
    println!("index          {} tables, {entries} entries, {} MiB", info.tables.len(), mib(table_bytes));
    println!("log            {} MiB to read at the next opening", mib(info.log_bytes));
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

async fn scrub(drive: &Opened) -> Result<ExitCode> {
    let progress = Progress::start();
    let tell = |so_far: &Scrubbed| progress.tell(&format!("{} objects read", so_far.objects));
    let scrubbed = drive.scrub(tell).await?;
    drop(progress);
    scrubbed.damaged.iter().for_each(|line| println!("{line}"));
    let damaged = scrubbed.damaged.len();
    println!("{} objects, {} MiB read, {damaged} damaged", scrubbed.objects, scrubbed.bytes >> 20);
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) })
}
