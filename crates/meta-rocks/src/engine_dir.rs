//! The engine's directory: the lock, the database, and the mark of what was synced.
//!
//! The mark is a number outside the database: the newest commit known to be on the disk. RocksDB's log may lose its end in a
//! loss of power, and RocksDB goes on with what is left; the mark tells that from a log that was damaged.
//!
//! Invariant: `mark <= ` newest synced commit. It is written after a sync and itself not synced, so it may be old, never wrong.

use crate::error::OpenError;
use meta::{EngineError, Seqno};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) struct Files {
    root: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Files {
    /// Makes the directory if it is missing, and takes it for this engine.
    pub(crate) fn take(root: &Path) -> Result<Self, OpenError> {
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
        let files = Self { root: root.to_owned(), _lock: lock };
        match fs::remove_file(files.run()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io(&files.run())(error)),
            _ => Ok(files),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// RocksDB's directory.
    pub(crate) fn tables(&self) -> PathBuf {
        self.root.join("tables")
    }

    /// A table file that is being made; what a crash leaves of it is removed.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run.sst")
    }

    /// The mark, unless the engine has not been completely made yet.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, OpenError> {
        let path = self.root.join("synced");
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => Ok(Some(Mark { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::Io { path, error }),
        }
    }

    /// Writes the first mark, durably: from now on the engine exists.
    pub(crate) fn make_mark(&self, at: Seqno) -> Result<Mark, OpenError> {
        let path = self.root.join("synced");
        let make = || {
            let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
            let mark = Mark { file };
            mark.set(at)?;
            mark.file.sync_all()?;
            File::open(&self.root)?.sync_all()?;
            Ok(mark)
        };
        make().map_err(|error| OpenError::Io { path: path.clone(), error })
    }
}

/// The newest commit known to be synced: its number in 8 bytes, big-endian, and their complement.
pub(crate) struct Mark {
    file: File,
}

impl Mark {
    pub(crate) fn get(&self) -> Result<Seqno, EngineError> {
        let (mut number, mut complement) = ([0; 8], [0; 8]);
        let read = self
            .file
            .read_exact_at(&mut number, 0)
            .and_then(|()| self.file.read_exact_at(&mut complement, 8));
        let number = u64::from_be_bytes(number);
        if read.is_err() || number != !u64::from_be_bytes(complement) {
            return Err(EngineError::Corrupt("the record of what was synced cannot be read".into()));
        }
        Ok(Seqno(number))
    }

    pub(crate) fn set(&self, at: Seqno) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&at.0.to_be_bytes());
        bytes[8..].copy_from_slice(&(!at.0).to_be_bytes());
        self.file.write_all_at(&bytes, 0)
    }
}
