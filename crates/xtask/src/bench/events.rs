//! `cargo xtask bench events`: the event handler's rates and latencies (DelveFS, section IV-B).
//!
//! The measuring program is a bench of `views`, so that nobody compiles the engine for it.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The paper's scenarios, and what else is stated.
const ALL: [&str; 8] = [
    "raw --threads 1",
    "match --threads 1",
    "match --threads 1 --rulesets 1000",
    "match --threads 1 --rulesets 10000",
    "db_match --threads 1",
    "match --rate 50000",
    "db_match --rate 50000",
    "memory --events 1000000",
];

/// Runs one scenario, or all.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        return measure(root, arguments);
    }
    let words = |scenario: &str| scenario.split(' ').map(str::to_owned).collect::<Vec<_>>();
    ALL.iter().try_for_each(|scenario| measure(root, &words(scenario)))
}

fn measure(root: &Path, arguments: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["bench", "--quiet", "-p", "views", "--bench", "events", "--"])
        .args(arguments)
        .current_dir(root);
    let status = cargo.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the benchmark failed") }
}
