//! The control socket of a process that serves buckets without a namespace: it says how it does, and has no names to ask about.

use crate::command::version::VERSION;
use crate::control::protocol::{Answer, Request, Status};
use crate::control::server::{Replies, Service, Serving};
use crate::control::socket;
use crate::environment;
use crate::local::Local;
use crate::rebuilding;
use crate::registry::Registration;
use crate::room;
use crate::scrubbing;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long the end waits for the last answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// A control socket that answers.
pub(crate) struct ServedBuckets {
    service: Arc<Answering>,
    control: Serving,
    _registration: Option<Registration>,
}

/// The state that requests are answered from.
struct Answering {
    local: Arc<Local>,
    volume: String,
    url: String,
    read_only: bool,
    state: PathBuf,
    log: Option<PathBuf>,
    since: Instant,
    ending: AtomicBool,
}

impl ServedBuckets {
    /// Answers from now on, and is listed by `tenon status`.
    pub(crate) fn start(
        local: Arc<Local>,
        (volume, url, read_only): (String, String, bool),
        state: &Path,
        log: Option<&Path>,
    ) -> Result<Self> {
        let listener = socket::bind(state).context("cannot open the control socket")?;
        let service = Arc::new(Answering {
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
            Serving::start(listener, Arc::clone(&service)).context("cannot open the control socket")?;
        let registration = environment::registry().register(state);
        let registration = registration
            .inspect_err(|error| tracing::warn!("`tenon status` will not list this process: {error:#}"))
            .ok();
        Ok(Self { service, control, _registration: registration })
    }

    /// The process ends: says so to those who ask.
    pub(crate) fn ends(&self) {
        self.service.ending.store(true, Ordering::Relaxed);
    }

    /// Answers no more.
    pub(crate) async fn stop(self) {
        self.control.stop(ANSWERS_WITHIN).await;
        socket::remove(&self.service.state);
    }
}

impl Answering {
    fn status(&self) -> Status {
        let room = self.local.has_drives().then(|| room::of_drives(&self.local));
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
            room_bytes: room.map(|room| (room.total_bytes, room.available_bytes)),
            is_buckets: true,
            ..Status::default()
        }
    }
}

impl Service for Answering {
    async fn answer(&self, request: Request, replies: &mut Replies) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Rebuild(wanted) => {
                rebuilding::answer(self.local.drives().cloned().collect(), wanted, replies).await
            }
            Request::Scrub { bytes_per_sec } => {
                scrubbing::answer(self.local.drives().cloned().collect(), bytes_per_sec, replies).await
            }
            _ => Answer::Failed {
                reason: format!(
                    "process {} serves the buckets of {} at {}, and has no files: ask it by S3",
                    std::process::id(),
                    self.volume,
                    self.url
                ),
            },
        }
    }
}
