//! `tenon bench`: measures file systems over object stores, all the same way.

mod actions;
mod probe;
mod reports;
mod run;
mod surroundings;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measure file systems over object stores, all with the same jobs.
///
/// A target is a package, or one version of it: `rclone`, `geesefs.v2`. See docs/testbed.md.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(Box<run::Run>),
    Report(reports::Report),
    Compare(reports::Compare),
    Packages(reports::Packages),
    Probe(probe::Probe),
    Install(actions::Install),
    Up(actions::Up),
    Down(actions::Down),
    CreateBucket(actions::CreateBucket),
    CleanBucket(actions::CleanBucket),
    RemoveBucket(actions::RemoveBucket),
    CleanAll(actions::CleanAll),
    List(actions::List),
    #[command(hide = true)]
    Hold(actions::Hold),
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Run(run) => run.run(),
            Action::Report(report) => report.run(),
            Action::Compare(compare) => compare.run(),
            Action::Packages(packages) => packages.run(),
            Action::Probe(probe) => probe.run(),
            Action::Install(install) => install.run(),
            Action::Up(up) => up.run(),
            Action::Down(down) => down.run(),
            Action::CreateBucket(create) => create.run(),
            Action::CleanBucket(clean) => clean.run(),
            Action::RemoveBucket(remove) => remove.run(),
            Action::CleanAll(clean) => clean.run(),
            Action::List(list) => list.run(),
            Action::Hold(hold) => hold.run(),
        }
    }
}
