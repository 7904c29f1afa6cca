//! The actions of the paper's program: `tenon bench install`, `up`, `down`, `list`, `clean-all`, and those on the bucket of one target. Also
//! the hidden `hold`, the process that holds a mount between `up` and `down`.

use super::run::MOUNT_TIMEOUT;
use super::surroundings::{Places, platforms, stop_at_signal};
use crate::command::output::print_line;
use crate::command::units;
use crate::process::environment;
use anyhow::{Context, Result, anyhow};
use bench::{Limits, Mounting, Package, Platform, PlatformKind, Programs, Target, Workbench};
use clap::Args;
use harness::{Shape, Table};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Time limit of an unmount, which may have to upload, and of jobs.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(600);

/// Install the programs of packages, from Debian, PyPI, the Go proxy or crates.io.
#[derive(Debug, Args)]
pub(super) struct Install {
    /// Packages
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    /// Time limit of an installation
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    places: Places,
}

/// Time limit of an installation that a run needs.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Installs what a run needs and a package manager has: programs of packages, and MinIO for its platform. The failure of a package is printed,
/// and its rows in the results say why there is no result. Fails if MinIO cannot be installed.
pub(super) fn install_missing(places: &Places, targets: &[Target], platforms: &[Platform]) -> Result<()> {
    let programs = places.programs(targets.iter().map(|target| &target.package))?;
    let bench = workbench(&programs, places, Shape::default());
    let is_minio = |platform: &Platform| matches!(platform.kind, PlatformKind::Minio);
    if programs.minio.is_none() && platforms.iter().any(is_minio) {
        eprintln!("building MinIO ...");
        bench.install_minio(INSTALL_TIMEOUT)?;
    }
    let mut known = BTreeSet::new();
    let is_missing = |package: &&Package| {
        package.program.as_ref().is_some_and(|program| programs.find(&program.name).is_none())
    };
    let missing = targets.iter().map(|target| &target.package).filter(is_missing);
    for package in missing.filter(|package| package.is_installable() && known.insert(&package.name)) {
        eprintln!("installing {} ...", package.name);
        if let Err(error) = bench.install(package, INSTALL_TIMEOUT) {
            eprintln!("{}: {error}", package.name);
        }
    }
    Ok(())
}

/// Mount a target, and print the mount point. A bucket is created unless one is named.
///
/// A process of the testbed holds the mount until `tenon bench down`.
#[derive(Debug, Args)]
pub(super) struct Up {
    #[command(flatten)]
    place: Place,
    /// Mount point (default: a directory of the testbed)
    dir: Option<PathBuf>,
    /// An existing bucket
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
}

/// Unmount a target. Its bucket stays.
#[derive(Debug, Args)]
pub(super) struct Down {
    /// Package, or package and version
    target: String,
    #[command(flatten)]
    places: Places,
}

/// Create a bucket for a target, and print its name.
#[derive(Debug, Args)]
pub(super) struct CreateBucket {
    #[command(flatten)]
    place: Place,
    /// Name (default: a new one)
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
}

/// Remove all objects of a target's bucket.
#[derive(Debug, Args)]
pub(super) struct CleanBucket {
    #[command(flatten)]
    change: Change,
}

/// Remove a target's bucket with its objects.
#[derive(Debug, Args)]
pub(super) struct RemoveBucket {
    #[command(flatten)]
    change: Change,
}

/// End all mounts of the testbed, and remove the buckets that it created and what it keeps; installed programs stay.
#[derive(Debug, Args)]
pub(super) struct CleanAll {
    #[command(flatten)]
    places: Places,
}

/// List targets with their programs, buckets and mounts.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Package, or package and version (default: all)
    target: Option<String>,
    #[command(flatten)]
    places: Places,
}

/// Hold a mount; `tenon bench up` starts this.
#[derive(Debug, Args)]
pub(super) struct Hold {
    #[command(flatten)]
    up: Up,
}

/// A target on a platform.
#[derive(Debug, Args)]
struct Place {
    /// Package, or package and version
    target: String,
    /// Object store: minio, tenon-dir, tenon-drive, directory, aws, or NAME=URL, with settings
    #[arg(long, value_name = "PLATFORM", default_value = "minio")]
    platform: String,
    /// Round-trip time to add to each request, like 20ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::duration)]
    latency: Duration,
    /// Bandwidth to leave in each direction, like 1Gbit
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth_bytes)]
    bandwidth: Option<u64>,
    #[command(flatten)]
    places: Places,
}

/// A change of a bucket.
#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    place: Place,
    /// The bucket (default: the one that was created for the target)
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Change the bucket although the testbed did not create it
    #[arg(long, requires = "bucket")]
    not_mine: bool,
}

impl Place {
    fn target(&self) -> Result<Target> {
        self.places.target(&self.target)
    }

    fn platform(&self) -> Result<Platform> {
        Ok(platforms(std::slice::from_ref(&self.platform))?.remove(0))
    }

    fn shape(&self) -> Shape {
        Shape { latency: self.latency, bandwidth_bytes: self.bandwidth }
    }
}

/// Returns the workbench, which carries out all actions.
fn workbench<'p>(programs: &'p Programs, places: &Places, shape: Shape) -> Workbench<'p> {
    Workbench {
        programs,
        state: places.state(),
        environment: &environment::variable,
        limits: Limits { mount: MOUNT_TIMEOUT, job: UNMOUNT_TIMEOUT, unmount: UNMOUNT_TIMEOUT },
        shape,
    }
}

impl Install {
    pub(super) fn run(self) -> Result<ExitCode> {
        let programs = self.places.programs([].into_iter())?;
        let bench = workbench(&programs, &self.places, Shape::default());
        let mut exit = ExitCode::SUCCESS;
        for name in &self.targets {
            let package = self.places.target(name)?.package;
            match bench.install(&package, self.timeout) {
                Ok(Some(path)) => print_line(&format!("{name}: {}", path.display()))?,
                Ok(None) => print_line(&format!("{name}: needs no program, or its program is not in PATH"))?,
                Err(error) => {
                    eprintln!("{name}: {error}");
                    exit = ExitCode::FAILURE;
                }
            }
        }
        Ok(exit)
    }
}

impl Up {
    pub(super) fn run(self) -> Result<ExitCode> {
        let state = self.place.places.state();
        std::fs::create_dir_all(&state).with_context(|| format!("cannot make {}", state.display()))?;
        // The process that holds the mount outlives this one, so it must not keep the standard error of this one open.
        let log = state.join(format!("hold-{}.log", self.place.target));
        let errors = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut holding = Command::new(program);
        holding.args(["bench", "hold"]).args(arguments_after_action());
        holding.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let mut child = holding.spawn().context("cannot start the process that holds the mount")?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        match line.trim() {
            "" => {
                child.wait()?;
                eprint!("{}", std::fs::read_to_string(&log)?);
                Ok(ExitCode::FAILURE)
            }
            point => {
                print_line(point)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Returns the arguments after `bench up`, which `bench hold` understands as well.
fn arguments_after_action() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip_while(|word| word != "up").skip(1)
}

impl Hold {
    pub(super) fn run(self) -> Result<ExitCode> {
        let place = &self.up.place;
        let (target, platform) = (place.target()?, place.platform()?);
        let programs = place.places.programs([&target.package].into_iter())?;
        let point = self.up.dir.as_ref().map(std::path::absolute).transpose()?;
        let mounting =
            Mounting { target: &target, platform: &platform, bucket: self.up.bucket.clone(), point };
        let is_stopped = stop_at_signal("")?;
        let ready = |station: &bench::Station| {
            // The command that waits for this line may have gone.
            let _ = print_line(&station.point.display().to_string());
        };
        workbench(&programs, &place.places, place.shape()).hold(&mounting, &ready, &is_stopped)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Down {
    pub(super) fn run(self) -> Result<ExitCode> {
        let target = self.places.target(&self.target)?.to_string();
        let programs = self.places.programs([].into_iter())?;
        let station = workbench(&programs, &self.places, Shape::default()).down(&target)?;
        print_line(&format!("{} is unmounted; bucket {} stays", station.point.display(), station.bucket))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl CreateBucket {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (target, platform) = (self.place.target()?, self.place.platform()?);
        let programs = self.place.places.programs([&target.package].into_iter())?;
        let bench = workbench(&programs, &self.place.places, self.place.shape());
        print_line(&bench.create_bucket(&target, &platform, self.bucket.as_deref())?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Change {
    /// Calls an action of the workbench on a bucket. Prints the bucket's name, and `what` it is now: empty or removed.
    fn run(self, change: BucketChange, what: &str) -> Result<ExitCode> {
        let (target, platform) = (self.place.target()?, self.place.platform()?);
        let programs = self.place.places.programs([&target.package].into_iter())?;
        let bench = workbench(&programs, &self.place.places, self.place.shape());
        let name = change(&bench, &target, &platform, self.bucket.as_deref(), self.not_mine)?;
        print_line(&format!("{name} is {what}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// An action on a bucket. The name of the bucket is `None` for the one that was created for the target; the `bool` says whether a bucket may be
/// changed that the testbed did not create. Returns the name.
type BucketChange =
    fn(&Workbench<'_>, &Target, &Platform, Option<&str>, bool) -> Result<String, bench::ActionError>;

impl CleanBucket {
    pub(super) fn run(self) -> Result<ExitCode> {
        let clean: BucketChange = |bench, target, platform, bucket, not_mine| {
            bench.clean_bucket(target, platform, bucket, not_mine)
        };
        self.change.run(clean, "empty")
    }
}

impl RemoveBucket {
    pub(super) fn run(self) -> Result<ExitCode> {
        let remove: BucketChange = |bench, target, platform, bucket, not_mine| {
            bench.remove_bucket(target, platform, bucket, not_mine)
        };
        self.change.run(remove, "removed")
    }
}

impl CleanAll {
    pub(super) fn run(self) -> Result<ExitCode> {
        let programs = self.places.programs([].into_iter())?;
        workbench(&programs, &self.places, Shape::default()).clean_all()?;
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    pub(super) fn run(self) -> Result<ExitCode> {
        let names: Vec<String> = self.target.into_iter().collect();
        let targets = self.places.targets(&names)?;
        let programs = self.places.programs([].into_iter())?;
        let bench = workbench(&programs, &self.places, Shape::default());
        let stations = bench.stations()?;
        let buckets = bench.bucket_names().map_err(|error| anyhow!(error))?;
        let row = |target: &Target| {
            let name = target.to_string();
            let program = match &target.package.program {
                None => "not needed".to_owned(),
                Some(program) => programs.find(&program.name).map_or_else(
                    || format!("missing: {}", program.how_to_install()),
                    |path| path.display().to_string(),
                ),
            };
            let station = stations.iter().find(|station| station.target == name);
            let own = buckets.iter().filter(|bucket| bench::is_bucket_of(bucket, target));
            vec![
                name,
                program,
                own.cloned().collect::<Vec<_>>().join(", "),
                station.map(|station| station.point.display().to_string()).unwrap_or_default(),
            ]
        };
        let table = Table {
            title: "Targets".to_owned(),
            heads: ["target", "program", "bucket", "mounted at"].map(str::to_owned).to_vec(),
            rows: targets.iter().map(row).collect(),
        };
        print!("{}", table.to_text());
        Ok(ExitCode::SUCCESS)
    }
}
