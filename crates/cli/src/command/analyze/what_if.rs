//! `tenon analyze what-if`: computes the cost of a trace's requests on other devices.

use analyze::metrics::{DeviceModel, what_if};
use analyze::model::Request;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compute what the requests of a trace would cost on other devices.
#[derive(Debug, Args)]
pub(super) struct WhatIf {
    /// File that `tenon analyze run --trace` wrote
    trace: PathBuf,
    /// TOML file with a device's parameters (repeatable; default: a known hard disk and solid-state drive)
    #[arg(long, value_name = "FILE")]
    device: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl WhatIf {
    pub(super) fn run(self) -> Result<ExitCode> {
        let requests: Vec<Request> = serde_json::from_str(&read(&self.trace)?).with_context(|| {
            format!("{} was not written by `tenon analyze run --trace`", self.trace.display())
        })?;
        let models = match self.device.as_slice() {
            [] => DeviceModel::known(),
            files => files.iter().map(|file| model(file)).collect::<Result<_>>()?,
        };
        let costs: Vec<_> = models.iter().map(|model| what_if(&requests, model)).collect();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&costs)?);
            return Ok(ExitCode::SUCCESS);
        }
        println!("{} requests", requests.len());
        for cost in costs {
            println!("\n{} ({})", cost.device, cost.source);
            println!("  busy {:.3} s, from first to last {:.3} s", cost.busy_seconds, cost.seconds);
            for kind in cost.by_kind {
                let (name, requests) = (kind.kind.name(), kind.requests);
                let (host, device) = (kind.host_seconds, kind.device_seconds);
                println!("  {name:<22} {requests:>9} requests, host {host:>9.3} s, device {device:>9.3} s");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn model(file: &Path) -> Result<DeviceModel> {
    DeviceModel::parse(&read(file)?).map_err(|reason| anyhow!("{}: {reason}", file.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
