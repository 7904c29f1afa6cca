//! `cargo xtask measure` makes all measurements of the generated parts of `docs/benchmarks.md` in one run. `cargo xtask tables` generates these
//! parts from the stored results.
//!
//! Invariant: the results of each part are stored as soon as it ends, in files that are replaced atomically. Stored results are not measured
//! again, so the same command resumes an interrupted run.

mod document_block;
mod event_handler;
mod tables;
mod testbed;

pub(crate) use tables::run as tables;

use crate::bench;
use analyze::compare::Conditions;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask measure [--quick] [--only PART,...] [--rounds N] [--out DIR] [--tenon FILE]

  --quick   make short runs to test that everything works; results are not for publication and go to
            target/measurements-quick
  --only    measure only these parts: compare (storage nodes; needs root), events (the event handler),
            renames (Figure 5)
  --rounds  rounds of the comparison of storage nodes (default 1); more rounds are added to stored ones
  --out     directory of the results (default docs/measurements)
  --tenon   measure this program (default: the one beside xtask, or a build of the checkout)

After an interruption, run the same command again to resume. `cargo xtask tables` renders the results.";

/// A part of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Compare,
    Events,
    Renames,
}

struct Flags {
    is_quick: bool,
    parts: Vec<Part>,
    rounds: usize,
    out: PathBuf,
    tenon: Option<PathBuf>,
}

/// The results of a part, with the machine that they were measured on.
#[derive(Debug, Serialize, Deserialize)]
struct Results<T> {
    machine: String,
    is_quick: bool,
    results: T,
}

impl<T> Results<T> {
    fn new(is_quick: bool, results: T) -> Self {
        Self { machine: Conditions::this_machine(), is_quick, results }
    }
}

/// Makes all measurements that are not stored yet.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let flags = Flags::parse(root, arguments)?;
    if cfg!(debug_assertions) {
        return bench::rerun_in_release(root, "measure", arguments);
    }
    fs::create_dir_all(&flags.out).with_context(|| format!("cannot make {}", flags.out.display()))?;
    let tenon = flags.find_tenon(root)?;
    let mut failed = Vec::new();
    for part in &flags.parts {
        eprintln!("measuring {part:?}");
        let result = match part {
            Part::Compare => compare(&flags, &tenon),
            Part::Events => event_handler::measure(&flags.out.join(EVENTS), flags.is_quick),
            Part::Renames => renames(&flags, &tenon),
        };
        if let Err(error) = result {
            eprintln!("{part:?}: {error:#}");
            failed.push(format!("{part:?}"));
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("failed: {}; run the same command again to resume", failed.join(", "))
    }
}

const COMPARE: &str = "compare.json";
const EVENTS: &str = "events.json";
const RENAMES: &str = "renames.json";

impl Flags {
    fn parse(root: &Path, arguments: &[String]) -> Result<Self> {
        let parts = vec![Part::Events, Part::Renames, Part::Compare];
        let (mut flags, mut out) =
            (Self { is_quick: false, parts, rounds: 1, out: PathBuf::new(), tenon: None }, None);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().context(USAGE);
            match argument.as_str() {
                "--quick" => flags.is_quick = true,
                "--only" => flags.parts = value()?.split(',').map(Part::parse).collect::<Result<_>>()?,
                "--rounds" => flags.rounds = value()?.parse().context(USAGE)?,
                "--out" => out = Some(PathBuf::from(value()?)),
                "--tenon" => flags.tenon = Some(PathBuf::from(value()?)),
                _ => bail!("{USAGE}"),
            }
        }
        let default = if flags.is_quick { "target/measurements-quick" } else { "docs/measurements" };
        flags.out = out.unwrap_or_else(|| root.join(default));
        Ok(flags)
    }

    fn find_tenon(&self, root: &Path) -> Result<PathBuf> {
        let beside = std::env::current_exe().context("cannot find this program")?.with_file_name("tenon");
        match &self.tenon {
            Some(tenon) => Ok(tenon.clone()),
            None if beside.is_file() => Ok(beside),
            None => bench::build_release(root),
        }
    }
}

impl Part {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "compare" => Self::Compare,
            "events" => Self::Events,
            "renames" => Self::Renames,
            _ => bail!("{USAGE}"),
        })
    }
}

/// Runs `tenon analyze compare`, which stores its results and resumes by itself.
fn compare(flags: &Flags, tenon: &Path) -> Result<()> {
    let mut command = Command::new(tenon);
    command.args(["analyze", "compare", "--rounds", &flags.rounds.to_string(), "--json"]);
    command.arg(flags.out.join(COMPARE)).arg("--minio").arg(servers::program("minio"));
    if flags.is_quick {
        command.args(["--no-trace", "--no-fio", "--seconds=3", "--device-size=12GiB"]);
        command.args([
            "--cold-objects=4000",
            "--enumerated=4000",
            "--operations=64",
            "--small-operations=2000",
        ]);
    }
    let status = command.status().with_context(|| format!("cannot run {}", tenon.display()))?;
    if status.success() { Ok(()) } else { bail!("some measurements failed") }
}

fn renames(flags: &Flags, tenon: &Path) -> Result<()> {
    let path = flags.out.join(RENAMES);
    if path.exists() {
        return Ok(());
    }
    let figures = bench::figures::renames(tenon, flags.is_quick)?;
    store(&path, &Results::new(flags.is_quick, figures))
}

/// Writes results, replacing the file atomically.
fn store(path: &Path, results: &impl Serialize) -> Result<()> {
    let new = path.with_extension("json.new");
    let written = fs::write(&new, serde_json::to_string_pretty(results)? + "\n");
    written.and_then(|()| fs::rename(&new, path)).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads stored results; returns `None` if there are none.
fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let advice = || format!("{} has another format: remove it to measure again", path.display());
            serde_json::from_str(&text).with_context(advice).map(Some)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
