//! `tenon gc`: deletes content that no file has.

use crate::bucket::{self, Bucket, World};
use crate::command::status;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::flags::StoreFlags;
use crate::registry::Mount;
use crate::volume::Volume;
use crate::{environment, metadata, state};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use store::Precondition;
use store::leases::left_over;

/// What the metadata engine may use meanwhile.
const MEMORY_BYTES: u64 = 256 << 20;

/// Delete content that no file has.
///
/// A mount that died while it stored a file leaves objects behind that no name leads to, and one that was shared leases. In
/// volumes whose objects are named by path, only those are looked at that Tenon keeps beside the paths.
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// A volume, or where it is mounted
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
            Ok(mount) => self.of_mount(&mount)?,
            Err(_) => self.of_volume(&Volume::parse(&self.target)?)?,
        };
        let done = if self.dry_run { "would be deleted" } else { "deleted" };
        if self.json {
            println!("{}", serde_json::json!({ "deleted": !self.dry_run, "keys": keys }));
        } else {
            keys.iter().for_each(|key| println!("{key}"));
            println!("{} objects that no file has {done}", keys.len());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The mount knows which files are being written.
    fn of_mount(&self, mount: &Mount) -> Result<Vec<String>> {
        let mut client = Client::connect(mount)?;
        match client.ask(&Request::CollectGarbage { dry_run: self.dry_run }, |_| {})? {
            Answer::Collected { keys } => Ok(keys),
            other => client.unexpected(&other),
        }
    }

    fn of_volume(&self, volume: &Volume) -> Result<Vec<String>> {
        let root = bucket::state_dir(volume, self.state_dir.as_deref(), &self.store);
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        runtime.block_on(async {
            let bucket = Bucket::open(volume, &self.store, self.dry_run, &World::real()?).await?;
            let (store, prefix) = (bucket.store.as_ref(), volume.prefix().as_bytes());
            let record = vfs::VolumeRecord::read(store, prefix).await?;
            let is_by_inode = record.as_ref().is_some_and(|record| record.naming == vfs::Naming::Inode);
            let leases = match is_by_inode {
                true => Vec::new(),
                false => left_over(store, &vfs::leases(prefix), self.dry_run).await?,
            };
            if !is_by_inode && !metadata::is_in(&root) {
                return Ok(leases.iter().map(ToString::to_string).collect());
            }
            if !root.is_dir() {
                bail!(
                    "what says which content of {} is used is not in {}: run this where the volume was mounted, or give its --state-dir",
                    volume.url(),
                    root.display()
                );
            }
            let _held = state::hold(&root)?;
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
