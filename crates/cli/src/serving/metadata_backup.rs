//! The backup of the metadata while a volume is served: a task that runs a pass at an interval, and one at the end.
//!
//! A volume named by path gets a backup with its first change that the bucket does not show: merely reading a bucket stores nothing
//! in it. A failing pass is reported in the log and by `tenon status`, and repeated.

use crate::control::protocol::BackupReport;
use crate::metadata::lineage::Identity;
use crate::metadata::{self, Metadata};
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339;
use crate::volume::Volume;
use anyhow::{Result, anyhow};
use backup::{Cause, ChangeWatch, Exporter, ExporterStatus, Keys, Lineage, Parts, Settings};
use staging::writeback::Writeback;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ObjectStore, StoreError, Timestamp};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinHandle;

/// Interval of snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval of checks for unfinished renames.
const RENAMES_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a pass waits until the bucket has the content of all files. The next pass waits again.
const CONTENT_TIMEOUT: Duration = Duration::from_secs(600);
/// Minimum time between two passes, however urgent.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The backup of the metadata of a served volume.
#[derive(Debug)]
pub(crate) struct MetadataBackup {
    shared: Arc<Shared>,
    exports: Arc<AsyncMutex<Exports>>,
    /// The task that makes the passes, once it is started.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// State that the task reports.
#[derive(Debug)]
struct Shared {
    /// Interval of the passes.
    interval: Duration,
    progress: Mutex<ReportedProgress>,
    /// The message for the user, once another machine has taken over the volume, which then must no longer be served here.
    superseded: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct ReportedProgress {
    status: ExporterStatus,
    /// Reason why the last pass failed.
    failure: Option<String>,
}

/// The parts of a volume that a backup needs.
pub(crate) struct BackupParts<'p> {
    pub(crate) volume: &'p Volume,
    /// The bucket itself, without a write-back log in front of it.
    pub(crate) bucket: Arc<dyn ObjectStore>,
    pub(crate) writeback: Option<Arc<Writeback>>,
    pub(crate) metadata: &'p Metadata,
    pub(crate) state_root: &'p Path,
    /// Whether all names are only in the metadata.
    pub(crate) has_all_names: bool,
    pub(crate) context: &'p ProcessContext,
}

/// The passes, and what they work with.
#[derive(Debug)]
struct Exports {
    parts: Parts,
    volume: Volume,
    context: ProcessContext,
    state_root: PathBuf,
    has_all_names: bool,
    writeback: Option<Arc<Writeback>>,
    /// The file system, from the start of the passes to the last one.
    fs: Option<Arc<vfs::Filesystem>>,
    /// The commit up to which the backup is stored. Content that later commits released is not deleted yet.
    mark: Arc<vfs::ExportMark>,
    shared: Arc<Shared>,
    exporter: Option<Exporter>,
    /// Tells when there is a reason to begin a backup.
    watch: ChangeWatch,
}

/// Returns the keys of the backups of a volume.
pub(crate) fn keys(volume: &Volume) -> Keys {
    Keys::new(vfs::metadata_backups(volume.prefix().as_bytes()))
}

/// Refuses a state directory whose volume another machine has taken over. If the bucket does not tell, the state directory is
/// accepted.
pub(crate) async fn check_holder(volume: &Volume, store: &dyn ObjectStore, state_root: &Path) -> Result<()> {
    let Some(identity) = Identity::read(state_root)? else { return Ok(()) };
    match backup::check_holder(store, &keys(volume), identity.lineage, identity.holder).await {
        Err(error @ backup::Error::Superseded { .. }) => {
            Err(anyhow!(superseded_text(volume, state_root, &error)))
        }
        Err(error) => {
            tracing::warn!(
                "cannot check whether another machine has taken over {}, so this one continues it: {error}",
                volume.url()
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn superseded_text(volume: &Volume, state_root: &Path, error: &backup::Error) -> String {
    let (url, root) = (volume.url(), state_root.display());
    let backup::Error::Superseded { number, taken_at } = error else { return error.to_string() };
    format!(
        "{url} was restored on another machine at {} (generation {number}), which continues it; the names in {root} are no longer valid: move that directory away, and run `tenon restore {url}` to continue here",
        rfc3339(*taken_at)
    )
}

/// Takes the lineage with the newest backup of a volume over, for a state directory that continues it. `None` if there is no backup.
pub(crate) async fn take_over_newest(
    volume: &Volume,
    store: &dyn ObjectStore,
    context: &ProcessContext,
) -> Result<Option<Identity>> {
    let newest = backup::newest_lineage(store, &keys(volume), |_| true, None).await?;
    let Some((lineage, _)) = newest else { return Ok(None) };
    take_over(volume, store, lineage, context).await.map(Some)
}

/// Takes a lineage over, for a state directory that continues it. The machine that has it stops at its next pass.
pub(crate) async fn take_over(
    volume: &Volume,
    store: &dyn ObjectStore,
    lineage: Lineage,
    context: &ProcessContext,
) -> Result<Identity> {
    let identity = Identity::continuing(lineage, &context.entropy);
    backup::take_over(store, &keys(volume), lineage, identity.holder, context.clock.now()).await?;
    Ok(identity)
}

impl MetadataBackup {
    /// Opens the backup of a volume. Nothing is stored yet, unless the volume has been backed up before or needs a backup at once.
    pub(crate) async fn open(parts: BackupParts<'_>, interval: Duration) -> Result<Self> {
        let BackupParts { volume, bucket, writeback, metadata, state_root, has_all_names, context } = parts;
        let shared =
            Arc::new(Shared { interval, progress: Mutex::default(), superseded: watch::Sender::new(None) });
        let engine = metadata.engine();
        let watch = ChangeWatch::begin(engine.as_ref())?;
        let mut exports = Exports {
            parts: Parts { store: bucket, engine, clock: Arc::clone(&context.clock) },
            volume: volume.clone(),
            context: context.clone(),
            state_root: state_root.to_owned(),
            has_all_names,
            writeback,
            fs: None,
            mark: Arc::default(),
            shared: Arc::clone(&shared),
            exporter: None,
            watch,
        };
        if has_all_names || Identity::read(state_root)?.is_some() {
            match exports.open_exporter(false).await {
                Err(error @ backup::Error::Superseded { .. }) => {
                    return Err(anyhow!(superseded_text(volume, state_root, &error)));
                }
                opened => exports.report(opened.map(drop)),
            }
        }
        Ok(Self { shared, exports: Arc::new(AsyncMutex::new(exports)), task: Mutex::default() })
    }

    /// Starts the passes of a mounted file system, which from now on keeps content until the backup no longer refers to it.
    pub(crate) async fn start(&self, fs: &Arc<vfs::Filesystem>) {
        let mut exports = self.exports.lock().await;
        exports.fs = Some(Arc::clone(fs));
        let mark = Arc::clone(&exports.mark);
        fs.admin().delete_after_export(Arc::clone(&mark));
        let (passes, shared) = (Arc::clone(&self.exports), Arc::clone(&self.shared));
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(shared.interval) => {}
                    () = mark.requested() => tokio::time::sleep(PAUSE_MIN.min(shared.interval)).await,
                }
                passes.lock().await.pass(Cause::Interval).await;
            }
        });
        *lock(&self.task) = Some(task);
    }

    /// Returns with a message once another machine has taken over the volume.
    pub(crate) async fn superseded(&self) -> String {
        let mut receiver = self.shared.superseded.subscribe();
        let message = receiver.wait_for(Option::is_some).await.ok().and_then(|message| message.clone());
        match message {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Ends the passes with a last one, which takes a snapshot if anything has changed. Then deletes what only the backup still needed.
    pub(crate) async fn finish(&self, patience: Duration) {
        let task = lock(&self.task).take();
        if let Some(task) = task {
            // A pass that is cut off loses nothing: the last one stores what it left.
            task.abort();
            let _is_cancelled = task.await;
        }
        let last = async {
            let mut exports = self.exports.lock().await;
            exports.pass(Cause::End).await;
            let fs = exports.fs.take();
            if let Some(fs) = fs.filter(|_| lock(&self.shared.progress).failure.is_none()) {
                fs.admin().wait_for_deletions().await;
            }
        };
        if tokio::time::timeout(patience, last).await.is_err() {
            tracing::warn!(
                "the last backup of the metadata was not finished in time; the next mount makes one"
            );
        }
    }

    /// Describes the backup for `tenon status`.
    pub(crate) fn report(&self, now: Timestamp) -> BackupReport {
        let progress = lock(&self.shared.progress);
        let age_secs = |at: Timestamp| now.since(at).as_secs();
        BackupReport {
            age_secs: progress.status.current_at.map(age_secs),
            snapshot_age_secs: progress.status.snapshot_at.map(age_secs),
            generation: progress.status.generation,
            interval_secs: self.shared.interval.as_secs(),
            failure: progress.failure.clone(),
        }
    }
}

impl Exports {
    /// Makes a pass of the backup, and reports its outcome.
    async fn pass(&mut self, cause: Cause) {
        let outcome = self.try_pass(cause).await;
        self.report(outcome);
    }

    /// Reports the outcome of a pass: in the status, in the log if it has changed, and to the mount if another machine took over.
    fn report(&self, outcome: backup::Result<()>) {
        if let Err(error @ backup::Error::Superseded { .. }) = &outcome {
            let message = superseded_text(&self.volume, &self.state_root, error);
            self.shared.superseded.send_replace(Some(message));
        }
        let mut progress = lock(&self.shared.progress);
        progress.status = self.exporter.as_ref().map(Exporter::status).unwrap_or(progress.status);
        let failure = outcome.err().map(|error| error.to_string());
        if failure != progress.failure {
            match &failure {
                Some(failure) => {
                    tracing::warn!("the metadata of {} is not backed up: {failure}", self.volume.url())
                }
                None => tracing::info!("the metadata of {} is backed up again", self.volume.url()),
            }
        }
        progress.failure = failure;
    }

    async fn try_pass(&mut self, cause: Cause) -> backup::Result<()> {
        if self.exporter.is_none() {
            let has_changes = self.watch.has_changes(self.parts.engine.as_ref())?;
            if !has_changes && !self.has_all_names {
                self.mark.advance(self.parts.engine.head());
                return Ok(());
            }
            self.open_exporter(has_changes).await?;
        }
        let Some(exporter) = &mut self.exporter else { return Ok(()) };
        let Some(pass) = exporter.begin(cause).await? else {
            self.mark.advance(exporter.read_to());
            return Ok(());
        };
        let content = await_content(self.writeback.as_deref(), self.fs.as_deref());
        if tokio::time::timeout(CONTENT_TIMEOUT, content).await.is_err() {
            return Err(
                StoreError::Unavailable("it does not have the content of all files yet".into()).into()
            );
        }
        let mark = &self.mark;
        exporter.export(pass, |stored| mark.advance(stored)).await
    }

    async fn open_exporter(&mut self, has_changes: bool) -> backup::Result<()> {
        let identity = self.identity().map_err(|error| std::io::Error::other(format!("{error:#}")))?;
        let about = metadata::describe(&self.volume, &self.state_root);
        let settings = Settings {
            keys: keys(&self.volume),
            lineage: identity.lineage,
            holder: identity.holder,
            about: about.map_err(|error| std::io::Error::other(format!("{error:#}")))?,
            snapshot_interval: SNAPSHOT_INTERVAL,
            has_all_names: self.has_all_names,
        };
        self.exporter = Some(Exporter::open(self.parts.clone(), settings, has_changes).await?);
        Ok(())
    }

    /// Returns the identity of the state directory; creates one at the first backup.
    fn identity(&self) -> Result<Identity> {
        if let Some(identity) = Identity::read(&self.state_root)? {
            return Ok(identity);
        }
        let identity = Identity::new(&self.context.entropy);
        identity.write(&self.state_root)?;
        Ok(identity)
    }
}

/// Waits until the bucket has the content of all files that were named so far, at the keys at which they are named.
async fn await_content(writeback: Option<&Writeback>, fs: Option<&vfs::Filesystem>) {
    if let Some(log) = writeback {
        log.drained_so_far().await;
    }
    while fs.is_some_and(|fs| fs.status().moving.renames > 0) {
        tokio::time::sleep(RENAMES_POLL_INTERVAL).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
