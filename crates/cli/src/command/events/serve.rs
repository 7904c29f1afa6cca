//! `tenon events serve`: runs an event handler for many clients.

use crate::bucket::credentials::open_accounts;
use crate::command::flags::endpoint::TlsFlags;
use crate::command::flags::views::EventFlags;
use crate::command::flags::{LogFlags, MetricsFlags, StoreFlags};
use crate::control::holder::Holder;
use crate::endpoint::tls::TlsFiles;
use crate::event_handler::{EventHandler, remote};
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::environment;
use crate::process::logging::{self, LogFile};
use crate::process::signals::StopSignals;
use crate::serving::metrics::{self, MetricsServer};
use crate::state::StateDir;
use anyhow::Result;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use views::part::Part;
use views::remote::{RemoteServer, Report, Served};

/// How long the end waits for answers in progress.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);

/// Run an event handler, which keeps the views of many clients: mounts and commands that name it by --handler.
///
/// Runs until it is stopped by SIGTERM or Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9100")]
    listen: SocketAddr,
    /// File whose first line is the token that clients must present, readable by its owner only (default: any client
    /// may ask)
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
    /// Directory for the lock, the state of objects and the dead letters
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Additional account that rulesets may name: a profile of the AWS files (repeatable)
    #[arg(long, value_name = "PROFILE")]
    account: Vec<String>,
    #[command(flatten)]
    events: EventFlags,
    #[command(flatten)]
    metrics: MetricsFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let log = self.log.start(self.log.absolute_path()?.as_deref())?;
        let state = self.lock_state()?;
        let runtime = process::runtime()?;
        let ended = runtime.block_on(self.serve(&state, log));
        drop(state);
        process::shut_down_runtime(runtime);
        ended.map(|()| ExitCode::SUCCESS)
    }

    fn lock_state(&self) -> Result<StateDir> {
        let own = || environment::states_dir().join(format!("handler-{}", self.listen.port()));
        let dir = self.state_dir.clone().unwrap_or_else(own);
        let holder = Holder {
            pid: std::process::id(),
            mount_point: format!("http://{}", self.listen).into(),
            also: Vec::new(),
            volume: "events".to_owned(),
        };
        StateDir::lock(&dir, &holder)
    }

    async fn serve(&self, state: &StateDir, log: Option<LogFile>) -> Result<()> {
        let context = ProcessContext::system()?;
        let mut stop = StopSignals::new()?;
        logging::reopen_on_hangup(log)?;
        let token = self.token.as_deref().map(remote::read_token).transpose()?;
        let tls = self.tls.files().as_ref().map(TlsFiles::load).transpose()?;
        if token.is_none() && !self.listen.ip().is_loopback() {
            tracing::warn!("every client that reaches {} can list the objects; give a --token", self.listen);
        }
        let accounts = self.account.iter().cloned().map(Some).chain([None]).collect();
        let store = self.store.settings();
        let buckets = open_accounts(&accounts, &store, &context).await?;
        // Each part has a state of its own.
        let settings = self.events.settings();
        let part = settings.part;
        let dir = match part {
            Part::ALL => state.root().join("views"),
            part => state.root().join(format!("views-{}", part.to_string().replace('/', "-of-"))),
        };
        let handling = EventHandler::start(buckets, dir, &settings, &store, None, &context).await?;
        let handling = Arc::new(handling);
        let reporting = Arc::clone(&handling);
        let report = move || serde_json::to_string(&reporting.report()).unwrap_or_default();
        let views = handling.handler.clone();
        let served = Served { views, report: Report(Arc::new(report)), part, token, tls };
        let server = RemoteServer::start(served, self.listen).await?;
        state.name_url(&server.url())?;
        let _metrics = match self.metrics.settings(false).address {
            Some(address) => {
                let reporting = Arc::clone(&handling);
                let collect = move || metrics::collect_handler(reporting.report());
                let served = MetricsServer::start(address, collect).await?;
                tracing::info!("metrics are served at {}", served.url());
                Some(served)
            }
            None => None,
        };
        if settings.feeds.sources.is_empty() {
            tracing::warn!(
                "no event source is named: views stay as they were listed; name sources with --events"
            );
        }
        println!("{}", server.url());
        stop.wait().await;
        server.stop(ANSWERS_TIMEOUT).await;
        handling.stop().await;
        Ok(())
    }
}
