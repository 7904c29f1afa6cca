//! The backup of the metadata while a volume is served: a task that runs a pass at an interval, and one at the end.
//!
//! A volume named by path gets a backup with its first change that the bucket does not show: merely reading a bucket stores nothing
//! in it. A failing pass is reported in the log and by `tenon status`, and repeated.
//!
//! If several mounts share a database, the one with the [`ExportLease`] makes the passes. The others read how far the backup is.

use crate::control::protocol::BackupReport;
use crate::metadata::lineage::Identity;
use crate::metadata::{self, Metadata};
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339;
use crate::serving::export_lease::{ExportLease, Turn};
use crate::volume::Volume;
use anyhow::{Result, anyhow};
use backup::{Cause, ChangeWatch, Exporter, ExporterStatus, Keys, Lineage, Parts, Settings};
use meta::{Engine, News};
use staging::writeback::Writeback;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ObjectStore, StoreError, Timestamp, blocking};
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

/// The metadata that is backed up.
#[derive(Debug)]
struct Source {
    volume: Volume,
    metadata: Metadata,
    state_root: PathBuf,
    has_all_names: bool,
    context: ProcessContext,
}

/// The passes, and what they work with.
#[derive(Debug)]
struct Exports {
    parts: Parts,
    source: Source,
    writeback: Option<Arc<Writeback>>,
    /// The file system, from the start of the passes to the last one.
    fs: Option<Arc<vfs::Filesystem>>,
    /// The commit up to which the backup is stored. Content that later commits released is not deleted yet.
    mark: Arc<vfs::ExportMark>,
    shared: Arc<Shared>,
    exporter: Option<Exporter>,
    /// Detects a reason to begin a backup; `None` while another mount exports.
    watch: Option<ChangeWatch>,
    lease: ExportLease,
    /// Time until the next pass, while another mount exports.
    follow_pause: Option<Duration>,
    /// Set when the database may have lost commits, so that the backup can be ahead of it.
    is_history_lost: Arc<AtomicBool>,
}

/// Returns the keys of the backups of a volume.
pub(crate) fn keys(volume: &Volume) -> Keys {
    Keys::new(vfs::metadata_backups(volume.prefix().as_bytes()))
}

/// Refuses metadata whose volume was restored elsewhere. If the bucket does not answer, the metadata is accepted.
pub(crate) async fn check_holder(
    volume: &Volume,
    store: &dyn ObjectStore,
    metadata: &Metadata,
    state_root: &Path,
) -> Result<()> {
    let Some(identity) = Identity::of(metadata, state_root)? else { return Ok(()) };
    match backup::check_holder(store, &keys(volume), identity.lineage, identity.holder).await {
        Err(error @ backup::Error::Superseded { .. }) => {
            Err(anyhow!(superseded_text(volume, metadata, state_root, &error)))
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

fn superseded_text(volume: &Volume, metadata: &Metadata, state_root: &Path, error: &backup::Error) -> String {
    let (url, root) = (volume.url(), state_root.display());
    let backup::Error::Superseded { number, taken_at } = error else { return error.to_string() };
    if matches!(metadata, Metadata::Database(_)) {
        return format!(
            "{url} was restored to another place at {} (generation {number}), which continues it; the names in this database are no longer in use: mount the volume again",
            rfc3339(*taken_at)
        );
    }
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
        let is_shared = engine.is_shared();
        let watch = (!is_shared).then(|| ChangeWatch::begin(engine.as_ref())).transpose()?;
        let source = Source {
            volume: volume.clone(),
            metadata: metadata.clone(),
            state_root: state_root.to_owned(),
            has_all_names,
            context: context.clone(),
        };
        let mut exports = Exports {
            lease: ExportLease::of(Arc::clone(&engine)),
            follow_pause: None,
            is_history_lost: note_lost_history(engine.as_ref()),
            parts: Parts { store: bucket, engine, clock: Arc::clone(&context.clock) },
            source,
            writeback,
            fs: None,
            mark: Arc::default(),
            shared: Arc::clone(&shared),
            exporter: None,
            watch,
        };
        if !is_shared && (has_all_names || Identity::of(metadata, state_root)?.is_some()) {
            match exports.open_exporter(false).await {
                Err(error @ backup::Error::Superseded { .. }) => {
                    return Err(anyhow!(superseded_text(volume, metadata, state_root, &error)));
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
        // The backup of a shared volume is opened by the first pass.
        let mut pause = match exports.parts.engine.is_shared() {
            true => PAUSE_MIN.min(shared.interval),
            false => shared.interval,
        };
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = mark.requested() => tokio::time::sleep(PAUSE_MIN.min(shared.interval)).await,
                }
                let mut passes = passes.lock().await;
                passes.pass(Cause::Interval).await;
                pause = passes.pause();
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
            exports.release_lease().await;
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
            let Source { volume, metadata, state_root, .. } = &self.source;
            let message = superseded_text(volume, metadata, state_root, error);
            self.shared.superseded.send_replace(Some(message));
        }
        let mut progress = lock(&self.shared.progress);
        progress.status = self.exporter.as_ref().map(Exporter::status).unwrap_or(progress.status);
        let failure = outcome.err().map(|error| error.to_string());
        if failure != progress.failure {
            match &failure {
                Some(failure) => {
                    tracing::warn!("the metadata of {} is not backed up: {failure}", self.source.volume.url())
                }
                None => tracing::info!("the metadata of {} is backed up again", self.source.volume.url()),
            }
        }
        progress.failure = failure;
    }

    /// Returns the time until the next pass.
    fn pause(&self) -> Duration {
        self.follow_pause.unwrap_or(self.shared.interval)
    }

    async fn try_pass(&mut self, cause: Cause) -> backup::Result<()> {
        // Content whose deletion waits for the backup would stay in the bucket if this mount left it to another one.
        let has_waiting_deletions = self.fs.as_ref().is_some_and(|fs| fs.admin().has_waiting_deletions());
        let takes_over = cause == Cause::End && has_waiting_deletions;
        self.follow_pause = None;
        let lease = match self.with_lease(move |lease| lease.take(takes_over)).await? {
            Turn::Other(status) => return self.follow(status, has_waiting_deletions).await,
            Turn::Own(lease) => lease,
        };
        if self.is_history_lost.swap(false, Ordering::AcqRel) {
            (self.exporter, self.watch) = (None, None);
            self.with_engine(|engine| backup::forget_history(engine)).await?;
        }
        let mut outcome = self.export(cause).await;
        if matches!(outcome, Err(backup::Error::Superseded { .. })) && self.is_still_holder().await {
            // Another mount of the same database has exported meanwhile.
            self.exporter = None;
            outcome = self.export(cause).await;
        }
        outcome?;
        if let Some(status) = self.exporter.as_ref().map(Exporter::status) {
            self.with_lease(move |export| export.publish(&lease, status)).await?;
        }
        Ok(())
    }

    /// Notes how far the backup of the exporting mount is. Asks for the exported commit only if deletions wait for it.
    async fn follow(&mut self, status: ExporterStatus, has_waiting_deletions: bool) -> backup::Result<()> {
        (self.exporter, self.watch) = (None, None);
        let age = status.current_at.map(|at| self.parts.clock.now().since(at));
        self.follow_pause = Some(follow_pause(self.shared.interval, age));
        if has_waiting_deletions
            && let Some(exported_to) = self.with_engine(|engine| backup::exported_to(engine)).await?
        {
            self.mark.advance(exported_to);
        }
        lock(&self.shared.progress).status = status;
        Ok(())
    }

    /// Returns whether this database still continues its backup, although another mount may export it.
    async fn is_still_holder(&self) -> bool {
        let Source { volume, metadata, state_root, .. } = &self.source;
        let Ok(Some(identity)) = Identity::of(metadata, state_root) else { return false };
        let store = self.parts.store.as_ref();
        let is_shared = self.parts.engine.is_shared();
        is_shared
            && backup::check_holder(store, &keys(volume), identity.lineage, identity.holder).await.is_ok()
    }

    /// Gives the lease up, so that another mount can export at once.
    async fn release_lease(&self) {
        if let Err(error) = self.with_lease(|lease| lease.release()).await {
            tracing::debug!("the lease on the backup is not released, and expires: {error}");
        }
    }

    async fn with_lease<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ExportLease) -> Result<T> + Send + 'static,
    ) -> backup::Result<T> {
        let lease = self.lease.clone();
        Ok(blocking(move || work(&lease).map_err(as_io_error)).await?)
    }

    async fn with_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Engine) -> backup::Result<T> + Send + 'static,
    ) -> backup::Result<T> {
        let engine = Arc::clone(&self.parts.engine);
        blocking(move || Ok(work(engine.as_ref()))).await?
    }

    /// Makes a pass of the mount whose turn it is.
    async fn export(&mut self, cause: Cause) -> backup::Result<()> {
        let engine = Arc::clone(&self.parts.engine);
        let watch = match &mut self.watch {
            Some(watch) => watch,
            None => self.watch.insert(ChangeWatch::begin(engine.as_ref())?),
        };
        if self.exporter.is_none() {
            let has_changes = watch.has_changes(engine.as_ref())?;
            if !has_changes && !self.source.has_all_names {
                self.mark.advance(engine.head());
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
        let Source { volume, metadata, state_root, has_all_names, context } = &self.source;
        let (of, root, entropy) = (metadata.clone(), state_root.clone(), Arc::clone(&context.entropy));
        let identity =
            blocking(move || Identity::of_or_new(&of, &root, &entropy).map_err(as_io_error)).await?;
        let settings = Settings {
            keys: keys(volume),
            lineage: identity.lineage,
            holder: identity.holder,
            about: metadata::describe(volume, state_root).map_err(as_io_error)?,
            snapshot_interval: SNAPSHOT_INTERVAL,
            has_all_names: *has_all_names,
        };
        self.exporter = Some(Exporter::open(self.parts.clone(), settings, has_changes).await?);
        Ok(())
    }
}

/// Returns the time until a mount that does not export asks again how far the backup is, which had this age. It asks once for each pass of the
/// mount that exports, soon after it: a time without relation to the passes could show an age of two intervals, as if the backup were late.
fn follow_pause(interval: Duration, age: Option<Duration>) -> Duration {
    let soon_after = interval + interval / 8;
    let next = age.map_or(interval, |age| soon_after.saturating_sub(age));
    next.clamp(interval / 2, soon_after)
}

fn as_io_error(error: anyhow::Error) -> std::io::Error {
    std::io::Error::other(format!("{error:#}"))
}

/// Returns a flag that is set when an engine may have lost commits.
fn note_lost_history(engine: &dyn Engine) -> Arc<AtomicBool> {
    let is_lost = Arc::new(AtomicBool::new(false));
    let noting = Arc::clone(&is_lost);
    engine.watch(Box::new(move |news| {
        if matches!(news, News::Everything { .. }) {
            noting.store(true, Ordering::Release);
        }
    }));
    is_lost
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: mounts that do not export asked twice for each pass how far the backup is.
    #[test]
    fn a_mount_that_does_not_export_asks_once_for_each_pass() {
        let interval = Duration::from_secs(60);
        for first in 0..60 {
            // The other mount makes a pass every 61 s; times in milliseconds since its first pass.
            let (mut now, mut asked) = (first * 1000, Vec::new());
            while now < 6_100_000 {
                asked.push(now);
                now += follow_pause(interval, Some(Duration::from_millis(now % 61_000))).as_millis() as u64;
            }
            assert!(asked.len() <= 102, "{} times", asked.len());
            let oldest = asked.windows(2).map(|pair| pair[0] % 61_000 + (pair[1] - pair[0])).max();
            assert!(oldest.unwrap() <= 100_000, "{oldest:?}");
        }
        assert_eq!(follow_pause(interval, None), interval);
        assert_eq!(follow_pause(interval, Some(Duration::from_secs(1000))), interval / 2);
    }
}
