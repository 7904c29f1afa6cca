//! `tenon events`: handles, shows and replays events of objects.

mod replay;
mod serve;
mod stats;
mod tail;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Handle events for the views of many clients, and inspect event sources.
#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(Box<serve::Serve>),
    Tail(tail::Tail),
    Replay(replay::Replay),
    Stats(stats::Stats),
}

impl Events {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Serve(serve) => serve.run(),
            Action::Tail(tail) => tail.run(),
            Action::Replay(replay) => replay.run(),
            Action::Stats(stats) => stats.run(),
        }
    }
}
