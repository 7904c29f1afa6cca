//! Metadata that is being restored from a backup or loaded from a dump, at a place that has none.
//!
//! In a state directory it is a directory of its own until it is complete. In a database it has a mark meanwhile ([`super::marks`]).

use crate::metadata::lineage::Identity;
use crate::metadata::place::Place;
use crate::metadata::{
    self, ENGINE_DIR, Metadata, OWNER_FILE, SETTINGS_FILE, database, engine_dir, marks, move_engine_away,
};
use crate::process::files;
use crate::state;
use anyhow::{Context, Result, bail};
use backup::About;
use meta::Engine;
use meta_disk::{DiskEngine, EngineOptions};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::VolumeRecord;

/// Cache of an engine that is being restored.
pub(super) const RESTORING_CACHE_BYTES: usize = 256 << 20;

/// Directory in which an engine is restored from a backup or loaded from a dump.
const RESTORING_DIR: &str = "meta.restoring";

/// Metadata that is being restored or loaded.
#[derive(Debug)]
pub(crate) struct NewMetadata {
    state_root: PathBuf,
    place: NewPlace,
}

/// The place of new metadata.
#[derive(Debug)]
enum NewPlace {
    /// A directory in the state directory, until it is complete.
    StateDirectory(PathBuf),
    /// The database that a record names.
    Database(Box<VolumeRecord>, String),
}

/// The names of a volume that a place has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing that is in use.
    Nothing,
    /// Names that are in use, or of unknown origin.
    Names,
}

/// Returns what a place has of a volume with this record, in a state directory that the caller has locked.
pub(crate) fn examine(place: &Place, record: Option<&VolumeRecord>, state_root: &Path) -> Result<Found> {
    let is_in_charge = Place::of(record) == *place;
    let has_names = match (place, record) {
        (Place::StateDirectory, _) => is_in_charge && metadata::exists_in(state_root),
        (Place::Database(_), None) => false,
        (Place::Database(url), Some(record)) => match database::open_if_there(record, url, state_root)? {
            None => false,
            Some(engine) => {
                let engine = engine.as_ref();
                let is_replaceable = marks::is_empty(engine)?
                    || marks::is_incomplete(engine)?
                    || !is_in_charge && marks::is_spare(engine)?;
                !is_replaceable
            }
        },
    };
    Ok(if has_names { Found::Names } else { Found::Nothing })
}

impl NewMetadata {
    /// Begins at a place at which [`examine`] has found nothing. Fails if the state directory has changes that are not in the bucket, or
    /// unfinished renames.
    pub(crate) fn begin(place: &Place, record: Option<&VolumeRecord>, state_root: &Path) -> Result<Self> {
        state::check_no_backlog(state_root)?;
        state::check_no_moves(state_root)?;
        let place = match (place, record) {
            (Place::StateDirectory, _) => {
                if engine_dir(state_root).exists() {
                    // An interrupted command left it, or names that are in a database now.
                    move_engine_away(state_root)?;
                }
                NewPlace::StateDirectory(state_root.join(RESTORING_DIR))
            }
            (Place::Database(url), Some(record)) => NewPlace::Database(Box::new(record.clone()), url.clone()),
            (Place::Database(_), None) => bail!("a volume needs a record for its names to be in a database"),
        };
        Ok(Self { state_root: state_root.to_owned(), place })
    }

    /// Creates an empty engine. Removes the previous one, which must be closed, or what an interrupted command left.
    pub(crate) fn create_engine(&self) -> Result<Metadata> {
        match &self.place {
            NewPlace::StateDirectory(staged) => {
                match fs::remove_dir_all(staged) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                    _ => {}
                }
                let options =
                    EngineOptions { cache_bytes: RESTORING_CACHE_BYTES, ..EngineOptions::default() };
                let engine = DiskEngine::open(staged, options).context("cannot create the metadata")?;
                Ok(Metadata::Disk(Arc::new(engine)))
            }
            NewPlace::Database(record, url) => {
                database::remove(record, url)?;
                database::create(record, url)?;
                let engine = database::open_alone(record, url, &self.state_root)?;
                marks::set_incomplete(engine.as_ref())?;
                Ok(Metadata::Database(engine))
            }
        }
    }

    /// Refuses records that violate the invariants of the metadata.
    pub(crate) fn check(&self, engine: &dyn Engine) -> Result<()> {
        match meta::invariants::fsck(engine)?.first() {
            None => Ok(()),
            Some(violation) => bail!("the records are not consistent: {violation}; nothing was restored"),
        }
    }

    /// Removes the new metadata after a failure. What cannot be removed is replaced by the next attempt.
    pub(crate) fn discard(&self, metadata: Option<Metadata>) {
        drop(metadata);
        let removed = match &self.place {
            NewPlace::StateDirectory(staged) => fs::remove_dir_all(staged).map_err(Into::into),
            NewPlace::Database(record, url) => database::remove(record, url),
        };
        if let Err(error) = removed {
            tracing::debug!("cannot remove incomplete metadata; the next attempt replaces it: {error:#}");
        }
    }

    /// Puts the complete metadata in its place. Closes an engine on disk. The result is durable when this returns, and in use once the volume's
    /// record names its place.
    pub(crate) fn finish(
        &self,
        metadata: Metadata,
        about: &About,
        identity: Option<Identity>,
    ) -> Result<Option<Arc<dyn Engine>>> {
        if let Some(settings) = &about.settings {
            files::write_durably(&self.state_root.join(SETTINGS_FILE), settings)?;
        }
        let NewPlace::StateDirectory(staged) = &self.place else {
            let engine = metadata.engine();
            Identity::replace_in(engine.as_ref(), identity)?;
            marks::set_spare(engine.as_ref())?;
            marks::check_session(engine.as_ref())?;
            return Ok(Some(engine));
        };
        metadata::close(metadata)?;
        if let Some(identity) = identity {
            identity.write(&self.state_root)?;
        }
        fs::rename(staged, self.state_root.join(ENGINE_DIR))?;
        // Written last: without it the state directory has no metadata, and a mount of a volume named by inode with content is refused.
        files::write_durably(&self.state_root.join(OWNER_FILE), &about.owner)?;
        Ok(None)
    }

    /// Removes the mark of new metadata in a database, after the volume's record names it.
    pub(crate) fn put_in_charge(engine: &dyn Engine) -> Result<()> {
        marks::put_in_charge(engine)
    }
}
