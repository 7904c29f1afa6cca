//! Metadata that is being restored from a backup or loaded from a dump, at a place that has none.
//!
//! In a state directory it is a directory of its own until it is complete. In a database it has a mark meanwhile ([`super::marks`]).
//!
//! An interrupted `tenon restore` may have put its names in their place already. Another one replaces them, as long as nothing has changed them.

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
use meta_disk::{DiskEngine, EngineOptions, OpenError};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::VolumeRecord;

/// Cache of an engine that is being restored.
pub(super) const RESTORING_CACHE_BYTES: usize = 64 << 20;

/// Directory in which an engine is restored from a backup or loaded from a dump.
const RESTORING_DIR: &str = "meta.restoring";

/// Directory of unused names that an earlier restoration has left, while other ones take their place.
const REPLACED_DIR: &str = "meta.replaced";

/// Metadata that is being restored or loaded.
#[derive(Debug)]
pub(crate) struct NewMetadata {
    state_root: PathBuf,
    place: NewPlace,
    source: Source,
}

/// The source of new metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The backup in the bucket.
    Backup,
    /// A dump file.
    Dump,
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
        (Place::StateDirectory, _) => {
            is_in_charge && metadata::exists_in(state_root) && !has_unused_names(state_root)?
        }
        (Place::Database(_), None) => false,
        (Place::Database(url), Some(record)) => match database::open_if_there(record, url, state_root)? {
            None => false,
            Some(engine) => {
                let engine = engine.as_ref();
                let is_replaceable = marks::is_empty(engine)?
                    || marks::is_incomplete(engine)?
                    || marks::is_unused(engine)?
                    || !is_in_charge && marks::is_spare(engine)?;
                !is_replaceable
            }
        },
    };
    Ok(if has_names { Found::Names } else { Found::Nothing })
}

/// Returns whether a state directory has names that come from a backup, and that nothing has changed since.
pub(crate) fn has_unused_names(state_root: &Path) -> Result<bool> {
    // Changes of the names may be only in the write-back log.
    if state::waiting_changes(state_root)? > 0 {
        return Ok(false);
    }
    let open = || DiskEngine::open(&engine_dir(state_root), EngineOptions::default());
    let engine = match state::retry_while_busy(open, |error| matches!(error, OpenError::InUse(_))) {
        Ok(engine) => engine,
        Err(error) => {
            tracing::debug!("cannot open the names in {}: {error}", state_root.display());
            return Ok(false);
        }
    };
    let is_unused = marks::is_unused(&engine)?;
    metadata::close(Metadata::Disk(Arc::new(engine)))?;
    Ok(is_unused)
}

impl NewMetadata {
    /// Begins at a place at which [`examine`] has found nothing. Fails if the state directory has changes that are not in the bucket, or
    /// unfinished renames.
    pub(crate) fn begin(
        place: &Place,
        record: Option<&VolumeRecord>,
        state_root: &Path,
        source: Source,
    ) -> Result<Self> {
        state::check_no_backlog(state_root)?;
        state::check_no_moves(state_root)?;
        remove_directory(&state_root.join(REPLACED_DIR))?;
        let place = match (place, record) {
            (Place::StateDirectory, _) => {
                if engine_dir(state_root).exists() && !has_unused_names(state_root)? {
                    // An interrupted command left it, or names that are in a database now.
                    move_engine_away(state_root)?;
                }
                NewPlace::StateDirectory(state_root.join(RESTORING_DIR))
            }
            (Place::Database(url), Some(record)) => NewPlace::Database(Box::new(record.clone()), url.clone()),
            (Place::Database(_), None) => bail!("a volume needs a record for its names to be in a database"),
        };
        Ok(Self { state_root: state_root.to_owned(), place, source })
    }

    /// Creates an empty engine. Removes the previous one, which must be closed, or what an interrupted command left.
    pub(crate) fn create_engine(&self) -> Result<Metadata> {
        match &self.place {
            NewPlace::StateDirectory(staged) => {
                remove_directory(staged)?;
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
            self.mark_unused(engine.as_ref())?;
            marks::check_session(engine.as_ref())?;
            return Ok(Some(engine));
        };
        self.mark_unused(metadata.engine().as_ref())?;
        metadata::close(metadata)?;
        if let Some(identity) = identity {
            identity.write(&self.state_root)?;
        }
        let (place, replaced) = (self.state_root.join(ENGINE_DIR), self.state_root.join(REPLACED_DIR));
        if place.exists() {
            fs::rename(&place, &replaced)?;
        }
        fs::rename(staged, place)?;
        // Written last: without it the state directory has no metadata, and a mount of a volume named by inode with content is refused.
        files::write_durably(&self.state_root.join(OWNER_FILE), &about.owner)?;
        remove_directory(&replaced)?;
        Ok(None)
    }

    /// Marks names of a backup, so that the same restoration can be repeated if this process is killed.
    fn mark_unused(&self, engine: &dyn Engine) -> Result<()> {
        match self.source {
            Source::Backup => marks::set_unused(engine),
            Source::Dump => Ok(()),
        }
    }

    /// Removes the mark of new metadata in a database, after the volume's record names it.
    pub(crate) fn put_in_charge(engine: &dyn Engine) -> Result<()> {
        marks::put_in_charge(engine)
    }
}

/// Removes a directory, if there is one, with all that it contains.
fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
