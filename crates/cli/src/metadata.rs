//! The metadata of a volume: names and attributes, kept on this machine.
//!
//! Of a volume named by path the bucket tells most of it again; what no bucket can show is here alone.
//!
//! Invariant: a state directory holds the metadata of one volume, and a volume named by inode that has content is never
//! opened without the metadata that names it.

use crate::backup::About;
use crate::state;
use crate::volume::{self, Volume};
use anyhow::{Context, Result, bail};
use meta_rocks::{DumpedRecords, Journal, OpenError, RocksEngine, RocksOptions};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::ObjectStore;
use store::writeback::Writeback;
use vfs::{Naming, VolumeRecord};

/// What the engine may cache, as a share of the memory limit: less than `vfs` allows for names, which counts what the
/// kernel remembers too.
const CACHE_PERCENT: u64 = 20;

/// Says whose metadata a state directory holds.
const OWNER_FILE: &str = "meta.volume";

/// Says with which settings names were learned.
const SETTINGS_FILE: &str = "meta.settings";

/// Where an engine is made from a backup.
const RESTORING_DIR: &str = "meta.restoring";

/// The engine's own directory.
const ENGINE_DIR: &str = "meta";

/// Whether a state directory holds the metadata of any volume.
pub(crate) fn is_in(state_root: &Path) -> bool {
    state_root.join(OWNER_FILE).exists()
}

/// Opens the metadata of a volume. The names may be in a write-back log, and what damage took of them may be accepted.
pub(crate) async fn open(
    volume: &Volume,
    record: Option<&VolumeRecord>,
    store: &dyn ObjectStore,
    state_root: &Path,
    writeback: Option<(&Arc<Writeback>, bool)>,
    memory_limit_bytes: u64,
) -> Result<Metadata> {
    let (writeback, accepts_loss) = writeback.unzip();
    let by_inode = record.filter(|record| record.naming == Naming::Inode);
    let id = owner_id(volume, record)?;
    let owner = state_root.join(OWNER_FILE);
    match fs::read_to_string(&owner) {
        Ok(found) if found.trim() == id => {}
        Ok(found) => {
            bail!(
                "{} holds the metadata of another volume, {}; choose another --state-dir, or remove this one if that volume is gone",
                state_root.display(),
                found.trim()
            )
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(record) = by_inode
                && record.has_content(store, volume.prefix().as_bytes()).await?
            {
                bail!(
                    "the names of {} are in the metadata of the machine that made them, and {} has none: mount there, or restore a backup with `tenon restore FILE {}`",
                    volume.url(),
                    state_root.display(),
                    volume.url()
                );
            }
            state::write_durably(&owner, &id).with_context(|| format!("cannot write {}", owner.display()))?;
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", owner.display())),
    }
    let cache_bytes = usize::try_from(memory_limit_bytes / 100 * CACHE_PERCENT).unwrap_or(usize::MAX);
    let mut options = RocksOptions { cache_bytes, ..RocksOptions::default() };
    options.sync_interval = match (writeback, by_inode) {
        // An fsync says when; a second is what others wait.
        (Some(_), Some(_)) => Duration::from_secs(1),
        // A sync has all bytes of objects written that wait in the log, and of a large file most would never have to be.
        (Some(_), None) => Duration::from_secs(5),
        (None, Some(_)) => options.sync_interval,
        // The bucket has most of it.
        (None, None) => Duration::from_millis(50),
    };
    // Under path naming the bucket tells the names again.
    options.ends_at_gap = by_inode.is_none() || accepts_loss == Some(true);
    let path = state_root.join(ENGINE_DIR);
    let records = match writeback {
        Some(log) => log.read_notes().context("cannot read the names in the write-back log")?,
        None => Vec::new(),
    };
    let open = || match writeback {
        None => RocksEngine::open(&path, options),
        Some(log) => {
            let records = records.iter().map(|(number, record)| (*number, record.to_vec())).collect();
            RocksEngine::open_journaled(&path, options, Arc::new(InWriteback(log.clone())), records)
        }
    };
    let engine = state::when_free(open, |error| matches!(error, OpenError::InUse(_))).map_err(|error| {
        let is_damaged = matches!(&error, OpenError::Engine(_));
        let error = anyhow::Error::from(error);
        match by_inode {
            None if is_damaged => error.context(format!(
                "the metadata in {} is damaged; `tenon rebuild {}` makes it anew from the bucket",
                state_root.display(),
                volume.url()
            )),
            Some(_) if is_damaged && writeback.is_some_and(|log| log.damage().ranges > 0) => error.context(
                "damage of the disk took names from the write-back log; `tenon mount --accept-lost-names` goes on with the names from before it",
            ),
            _ => error,
        }
    })?;
    let engine = Arc::new(engine);
    if let Some(log) = writeback {
        let tables = Arc::downgrade(&engine);
        log.notes_are_kept_by(move || checkpoint(&tables));
    }
    Ok(Metadata { engine })
}

/// By which a state directory knows whose names it has.
pub(crate) fn owner_id(volume: &Volume, record: Option<&VolumeRecord>) -> Result<String> {
    let by_inode = record.filter(|record| record.naming == Naming::Inode);
    Ok(match (by_inode, volume) {
        (Some(record), _) => record.id.clone(),
        // Its directory may be moved.
        (None, Volume::Embedded { root }) => volume::read_record(root)?.id,
        (None, _) => volume.url(),
    })
}

/// Describes a backup of the names in a state directory.
pub(crate) fn about(volume: &Volume, state_root: &Path) -> Result<About> {
    let read = |name| {
        let path = state_root.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let settings = read(SETTINGS_FILE).ok().map(|settings| settings.trim().to_owned());
    Ok(About::new(volume.url(), read(OWNER_FILE)?.trim().to_owned(), settings))
}

/// Makes the engine of a state directory that has none, of the records of a backup. It counts when this returns.
pub(crate) fn restore(
    state_root: &Path,
    about: &About,
    mut records: impl FnMut() -> Result<Option<DumpedRecords>>,
) -> Result<()> {
    let (staged, path) = (state_root.join(RESTORING_DIR), state_root.join(ENGINE_DIR));
    if path.exists() {
        bail!("{} is there already: move it away first", path.display());
    }
    match fs::remove_dir_all(&staged) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let made = RocksEngine::restore(&staged, RocksOptions::default(), &mut records);
    if made.is_err() {
        let _ = fs::remove_dir_all(&staged);
    }
    made?;
    fs::rename(&staged, &path)?;
    if let Some(settings) = &about.settings {
        state::write_durably(&state_root.join(SETTINGS_FILE), settings)?;
    }
    // The last: without it the names are nobody's, and a mount refuses them.
    Ok(state::write_durably(&state_root.join(OWNER_FILE), &about.owner)?)
}

/// Moves the engine of a state directory out of the way; where it is now.
pub(crate) fn set_aside(state_root: &Path) -> Result<PathBuf> {
    let from = state_root.join(ENGINE_DIR);
    let free = |number: &u32| !state_root.join(format!("{ENGINE_DIR}.old-{number}")).exists();
    let number = (1..).find(free).unwrap_or_default();
    let to = state_root.join(format!("{ENGINE_DIR}.old-{number}"));
    fs::rename(&from, &to).with_context(|| format!("cannot move {}", from.display()))?;
    Ok(to)
}

/// Notes the settings that are in what is learned of objects without attributes. Whether they were others before.
pub(crate) fn note_settings(state_root: &Path, config: &vfs::Config) -> Result<bool> {
    let path = state_root.join(SETTINGS_FILE);
    let settings = format!(
        "uid={} gid={} file-mode={:o} dir-mode={:o} attributes={:?}",
        config.uid, config.gid, config.file_mode, config.dir_mode, config.attributes
    );
    let before = match fs::read_to_string(&path) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    if before.as_ref().is_some_and(|before| before.trim() == settings) {
        return Ok(false);
    }
    state::write_durably(&path, &settings).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(before.is_some())
}

/// Brings names from the write-back log into the tables, so that it need not keep them.
fn checkpoint(tables: &Weak<RocksEngine>) {
    if let Some(Err(error)) = tables.upgrade().map(|tables| tables.checkpoint()) {
        tracing::warn!("names keep room in the write-back log: {error}");
    }
}

/// The names of a volume, open.
#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    pub(crate) engine: Arc<RocksEngine>,
}

impl Metadata {
    /// Needs nothing in the write-back log any more.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        Ok(self.engine.checkpoint()?)
    }
}

/// Names are in the write-back log, after the data that they name.
#[derive(Debug)]
struct InWriteback(Arc<Writeback>);

impl Journal for InWriteback {
    fn append(&self, number: u64, record: Vec<u8>) -> std::io::Result<()> {
        self.0.append_note(number, record.into())
    }

    fn sync(&self) -> std::io::Result<()> {
        self.0.sync_now()
    }

    fn forget(&self, up_to: u64) -> std::io::Result<()> {
        self.0.forget_notes(up_to)
    }
}
