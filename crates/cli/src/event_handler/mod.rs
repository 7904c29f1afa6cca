//! The event handler of this process, with its feeds and its reports, and the clients of remote handlers.
//!
//! A mount with views has a handler of its own, unless it uses a remote one; `tenon events serve` runs one for many
//! clients.

pub(crate) mod feeds;
pub(crate) mod remote;

use crate::bucket::credentials::StoreSettings;
use crate::control::event_reports::{FeedReport, HandlerReport, ViewReport};
use crate::event_handler::feeds::{FeedParts, FeedSettings, Feeds};
use crate::process::VERSION;
use crate::process::context::ProcessContext;
use anyhow::{Context, Result};
use events::Sink;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Buckets, Entropy};
use views::part::Part;
use views::{Handler, HandlerConfig, HandlerParts, HandlerStats, HintSink, Unlisted, ViewStats};

/// An event handler and its feeds, which stop with it.
#[derive(Debug)]
pub(crate) struct EventHandler {
    /// The handler.
    pub(crate) handler: Arc<Handler>,
    feeds: Feeds,
    /// The sink of each feed, which counts the outcomes of its hints.
    sinks: Vec<Arc<HintSink>>,
}

/// Settings of an event handler.
#[derive(Debug, Clone)]
pub(crate) struct HandlerSettings {
    pub(crate) feeds: FeedSettings,
    /// The part of all objects that the handler handles.
    pub(crate) part: Part,
    /// Whether the sources report reads of objects.
    pub(crate) reports_reads: bool,
    /// Maximum memory for what is known of objects; `None` means no limit.
    pub(crate) memory_max_bytes: Option<usize>,
}

impl EventHandler {
    /// Starts a handler for the objects of some buckets, with its state in `dir`, fed by the sources that the
    /// settings name. The `further_sink` receives the hints of all objects, also those outside of the part that the
    /// handler handles.
    pub(crate) async fn start(
        buckets: Arc<dyn Buckets>,
        dir: PathBuf,
        settings: &HandlerSettings,
        bucket_access: &StoreSettings,
        further_sink: Option<Arc<dyn Sink>>,
        context: &ProcessContext,
    ) -> Result<Self> {
        let config = HandlerConfig {
            knows_accessed: settings.reports_reads,
            memory_max_bytes: settings.memory_max_bytes,
        };
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let part = settings.part;
        let handler = Handler::start(HandlerParts {
            buckets: part.of_buckets(buckets),
            clock: Arc::clone(&context.clock),
            entropy: Entropy::new(context.entropy.next_u64()),
            dir: Some(dir.clone()),
            config,
        });
        let handler = handler.await?;
        let handler_sinks: Vec<Arc<HintSink>> =
            settings.feeds.sources.iter().map(|_| Arc::new(HintSink::new(handler.clone()))).collect();
        let sinks = |source: usize| {
            let sink: Arc<dyn Sink> = handler_sinks[source].clone();
            [part.of_hints(sink)].into_iter().chain(further_sink.clone()).collect()
        };
        let feeds = Feeds::open(FeedParts {
            settings: &settings.feeds,
            bucket_access,
            wanted: Vec::new(),
            sinks: &sinks,
            dir: &dir,
            context,
        });
        let feeds = feeds.await?;
        Ok(Self { handler, feeds, sinks: handler_sinks })
    }

    /// Returns the handler's state.
    pub(crate) fn report(&self) -> HandlerReport {
        let HandlerStats {
            views, containers, unlisted, objects, memory_bytes, looks, hints, matching, ..
        } = self.handler.stats();
        let view = |view: ViewStats| ViewReport { rules: view.rules, objects: view.objects };
        HandlerReport {
            version: VERSION.to_owned(),
            views: views.into_iter().map(view).collect(),
            buckets: containers,
            objects,
            memory_bytes,
            unlisted: unlisted.iter().map(Unlisted::to_string).collect(),
            looks,
            hints: hints.into(),
            matching_ns: u64::try_from(matching.as_nanos()).unwrap_or(u64::MAX),
            feeds: self.feeds.reports().zip(&self.sinks).map(with_outcomes).collect(),
        }
    }

    /// Stops the feeds, and saves the state so that the next start is short.
    pub(crate) async fn stop(&self) {
        self.feeds.stop();
        if let Err(error) = self.handler.snapshot().await {
            tracing::warn!("cannot save the state of views, so the next start takes longer: {error}");
        }
    }
}

fn with_outcomes((feed, sink): (FeedReport, &Arc<HintSink>)) -> FeedReport {
    FeedReport { outcomes: Some(sink.counts().into()), ..feed }
}
