//! `tenon bench run`: runs jobs with packages over platforms.

use super::actions::install_missing;
use super::reports::print_tables;
use super::surroundings::{Places, platforms, stop_at_signal};
use crate::command::units;
use crate::process::environment;
use analyze::compare::Conditions;
use anyhow::{Context, Result, bail};
use bench::{Clock, Limits, Method, Results, RunError, RunPlan, Scale, Workload};
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use harness::Shape;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of formatting and mounting.
pub(super) const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// Run jobs with each package, by default the six jobs of the NSDF-FUSE paper over a MinIO that is started for the run.
///
/// Needs root for mounts and to drop the kernel's caches. Everything that the run creates is removed afterwards, also after Ctrl-C. Each
/// result is appended to the results file; the same command continues an interrupted run and measures failed cells again.
///
/// A platform is minio, tenon-dir, tenon-drive, directory, aws, or NAME=URL, with settings after commas: region=NAME, profile=NAME, or
/// access-key=VARIABLE and secret-key=VARIABLE, which name environment variables. An endpoint with https costs money unless it has the
/// setting free: the run says what it will cost, and asks.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Packages to measure, separated by commas, each with all versions or with one: tenon.durable (default: all)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Object store to measure over (repeatable): minio, tenon-dir, tenon-drive, directory, aws, or NAME=URL, with settings [default: minio]
    #[arg(long, value_name = "PLATFORM")]
    platform: Vec<String>,
    /// Workloads, separated by commas: paper, random, metadata, mixed, fio, or files
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "paper")]
    workload: Vec<String>,
    /// First install the programs of packages that Debian, PyPI, the Go proxy or crates.io has, and MinIO (needs Go)
    #[arg(long)]
    install: bool,
    /// Only these jobs of the workloads, separated by commas, and the jobs whose files they need
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    jobs: Vec<String>,
    /// Numbers and sizes of files
    #[arg(long, value_name = "NAME", default_value = "small")]
    scale: Preset,
    /// Copy each file with cp, as the paper's program does
    #[arg(long)]
    as_paper: bool,
    /// Repeats of each job
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    repeats: u32,
    /// File of the results, one JSON object a line
    #[arg(long, value_name = "FILE", default_value = "results.jsonl")]
    results: PathBuf,
    /// Round-trip time to add to each request, like 20ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::duration)]
    latency: Duration,
    /// Bandwidth to leave in each direction, like 1Gbit, or in bytes per second, like 125MB
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth_bytes)]
    bandwidth: Option<u64>,
    /// Leave the kernel's caches as they are before reads
    #[arg(long)]
    keep_caches: bool,
    /// Fill free memory before each job: on a virtual machine, the first use of a page costs more
    #[arg(long)]
    fill_memory: bool,
    /// Time limit of a job
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = units::duration)]
    job_timeout: Duration,
    /// Seed of the order of small files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory for everything that the run creates
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// Do not ask before a run that costs money
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    places: Places,
}

/// Numbers and sizes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// Smoke test: 8 × 2 MiB and 64 × 64 KiB
    Tiny,
    /// 8 × 64 MiB and 1,024 × 64 KiB; 256 MiB for random access, 10,000 empty files
    Small,
    /// The paper's: 8 × 1 GiB and 32,768 × 64 KiB
    Paper,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        if self.install {
            install_missing(&self.places, &plan.targets, &plan.platforms)?;
        }
        let programs = self.places.programs(plan.targets.iter().map(|target| &target.package))?;
        let mut results = Results::open(&self.results, &plan.conditions())?;
        self.confirm_costs(&plan, &results)?;
        let progress = RunProgress::start();
        let show = |state: &bench::Progress| progress.show(state);
        let is_stopped = stop_at_signal("stopping after this job")?;
        let measured = bench::run(&plan, &programs, &mut results, &environment::variable, &show, &is_stopped);
        drop(progress);
        print_tables(results.records(), Clock::Durable, "durable");
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
            targets: self.places.targets(&self.packages)?,
            platforms: platforms(&self.platform)?,
            workload: self.workload()?,
            scale: self.scale.scale(),
            repeats: self.repeats,
            seed: self.seed,
            limits: Limits { mount: MOUNT_TIMEOUT, job: self.job_timeout, unmount: self.job_timeout },
            shape: Shape { latency: self.latency, bandwidth_bytes: self.bandwidth },
            method: Method {
                drops_caches: !self.keep_caches,
                fills_memory: self.fill_memory,
                as_paper: self.as_paper,
            },
            scratch: self.scratch.clone(),
            state: self.places.state(),
            machine: Conditions::this_machine(),
        })
    }

    fn workload(&self) -> Result<Workload> {
        let found: Result<Vec<Workload>, _> = self.workload.iter().map(|name| Workload::find(name)).collect();
        let workload = Workload::joined(found?)?;
        if self.jobs.is_empty() {
            return Ok(workload);
        }
        let only = workload.only(&self.jobs);
        only.with_context(|| format!("workload '{}' has no such job", workload.name))
    }

    /// Says what the run costs at least where requests and bytes are paid for, and asks whether to begin. Fails if the answer is no, or if
    /// there is no terminal to ask at.
    fn confirm_costs(&self, plan: &RunPlan, results: &Results) -> Result<()> {
        let costs = plan.costs(results);
        if costs.is_empty() {
            return Ok(());
        }
        for cost in &costs {
            eprintln!("{cost}; packages may need several times as many requests");
        }
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            bail!("the run costs money: give --yes to begin");
        }
        eprint!("begin? [y/N] ");
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => bail!("not begun"),
        }
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

/// The progress of a run: a bar on a terminal, a line for each cell elsewhere.
struct RunProgress(Option<ProgressBar>);

impl RunProgress {
    fn start() -> Self {
        const TEMPLATE: &str = "[{bar:24}] {pos} of {len}, {prefix}: {msg}";
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            bar.set_style(
                ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Self(bar)
    }

    /// Shows the progress of a run, with the time left.
    fn show(&self, state: &bench::Progress) {
        let left = state.left.map_or_else(
            || "time left unknown".to_owned(),
            |left| format!("{} left", harness::format::seconds(left.as_secs_f64())),
        );
        match &self.0 {
            Some(bar) => {
                bar.set_length(state.of as u64);
                bar.set_position(state.number as u64 - 1);
                bar.set_prefix(left);
                bar.set_message(state.cell.to_string());
            }
            None => eprintln!("{} of {}, {left}: {}", state.number, state.of, state.cell),
        }
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
