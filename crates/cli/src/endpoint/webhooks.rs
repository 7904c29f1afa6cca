//! The receivers of events that the flags name.
//!
//! A receiver's token is in a file, or in the variable `TENON_WEBHOOK_TOKEN_NAME`, where NAME is the receiver's name
//! in capitals, with `_` for `-`.

use crate::bucket::ProcessContext;
use crate::command::flags::{EndpointFlags, NamedValue, StoreFlags};
use crate::process::environment;
use crate::state::{self, StateDir};
use anyhow::{Context, Result, anyhow, bail};
use events::{Authorization, Webhook, WebhookConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long an event is retried: a receiver that is being replaced is back by then.
const RETRY_FOR: Duration = Duration::from_secs(600);

/// Starts a webhook for each receiver. Notification configurations say which events it gets.
pub(crate) fn start(
    flags: &EndpointFlags,
    store: &StoreFlags,
    state: &StateDir,
    context: &ProcessContext,
) -> Result<BTreeMap<String, Webhook>> {
    let mut started = BTreeMap::new();
    for NamedValue { name, value: url } in &flags.webhook {
        let about = || format!("--webhook {name}");
        let token = token(name, &flags.webhook_token)?;
        let config = WebhookConfig {
            name: name.clone(),
            url: url.clone(),
            authorization: token.map(|token| Authorization::of(&token)).transpose().with_context(about)?,
            ca_bundle: store.ca_bundle.clone(),
            retry_for: RETRY_FOR,
            dead_letters: state.dead_letters(name),
        };
        let webhook = Webhook::start(config, Arc::clone(&context.entropy)).with_context(about)?;
        if started.insert(name.clone(), webhook).is_some() {
            bail!("--webhook {name} is given twice; give each receiver a name of its own");
        }
    }
    let unknown = flags.webhook_token.iter().find(|token| !started.contains_key(&token.name));
    match unknown {
        Some(token) => Err(anyhow!("--webhook-token {0}: there is no --webhook {0}", token.name)),
        None => Ok(started),
    }
}

fn token(name: &str, files: &[NamedValue]) -> Result<Option<String>> {
    let Some(file) = files.iter().find(|file| file.name == name) else {
        let variable = name.to_ascii_uppercase().replace('-', "_");
        return Ok(environment::variable(&format!("TENON_WEBHOOK_TOKEN_{variable}")));
    };
    let text = state::read_secret(Path::new(&file.value))?;
    match text.lines().next().map(str::trim) {
        Some(token) if !token.is_empty() => Ok(Some(token.to_owned())),
        _ => bail!("{} has no token in its first line", file.value),
    }
}
