//! `tenon serve`: a volume as objects, without mounting it.

use crate::bucket::World;
use crate::drives::Opening;
use crate::endpoint;
use crate::flags::{EndpointFlags, LogFlags, StoreFlags, VolumeFlags};
use crate::local::{self, Local};
use crate::logging::{self, LogFile};
use crate::opened::{self, Opened};
use crate::serving::{self, Served, Stop};
use crate::state::State;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::runtime::Runtime;

/// Serve a volume by S3, whatever its layout; to have it mounted as well, use `tenon mount --serve`.
///
/// Runs until it is stopped by SIGTERM or Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// What to serve
    volume: String,
    /// Where to listen
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    #[command(flatten)]
    endpoint: EndpointFlags,
    #[command(flatten)]
    volume_flags: VolumeFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.volume_flags.shared {
            bail!("--shared is for mounts: what the endpoint renames is not agreed with other machines");
        }
        let volume = Volume::parse(&self.volume)?;
        let at = format!("http://{}", self.listen).into();
        let state = opened::take_state(&volume, at, &[], &self.volume_flags, &self.store)?;
        let log = self.log.log_file.as_deref().map(LogFile::open).transpose()?;
        logging::start(&self.log, log.clone())?;
        let runtime = Runtime::new().context("cannot start")?;
        let ended = runtime.block_on(async {
            let world = World::real()?;
            if matches!(volume, Volume::Drive { .. } | Volume::Directories { .. }) {
                return self.serve_buckets(&volume, &state, &world).await;
            }
            let opened =
                Opened::open(&volume, &state, &self.volume_flags, &self.store, false, None, &world).await?;
            let server =
                endpoint::start(&opened, self.listen, &self.endpoint, &self.store, &state, &world).await?;
            println!("{}", server.url());
            let served = Served::start(opened, Vec::new(), Some(server), &state).await?;
            served.until_the_end(self.volume_flags.drain_timeout, log).await
        });
        drop(state);
        serving::end(runtime);
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Serves buckets that need no namespace: nothing stands between a request and what stores it.
    async fn serve_buckets(&self, volume: &Volume, state: &State, world: &World) -> Result<()> {
        let mut stop = Stop::new()?;
        let options = local::within(self.volume_flags.memory_limit, self.volume_flags.read_only);
        let opening = Opening { options, degraded: self.store.degraded };
        let local = Local::open(volume, opening, world).await?;
        let server =
            endpoint::over(local.buckets(), self.listen, &self.endpoint, &self.store, state, world).await?;
        tracing::info!("the buckets of {} are at {}", volume.url(), server.url());
        println!("{}", server.url());
        stop.asked().await;
        server.stop(self.volume_flags.drain_timeout.min(serving::LAST_REQUESTS_WITHIN)).await;
        local.close().await
    }
}
