//! The batches of a volume: private namespaces, each of which is mounted over its directory until it is merged. A program that has opened the
//! volume by the library uses its batches without a mount.
//!
//! Owns the mounts of batches and their files in the state directory (`batches/ID`). A batch is in the metadata from its beginning until it is
//! discarded or forgotten, so that it is merged once; its files are there while it is open.
//!
//! Order matters: a batch is recorded durably before its files exist, its objects are in the bucket before the merge names them, and its files
//! are removed after the merge is durable. So a crash leaves an open batch, which the next mount resumes, or files of a merged one, which it removes.

mod ended_batch;
mod ending;
mod expiry;
mod jobs;
mod lazy_merges;
pub(crate) mod library_batches;
mod open_batch;
pub(crate) mod phases;
pub(crate) mod refused_changes;
pub(crate) mod report;
mod unavailable;
mod verification;

use crate::control::batch_protocol::{BatchAnswer, BatchRequest};
use crate::metadata::Metadata;
use crate::process::context::ProcessContext;
use crate::serving::batches::ended_batch::EndedBatch;
use crate::serving::batches::expiry::Expiry;
use crate::serving::batches::jobs::{Jobs, Submission};
use crate::serving::batches::lazy_merges::LazyMerges;
use crate::serving::batches::open_batch::{CLOSE_TIMEOUT, LiveBatch, OpenBatch, begin_job, resume_job};
use crate::serving::batches::phases::{EndedPhase, Phases};
use crate::serving::batches::refused_changes::{conflicts, forget, forget_refused, retry};
use crate::serving::batches::verification::Verifications;
use crate::serving::observed_mounts::ObservedMount;
use crate::serving::open_volume::OpenVolume;
use anyhow::{Context, Result, anyhow, bail};
use fuse::{MountOptions, UnmountError};
use meta::{Batch, BatchId, Engine, Ino, Op, namespace};
use metrics::Observation;
use staging::packs::Packs;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, MutexGuard, RwLock};
use vfs::Filesystem;

pub(crate) use crate::serving::batches::unavailable::Unavailable;

/// Directory of the batches' files in the state directory.
pub(crate) const BATCHES_DIR: &str = "batches";

/// Each batch may take 1/`MEMORY_SHARE` of the memory limit for its data, and as much for its names.
const MEMORY_SHARE: u64 = 4;

/// Directories in the summary of a batch that has ended.
const SUMMARY_DIRECTORIES: usize = 1000;

/// The batches of a volume.
#[derive(Debug)]
pub(crate) struct Batches {
    /// Directory with the files of all batches.
    root: PathBuf,
    access: BatchAccess,
    expiry: Expiry,
    jobs: Arc<Jobs>,
    /// Batches that programs can use.
    live: Mutex<BTreeMap<BatchId, LiveBatch>>,
    /// Batches that wait to be merged in the background. They are open, and not mounted any more.
    lazy: Arc<LazyMerges>,
    /// Batches that are being merged. They are open, and not mounted any more.
    merging: Arc<StdMutex<BTreeSet<BatchId>>>,
    /// Batches that other servers may verify.
    verifications: Verifications,
    /// Observers of the ends of batches.
    phases: Phases,
    /// Shared by merges. The volume is not unmounted before they have ended.
    merges: RwLock<()>,
}

/// Keeps a batch in the set of those that are being merged, until it is dropped.
#[derive(Debug)]
struct Merging {
    id: BatchId,
    all: Arc<StdMutex<BTreeSet<BatchId>>>,
}

/// How programs use the batches of a volume.
#[derive(Debug, Clone)]
pub(crate) enum BatchAccess {
    /// By mounts with these options, which are those of the volume's mounts.
    Mount(Box<MountOptions>),
    /// By the library, in this process.
    Library,
    /// Not at all, as the volume is served without a mount.
    Refused,
}

impl Batches {
    /// Makes the batches of a volume with this state directory; none can be used yet. An open batch expires when nothing was written to it for
    /// the time `expiry`; zero: never.
    pub(crate) fn new(state_root: &Path, access: BatchAccess, expiry: Duration) -> Self {
        let (jobs, live, lazy, merging, verifications, phases, merges) = Default::default();
        let (root, expiry) = (state_root.join(BATCHES_DIR), Expiry::new(expiry));
        Self { root, access, expiry, jobs, live, lazy, merging, verifications, phases, merges }
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, opened: &OpenVolume, request: BatchRequest) -> Result<BatchAnswer> {
        match request {
            BatchRequest::Begin { path_hex, mount_point_hex } => {
                let (path, mount_point) = (path_of(&path_hex)?, path_of(&mount_point_hex)?);
                self.begin(opened, &path, Path::new(OsStr::from_bytes(&mount_point))).await
            }
            BatchRequest::End { path_hex, patience_secs, lazy } => {
                self.end(opened, &path_of(&path_hex)?, Duration::from_secs(patience_secs), lazy).await
            }
            BatchRequest::List => self.list(opened).await,
            BatchRequest::Progress { id, directories } => {
                self.progress(opened, id.as_deref(), directories).await
            }
            BatchRequest::Conflicts { id, from } => conflicts(opened, id_of(&id)?, from),
            BatchRequest::Retry { id, index } => retry(opened, id_of(&id)?, index).await,
            BatchRequest::Forget { id, index } => forget(opened, id_of(&id)?, index).await,
            BatchRequest::Discard { id } => self.discard(opened, id_of(&id)?).await,
        }
    }

    /// Puts a subtree into batch mode, or mounts its open batch again.
    pub(crate) async fn begin(
        &self,
        opened: &OpenVolume,
        path: &[u8],
        mount_point: &Path,
    ) -> Result<BatchAnswer> {
        self.check_possible(opened)?;
        let mut live = self.live.lock().await;
        let dir = directory_at(opened, path)?;
        let (record, is_new) = self.find_or_record(opened, path, dir, &mut live).await?;
        let id = record.id();
        self.mount(opened, record, mount_point, is_new, &mut live).await?;
        let mut expired = None;
        if is_new {
            tracing::info!("'{}' is in batch mode: batch {id}", lossy(path));
            expired = self.expired_in(dir).map(|(id, _)| id.to_string());
        }
        Ok(BatchAnswer::Begun { id: id.to_string(), resumed: !is_new, expired })
    }

    /// Returns the open batch of a directory, or records a new one. Returns whether it is new. Fails if programs use it.
    async fn find_or_record(
        &self,
        opened: &OpenVolume,
        path: &[u8],
        dir: Ino,
        live: &mut BTreeMap<BatchId, LiveBatch>,
    ) -> Result<(Batch, bool)> {
        if let Some(record) = open_batches(opened)?.into_iter().find(|batch| batch.dir == dir) {
            let id = record.id();
            self.check_not_merging(id)?;
            if live.get(&id).is_some_and(|found| !found.has_ended()) {
                let path = lossy(path);
                return Err(Unavailable::busy(format!(
                    "'{path}' is in batch mode already; `tenon batch end` ends it"
                )));
            }
            let submitted = self.lazy.take(id);
            let unmounted = live.remove(&id).map(|found| found.batch);
            if let Some(batch) = unmounted.or(submitted.and_then(|submitted| submitted.batch)) {
                batch.close(CLOSE_TIMEOUT).await?;
            }
            self.check_files(id)?;
            if jobs::is_lazy(&self.dir(id)) {
                self.mark_submitted(id, Submission::Waited)?;
            }
            return Ok((record, false));
        }
        self.check_not_nested(opened, dir)?;
        let batches = opened.fs.admin().batches();
        let record = batch::begin(batches.names(), &batches.context(), dir)?;
        batches.sync_names().await?;
        Ok((record, true))
    }

    /// Like [`Batches::begin`], if the directory is not in batch mode.
    pub(crate) async fn begin_unless_mounted(
        &self,
        opened: &OpenVolume,
        path: &[u8],
        mount_point: &Path,
    ) -> Result<()> {
        let dir = directory_at(opened, path)?;
        if self.live.lock().await.values().any(|live| live.batch.record.dir == dir) {
            return Ok(());
        }
        self.begin(opened, path, mount_point).await.map(drop)
    }

    /// Fails if the volume is opened in a way that has no batches.
    fn check_possible(&self, opened: &OpenVolume) -> Result<()> {
        if matches!(self.access, BatchAccess::Refused) {
            return Err(Unavailable::unsupported(
                "the volume is served without a mount; batches need a mount",
            ));
        }
        if opened.read_only {
            return Err(Unavailable::unsupported("batches need a mount without --read-only"));
        }
        if opened.bucket.writeback.is_some() {
            return Err(Unavailable::unsupported(
                "batches need a mount without --writeback: a batch has a log of its own",
            ));
        }
        match opened.metadata {
            Metadata::Disk(_) => Ok(()),
            _ => Err(Unavailable::unsupported(
                "batches need metadata on this machine, and that of this volume is in a database",
            )),
        }
    }

    /// Fails for a directory above or below one that is in batch mode.
    fn check_not_nested(&self, opened: &OpenVolume, dir: Ino) -> Result<()> {
        let names = opened.fs.admin().batches().names().snapshot()?;
        let path_of_inode = |ino| namespace::read_path(&*names, ino);
        let path = path_of_inode(dir)?;
        for batch in open_batches(opened)? {
            let Ok(other) = path_of_inode(batch.dir) else { continue };
            if path.starts_with(&other) || other.starts_with(&path) {
                let id = batch.id();
                return Err(Unavailable::busy(format!(
                    "batch {id} is open in a directory above or below; end it first"
                )));
            }
        }
        Ok(())
    }

    /// Mounts the open batches that an earlier mount has left, and removes files of others.
    pub(crate) async fn resume(&self, opened: &OpenVolume, mount_point: &Path) -> Result<()> {
        if !matches!(self.access, BatchAccess::Mount(_)) {
            return Ok(());
        }
        let mut live = self.live.lock().await;
        let mut open = namespace::read_batches(&**opened.fs.admin().batches().names().engine())?;
        if let Err(error) = self.remove_leftovers(&open) {
            tracing::warn!(
                "files of ended batches in '{}' cannot be removed, and take space: {error:#}",
                self.root.display()
            );
        }
        open.retain(|record| record.outcome.is_none() && self.dir(record.id()).is_dir());
        for record in open {
            let id = record.id();
            if live.contains_key(&id) || self.lazy.contains(id) {
                continue;
            }
            if jobs::is_lazy(&self.dir(id)) {
                self.resume_submitted(opened, &record).await;
                continue;
            }
            match self.mount(opened, record, mount_point, false, &mut live).await {
                Ok(()) => tracing::info!("batch {id} is resumed"),
                Err(error) => {
                    tracing::error!("batch {id} cannot be resumed, and stays as it is: {error:#}");
                    self.find_job(id).await;
                }
            }
        }
        Ok(())
    }

    /// Makes the progress of a batch known that could not be opened.
    async fn find_job(&self, id: BatchId) {
        if self.jobs.get(id).is_some() {
            return;
        }
        let (dir, jobs) = (self.dir(id), Arc::clone(&self.jobs));
        let _ = tokio::task::spawn_blocking(move || jobs.found(id, &dir)).await;
    }

    /// Removes the files of batches that are not open, and the summaries of those that are open, or were forgotten.
    fn remove_leftovers(&self, all: &[Batch]) -> Result<()> {
        for entry in fs::read_dir(&self.root).into_iter().flatten() {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<BatchId>().ok());
            let is_open = |id| all.iter().any(|batch| batch.id() == id && batch.outcome.is_none());
            if id.is_some_and(|id| !is_open(id)) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        for id in ended_batch::ids(&self.root) {
            let is_expired = EndedBatch::read(&self.root, id).is_some_and(|ended| ended.is_expired());
            let is_left_over = match all.iter().find(|batch| batch.id() == id) {
                Some(batch) => batch.outcome.is_none(),
                None => !is_expired,
            };
            if is_left_over {
                EndedBatch::remove(&self.root, id)?;
            }
        }
        Ok(())
    }

    /// Opens a batch, and mounts it over its directory at a mount point of the volume.
    async fn mount(
        &self,
        opened: &OpenVolume,
        record: Batch,
        mount_point: &Path,
        is_new: bool,
        live: &mut MutexGuard<'_, BTreeMap<BatchId, LiveBatch>>,
    ) -> Result<()> {
        let path = namespace::read_path(&**opened.fs.admin().batches().names().engine(), record.dir)?;
        let at =
            path.iter().fold(mount_point.to_owned(), |at, name| at.join(OsStr::from_bytes(name.as_bytes())));
        let BatchAccess::Mount(options) = &self.access else { bail!("the volume is not mounted") };
        let options = MountOptions { root: record.dir, is_shared: false, ..*options.clone() };
        let id = record.id();
        let batch = self.open(opened, record, is_new).await?;
        let (fs, runtime) = (Arc::clone(&batch.fs), Handle::current());
        // The kernel asks this process for the directory while it mounts over it.
        let session = tokio::task::spawn_blocking(move || {
            let at = fuse::check_mount_point(&at, true)?;
            anyhow::Ok(fuse::mount(fs, &at, &options, &runtime)?)
        });
        let session = session.await??;
        live.insert(id, LiveBatch { batch, session: Some(session) });
        Ok(())
    }

    /// Opens the private namespace of a batch as a file system.
    async fn open(&self, opened: &OpenVolume, record: Batch, is_new: bool) -> Result<OpenBatch> {
        let dir = self.dir(record.id());
        let prefix = opened.fs.admin().batches().config().prefix.clone();
        let store = Arc::clone(&opened.bucket.store);
        let volume = vfs::VolumeRecord::read(store.as_ref(), &prefix).await?;
        let context = ProcessContext::system()?;
        let snapshot = opened.metadata.engine().snapshot()?;
        let memory = opened.fs.admin().batches().config().memory_limit_bytes / MEMORY_SHARE;
        let (job_dir, job_record) = (dir.clone(), record.clone());
        // Reads the whole log of a batch that is resumed.
        let job = tokio::task::spawn_blocking(move || match is_new {
            true => begin_job(&job_dir, snapshot, &job_record, memory),
            false => resume_job(&job_dir, snapshot, memory),
        });
        let (job, stale_ops) = job.await??;
        let engine = Arc::new(job.into_engine(record.at));
        self.jobs.opened(record.id(), &engine);
        let content_prefix = vfs::batch_objects(&prefix, record.id());
        let names = Arc::clone(&engine);
        let sync_names = Box::new(move || names.sync().map_err(io::Error::other));
        let packs = Packs::open(store, &dir, &content_prefix, context.entropy.clone(), sync_names)?;
        let mode = vfs::BatchMode {
            packs: Arc::clone(&packs),
            content_prefix: content_prefix.into(),
            at: record.at,
        };
        let has_kernel = matches!(self.access, BatchAccess::Mount(_));
        let config = vfs::Config {
            batch: Some(mode),
            atime: vfs::Atime::Off,
            memory_limit_bytes: memory,
            write_back: true,
            is_shared: false,
            page_cache_above: has_kernel,
            bypasses_page_cache_for_new_files: has_kernel,
            cache_dir: dir.join("cache"),
            moves_path: dir.join("moves"),
            ..opened.fs.admin().batches().config().clone()
        };
        let dependencies = vfs::Dependencies {
            store: packs.clone(),
            clock: context.clock,
            entropy: context.entropy,
            engine: engine.clone(),
            record: volume,
        };
        let fs = Filesystem::mount(dependencies, config)?;
        Ok(OpenBatch { record, engine, packs, fs, stale_ops })
    }

    /// Returns the mounts of the batches, for observers of their requests.
    pub(crate) async fn observed(&self) -> Vec<ObservedMount> {
        let live = self.live.lock().await;
        let sessions = live.values().filter_map(|found| Some((&found.batch, found.session.as_ref()?)));
        sessions
            .filter(|(_, session)| !session.has_ended())
            .map(|(batch, session)| ObservedMount {
                fs: Arc::clone(&batch.fs),
                root: batch.record.dir,
                meters: vec![Arc::clone(session.meter())],
            })
            .collect()
    }

    /// Calls `observer` with each phase of the end of a batch until the returned value is dropped.
    pub(crate) fn observe_phases(
        &self,
        observer: impl Fn(&EndedPhase) + Send + Sync + 'static,
    ) -> Observation<EndedPhase> {
        self.phases.observe(observer)
    }

    /// Returns the last batch of a directory that has expired and is not forgotten.
    fn expired_in(&self, dir: Ino) -> Option<(BatchId, EndedBatch)> {
        EndedBatch::expired(&self.root).into_iter().rev().find(|(_, ended)| ended.dir == dir.0)
    }

    /// Drops an open batch with all its changes, or forgets one that has ended.
    async fn discard(&self, opened: &OpenVolume, id: BatchId) -> Result<BatchAnswer> {
        let mut live = self.live.lock().await;
        let batches = opened.fs.admin().batches();
        let names = batches.names();
        let Some(record) = namespace::read_batch(&**names.engine(), id)? else {
            if EndedBatch::remove(&self.root, id)? {
                return Ok(BatchAnswer::Discarded);
            }
            return Err(no_batch(id));
        };
        self.check_not_merging(id)?;
        drop(self.lazy.take(id));
        if let Some(found) = live.get(&id) {
            found.unmount(true).await?;
            live.remove(&id);
        }
        if record.outcome.is_some() {
            // Without the record, garbage collection takes its objects for those of a batch that was never merged.
            if vfs::has_open_batches(&**names.engine())? {
                bail!(
                    "batch {id} is merged, and programs in the batches that are open may still read its files; forget it when no batch is open"
                );
            }
            forget_refused(opened, id)?;
        }
        self.drop_batch(opened, &record).await?;
        EndedBatch::remove(&self.root, id)?;
        Ok(BatchAnswer::Discarded)
    }

    /// Removes the record of a batch that is not mounted, its files, and its objects that no file uses.
    async fn drop_batch(&self, opened: &OpenVolume, record: &Batch) -> Result<()> {
        let (id, batches) = (record.id(), opened.fs.admin().batches());
        batches.names().commit(&batches.context(), &Op::SetBatch { id, record: None })?;
        self.jobs.remove(id);
        batches.sync_names().await?;
        let dir = self.dir(id);
        if dir.is_dir() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        // Files may use the objects of a batch that was merged. Its unused ones have been deleted then.
        if record.outcome.is_none()
            && let Err(error) = batches.delete_unused_objects(id, BTreeSet::new()).await
        {
            tracing::warn!("unused objects of batch {id} stay in the bucket until `tenon gc`: {error}");
        }
        Ok(())
    }

    /// Waits for merges, unmounts all batches and makes them durable. They stay open, and the next mount resumes them. Fails if programs use one, unless
    /// `lazily`.
    pub(crate) async fn suspend(&self, patience: Duration, lazily: bool) -> Result<(), UnmountError> {
        let _no_merge = self.merges.write().await;
        let mut live = self.live.lock().await;
        for (id, submitted) in self.lazy.take_all() {
            if let Some(batch) = submitted.batch {
                close_suspended(id, batch, patience).await;
            }
        }
        while let Some((id, found)) = live.pop_first() {
            if let Err(error) = found.unmount(lazily).await {
                live.insert(id, found);
                return Err(error);
            }
            close_suspended(id, found.batch, patience).await;
        }
        Ok(())
    }

    /// Returns the batches that wait to be merged in the background. [`Batches::merge_submitted`] must be called for each when it is due.
    pub(crate) fn lazy_merges(&self) -> Arc<LazyMerges> {
        Arc::clone(&self.lazy)
    }

    fn is_merging(&self, id: BatchId) -> bool {
        lock(&self.merging).contains(&id)
    }

    fn check_not_merging(&self, id: BatchId) -> Result<()> {
        if self.is_merging(id) {
            return Err(Unavailable::busy(format!("batch {id} is being merged; wait for the end of that")));
        }
        Ok(())
    }

    /// Fails if the local files of a batch are gone.
    fn check_files(&self, id: BatchId) -> Result<()> {
        if !self.dir(id).is_dir() {
            bail!(
                "the files of batch {id} are not on this machine any more; `tenon batch discard` drops the batch"
            );
        }
        Ok(())
    }

    /// Returns the directory with the files of a batch.
    fn dir(&self, id: BatchId) -> PathBuf {
        self.root.join(id.to_string())
    }
}

impl Merging {
    fn begin(id: BatchId, all: &Arc<StdMutex<BTreeSet<BatchId>>>) -> Self {
        lock(all).insert(id);
        Self { id, all: Arc::clone(all) }
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

fn lock(batches: &StdMutex<BTreeSet<BatchId>>) -> StdMutexGuard<'_, BTreeSet<BatchId>> {
    batches.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a batch that the next mount resumes.
async fn close_suspended(id: BatchId, batch: OpenBatch, patience: Duration) {
    if let Err(error) = batch.close(patience).await {
        tracing::error!(
            "not everything of batch {id} is on the disk, and its last changes may be lost: {error}"
        );
    }
}

/// Returns the error for an id of no batch.
fn no_batch(id: impl Display) -> anyhow::Error {
    Unavailable::not_found(format!("there is no batch {id}; `tenon batch list` lists the batches"))
}

/// Returns the batches that are neither merged nor discarded.
fn open_batches(opened: &OpenVolume) -> Result<Vec<Batch>> {
    let batches = namespace::read_batches(&**opened.fs.admin().batches().names().engine())?;
    Ok(batches.into_iter().filter(|batch| batch.outcome.is_none()).collect())
}

fn directory_at(opened: &OpenVolume, path: &[u8]) -> Result<Ino> {
    opened.fs.admin().batches().directory_at(path).with_context(|| format!("'/{}'", lossy(path)))
}

fn path_of(hex: &str) -> Result<Vec<u8>> {
    store::unhex(hex).context("the path is not hexadecimal")
}

fn id_of(text: &str) -> Result<BatchId> {
    text.parse()
        .map_err(|_| anyhow!("'{text}' is not the id of a batch; `tenon batch list` lists the batches"))
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
