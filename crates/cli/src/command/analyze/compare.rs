//! `tenon analyze compare`: the same workloads on several systems, in one run.

use super::scale::{Preset, ScaleFlags};
use super::{OutputFlags, a_signal};
use crate::bucket::World;
use crate::command::format::random_id;
use crate::environment;
use crate::progress::Progress;
use crate::units;
use analyze::compare::{Plan, table};
use analyze::model::{Kind, Region, SECTOR_BYTES};
use analyze::setup::{Programs, Sweep, System};
use analyze::workload::Workload;
use anyhow::{Context, Result};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use drive::device::FileDevice;
use drive::{Drive, OpenOptions, Use};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::SystemClock;
use tokio::runtime::Runtime;

/// Compare storage nodes: MinIO, Tenon's directory store and its drive, each on a fresh loop device over one file.
///
/// Needs root. Everything that it makes is gone afterwards, also after Ctrl-C. Caches of the whole machine are dropped
/// before what is measured cold.
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// Which systems, separated by commas: minio-xfs, minio-ext4, minio-erasure, dir-xfs, dir-ext4, drive
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = DEFAULT_SYSTEMS)]
    systems: Vec<System>,
    /// Which workloads, separated by commas; all if not given
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// How often everything is measured; what is aged once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
    /// Leave out the additional round under a trace
    #[arg(long)]
    no_trace: bool,
    /// Leave out fio's sweep of the device
    #[arg(long)]
    no_fio: bool,
    /// Length of the device (default: by the scale)
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    device_size: Option<u64>,
    /// Memory for each server and the pages it has cached
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = units::size_bytes)]
    memory: u64,
    /// Directory for the file under the devices
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// The minio program (default: the one in the path)
    #[arg(long, value_name = "FILE")]
    minio: Option<PathBuf>,
    #[command(flatten)]
    scale: ScaleFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// All that there are.
const DEFAULT_SYSTEMS: [System; 6] = [
    System::MinioXfs,
    System::MinioExt4,
    System::MinioErasure,
    System::DirXfs,
    System::DirExt4,
    System::Drive,
];

impl Compare {
    pub(super) fn run(self) -> Result<ExitCode> {
        let plan = self.plan();
        self.output.check()?;
        let programs = self.programs()?;
        let world = World::real()?;
        let progress = Progress::start();
        let tell = |text: &str| progress.tell(text);
        let runtime = Runtime::new().context("cannot start")?;
        let compared = runtime.block_on(async {
            // Dropped, it gives everything back.
            tokio::select! {
                compared = plan.run(&programs, world.clock, world.entropy, &tell) => Ok(compared?),
                error = a_signal() => Err(error),
            }
        })?;
        drop(progress);
        let shown = table(&compared);
        print!("{shown}");
        self.output.write(&serde_json::to_string_pretty(&compared)?, &compared.systems, &shown)?;
        // A row is missing; what is there is true.
        Ok(if compared.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn plan(&self) -> Plan {
        let workloads = match self.workloads.as_slice() {
            [] => Workload::ALL.to_vec(),
            named => named.to_vec(),
        };
        let device_bytes = self.device_size.unwrap_or(match self.scale.preset() {
            Preset::Tiny => 768 << 20,
            Preset::Small => 7 << 30,
            Preset::Paper => 96 << 30,
        });
        Plan {
            systems: self.systems.clone(),
            workloads,
            scale: self.scale.scale(),
            rounds: self.rounds,
            device_bytes,
            memory_bytes: self.memory,
            scratch: self.scratch.clone(),
            is_traced: !self.no_trace,
            sweep: (!self.no_fio).then(Sweep::default),
        }
    }

    fn programs(&self) -> Result<Programs> {
        let tenon = std::env::current_exe().context("cannot find this program's own file")?;
        let minio = self.minio.clone().or_else(|| environment::program("minio"));
        let secret = format!("{:016x}{:016x}", random_id()?, random_id()?);
        Ok(Programs {
            minio,
            tenon,
            secret,
            regions: |device| regions(device).map_err(|error| format!("{error:#}")),
        })
    }
}

/// What lies where on a drive that nobody serves. Log and small objects are in the same zones: these are not told apart.
fn regions(device: &Path) -> Result<Vec<Region>> {
    let device: Arc<dyn drive::device::BlockDevice> = Arc::new(FileDevice::open_read_only(device)?);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let areas = Drive::open(device, options, Arc::new(SystemClock))?.layout()?;
    let region = |area: drive::Area| Region {
        sectors: area.at / SECTOR_BYTES..(area.at + area.len_bytes) / SECTOR_BYTES,
        kind: match area.what {
            Use::Root | Use::Index => Kind::Index,
            Use::Data => Kind::ObjectData,
            Use::Sums => Kind::ObjectMetadata,
            Use::Pack => Kind::Unnamed,
        },
    };
    Ok(areas.into_iter().map(region).collect())
}
