//! The receivers of events of an endpoint.
//!
//! A receiver's token is in a file, or in the variable `TENON_WEBHOOK_TOKEN_NAME`, where NAME is the receiver's name
//! in capitals, with `_` for `-`.

use crate::control::protocol;
use crate::process::{environment, files};
use anyhow::{Context, Result, anyhow, bail};
use events::{Authorization, Webhook, WebhookConfig};
use s3::Endpoint;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Entropy;

/// How long an event is retried: a receiver that is being replaced is back by then.
const RETRY_FOR: Duration = Duration::from_secs(600);

/// A receiver's URL, or the file with its token.
#[derive(Debug, Clone)]
pub(crate) struct NamedValue {
    /// Name of the receiver.
    pub(crate) name: String,
    /// The URL of the receiver, or the file with its token.
    pub(crate) value: String,
}

/// Settings of the receivers.
#[derive(Debug, Clone)]
pub(crate) struct WebhookSettings {
    pub(crate) urls: Vec<NamedValue>,
    pub(crate) token_files: Vec<NamedValue>,
    /// Certificate authorities to trust in addition to the system's.
    pub(crate) ca_bundle: Option<PathBuf>,
}

/// Starts a webhook for each receiver. Notification configurations say which events it gets. Events that a receiver does not accept are written
/// to a file in `state_root`.
pub(crate) fn start(
    settings: &WebhookSettings,
    state_root: &Path,
    entropy: &Arc<Entropy>,
) -> Result<BTreeMap<String, Webhook>> {
    let mut started = BTreeMap::new();
    for NamedValue { name, value: url } in &settings.urls {
        let about = || format!("--webhook {name}");
        let token = token(name, &settings.token_files)?;
        let config = WebhookConfig {
            name: name.clone(),
            url: url.clone(),
            authorization: token.map(|token| Authorization::of(&token)).transpose().with_context(about)?,
            ca_bundle: settings.ca_bundle.clone(),
            retry_for: RETRY_FOR,
            dead_letters: state_root.join(format!("webhook-{name}.dead.jsonl")),
        };
        let webhook = Webhook::start(config, Arc::clone(entropy)).with_context(about)?;
        if started.insert(name.clone(), webhook).is_some() {
            bail!("--webhook {name} is given twice; give each receiver a name of its own");
        }
    }
    match settings.token_files.iter().find(|token| !started.contains_key(&token.name)) {
        Some(token) => Err(anyhow!(
            "--webhook-token {0}: there is no --webhook {0}; add it, or check the name",
            token.name
        )),
        None => Ok(started),
    }
}

/// Returns the counts of an endpoint's webhooks for its status, by name.
pub(crate) fn reports(endpoint: &Endpoint) -> BTreeMap<String, protocol::Webhook> {
    let report = |counts: events::WebhookCounts| protocol::Webhook {
        queued: counts.queued,
        sent: counts.sent,
        retried: counts.retried,
        failed: counts.failed,
        dropped: counts.dropped,
    };
    endpoint.webhooks().into_iter().map(|(name, counts)| (name, report(counts))).collect()
}

/// Returns the token of a receiver, from its file or its variable; `None` if it has neither.
fn token(name: &str, files: &[NamedValue]) -> Result<Option<String>> {
    let Some(file) = files.iter().find(|file| file.name == name) else {
        let variable = name.to_ascii_uppercase().replace('-', "_");
        return Ok(environment::variable(&format!("TENON_WEBHOOK_TOKEN_{variable}")));
    };
    files::read_secret_line(Path::new(&file.value)).map(Some)
}
