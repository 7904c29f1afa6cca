//! Private namespaces: the snapshot of a volume and the changes that one job makes to it.

use crate::base::Base;
use crate::local_map::{LocalMap, TEMPORARY};
use crate::op_log::{LogDamage, OpLog, OpLogReader};
use crate::overlay::Overlay;
use crate::sealed::SealedBatch;
use meta::{
    Allocator, Applied, Effect, EngineError, FsError, Ino, KeyRange, Op, OpContext, OpRecord, Reader, Rows,
    Versioned,
};
use std::fs;
use std::io;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of a private namespace.
#[derive(Debug, Clone, Copy)]
pub struct JobOptions {
    /// Memory for changes, in bytes. Changes beyond it are in files.
    pub memory_bytes_max: usize,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self { memory_bytes_max: 256 << 20 }
    }
}

/// Errors of beginning, resuming and sealing a private namespace. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file of the job cannot be accessed.
    #[error("'{}' cannot be accessed: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The log of the job cannot be read.
    #[error(transparent)]
    Log(#[from] LogDamage),
    /// The local tables or the base failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The namespace of one job. Reads see the snapshot with the job's changes.
///
/// An op that succeeded is lost by the end of the process only if it was among the last 32 KiB of ops, and by a loss of power only if
/// [`sync`](Self::sync) has not returned since.
#[derive(Debug)]
pub struct PrivateNamespace {
    dir: PathBuf,
    overlay: Overlay,
    allocator: Allocator,
    log: OpLog,
}

impl PrivateNamespace {
    /// Begins a namespace over a snapshot. `dir` is a directory of its own for its files. The snapshot must have been taken after the
    /// numbers of `lease` were leased, and none of them may have been used.
    pub fn begin(
        dir: &Path,
        base: Arc<dyn Reader>,
        lease: Range<Ino>,
        options: JobOptions,
    ) -> Result<Self, JobError> {
        fs::create_dir_all(dir).map_err(access(dir))?;
        let path = SealedBatch::log_path(dir);
        let log = OpLog::create(&path, &lease).map_err(access(&path))?;
        let overlay = overlay(dir, base, &lease, options)?;
        Ok(Self { dir: dir.to_owned(), overlay, allocator: Allocator::new(lease), log })
    }

    /// Resumes the namespace of a job that has ended, over a snapshot. Returns also the number of ops that can no longer be applied,
    /// because the snapshot is a later one. They stay in the log, and a merge refuses them.
    pub fn resume(dir: &Path, base: Arc<dyn Reader>, options: JobOptions) -> Result<(Self, u64), JobError> {
        let path = SealedBatch::log_path(dir);
        let mut reader = OpLogReader::open(&path)?;
        let lease = reader.lease();
        let mut overlay = overlay(dir, base, &lease, options)?;
        let (mut unused, mut failed) = (lease.start, 0);
        let mut end = reader.end();
        // A page that is not whole was being written when the job ended.
        while let Ok(Some(page)) = reader.next_page() {
            for OpRecord { context, op, .. } in page {
                unused = unused.max(Ino(created(&op).map_or(0, |ino| ino.0.saturating_add(1))));
                overlay.make_room()?;
                match overlay.apply(&context, &op) {
                    Ok((_, changes)) => overlay.commit(changes),
                    Err(FsError::Engine(error)) => return Err(error.into()),
                    Err(_) => failed += 1,
                }
            }
            end = reader.end();
        }
        let log = OpLog::continue_at(&path, end).map_err(access(&path))?;
        let allocator = Allocator::new(unused.min(lease.end)..lease.end);
        Ok((Self { dir: dir.to_owned(), overlay, allocator, log }, failed))
    }

    /// Applies an op. An op that fails changes nothing and is not logged.
    pub fn apply(&mut self, context: &OpContext, op: &Op) -> Result<Applied, FsError> {
        self.overlay.make_room()?;
        let (applied, changes) = self.overlay.apply(context, op)?;
        self.log.append(&OpRecord { context: *context, op: op.clone(), effect: Effect::of(op, &applied) })?;
        self.overlay.commit(changes);
        Ok(applied)
    }

    /// Allocates an inode number for a new entry of a directory; `None` once all leased numbers are used.
    pub fn allocate(&mut self, parent: Ino) -> Option<Ino> {
        self.allocator.allocate(parent, 1).pop()
    }

    /// Makes all ops survive the end of the process.
    pub fn flush(&mut self) -> Result<(), EngineError> {
        self.log.flush()
    }

    /// Makes all ops survive a loss of power.
    pub fn sync(&mut self) -> Result<(), EngineError> {
        self.log.sync()
    }

    /// Returns the approximate memory of the changes.
    pub fn memory_bytes(&self) -> usize {
        self.overlay.local.memory_bytes()
    }

    /// Ends the namespace and makes its batch durable.
    pub fn seal(mut self) -> Result<SealedBatch, JobError> {
        self.log.sync()?;
        SealedBatch::write(&self.dir, &self.overlay)
    }

    /// Ends the job in a directory and deletes its files.
    pub fn discard(dir: &Path) -> Result<(), JobError> {
        fs::remove_dir_all(dir).map_err(access(dir))
    }
}

impl Reader for PrivateNamespace {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.overlay.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.overlay.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.overlay.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.overlay.last(range)
    }
}

/// Returns the inode number that an op gives to a new inode.
pub(crate) fn created(op: &Op) -> Option<Ino> {
    match op {
        Op::Create { ino, .. } | Op::CreateOrphan { ino, .. } | Op::Import { ino, .. } => Some(*ino),
        _ => None,
    }
}

/// Creates an overlay without changes, and deletes temporary files of an earlier one.
fn overlay(
    dir: &Path,
    base: Arc<dyn Reader>,
    lease: &Range<Ino>,
    options: JobOptions,
) -> Result<Overlay, JobError> {
    for entry in fs::read_dir(dir).map_err(access(dir))? {
        let path = entry.map_err(access(dir))?.path();
        if path.extension().is_some_and(|extension| extension == TEMPORARY) {
            fs::remove_file(&path).map_err(access(&path))?;
        }
    }
    Ok(Overlay { base: Base::new(base, lease)?, local: LocalMap::new(dir, options.memory_bytes_max) })
}

pub(crate) fn access(path: &Path) -> impl FnOnce(io::Error) -> JobError {
    let path = path.to_owned();
    move |error| JobError::Io { path, error }
}
