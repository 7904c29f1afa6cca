//! A volume being served, as files, as objects or both: it answers its control socket, and ends by a signal, a request, or
//! umount(8).

use crate::backup;
use crate::command::version::VERSION;
use crate::control::protocol::{
    Answer, Conflict, Keep, Lister, Located, Pending, Piece, Quota, QuotaChange, Request, Status, Webhook,
    from_hex,
};
use crate::control::server::{Replies, Service, Serving};
use crate::control::socket;
use crate::environment;
use crate::logging::LogFile;
use crate::metadata;
use crate::opened::Opened;
use crate::places::Places;
use crate::rebuilding;
use crate::registry::Registration;
use crate::room::RoomOf;
use crate::scrubbing;
use crate::state::State;
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
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// How often whoever waits for an unmount hears how it goes.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Time between two looks at renames that are not finished.
const RENAMES_LOOK: Duration = Duration::from_millis(100);
/// How long a stopped mount waits for what programs wrote while it was being unmounted.
const LAST_CLOSES_WITHIN: Duration = Duration::from_secs(5);
/// How long a stopped endpoint waits for the requests that are being answered.
pub(crate) const LAST_REQUESTS_WITHIN: Duration = Duration::from_secs(10);
/// How long the end waits for the last answers on the control socket.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long the end waits for threads: one may be in a call of the system that hangs.
const LAST_CALLS_WITHIN: Duration = Duration::from_secs(5);

/// Ends what still runs, so that nothing has the names open when the process exits: RocksDB aborts if a thread uses it
/// while its global state is taken down.
pub(crate) fn end(runtime: Runtime) {
    runtime.shutdown_timeout(LAST_CALLS_WITHIN);
}

/// A volume that answers.
pub(crate) struct Served {
    mount: Arc<Running>,
    control: Serving,
    signals: Signals,
    state: PathBuf,
    _registration: Option<Registration>,
}

/// What requests are answered from.
struct Running {
    /// `tenon umount` has waited for the write-back log as long as it would.
    gave_up: AtomicBool,
    /// The volume cannot be reached any more, or soon; what is pending is stored.
    ending: AtomicBool,
    state: PathBuf,
    log: Option<PathBuf>,
    room: Option<RoomOf>,
    opened: Opened,
    places: Places,
    endpoint: Option<Server>,
    since: Instant,
}

impl Served {
    /// Opens the control socket and checks that the mount answers.
    pub(crate) async fn start(
        opened: Opened,
        sessions: Vec<Session>,
        endpoint: Option<Server>,
        state: &State,
        log: Option<&LogFile>,
    ) -> Result<Self> {
        // Before anybody is told that the mount is ready: a signal unwatched kills.
        let signals = Signals::watch()?;
        let listener = socket::bind(state.root()).context("cannot open the control socket")?;
        let mount = Arc::new(Running {
            gave_up: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            state: state.root().to_owned(),
            log: log.map(|log| log.path().to_owned()),
            room: RoomOf::volume(&opened.volume, &opened.bucket),
            places: Places::new(sessions),
            opened,
            endpoint,
            since: Instant::now(),
        });
        let control =
            Serving::start(listener, Arc::clone(&mount)).context("cannot open the control socket")?;
        let registration = environment::registry().register(state.root());
        let registration = registration
            .inspect_err(|error| tracing::warn!("`tenon status` will not list this mount: {error:#}"))
            .ok();
        // The promise behind "ready".
        mount.places.answer().await.context("the mount does not answer")?;
        tracing::info!("{} is {}", mount.opened.volume.url(), mount.is_at());
        Ok(Self { mount, control, signals, state: state.root().to_owned(), _registration: registration })
    }

    /// Serves until the mount is gone. SIGTERM and SIGINT store what is pending within `patience` and unmount; a
    /// second one ends at once. SIGHUP opens the log anew.
    pub(crate) async fn until_the_end(mut self, patience: Duration, log: Option<LogFile>) -> Result<()> {
        let Signals { stop, hangup } = &mut self.signals;
        let patience = loop {
            tokio::select! {
                () = self.mount.places.ended(), if self.mount.places.are_any() => break patience,
                () = stop.asked() => {
                    self.mount.stop(patience, stop).await?;
                    break patience.min(LAST_CLOSES_WITHIN);
                }
                _ = hangup.recv() => reopen(log.as_ref()),
            }
        };
        // A mount that comes now is told to wait, and `tenon status` says why the process is still there.
        self.mount.ending.store(true, Ordering::Relaxed);
        if let Some(endpoint) = &self.mount.endpoint {
            endpoint.stop(patience.min(LAST_REQUESTS_WITHIN)).await;
        }
        let (outcome, _) = tokio::join!(
            self.mount.opened.fs.shutdown(patience),
            // The threads that serve the kernel have the names open, too.
            tokio::time::timeout(patience, self.mount.places.ended()),
        );
        self.mount.opened.stop_hearing().await;
        self.mount.drain_quietly(patience).await;
        if let Err(error) = self.mount.opened.metadata.checkpoint() {
            tracing::warn!("names stay in the write-back log until the next mount: {error:#}");
        }
        if let Some(local) = &self.mount.opened.bucket.local
            && let Err(error) = local.close().await
        {
            tracing::warn!("the next opening reads the drive's log: {error:#}");
        }
        self.control.stop(ANSWERS_WITHIN).await;
        socket::remove(&self.state);
        tracing::info!("unmounted");
        outcome.map_err(|error| anyhow!("not everything was stored: {error}"))
    }
}

impl Running {
    /// Where the volume is reached.
    fn is_at(&self) -> String {
        let mounted = self.places.shown().into_iter().map(|path| format!("mounted at {path}"));
        let served = self.url().map(|url| format!("served at {url}"));
        mounted.chain(served).collect::<Vec<_>>().join(" and ")
    }

    fn url(&self) -> Option<String> {
        self.endpoint.as_ref().map(Server::url)
    }

    /// Ends because of a signal: what programs still hold open is detached.
    async fn stop(&self, patience: Duration, stop: &mut Stop) -> Result<()> {
        tracing::info!("stopping: {}", self.pending());
        self.ending.store(true, Ordering::Relaxed);
        tokio::select! {
            outcome = self.opened.fs.shutdown(patience) => {
                if let Err(error) = outcome {
                    tracing::error!("not everything was stored: {error}");
                }
            }
            () = stop.asked() => return Err(anyhow!("stopped by a second signal; {} was lost", self.pending())),
        }
        for path in self.places.mounted() {
            if matches!(self.places.unmount(&path, false).await, Err(UnmountError::Busy(_))) {
                tracing::warn!("programs have files open; the mount at {} is detached", path.display());
                if let Err(error) = self.places.unmount(&path, true).await {
                    tracing::warn!("{error}");
                }
            }
        }
        Ok(())
    }

    /// Takes one directory away, or all. With the last the process ends.
    async fn unmount(
        &self,
        mount_point_hex: Option<&str>,
        lazily: bool,
        patience: Duration,
        replies: &mut Replies,
    ) -> Answer {
        let mounted = self.places.mounted();
        let Some(digits) = mount_point_hex else {
            return self.leave(&mounted, lazily, patience, replies).await;
        };
        let Some(bytes) = from_hex(digits) else { return failed("the path is not hexadecimal".to_owned()) };
        let path = PathBuf::from(OsString::from_vec(bytes));
        if mounted.iter().all(|other| *other == path) {
            return self.leave(&[path], lazily, patience, replies).await;
        }
        match self.places.unmount(&path, lazily).await {
            Ok(()) => {
                tracing::info!("unmounted {}; the volume stays {}", path.display(), self.is_at());
                Answer::Unmounted { goes_on: true, backlog_changes: 0 }
            }
            Err(UnmountError::Busy(_)) => Answer::Busy,
            Err(error) => failed(error.to_string()),
        }
    }

    /// Stores what is pending, telling of it, then unmounts. If it cannot be stored, the mount stays.
    async fn leave(
        &self,
        from: &[PathBuf],
        lazily: bool,
        patience: Duration,
        replies: &mut Replies,
    ) -> Answer {
        let mut storing = std::pin::pin!(self.opened.fs.shutdown(patience));
        let stored = loop {
            tokio::select! {
                outcome = &mut storing => break outcome,
                () = tokio::time::sleep(PROGRESS_EVERY) => replies.send(&Answer::Progress(self.pending())).await,
            }
        };
        if let Err(error) = stored {
            return failed(format!("cannot store everything: {error}; the mount stays"));
        }
        self.drain(patience, replies).await;
        for path in from {
            match self.places.unmount(path, lazily).await {
                Ok(()) | Err(UnmountError::NotMounted(_)) => {}
                Err(UnmountError::Busy(_)) => return Answer::Busy,
                Err(error) => return failed(error.to_string()),
            }
        }
        self.ending.store(true, Ordering::Relaxed);
        Answer::Unmounted { goes_on: false, backlog_changes: self.pending().backlog_changes }
    }

    /// The same for who has nobody to tell, after the last closes.
    async fn drain_quietly(&self, patience: Duration) {
        let Some(log) = &self.opened.bucket.writeback else { return };
        if !self.gave_up.load(Ordering::Relaxed) {
            tokio::time::timeout(patience, log.drained()).await.ok();
        }
        let changes = log.backlog().changes;
        if changes > 0 {
            tracing::warn!("{changes} changes stay in the write-back log; they go up at the next mount");
        }
    }

    /// Lets the write-back log go up, for at most so long: what is left is safe in it.
    async fn drain(&self, patience: Duration, replies: &mut Replies) {
        let Some(log) = &self.opened.bucket.writeback else { return };
        let mut drained = std::pin::pin!(tokio::time::timeout(patience, log.drained()));
        loop {
            tokio::select! {
                outcome = &mut drained => {
                    self.gave_up.store(outcome.is_err(), Ordering::Relaxed);
                    return;
                }
                () = tokio::time::sleep(PROGRESS_EVERY) => replies.send(&Answer::Progress(self.pending())).await,
            }
        }
    }

    async fn locate(&self, path_hex: &str) -> Answer {
        let Some(path) = from_hex(path_hex) else { return failed("the path is not hexadecimal".to_owned()) };
        match self.opened.fs.locate(&path).await {
            Ok(found) => Answer::Located(Located {
                url: found.key.as_ref().map(|key| self.opened.volume.object_url(key)),
                key: found.key.map(|key| key.to_string()),
                etag: found.etag,
                size_bytes: found.size_bytes,
                ino: found.ino.0,
                content: found.content.into_iter().map(piece).collect(),
            }),
            Err(error) => failed(format!("{}: {error}", String::from_utf8_lossy(&path))),
        }
    }

    fn path_of(&self, key_hex: &str) -> Answer {
        let key = from_hex(key_hex).and_then(|key| store::ObjectKey::new(key).ok());
        let Some(key) = key else { return failed("the key is not one".to_owned()) };
        let path = self.opened.fs.path_of(&key);
        Answer::PathOf { path: path.map(|path| String::from_utf8_lossy(&path).into_owned()) }
    }

    async fn quota(&self, path_hex: &str, change: Option<QuotaChange>) -> Answer {
        let Some(path) = from_hex(path_hex) else { return failed("the path is not hexadecimal".to_owned()) };
        let outcome = async {
            match change {
                None => {}
                Some(QuotaChange::Remove) => self.opened.fs.set_quota(&path, None).await?,
                Some(QuotaChange::Set { bytes, files }) => {
                    self.opened.fs.set_quota(&path, Some(vfs::Limits { bytes, files })).await?;
                }
            }
            self.opened.fs.quota(&path).await
        };
        match outcome.await {
            Ok(quota) => Answer::Quota { quota: quota.as_ref().map(quota_of) },
            Err(error) => failed(format!("{}: {error}", String::from_utf8_lossy(&path))),
        }
    }

    async fn collect_garbage(&self, dry_run: bool) -> Answer {
        match self.opened.fs.collect_garbage(dry_run).await {
            Ok(keys) => Answer::Collected { keys: keys.iter().map(ToString::to_string).collect() },
            Err(error) => failed(error.to_string()),
        }
    }

    async fn import(&self) -> Answer {
        match self.opened.fs.import_foreign().await {
            Ok(paths) => Answer::Imported {
                paths: paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
            },
            Err(error) => failed(error.to_string()),
        }
    }

    /// Writes the names to a file, then waits for the bucket to have what they name; without that the file goes again.
    async fn back_up(&self, file_hex: &str, patience: Duration, replies: &mut Replies) -> Answer {
        let Some(file) = from_hex(file_hex) else { return failed("the path is not hexadecimal".to_owned()) };
        let file = PathBuf::from(OsString::from_vec(file));
        let (engine, path) = (Arc::clone(&self.opened.metadata.engine), file.clone());
        let about = metadata::about(&self.opened.volume, &self.state);
        let work = move || backup::write(&engine, &about?, &path);
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
                tokio::time::sleep(RENAMES_LOOK).await;
            }
        };
        let mut stored = std::pin::pin!(tokio::time::timeout(patience, stored));
        let is_stored = loop {
            tokio::select! {
                outcome = &mut stored => break outcome.is_ok(),
                () = tokio::time::sleep(PROGRESS_EVERY) => replies.send(&Answer::Progress(self.pending())).await,
            }
        };
        if !is_stored {
            let _ = std::fs::remove_file(&file);
            return failed(format!(
                "the bucket did not get what the names refer to in time ({}); there is no backup",
                self.pending()
            ));
        }
        Answer::BackedUp { records }
    }

    async fn resolve(&self, id: &str, keep: Keep) -> Answer {
        match self.opened.fs.resolve_conflict(id, keep.into()).await {
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
        let mut mount_points = self.places.shown().into_iter();
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
            room_bytes: self
                .room
                .as_ref()
                .and_then(RoomOf::now)
                .map(|room| (room.total_bytes, room.available_bytes)),
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
            conflict_policy: self.opened.fs.conflict_policy().to_string(),
            conflicts: status.conflicts as u64,
            lister: Lister::of(&status.lister),
            store_requests: self.opened.bucket.requests(),
            fuse_requests: self.places.requests(),
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

impl Running {
    /// The drives below the volume.
    fn drives(&self) -> Vec<drive::Drive> {
        let local = self.opened.bucket.local.iter();
        local.flat_map(|local| local.drives()).cloned().collect()
    }
}

impl Service for Running {
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
            Request::Backup { file_hex, patience_secs } => {
                self.back_up(&file_hex, Duration::from_secs(patience_secs), replies).await
            }
            Request::Import => self.import().await,
            Request::Rebuild(wanted) => rebuilding::answer(self.drives(), wanted, replies).await,
            Request::Scrub { bytes_per_sec } => {
                scrubbing::answer(self.drives(), bytes_per_sec, replies).await
            }
            Request::Check => self.check(),
            Request::Conflicts => Answer::Conflicts {
                conflicts: self.opened.fs.conflicts().iter().map(Conflict::from).collect(),
            },
            Request::ResolveConflict { id, keep } => self.resolve(&id, keep).await,
        }
    }
}

/// What the outside may ask by signals.
struct Signals {
    stop: Stop,
    hangup: Signal,
}

impl Signals {
    fn watch() -> Result<Self> {
        Ok(Self { stop: Stop::new()?, hangup: signal(SignalKind::hangup()).context("cannot watch signals")? })
    }
}

/// The signals that end the process.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Watched from now on: unwatched, they kill.
    pub(crate) fn new() -> Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch signals");
        Ok(Self { terminate: watch(SignalKind::terminate())?, interrupt: watch(SignalKind::interrupt())? })
    }

    /// Waits for one.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn quota_of(quota: &vfs::Quota) -> Quota {
    let used = |used: i64| u64::try_from(used).unwrap_or(0);
    Quota {
        bytes: quota.limits.bytes,
        bytes_used: used(quota.used.bytes),
        files: quota.limits.files,
        files_used: used(quota.used.files),
    }
}

fn piece((key, extent): (store::ObjectKey, meta::Extent)) -> Piece {
    Piece {
        offset: extent.offset,
        len: extent.len,
        key: key.to_string(),
        etag: extent.object.etag.to_string(),
        object_offset: extent.object_offset,
    }
}

fn reopen(log: Option<&LogFile>) {
    if let Some(Err(error)) = log.map(LogFile::reopen) {
        tracing::warn!("the log goes on in the old file: {error}");
    }
}

fn failed(reason: String) -> Answer {
    Answer::Failed { reason }
}
