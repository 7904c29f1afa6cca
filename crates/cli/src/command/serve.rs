//! `tenon serve`: a volume as objects, without mounting it.

use crate::allocator;
use crate::bucket::World;
use crate::drives::Opening;
use crate::endpoint;
use crate::flags::{EndpointFlags, LogFlags, StoreFlags, VolumeFlags};
use crate::local::{self, Local};
use crate::logging::{self, LogFile};
use crate::opened::{self, Opened};
use crate::served_buckets::ServedBuckets;
use crate::serving::{self, Served, Stop};
use crate::state::State;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        let log_path = self.log.log_file.as_deref().map(std::path::absolute).transpose();
        let log_path = log_path.context("cannot resolve the log file")?;
        let log = log_path.as_deref().map(LogFile::open).transpose()?;
        logging::start(&self.log, log.clone())?;
        allocator::keep_within(self.volume_flags.memory_limit);
        let runtime = Runtime::new().context("cannot start")?;
        let is_open = AtomicBool::new(false);
        let ended = runtime.block_on(async {
            let world = World::real()?;
            endpoint::check(&self.endpoint)?;
            if matches!(volume, Volume::Drive { .. } | Volume::Directories { .. }) {
                return self.serve_buckets(&volume, (&state, &is_open), log.as_ref(), &world).await;
            }
            let opened =
                Opened::open(&volume, &state, &self.volume_flags, &self.store, false, None, &world).await?;
            let (memory_limit, at) = (self.volume_flags.memory_limit, (&state, &world));
            let server =
                endpoint::start(&opened, self.listen, &self.endpoint, &self.store, memory_limit, at).await?;
            println!("{}", server.url());
            is_open.store(true, Ordering::Relaxed);
            let served = Served::start(opened, Vec::new(), Some(server), &state, log.as_ref()).await?;
            served.until_the_end(self.volume_flags.drain_timeout, log).await
        });
        serving::end(runtime);
        // The last thing that is given up: who waits for it finds everything closed.
        if is_open.into_inner() {
            drop(state)
        } else {
            state.abandon()
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Serves buckets that need no namespace: nothing stands between a request and what stores it.
    async fn serve_buckets(
        &self,
        volume: &Volume,
        (state, is_open): (&State, &AtomicBool),
        log: Option<&LogFile>,
        world: &World,
    ) -> Result<()> {
        let mut stop = Stop::new()?;
        let options = local::within(self.volume_flags.memory_limit, self.volume_flags.read_only);
        let opening = Opening { options, degraded: self.store.degraded };
        let local = Arc::new(Local::open(volume, opening, world).await?);
        // From here on the state directory may hold keys, and stays.
        is_open.store(true, Ordering::Relaxed);
        let (memory_limit, at) = (self.volume_flags.memory_limit, (state, world));
        let server =
            endpoint::over(local.buckets(), self.listen, &self.endpoint, &self.store, memory_limit, at)
                .await?;
        let about = (volume.url(), server.url(), self.volume_flags.read_only);
        let control = ServedBuckets::start(local.clone(), about, state.root(), log.map(LogFile::path))?;
        tracing::info!("the buckets of {} are at {}", volume.url(), server.url());
        println!("{}", server.url());
        stop.asked().await;
        control.ends();
        server.stop(self.volume_flags.drain_timeout.min(serving::LAST_REQUESTS_WITHIN)).await;
        let closed = local.close().await;
        control.stop().await;
        closed
    }
}
