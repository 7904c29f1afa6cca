//! The project's own tools, run as `cargo xtask <command>`.
//!
//! Owns what a developer or CI asks of the repository itself: tidy checks and benchmarks. One module per command;
//! each takes its arguments and returns an error to be shown on one line.

mod bench;
mod dialects;
mod fuzz;
mod measurements;
mod tidy;
mod torn_reads;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy [--semantics]   check the project's own rules; with --semantics every statement of
                       docs/semantics.md that holds now must have a test
  bench [--quick]      the six jobs over a mount beside the raw S3 client
  brokers [--messages N]
                       events a second through real brokers beside what each can give
  bench events [SCENARIO]
                       rates and latencies of the event handler, also when it is killed
  bench sst            CPU time of building, reading and merging sorted tables
  figures [--quick]    the ObjectFS paper's Figures 2 to 5, measured and drawn into docs/figures
  measure [--quick] [--only PART,...]
                       storage nodes, the event handler and renames, measured in one run that goes on
                       where it was cut off; results in docs/measurements
  tables [--from DIR]  docs/comparison.html, and tables and figures of docs/benchmarks.md, made of results
  dialects             how long a message of events takes to be read
  views [--objects N]  listings of views over a large bucket, beside the raw client and s3fs
  torn-reads [--reads N] [--tenon BINARY] [SCENARIO...]
                       reads a file while an S3 client replaces its object, and looks for reads
                       that give bytes of two versions
  fuzz [--minutes N] [--keep] [TARGET...]
                       throws changed inputs at everything that reads bytes from outside; --keep
                       makes the shortest inputs that take all ways found the corpus";

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
        "torn-reads" => torn_reads::run(&workspace_root()?, rest),
        "views" => bench::views::run(&workspace_root()?, rest),
        "figures" => bench::figures::run(&workspace_root()?, rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("no command '{other}'\n\n{USAGE}"),
    }
}

/// The repository that the command was called in, not the one this program was built in: worktrees may share a
/// target directory.
fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("cannot find the current folder")?;
    let is_root = |folder: &&Path| folder.join("Cargo.lock").is_file() && folder.join("crates").is_dir();
    let root = here.ancestors().find(is_root).context("not inside the repository")?;
    Ok(root.to_path_buf())
}
