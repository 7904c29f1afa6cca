//! The names that a volume has before they move to another place, open exclusively, so that no other process changes them meanwhile.

use crate::metadata::place::Place;
use crate::metadata::{self, Metadata, Use, database, marks};
use crate::state;
use crate::volume::Volume;
use anyhow::{Context, Result};
use meta::Engine;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::ObjectStore;
use vfs::VolumeRecord;

/// Memory limit for names that are only compared with a dump, in bytes.
const MEMORY_BYTES: u64 = 256 << 20;

/// The names of a volume before they move.
#[derive(Debug)]
pub(crate) enum PreviousMetadata {
    /// There are none, or they cannot be found from this machine.
    None,
    /// They are in the state directory.
    StateDirectory(Metadata),
    /// They are in a database.
    Database(Arc<dyn Engine>),
}

/// The place where names are kept that are no longer used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptAt {
    /// A directory in the state directory.
    Directory(PathBuf),
    /// A part of a database, with the URL of the database.
    Database(String, String),
}

impl PreviousMetadata {
    /// Opens the names at the place that a volume's record names, in a state directory that the caller has locked.
    pub(crate) async fn open(
        volume: &Volume,
        record: Option<&VolumeRecord>,
        store: &dyn ObjectStore,
        state_root: &Path,
    ) -> Result<Self> {
        let Place::Database(url) = Place::of(record) else {
            if !metadata::exists_in(state_root) {
                return Ok(Self::None);
            }
            // Names that are only in the write-back log would be missing.
            state::check_no_backlog(state_root)?;
            state::check_no_moves(state_root)?;
            let opened =
                metadata::open(volume, record, store, state_root, None, MEMORY_BYTES, Use::Command).await?;
            return Ok(Self::StateDirectory(opened));
        };
        let Some(record) = record else { return Ok(Self::None) };
        let opened = database::open_if_there(record, &url, state_root).with_context(|| {
            format!("cannot read the present names of {}; if that database is lost for good, add --database-is-lost", volume.url())
        })?;
        let Some(engine) = opened else { return Ok(Self::None) };
        if marks::is_incomplete(engine.as_ref())? || marks::is_empty(engine.as_ref())? {
            return Ok(Self::None);
        }
        // From now on, only names that are not in use have a mark.
        marks::put_in_charge(engine.as_ref())?;
        Ok(Self::Database(engine))
    }

    /// Returns the engine; `None` if there are no names.
    pub(crate) fn engine(&self) -> Option<Arc<dyn Engine>> {
        match self {
            Self::None => None,
            Self::StateDirectory(metadata) => Some(metadata.engine()),
            Self::Database(engine) => Some(Arc::clone(engine)),
        }
    }

    /// Returns whether the names come from a backup, and nothing has changed them since.
    pub(crate) fn is_unused(&self) -> Result<bool> {
        self.engine().map_or(Ok(false), |engine| marks::is_unused(engine.as_ref()))
    }

    /// Closes the names.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::None | Self::Database(_) => Ok(()),
            Self::StateDirectory(metadata) => metadata::close(metadata),
        }
    }

    /// Prepares the change of the volume's record: marks names in a database, so that they can be replaced later if they are no longer in use.
    pub(crate) fn prepare_end(&self) -> Result<()> {
        let Self::Database(engine) = self else { return Ok(()) };
        marks::set_spare(engine.as_ref())?;
        marks::check_session(engine.as_ref())
    }

    /// Ends the use of these names, after the volume's record has been changed from `record`. Returns where they are kept.
    pub(crate) fn end(self, record: &VolumeRecord, state_root: &Path) -> Result<Option<KeptAt>> {
        match self {
            Self::None => Ok(None),
            Self::StateDirectory(metadata) => {
                metadata::close(metadata)?;
                Ok(Some(KeptAt::Directory(metadata::move_engine_away(state_root)?)))
            }
            Self::Database(engine) => {
                drop(engine);
                let Some(url) = &record.database else { return Ok(None) };
                Ok(Some(KeptAt::Database(database::part_of(record, url)?, url.clone())))
            }
        }
    }
}
