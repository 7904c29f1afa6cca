//! The receiver of a command about batches: a mount of this machine, or a batch server.

use crate::batch_server::client::RemoteBatches;
use crate::control::batch_protocol::{BatchAnswer, BatchRequest};
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request};
use crate::process::files::read_secret_line;
use crate::state::registry::Registry;
use anyhow::{Context, Result};
use clap::Args;
use std::fmt;
use std::path::PathBuf;

/// Access to a batch server.
#[derive(Debug, Args)]
pub(super) struct Access {
    /// File whose first line is the token for a batch server, readable by its owner only
    #[arg(long, value_name = "FILE", global = true)]
    token: Option<PathBuf>,
    /// PEM file with further certificate authorities to trust when a batch server is reached by https
    #[arg(long, value_name = "FILE", global = true)]
    ca_bundle: Option<PathBuf>,
}

impl Access {
    /// Returns the token, and the file of further certificate authorities.
    pub(super) fn token_and_certificates(&self) -> Result<(String, Option<PathBuf>)> {
        let token =
            self.token.as_ref().context("a batch server needs a token: give its file with --token")?;
        Ok((read_secret_line(token)?, self.ca_bundle.clone()))
    }
}

/// The receiver of requests about batches.
pub(super) enum Target {
    Mount(LiveMount),
    Server { url: String, client: Box<RemoteBatches> },
}

impl Target {
    /// Returns what `text` names: a mount by its volume or mount point, or a server by its URL.
    pub(super) fn find(text: &str, access: &Access) -> Result<Self> {
        match is_url(text) {
            true => Ok(Self::server_and_path(text, access)?.0),
            false => Ok(Self::Mount(Registry::of_user().find(text)?)),
        }
    }

    /// Returns the server of a URL, and the path behind it.
    pub(super) fn server_and_path(url: &str, access: &Access) -> Result<(Self, String)> {
        let (scheme, rest) = url.split_once("://").with_context(|| format!("'{url}' is not a URL"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (token, ca_bundle) = access.token_and_certificates()?;
        let url = format!("{scheme}://{authority}");
        let client = RemoteBatches::new(&url, &token, ca_bundle.as_deref())?;
        let client = Box::new(client);
        Ok((Self::Server { url, client }, path.to_owned()))
    }

    /// Sends a request, and returns the answer.
    pub(super) fn ask(&self, request: BatchRequest) -> Result<BatchAnswer> {
        match self {
            Self::Mount(mount) => {
                let mut client = Client::connect(mount)?;
                match client.ask(&Request::Batch(request), |_| {})? {
                    Answer::Batch(answer) => Ok(answer),
                    other => client.unexpected(&other),
                }
            }
            Self::Server { client, .. } => client.ask(&request),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(mount) => write!(f, "{}", mount.holder.mount_point.display()),
            Self::Server { url, .. } => f.write_str(url),
        }
    }
}

/// Returns whether a text is a URL of a batch server.
pub(super) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}
