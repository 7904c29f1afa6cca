//! `cargo xtask fuzz`: builds the crate `fuzz` with coverage instrumentation, and runs it.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Default time for each target.
const MINUTES: u64 = 1;

/// Runs the command; arguments are `[--minutes N] [--keep] [TARGET...]`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let mut minutes = MINUTES;
    let mut rest = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--minutes" => {
                let number = words.next().context("--minutes needs a number")?;
                minutes = number.parse().with_context(|| format!("'{number}' is not a number"))?;
            }
            _ => rest.push(word.as_str()),
        }
    }
    let seconds = (minutes * 60).to_string();
    // Cargo hashes the wrapper into its fingerprints, so instrumented builds do not replace normal ones.
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--package", "fuzz", "--", "--seconds", &seconds])
        .args(rest)
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("crates/fuzz/instrument"))
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!(
            "a target failed: write a regression test in its crate, and keep the input in crates/fuzz/corpus"
        );
    }
    Ok(())
}
