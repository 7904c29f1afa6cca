//! `tenon import`: makes files of objects that other programs stored in a volume named by inode.

use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::state::registry::Registry;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// Make files of objects that other programs stored in a volume named by inode.
///
/// An object outside `inodes/` becomes a file, with the object's key as its path. A mount also does this when it
/// starts. In a volume named by path, such objects are files already.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A mount point, or a volume that is mounted
    #[arg(value_name = "DIR|VOLUME")]
    target: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mount = Registry::of_user().find(&self.target)?;
        let mut client = Client::connect(&mount)?;
        let paths = match client.ask(&Request::Import, |_| {})? {
            Answer::Imported { paths } => paths,
            other => client.unexpected(&other)?,
        };
        if self.json {
            println!("{}", serde_json::json!({ "paths": paths }));
        } else {
            paths.iter().for_each(|path| println!("{path}"));
            println!("{} files imported", paths.len());
        }
        Ok(ExitCode::SUCCESS)
    }
}
