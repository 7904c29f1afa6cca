//! `cargo xtask fuzz`: builds the crate `fuzz` so that it sees which ways inputs take, and runs it.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Of each target, unless `--minutes` says otherwise.
const MINUTES: u64 = 1;

/// `[--minutes N] [--keep] [TARGET...]`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let mut minutes = MINUTES;
    let mut rest = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--minutes" => {
                let number = words.next().context("--minutes needs a number")?;
                minutes = number.parse().with_context(|| format!("'{number}' is no number"))?;
            }
            _ => rest.push(word.as_str()),
        }
    }
    let seconds = (minutes * 60).to_string();
    // The wrapper is part of what cargo knows these crates by: others and the usual builds stay as they are.
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--package", "fuzz", "--", "--seconds", &seconds])
        .args(rest)
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("crates/fuzz/instrument"))
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("a target is broken: make it a test in its crate, and keep the input in crates/fuzz/corpus");
    }
    Ok(())
}
