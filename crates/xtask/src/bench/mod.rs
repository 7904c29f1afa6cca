//! Measurements that need the inside of Tenon: `cargo xtask bench events|sst|drive`, and those of other commands.
//!
//! The jobs that any file system can do are those of `tenon bench run` (docs/testbed.md).

pub(crate) mod brokers;
mod drive;
mod events;
pub(crate) mod figures;
mod mount;
pub(crate) mod plot;
mod raw_bucket;
mod resource_usage;
mod small_operations;
mod sst;
pub(crate) mod views;
mod visibility;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask bench events [SCENARIO...]
       cargo xtask bench sst
       cargo xtask bench drive [--objects N] [--index-mib N] [--file FILE]

  --objects       number of objects (default 1,000,000)
  --file          use this drive and keep it; it is created if it does not exist

The six jobs are those of tenon bench run --packages raw,tenon.durable --fill-memory";

/// Runs a benchmark.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    match arguments.split_first() {
        Some((first, rest)) if first == "events" => events::run(root, rest),
        Some((first, rest)) if first == "drive" => drive::run(root, rest),
        Some((first, rest)) if first == "sst" => sst::run(root, rest),
        _ => bail!("{USAGE}"),
    }
}

/// Runs the command again in a release build of xtask. A debug build would slow the raw client down, in favour of the mount.
pub(crate) fn rerun_in_release(root: &Path, command: &str, arguments: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--quiet", "--release", "-p", "xtask", "--", command])
        .args(arguments)
        .current_dir(root);
    let status = cargo.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the benchmark failed") }
}

/// Builds the release binary of the checkout and returns its path.
pub(crate) fn build_release(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "-p", "cli"]).current_dir(root);
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("the release build failed");
    }
    let xtask = std::env::current_exe().context("cannot find this program")?;
    let tenon = xtask.with_file_name("tenon");
    if tenon.is_file() { Ok(tenon) } else { bail!("no tenon beside {}", xtask.display()) }
}
