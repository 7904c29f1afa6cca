//! The event feeds of this process: their sources, and the sinks that receive their events.

use crate::bucket::credentials::StoreSettings;
use crate::control::event_reports::FeedReport;
use crate::process::context::ProcessContext;
use crate::process::environment;
use crate::process::files::read_secret_line;
use crate::volume::Account;
use anyhow::{Result, anyhow};
use events::{Dialect, Feed, FeedStatus, Filter, Hint, Sink, SinkError, Wanted};
use sources::SourceAccess;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use store::accounts::{account_of, in_account};
use tokio::task::JoinSet;

/// Environment variable with the secret that senders to a webhook must present, if no file has it.
const SECRET: &str = "TENON_EVENTS_SECRET";
/// File for messages that could not be read.
const DEAD_LETTERS_FILE: &str = "dead-letters";

/// Feeds of event sources, which run until they are stopped or this value is dropped.
#[derive(Debug)]
pub(crate) struct Feeds {
    statuses: Vec<(String, FeedStatus)>,
    running: Mutex<JoinSet<()>>,
}

/// An event source, and the account whose buckets it reports on.
#[derive(Debug, Clone)]
pub(crate) struct SourceAddress {
    pub(crate) account: Account,
    pub(crate) url: String,
}

impl From<&str> for SourceAddress {
    fn from(text: &str) -> Self {
        // A URL may contain `=` after its scheme.
        let named = text.split_once('=').filter(|(account, _)| !account.contains("://"));
        let (account, url) = named.map_or((None, text), |(account, url)| (Some(account.to_owned()), url));
        Self { account, url: url.to_owned() }
    }
}

/// Event sources, and how to read them.
#[derive(Debug, Clone)]
pub(crate) struct FeedSettings {
    pub(crate) sources: Vec<SourceAddress>,
    /// Format of the events.
    pub(crate) dialect: Dialect,
    /// File with the secret that senders to a webhook must present.
    pub(crate) secret_file: Option<PathBuf>,
}

/// Parameters of [`Feeds::open`].
pub(crate) struct FeedParts<'p> {
    pub(crate) settings: &'p FeedSettings,
    pub(crate) bucket_access: &'p StoreSettings,
    /// Filters, one of which an event must match to be wanted. Without filters, all events are wanted.
    pub(crate) wanted: Vec<Filter>,
    /// Returns the sinks of a source, by its position in `sources`.
    pub(crate) sinks: &'p (dyn Fn(usize) -> Vec<Arc<dyn Sink>> + Sync),
    /// Directory for dead letters, and for positions in sources.
    pub(crate) dir: &'p Path,
    pub(crate) context: &'p ProcessContext,
}

impl Feeds {
    /// Opens the sources, and starts a feed for each.
    pub(crate) async fn open(parts: FeedParts<'_>) -> Result<Self> {
        let FeedParts { settings, bucket_access, wanted, sinks, dir, context } = parts;
        let (mut statuses, mut running) = (Vec::new(), JoinSet::new());
        for (position, SourceAddress { account, url }) in settings.sources.iter().enumerate() {
            let secret_file = settings.secret_file.as_deref();
            let access =
                source_access(secret_file, bucket_access, account.as_deref(), Some(dir.to_owned()), context)?;
            let source = sources::open(url, access).await.map_err(|error| anyhow!("--events: {error}"))?;
            let (clock, entropy) = (Arc::clone(&context.clock), Arc::clone(&context.entropy));
            let feed = Feed::new(url, settings.dialect, dir.join(DEAD_LETTERS_FILE), clock, entropy)
                .wanting(Wanted::new(filters_of(account, &wanted)));
            let sinks = sinks(position).into_iter().map(|sink| account_sink(account, sink));
            let feed = sinks.fold(feed, Feed::into_sink);
            statuses.push((url.clone(), feed.status()));
            running.spawn(feed.run(source));
        }
        Ok(Self { statuses, running: Mutex::new(running) })
    }

    /// Stops all feeds. Messages that were not acknowledged are delivered again.
    pub(crate) fn stop(&self) {
        drop(std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// Returns the state of each source, without outcomes of hints.
    pub(crate) fn reports(&self) -> impl Iterator<Item = FeedReport> {
        self.statuses.iter().map(|(url, status)| FeedReport::new(url, status.counts()))
    }
}

/// Returns how to access sources: the credentials, the secret of webhooks, and the directory for positions that a
/// source does not keep itself.
pub(crate) fn source_access(
    secret_file: Option<&Path>,
    bucket_access: &StoreSettings,
    account: Option<&str>,
    positions: Option<PathBuf>,
    context: &ProcessContext,
) -> Result<SourceAccess> {
    let config = bucket_access.s3_config(account)?;
    let secret = secret_file.map(read_secret_line).transpose()?;
    Ok(SourceAccess {
        secret: secret.or_else(|| environment::variable(SECRET)),
        credentials: config.credentials,
        region: Some(config.region),
        ca_bundle: bucket_access.ca_bundle.clone(),
        positions,
        clock: Arc::clone(&context.clock),
        entropy: Arc::clone(&context.entropy),
    })
}

/// Returns the filters for an account's source, with bucket names in the form that the source uses.
fn filters_of(account: &Account, wanted: &[Filter]) -> Vec<Filter> {
    let filters = wanted.iter().filter_map(|filter| match filter.bucket.as_deref().map(account_of) {
        None => Some(filter.clone()),
        Some((of, bucket)) => (of == account.as_deref())
            .then(|| Filter { bucket: Some(bucket.to_owned()), prefix: filter.prefix.clone() }),
    });
    filters.collect()
}

/// Returns a sink that names buckets with the account, unless it is the default one.
fn account_sink(account: &Account, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
    match account.clone() {
        Some(account) => Arc::new(AccountSink { account, sink }),
        None => sink,
    }
}

/// A sink that adds the account to the bucket names of another account's hints.
#[derive(Debug)]
struct AccountSink {
    account: String,
    sink: Arc<dyn Sink>,
}

#[async_trait::async_trait]
impl Sink for AccountSink {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let mut named = hints.to_vec();
        for hint in &mut named {
            hint.bucket = Cow::Owned(in_account(Some(&self.account), &hint.bucket));
        }
        self.sink.take(&named).await
    }

    async fn lost(&self, bucket: Option<&str>) -> Result<(), SinkError> {
        let bucket = bucket.map(|bucket| in_account(Some(&self.account), bucket));
        self.sink.lost(bucket.as_deref()).await
    }
}
