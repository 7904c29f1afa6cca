//! The event handler of this process, with its feeds and its reports. Also the clients of remote handlers.
//!
//! A mount with views has a handler of its own, unless it uses a remote one; `tenon events serve` runs one for many
//! clients.

pub(crate) mod feeds;

use crate::bucket::ProcessContext;
use crate::command::flags::{EventFlags, HandlerFlags, StoreFlags};
use crate::event_handler::feeds::{FeedParts, Feeds};
use crate::process::environment;
use crate::state;
use anyhow::{Context, Result, anyhow, bail};
use events::{FeedCounts, Sink};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Buckets, Entropy};
use views::part::{Part, Union};
use views::remote::{RemoteConfig, RemoteViews, Token};
use views::{
    Ear, Handler, HandlerConfig, HandlerParts, HandlerStats, HintCounts, Unlisted, ViewStats, Views,
};

/// Environment variable with the handler's token, if no file has it.
const HANDLER_TOKEN: &str = "TENON_HANDLER_TOKEN";

/// An event handler and its feeds, which stop with it.
#[derive(Debug)]
pub(crate) struct EventHandler {
    /// The handler.
    pub(crate) handler: Arc<Handler>,
    feeds: Feeds,
    /// The sink of each feed, which counts the outcomes of its hints.
    sinks: Vec<Arc<Ear>>,
}

/// The state of a handler process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandlerReport {
    /// Version of Tenon.
    pub(crate) version: String,
    /// Views that clients have opened, and the buckets and objects that these cover.
    pub(crate) views: Vec<ViewReport>,
    pub(crate) buckets: usize,
    pub(crate) objects: usize,
    pub(crate) memory_bytes: usize,
    /// Buckets that cannot be read, each with the reason.
    #[serde(default)]
    pub(crate) unlisted: Vec<String>,
    /// Objects that wait to be examined.
    pub(crate) looks: usize,
    /// Outcomes of hints.
    pub(crate) hints: HintReport,
    /// Total time spent on matching hints, in nanoseconds.
    pub(crate) matching_ns: u64,
    /// The feeds, in the order of the flags.
    pub(crate) feeds: Vec<FeedReport>,
}

/// Size of a view.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ViewReport {
    /// Rules of the view, as in a file of rulesets.
    pub(crate) rules: String,
    pub(crate) objects: usize,
}

/// Counts of hints by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HintReport {
    pub(crate) applied: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
    pub(crate) unwanted: u64,
    pub(crate) looked: u64,
}

/// State of a feed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FeedReport {
    /// URL of the source.
    pub(crate) source: String,
    pub(crate) connected: bool,
    pub(crate) messages: u64,
    pub(crate) hints: u64,
    /// Messages written to the dead letters, and messages that could not even be written there.
    pub(crate) unreadable: u64,
    pub(crate) lost: u64,
    /// Batches that were received again, and failures of the source or of the handler.
    pub(crate) repeated: u64,
    pub(crate) failures: u64,
    pub(crate) lag_ms: u64,
    /// Messages that wait in the source; `None` if the source does not tell.
    #[serde(default)]
    pub(crate) waiting: Option<u64>,
    /// Outcomes of the feed's hints, if a handler receives them.
    #[serde(default)]
    pub(crate) outcomes: Option<HintReport>,
    pub(crate) last_error: Option<String>,
}

impl EventHandler {
    /// Starts a handler for the objects of some buckets, with its state in `dir`, fed by the sources that the flags
    /// name. The sink `also` receives the same hints.
    pub(crate) async fn start(
        buckets: Arc<dyn Buckets>,
        dir: PathBuf,
        flags: &EventFlags,
        store: &StoreFlags,
        also: Option<Arc<dyn Sink>>,
        context: &ProcessContext,
    ) -> Result<Self> {
        let config = HandlerConfig { knows_accessed: flags.access_events };
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let part = flags.part.unwrap_or(Part::ALL);
        let handler = Handler::start(HandlerParts {
            buckets: part.of_buckets(buckets),
            clock: Arc::clone(&context.clock),
            entropy: Entropy::new(context.entropy.next_u64()),
            dir: Some(dir.clone()),
            config,
        });
        let handler = handler.await?;
        let handler_sinks: Vec<Arc<Ear>> =
            flags.events.iter().map(|_| Arc::new(Ear::new(handler.clone()))).collect();
        let sinks = |source: usize| {
            let sink: Arc<dyn Sink> = handler_sinks[source].clone();
            [part.of_hints(sink)].into_iter().chain(also.clone()).collect()
        };
        let feeds = Feeds::open(FeedParts {
            sources: &flags.events,
            flags: &flags.sources,
            store,
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
            version: env!("CARGO_PKG_VERSION").to_owned(),
            views: views.into_iter().map(view).collect(),
            buckets: containers,
            objects,
            memory_bytes,
            unlisted: unlisted.iter().map(Unlisted::to_string).collect(),
            looks,
            hints: hints.into(),
            matching_ns: u64::try_from(matching.as_nanos()).unwrap_or(u64::MAX),
            feeds: feed_reports(&self.feeds).into_iter().zip(&self.sinks).map(with_outcomes).collect(),
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

/// Returns the state of each feed.
pub(crate) fn feed_reports(feeds: &Feeds) -> Vec<FeedReport> {
    feeds.statuses().map(|(url, counts)| feed_report(url, counts)).collect()
}

fn with_outcomes((feed, sink): (FeedReport, &Arc<Ear>)) -> FeedReport {
    FeedReport { outcomes: Some(sink.counts().into()), ..feed }
}

impl From<HintCounts> for HintReport {
    fn from(counts: HintCounts) -> Self {
        let HintCounts { applied, repeated, late, unwanted, looked } = counts;
        Self { applied, repeated, late, unwanted, looked }
    }
}

fn feed_report(name: &str, counts: FeedCounts) -> FeedReport {
    FeedReport {
        source: name.to_owned(),
        connected: counts.is_connected,
        messages: counts.messages,
        hints: counts.hints,
        unreadable: counts.unreadable,
        lost: counts.lost,
        repeated: counts.repeated,
        failures: counts.failures,
        lag_ms: u64::try_from(counts.lag.as_millis()).unwrap_or(u64::MAX),
        waiting: counts.waiting,
        outcomes: None,
        last_error: counts.last_error,
    }
}

/// Reads a secret from the first line of a file that only its owner may read.
pub(crate) fn read_secret_line(path: &Path) -> Result<String> {
    let text = state::read_secret(path)?;
    match text.lines().next().map(str::trim) {
        Some(secret) if !secret.is_empty() => Ok(secret.to_owned()),
        _ => bail!("the first line of {} is empty", path.display()),
    }
}

/// Returns the clients of remote handlers, one for each part of all objects.
pub(crate) fn remote_clients(flags: &HandlerFlags) -> Result<Vec<Arc<RemoteViews>>> {
    let mut parts: BTreeMap<Part, Vec<String>> = BTreeMap::new();
    for at in &flags.handler {
        parts.entry(at.part).or_default().push(at.url.clone());
    }
    let count = parts.keys().next().map_or(0, |part| part.count());
    if parts.len() != count || parts.keys().any(|part| part.count() != count) {
        bail!("--handler: name a handler for each part, like 1/2=URL and 2/2=URL, or handlers without parts");
    }
    let token = match &flags.handler_token {
        Some(file) => Some(token(file)?),
        None => environment::variable(HANDLER_TOKEN)
            .map(|text| Token::new(&text).map_err(|what| anyhow!("{HANDLER_TOKEN}: {what}")))
            .transpose()?,
    };
    let client = |(part, addresses)| {
        let (token, ca_bundle) = (token.clone(), flags.handler_ca_bundle.clone());
        let config = RemoteConfig { addresses, part, token, ca_bundle };
        RemoteViews::new(&config).map(Arc::new).context("--handler")
    };
    parts.into_iter().map(client).collect()
}

/// Returns the views of the remote handlers that the flags name. Several parts are joined.
pub(crate) fn remote_views(flags: &HandlerFlags) -> Result<Arc<dyn Views>> {
    let clients = remote_clients(flags)?.into_iter().map(|client| client as Arc<dyn Views>);
    let mut clients: Vec<_> = clients.collect();
    if clients.len() == 1 { Ok(clients.remove(0)) } else { Ok(Arc::new(Union::new(clients))) }
}

/// Reads the token that a handler shares with its clients.
pub(crate) fn token(path: &Path) -> Result<Token> {
    let text = read_secret_line(path)?;
    Token::new(&text).map_err(|what| anyhow!("{}: {what}", path.display()))
}
