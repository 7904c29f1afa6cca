//! The move of a volume's names to another place, for commands that fill new metadata: `tenon load` and `tenon restore`.
//!
//! The volume's record in the bucket says where the names are. It is changed in one request, after the new metadata is complete and durable.
//! So a process that is killed at any moment leaves the names in use at the old place or at the new one, and the same command can be run again.

use crate::command::unmounted::UnmountedVolume;
use crate::metadata::lineage::Identity;
use crate::metadata::new_metadata::{self, Found, NewMetadata, Source};
use crate::metadata::place::Place;
use crate::metadata::previous_metadata::{KeptAt, PreviousMetadata};
use crate::metadata::{self, Metadata, database};
use crate::process::context::{ProcessContext, random_id};
use crate::volume::Volume;
use anyhow::{Result, anyhow, bail};
use backup::About;
use clap::Args;
use std::path::{Path, PathBuf};
use vfs::{Mapping, Naming, VolumeRecord};

/// Flags that say where the names go.
#[derive(Debug, Args)]
pub(crate) struct PlaceFlags {
    /// Where the names go: a database, as for `tenon format --meta`, or `local`, the state directory on this machine (default: where the volume
    /// has its names)
    #[arg(long, value_name = "URL|local")]
    meta: Option<Place>,
    /// The database that had the names is lost for good: do not ask it whether it has other names, or is in use
    #[arg(long)]
    database_is_lost: bool,
}

/// A move of a volume's names.
pub(crate) struct Relocation<'v> {
    volume: &'v Volume,
    opened: UnmountedVolume,
    state_root: PathBuf,
    /// The place of the names before.
    from: Place,
    to: Place,
    /// Whether `to` was given, and not taken from the volume.
    is_given: bool,
    previous: PreviousMetadata,
}

impl PlaceFlags {
    /// Returns the place to which the names of a volume go.
    pub(crate) fn destination(&self, opened: &UnmountedVolume) -> Place {
        self.meta.clone().unwrap_or_else(|| Place::of(opened.record.as_ref()))
    }

    /// Opens the present names of a volume exclusively, with a state directory that the caller has locked.
    pub(crate) async fn begin<'v>(
        &self,
        volume: &'v Volume,
        mut opened: UnmountedVolume,
        state_root: &Path,
    ) -> Result<Relocation<'v>> {
        let to = self.destination(&opened);
        let from = Place::of(opened.record.as_ref());
        metadata::check_owner(state_root, &opened.id()?)?;
        if let Some(url) = to.url() {
            if volume.is_buckets() {
                bail!("{} is several buckets, whose names are not kept in a database", volume.url());
            }
            opened.record = Some(record_for(volume, &opened, url).await?);
        }
        let record = opened.record.as_ref();
        let is_refused =
            self.meta.is_none() && from == Place::StateDirectory && metadata::exists_in(state_root);
        if is_refused && !new_metadata::has_unused_names(state_root)? {
            return Err(refuse_names(&from, volume, record, state_root));
        }
        let previous = match self.database_is_lost && from.url().is_some() {
            true => PreviousMetadata::None,
            false => PreviousMetadata::open(volume, record, opened.store(), state_root).await?,
        };
        let (state_root, is_given) = (state_root.to_owned(), self.meta.is_some());
        Ok(Relocation { volume, opened, state_root, from, to, is_given, previous })
    }
}

/// Returns the record of a volume whose names are to be in the database at a URL. Stores a record in a bucket that has none. Fails if the
/// URL is not that of a database.
async fn record_for(volume: &Volume, opened: &UnmountedVolume, url: &str) -> Result<VolumeRecord> {
    if let Some(record) = &opened.record {
        database::part_of(record, url)?;
        return Ok(record.clone());
    }
    let id = u128::from(random_id()?) << 64 | u128::from(random_id()?);
    let now = ProcessContext::system()?.clock.now();
    let record = VolumeRecord::new(Mapping::Whole, Naming::FilePath, id, now)?;
    database::part_of(&record, url)?;
    record.write(opened.store(), volume.prefix().as_bytes()).await?;
    Ok(record)
}

impl Relocation<'_> {
    /// Returns the volume.
    pub(crate) fn opened(&self) -> &UnmountedVolume {
        &self.opened
    }

    /// Returns the names that the volume has now; none if it has no names, or if they cannot be found from this machine.
    pub(crate) fn previous(&self) -> &PreviousMetadata {
        &self.previous
    }

    /// Returns whether the names go to another place than the volume's present one.
    pub(crate) fn is_move(&self) -> bool {
        self.from != self.to
    }

    /// Returns whether the place to which the names go was given, and not taken from the volume.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Describes the place to which the names go.
    pub(crate) fn destination(&self) -> String {
        self.describe(&self.to)
    }

    /// Describes the place at which the names were before.
    pub(crate) fn origin(&self) -> String {
        self.describe(&self.from)
    }

    fn describe(&self, place: &Place) -> String {
        describe(place, &self.state_root)
    }

    /// Lets new names replace the present ones at their place, if these come from an earlier `tenon restore` and nothing has changed them since.
    pub(crate) fn replace_unused(&mut self) -> Result<()> {
        if !self.is_move() && self.previous.is_unused()? {
            std::mem::replace(&mut self.previous, PreviousMetadata::None).close()?;
        }
        Ok(())
    }

    /// Begins new metadata at the place to which the names go. Fails if it has names.
    pub(crate) fn begin_metadata(&self, source: Source) -> Result<NewMetadata> {
        let record = self.opened.record.as_ref();
        if new_metadata::examine(&self.to, record, &self.state_root)? == Found::Names {
            return Err(self.refuse_names());
        }
        NewMetadata::begin(&self.to, record, &self.state_root, source)
    }

    /// Returns the error for a place that has names of the volume already.
    pub(crate) fn refuse_names(&self) -> anyhow::Error {
        refuse_names(&self.to, self.volume, self.opened.record.as_ref(), &self.state_root)
    }

    /// Puts the new metadata in use, which is complete. Returns where the earlier names are kept, if there were any.
    pub(crate) async fn finish(
        self,
        new: &NewMetadata,
        metadata: Metadata,
        about: &About,
        identity: Option<Identity>,
    ) -> Result<Option<KeptAt>> {
        let engine = new.finish(metadata, about, identity)?;
        self.previous.prepare_end()?;
        let Some(record) = &self.opened.record else { return Ok(None) };
        if self.is_move() {
            let moved = record.clone().with_database(self.to.url().map(str::to_owned));
            moved.replace(record, self.opened.store(), self.opened.prefix()).await?;
        }
        if let Some(engine) = &engine {
            NewMetadata::put_in_charge(engine.as_ref())?;
        }
        self.previous.end(record, &self.state_root)
    }

    /// Completes an earlier command that was interrupted after the names had moved. Returns where the earlier names are kept, if they are on
    /// this machine.
    pub(crate) fn finish_again(self) -> Result<Option<KeptAt>> {
        let is_superseded = self.to.url().is_some() && metadata::engine_dir(&self.state_root).exists();
        let kept = is_superseded.then(|| metadata::move_engine_away(&self.state_root)).transpose()?;
        Ok(kept.map(KeptAt::Directory))
    }
}

fn describe(place: &Place, state_root: &Path) -> String {
    match place {
        Place::StateDirectory => state_root.display().to_string(),
        Place::Database(url) => url.clone(),
    }
}

/// Returns the error for a place that has names of a volume already.
fn refuse_names(
    place: &Place,
    volume: &Volume,
    record: Option<&VolumeRecord>,
    state_root: &Path,
) -> anyhow::Error {
    let (at, url) = (describe(place, state_root), volume.url());
    match (place, record) {
        (Place::Database(database_url), Some(record)) => {
            let part = database::part_of(record, database_url).unwrap_or_default();
            anyhow!(
                "{at} already has names of {url}, which are not replaced: give another database, or remove them there first ({part})"
            )
        }
        _ => {
            anyhow!("{at} already has names of {url}, which are not replaced: move that directory away first")
        }
    }
}

/// Prints where names are kept that are no longer in use.
pub(crate) fn print_kept(kept: Option<KeptAt>) {
    match kept {
        None => {}
        Some(KeptAt::Directory(dir)) => println!("the earlier names are kept in {}", dir.display()),
        Some(KeptAt::Database(part, url)) => println!(
            "the earlier names are kept in {part} of {url}, where nothing uses them; remove them there when you no longer need them"
        ),
    }
}
