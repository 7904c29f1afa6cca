//! The clients of remote event handlers, each of which serves many mounts and commands.

use crate::process::environment;
use crate::process::files::read_secret_line;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use views::Views;
use views::part::{Part, Union};
use views::remote::{RemoteConfig, RemoteViews, Token};

/// Environment variable with the handler's token, if no file has it.
const HANDLER_TOKEN: &str = "TENON_HANDLER_TOKEN";

/// URL of an event handler, and the part of all objects that it handles.
#[derive(Debug, Clone)]
pub(crate) struct HandlerAddress {
    pub(crate) part: Part,
    pub(crate) url: String,
}

/// Settings for reaching remote handlers.
#[derive(Debug, Clone)]
pub(crate) struct RemoteHandlerSettings {
    /// Addresses of the handlers. Several of one part are tried in this order.
    pub(crate) addresses: Vec<HandlerAddress>,
    pub(crate) token_file: Option<PathBuf>,
    /// Certificate authorities to trust in addition to the system's.
    pub(crate) ca_bundle: Option<PathBuf>,
}

/// Returns the clients of remote handlers, one for each part of all objects. Fails unless all parts have an address.
pub(crate) fn clients(settings: &RemoteHandlerSettings) -> Result<Vec<Arc<RemoteViews>>> {
    let mut parts: BTreeMap<Part, Vec<String>> = BTreeMap::new();
    for at in &settings.addresses {
        parts.entry(at.part).or_default().push(at.url.clone());
    }
    let count = parts.keys().next().map_or(0, |part| part.count());
    if parts.len() != count || parts.keys().any(|part| part.count() != count) {
        bail!("--handler: name a handler for each part, like 1/2=URL and 2/2=URL, or handlers without parts");
    }
    let token = match &settings.token_file {
        Some(file) => Some(read_token(file)?),
        None => environment::variable(HANDLER_TOKEN)
            .map(|text| Token::new(&text).map_err(|what| anyhow!("{HANDLER_TOKEN}: {what}")))
            .transpose()?,
    };
    let client = |(part, addresses)| {
        let (token, ca_bundle) = (token.clone(), settings.ca_bundle.clone());
        let config = RemoteConfig { addresses, part, token, ca_bundle };
        RemoteViews::new(&config).map(Arc::new).context("--handler")
    };
    parts.into_iter().map(client).collect()
}

/// Returns the views of the remote handlers. Several parts are joined.
pub(crate) fn views(settings: &RemoteHandlerSettings) -> Result<Arc<dyn Views>> {
    let clients = clients(settings)?.into_iter().map(|client| client as Arc<dyn Views>);
    let mut clients: Vec<_> = clients.collect();
    if clients.len() == 1 { Ok(clients.remove(0)) } else { Ok(Arc::new(Union::new(clients))) }
}

/// Reads the token that a handler shares with its clients.
pub(crate) fn read_token(path: &Path) -> Result<Token> {
    let text = read_secret_line(path)?;
    Token::new(&text).map_err(|what| anyhow!("{}: {what}", path.display()))
}
