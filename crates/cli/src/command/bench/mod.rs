//! `tenon bench`: measures file systems over object stores, all the same way.

use crate::command::output::Progress;
use crate::command::units;
use crate::process::environment;
use analyze::compare::Conditions;
use anyhow::{Context, Result, anyhow};
use bench::{
    Catalog, Clock, Limits, Platform, Programs, Results, RunError, RunPlan, Scale, Summary, Target, Workload,
};
use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};
use harness::Shape;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Time limit of formatting and mounting.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// Measure file systems over object stores, all with the same jobs.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(Box<Run>),
    Report(Report),
    Compare(Compare),
    Packages(Packages),
    Probe(Probe),
}

/// Run the six jobs of the NSDF-FUSE paper with each package, over a MinIO that is started for the run.
///
/// Needs root for mounts and to drop the kernel's caches. Everything that the run creates is removed afterwards, also after Ctrl-C. Each
/// result is appended to the results file; the same command continues an interrupted run and measures failed cells again.
#[derive(Debug, Args)]
struct Run {
    /// Packages to measure, separated by commas, each with all versions or with one: tenon.durable (default: all)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Numbers and sizes of files
    #[arg(long, value_name = "NAME", default_value = "small")]
    scale: Preset,
    /// Repeats of each job
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    repeats: u32,
    /// File of the results, one JSON object a line
    #[arg(long, value_name = "FILE", default_value = "results.jsonl")]
    results: PathBuf,
    /// Round-trip time to add to each request, like 20ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::duration)]
    latency: Duration,
    /// Bandwidth to leave in each direction, in bytes per second, like 125MB
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    bandwidth: Option<u64>,
    /// Leave the kernel's caches as they are before reads
    #[arg(long)]
    keep_caches: bool,
    /// Time limit of a job
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = units::duration)]
    job_timeout: Duration,
    /// Seed of the order of small files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory for everything that the run creates
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// The minio program (default: the one in PATH)
    #[arg(long, value_name = "FILE")]
    minio: Option<PathBuf>,
    #[command(flatten)]
    catalog: CatalogFlags,
}

/// Show results: rates as a table, and as a page or CSV if wanted.
#[derive(Debug, Args)]
struct Report {
    /// File that `tenon bench run` wrote
    #[arg(default_value = "results.jsonl")]
    file: PathBuf,
    /// The clock of the rates
    #[arg(long, value_name = "NAME", default_value = "durable")]
    clock: ClockName,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a line of CSV for each result to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Compare two results files: ratios with confidence intervals, and whether noise forbids a conclusion.
#[derive(Debug, Args)]
struct Compare {
    /// Earlier results
    before: PathBuf,
    /// Later results
    after: PathBuf,
    /// The clock of the rates
    #[arg(long, value_name = "NAME", default_value = "durable")]
    clock: ClockName,
}

/// Try which features of a file system each package has on a mount.
///
/// Needs root for mounts. A feature that a package documents, but that does not work here, is shown as a no with its error.
#[derive(Debug, Args)]
struct Probe {
    /// Packages to try, separated by commas (default: all)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Directory for everything that is created
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// The minio program (default: the one in PATH)
    #[arg(long, value_name = "FILE")]
    minio: Option<PathBuf>,
    #[command(flatten)]
    catalog: CatalogFlags,
}

/// List the packages with their versions and characteristics.
#[derive(Debug, Args)]
struct Packages {
    #[command(flatten)]
    catalog: CatalogFlags,
}

#[derive(Debug, Clone, Args)]
struct CatalogFlags {
    /// Directory with package files; each replaces the shipped package of its name (default: tenon/packages in the user's configuration)
    #[arg(long, value_name = "DIR")]
    packages_dir: Option<PathBuf>,
}

/// Numbers and sizes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// Smoke test: 8 × 2 MiB and 64 × 64 KiB
    Tiny,
    /// 8 × 64 MiB and 1,024 × 64 KiB
    Small,
    /// The paper's: 8 × 1 GiB and 32,768 × 64 KiB
    Paper,
}

/// Clocks of rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClockName {
    /// From the first open to the last close
    Acknowledged,
    /// From the first open until a second client can have every byte
    Durable,
    /// The paper's: mount, job, sync and unmount
    Paper,
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Run(run) => run.run(),
            Action::Report(report) => report.run(),
            Action::Compare(compare) => compare.run(),
            Action::Packages(packages) => packages.run(),
            Action::Probe(probe) => probe.run(),
        }
    }
}

impl Run {
    fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        let programs = programs(self.minio.clone())?;
        let mut results = Results::open(&self.results, &plan.conditions())?;
        let progress = Progress::start();
        let show = |state: &bench::Progress| {
            progress.show(&format!("{} of {}: {}", state.number, state.of, state.cell));
        };
        let measured = bench::run(&plan, &programs, &mut results, &show, &*stop_at_signal()?);
        drop(progress);
        print_tables(results.records(), &plan.workload, Clock::Durable, "durable");
        match measured {
            Err(error @ RunError::Stopped) => Err(error.into()),
            measured => {
                measured?;
                let has_failure = results.records().iter().any(|record| record.outcome.failure().is_some());
                // After a failure a rate is missing, but the other rates are valid.
                Ok(if has_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS })
            }
        }
    }

    fn plan(&self) -> Result<RunPlan> {
        Ok(RunPlan {
            targets: self.catalog.targets(&self.packages)?,
            platforms: vec![Platform::minio()],
            workload: Workload::paper()?,
            scale: self.scale.scale(),
            repeats: self.repeats,
            seed: self.seed,
            limits: Limits { mount: MOUNT_TIMEOUT, job: self.job_timeout, unmount: self.job_timeout },
            shape: Shape { latency: self.latency, bandwidth_bytes: self.bandwidth },
            drops_caches: !self.keep_caches,
            scratch: self.scratch.clone(),
            machine: Conditions::this_machine(),
        })
    }
}

impl Report {
    fn run(self) -> Result<ExitCode> {
        let records = read(&self.file)?;
        let workload = Workload::paper()?;
        print_tables(&records, &workload, self.clock.clock(), self.clock.name());
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &self.html {
            write(path, bench::report::html(&records, &workload))?;
        }
        if let Some(path) = &self.csv {
            write(path, bench::report::csv(&records))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Compare {
    fn run(self) -> Result<ExitCode> {
        let (before, after) = (read(&self.before)?, read(&self.after)?);
        print!("{}", bench::report::comparison(&before, &after, self.clock.clock()).to_text());
        Ok(ExitCode::SUCCESS)
    }
}

impl Probe {
    fn run(self) -> Result<ExitCode> {
        let plan = RunPlan {
            targets: self.catalog.targets(&self.packages)?,
            platforms: vec![Platform::minio()],
            workload: Workload::paper()?,
            scale: Scale::TINY,
            repeats: 1,
            seed: 1,
            limits: Limits { mount: MOUNT_TIMEOUT, job: MOUNT_TIMEOUT, unmount: MOUNT_TIMEOUT },
            shape: Shape::default(),
            drops_caches: false,
            scratch: self.scratch,
            machine: Conditions::this_machine(),
        };
        let mut columns = Vec::new();
        for (name, probed) in bench::probe_all(&plan, &programs(self.minio)?)? {
            match probed {
                Ok(findings) => columns.push((name, findings)),
                Err(failure) => eprintln!("{name}: {failure}"),
            }
        }
        print!("{}", bench::matrix(&columns).to_text());
        Ok(ExitCode::SUCCESS)
    }
}

impl Packages {
    fn run(self) -> Result<ExitCode> {
        print!("{}", bench::report::packages(&self.catalog.catalog()?).to_text());
        Ok(ExitCode::SUCCESS)
    }
}

impl CatalogFlags {
    fn catalog(&self) -> Result<Catalog> {
        let mut catalog = Catalog::shipped()?;
        let dir = self.packages_dir.clone().unwrap_or_else(|| environment::config_dir().join("packages"));
        catalog.add_directory(&dir)?;
        Ok(catalog)
    }

    /// Returns the targets of these names, each once; without names, all.
    fn targets(&self, names: &[String]) -> Result<Vec<Target>> {
        let catalog = self.catalog()?;
        let all = || catalog.packages().map(|package| package.name.clone()).collect();
        let names: Vec<String> = if names.is_empty() { all() } else { names.to_vec() };
        let mut targets: Vec<Target> = Vec::new();
        let mut known = BTreeSet::new();
        for name in names {
            let found = catalog.targets(&name)?.into_iter();
            targets.extend(found.filter(|target| known.insert(target.to_string())));
        }
        Ok(targets)
    }
}

impl Preset {
    fn scale(self) -> Scale {
        match self {
            Self::Tiny => Scale::TINY,
            Self::Small => Scale::SMALL,
            Self::Paper => Scale::PAPER,
        }
    }
}

impl ClockName {
    fn clock(self) -> Clock {
        match self {
            Self::Acknowledged => Clock::Acknowledged,
            Self::Durable => Clock::Durable,
            Self::Paper => Clock::Paper,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Durable => "durable",
            Self::Paper => "paper's clock,",
        }
    }
}

fn programs(minio: Option<PathBuf>) -> Result<Programs> {
    let servers = environment::variable("TENON_SERVERS_DIR").map(|dir| Path::new(&dir).join("minio"));
    let installed = || servers.filter(|file| file.is_file()).or_else(|| environment::program("minio"));
    Ok(Programs {
        tenon: std::env::current_exe().context("cannot find this program's own file")?,
        minio: minio.or_else(installed),
        search_path: environment::search_path(),
    })
}

fn read(path: &Path) -> Result<Vec<bench::Record>> {
    let records = Results::read(path)?;
    match records.is_empty() {
        true => Err(anyhow!("{} has no results", path.display())),
        false => Ok(records),
    }
}

fn print_tables(records: &[bench::Record], workload: &Workload, clock: Clock, name: &str) {
    let summary = Summary::of(records, workload, clock);
    let tables = bench::report::rates(&summary, name).into_iter();
    let tables = tables.chain([bench::report::costs(records), bench::report::failures(records)]);
    let texts: Vec<String> =
        tables.filter(|table| !table.rows.is_empty()).map(|table| table.to_text()).collect();
    print!("{}", texts.join("\n"));
}

/// Returns a flag that SIGINT or SIGTERM sets.
fn stop_at_signal() -> Result<Arc<AtomicBool>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let is_stopped_by_thread = is_stopped.clone();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let watched = signal(SignalKind::terminate()).and_then(|terminate| {
                let interrupt = signal(SignalKind::interrupt())?;
                Ok((terminate, interrupt))
            });
            // Without a watch, a signal ends the process, and the cleanup process removes everything.
            let Ok((mut terminate, mut interrupt)) = watched else { return };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            eprintln!("stopping after this job");
            is_stopped_by_thread.store(true, Ordering::Relaxed);
        });
    });
    Ok(is_stopped)
}
