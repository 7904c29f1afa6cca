//! The project's own tools, run as `cargo xtask <command>`.
//!
//! Owns what a developer or CI asks of the repository itself: today the tidy checks. One module per command;
//! each takes its arguments and returns an error to be shown on one line.

mod tidy;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy [--semantics]   check the project's own rules; with --semantics every statement of
                       docs/semantics.md that holds now must have a test";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (command, rest) = arguments.split_first().context(USAGE)?;
    match command.as_str() {
        "tidy" => tidy::run(&workspace_root()?, rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("no command '{other}'\n\n{USAGE}"),
    }
}

/// The repository's root: two folders above this crate.
fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.ancestors().nth(2).context("xtask does not lie in crates/xtask")?.to_path_buf())
}
