//! Private namespaces: the snapshot of a volume and the changes that one job makes to it.

use crate::base::Base;
use crate::local_map::{LocalMap, TEMPORARY};
use crate::op_log::{LogDamage, OpLog, OpLogReader, log_path};
use crate::overlay::Overlay;
use crate::private_engine::PrivateEngine;
use crate::progress::Progress;
use crate::sealed::SealedBatch;
use meta::{
    Allocator, Applied, Effect, EngineError, FsError, Ino, KeyRange, Moment, Op, OpContext, OpRecord, Reader,
    Rows, Versioned,
};
use std::fs::{self, File};
use std::io;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of a private namespace.
#[derive(Debug, Clone, Copy)]
pub struct JobOptions {
    /// Memory for changes, in bytes. Changes beyond it are in files.
    pub memory_bytes_max: usize,
    /// Whether a resumed namespace keeps only ops that a sync covered. To be set if the power was lost since.
    pub keeps_synced_only: bool,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self { memory_bytes_max: 256 << 20, keeps_synced_only: false }
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
    /// The log of the job cannot be read, or is damaged elsewhere than at the end that a killed process left.
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
    /// The leased numbers that no inode had when the namespace was begun or resumed.
    unused: Range<Ino>,
    log: OpLog,
    progress: Arc<Progress>,
}

impl PrivateNamespace {
    /// Begins a namespace over a snapshot. `dir` is a directory for its files alone, and is made if necessary; it must not have the log of
    /// another job. The snapshot must have been taken after the numbers of `lease` were leased, and none of them may have been used.
    pub fn begin(
        dir: &Path,
        base: Arc<dyn Reader>,
        lease: Range<Ino>,
        options: JobOptions,
    ) -> Result<Self, JobError> {
        fs::create_dir_all(dir).map_err(access(dir))?;
        let path = log_path(dir);
        let log = OpLog::create(&path, &lease).map_err(access(&path))?;
        let overlay = overlay(dir, base, &lease, options)?;
        Ok(Self {
            dir: dir.to_owned(),
            overlay,
            allocator: Allocator::new(lease.clone()),
            unused: lease,
            log,
            progress: Arc::default(),
        })
    }

    /// Resumes the namespace of a job whose process has ended, over a snapshot. Returns also the number of ops that can no longer be
    /// applied, because the snapshot is a later one. They stay in the log, and a merge tries them again.
    pub fn resume(dir: &Path, base: Arc<dyn Reader>, options: JobOptions) -> Result<(Self, u64), JobError> {
        let path = log_path(dir);
        if options.keeps_synced_only {
            cut_unsynced(&path)?;
        }
        let mut reader = OpLogReader::open(&path)?;
        let lease = reader.lease();
        let mut overlay = overlay(dir, base, &lease, options)?;
        let (mut unused, mut failed, progress) = (lease.start, 0, Arc::<Progress>::default());
        let mut end = reader.end();
        loop {
            let page = match reader.next_page() {
                Ok(Some(page)) => page,
                Ok(None) => break,
                // A page that is not whole was being written when the process ended.
                Err(LogDamage::Page(at)) if at == reader.end() && reader.is_at_torn_end()? => break,
                Err(damage) => return Err(damage.into()),
            };
            for record in page {
                let OpRecord { context, op, .. } = &record;
                unused = unused.max(Ino(created(op).map_or(0, |ino| ino.0.saturating_add(1))));
                overlay.make_room()?;
                match overlay.apply(context, op) {
                    Ok((applied, changes)) => {
                        overlay.commit(changes);
                        progress.count(&record, home_of(&applied));
                    }
                    Err(FsError::Engine(error)) => return Err(error.into()),
                    Err(_) => {
                        failed += 1;
                        progress.count(&record, None);
                    }
                }
            }
            end = reader.end();
        }
        let log = OpLog::continue_at(&path, end).map_err(access(&path))?;
        let unused = unused.min(lease.end)..lease.end;
        let allocator = Allocator::new(unused.clone());
        Ok((Self { dir: dir.to_owned(), overlay, allocator, unused, log, progress }, failed))
    }

    /// Applies an op. An op that fails changes nothing and is not logged.
    pub fn apply(&mut self, context: &OpContext, op: &Op) -> Result<Applied, FsError> {
        self.overlay.make_room()?;
        let (applied, changes) = self.overlay.apply(context, op)?;
        let record = OpRecord { context: *context, op: op.clone(), effect: Effect::of(op, &applied) };
        self.log.append(&record)?;
        self.overlay.commit(changes);
        self.progress.count(&record, home_of(&applied));
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

    /// Returns the counters of the job, which can be read while it runs.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns the approximate memory of the changes that are in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.overlay.local.memory_bytes()
    }

    /// Converts the namespace into an engine, for a file system over it. All ops get the moment `at`. The namespace must not have allocated
    /// inode numbers itself.
    pub fn into_engine(self, at: Moment) -> PrivateEngine {
        PrivateEngine::new(self.dir, self.overlay, self.log, (self.unused, self.progress), at)
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

/// Removes the ops that no sync covered: all behind the last mark of the log.
fn cut_unsynced(path: &Path) -> Result<(), JobError> {
    let mut reader = OpLogReader::open(path)?;
    let begin = reader.end();
    let end = reader.find_last_mark()?.unwrap_or(begin);
    File::options().write(true).open(path).and_then(|file| file.set_len(end)).map_err(access(path))
}

/// Returns the directory of the inode that an op has changed.
fn home_of(applied: &Applied) -> Option<Ino> {
    applied.inode.as_ref().and_then(|inode| inode.home.as_ref()).map(|(parent, _)| *parent)
}

/// Returns the inode number that an op gives to a new inode; `None` for an op that makes none.
pub(crate) fn created(op: &Op) -> Option<Ino> {
    match op {
        Op::Create { ino, .. } | Op::CreateOrphan { ino, .. } | Op::Import { ino, .. } => Some(*ino),
        _ => None,
    }
}

/// Creates an overlay without changes, and deletes the temporary files in `dir` of an earlier one.
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
    Ok(Overlay::new(Base::new(base, lease)?, LocalMap::new(dir, options.memory_bytes_max)))
}

/// Returns a function that converts an I/O error at a path.
pub(crate) fn access(path: &Path) -> impl FnOnce(io::Error) -> JobError {
    let path = path.to_owned();
    move |error| JobError::Io { path, error }
}
