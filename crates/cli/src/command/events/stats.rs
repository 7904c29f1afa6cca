//! `tenon events stats`: how a handler's sources stand.

use crate::command::object::print_line;
use crate::flags::HandlerFlags;
use crate::handling::{self, Report};
use anyhow::{Context, Result};
use clap::Args;
use std::process::ExitCode;

/// Show how the sources of an event handler stand.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    handler: HandlerFlags,
    /// As the handler says it, in one line of JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = handling::client(&self.handler)?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let report = runtime.block_on(client.report())?;
        if self.json {
            print_line(&report)?;
            return Ok(ExitCode::SUCCESS);
        }
        let report: Report = serde_json::from_str(&report).context("the handler is of another version")?;
        if report.feeds.is_empty() {
            print_line("no sources: nobody says what happens to objects")?;
        }
        for feed in report.feeds {
            let state = if feed.connected { "connected" } else { "not connected" };
            print_line(&format!("{}\n  {state}, {} ms behind", feed.source, feed.lag_ms))?;
            print_line(&format!(
                "  messages {}, hints {}, unreadable {}, lost {}, repeated {}, failures {}",
                feed.messages, feed.hints, feed.unreadable, feed.lost, feed.repeated, feed.failures
            ))?;
            if let Some(error) = feed.last_error {
                print_line(&format!("  last failure: {error}"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
