//! The console of a process: its start, and the facts that its pages show.

pub(crate) mod drive_facts;
pub(crate) mod report;

use crate::endpoint::tls::TlsFiles;
use crate::process::context::ProcessContext;
use anyhow::{Context as _, Result};
use console::{Console, ConsoleOptions, Process};
use s3::Endpoint;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// Settings of the console.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleSettings {
    pub(crate) address: SocketAddr,
    /// Certificate, for https.
    pub(crate) tls: Option<TlsFiles>,
}

/// Parts of a console, apart from the process.
pub(crate) struct ConsoleParts {
    pub(crate) settings: ConsoleSettings,
    pub(crate) endpoint: Endpoint,
    pub(crate) context: ProcessContext,
}

/// URLs of a process's metrics and console, which are known once these are served.
#[derive(Debug, Default)]
pub(crate) struct ServedUrls {
    /// URL of the metrics, if they are served.
    pub(crate) metrics: OnceLock<String>,
    /// URL of the console, if it is served.
    pub(crate) console: OnceLock<String>,
}

impl ConsoleParts {
    /// Starts the console of a process, and notes its URL. `endpoint_url` is where clients reach the endpoint.
    pub(crate) async fn start<P: Process>(
        self,
        process: &Arc<P>,
        urls: &ServedUrls,
        endpoint_url: Option<String>,
    ) -> Result<Console> {
        let Self { settings, endpoint, context } = self;
        let address = settings.address;
        let tls = settings.tls.as_ref().map(TlsFiles::load).transpose()?;
        if tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!(
                "the console at {address} is served by plain http: others on the network can read secret keys when users sign in; give a certificate with --tls-cert and --tls-key"
            );
        }
        let options = ConsoleOptions { endpoint_url, ..ConsoleOptions::default() };
        let (process, sources) = (Arc::clone(process), (context.clock, context.entropy));
        let console = Console::start(address, tls, endpoint, process, options, sources).await;
        let console = console.context("cannot serve the console (--console)")?;
        tracing::info!("the console is served at {}", console.url());
        urls.console.get_or_init(|| console.url());
        Ok(console)
    }
}
