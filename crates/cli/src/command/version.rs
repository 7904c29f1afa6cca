//! `tenon version`: prints the version of the program.

use crate::process::VERSION;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// Print the version.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.json {
            println!("{}", serde_json::json!({ "version": VERSION }));
        } else {
            println!("tenon {VERSION}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
