//! `tenon events serve`: an event handler for many clients.

use crate::bucket::{self, World};
use crate::endpoint;
use crate::environment;
use crate::flags::{EventFlags, LogFlags, StoreFlags};
use crate::handling::{self, Handling};
use crate::logging::{self, LogFile};
use crate::serving::{self, Stop};
use crate::state::{Holder, State};
use anyhow::{Context, Result};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use views::part::Part;
use views::remote::{RemoteServer, Report, Served};

/// How long answers under way may take when the process is to end.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Keep the views of many clients: mounts and others that name this process by --handler.
///
/// Runs until it is stopped by SIGTERM or Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9100")]
    listen: SocketAddr,
    /// File whose first line clients must know, readable by its owner only (default: whoever reaches the address may ask)
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// PEM file of the certificate chain, for https
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Where the lock, what is known of objects, and the dead letters live
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Account that rulesets may name besides the one that flags and environment say: a profile of the AWS files (repeatable)
    #[arg(long, value_name = "PROFILE")]
    account: Vec<String>,
    #[command(flatten)]
    events: EventFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let log = self.log.log_file.as_deref().map(LogFile::open).transpose()?;
        logging::start(&self.log, log)?;
        let state = self.take_state()?;
        let runtime = Runtime::new().context("cannot start")?;
        let ended = runtime.block_on(self.serve(&state));
        drop(state);
        serving::end(runtime);
        ended.map(|()| ExitCode::SUCCESS)
    }

    fn take_state(&self) -> Result<State> {
        let own = || environment::states_dir().join(format!("handler-{}", self.listen.port()));
        let dir = self.state_dir.clone().unwrap_or_else(own);
        let holder = Holder {
            pid: std::process::id(),
            mount_point: format!("http://{}", self.listen).into(),
            also: Vec::new(),
            volume: "events".to_owned(),
        };
        State::take(&dir, &holder)
    }

    async fn serve(&self, state: &State) -> Result<()> {
        let world = World::real()?;
        let mut stop = Stop::new()?;
        let token = self.token.as_deref().map(handling::token).transpose()?;
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(chain), Some(key)) => Some(Arc::new(endpoint::certificate(chain, key)?)),
            _ => None,
        };
        if token.is_none() && !self.listen.ip().is_loopback() {
            tracing::warn!("whoever reaches {} may ask what objects there are; give a --token", self.listen);
        }
        let accounts = self.account.iter().cloned().map(Some).chain([None]).collect();
        let buckets = bucket::all(&accounts, &self.store, &world).await?;
        // Of another part everything is another state.
        let part = self.events.part.unwrap_or(Part::ALL);
        let dir = match part {
            Part::ALL => state.root().join("views"),
            part => state.root().join(format!("views-{}", part.to_string().replace('/', "-of-"))),
        };
        let handling = Handling::start(buckets, dir, &self.events, &self.store, None, &world).await?;
        let handling = Arc::new(handling);
        let reporting = Arc::clone(&handling);
        let report = move || serde_json::to_string(&reporting.report()).unwrap_or_default();
        let views = handling.handler.clone();
        let served = Served { views, report: Report(Arc::new(report)), part, token, tls };
        let server = RemoteServer::start(served, self.listen).await?;
        if self.events.events.is_empty() {
            tracing::warn!(
                "nobody says what happens to objects: views stay as they were listed; name sources with --events"
            );
        }
        println!("{}", server.url());
        stop.asked().await;
        server.stop(ANSWERS_WITHIN).await;
        handling.stop().await;
        Ok(())
    }
}
