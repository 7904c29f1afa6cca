//! The control socket of a process that serves buckets without a namespace. It answers requests about the process and
//! its drives; there are no files to ask about.

use crate::bucket::disk_space;
use crate::bucket::local_buckets::LocalBuckets;
use crate::control::protocol::{Answer, Request, Status};
use crate::control::server::{ControlServer, Replies, Service};
use crate::control::socket;
use crate::process::VERSION;
use crate::serving::drive_requests;
use crate::state::registry::{Registration, Registry};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long the end waits for the last answers.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// The control socket of a process that serves buckets.
pub(crate) struct ServedBuckets {
    service: Arc<BucketService>,
    control: ControlServer,
    _registration: Option<Registration>,
}

/// The state from which requests are answered.
struct BucketService {
    local: Arc<LocalBuckets>,
    volume: String,
    url: String,
    read_only: bool,
    state: PathBuf,
    log: Option<PathBuf>,
    since: Instant,
    ending: AtomicBool,
}

impl ServedBuckets {
    /// Starts to answer requests, and registers the process for `tenon status`.
    pub(crate) fn start(
        local: Arc<LocalBuckets>,
        (volume, url, read_only): (String, String, bool),
        state: &Path,
        log: Option<&Path>,
    ) -> Result<Self> {
        let listener = socket::bind(state).context("cannot open the control socket")?;
        let service = Arc::new(BucketService {
            local,
            volume,
            url,
            read_only,
            state: state.to_owned(),
            log: log.map(Path::to_owned),
            since: Instant::now(),
            ending: AtomicBool::new(false),
        });
        let control =
            ControlServer::start(listener, Arc::clone(&service)).context("cannot open the control socket")?;
        let registration = Registry::of_user().register(state);
        let registration = registration
            .inspect_err(|error| tracing::warn!("`tenon status` will not list this process: {error:#}"))
            .ok();
        Ok(Self { service, control, _registration: registration })
    }

    /// Marks the process as ending in its status.
    pub(crate) fn mark_ending(&self) {
        self.service.ending.store(true, Ordering::Relaxed);
    }

    /// Stops answering requests.
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
            state_dir: self.state.display().to_string(),
            log_file: self.log.as_ref().map(|path| path.display().to_string()),
            room_bytes: space.map(|space| (space.total_bytes, space.available_bytes)),
            is_buckets: true,
            ..Status::default()
        }
    }
}

impl Service for BucketService {
    async fn answer(&self, request: Request, replies: &mut Replies) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
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
