//! `tenon analyze`: measures what storage nodes do with each I/O, layer by layer.

mod capabilities;
mod compare;
mod report;
mod run;
mod scale;
mod what_if;

use crate::process::signals::StopSignals;
use analyze::compare::{Comparison, opening};
use analyze::model::SystemResult;
use analyze::report::html;
use anyhow::{Context, Error, Result, anyhow};
use clap::{Args, Subcommand};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure a storage node layer by layer, and compare nodes.
#[derive(Debug, Args)]
pub(crate) struct Analyze {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(Box<run::Run>),
    Compare(Box<compare::Compare>),
    Report(report::Report),
    WhatIf(what_if::WhatIf),
    Capabilities(capabilities::Capabilities),
}

impl Analyze {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Run(run) => run.run(),
            Action::Compare(compare) => compare.run(),
            Action::Report(report) => report.run(),
            Action::WhatIf(what_if) => what_if.run(),
            Action::Capabilities(capabilities) => capabilities.run(),
        }
    }
}

/// Flags for output files.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
struct OutputFlags {
    /// Write all measurements as one JSON document to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML page with the figures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputFlags {
    /// Creates or empties the files. Fails if one cannot be written, so that this is known before hours of measuring.
    fn check(&self) -> Result<()> {
        [&self.json, &self.html].into_iter().flatten().try_for_each(|path| write(path, ""))
    }

    /// Creates or empties the file of the page alone. Fails if it cannot be written.
    fn check_html(&self) -> Result<()> {
        self.html.as_deref().map_or(Ok(()), |path| write(path, ""))
    }

    fn write(&self, json: &str, systems: &[SystemResult]) -> Result<()> {
        if let Some(path) = &self.json {
            write(path, json)?;
        }
        self.html.as_deref().map_or(Ok(()), |path| write(path, &html(systems, "")))
    }

    fn write_html(&self, comparison: &Comparison) -> Result<()> {
        let page = || html(&comparison.results(), &opening(comparison));
        self.html.as_deref().map_or(Ok(()), |path| write(path, &page()))
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Waits for SIGINT or SIGTERM. Returns an error that names the signal.
async fn wait_for_signal() -> Error {
    match StopSignals::new() {
        Ok(mut signals) => anyhow!("stopped by {}", signals.wait().await),
        Err(error) => error,
    }
}
