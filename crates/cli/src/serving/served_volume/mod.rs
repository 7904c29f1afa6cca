//! A volume that is served as files, as objects or both. The process answers its control socket. It ends by a
//! signal, a request or umount(8), or when another machine has taken the volume over.

mod batch_tasks;
mod console_process;
mod progress_files;
mod status;

use crate::bucket::disk_space::SpaceSource;
use crate::control::batch_protocol::BatchRequest;
use crate::control::protocol::{Answer, Conflict, Keep, Located, QuotaChange, Request, RewrittenPacks};
use crate::control::server::{ControlServer, Replies, Service};
use crate::control::socket;
use crate::endpoint::meter::EndpointMeter;
use crate::endpoint::volume_endpoint::VolumeEndpoint;
use crate::metadata;
use crate::metadata::dump_file;
use crate::process::context::ProcessContext;
use crate::process::logging::LogFile;
use crate::process::service_manager;
use crate::process::signals::StopSignals;
use crate::serving::activity::ActivityRecorder;
use crate::serving::batches::Batches;
use crate::serving::console::{ConsoleParts, ServedUrls};
use crate::serving::drive_requests;
use crate::serving::metrics::{self, Figures, MetricsServer, MetricsSettings, MetricsSource};
use crate::serving::mount_points::MountPoints;
use crate::serving::observation;
use crate::serving::observed_mounts::ObservedMount;
use crate::serving::open_volume::OpenVolume;
use crate::serving::protocol_values::{extent_to_protocol, quota_to_protocol};
use crate::serving::trace_export::{TraceExport, TraceExportSettings, TracedVolume};
use crate::serving::warm_up;
use crate::state::StateDir;
use crate::state::registry::{Registration, Registry};
use ::console::Console;
use ::metrics::{Collection, SwitchedOn};
use anyhow::{Context, Result, anyhow};
use fuse::{Session, UnmountError};
use s3::Server;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use vfs::Ino;

pub(crate) use progress_files::ProgressFiles;

/// Interval of progress messages to a client that waits.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of checks for unfinished renames.
const RENAMES_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a stopped mount waits to store what programs wrote while it was being unmounted.
const FINAL_STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stopped endpoint waits for requests in progress.
pub(crate) const REQUESTS_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that the control socket gets, at the end of the process, to answer the last requests.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// A volume that is being served.
pub(crate) struct ServedVolume {
    service: Arc<VolumeService>,
    control: ControlServer,
    signals: Signals,
    state: PathBuf,
    console: Option<Console>,
    _registration: Option<Registration>,
    _metrics: Option<ServedMetrics>,
}

/// The server of metrics, for which times are measured.
struct ServedMetrics {
    _server: MetricsServer,
    _timing: Vec<SwitchedOn>,
}

/// The state from which requests are answered.
struct VolumeService {
    /// Whether `tenon umount` has stopped waiting for the write-back log.
    gave_up: AtomicBool,
    /// Whether the process is ending: the volume can no longer be reached, or soon, and pending changes are stored.
    ending: AtomicBool,
    /// The state directory.
    state: PathBuf,
    /// The log file; `None` if the log is standard error.
    log: Option<PathBuf>,
    space: Option<SpaceSource>,
    opened: OpenVolume,
    batches: Batches,
    mount_points: MountPoints,
    endpoint: VolumeEndpoint,
    observed: Observed,
    urls: ServedUrls,
    /// When the process began to serve the volume.
    since: Instant,
}

/// The sources of figures that only some flags ask for.
#[derive(Default)]
struct Observed {
    endpoint: Option<Arc<EndpointMeter>>,
    traces: OnceLock<TraceExport>,
}

impl ServedVolume {
    /// Opens the control socket, registers the process so that commands find it, starts metrics and console, checks that the mount answers,
    /// and mounts the open batches.
    pub(crate) async fn start(
        opened: OpenVolume,
        sessions: Vec<Session>,
        endpoint: Option<Server>,
        state: &StateDir,
        batches: Batches,
        log: Option<&LogFile>,
        (metrics, console): (MetricsSettings, Option<ConsoleParts>),
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
            batches,
            endpoint: VolumeEndpoint::new(endpoint, console.as_ref().map(|parts| &parts.endpoint)),
            observed: Observed { endpoint: metrics.endpoint, ..Observed::default() },
            urls: ServedUrls::default(),
            since: Instant::now(),
        });
        let served_metrics = match metrics.address {
            Some(address) => Some(ServedMetrics {
                _server: MetricsServer::serve(&service, address).await?,
                _timing: service.mount_points.measure_times(),
            }),
            None => None,
        };
        let console = match console {
            Some(parts) => Some(parts.start(&service, &service.urls, service.url()).await?),
            None => None,
        };
        let control =
            ControlServer::start(listener, Arc::clone(&service)).context("cannot open the control socket")?;
        let registration = Registry::of_user().register_or_warn(state.root());
        // "Ready" means that the mount answers.
        service.mount_points.wait_until_ready().await.context("a mounted directory cannot be read")?;
        if let Some(mount_point) = service.mount_points.mounted().first() {
            service.batches.resume(&service.opened, mount_point).await?;
        }
        batch_tasks::expire_batches(&service);
        batch_tasks::merge_submitted_batches(&service);
        let description = format!("{} is {}", service.opened.volume.url(), service.locations());
        tracing::info!("{description}");
        service_manager::notify_ready(&description);
        Ok(Self {
            service,
            control,
            signals,
            state: state.root().to_owned(),
            console,
            _registration: registration,
            _metrics: served_metrics,
        })
    }

    /// Begins to export traces of the requests of the kernel and of S3 clients.
    pub(crate) fn export_traces(
        &self,
        settings: TraceExportSettings,
        context: &ProcessContext,
    ) -> Result<()> {
        let service = &self.service;
        let volume = TracedVolume {
            volume: service.opened.volume.url(),
            mount_points: service.mount_points.mounted_text(),
            endpoint: service.url(),
        };
        let mut traces = TraceExport::start(settings, &volume, context)?;
        traces.observe_mounts(&service.opened.fs, service.mount_points.meters());
        if let Some(endpoint) = service.endpoint.endpoint() {
            traces.observe_endpoint(endpoint);
        }
        traces.observe_store(&service.opened.bucket);
        traces.observe_batches(&service.batches);
        service.observed.traces.get_or_init(|| traces);
        Ok(())
    }

    /// Shows the progress of the batches in files of the mount.
    pub(crate) fn show_progress(&self, files: &ProgressFiles) {
        files.attach(&self.service);
    }

    /// Puts a directory into batch mode, unless it is in batch mode already. `path` is from the mount's root.
    pub(crate) async fn begin_batch(&self, path: &Path) -> Result<()> {
        let service = &self.service;
        let mounted = service.mount_points.mounted();
        let mount_point = mounted.first().context("the volume is not mounted")?;
        let inside = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
        service.batches.begin_unless_mounted(&service.opened, inside, mount_point).await
    }

    /// Serves until the volume is unmounted. SIGTERM and SIGINT store pending changes within `patience` and unmount;
    /// a second signal during the storing ends the process at once. SIGHUP reopens the log. If another machine takes over the volume,
    /// it is unmounted like after a signal, and an error is returned.
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
        service_manager::notify_stopping();
        self.service.suspend_batches(patience).await;
        let patience_for_requests = patience.min(REQUESTS_TIMEOUT);
        if let Some(console) = &self.console {
            console.stop(patience_for_requests).await;
        }
        self.service.endpoint.stop(patience_for_requests).await;
        let (outcome, _) = tokio::join!(
            self.service.opened.fs.shutdown(patience),
            // The threads that serve the kernel also have the metadata engine open.
            tokio::time::timeout(patience, self.service.mount_points.wait_until_ended()),
        );
        self.service.opened.stop_events().await;
        self.service.drain_quietly(patience).await;
        if let Some(traces) = self.service.observed.traces.get() {
            traces.close().await;
        }
        if outcome.is_err() {
            tracing::warn!(
                "the metadata is not backed up at this end, as not everything was stored: the next mount makes a backup"
            );
        } else if superseded.is_none() {
            self.service.finish_backup(patience).await;
        }
        self.service.opened.checkpoint_and_close_drives().await;
        self.control.stop(ANSWERS_TIMEOUT).await;
        socket::remove(&self.state);
        tracing::info!("unmounted");
        if let Some(message) = superseded {
            return Err(anyhow!(message));
        }
        outcome.map_err(|error| anyhow!("not everything was stored: {error}; the last writes of the files that the log names as not stored are lost, the next mount stores the rest"))
    }
}

impl VolumeService {
    /// Describes where the volume can be reached.
    fn locations(&self) -> String {
        let mounted = self.mount_points.mounted_text().into_iter().map(|path| format!("mounted at {path}"));
        let served = self.url().map(|url| format!("served at {url}"));
        mounted.chain(served).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the URL of the S3 endpoint, if it is served.
    fn url(&self) -> Option<String> {
        self.endpoint.url()
    }

    /// Stops the mount after a signal. Directories in which programs have files open are detached.
    async fn stop(&self, patience: Duration, stop: &mut StopSignals) -> Result<()> {
        tracing::info!("stopping: {}", self.pending());
        self.ending.store(true, Ordering::Relaxed);
        self.suspend_batches(patience).await;
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
        let Some(bytes) = store::unhex(digits) else {
            return failed("the path is not hexadecimal".to_owned());
        };
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
        match self.batches.suspend(patience, lazily).await {
            Ok(()) => {}
            Err(UnmountError::Busy(_)) => return Answer::Busy,
            Err(error) => return failed(error.to_string()),
        }
        for path in from {
            match self.mount_points.unmount(path, lazily).await {
                Ok(()) | Err(UnmountError::NotMounted(_)) => {}
                Err(UnmountError::Busy(_)) => {
                    self.resume_batches().await;
                    return Answer::Busy;
                }
                Err(error) => return failed(error.to_string()),
            }
        }
        self.ending.store(true, Ordering::Relaxed);
        Answer::Unmounted { goes_on: false, backlog_changes: self.pending().backlog_changes }
    }

    /// Unmounts the batches at the end of the mount.
    async fn suspend_batches(&self, patience: Duration) {
        if let Err(error) = self.batches.suspend(patience, true).await {
            tracing::warn!(
                "a batch stays mounted at the end of the mount; the next mount resumes it: {error}"
            );
        }
    }

    /// Mounts the batches again after the mount could not be ended.
    async fn resume_batches(&self) {
        let mounted = self.mount_points.mounted();
        let Some(mount_point) = mounted.first() else { return };
        if let Err(error) = self.batches.resume(&self.opened, mount_point).await {
            tracing::error!("the batches cannot be resumed now; the next mount resumes them: {error:#}");
        }
    }

    /// Answers a request about batches.
    async fn batch(&self, request: BatchRequest) -> Answer {
        match self.batches.answer(&self.opened, request).await {
            Ok(answer) => Answer::Batch(answer),
            Err(error) => failed(format!("{error:#}")),
        }
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
        let Some(backup) = &self.opened.backup else {
            // Objects that other machines might still read are deleted now, because no mount deletes them later.
            let admin = self.opened.fs.admin();
            if tokio::time::timeout(patience, admin.wait_for_deletions()).await.is_err() {
                tracing::warn!("some unused objects stay in the bucket; `tenon gc` removes them");
            }
            return;
        };
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

    /// Awaits `work`, and sends the pending changes to the client at intervals.
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
        let Some(path) = store::unhex(path_hex) else {
            return failed("the path is not hexadecimal".to_owned());
        };
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
        let key = store::unhex(key_hex).and_then(|key| store::ObjectKey::new(key).ok());
        let Some(key) = key else { return failed("the key is not valid".to_owned()) };
        let path = self.opened.fs.admin().path_of(&key);
        Answer::PathOf { path: path.map(|path| String::from_utf8_lossy(&path).into_owned()) }
    }

    async fn quota(&self, path_hex: &str, change: Option<QuotaChange>) -> Answer {
        let Some(path) = store::unhex(path_hex) else {
            return failed("the path is not hexadecimal".to_owned());
        };
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
        let admin = self.opened.fs.admin();
        let collected = async {
            let packs = RewrittenPacks::from(admin.rewrite_packs(dry_run).await?);
            let keys = admin.collect_garbage(dry_run).await?;
            let keys = keys.iter().map(ToString::to_string).collect();
            let is_batch_open = vfs::has_open_batches(admin.batches().names().engine().as_ref())?;
            Ok::<_, vfs::Error>(Answer::Collected { keys, packs, is_batch_open })
        };
        match collected.await {
            Ok(answer) => answer,
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

    /// Dumps the metadata to a file, then waits until the bucket has the content that it refers to. If the bucket does not get the content
    /// in time, removes the file.
    async fn dump(&self, file_hex: &str, patience: Duration, replies: &mut Replies) -> Answer {
        let Some(file) = store::unhex(file_hex) else {
            return failed("the path is not hexadecimal".to_owned());
        };
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
}

impl VolumeService {
    /// Returns the mounts whose requests a trace or a profile observes.
    async fn observed_mounts(&self) -> Vec<ObservedMount> {
        let meters = self.mount_points.meters().map(Arc::clone).collect();
        let mut mounts = vec![ObservedMount { fs: Arc::clone(&self.opened.fs), root: Ino::ROOT, meters }];
        mounts.extend(self.batches.observed().await);
        mounts
    }

    /// Returns the drives below the volume.
    fn drives(&self) -> Vec<drive::Drive> {
        let local = self.opened.bucket.local.iter();
        local.flat_map(|local| local.drives()).cloned().collect()
    }
}

impl MetricsSource for VolumeService {
    fn metrics(&self) -> Collection {
        let status = self.opened.fs.status();
        metrics::collect(&Figures {
            status: &self.status_of(&status),
            fs: Some(&status),
            meters: self.mount_points.meters().collect(),
            bucket: Some(&self.opened.bucket),
            endpoint: self.observed.endpoint.as_deref(),
            traces: self.observed.traces.get().map(TraceExport::figures),
            drives: self.drives(),
        })
    }

    fn metrics_url(&self) -> &OnceLock<String> {
        &self.urls.metrics
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
            Request::WarmUp { path_hex } => warm_up::serve(&self.opened.fs, &path_hex, replies).await,
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
            Request::Metrics { measure_secs } => {
                let samples = self.metrics().samples();
                observation::measure_times(&self.mount_points, measure_secs);
                Answer::Metrics { samples }
            }
            Request::Profile { secs } => observation::profile(&self.observed_mounts().await, secs).await,
            Request::Trace(filter) => {
                let mounts = self.observed_mounts().await;
                observation::trace(&mounts, &self.opened.bucket, &filter, replies).await
            }
            Request::Activity { interval_ms } => {
                let recorder = ActivityRecorder::start(&self.opened.fs, &self.mount_points);
                let describe = || (self.status(), self.metrics());
                observation::report_activity(interval_ms, Some(recorder), describe, replies).await
            }
            Request::Check => self.check(),
            Request::Batch(request) => self.batch(request).await,
            Request::Verification(request) => {
                match self.batches.answer_verifier(&self.opened, request).await {
                    Ok(answer) => Answer::Verification(answer),
                    Err(error) => failed(format!("{error:#}")),
                }
            }
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

fn reopen(log: Option<&LogFile>) {
    if let Some(Err(error)) = log.map(LogFile::reopen) {
        tracing::warn!("cannot reopen the log, which continues in the old file: {error}");
    }
}

fn failed(reason: String) -> Answer {
    Answer::Failed { reason }
}
