//! `tenon serve`: serves a volume by S3, without mounting it.

use crate::bucket::credentials::StoreSettings;
use crate::bucket::drives::DrivesOptions;
use crate::bucket::local_buckets::{self, LocalBuckets};
use crate::command::flags::console::ConsoleFlags;
use crate::command::flags::endpoint::EndpointFlags;
use crate::command::flags::volume::VolumeFlags;
use crate::command::flags::{LogFlags, MetricsFlags, StoreFlags, TraceFlags};
use crate::endpoint::{self, EndpointSettings};
use crate::metadata;
use crate::process;
use crate::process::allocator;
use crate::process::context::ProcessContext;
use crate::process::logging::{self, LogFile};
use crate::process::signals::StopSignals;
use crate::serving::batches::{BatchAccess, Batches};
use crate::serving::console::{ConsoleParts, ConsoleSettings};
use crate::serving::metrics::MetricsSettings;
use crate::serving::open_volume::{self, OpenVolume};
use crate::serving::served_buckets::ServedBuckets;
use crate::serving::served_volume::{self, ServedVolume};
use crate::serving::trace_export::{TraceExport, TraceExportSettings, TracedVolume};
use crate::state::StateDir;
use crate::volume::Volume;
use anyhow::{Result, bail};
use clap::Args;
use s3::Server;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Settings of what shows the requests of a process: metrics, traces and console.
type ShownSettings = (MetricsSettings, Option<TraceExportSettings>, Option<ConsoleSettings>);

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
    console: ConsoleFlags,
    #[command(flatten)]
    volume_flags: VolumeFlags,
    #[command(flatten)]
    metrics: MetricsFlags,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.volume_flags.shared {
            bail!(
                "--shared is only for `tenon mount`: the endpoint does not coordinate its renames with other machines; leave --shared out"
            );
        }
        let volume = Volume::parse(&self.volume)?;
        let (store, at) = (self.store.settings(), format!("http://{}", self.listen).into());
        let root = store.state_dir(&volume, self.volume_flags.state_dir.as_deref());
        let state = open_volume::lock_state(&volume, at, &[], &root)?;
        let log = self.log.start(self.log.absolute_path()?.as_deref())?;
        allocator::start_trimming(self.volume_flags.memory_limit);
        let runtime = process::runtime()?;
        let is_open = AtomicBool::new(false);
        let ended = runtime.block_on(self.serve(&volume, store, (&state, &is_open), log));
        process::shut_down_runtime(runtime);
        // Release the state directory last: a process that waits for it then finds everything closed.
        if is_open.into_inner() {
            drop(state)
        } else {
            let has_names = metadata::is_state_directory(state.root());
            state.abandon(has_names)
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Serves the volume until the process is stopped. Sets `is_open` once the state directory holds something to keep.
    async fn serve(
        &self,
        volume: &Volume,
        store: StoreSettings,
        (state, is_open): (&StateDir, &AtomicBool),
        log: Option<LogFile>,
    ) -> Result<()> {
        let context = ProcessContext::system()?;
        let console = self.console.settings(&self.endpoint.tls)?;
        let (memory_limit, metrics) =
            (self.volume_flags.memory_limit, self.metrics.settings(console.is_some()));
        let ca_bundle = store.ca_bundle.clone();
        let traces = self.traces.settings(ca_bundle.clone())?;
        let endpoint = self.endpoint.settings(self.listen, ca_bundle, memory_limit, metrics.endpoint.clone());
        endpoint.check()?;
        if matches!(volume, Volume::Drive { .. } | Volume::Directories { .. }) {
            let opening = self.drives_options(&store);
            let shown = (metrics, traces, console);
            return self
                .serve_buckets(volume, opening, (&endpoint, shown), (state, is_open), log.as_ref(), &context)
                .await;
        }
        let bucket_name = self.endpoint.bucket_name(volume)?;
        let settings = self.volume_flags.settings(volume, state, store, false);
        let opened = OpenVolume::open(volume, state, settings, None, &context).await?;
        let served = opened.open_endpoint(bucket_name.clone(), &endpoint, state, &context)?;
        let console = console.map(|settings| ConsoleParts {
            settings,
            endpoint: served.clone(),
            context: context.clone(),
        });
        let server = opened.start_endpoint(served, bucket_name.as_deref(), &endpoint).await?;
        state.name_url(&server.url())?;
        println!("{}", server.url());
        is_open.store(true, Ordering::Relaxed);
        let served = ServedVolume::start(
            opened,
            Vec::new(),
            Some(server),
            state,
            Batches::new(state.root(), BatchAccess::Refused, Duration::ZERO),
            log.as_ref(),
            (metrics, console),
        )
        .await?;
        if let Some(traces) = traces {
            served.export_traces(traces, &context)?;
        }
        served.run_until_end(self.volume_flags.drain_timeout, log).await
    }

    fn drives_options(&self, store: &StoreSettings) -> DrivesOptions {
        let VolumeFlags { memory_limit, read_only, .. } = self.volume_flags;
        let options = local_buckets::options_within(memory_limit, read_only);
        DrivesOptions { options, degraded: store.degraded }
    }

    /// Serves buckets that need no namespace: requests go straight to the store.
    async fn serve_buckets(
        &self,
        volume: &Volume,
        opening: DrivesOptions,
        (endpoint, (metrics, traces, console)): (&EndpointSettings, ShownSettings),
        (state, is_open): (&StateDir, &AtomicBool),
        log: Option<&LogFile>,
        context: &ProcessContext,
    ) -> Result<()> {
        let mut stop = StopSignals::new()?;
        logging::reopen_on_hangup(log.cloned())?;
        let local = Arc::new(LocalBuckets::open(volume, opening, context).await?);
        // From here on the state directory may hold access keys, so it is kept.
        is_open.store(true, Ordering::Relaxed);
        let served = endpoint::open(local.buckets(), endpoint, state.root(), context)?;
        let console = console.map(|settings| ConsoleParts {
            settings,
            endpoint: served.clone(),
            context: context.clone(),
        });
        let server = endpoint::start(served, endpoint).await?;
        state.name_url(&server.url())?;
        let traces = match traces {
            Some(settings) => Some(Arc::new(export_traces(settings, volume, &server, context)?)),
            None => None,
        };
        let about = (volume.url(), &server, self.volume_flags.read_only);
        let (log, shown) = (log.map(LogFile::path), (metrics, traces.clone(), console));
        let control = ServedBuckets::start(local.clone(), about, state.root(), log, shown).await?;
        tracing::info!("the buckets of {} are served at {}", volume.url(), server.url());
        println!("{}", server.url());
        stop.wait().await;
        control.mark_ending();
        let patience = self.volume_flags.drain_timeout.min(served_volume::REQUESTS_TIMEOUT);
        control.stop_console(patience).await;
        server.stop(patience).await;
        if let Some(traces) = traces {
            traces.close().await;
        }
        let closed = local.close().await;
        control.stop().await;
        closed
    }
}

/// Begins to export traces of the requests of S3 clients.
fn export_traces(
    settings: TraceExportSettings,
    volume: &Volume,
    server: &Server,
    context: &ProcessContext,
) -> Result<TraceExport> {
    let volume =
        TracedVolume { volume: volume.url(), mount_points: Vec::new(), endpoint: Some(server.url()) };
    let traces = TraceExport::start(settings, &volume, context)?;
    traces.observe_endpoint(server.endpoint());
    Ok(traces)
}
