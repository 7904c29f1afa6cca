//! An event handler in this process: what it is made of, what feeds it, and what it says of itself.
//!
//! Mounts with views have one, and `tenon events serve` is one for many clients.

use crate::bucket::{self, World};
use crate::flags::{EventFlags, HandlerFlags, SourceFlags, StoreFlags};
use crate::state;
use anyhow::{Context, Result, anyhow, bail};
use events::{Feed, FeedCounts, FeedStatus, SourceAccess};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Buckets, Entropy};
use tokio::task::AbortHandle;
use views::remote::{RemoteConfig, RemoteViews, Token};
use views::{Handler, HandlerConfig, HandlerParts};

/// Messages that nobody can read, in a handler's directory.
const DEAD_LETTERS: &str = "dead-letters.jsonl";

/// A handler and its feeds; these end with it.
#[derive(Debug)]
pub(crate) struct Handling {
    /// Who is asked.
    pub(crate) handler: Arc<Handler>,
    feeds: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    name: String,
    status: FeedStatus,
    task: AbortHandle,
}

/// What a handler process says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of Tenon.
    pub(crate) version: String,
    /// Its feeds, in the order of the flags.
    pub(crate) feeds: Vec<FeedReport>,
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
    pub(crate) last_error: Option<String>,
}

impl Handling {
    /// A handler of the objects of some buckets, with its state in a directory, fed by what the flags name.
    pub(crate) async fn start(
        buckets: Arc<dyn Buckets>,
        dir: PathBuf,
        flags: &EventFlags,
        store: &StoreFlags,
        world: &World,
    ) -> Result<Self> {
        let config = HandlerConfig { knows_accessed: flags.access_events };
        let dead_letters = dead_letters(&dir);
        let handler = Handler::start(HandlerParts {
            buckets,
            clock: Arc::clone(&world.clock),
            entropy: Entropy::new(world.entropy.next_u64()),
            dir: Some(dir),
            config,
        });
        let mut handling = Self { handler: handler.await?, feeds: Vec::new() };
        let access = access(&flags.sources, store, world)?;
        for url in &flags.events {
            let source =
                events::open(url, access.clone()).await.map_err(|error| anyhow!("--events: {error}"))?;
            let (clock, entropy) = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
            let feed = Feed::new(url, flags.sources.event_dialect, dead_letters.clone(), clock, entropy);
            let feed = feed.into_sink(handling.handler.clone());
            let status = feed.status();
            let task = tokio::spawn(feed.run(source)).abort_handle();
            handling.feeds.push(Running { name: url.clone(), status, task });
        }
        Ok(handling)
    }

    /// How it stands.
    pub(crate) fn report(&self) -> Report {
        let feeds = self.feeds.iter().map(|feed| feed_report(&feed.name, feed.status.counts()));
        Report { version: env!("CARGO_PKG_VERSION").to_owned(), feeds: feeds.collect() }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        // What was not acknowledged comes again.
        self.feeds.iter().for_each(|feed| feed.task.abort());
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
        last_error: counts.last_error,
    }
}

/// Where the messages are that nobody could read.
pub(crate) fn dead_letters(dir: &Path) -> PathBuf {
    dir.join(DEAD_LETTERS)
}

/// How sources are reached.
pub(crate) fn access(flags: &SourceFlags, store: &StoreFlags, world: &World) -> Result<SourceAccess> {
    let config = bucket::s3_config(store)?;
    Ok(SourceAccess {
        secret: flags.event_secret.as_deref().map(first_line).transpose()?,
        credentials: config.credentials,
        region: Some(config.region),
        ca_bundle: store.ca_bundle.clone(),
        clock: Arc::clone(&world.clock),
        entropy: Arc::clone(&world.entropy),
    })
}

/// A secret: the first line of a file that only its owner reads.
pub(crate) fn first_line(path: &Path) -> Result<String> {
    let text = state::read_secret(path)?;
    match text.lines().next().map(str::trim) {
        Some(secret) if !secret.is_empty() => Ok(secret.to_owned()),
        _ => bail!("{} has nothing in its first line", path.display()),
    }
}

/// A client of the handlers that the flags name.
pub(crate) fn client(flags: &HandlerFlags) -> Result<RemoteViews> {
    let token = flags.handler_token.as_deref().map(token).transpose()?;
    let config =
        RemoteConfig { addresses: flags.handler.clone(), token, ca_bundle: flags.handler_ca_bundle.clone() };
    RemoteViews::new(&config).context("--handler")
}

/// The secret that a handler shares with its clients.
pub(crate) fn token(path: &Path) -> Result<Token> {
    let text = first_line(path)?;
    Token::new(&text).map_err(|what| anyhow!("{}: {what}", path.display()))
}
