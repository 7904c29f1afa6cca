//! An event handler in this process: what it is made of, what feeds it, and what it says of itself.
//!
//! Mounts with views have one, and `tenon events serve` is one for many clients.

use crate::bucket::World;
use crate::environment;
use crate::feeding::{FeedParts, Feeds};
use crate::flags::{EventFlags, HandlerFlags, StoreFlags};
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

/// What a handler wants to be told, where no file says it.
const HANDLER_TOKEN: &str = "TENON_HANDLER_TOKEN";

/// A handler and its feeds; these end with it.
#[derive(Debug)]
pub(crate) struct Handling {
    /// Who is asked.
    pub(crate) handler: Arc<Handler>,
    feeds: Feeds,
    /// Of each feed, what comes of its hints.
    ears: Vec<Arc<Ear>>,
}

/// What a handler process says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of Tenon.
    pub(crate) version: String,
    /// Views that somebody asked for, and the buckets and objects in which they look.
    pub(crate) views: Vec<ViewReport>,
    pub(crate) buckets: usize,
    pub(crate) objects: usize,
    pub(crate) memory_bytes: usize,
    /// Buckets that cannot be read, and why.
    #[serde(default)]
    pub(crate) unlisted: Vec<String>,
    /// Objects that wait to be looked at.
    pub(crate) looks: usize,
    /// What came of hints.
    pub(crate) hints: HintReport,
    /// How long it took in all to find that out, in nanoseconds.
    pub(crate) matching_ns: u64,
    /// Its feeds, in the order of the flags.
    pub(crate) feeds: Vec<FeedReport>,
}

/// How large a view is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ViewReport {
    /// Its rules as they would stand in a file.
    pub(crate) rules: String,
    pub(crate) objects: usize,
}

/// What came of hints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HintReport {
    pub(crate) applied: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
    pub(crate) unwanted: u64,
    pub(crate) looked: u64,
}

/// How a feed stands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FeedReport {
    /// Its source.
    pub(crate) source: String,
    pub(crate) connected: bool,
    pub(crate) messages: u64,
    pub(crate) hints: u64,
    /// Messages among the dead letters, and those that could not be kept even there.
    pub(crate) unreadable: u64,
    pub(crate) lost: u64,
    /// Batches that came again, and failures of the source or of the handler.
    pub(crate) repeated: u64,
    pub(crate) failures: u64,
    pub(crate) lag_ms: u64,
    /// Messages that the source has and nobody has received; `None` where it does not tell.
    #[serde(default)]
    pub(crate) waiting: Option<u64>,
    /// What came of its hints, where a handler hears them.
    #[serde(default)]
    pub(crate) outcomes: Option<HintReport>,
    pub(crate) last_error: Option<String>,
}

impl Handling {
    /// A handler of the objects of some buckets, with its state in a directory, fed by what the flags name; `also` hears that, too.
    pub(crate) async fn start(
        buckets: Arc<dyn Buckets>,
        dir: PathBuf,
        flags: &EventFlags,
        store: &StoreFlags,
        also: Option<Arc<dyn Sink>>,
        world: &World,
    ) -> Result<Self> {
        let config = HandlerConfig { knows_accessed: flags.access_events };
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let part = flags.part.unwrap_or(Part::ALL);
        let handler = Handler::start(HandlerParts {
            buckets: part.of_buckets(buckets),
            clock: Arc::clone(&world.clock),
            entropy: Entropy::new(world.entropy.next_u64()),
            dir: Some(dir.clone()),
            config,
        });
        let handler = handler.await?;
        let ears: Vec<Arc<Ear>> = flags.events.iter().map(|_| Arc::new(Ear::new(handler.clone()))).collect();
        let sinks = |source: usize| {
            let ear: Arc<dyn Sink> = ears[source].clone();
            [part.of_hints(ear)].into_iter().chain(also.clone()).collect()
        };
        let feeds = Feeds::open(FeedParts {
            sources: &flags.events,
            flags: &flags.sources,
            store,
            wanted: Vec::new(),
            sinks: &sinks,
            dir: &dir,
            world,
        });
        let feeds = feeds.await?;
        Ok(Self { handler, feeds, ears })
    }

    /// How it stands.
    pub(crate) fn report(&self) -> Report {
        let HandlerStats {
            views, containers, unlisted, objects, memory_bytes, looks, hints, matching, ..
        } = self.handler.stats();
        let view = |view: ViewStats| ViewReport { rules: view.rules, objects: view.objects };
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            views: views.into_iter().map(view).collect(),
            buckets: containers,
            objects,
            memory_bytes,
            unlisted: unlisted.iter().map(Unlisted::to_string).collect(),
            looks,
            hints: hints.into(),
            matching_ns: u64::try_from(matching.as_nanos()).unwrap_or(u64::MAX),
            feeds: reports(&self.feeds).into_iter().zip(&self.ears).map(with_outcomes).collect(),
        }
    }

    /// Ends the feeds, and writes down what is known so that the next start is short.
    pub(crate) async fn stop(&self) {
        self.feeds.stop();
        if let Err(error) = self.handler.snapshot().await {
            tracing::warn!("the next start takes longer: {error}");
        }
    }
}

/// How feeds stand.
pub(crate) fn reports(feeds: &Feeds) -> Vec<FeedReport> {
    feeds.statuses().map(|(url, counts)| feed_report(url, counts)).collect()
}

fn with_outcomes((feed, ear): (FeedReport, &Arc<Ear>)) -> FeedReport {
    FeedReport { outcomes: Some(ear.counts().into()), ..feed }
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

/// A secret: the first line of a file that only its owner reads.
pub(crate) fn first_line(path: &Path) -> Result<String> {
    let text = state::read_secret(path)?;
    match text.lines().next().map(str::trim) {
        Some(secret) if !secret.is_empty() => Ok(secret.to_owned()),
        _ => bail!("{} has nothing in its first line", path.display()),
    }
}

/// Clients of handlers elsewhere, one for each part of all objects.
pub(crate) fn clients(flags: &HandlerFlags) -> Result<Vec<Arc<RemoteViews>>> {
    let mut parts: BTreeMap<Part, Vec<String>> = BTreeMap::new();
    for at in &flags.handler {
        parts.entry(at.part).or_default().push(at.url.clone());
    }
    let count = parts.keys().next().map_or(0, |part| part.count());
    if parts.len() != count || parts.keys().any(|part| part.count() != count) {
        bail!("--handler: name a handler of each part, like 1/2=URL and 2/2=URL, or of no part");
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

/// The handlers that the flags name, as one.
pub(crate) fn elsewhere(flags: &HandlerFlags) -> Result<Arc<dyn Views>> {
    let clients = clients(flags)?.into_iter().map(|client| client as Arc<dyn Views>);
    let mut clients: Vec<_> = clients.collect();
    if clients.len() == 1 { Ok(clients.remove(0)) } else { Ok(Arc::new(Union::new(clients))) }
}

/// The secret that a handler shares with its clients.
pub(crate) fn token(path: &Path) -> Result<Token> {
    let text = first_line(path)?;
    Token::new(&text).map_err(|what| anyhow!("{}: {what}", path.display()))
}
