//! The project's development tools, run as `cargo xtask <command>`.
//!
//! Owns the commands that developers and CI run on the repository: tidy checks, benchmarks and reports. Each command is a module that takes its
//! arguments and returns an error to show on one line.

mod bench;
mod dialects;
mod fuzz;
mod measurements;
mod package;
mod tidy;
mod torn_reads;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy [--semantics | --structure]
                       check the project's rules; with --semantics, also check that every statement
                       of docs/semantics.md that holds now has a test; with --structure, only show
                       the circles of files and the largest structs of each crate
  brokers [--messages N]
                       measure events per second through real brokers, and the limit of each broker
  bench events [SCENARIO]
                       measure rates and latencies of the event handler, and kill it to test recovery
  bench sst            measure the CPU time of building, reading and merging sorted tables
  bench drive          measure opening, listing and reading a drive with many small objects
  figures [--quick]    measure Figures 2 to 5 of the ObjectFS paper and draw them into docs/figures
  measure [--quick] [--only PART,...]
                       measure storage nodes, the event handler and renames in one run, which resumes
                       after an interruption; results go to docs/measurements
  tables [--from DIR]  render the results: docs/comparison.html, and tables and figures of
                       docs/benchmarks.md
  dialects             measure the time to parse an event message
  package [--out DIR] [--binary FILE] [--version VERSION] [--fast]
                       make a Debian package and a tarball, by default in target/packages
  views [--objects N]  measure listings of views over a large bucket, the raw client and s3fs
  torn-reads [--reads N] [--tenon BINARY] [SCENARIO...]
                       read a file while an S3 client replaces its object, and search for reads
                       that return bytes of two versions
  fuzz [--minutes N] [--keep] [TARGET...]
                       fuzz all parsers of external input; with --keep, replace the corpus by the
                       shortest inputs that reach all covered edges";

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
        "bench" => bench::run(&workspace_root()?, rest),
        "dialects" => dialects::run(),
        "fuzz" => fuzz::run(&workspace_root()?, rest),
        "brokers" => bench::brokers::run(&workspace_root()?, rest),
        "measure" => measurements::run(&workspace_root()?, rest),
        "tables" => measurements::tables(&workspace_root()?, rest),
        "package" => package::run(&workspace_root()?, rest),
        "torn-reads" => torn_reads::run(&workspace_root()?, rest),
        "views" => bench::views::run(&workspace_root()?, rest),
        "figures" => bench::figures::run(&workspace_root()?, rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("unknown command '{other}'\n\n{USAGE}"),
    }
}

/// Returns the repository of the current directory, not the one that this program was built from: several worktrees may share a target
/// directory.
fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("cannot determine the current directory")?;
    let is_root = |dir: &&Path| dir.join("Cargo.lock").is_file() && dir.join("crates").is_dir();
    let root = here.ancestors().find(is_root).context("the current directory is not in the repository")?;
    Ok(root.to_path_buf())
}
