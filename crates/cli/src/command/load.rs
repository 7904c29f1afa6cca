//! `tenon load`: loads a dump file into a place that has no names of the volume, which may be another place than the volume's present one.

use crate::command::output::Progress;
use crate::command::relocation::{PlaceFlags, Relocation, print_kept};
use crate::command::unmounted::{UnmountedFlags, UnmountedVolume};
use crate::control::holder::Holder;
use crate::metadata::new_metadata::{NewMetadata, Source};
use crate::metadata::previous_metadata::KeptAt;
use crate::metadata::{self, Metadata, dump_file};
use crate::process;
use crate::process::context::ProcessContext;
use crate::serving::metadata_backup;
use crate::state::StateDir;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use backup::About;
use clap::Args;
use meta::Engine;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Load the metadata of a volume from a dump, or move it to a database or back.
///
/// Without --meta, the names go where the volume has its names, which must have none yet. With --meta, they move to another place. If
/// the volume still has its names, the dump must contain exactly these. All records are loaded, or none. A command that was interrupted can be
/// run again. Afterwards, `tenon fsck` reports what the bucket lost since the dump.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Dump file, written by `tenon dump`
    file: PathBuf,
    /// The volume
    volume: String,
    #[command(flatten)]
    place: PlaceFlags,
    #[command(flatten)]
    access: UnmountedFlags,
}

/// The outcome of a load.
struct Loaded {
    records: u64,
    /// The place of the names.
    place: String,
    kept: Option<KeptAt>,
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let volume = Volume::parse(&self.volume)?;
        let root = free_state_root(&self.access, &self.volume, &volume)?;
        let about = dump_file::open(&self.file)?.header().about.clone();
        let runtime = process::runtime()?;
        let opened = runtime.block_on(self.access.open(&volume, false))?;
        self.check_volume_id(&volume, &opened, &about)?;
        let state = StateDir::lock(&root, &Holder::for_command(volume.url()))?;
        let loaded = runtime.block_on(self.load(&volume, opened, &about, &root));
        if loaded.is_err() {
            state.abandon(metadata::exists_in(&root));
        }
        let (Loaded { records, place, kept }, url) = (loaded?, volume.url());
        println!(
            "loaded {records} records of {url} to {place}; `tenon fsck {url}` reports what the bucket lost since"
        );
        print_kept(kept);
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a dump of another volume.
    fn check_volume_id(&self, volume: &Volume, opened: &UnmountedVolume, about: &About) -> Result<()> {
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

    async fn load(
        &self,
        volume: &Volume,
        opened: UnmountedVolume,
        about: &About,
        root: &Path,
    ) -> Result<Loaded> {
        let relocation = self.place.begin(volume, opened, root).await?;
        if let Some(engine) = relocation.previous().engine() {
            if !relocation.is_move() && !relocation.is_given() {
                return Err(relocation.refuse_names());
            }
            let records = self.compare(volume, &relocation, engine.as_ref())?;
            if !relocation.is_move() {
                // An earlier command was interrupted after it had moved the names.
                let place = relocation.destination();
                return Ok(Loaded { records, place, kept: relocation.finish_again()? });
            }
        }
        let new = relocation.begin_metadata(Source::Dump)?;
        let (metadata, records) = self.fill(&new)?;
        let context = ProcessContext::system()?;
        let store = relocation.opened().store();
        let identity = metadata_backup::take_over_newest(volume, store, &context).await?;
        let place = relocation.destination();
        Ok(Loaded { records, place, kept: relocation.finish(&new, metadata, about, identity).await? })
    }

    /// Refuses a dump that does not have exactly the names of the volume. Returns the number of records.
    fn compare(&self, volume: &Volume, relocation: &Relocation<'_>, engine: &dyn Engine) -> Result<u64> {
        let mut dump = dump_file::open(&self.file)?;
        let is_same = backup::dump::has_records_of(engine.snapshot()?.as_ref(), &mut dump);
        if is_same.with_context(|| format!("cannot load {}", self.file.display()))? {
            return Ok(dump.records());
        }
        let (file, url, origin) = (self.file.display(), volume.url(), relocation.origin());
        match relocation.is_move() {
            true => bail!(
                "the names of {url} in {origin} are not those of {file}: unmount the volume everywhere, dump it again, and load that dump"
            ),
            false => Err(relocation.refuse_names()),
        }
    }

    /// Fills new metadata with the records of the dump. Removes it again if that fails.
    fn fill(&self, new: &NewMetadata) -> Result<(Metadata, u64)> {
        let metadata = match new.create_engine() {
            Ok(metadata) => metadata,
            Err(error) => {
                new.discard(None);
                return Err(error);
            }
        };
        match self.fill_engine(new, metadata.engine().as_ref()) {
            Ok(records) => Ok((metadata, records)),
            Err(error) => {
                new.discard(Some(metadata));
                Err(error)
            }
        }
    }

    fn fill_engine(&self, new: &NewMetadata, engine: &dyn Engine) -> Result<u64> {
        let mut dump = dump_file::open(&self.file)?;
        let progress = Progress::start();
        let loaded = backup::dump::load(engine, &mut dump, |records| {
            if records.is_multiple_of(100_000) {
                progress.show(&format!("{records} records"));
            }
        });
        let records = loaded.with_context(|| format!("cannot load {}", self.file.display()))?;
        new.check(engine)?;
        Ok(records)
    }
}

/// Returns the state directory for the metadata of a volume. Fails if a process mounts or serves the volume.
pub(super) fn free_state_root(access: &UnmountedFlags, text: &str, volume: &Volume) -> Result<PathBuf> {
    if let Ok(mount) = Registry::of_user().find(text) {
        bail!("{text} is in use: {}", mount.holder.describe_use());
    }
    let root = access.state_root(volume);
    std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))
}
