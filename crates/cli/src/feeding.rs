//! What this process hears of objects, and from where.

use crate::bucket::{self, Account, World};
use crate::environment;
use crate::flags::{SourceAt, SourceFlags, StoreFlags};
use crate::handling::first_line;
use anyhow::{Result, anyhow};
use events::{Feed, FeedCounts, FeedStatus, Filter, Hint, Sink, SinkError, SourceAccess, Wanted};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use store::accounts::{account_of, in_account};
use tokio::task::JoinSet;

/// What whoever posts events has to know, where no file says it.
const SECRET: &str = "TENON_EVENTS_SECRET";
/// What could not be read of what came.
const DEAD_LETTERS_FILE: &str = "dead-letters";

/// Sources that are fed from until they are stopped, or this is gone.
#[derive(Debug)]
pub(crate) struct Feeds {
    statuses: Vec<(String, FeedStatus)>,
    running: Mutex<JoinSet<()>>,
}

/// What is fed, and how.
pub(crate) struct FeedParts<'p> {
    /// The sources.
    pub(crate) sources: &'p [SourceAt],
    pub(crate) flags: &'p SourceFlags,
    pub(crate) store: &'p StoreFlags,
    /// Only what is of one of these is wanted; with none of them, all.
    pub(crate) wanted: Vec<Filter>,
    /// Who hears a source, by its place among them.
    pub(crate) sinks: &'p (dyn Fn(usize) -> Vec<Arc<dyn Sink>> + Sync),
    /// For what cannot be read.
    pub(crate) dir: &'p Path,
    pub(crate) world: &'p World,
}

impl Feeds {
    /// Opens the sources.
    pub(crate) async fn open(parts: FeedParts<'_>) -> Result<Self> {
        let FeedParts { sources, flags, store, wanted, sinks, dir, world } = parts;
        let (mut statuses, mut running) = (Vec::new(), JoinSet::new());
        for (place, SourceAt { account, url }) in sources.iter().enumerate() {
            let access = access(flags, store, account.as_deref(), Some(dir.to_owned()), world)?;
            let source = events::open(url, access).await.map_err(|error| anyhow!("--events: {error}"))?;
            let (clock, entropy) = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
            let feed = Feed::new(url, flags.event_dialect, dir.join(DEAD_LETTERS_FILE), clock, entropy)
                .wanting(Wanted::new(in_words_of(account, &wanted)));
            let sinks = sinks(place).into_iter().map(|sink| of_account(account, sink));
            let feed = sinks.fold(feed, Feed::into_sink);
            statuses.push((url.clone(), feed.status()));
            running.spawn(feed.run(source));
        }
        Ok(Self { statuses, running: Mutex::new(running) })
    }

    /// Ends them; what was not acknowledged comes again.
    pub(crate) fn stop(&self) {
        drop(std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// How each source does, by its URL.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (&str, FeedCounts)> {
        self.statuses.iter().map(|(url, status)| (url.as_str(), status.counts()))
    }
}

/// How sources are reached: who asks, what whoever posts has to know, and where positions are that no source keeps.
pub(crate) fn access(
    flags: &SourceFlags,
    store: &StoreFlags,
    account: Option<&str>,
    positions: Option<PathBuf>,
    world: &World,
) -> Result<SourceAccess> {
    let config = bucket::s3_config(store, account)?;
    let secret = flags.event_secret.as_deref().map(first_line).transpose()?;
    Ok(SourceAccess {
        secret: secret.or_else(|| environment::variable(SECRET)),
        credentials: config.credentials,
        region: Some(config.region),
        ca_bundle: store.ca_bundle.clone(),
        positions,
        clock: Arc::clone(&world.clock),
        entropy: Arc::clone(&world.entropy),
    })
}

/// What is wanted of an account's source, which says buckets as they are called there.
fn in_words_of(account: &Account, wanted: &[Filter]) -> Vec<Filter> {
    let told = wanted.iter().filter_map(|filter| match filter.bucket.as_deref().map(account_of) {
        None => Some(filter.clone()),
        Some((of, bucket)) => (of == account.as_deref())
            .then(|| Filter { bucket: Some(bucket.to_owned()), prefix: filter.prefix.clone() }),
    });
    told.collect()
}

fn of_account(account: &Account, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
    match account.clone() {
        Some(account) => Arc::new(OfAccount { account, sink }),
        None => sink,
    }
}

/// A sink that hears of another account's buckets by their whole names.
#[derive(Debug)]
struct OfAccount {
    account: String,
    sink: Arc<dyn Sink>,
}

#[async_trait::async_trait]
impl Sink for OfAccount {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let mut named = hints.to_vec();
        for hint in &mut named {
            hint.bucket = Cow::Owned(in_account(Some(&self.account), &hint.bucket));
        }
        self.sink.take(&named).await
    }

    async fn lost(&self, bucket: Option<&str>) {
        let bucket = bucket.map(|bucket| in_account(Some(&self.account), bucket));
        self.sink.lost(bucket.as_deref()).await;
    }
}
