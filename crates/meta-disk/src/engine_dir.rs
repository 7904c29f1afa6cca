//! The engine's directory: the lock file, the database, and the high-water mark of synced commits.
//!
//! The mark is the newest commit known to be durable, in a file outside the database. A loss of power may cut off the unsynced end
//! of the write-ahead log, and the layer continues with the rest. The mark distinguishes this from a damaged log.
//!
//! Invariant: `mark <= ` newest synced commit. The mark is written after a sync and is itself not synced, so it may be too low but
//! never too high.

use crate::error::OpenError;
use crate::options::TableLayer;
use meta::{EngineError, Seqno};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The directory of an engine, locked against other engines.
pub(crate) struct EngineDir {
    root: PathBuf,
    /// Holds the lock while it is open.
    _lock: File,
}

impl EngineDir {
    /// Creates the directory if it is missing, locks it for this engine, and removes the table files of runs that a
    /// crash has left.
    pub(crate) fn lock(root: &Path) -> Result<Self, OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Io { path, error }
        };
        fs::create_dir_all(root).map_err(io(root))?;
        let path = root.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(io(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(root.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(&path)(error)),
        }
        let dir = Self { root: root.to_owned(), _lock: lock };
        dir.remove_run_files().map_err(io(root))?;
        Ok(dir)
    }

    /// Removes the table files of runs that a crash has left.
    fn remove_run_files(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.starts_with("run") && name.ends_with(".sst")) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Returns the path of the directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the layer whose files the directory has; `None` if it has none.
    pub(crate) fn layer(&self) -> Option<TableLayer> {
        let layers = [(self.rocksdb_path(), TableLayer::RocksDb), (self.lsm_path(), TableLayer::Lsm)];
        layers.into_iter().find(|(path, _)| path.exists()).map(|(_, layer)| layer)
    }

    /// Returns the directory of the RocksDB database.
    pub(crate) fn rocksdb_path(&self) -> PathBuf {
        self.root.join("tables")
    }

    /// Returns the directory of the LSM tree.
    pub(crate) fn lsm_path(&self) -> PathBuf {
        self.root.join("lsm")
    }

    /// Returns the path of a table file of a run, without its number and ending. A file left by a crash is removed on opening.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn run_path(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Opens the mark. Returns `None` if the engine has not been initialised completely.
    pub(crate) fn synced_mark(&self) -> Result<Option<SyncedMark>, OpenError> {
        let path = self.root.join("synced");
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => Ok(Some(SyncedMark { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::Io { path, error }),
        }
    }

    /// Creates the mark durably, which completes the initialisation of the engine.
    pub(crate) fn create_synced_mark(&self, at: Seqno) -> Result<SyncedMark, OpenError> {
        let path = self.root.join("synced");
        let create = || {
            let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
            let mark = SyncedMark { file };
            mark.set(at)?;
            mark.file.sync_all()?;
            File::open(&self.root)?.sync_all()?;
            Ok(mark)
        };
        create().map_err(|error| OpenError::Io { path: path.clone(), error })
    }
}

/// The file with the number of the newest commit known to be synced: 8 bytes, big-endian, and their complement.
pub(crate) struct SyncedMark {
    file: File,
}

impl SyncedMark {
    pub(crate) fn get(&self) -> Result<Seqno, EngineError> {
        let (mut number, mut complement) = ([0; 8], [0; 8]);
        let read = self
            .file
            .read_exact_at(&mut number, 0)
            .and_then(|()| self.file.read_exact_at(&mut complement, 8));
        let number = u64::from_be_bytes(number);
        if read.is_err() || number != !u64::from_be_bytes(complement) {
            return Err(EngineError::Corrupt("the number of the last synced commit cannot be read".into()));
        }
        Ok(Seqno(number))
    }

    /// Writes the number of the last synced commit. The write is not synced itself.
    pub(crate) fn set(&self, at: Seqno) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&at.0.to_be_bytes());
        bytes[8..].copy_from_slice(&(!at.0).to_be_bytes());
        self.file.write_all_at(&bytes, 0)
    }
}
