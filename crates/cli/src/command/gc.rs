//! `tenon gc`: deletes content that no file refers to.

use crate::command::unmounted::UnmountedFlags;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request};
use crate::metadata;
use crate::process;
use crate::state;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Result, bail};
use clap::Args;
use staging::leases::left_over;
use std::process::ExitCode;
use store::Precondition;

/// Delete content that no file refers to.
///
/// A mount that died while it stored a file leaves objects without a name; a mount with --shared also leaves leases.
/// In volumes named by path, only Tenon's own objects below `.tenon/` are considered.
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// A volume, or its mount point
    #[arg(value_name = "VOLUME|DIR")]
    target: String,
    /// Only show what would be deleted
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: UnmountedFlags,
}

impl Gc {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let keys = match Registry::of_user().find(&self.target) {
            Ok(mount) => self.collect_mounted(&mount)?,
            Err(_) => self.collect_unmounted(&Volume::parse(&self.target)?)?,
        };
        let done = if self.dry_run { "would be deleted" } else { "deleted" };
        if self.json {
            println!("{}", serde_json::json!({ "deleted": !self.dry_run, "keys": keys }));
        } else {
            keys.iter().for_each(|key| println!("{key}"));
            println!("{} objects that no file refers to {done}", keys.len());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the mount to collect garbage: only the mount knows which files are being written.
    fn collect_mounted(&self, mount: &LiveMount) -> Result<Vec<String>> {
        let mut client = Client::connect(mount)?;
        match client.ask(&Request::CollectGarbage { dry_run: self.dry_run }, |_| {})? {
            Answer::Collected { keys } => Ok(keys),
            other => client.unexpected(&other),
        }
    }

    fn collect_unmounted(&self, volume: &Volume) -> Result<Vec<String>> {
        let root = self.access.state_root(volume);
        let runtime = process::runtime()?;
        runtime.block_on(async {
            let opened = self.access.open(volume, self.dry_run).await?;
            let (store, prefix) = (opened.store(), opened.prefix());
            let leases = match opened.is_by_inode() {
                true => Vec::new(),
                false => left_over(store, &vfs::leases(prefix), self.dry_run).await?,
            };
            if !opened.is_by_inode() && !metadata::exists_in(&root) {
                return Ok(leases.iter().map(ToString::to_string).collect());
            }
            if !root.is_dir() {
                bail!(
                    "the metadata that says which content of {} is in use is not in {}: run this on the machine that mounted the volume, or give its --state-dir",
                    volume.url(),
                    root.display()
                );
            }
            let _lock = state::lock_for_command(&root, volume)?;
            let engine = opened.open_metadata().await?.engine();
            let keys = vfs::unused_content(engine.as_ref(), store, opened.record.as_ref(), prefix).await?;
            for key in keys.iter().filter(|_| !self.dry_run) {
                store.delete(key, Precondition::None).await?;
            }
            Ok(keys.iter().chain(&leases).map(ToString::to_string).collect())
        })
    }
}
