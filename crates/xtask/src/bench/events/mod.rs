//! `cargo xtask bench events`: the event handler's rates and latencies, after the DelveFS paper's section IV-B.
//!
//! Nine real beanstalkd are the queues, as the paper has them, or, to leave a broker's work out, nine bounded queues in this process.
//! These are sources of feeds, as a broker's are, with one or several feeds each. A producer fills them while the time is
//! taken; what is in them are messages as OpenIO or MinIO write them, and an event counts when its feed has acknowledged it.

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
usage: cargo xtask bench events [raw|match|db_match|killed|memory] [OPTION...]      (all that docs/benchmarks.md has)

  raw           nobody wants the events
  match         100 rulesets show one object
  db_match      100 rulesets show 10,000 objects, and what is known of them is kept
  killed        db_match with rulesets that differ, the handler killed three times; then all views are compared
  memory        objects that are tracked, and what they take

  --events N    into each of the nine queues (200,000; the paper: 2,000,000); of memory: objects in all
  --threads N   feeds that share a queue, 1 to 4 (1)
  --rulesets N  (100)
  --rate N      events a second in all, and how long each takes to a client; as many as can be if 0 (0)
  --dialect D   openio or s3 (openio)
  --queues Q    own: bounded queues in this process; beanstalkd: nine of them, filled before the time is taken
                unless there is a rate (own)
  --record FILE write what was measured there as JSON";

/// The paper's scenarios, and what else is stated.
const ALL: [&str; 26] = [
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

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    scenario: Scenario,
    events: usize,
    threads: usize,
    rulesets: usize,
    rate: u64,
    dialect: Dialect,
    queues: Queues,
    /// Where what was measured is written.
    record: Option<PathBuf>,
    /// Where the state of what will be killed is.
    dir: Option<PathBuf>,
}

/// The queues in which events wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queues {
    Own,
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

/// Runs one scenario, or all, each in a process of its own.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if cfg!(debug_assertions) {
        let arguments: Vec<String> =
            std::iter::once("events".to_owned()).chain(arguments.iter().cloned()).collect();
        return super::again_in_release(root, "bench", &arguments);
    }
    if arguments.first().is_some_and(|first| !first.starts_with("--")) {
        return Task::read(arguments)?.run();
    }
    for scenario in ALL {
        let scenario = scenario.split(' ').map(str::to_owned);
        let words: Vec<String> = scenario.chain(arguments.iter().cloned()).collect();
        let status = again(&words)?.status().context("cannot run this program")?;
        if !status.success() {
            bail!("the benchmark failed");
        }
    }
    Ok(())
}

/// This program, to measure something else.
fn again(words: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["bench", "events"]).args(words);
    Ok(command)
}

impl Task {
    fn read(arguments: &[String]) -> Result<Self> {
        let (scenario, mut rest) = arguments.split_first().context(USAGE)?;
        let mut task = Self {
            scenario: scenario.parse()?,
            events: 200_000,
            threads: 1,
            rulesets: 100,
            rate: 0,
            dialect: Dialect::OpenIo,
            queues: Queues::Own,
            record: None,
            dir: None,
        };
        while let [name, value, further @ ..] = rest {
            match name.as_str() {
                "--events" => task.events = value.parse().context(USAGE)?,
                "--threads" => task.threads = value.parse().context(USAGE)?,
                "--rulesets" => task.rulesets = value.parse().context(USAGE)?,
                "--rate" => task.rate = value.parse().context(USAGE)?,
                "--dialect" => task.dialect = message_generator::dialect(value).context(USAGE)?,
                "--queues" if value == "own" => task.queues = Queues::Own,
                "--queues" if value == "beanstalkd" => task.queues = Queues::Beanstalkd,
                "--record" => task.record = Some(value.into()),
                "--killed-in" => task.dir = Some(value.into()),
                _ => bail!("{USAGE}"),
            }
            rest = further;
        }
        if rest.is_empty() && task.threads > 0 && task.events > 0 { Ok(task) } else { bail!("{USAGE}") }
    }

    fn run(&self) -> Result<()> {
        match (self.scenario, &self.dir) {
            (Scenario::Memory, _) => tracked_memory::run(self.events),
            (Scenario::Killed, None) => crash_recovery::run(self),
            (Scenario::Killed, Some(dir)) => crash_recovery::go_on(self, dir).map(drop),
            _ => throughput::run(self),
        }
    }

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
