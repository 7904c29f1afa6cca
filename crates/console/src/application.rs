//! The state that all requests of the console share.

use crate::options::ConsoleOptions;
use crate::plots::history::History;
use crate::process::Process;
use crate::scrub_job::ScrubJob;
use crate::session::{Sessions, SignedIn};
use crate::sign_in_limit::SignInLimit;
use s3::Endpoint;
use std::sync::Arc;
use store::{Clock, Entropy};

/// The state of a console, which its requests share.
pub(crate) struct Application {
    /// The S3 endpoint, which checks users and gives access to buckets and objects.
    pub(crate) endpoint: Endpoint,
    /// The process whose state the pages show.
    pub(crate) process: Arc<dyn Process>,
    pub(crate) options: ConsoleOptions,
    /// Whether browsers reach the console over TLS.
    pub(crate) is_tls: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sessions: Sessions,
    pub(crate) sign_in_limit: SignInLimit,
    /// Figures of the last hour, for the plots.
    pub(crate) history: History,
    /// The scrub of the drives that was started from a page.
    pub(crate) scrub: Arc<ScrubJob>,
}

impl Application {
    pub(crate) fn new(
        endpoint: Endpoint,
        process: Arc<dyn Process>,
        options: ConsoleOptions,
        is_tls: bool,
        (clock, entropy): (Arc<dyn Clock>, Arc<Entropy>),
    ) -> Self {
        Self {
            endpoint,
            process,
            history: History::new(options.sample_interval),
            options,
            is_tls,
            sessions: Sessions::new(clock.clone(), entropy),
            clock,
            sign_in_limit: SignInLimit::default(),
            scrub: Arc::default(),
        }
    }

    /// Records the figures of the plots at the interval of the options. Never returns.
    pub(crate) async fn run_sampler(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(self.options.sample_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.history.record(self.clock.monotonic(), &self.process.samples());
        }
    }

    /// Returns the session with an id, and counts this as its use; `None` if there is none or it has ended.
    pub(crate) fn session(&self, id: &str) -> Option<SignedIn> {
        self.sessions.find(id, &self.endpoint)
    }
}
