//! `tenon serve`: serves a volume by S3, without mounting it.

use crate::bucket::ProcessContext;
use crate::bucket::drives::DrivesOptions;
use crate::bucket::local_buckets::{self, LocalBuckets};
use crate::command::flags::{EndpointFlags, LogFlags, StoreFlags, VolumeFlags};
use crate::endpoint;
use crate::process::allocator;
use crate::process::logging::{self, LogFile};
use crate::serving::open_volume::{self, OpenVolume};
use crate::serving::served_buckets::ServedBuckets;
use crate::serving::served_volume::{self, ServedVolume, StopSignals};
use crate::state::StateDir;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Runtime;

/// Serve a volume by S3, whatever its layout; to mount it as well, use `tenon mount --serve`
///
/// Runs until it is stopped by SIGTERM or Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Volume to serve
    volume: String,
    /// Address to listen on
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
            bail!(
                "--shared is only for `tenon mount`: the endpoint does not coordinate its renames with other machines"
            );
        }
        let volume = Volume::parse(&self.volume)?;
        let at = format!("http://{}", self.listen).into();
        let state = open_volume::lock_state(&volume, at, &[], &self.volume_flags, &self.store)?;
        let log_path = self.log.log_file.as_deref().map(std::path::absolute).transpose();
        let log_path = log_path.context("cannot resolve the log file")?;
        let log = log_path.as_deref().map(LogFile::open).transpose()?;
        logging::start(&self.log, log.clone())?;
        allocator::start_trimming(self.volume_flags.memory_limit);
        let runtime = Runtime::new().context("cannot start")?;
        let is_open = AtomicBool::new(false);
        let ended = runtime.block_on(async {
            let context = ProcessContext::system()?;
            endpoint::check(&self.endpoint)?;
            if matches!(volume, Volume::Drive { .. } | Volume::Directories { .. }) {
                return self.serve_buckets(&volume, (&state, &is_open), log.as_ref(), &context).await;
            }
            let opened =
                OpenVolume::open(&volume, &state, &self.volume_flags, &self.store, false, None, &context)
                    .await?;
            let (memory_limit, at) = (self.volume_flags.memory_limit, (&state, &context));
            let server =
                endpoint::start_volume(&opened, self.listen, &self.endpoint, &self.store, memory_limit, at)
                    .await?;
            println!("{}", server.url());
            is_open.store(true, Ordering::Relaxed);
            let served = ServedVolume::start(opened, Vec::new(), Some(server), &state, log.as_ref()).await?;
            served.run_until_end(self.volume_flags.drain_timeout, log).await
        });
        served_volume::shut_down_runtime(runtime);
        // Release the state directory last: a process that waits for it then finds everything closed.
        if is_open.into_inner() {
            drop(state)
        } else {
            state.abandon()
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Serves buckets that need no namespace: requests go straight to the store.
    async fn serve_buckets(
        &self,
        volume: &Volume,
        (state, is_open): (&StateDir, &AtomicBool),
        log: Option<&LogFile>,
        context: &ProcessContext,
    ) -> Result<()> {
        let mut stop = StopSignals::new()?;
        let options =
            local_buckets::options_within(self.volume_flags.memory_limit, self.volume_flags.read_only);
        let opening = DrivesOptions { options, degraded: self.store.degraded };
        let local = Arc::new(LocalBuckets::open(volume, opening, context).await?);
        // From here on the state directory may hold access keys, so it is kept.
        is_open.store(true, Ordering::Relaxed);
        let (memory_limit, at) = (self.volume_flags.memory_limit, (state, context));
        let server = endpoint::start_buckets(
            local.buckets(),
            self.listen,
            &self.endpoint,
            &self.store,
            memory_limit,
            at,
        )
        .await?;
        let about = (volume.url(), server.url(), self.volume_flags.read_only);
        let control = ServedBuckets::start(local.clone(), about, state.root(), log.map(LogFile::path))?;
        tracing::info!("the buckets of {} are served at {}", volume.url(), server.url());
        println!("{}", server.url());
        stop.wait().await;
        control.mark_ending();
        server.stop(self.volume_flags.drain_timeout.min(served_volume::REQUESTS_TIMEOUT)).await;
        let closed = local.close().await;
        control.stop().await;
        closed
    }
}
