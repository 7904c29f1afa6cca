//! A volume that is served as files, as objects or both. The process answers its control socket, and ends by a
//! signal, a request, or umount(8).

use crate::bucket::disk_space::SpaceSource;
use crate::control::protocol::{
    Answer, Conflict, FileExtent, Keep, Lister, Located, Pending, Quota, QuotaChange, Request, Status,
    Webhook, from_hex,
};
use crate::control::server::{ControlServer, Replies, Service};
use crate::control::socket;
use crate::metadata;
use crate::metadata::dump_file;
use crate::process::VERSION;
use crate::process::logging::LogFile;
use crate::process::signals::StopSignals;
use crate::serving::drive_requests;
use crate::serving::mount_points::MountPoints;
use crate::serving::open_volume::OpenVolume;
use crate::state::StateDir;
use crate::state::registry::{Registration, Registry};
use anyhow::{Context, Result, anyhow};
use fuse::{Session, UnmountError};
use s3::Server;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Interval of progress messages to a client that waits.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of checks for unfinished renames.
const RENAMES_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a stopped mount waits to store what programs wrote while it was being unmounted.
const FINAL_STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stopped endpoint waits for requests in progress.
pub(crate) const REQUESTS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end waits for answers in progress on the control socket.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// A volume that is being served.
pub(crate) struct ServedVolume {
    service: Arc<VolumeService>,
    control: ControlServer,
    signals: Signals,
    state: PathBuf,
    _registration: Option<Registration>,
}

/// The state from which requests are answered.
struct VolumeService {
    /// Whether `tenon umount` has stopped waiting for the write-back log.
    gave_up: AtomicBool,
    /// Whether the process is ending: the volume can no longer be reached, or soon, and pending changes are stored.
    ending: AtomicBool,
    state: PathBuf,
    log: Option<PathBuf>,
    space: Option<SpaceSource>,
    opened: OpenVolume,
    mount_points: MountPoints,
    endpoint: Option<Server>,
    since: Instant,
}

impl ServedVolume {
    /// Opens the control socket, and checks that the mount answers.
    pub(crate) async fn start(
        opened: OpenVolume,
        sessions: Vec<Session>,
        endpoint: Option<Server>,
        state: &StateDir,
        log: Option<&LogFile>,
    ) -> Result<Self> {
        // Watch the signals before the mount is announced as ready: an unwatched signal kills the process.
        let signals = Signals::watch()?;
        let listener = socket::bind(state.root()).context("cannot open the control socket")?;
        let service = Arc::new(VolumeService {
            gave_up: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            state: state.root().to_owned(),
            log: log.map(|log| log.path().to_owned()),
            space: SpaceSource::of_volume(&opened.volume, &opened.bucket),
            mount_points: MountPoints::new(sessions),
            opened,
            endpoint,
            since: Instant::now(),
        });
        let control =
            ControlServer::start(listener, Arc::clone(&service)).context("cannot open the control socket")?;
        let registration = Registry::of_user().register(state.root());
        let registration = registration
            .inspect_err(|error| tracing::warn!("`tenon status` will not list this mount: {error:#}"))
            .ok();
        // "Ready" means that the mount answers.
        service.mount_points.wait_until_ready().await.context("a mounted directory cannot be read")?;
        tracing::info!("{} is {}", service.opened.volume.url(), service.locations());
        Ok(Self { service, control, signals, state: state.root().to_owned(), _registration: registration })
    }

    /// Serves until the volume is unmounted. SIGTERM and SIGINT store pending changes within `patience` and unmount;
    /// a second signal during the storing ends the process at once. SIGHUP reopens the log.
    pub(crate) async fn run_until_end(mut self, patience: Duration, log: Option<LogFile>) -> Result<()> {
        let Signals { stop, hangup } = &mut self.signals;
        let mut superseded = None;
        let patience = loop {
            tokio::select! {
                message = self.service.superseded(), if superseded.is_none() => {
                    tracing::error!("{message}");
                    superseded = Some(message);
                    self.service.stop(patience, stop).await?;
                    break patience.min(FINAL_STORE_TIMEOUT);
                }
                () = self.service.mount_points.wait_until_ended(), if self.service.mount_points.has_any() => {
                    break patience;
                }
                _ = stop.wait() => {
                    self.service.stop(patience, stop).await?;
                    break patience.min(FINAL_STORE_TIMEOUT);
                }
                _ = hangup.recv() => reopen(log.as_ref()),
            }
        };
        // From here on, a new mount waits, and `tenon status` says why the process still exists.
        self.service.ending.store(true, Ordering::Relaxed);
        if let Some(endpoint) = &self.service.endpoint {
            endpoint.stop(patience.min(REQUESTS_TIMEOUT)).await;
        }
        let (outcome, _) = tokio::join!(
            self.service.opened.fs.shutdown(patience),
            // The threads that serve the kernel also have the metadata engine open.
            tokio::time::timeout(patience, self.service.mount_points.wait_until_ended()),
        );
        self.service.opened.stop_events().await;
        self.service.drain_quietly(patience).await;
        if outcome.is_err() {
            tracing::warn!(
                "the metadata is not backed up at this end, as not everything was stored: the next mount makes a backup"
            );
        } else if superseded.is_none() {
            self.service.finish_backup(patience).await;
        }
        if let Err(error) = self.service.opened.metadata.checkpoint() {
            tracing::warn!(
                "cannot write names to the tables of the metadata, so they stay in the write-back log until the next mount: {error:#}"
            );
        }
        if let Some(local) = &self.service.opened.bucket.local
            && let Err(error) = local.close().await
        {
            tracing::warn!("cannot close the drive, so the next opening replays its log: {error:#}");
        }
        self.control.stop(ANSWERS_TIMEOUT).await;
        socket::remove(&self.state);
        tracing::info!("unmounted");
        if let Some(message) = superseded {
            return Err(anyhow!(message));
        }
        outcome.map_err(|error| anyhow!("not everything was stored: {error}"))
    }
}

impl VolumeService {
    /// Describes where the volume can be reached.
    fn locations(&self) -> String {
        let mounted = self.mount_points.mounted_text().into_iter().map(|path| format!("mounted at {path}"));
        let served = self.url().map(|url| format!("served at {url}"));
        mounted.chain(served).collect::<Vec<_>>().join(" and ")
    }

    fn url(&self) -> Option<String> {
        self.endpoint.as_ref().map(Server::url)
    }

    /// Stops the mount after a signal. Directories in which programs have files open are detached.
    async fn stop(&self, patience: Duration, stop: &mut StopSignals) -> Result<()> {
        tracing::info!("stopping: {}", self.pending());
        self.ending.store(true, Ordering::Relaxed);
        tokio::select! {
            outcome = self.opened.fs.shutdown(patience) => {
                if let Err(error) = outcome {
                    tracing::error!("not everything was stored: {error}");
                }
            }
            _ = stop.wait() => {
                return Err(anyhow!("stopped by a second signal; not stored: {}", self.pending()));
            }
        }
        for path in self.mount_points.mounted() {
            if matches!(self.mount_points.unmount(&path, false).await, Err(UnmountError::Busy(_))) {
                tracing::warn!("programs use the mount at {}, so it is detached", path.display());
                if let Err(error) = self.mount_points.unmount(&path, true).await {
                    tracing::warn!("{error}");
                }
            }
        }
        Ok(())
    }

    /// Unmounts one directory, or all. The process ends with the last one.
    async fn unmount(
        &self,
        mount_point_hex: Option<&str>,
        lazily: bool,
        patience: Duration,
        replies: &mut Replies,
    ) -> Answer {
        let mounted = self.mount_points.mounted();
        let Some(digits) = mount_point_hex else {
            return self.store_and_unmount(&mounted, lazily, patience, replies).await;
        };
        let Some(bytes) = from_hex(digits) else { return failed("the path is not hexadecimal".to_owned()) };
        let path = PathBuf::from(OsString::from_vec(bytes));
        if mounted.iter().all(|other| *other == path) {
            return self.store_and_unmount(&[path], lazily, patience, replies).await;
        }
        match self.mount_points.unmount(&path, lazily).await {
            Ok(()) => {
                tracing::info!("unmounted {}; the volume stays {}", path.display(), self.locations());
                Answer::Unmounted { goes_on: true, backlog_changes: 0 }
            }
            Err(UnmountError::Busy(_)) => Answer::Busy,
            Err(error) => failed(error.to_string()),
        }
    }

    /// Stores pending changes, with progress messages, then unmounts. If the changes cannot be stored, the mount
    /// stays. If programs use a directory, those before it stay unmounted.
    async fn store_and_unmount(
        &self,
        from: &[PathBuf],
        lazily: bool,
        patience: Duration,
        replies: &mut Replies,
    ) -> Answer {
        if let Err(error) = self.with_progress(self.opened.fs.shutdown(patience), replies).await {
            return failed(format!("cannot store everything: {error}; the mount stays"));
        }
        self.drain(patience, replies).await;
        for path in from {
            match self.mount_points.unmount(path, lazily).await {
                Ok(()) | Err(UnmountError::NotMounted(_)) => {}
                Err(UnmountError::Busy(_)) => return Answer::Busy,
                Err(error) => return failed(error.to_string()),
            }
        }
        self.ending.store(true, Ordering::Relaxed);
        Answer::Unmounted { goes_on: false, backlog_changes: self.pending().backlog_changes }
    }

    /// Waits at most `patience` for the write-back log to be uploaded, after the last files were closed; not at all
    /// if `tenon umount` gave up waiting. Sends no progress.
    async fn drain_quietly(&self, patience: Duration) {
        let Some(log) = &self.opened.bucket.writeback else { return };
        if !self.gave_up.load(Ordering::Relaxed) {
            tokio::time::timeout(patience, log.drained()).await.ok();
        }
        let changes = log.backlog().changes;
        if changes > 0 {
            tracing::warn!("{changes} changes stay in the write-back log; the next mount uploads them");
        }
    }

    /// Makes the last backup of the metadata, and stores the deletions that waited for it.
    async fn finish_backup(&self, patience: Duration) {
        let Some(backup) = &self.opened.backup else { return };
        backup.finish(patience).await;
        self.drain_quietly(patience).await;
    }

    /// Returns with a message once another machine has taken over the volume.
    async fn superseded(&self) -> String {
        match &self.opened.backup {
            Some(backup) => backup.superseded().await,
            None => std::future::pending().await,
        }
    }

    /// Waits at most `patience` for the write-back log to be uploaded, with progress messages. Changes that are left
    /// are safe in the log.
    async fn drain(&self, patience: Duration, replies: &mut Replies) {
        let Some(log) = &self.opened.bucket.writeback else { return };
        let drained = tokio::time::timeout(patience, log.drained());
        let outcome = self.with_progress(drained, replies).await;
        self.gave_up.store(outcome.is_err(), Ordering::Relaxed);
    }

    /// Awaits `work`, and tells the client at intervals what is pending.
    async fn with_progress<T>(&self, work: impl Future<Output = T>, replies: &mut Replies) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    replies.send(&Answer::Progress(self.pending())).await;
                }
            }
        }
    }

    async fn locate(&self, path_hex: &str) -> Answer {
        let Some(path) = from_hex(path_hex) else { return failed("the path is not hexadecimal".to_owned()) };
        match self.opened.fs.admin().locate(&path).await {
            Ok(found) => Answer::Located(Located {
                url: found.key.as_ref().map(|key| self.opened.volume.object_url(key)),
                key: found.key.map(|key| key.to_string()),
                etag: found.etag,
                size_bytes: found.size_bytes,
                ino: found.ino.0,
                content: found.content.into_iter().map(extent_to_protocol).collect(),
            }),
            Err(error) => failed(format!("{}: {error}", String::from_utf8_lossy(&path))),
        }
    }

    fn path_of(&self, key_hex: &str) -> Answer {
        let key = from_hex(key_hex).and_then(|key| store::ObjectKey::new(key).ok());
        let Some(key) = key else { return failed("the key is not valid".to_owned()) };
        let path = self.opened.fs.admin().path_of(&key);
        Answer::PathOf { path: path.map(|path| String::from_utf8_lossy(&path).into_owned()) }
    }

    async fn quota(&self, path_hex: &str, change: Option<QuotaChange>) -> Answer {
        let Some(path) = from_hex(path_hex) else { return failed("the path is not hexadecimal".to_owned()) };
        let outcome = async {
            match change {
                None => {}
                Some(QuotaChange::Remove) => self.opened.fs.admin().set_quota(&path, None).await?,
                Some(QuotaChange::Set { bytes, files }) => {
                    self.opened.fs.admin().set_quota(&path, Some(vfs::Limits { bytes, files })).await?;
                }
            }
            self.opened.fs.admin().quota(&path).await
        };
        match outcome.await {
            Ok(quota) => Answer::Quota { quota: quota.as_ref().map(quota_to_protocol) },
            Err(error) => failed(format!("{}: {error}", String::from_utf8_lossy(&path))),
        }
    }

    async fn collect_garbage(&self, dry_run: bool) -> Answer {
        match self.opened.fs.admin().collect_garbage(dry_run).await {
            Ok(keys) => Answer::Collected { keys: keys.iter().map(ToString::to_string).collect() },
            Err(error) => failed(error.to_string()),
        }
    }

    async fn import(&self) -> Answer {
        match self.opened.fs.admin().import_foreign().await {
            Ok(paths) => Answer::Imported {
                paths: paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
            },
            Err(error) => failed(error.to_string()),
        }
    }

    /// Dumps the metadata to a file, then waits until the bucket has the content that it refers to. If it does not get
    /// it in time, removes the file.
    async fn dump(&self, file_hex: &str, patience: Duration, replies: &mut Replies) -> Answer {
        let Some(file) = from_hex(file_hex) else { return failed("the path is not hexadecimal".to_owned()) };
        let file = PathBuf::from(OsString::from_vec(file));
        let (engine, path) = (self.opened.metadata.engine(), file.clone());
        let about = metadata::describe(&self.opened.volume, &self.state);
        let work = move || dump_file::write(engine.as_ref(), about?, &path, |_| {});
        let records = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(records)) => records,
            Ok(Err(error)) => return failed(format!("{error:#}")),
            Err(error) => return failed(error.to_string()),
        };
        let stored = async {
            if let Some(log) = &self.opened.bucket.writeback {
                log.drained_so_far().await;
            }
            while self.pending().renames > 0 {
                tokio::time::sleep(RENAMES_POLL_INTERVAL).await;
            }
        };
        let stored = self.with_progress(tokio::time::timeout(patience, stored), replies).await;
        if stored.is_err() {
            let _ = std::fs::remove_file(&file);
            return failed(format!(
                "the bucket did not get all contents in time ({}); no dump was made",
                self.pending()
            ));
        }
        Answer::Dumped { records }
    }

    async fn resolve(&self, id: &str, keep: Keep) -> Answer {
        match self.opened.fs.conflict_resolver().resolve(id, keep.into()).await {
            Ok(()) => Answer::Resolved,
            Err(error) => failed(error.to_string()),
        }
    }

    fn check(&self) -> Answer {
        match self.opened.fs.check() {
            Ok(violations) => Answer::Checked { violations },
            Err(error) => failed(error.to_string()),
        }
    }

    fn pending(&self) -> Pending {
        let status = self.opened.fs.status();
        let log = self.opened.bucket.writeback.as_ref();
        let backlog = log.map(|log| log.backlog()).unwrap_or_default();
        let damage = log.map(|log| log.damage().clone()).unwrap_or_default();
        Pending {
            dirty_files: status.dirty_files as u64,
            write_bytes: status.write_bytes,
            exports: status.exports_waiting as u64,
            renames: status.moving.renames as u64,
            backlog_changes: backlog.changes as u64,
            backlog_bytes: backlog.bytes,
            refused_changes: backlog.refused as u64,
            damaged: (damage.ranges + damage.files) as u64,
        }
    }

    fn webhooks(&self) -> BTreeMap<String, Webhook> {
        let counts = self.endpoint.iter().flat_map(|server| server.endpoint().webhooks());
        let shown = |counts: events::WebhookCounts| Webhook {
            queued: counts.queued,
            sent: counts.sent,
            retried: counts.retried,
            failed: counts.failed,
            dropped: counts.dropped,
        };
        counts.map(|(name, counts)| (name, shown(counts))).collect()
    }

    fn status(&self) -> Status {
        let status = self.opened.fs.status();
        let mut mount_points = self.mount_points.mounted_text().into_iter();
        Status {
            pid: std::process::id(),
            volume: self.opened.volume.url(),
            mount_point: mount_points.next().unwrap_or_default(),
            also: mount_points.collect(),
            endpoint: self.url(),
            version: VERSION.to_owned(),
            uptime_secs: self.since.elapsed().as_secs(),
            read_only: self.opened.read_only,
            ending: self.ending.load(Ordering::Relaxed),
            state_dir: self.state.display().to_string(),
            log_file: self.log.as_ref().map(|path| path.display().to_string()),
            names_only_here: self.opened.names_only_here,
            backup: self.opened.backup.as_ref().map(|backup| backup.report(metadata::now())),
            room_bytes: self
                .space
                .as_ref()
                .and_then(SpaceSource::measure)
                .map(|space| (space.total_bytes, space.available_bytes)),
            shared: self.opened.shared,
            server: self.opened.server.clone(),
            is_buckets: false,
            open_handles: status.open_handles as u64,
            pending: self.pending(),
            objects_moved: status.moving.objects_moved,
            move_failure: status.moving.failure,
            read_bytes: status.read_bytes,
            metadata_bytes: status.metadata_bytes,
            views_bytes: self.opened.viewing.as_ref().map_or(0, |viewing| viewing.memory_bytes()),
            kernel_inodes: status.kernel_inodes as u64,
            memory_limit_bytes: status.memory_limit_bytes,
            conflict_policy: self.opened.fs.conflicts().policy().to_string(),
            conflicts: status.conflicts as u64,
            lister: Lister::of(&status.lister),
            store_requests: self.opened.bucket.requests(),
            fuse_requests: self.mount_points.requests(),
            webhooks: self.webhooks(),
            events_lost: self.endpoint.as_ref().map_or(0, |server| server.endpoint().events_lost()),
            views: self.opened.viewing.as_ref().map(|viewing| viewing.status()).unwrap_or_default(),
            moves_refused: self
                .opened
                .viewing
                .as_ref()
                .map(|viewing| viewing.moves_refused())
                .unwrap_or_default(),
            event_sources: self.opened.sources(),
        }
    }
}

impl VolumeService {
    /// Returns the drives below the volume.
    fn drives(&self) -> Vec<drive::Drive> {
        let local = self.opened.bucket.local.iter();
        local.flat_map(|local| local.drives()).cloned().collect()
    }
}

impl Service for VolumeService {
    async fn answer(&self, request: Request, replies: &mut Replies) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Unmount { mount_point_hex, lazy, patience_secs } => {
                let patience = Duration::from_secs(patience_secs);
                self.unmount(mount_point_hex.as_deref(), lazy, patience, replies).await
            }
            Request::Locate { path_hex } => self.locate(&path_hex).await,
            Request::PathOf { key_hex } => self.path_of(&key_hex),
            Request::Quota { path_hex, change } => self.quota(&path_hex, change).await,
            Request::CollectGarbage { dry_run } => self.collect_garbage(dry_run).await,
            Request::Dump { file_hex, patience_secs } => {
                self.dump(&file_hex, Duration::from_secs(patience_secs), replies).await
            }
            Request::Import => self.import().await,
            Request::Rebuild(wanted) => drive_requests::serve_rebuild(self.drives(), wanted, replies).await,
            Request::Scrub { bytes_per_sec } => {
                drive_requests::serve_scrub(self.drives(), bytes_per_sec, replies).await
            }
            Request::Check => self.check(),
            Request::Conflicts => Answer::Conflicts {
                conflicts: self.opened.fs.conflicts().list().iter().map(Conflict::from).collect(),
            },
            Request::ResolveConflict { id, keep } => self.resolve(&id, keep).await,
        }
    }
}

/// The signals that this process handles.
struct Signals {
    stop: StopSignals,
    hangup: Signal,
}

impl Signals {
    fn watch() -> Result<Self> {
        Ok(Self {
            stop: StopSignals::new()?,
            hangup: signal(SignalKind::hangup()).context("cannot watch signals")?,
        })
    }
}

fn quota_to_protocol(quota: &vfs::Quota) -> Quota {
    let used = |used: i64| u64::try_from(used).unwrap_or(0);
    Quota {
        bytes: quota.limits.bytes,
        bytes_used: used(quota.used.bytes),
        files: quota.limits.files,
        files_used: used(quota.used.files),
    }
}

fn extent_to_protocol((key, extent): (store::ObjectKey, meta::Extent)) -> FileExtent {
    FileExtent {
        offset: extent.offset,
        len: extent.len,
        key: key.to_string(),
        etag: extent.object.etag.to_string(),
        object_offset: extent.object_offset,
    }
}

fn reopen(log: Option<&LogFile>) {
    if let Some(Err(error)) = log.map(LogFile::reopen) {
        tracing::warn!("cannot reopen the log, which continues in the old file: {error}");
    }
}

fn failed(reason: String) -> Answer {
    Answer::Failed { reason }
}
