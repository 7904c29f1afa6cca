//! What a mount's event handler hears, and from where.

use crate::bucket::{self, World};
use crate::environment;
use crate::flags::{StoreFlags, ViewFlags};
use anyhow::{Result, anyhow};
use events::{Dialect, Feed, FeedStatus, Filter, Sink, Wanted};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What whoever posts events has to know; secrets are never flags.
const SECRET: &str = "TENON_EVENTS_SECRET";
/// What could not be read of what came.
const DEAD_LETTERS_FILE: &str = "dead-letters";

/// Sources that feed a handler for as long as this is there.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    statuses: Vec<(String, FeedStatus)>,
    _running: JoinSet<()>,
}

impl Feeds {
    /// Opens the sources that the flags name. Only what is of `containers` is wanted; `None` is all.
    pub(super) async fn open(
        flags: &ViewFlags,
        store: &StoreFlags,
        containers: Option<BTreeSet<String>>,
        sink: Arc<dyn Sink>,
        dir: &Path,
        world: &World,
    ) -> Result<Self> {
        let filter = |bucket| Filter { bucket: Some(bucket), prefix: Vec::new() };
        let wanted = Wanted::new(containers.into_iter().flatten().map(filter).collect());
        let (mut statuses, mut running) = (Vec::new(), JoinSet::new());
        for url in &flags.events {
            let access = bucket::source_access(store, environment::variable(SECRET), world)?;
            let source = events::open(url, access).await.map_err(|error| anyhow!("--events: {error}"))?;
            let (clock, entropy) = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
            let feed = Feed::new(url, Dialect::Detected, dir.join(DEAD_LETTERS_FILE), clock, entropy)
                .wanting(wanted.clone())
                .into_sink(Arc::clone(&sink));
            statuses.push((url.clone(), feed.status()));
            running.spawn(feed.run(source));
        }
        Ok(Self { statuses, _running: running })
    }

    /// How each source does, by its URL.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (&str, events::FeedCounts)> {
        self.statuses.iter().map(|(url, status)| (url.as_str(), status.counts()))
    }
}
