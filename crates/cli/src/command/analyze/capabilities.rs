//! `tenon analyze capabilities`: shows which metrics this machine can measure.

use analyze::model::Measured;
use analyze::trace::Recorder;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// Show which metrics this kernel can provide, and by which tracepoints.
#[derive(Debug, Args)]
pub(super) struct Capabilities {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Capabilities {
    pub(super) fn run(self) -> Result<ExitCode> {
        let known = Recorder::probe();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&known)?);
            return Ok(ExitCode::SUCCESS);
        }
        for capability in known.0 {
            let metric = capability.metric;
            match capability.source {
                Measured::Is { source, proxy_for: None, .. } => println!("{metric}: {source}"),
                Measured::Is { source, proxy_for: Some(thing), .. } => {
                    println!("{metric}: {source} (stands for {thing})");
                }
                Measured::NotAvailable { why } => println!("{metric}: not available: {why}"),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
