//! `tenon quota`: limits what a volume or a directory tree may hold.

use crate::command::locate::resolve_parent;
use crate::command::units;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Quota as Shown, QuotaChange, Request};
use crate::state::registry::Registry;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Limit what a volume or a directory in it may hold.
///
/// The path is a mount point, for the whole volume, or a directory in a mount, for everything below it. Only a volume
/// whose objects are named by inode (`tenon format --naming inode`) can have quotas.
#[derive(Debug, Args)]
pub(crate) struct Quota {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set the limits; a limit that is not given is removed
    Set {
        /// A mount point, or a directory in a mount
        path: PathBuf,
        /// Total length of all files in bytes, holes included
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        bytes: Option<u64>,
        /// Number of files, directories and other inodes
        #[arg(long, value_name = "COUNT")]
        files: Option<u64>,
    },
    /// Show the limits and the usage
    Get {
        /// A mount point, or a directory in a mount
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove the limits
    Rm {
        /// A mount point, or a directory in a mount
        path: PathBuf,
    },
}

impl Quota {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Set { bytes: None, files: None, .. } => {
                bail!("no limit is given; give --bytes, --files or both")
            }
            Action::Set { path, bytes, files } => {
                request_quota(&path, Some(QuotaChange::Set { bytes, files }))?;
            }
            Action::Rm { path } => {
                request_quota(&path, Some(QuotaChange::Remove))?;
            }
            Action::Get { path, json } => match request_quota(&path, None)? {
                None => bail!("{} has no quota of its own; `tenon quota set` sets one", path.display()),
                Some(quota) if json => println!("{}", serde_json::to_string(&quota)?),
                Some(quota) => println!("{}", describe(&quota)),
            },
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the mount that contains a path to change the quota there, if a change is given. Returns the quota; `None` if there is none.
fn request_quota(path: &Path, change: Option<QuotaChange>) -> Result<Option<Shown>> {
    let (mount, inside) = Registry::of_user().containing(&resolve_parent(path)?)?;
    let mut client = Client::connect(&mount)?;
    let path_hex = store::hex(&inside);
    match client.ask(&Request::Quota { path_hex, change }, |_| {})? {
        Answer::Quota { quota } => Ok(quota),
        other => client.unexpected(&other),
    }
}

fn describe(quota: &Shown) -> String {
    let limit = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| format!("of {limit}"));
    format!(
        "bytes  {} used, {}\nfiles  {} used, {}",
        quota.bytes_used,
        limit(quota.bytes),
        quota.files_used,
        limit(quota.files)
    )
}
