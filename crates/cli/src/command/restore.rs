//! `tenon restore`: restores the metadata of a volume from the backup in its bucket.

use crate::command::load::free_state_root;
use crate::command::output::Progress;
use crate::command::relocation::{PlaceFlags, print_kept};
use crate::command::unmounted::{UnmountedFlags, UnmountedVolume};
use crate::control::holder::Holder;
use crate::metadata::new_metadata::{NewMetadata, Source};
use crate::metadata::{self, Metadata};
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339;
use crate::serving::metadata_backup;
use crate::state::{self, StateDir};
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use backup::{Choice, Lineage, Listing, Restored};
use clap::Args;
use meta::{EngineError, LogCap, Op};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use store::Timestamp;
use vfs::Audit;

/// Restore the metadata of a volume that has none on this machine or in its database, from the backup in its bucket.
///
/// Restores the newest backup and compares it with the bucket: content without a name becomes a file in lost+found, and
/// files whose content is gone are listed. With --meta, the names go to a database, or from a lost database to this machine. From then on
/// this machine or database continues the volume. A machine that still serves other names of it stops.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The volume
    volume: String,
    /// Restore the backup of this state directory; without it, the newest backup is restored (--list shows all)
    #[arg(long, value_name = "LINEAGE")]
    from: Option<Lineage>,
    /// Restore the newest snapshot that was complete at this time (RFC 3339), instead of the newest state
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Option<Timestamp>,
    /// List the backups and their snapshots, and restore nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    place: PlaceFlags,
    #[command(flatten)]
    access: UnmountedFlags,
}

fn moment(text: &str) -> Result<Timestamp, String> {
    let parsed: jiff::Timestamp = text.parse().map_err(|_| "write a time like 2026-11-26T08:00:00Z")?;
    i64::try_from(parsed.as_nanosecond()).map(Timestamp).map_err(|_| "the time is out of range".to_owned())
}

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let volume = Volume::parse(&self.volume)?;
        if volume.is_buckets() {
            bail!("{} is several buckets, which have no backup of their metadata", volume.url());
        }
        let runtime = process::runtime()?;
        if self.list {
            runtime.block_on(self.print_list(&volume))?;
            return Ok(ExitCode::SUCCESS);
        }
        let root = free_state_root(&self.access, &self.volume, &volume)?;
        let opened = runtime.block_on(self.access.open(&volume, false))?;
        let state = StateDir::lock(&root, &Holder::for_command(volume.url()))?;
        let restored = runtime.block_on(self.restore(&volume, opened, &root));
        if restored.is_err() {
            state.abandon(metadata::exists_in(&root));
        }
        restored?;
        Ok(ExitCode::SUCCESS)
    }

    async fn print_list(&self, volume: &Volume) -> Result<()> {
        let (opened, keys) = (self.access.open(volume, true).await?, metadata_backup::keys(volume));
        for lineage in backup::lineages(opened.store(), &keys).await? {
            for at in Listing::read(opened.store(), &keys, lineage).await?.snapshot_times() {
                println!("{lineage}  snapshot {}", rfc3339(at));
            }
        }
        Ok(())
    }

    async fn restore(&self, volume: &Volume, opened: UnmountedVolume, root: &Path) -> Result<()> {
        let mut relocation = self.place.begin(volume, opened, root).await?;
        relocation.replace_unused()?;
        let url = volume.url();
        if relocation.previous().engine().is_some() {
            if !relocation.is_move() {
                return Err(relocation.refuse_names());
            }
            bail!(
                "{} already has names of {url}, which a restoration does not replace: move them with `tenon dump` and `tenon load`",
                relocation.origin()
            );
        }
        let new = relocation.begin_metadata(Source::Backup)?;
        let opened = relocation.opened();
        let (restored, metadata) = match self.fill(volume, opened, &new).await {
            Ok(filled) => filled,
            Err(error) => {
                new.discard(None);
                return Err(error);
            }
        };
        println!(
            "restored {} records and {} later changes of {url}, as of {}",
            restored.records,
            restored.ops,
            rfc3339(restored.moment)
        );
        restored.problems.iter().for_each(|problem| println!("not restored: {problem}"));
        new.check(metadata.engine().as_ref())?;
        let context = ProcessContext::system()?;
        let identity = metadata_backup::take_over(volume, opened.store(), restored.lineage, &context).await?;
        reconcile(opened, &metadata, root).await?;
        let place = relocation.destination();
        print_kept(relocation.finish(&new, metadata, &restored.about, Some(identity)).await?);
        println!("the metadata is in {place}; mount the volume with `tenon mount {url} DIR`");
        Ok(())
    }

    /// Restores the records to a new engine. Fails if the backup is of another volume.
    async fn fill(
        &self,
        volume: &Volume,
        opened: &UnmountedVolume,
        new: &NewMetadata,
    ) -> Result<(Restored, Metadata)> {
        let metadata: Mutex<Option<Metadata>> = Mutex::default();
        let mut make_engine = || {
            let mut place = metadata.lock().unwrap_or_else(PoisonError::into_inner);
            // The previous engine is closed before it is removed.
            *place = None;
            let made = new.create_engine().map_err(|error| EngineError::Unavailable(format!("{error:#}")))?;
            Ok(place.insert(made).engine())
        };
        let progress = Progress::start();
        let mut shown = 0;
        let show = |state: backup::Progress| match state {
            backup::Progress::Records(done, total) => progress.show(&format!("{done} of {total} records")),
            backup::Progress::Ops(done) if done >= shown + 100_000 => {
                shown = done;
                progress.show(&format!("{done} later changes"));
            }
            backup::Progress::Ops(_) => {}
        };
        let choice = Choice { lineage: self.from, before: self.before };
        let keys = metadata_backup::keys(volume);
        let restored = backup::restore(opened.store(), &keys, choice, &mut make_engine, show).await;
        let (restored, _) = restored.with_context(|| format!("cannot restore {}", volume.url()))?;
        let (id, owner) = (opened.id()?, &restored.about.owner);
        if id != *owner {
            bail!(
                "the backup is of {}, not of {} (id {owner}, not {id})",
                restored.about.volume,
                volume.url()
            );
        }
        let metadata = metadata.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((restored, metadata.context("there is no engine")?))
    }
}

/// Compares the restored names with the bucket, and prints the differences.
async fn reconcile(opened: &UnmountedVolume, metadata: &Metadata, root: &Path) -> Result<()> {
    let config = vfs::Config { moves_path: state::moves_path(root), ..opened.config(state::cache_dir(root)) };
    match opened.is_by_inode() {
        true => reconcile_content(opened, metadata, config).await,
        false => reconcile_paths(opened, metadata, config).await,
    }
}

/// Gives names to content without one, and lists files whose content is gone, in a volume named by inode.
async fn reconcile_content(opened: &UnmountedVolume, metadata: &Metadata, config: vfs::Config) -> Result<()> {
    let engine = metadata.engine();
    let engine = engine.as_ref();
    let audit = Audit::make(engine, opened.store(), opened.key_space()).await?;
    for (ino, key) in &audit.missing {
        let names = meta::namespace::read_path(engine, *ino).unwrap_or_default();
        let path: String = names.iter().map(|name| format!("/{name}")).collect();
        println!("content lost: {path} ({key})");
    }
    let fs = opened.open_filesystem(metadata, config)?;
    for path in fs.admin().name_content(&audit.unused).await? {
        println!("kept without its name: /{}", String::from_utf8_lossy(&path));
    }
    fs.sync().await?;
    Ok(())
}

/// Learns what the bucket shows now, and lists names that it no longer shows, in a volume named by path.
async fn reconcile_paths(opened: &UnmountedVolume, metadata: &Metadata, config: vfs::Config) -> Result<()> {
    const CONSUMER: &str = "restore";
    let engine = metadata.engine();
    let engine = engine.as_ref();
    let fs = opened.open_filesystem(metadata, config)?;
    let (before, mut cursor) = engine.snapshot_with_head()?;
    engine.register(CONSUMER, cursor)?;
    fs.admin().learn_all(|_| {}).await?;
    let mut found = 0;
    loop {
        let page = engine.log_after(cursor, LogCap::default().tail_ops)?;
        let Some(last) = page.last() else { break };
        cursor = last.seqno;
        for logged in page {
            match logged.op {
                Op::Vanish { parent, name, .. } => {
                    let dir = meta::namespace::read_path(before.as_ref(), parent).unwrap_or_default();
                    let path: String = dir.iter().chain([&name]).map(|name| format!("/{name}")).collect();
                    println!("no longer in the bucket: {path}");
                }
                Op::Import { .. } => found += 1,
                _ => {}
            }
        }
    }
    engine.forget_consumer(CONSUMER)?;
    if found > 0 {
        println!("found in the bucket since: {found} names");
    }
    fs.sync().await?;
    Ok(())
}
