//! `tenon analyze compare`: runs the same workloads on several systems.

use super::scale::{Preset, ScaleFlags};
use super::{OutputFlags, wait_for_signal};
use crate::command::output::Progress;
use crate::command::units;
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::context::random_id;
use crate::process::environment;
use analyze::compare::{Comparison, Conditions, Plan, table};
use analyze::model::{Kind, Region, SECTOR_BYTES};
use analyze::setup::{Programs, SetupError, Sweep, System};
use analyze::workload::Workload;
use anyhow::{Context, Result};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use drive::device::FileDevice;
use drive::{Drive, OpenOptions, Use};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::SystemClock;

/// Compare storage nodes: MinIO, Tenon's directory store and its drive, each on fresh loop devices over one file.
///
/// Needs root. Everything that it creates is removed afterwards, also after Ctrl-C. The caches of the whole machine
/// are dropped before cold measurements.
///
/// With --json, results are written to the file after each system's turn. An interrupted comparison is resumed if the
/// same command is given again; further systems, workloads and rounds are added to the results.
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// Systems to compare, separated by commas: minio-xfs, minio-ext4, dir-xfs, dir-ext4, drive, drive-md5,
    /// minio-erasure, drive-array
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = DEFAULT_SYSTEMS)]
    systems: Vec<System>,
    /// Workloads to run, separated by commas (default: all but the aged ones)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Rounds of every measurement; aged workloads are measured once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
    /// Leave out the additional traced round
    #[arg(long)]
    no_trace: bool,
    /// Leave out the fio sweep of the device
    #[arg(long)]
    no_fio: bool,
    /// Length of the device (default: by the scale)
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    device_size: Option<u64>,
    /// Memory of each server, including its page cache; at the small scale, R-O and R-W use four times as much in
    /// objects, unless --objects is given
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::size_bytes)]
    memory: u64,
    /// Directory for the file behind the loop devices
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// The minio program (default: the one in PATH)
    #[arg(long, value_name = "FILE")]
    minio: Option<PathBuf>,
    #[command(flatten)]
    scale: ScaleFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Default systems: on one device, and on four devices of which two hold parity.
const DEFAULT_SYSTEMS: [System; 6] = [
    System::MinioXfs,
    System::DirXfs,
    System::Drive,
    System::DriveMd5,
    System::MinioErasure,
    System::DriveArray,
];

/// Total length of the objects of R-O and R-W at the small scale, as a multiple of the memory of a server.
const TIMES_MEMORY: u64 = 4;

impl Compare {
    pub(super) fn run(self) -> Result<ExitCode> {
        let programs = self.programs()?;
        let plan = self.plan(&programs)?;
        self.output.check_html()?;
        let earlier = self.output.json.as_deref().map(earlier).transpose()?.flatten();
        let context = ProcessContext::system()?;
        let progress = Progress::start();
        let show = |text: &str| progress.show(text);
        let save = |comparison: &Comparison| match &self.output.json {
            Some(path) => save(path, comparison),
            None => Ok(()),
        };
        let runtime = process::runtime()?;
        let context = (context.clock, context.entropy);
        let compared = runtime.block_on(async {
            // Dropping the run releases everything that it created.
            tokio::select! {
                compared = plan.run(&programs, context, &show, earlier, &save) => Ok(compared?),
                error = wait_for_signal() => Err(error),
            }
        })?;
        drop(progress);
        print!("{}", table(&compared));
        save(&compared)?;
        self.output.write_html(&compared)?;
        // After a failure a row is missing, but the other rows are valid.
        Ok(if compared.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn plan(&self, programs: &Programs) -> Result<Plan> {
        let workloads = match self.workloads.as_slice() {
            [] => Workload::ALL.into_iter().filter(|workload| !workload.is_aged()).collect(),
            named => named.to_vec(),
        };
        let device_bytes = self.device_size.unwrap_or(match self.scale.preset() {
            Preset::Tiny => 768 << 20,
            Preset::Small => 20 << 30,
            Preset::Paper => 96 << 30,
        });
        let mut scale = self.scale.scale();
        if self.scale.preset() == Preset::Small && !self.scale.has_objects() {
            scale.objects = (TIMES_MEMORY * self.memory).div_ceil(scale.size_bytes);
        }
        let conditions = Conditions {
            scale,
            device_bytes,
            memory_bytes: self.memory,
            build: build(&programs.tenon)?,
            machine: Conditions::this_machine(),
        };
        Ok(Plan {
            systems: self.systems.clone(),
            workloads,
            conditions,
            rounds: self.rounds,
            scratch: self.scratch.clone(),
            is_traced: !self.no_trace,
            sweep: (!self.no_fio).then(Sweep::default),
        })
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

/// Reads earlier measurements. Creates the file, empty, if it is missing.
fn earlier(path: &Path) -> Result<Option<Comparison>> {
    let text = match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => return Ok(None),
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Find out now that the file cannot be written, and not after the first measurement.
            super::write(path, "")?;
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    super::report::read(path, &text).map(Some)
}

/// Replaces the file as a whole, so that an interrupted write keeps the earlier one.
fn save(path: &Path, comparison: &Comparison) -> Result<(), SetupError> {
    let failed = |source| SetupError::file(path, source);
    let text = serde_json::to_string(comparison).map_err(|error| failed(error.into()))?;
    let new = path.with_extension("json.new");
    fs::write(&new, text).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}

/// Returns a text that identifies this build of tenon.
fn build(program: &Path) -> Result<String> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{}, {:016x}", env!("CARGO_PKG_VERSION"), hasher.finish()))
}

/// Returns the regions of a drive that no process serves. The log and small objects share zones, so they are not
/// distinguished.
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
