//! `tenon gc`: deletes content that no file refers to.

use crate::bucket::{self, Bucket, ProcessContext};
use crate::command::flags::StoreFlags;
use crate::command::status;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::metadata;
use crate::process::environment;
use crate::state;
use crate::state::registry::LiveMount;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use staging::leases::left_over;
use std::path::PathBuf;
use std::process::ExitCode;
use store::Precondition;

/// Memory limit of the metadata engine.
const MEMORY_BYTES: u64 = 256 << 20;

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
    /// The state directory given to `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

impl Gc {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let keys = match status::find(&self.target, environment::registry().mounts()) {
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
        let root = bucket::state_dir(volume, self.state_dir.as_deref(), &self.store);
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        runtime.block_on(async {
            let bucket = Bucket::open(volume, &self.store, self.dry_run, &ProcessContext::system()?).await?;
            let (store, prefix) = (bucket.store.as_ref(), volume.prefix().as_bytes());
            let record = vfs::VolumeRecord::read(store, prefix).await?;
            let is_by_inode = record.as_ref().is_some_and(|record| record.naming == vfs::Naming::Inode);
            let leases = match is_by_inode {
                true => Vec::new(),
                false => left_over(store, &vfs::leases(prefix), self.dry_run).await?,
            };
            if !is_by_inode && !metadata::exists_in(&root) {
                return Ok(leases.iter().map(ToString::to_string).collect());
            }
            if !root.is_dir() {
                bail!(
                    "the metadata that says which content of {} is in use is not in {}: run this on the machine that mounted the volume, or give its --state-dir",
                    volume.url(),
                    root.display()
                );
            }
            let _lock = state::lock_for_command(&root)?;
            let record = record.as_ref();
            let engine = metadata::open(volume, record, store, &root, None, MEMORY_BYTES).await?.engine;
            let keys = vfs::unused_content(engine.as_ref(), store, record, prefix).await?;
            for key in keys.iter().filter(|_| !self.dry_run) {
                store.delete(key, Precondition::None).await?;
            }
            Ok(keys.iter().chain(&leases).map(ToString::to_string).collect())
        })
    }
}
