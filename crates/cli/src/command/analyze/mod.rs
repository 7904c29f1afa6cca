//! `tenon analyze`: what a storage node does with each I/O, layer by layer, and how others do it.

mod capabilities;
mod compare;
mod run;
mod scale;
mod what_if;

use analyze::model::SystemResult;
use analyze::report;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Measure a storage node layer by layer, and compare nodes.
#[derive(Debug, Args)]
pub(crate) struct Analyze {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(Box<run::Run>),
    Compare(compare::Compare),
    WhatIf(what_if::WhatIf),
    Capabilities(capabilities::Capabilities),
}

impl Analyze {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Run(run) => run.run(),
            Action::Compare(compare) => compare.run(),
            Action::WhatIf(what_if) => what_if.run(),
            Action::Capabilities(capabilities) => capabilities.run(),
        }
    }
}

/// Where results go besides the terminal.
#[derive(Debug, Clone, Args)]
struct OutputFlags {
    /// Write everything that was measured as one JSON document
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one page with the figures, which needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputFlags {
    /// That the files can be written: known before hours of measuring, not after.
    fn check(&self) -> Result<()> {
        [&self.json, &self.html].into_iter().flatten().try_for_each(|path| write(path, ""))
    }

    fn write(&self, json: &str, systems: &[SystemResult]) -> Result<()> {
        if let Some(path) = &self.json {
            write(path, json)?;
        }
        if let Some(path) = &self.html {
            write(path, &report::html(systems))?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Does it all unless a signal comes first; then what was made on the way is given back before the error is said.
fn until_a_signal<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = Runtime::new().context("cannot start")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch signals")?;
        tokio::select! {
            done = work => done,
            _ = interrupt.recv() => anyhow::bail!("stopped by Ctrl-C; nothing is left of it"),
            _ = terminate.recv() => anyhow::bail!("stopped by SIGTERM; nothing is left of it"),
        }
    })
}
