//! The control socket, console and metrics of a process that serves buckets without a namespace. Requests are about the process and its
//! drives; there are no files to ask about.

use crate::bucket::disk_space;
use crate::bucket::local_buckets::LocalBuckets;
use crate::control::protocol::{Answer, Request, Status};
use crate::control::server::{ControlServer, Replies, Service};
use crate::control::socket;
use crate::endpoint::meter::EndpointMeter;
use crate::endpoint::webhooks;
use crate::process::{VERSION, service_manager};
use crate::serving::console::{ConsoleParts, ServedUrls, drive_facts, report};
use crate::serving::drive_requests;
use crate::serving::metrics::{self, Figures, MetricsServer, MetricsSettings, MetricsSource};
use crate::serving::observation;
use crate::serving::trace_export::TraceExport;
use crate::state::registry::{Registration, Registry};
use ::console::Console;
use ::metrics::Collection;
use anyhow::{Context, Result};
use s3::{Endpoint, Server};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time that the control socket gets, when the process ends, to answer the last requests.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason for the console why there are no conflicts and batches.
const NO_FILES: &str = "This process serves buckets, and has no files.";

/// The control socket, console and metrics of a process that serves buckets.
pub(crate) struct ServedBuckets {
    service: Arc<BucketService>,
    control: ControlServer,
    console: Option<Console>,
    _registration: Option<Registration>,
    _metrics: Option<MetricsServer>,
}

/// The state from which requests are answered.
struct BucketService {
    local: Arc<LocalBuckets>,
    volume: String,
    /// URL of the endpoint.
    url: String,
    endpoint: Endpoint,
    read_only: bool,
    state: PathBuf,
    log: Option<PathBuf>,
    since: Instant,
    ending: AtomicBool,
    endpoint_meter: Option<Arc<EndpointMeter>>,
    traces: Option<Arc<TraceExport>>,
    urls: ServedUrls,
}

impl ServedBuckets {
    /// Starts to answer requests, and registers the process so that commands find it.
    pub(crate) async fn start(
        local: Arc<LocalBuckets>,
        (volume, server, read_only): (String, &Server, bool),
        state: &Path,
        log: Option<&Path>,
        (metrics, traces, console): (MetricsSettings, Option<Arc<TraceExport>>, Option<ConsoleParts>),
    ) -> Result<Self> {
        let listener = socket::bind(state).context("cannot open the control socket")?;
        let service = Arc::new(BucketService {
            local,
            volume,
            url: server.url(),
            endpoint: server.endpoint().clone(),
            read_only,
            state: state.to_owned(),
            log: log.map(Path::to_owned),
            since: Instant::now(),
            ending: AtomicBool::new(false),
            endpoint_meter: metrics.endpoint,
            traces,
            urls: ServedUrls::default(),
        });
        let served_metrics = match metrics.address {
            Some(address) => Some(MetricsServer::serve(&service, address).await?),
            None => None,
        };
        let console = match console {
            Some(parts) => Some(parts.start(&service, &service.urls, Some(service.url.clone())).await?),
            None => None,
        };
        let control =
            ControlServer::start(listener, Arc::clone(&service)).context("cannot open the control socket")?;
        let registration = Registry::of_user().register_or_warn(state);
        service_manager::notify_ready(&format!("{} is served at {}", service.volume, service.url));
        Ok(Self { service, control, console, _registration: registration, _metrics: served_metrics })
    }

    /// Marks the process as ending in its status.
    pub(crate) fn mark_ending(&self) {
        self.service.ending.store(true, Ordering::Relaxed);
        service_manager::notify_stopping();
    }

    /// Stops the console. Its requests in progress get `patience` to end.
    pub(crate) async fn stop_console(&self, patience: Duration) {
        if let Some(console) = &self.console {
            console.stop(patience).await;
        }
    }

    /// Stops answering requests, and removes the socket and the registration.
    pub(crate) async fn stop(self) {
        self.control.stop(ANSWERS_TIMEOUT).await;
        socket::remove(&self.service.state);
    }
}

impl BucketService {
    fn status(&self) -> Status {
        let space = self.local.has_drives().then(|| disk_space::of_drives(&self.local));
        Status {
            pid: std::process::id(),
            volume: self.volume.clone(),
            endpoint: Some(self.url.clone()),
            version: VERSION.to_owned(),
            uptime_secs: self.since.elapsed().as_secs(),
            read_only: self.read_only,
            ending: self.ending.load(Ordering::Relaxed),
            metrics: self.urls.metrics.get().cloned(),
            console: self.urls.console.get().cloned(),
            state_dir: self.state.display().to_string(),
            log_file: self.log.as_ref().map(|path| path.display().to_string()),
            room_bytes: space.map(|space| (space.total_bytes, space.available_bytes)),
            is_buckets: true,
            webhooks: webhooks::reports(&self.endpoint),
            events_lost: self.endpoint.events_lost(),
            ..Status::default()
        }
    }
}

impl MetricsSource for BucketService {
    fn metrics(&self) -> Collection {
        metrics::collect(&Figures {
            status: &self.status(),
            fs: None,
            meters: Vec::new(),
            bucket: None,
            endpoint: self.endpoint_meter.as_deref(),
            traces: self.traces.as_ref().map(|traces| traces.figures()),
            drives: self.local.drives().cloned().collect(),
        })
    }

    fn metrics_url(&self) -> &OnceLock<String> {
        &self.urls.metrics
    }
}

impl Service for BucketService {
    async fn answer(&self, request: Request, replies: &mut Replies) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Metrics { .. } => Answer::Metrics { samples: self.metrics().samples() },
            Request::Activity { interval_ms } => {
                let describe = || (self.status(), self.metrics());
                observation::report_activity(interval_ms, None, describe, replies).await
            }
            Request::Rebuild(wanted) => {
                drive_requests::serve_rebuild(self.local.drives().cloned().collect(), wanted, replies).await
            }
            Request::Scrub { bytes_per_sec } => {
                drive_requests::serve_scrub(self.local.drives().cloned().collect(), bytes_per_sec, replies)
                    .await
            }
            _ => Answer::Failed {
                reason: format!(
                    "process {} serves the buckets of {} at {}, and has no files: access it by S3",
                    std::process::id(),
                    self.volume,
                    self.url
                ),
            },
        }
    }
}

#[async_trait::async_trait]
impl console::Process for BucketService {
    fn name(&self) -> String {
        self.volume.clone()
    }

    fn abilities(&self) -> console::Abilities {
        console::Abilities { drives: self.local.has_drives(), ..console::Abilities::default() }
    }

    fn report(&self) -> Vec<console::Section> {
        report::sections(&self.status())
    }

    fn samples(&self) -> BTreeMap<String, f64> {
        self.metrics().samples()
    }

    async fn conflicts(&self) -> Vec<console::Conflict> {
        Vec::new()
    }

    async fn resolve_conflict(&self, _id: &str, _keep: console::Keep) -> Result<(), String> {
        Err(NO_FILES.to_owned())
    }

    async fn batches(&self) -> Result<Vec<console::Batch>, String> {
        Err(NO_FILES.to_owned())
    }

    async fn refused_changes(&self, _batch: &str, _from: u64) -> Result<Vec<console::RefusedChange>, String> {
        Err(NO_FILES.to_owned())
    }

    async fn discard_batch(&self, _id: &str) -> Result<(), String> {
        Err(NO_FILES.to_owned())
    }

    fn views(&self) -> Vec<console::View> {
        Vec::new()
    }

    fn rulesets(&self) -> String {
        String::new()
    }

    fn drives(&self) -> Vec<console::Drive> {
        self.local.drives().map(drive_facts::of_drive).collect()
    }

    async fn scrub(&self, objects: Arc<AtomicU64>) -> Result<Vec<console::ScrubOutcome>, String> {
        drive_facts::scrub(self.local.drives().cloned().collect(), &objects).await
    }

    fn log_file(&self) -> Option<PathBuf> {
        self.log.clone()
    }
}
