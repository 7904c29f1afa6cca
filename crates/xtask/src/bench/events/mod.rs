//! `cargo xtask bench events`: measures rates and latencies of the event handler, after section IV-B of the DelveFS paper.
//!
//! The queues are nine real beanstalkd, as in the paper, or nine bounded queues in this process, to exclude the brokers' work. Each queue is the
//! source of one or several feeds. A producer fills the queues in this process during the measurement. The messages have the form of OpenIO or
//! MinIO; an event counts when its feed has acknowledged it.

mod beanstalkd;
mod client;
mod crash_recovery;
mod message_generator;
mod queue;
mod throughput;
mod tracked_memory;

use anyhow::{Context, Result, bail};
use events::Dialect;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

const USAGE: &str = "\
usage: cargo xtask bench events [raw|match|db_match|killed|memory] [OPTION...]

Runs one scenario, or without a scenario all runs of docs/benchmarks.md.

  raw           no view wants the events
  match         100 rulesets show one object
  db_match      100 rulesets show 10,000 objects, whose state is stored on disk
  killed        db_match with different rulesets; kills the handler three times, then checks all views
  memory        memory for tracked objects

  --events N    events for each of the nine queues (default 200,000; the paper: 2,000,000); for memory:
                number of objects
  --threads N   feeds per queue, 1 to 4 (default 1)
  --rulesets N  number of rulesets (default 100)
  --rate N      events per second in total, with latencies to a client; 0: maximum rate (default 0)
  --dialect D   openio or s3 (default openio)
  --queues Q    own: bounded queues in this process; beanstalkd: nine beanstalkd, filled before the
                measurement unless there is a rate (default own)
  --record FILE write the results to this file as JSON";

/// Arguments of the runs of `docs/benchmarks.md`: the paper's scenarios and others.
const ALL_RUNS: [&str; 26] = [
    "raw --queues beanstalkd --threads 1",
    "raw --queues beanstalkd --threads 4",
    "match --queues beanstalkd --threads 4",
    "db_match --queues beanstalkd --threads 4",
    "db_match --queues beanstalkd --rate 10000",
    "raw --threads 1",
    "raw --threads 2",
    "raw --threads 3",
    "raw --threads 4",
    "raw --dialect s3",
    "match --threads 1",
    "match --threads 2",
    "match --threads 3",
    "match --threads 4",
    "match --dialect s3",
    "match --rulesets 1000",
    "match --rulesets 10000",
    "db_match --threads 1",
    "db_match --threads 2",
    "db_match --threads 3",
    "db_match --threads 4",
    "db_match --dialect s3",
    "match --rate 50000",
    "db_match --rate 50000",
    "killed",
    "memory --events 10000000",
];

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunOptions {
    scenario: Scenario,
    /// Events per queue.
    events: usize,
    /// Feeds per queue.
    threads: usize,
    rulesets: usize,
    /// Events per second in total; 0 stands for the maximum rate.
    rate: u64,
    dialect: Dialect,
    queues: Queues,
    /// File for the results.
    record: Option<PathBuf>,
    /// State directory of a handler that will be killed.
    dir: Option<PathBuf>,
}

/// The sort of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queues {
    InProcess,
    Beanstalkd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    Raw,
    Match,
    DbMatch,
    Killed,
    Memory,
}

/// Runs one scenario in this process, or all runs, each in its own process.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if cfg!(debug_assertions) {
        let arguments: Vec<String> =
            std::iter::once("events".to_owned()).chain(arguments.iter().cloned()).collect();
        return super::rerun_in_release(root, "bench", &arguments);
    }
    if arguments.first().is_some_and(|first| !first.starts_with("--")) {
        return RunOptions::parse(arguments)?.run();
    }
    for run in ALL_RUNS {
        let run = run.split(' ').map(str::to_owned);
        let words: Vec<String> = run.chain(arguments.iter().cloned()).collect();
        let status = own_command(&words)?.status().context("cannot run this program")?;
        if !status.success() {
            bail!("the benchmark failed");
        }
    }
    Ok(())
}

/// Returns a command that runs `bench events` of this program with other arguments.
fn own_command(words: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["bench", "events"]).args(words);
    Ok(command)
}

impl RunOptions {
    fn parse(arguments: &[String]) -> Result<Self> {
        let (scenario, mut rest) = arguments.split_first().context(USAGE)?;
        let mut options = Self {
            scenario: scenario.parse()?,
            events: 200_000,
            threads: 1,
            rulesets: 100,
            rate: 0,
            dialect: Dialect::OpenIo,
            queues: Queues::InProcess,
            record: None,
            dir: None,
        };
        while let [name, value, further @ ..] = rest {
            match name.as_str() {
                "--events" => options.events = value.parse().context(USAGE)?,
                "--threads" => options.threads = value.parse().context(USAGE)?,
                "--rulesets" => options.rulesets = value.parse().context(USAGE)?,
                "--rate" => options.rate = value.parse().context(USAGE)?,
                "--dialect" => options.dialect = message_generator::parse_dialect(value).context(USAGE)?,
                "--queues" if value == "own" => options.queues = Queues::InProcess,
                "--queues" if value == "beanstalkd" => options.queues = Queues::Beanstalkd,
                "--record" => options.record = Some(value.into()),
                "--killed-in" => options.dir = Some(value.into()),
                _ => bail!("{USAGE}"),
            }
            rest = further;
        }
        if rest.is_empty() && options.threads > 0 && options.events > 0 {
            Ok(options)
        } else {
            bail!("{USAGE}")
        }
    }

    fn run(&self) -> Result<()> {
        match (self.scenario, &self.dir) {
            (Scenario::Memory, _) => tracked_memory::run(self.events),
            (Scenario::Killed, None) => crash_recovery::run(self),
            (Scenario::Killed, Some(dir)) => crash_recovery::resume(self, dir).map(drop),
            _ => throughput::run(self),
        }
    }

    /// Returns the number of events over all queues.
    fn total(&self) -> usize {
        self.events * queue::QUEUES
    }

    fn objects(&self) -> usize {
        match self.scenario {
            Scenario::DbMatch | Scenario::Killed => 10_000,
            _ => 1,
        }
    }
}

impl FromStr for Scenario {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        Ok(match word {
            "raw" => Self::Raw,
            "match" => Self::Match,
            "db_match" => Self::DbMatch,
            "killed" => Self::Killed,
            "memory" => Self::Memory,
            _ => bail!("{USAGE}"),
        })
    }
}
