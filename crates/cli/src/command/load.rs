//! `tenon load`: loads a dump file into a volume that has no metadata on this machine.

use crate::command::output::Progress;
use crate::command::unmounted::UnmountedFlags;
use crate::control::holder::Holder;
use crate::metadata::lineage::Identity;
use crate::metadata::{self, NewMetadata, dump_file};
use crate::process;
use crate::process::context::ProcessContext;
use crate::serving::metadata_backup;
use crate::state::StateDir;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use backup::About;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Load the metadata of a volume from a dump, if this machine has none.
///
/// All records are loaded, or none. Afterwards, `tenon fsck` reports what the bucket lost since the dump.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Dump file, written by `tenon dump`
    file: PathBuf,
    /// The volume
    volume: String,
    #[command(flatten)]
    access: UnmountedFlags,
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let volume = Volume::parse(&self.volume)?;
        let root = empty_state_root(&self.access, &self.volume, &volume)?;
        let about = dump_file::open(&self.file)?.header().about.clone();
        process::runtime()?.block_on(self.check_volume_id(&volume, &about))?;
        let state = StateDir::lock(&root, &Holder::for_command(volume.url()))?;
        let loaded = self.load_to(&volume, &about, &root);
        if loaded.is_err() {
            state.abandon(metadata::exists_in(&root));
        }
        let (records, url) = (loaded?, volume.url());
        println!(
            "loaded {records} records of {url} to {}; `tenon fsck {url}` reports what the bucket lost since",
            root.display()
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a dump of another volume.
    async fn check_volume_id(&self, volume: &Volume, about: &About) -> Result<()> {
        let opened = self.access.open(volume, true).await?;
        opened.require_no_database()?;
        let id = opened.id()?;
        if id != about.owner {
            bail!(
                "{} is a dump of {}, not of {} (id {}, not {id}); give the dump of this volume",
                self.file.display(),
                about.volume,
                volume.url(),
                about.owner
            );
        }
        Ok(())
    }

    fn load_to(&self, volume: &Volume, about: &About, root: &Path) -> Result<u64> {
        let new = NewMetadata::begin(root)?;
        let mut dump = dump_file::open(&self.file)?;
        let progress = Progress::start();
        let engine = new.create_engine()?;
        let loaded = backup::dump::load(&engine, &mut dump, |records| {
            if records.is_multiple_of(100_000) {
                progress.show(&format!("{records} records"));
            }
        });
        let records = loaded.with_context(|| format!("cannot load {}", self.file.display()))?;
        new.check(&engine)?;
        drop(engine);
        let identity = process::runtime()?.block_on(self.take_over(volume))?;
        new.finish(about, identity)?;
        Ok(records)
    }

    /// Takes the volume over from a machine that continues its backup, if there is a backup.
    async fn take_over(&self, volume: &Volume) -> Result<Option<Identity>> {
        let context = ProcessContext::system()?;
        let opened = self.access.open(volume, false).await?;
        metadata_backup::take_over_newest(volume, opened.store(), &context).await
    }
}

/// Returns the state directory for the metadata of a volume. Fails if a process mounts or serves the volume, or if the directory has metadata
/// already.
pub(super) fn empty_state_root(access: &UnmountedFlags, text: &str, volume: &Volume) -> Result<PathBuf> {
    if let Ok(mount) = Registry::of_user().find(text) {
        bail!("{text} is in use: {}", mount.holder.describe_use());
    }
    let root = access.state_root(volume);
    let root = std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))?;
    if metadata::exists_in(&root) {
        bail!(
            "{} already has names of {}, which are not replaced: move that directory away first",
            root.display(),
            volume.url()
        );
    }
    Ok(root)
}
