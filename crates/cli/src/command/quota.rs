//! `tenon quota`: what a volume, or the tree below a directory, may hold.

use super::locate;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Quota as Shown, QuotaChange, Request};
use crate::units;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Limit what a volume or a directory in it may hold.
///
/// The path is a mount point, for the whole volume, or a directory in a mount, for everything below it. Volumes whose
/// objects are named by path have no quotas.
#[derive(Debug, Args)]
pub(crate) struct Quota {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set the limits; what is not given is not limited
    Set {
        /// A mount point, or a directory in a mount
        path: PathBuf,
        /// What files may have in bytes together, holes included
        #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
        bytes: Option<u64>,
        /// How many files, directories and other inodes there may be
        #[arg(long, value_name = "COUNT")]
        files: Option<u64>,
    },
    /// Show the limits, and what is used of them
    Get {
        /// A mount point, or a directory in a mount
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Take the limits away
    Rm {
        /// A mount point, or a directory in a mount
        path: PathBuf,
    },
}

impl Quota {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Set { bytes: None, files: None, .. } => bail!("a quota limits --bytes, --files or both"),
            Action::Set { path, bytes, files } => {
                ask(&path, Some(QuotaChange::Set { bytes, files }))?;
            }
            Action::Rm { path } => {
                ask(&path, Some(QuotaChange::Remove))?;
            }
            Action::Get { path, json } => match ask(&path, None)? {
                None => bail!("{} has no quota of its own", path.display()),
                Some(quota) if json => println!("{}", serde_json::to_string(&quota)?),
                Some(quota) => println!("{}", shown(&quota)),
            },
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn ask(path: &Path, change: Option<QuotaChange>) -> Result<Option<Shown>> {
    let (mount, path_hex) = locate::in_mount(path)?;
    let mut client = Client::connect(&mount)?;
    match client.ask(&Request::Quota { path_hex, change }, |_| {})? {
        Answer::Quota { quota } => Ok(quota),
        other => client.unexpected(&other),
    }
}

fn shown(quota: &Shown) -> String {
    let limit = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| format!("of {limit}"));
    format!(
        "bytes  {} used, {}\nfiles  {} used, {}",
        quota.bytes_used,
        limit(quota.bytes),
        quota.files_used,
        limit(quota.files)
    )
}
