//! `tenon bench report`, `compare` and `packages`: what was measured, and what can be.

use super::surroundings::Places;
use anyhow::{Context, Result, anyhow};
use bench::{Clock, Finding, Ranking, Results, Summary};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show results: rates as a table, and as a page or CSV if wanted.
#[derive(Debug, Args)]
pub(super) struct Report {
    /// File that `tenon bench run` wrote
    #[arg(default_value = "results.jsonl")]
    file: PathBuf,
    /// The clock of the rates
    #[arg(long, value_name = "NAME", default_value = "durable")]
    clock: ClockName,
    /// Rank packages for a workload of your own: jobs with their shares of the time, like job1=2,job6=1
    #[arg(long, value_name = "SHARES")]
    rank: Option<Ranking>,
    /// Findings that `tenon bench probe --out` wrote, for the page
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a line of CSV for each result to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Compare two results files: ratios with confidence intervals, and whether noise forbids a conclusion.
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// Earlier results
    before: PathBuf,
    /// Later results
    after: PathBuf,
    /// The clock of the rates
    #[arg(long, value_name = "NAME", default_value = "durable")]
    clock: ClockName,
}

/// List the packages with their versions and characteristics.
#[derive(Debug, Args)]
pub(super) struct Packages {
    #[command(flatten)]
    places: Places,
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

impl Report {
    pub(super) fn run(self) -> Result<ExitCode> {
        let records = read(&self.file)?;
        let clock = self.clock.clock();
        print_tables(&records, clock, self.clock.name());
        let summary = Summary::of(&records, clock);
        for sentence in bench::report::conclusions(&summary) {
            println!("{sentence}");
        }
        let ranking = self.rank.unwrap_or_default();
        for table in bench::report::ranks(&summary, &ranking) {
            print!("\n{}", table.to_text());
        }
        let features: Vec<(String, Vec<Finding>)> = match &self.features {
            Some(path) => {
                let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                serde_json::from_slice(&text).with_context(|| {
                    format!(
                        "{} is not a file of findings that `tenon bench probe --out` wrote",
                        path.display()
                    )
                })?
            }
            None => Vec::new(),
        };
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &self.html {
            write(path, bench::report::html(&records, clock, &ranking, &features))?;
        }
        if let Some(path) = &self.csv {
            write(path, bench::report::csv(&records))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Compare {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (before, after) = (read(&self.before)?, read(&self.after)?);
        print!("{}", bench::report::comparison(&before, &after, self.clock.clock()).to_text());
        Ok(ExitCode::SUCCESS)
    }
}

impl Packages {
    pub(super) fn run(self) -> Result<ExitCode> {
        print!("{}", bench::report::packages(&self.places.catalog()?).to_text());
        Ok(ExitCode::SUCCESS)
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

fn read(path: &Path) -> Result<Vec<bench::Record>> {
    let records = Results::read(path)?;
    match records.is_empty() {
        true => Err(anyhow!("{} has no results", path.display())),
        false => Ok(records),
    }
}

/// Prints the tables of rates, by the clock of this name, of costs and of failures.
pub(super) fn print_tables(records: &[bench::Record], clock: Clock, name: &str) {
    let summary = Summary::of(records, clock);
    let tables = bench::report::rates(&summary, name).into_iter();
    let tables = tables.chain([bench::report::costs(records), bench::report::failures(records)]);
    let texts: Vec<String> =
        tables.filter(|table| !table.rows.is_empty()).map(|table| table.to_text()).collect();
    print!("{}", texts.join("\n"));
}
