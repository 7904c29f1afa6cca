//! `tenon gc`: deletes content that no file refers to, and rewrites packs of which files use less than half.

use crate::command::units::human_bytes;
use crate::command::unmounted::{MEMORY_BYTES, UnmountedFlags, UnmountedVolume};
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request, RewrittenPacks};
use crate::metadata::Metadata;
use crate::process;
use crate::state;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Result, bail};
use clap::Args;
use staging::leases::left_over;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use store::Precondition;

/// The outcome of a collection.
struct Collected {
    /// Keys that were deleted.
    keys: Vec<String>,
    /// Packs that were rewritten.
    packs: RewrittenPacks,
    /// Whether a batch is open, so that content that files used is kept.
    is_batch_open: bool,
}

/// Maximum wait until the changed names are durable.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// Delete content that no file refers to.
///
/// A mount that died while it stored a file leaves objects without a name; a mount with --shared also leaves leases.
/// Objects that several small files of batches share are rewritten if files use less than half of their bytes.
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
        let Collected { keys, packs, is_batch_open } = match Registry::of_user().find(&self.target) {
            Ok(mount) => self.collect_mounted(&mount)?,
            Err(_) => self.collect_unmounted(&Volume::parse(&self.target)?)?,
        };
        let done = if self.dry_run { "would be deleted" } else { "deleted" };
        if self.json {
            let packs = serde_json::json!({ "count": packs.count, "size_bytes": packs.size_bytes, "used_bytes": packs.used_bytes });
            println!(
                "{}",
                serde_json::json!({ "deleted": !self.dry_run, "keys": keys, "rewritten_packs": packs })
            );
        } else {
            if packs.count > 0 {
                let done = if self.dry_run { "would be rewritten" } else { "rewritten" };
                let (used, size) = (human_bytes(packs.used_bytes), human_bytes(packs.size_bytes));
                println!("{} packs {done}: files use {used} of their {size}", packs.count);
            }
            keys.iter().for_each(|key| println!("{key}"));
            println!("{} objects that no file refers to {done}", keys.len());
            if is_batch_open {
                println!(
                    "a batch is open, which may read what the volume has given up: run this again after it has ended"
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the mount to collect garbage: only the mount knows which files are being written.
    fn collect_mounted(&self, mount: &LiveMount) -> Result<Collected> {
        let mut client = Client::connect(mount)?;
        match client.ask(&Request::CollectGarbage { dry_run: self.dry_run }, |_| {})? {
            Answer::Collected { keys, packs, is_batch_open } => Ok(Collected { keys, packs, is_batch_open }),
            other => client.unexpected(&other),
        }
    }

    fn collect_unmounted(&self, volume: &Volume) -> Result<Collected> {
        let root = self.access.state_root(volume);
        let runtime = process::runtime()?;
        runtime.block_on(async {
            let opened = self.access.open(volume, self.dry_run).await?;
            let (store, prefix) = (opened.store(), opened.prefix());
            let leases = match opened.is_by_inode() {
                true => Vec::new(),
                false => left_over(store, &vfs::leases(prefix), self.dry_run).await?,
            };
            if !opened.is_by_inode() && !opened.has_metadata() {
                let keys = leases.iter().map(ToString::to_string).collect();
                return Ok(Collected { keys, packs: RewrittenPacks::default(), is_batch_open: false });
            }
            if !opened.has_metadata() && !root.is_dir() {
                bail!(
                    "the metadata that says which content of {} is in use is not in {}: run this on the machine that mounted the volume, or give its --state-dir",
                    volume.url(),
                    root.display()
                );
            }
            let _lock = opened.lock_state()?;
            let metadata = opened.open_metadata().await?;
            let packs = self.rewrite_packs(&opened, &metadata, &root).await?;
            let engine = metadata.engine();
            let keys = vfs::unused_content(engine.as_ref(), store, opened.key_space()).await?;
            for key in keys.iter().filter(|_| !self.dry_run) {
                store.delete(key, Precondition::None).await?;
            }
            let keys = keys.iter().chain(&leases).map(ToString::to_string).collect();
            Ok(Collected { keys, packs, is_batch_open: vfs::has_open_batches(engine.as_ref())? })
        })
    }

    /// Rewrites packs of which files use less than half, unless `--dry-run`. Opens the file system only if there are some.
    async fn rewrite_packs(
        &self,
        opened: &UnmountedVolume,
        metadata: &Metadata,
        root: &Path,
    ) -> Result<RewrittenPacks> {
        let (store, engine) = (opened.store(), metadata.engine());
        let found = vfs::packs_to_rewrite(&engine, store, opened.key_space()).await?;
        if self.dry_run || found.count == 0 {
            return Ok(found.into());
        }
        let config =
            vfs::Config { memory_limit_bytes: MEMORY_BYTES, ..opened.config(state::cache_dir(root)) };
        let fs = opened.open_filesystem(metadata, config)?;
        let rewritten = fs.admin().rewrite_packs(false).await?;
        fs.shutdown(SHUTDOWN_TIMEOUT).await?;
        Ok(rewritten.into())
    }
}

impl From<vfs::PacksToRewrite> for RewrittenPacks {
    fn from(packs: vfs::PacksToRewrite) -> Self {
        let vfs::PacksToRewrite { count, size_bytes, used_bytes } = packs;
        Self { count, size_bytes, used_bytes }
    }
}
