//! The metadata of a volume, names and attributes, which is kept on this machine or in a database.
//!
//! For a volume named by path, most of it can be learned from the bucket again; everything else exists only in the metadata and its backups.
//!
//! Invariants: a state directory holds the metadata of one volume. The volume's record says where the names are; names in any other place
//! are not used. A volume named by inode that has content is not opened in a state directory or a database that has no names of it.

pub(crate) mod database;
pub(crate) mod dump_file;
pub(crate) mod lineage;
mod marks;
pub(crate) mod new_metadata;
mod passwords;
pub(crate) mod place;
pub(crate) mod previous_metadata;

use crate::process::files;
use crate::state;
use crate::volume::{Volume, embedded};
use anyhow::{Context, Result, bail};
use backup::About;
use meta::Engine;
use meta_disk::{DiskEngine, EngineOptions, Journal, OpenError};
use staging::writeback::Writeback;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{Clock as _, ObjectStore, SystemClock, Timestamp};
use vfs::{Naming, VolumeRecord};

/// Cache of the engine, in percent of the memory limit. It is less than the share of `vfs` for names, which also
/// counts what the kernel remembers.
const CACHE_PERCENT: u64 = 20;

/// File that names the volume of a state directory's metadata.
const OWNER_FILE: &str = "meta.volume";

/// File with the settings under which names were learned.
const SETTINGS_FILE: &str = "meta.settings";

/// Directory of the engine.
const ENGINE_DIR: &str = "meta";

/// Purpose for which a process opens metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Serves the volume. If the metadata is in a database, processes of other machines may serve the volume at the same time.
    Serving {
        /// Whether changes of these processes wait until this process has acknowledged them.
        is_strict: bool,
    },
    /// Works on the whole volume, which no other process may change meanwhile.
    Command,
}

/// Returns whether a directory is a state directory with which the metadata of a volume has been opened: it is there, or in a database.
pub(crate) fn is_state_directory(path: &Path) -> bool {
    path.join(OWNER_FILE).exists()
}

/// Returns whether a state directory has names of a volume. A volume in a database has none there.
pub(crate) fn exists_in(state_root: &Path) -> bool {
    state_root.join(OWNER_FILE).exists() && engine_dir(state_root).exists()
}

/// Refuses a state directory with names of another volume than the one with this id.
pub(crate) fn check_owner(state_root: &Path, id: &str) -> Result<()> {
    let owner = state_root.join(OWNER_FILE);
    match fs::read_to_string(&owner) {
        Ok(found) if found.trim() != id && engine_dir(state_root).exists() => {
            bail!(
                "{} holds the metadata of another volume, {}; choose another --state-dir, or remove this one if that volume is gone",
                state_root.display(),
                found.trim()
            )
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot read {}", owner.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the directory of the metadata engine in a state directory.
pub(crate) fn engine_dir(state_root: &Path) -> PathBuf {
    state_root.join(ENGINE_DIR)
}

/// Opens the metadata of a volume. `writeback` is the log that holds the latest names, if there is one, and whether
/// names that damage of the log destroyed may be missing.
pub(crate) async fn open(
    volume: &Volume,
    record: Option<&VolumeRecord>,
    store: &dyn ObjectStore,
    state_root: &Path,
    writeback: Option<(&Arc<Writeback>, bool)>,
    memory_limit_bytes: u64,
    opened_for: Use,
) -> Result<Metadata> {
    let cache_bytes = usize::try_from(memory_limit_bytes / 100 * CACHE_PERCENT).unwrap_or(usize::MAX);
    if let Some((record, url)) = record.and_then(|record| Some((record, record.database.as_deref()?))) {
        let engine = open_database(volume, (record, url), store, state_root, opened_for, cache_bytes).await?;
        return Ok(Metadata::Database(engine));
    }
    let (writeback, accepts_loss) = writeback.unzip();
    let by_inode = record.filter(|record| record.naming == Naming::Inode);
    let id = owner_id(volume, record)?;
    let owner = state_root.join(OWNER_FILE);
    check_owner(state_root, &id)?;
    if !exists_in(state_root) {
        if let Some(record) = by_inode
            && record.has_content(store, volume.prefix().as_bytes()).await?
        {
            bail!(
                "the names of {} are not in {}: mount the volume on the machine that has them, or restore their backup with `tenon restore {}`",
                volume.url(),
                state_root.display(),
                volume.url()
            );
        }
        files::write_durably(&owner, &id).with_context(|| format!("cannot write {}", owner.display()))?;
    }
    let mut options = EngineOptions { cache_bytes, ..EngineOptions::default() };
    options.sync_interval = match (writeback, by_inode) {
        // An fsync syncs at once; other changes are synced within a second.
        (Some(_), Some(_)) => Duration::from_secs(1),
        // A sync also writes the object data that waits in the log to disk. Most data of a large file would otherwise
        // never need that.
        (Some(_), None) => Duration::from_secs(5),
        (None, Some(_)) => options.sync_interval,
        // Most of the metadata can be learned from the bucket again.
        (None, None) => Duration::from_millis(50),
    };
    // With path naming, lost names are learned from the bucket again.
    options.ends_at_gap = by_inode.is_none() || accepts_loss == Some(true);
    let path = state_root.join(ENGINE_DIR);
    let records = match writeback {
        Some(log) => log.read_notes().context("cannot read the names in the write-back log")?,
        None => Vec::new(),
    };
    let open = || match writeback {
        None => DiskEngine::open(&path, options),
        Some(log) => {
            let records = records.iter().map(|(number, record)| (*number, record.to_vec())).collect();
            DiskEngine::open_journaled(&path, options, Arc::new(WritebackJournal(log.clone())), records)
        }
    };
    let engine = state::retry_while_busy(open, |error| matches!(error, OpenError::InUse(_))).map_err(|error| {
        let is_damaged = matches!(&error, OpenError::Engine(_));
        let error = anyhow::Error::from(error);
        match by_inode {
            None if is_damaged => error.context(format!(
                "the metadata in {} is damaged; `tenon rebuild {}` rebuilds it from the bucket",
                state_root.display(),
                volume.url()
            )),
            Some(_) if is_damaged && writeback.is_some_and(|log| log.damage().ranges > 0) => error.context(
                "disk damage destroyed names in the write-back log; `tenon mount --accept-lost-names` continues with the names from before the damage",
            ),
            _ => error,
        }
    })?;
    if let Use::Serving { .. } = opened_for {
        marks::set_used(&engine)?;
    }
    let engine = Arc::new(engine);
    if let Some(log) = writeback {
        let tables = Arc::downgrade(&engine);
        log.notes_are_kept_by(move || checkpoint(&tables));
    }
    Ok(Metadata::Disk(engine))
}

/// Opens the metadata of a volume in the database that its record names. Fails if the database has only a part of the names, or if the names
/// have been moved elsewhere since the record was read.
async fn open_database(
    volume: &Volume,
    (record, url): (&VolumeRecord, &str),
    store: &dyn ObjectStore,
    state_root: &Path,
    opened_for: Use,
    cache_bytes: usize,
) -> Result<Arc<dyn Engine>> {
    let id = owner_id(volume, Some(record))?;
    check_owner(state_root, &id)?;
    files::write_durably(&state_root.join(OWNER_FILE), &id)?;
    // Objects named by path are moved by a journal in the state directory, which other machines do not know.
    let is_exclusive = opened_for == Use::Command || record.naming == Naming::FilePath;
    let is_strict = matches!(opened_for, Use::Serving { is_strict: true });
    let engine = database::open(record, url, state_root, (is_exclusive, is_strict), cache_bytes)?;
    let shown = volume.url();
    if marks::is_incomplete(engine.as_ref())? {
        bail!(
            "the database {url} has only a part of the names of {shown}, because `tenon load` or `tenon restore` was interrupted: run that command again"
        );
    }
    let prefix = volume.prefix().as_bytes();
    if record.naming == Naming::Inode
        && marks::is_empty(engine.as_ref())?
        && record.has_content(store, prefix).await?
    {
        bail!(
            "the names of {shown} are not in the database {url}: load a dump of them with `tenon load`, or restore their backup with `tenon restore {shown}`"
        );
    }
    // A session in the database excludes a later move of the names, but not one that ended before the session began.
    let now = VolumeRecord::read(store, prefix).await?;
    if now.as_ref().and_then(|now| now.database.as_deref()) != Some(url) {
        bail!("the names of {shown} have just been moved from {url} to another place; run the command again");
    }
    marks::put_in_charge(engine.as_ref())?;
    if let Use::Serving { .. } = opened_for {
        marks::set_used(engine.as_ref())?;
    }
    if engine_dir(state_root).exists() {
        let kept = move_engine_away(state_root)?;
        tracing::info!("the names of {shown} are in {url}; earlier names are kept in {}", kept.display());
    }
    Ok(engine)
}

/// Returns the id by which a state directory knows its volume.
pub(crate) fn owner_id(volume: &Volume, record: Option<&VolumeRecord>) -> Result<String> {
    let by_inode = record.filter(|record| record.naming == Naming::Inode);
    Ok(match (by_inode, volume) {
        (Some(record), _) => record.id.clone(),
        // The directory of an embedded volume may be moved, so its path is not an id.
        (None, Volume::Embedded { root }) => embedded::read_record(root)?.id,
        (None, _) => volume.url(),
    })
}

/// Returns the warning that only this machine has the names of a volume named by inode.
pub(crate) fn names_warning(url: &str, state_root: &Path) -> String {
    format!(
        "the names of {url} are only in {} on this machine, because --metadata-backup is 0: without that directory all files are lost; copy them with `tenon dump {url} FILE`",
        state_root.display()
    )
}

/// Describes the volume to which the metadata in a state directory belongs, for a backup or a dump.
pub(crate) fn describe(volume: &Volume, state_root: &Path) -> Result<About> {
    let read = |name| {
        let path = state_root.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let settings = read(SETTINGS_FILE).ok().map(|settings| settings.trim().to_owned());
    let owner = read(OWNER_FILE)?.trim().to_owned();
    Ok(About { volume: volume.url(), owner, settings, tenon: crate::process::VERSION.to_owned() })
}

/// Returns the time of the system clock.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// Closes an engine, which a background task may still hold for a moment. Fails if an engine on disk is not closed in time.
pub(crate) fn close(metadata: Metadata) -> Result<()> {
    drop(metadata);
    match meta_disk::all_are_closed_within(crate::CLOSE_TIMEOUT) {
        true => Ok(()),
        false => bail!("the metadata cannot be closed; run the command again"),
    }
}

/// Moves the engine of a state directory away. Returns its new path.
pub(crate) fn move_engine_away(state_root: &Path) -> Result<PathBuf> {
    let from = state_root.join(ENGINE_DIR);
    let free = |number: &u32| !state_root.join(format!("{ENGINE_DIR}.old-{number}")).exists();
    let number = (1..).find(free).unwrap_or_default();
    let to = state_root.join(format!("{ENGINE_DIR}.old-{number}"));
    fs::rename(&from, &to).with_context(|| format!("cannot move {}", from.display()))?;
    Ok(to)
}

/// Records the settings that affect what is learned of objects without attributes. Returns whether they differ from
/// earlier ones.
pub(crate) fn record_settings(state_root: &Path, config: &vfs::Config) -> Result<bool> {
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
    files::write_durably(&path, &settings).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(before.is_some())
}

/// Writes names from the write-back log to the tables, so that the log can drop them.
fn checkpoint(tables: &Weak<DiskEngine>) {
    if let Some(Err(error)) = tables.upgrade().map(|tables| tables.checkpoint()) {
        tracing::warn!(
            "cannot write names to the tables of the metadata, so they stay in the write-back log: {error}"
        );
    }
}

/// The open metadata of a volume.
#[derive(Debug, Clone)]
pub(crate) enum Metadata {
    /// In the state directory.
    Disk(Arc<DiskEngine>),
    /// In a database.
    Database(Arc<dyn Engine>),
}

impl Metadata {
    /// Returns the engine.
    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        match self {
            Self::Disk(engine) => Arc::clone(engine) as Arc<dyn Engine>,
            Self::Database(engine) => Arc::clone(engine),
        }
    }

    /// Writes all names to the tables, so that the write-back log need not keep any. Does nothing for a database.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        match self {
            Self::Disk(engine) => Ok(engine.checkpoint()?),
            Self::Database(_) => Ok(()),
        }
    }
}

/// A journal of names in the write-back log, where names come after the data that they refer to.
#[derive(Debug)]
struct WritebackJournal(Arc<Writeback>);

impl Journal for WritebackJournal {
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
