//! `tenon mount`: mounts a volume on a directory.
//!
//! Order matters: checks that can refuse without side effects come first. The directory is mounted after the volume
//! has been opened; the endpoint and the control socket are opened after that.

use crate::bucket::credentials::StoreSettings;
use crate::command::flags::console::ConsoleFlags;
use crate::command::flags::endpoint::EndpointFlags;
use crate::command::flags::views::ViewFlags;
use crate::command::flags::volume::{Coherence, MountFlags, VolumeFlags};
use crate::command::flags::{LogFlags, MetricsFlags, StoreFlags, TraceFlags};
use crate::control::client::Client;
use crate::control::protocol::Status;
use crate::endpoint::EndpointSettings;
use crate::metadata::{self, Metadata};
use crate::mounted_views::{self, HandlerChoice};
use crate::process;
use crate::process::allocator;
use crate::process::context::ProcessContext;
use crate::process::daemon;
use crate::process::logging::LogFile;
use crate::serving::batches::{BatchAccess, Batches};
use crate::serving::console::{ConsoleParts, ConsoleSettings};
use crate::serving::metrics::MetricsSettings;
use crate::serving::open_volume::{self, OpenVolume, ViewSettings};
use crate::serving::served_volume::{ProgressFiles, ServedVolume};
use crate::state::registry::Registry;
use crate::state::{self, StateDir};
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use fuse::{MountPointError, VirtualFiles};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use views::Ruleset;

/// Threads that read requests from the kernel: one per processor, within these bounds. More threads only add context
/// switches, as they do not wait for answers of the store.
const FUSE_THREADS: std::ops::RangeInclusive<usize> = 2..=4;

/// Threads that read requests from the kernel if the metadata is in a database: they wait for its answers.
const FUSE_THREADS_WITH_DATABASE: usize = 32;

/// Mount a volume on a directory.
///
/// A volume is s3://bucket[/prefix], file:///dir, drive:///device, dirs:///dir (each directory below is a bucket), or a directory made by
/// `tenon format`. Every flag is also an
/// option for `-o`, fstab and mount(8).
#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// Volume to mount; may be left out with --views
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Directory to mount on; it must be empty unless --nonempty is given
    #[arg(value_name = "DIR", required_unless_present = "views")]
    mount_point: Option<PathBuf>,
    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    foreground: bool,
    /// Options in the form of mount(8): key=value,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    _options: Option<String>,
    #[arg(long, hide = true)]
    daemon_child: bool,
    #[command(flatten)]
    volume_flags: VolumeFlags,
    #[command(flatten)]
    mount: MountFlags,
    #[command(flatten)]
    views: ViewFlags,
    /// Serve the volume by S3 too, at this address
    #[arg(long, value_name = "ADDR:PORT", help_heading = "S3 endpoint")]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    endpoint: EndpointFlags,
    #[command(flatten)]
    console: ConsoleFlags,
    #[command(flatten)]
    metrics: MetricsFlags,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Mount {
    pub(crate) fn run(self, argv: &[OsString]) -> Result<ExitCode> {
        if !self.foreground && !self.daemon_child {
            return daemon::start(argv);
        }
        if self.daemon_child {
            daemon::detach()?;
        }
        self.check_flags()?;
        let rulesets = self.views.views.as_deref().map(mounted_views::read_rulesets).transpose()?;
        let volume = self.volume(rulesets.as_deref())?;
        self.check_can_be_shared(&volume)?;
        let (mount_point, also) = self.mount_points()?;
        self.check_other_mounts(&volume)?;
        let root = self.store.settings().state_dir(&volume, self.volume_flags.state_dir.as_deref());
        let state = open_volume::lock_state(&volume, mount_point.clone(), &also, &root)?;
        let mount_points = [vec![mount_point], also].concat();
        let log = self.start_log(&state)?;
        allocator::start_trimming(self.volume_flags.memory_limit);
        let runtime = process::runtime()?;
        let is_mounted = AtomicBool::new(false);
        let ended = runtime.block_on(async {
            let views = self.view_settings(rulesets, &volume);
            let served = self.start(&volume, &mount_points, &state, log.as_ref(), views).await?;
            is_mounted.store(true, Ordering::Relaxed);
            if let (true, Some(log)) = (self.daemon_child, &log) {
                log.redirect_stderr().context("cannot log")?;
                daemon::announce()?;
            }
            served.run_until_end(self.volume_flags.drain_timeout, log).await
        });
        if ended.is_err() {
            mount_points.iter().for_each(|mount_point| detach_failed_mount(mount_point));
        }
        process::shut_down_runtime(runtime);
        // Release the state directory last: a process that waits for it then finds everything closed.
        if is_mounted.into_inner() {
            drop(state)
        } else {
            let has_names = metadata::is_state_directory(state.root());
            state.abandon(has_names)
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Fails if flags contradict each other, or are not for this user.
    fn check_flags(&self) -> Result<()> {
        if (self.mount.allow_suid || self.mount.allow_dev) && !rustix::process::geteuid().is_root() {
            bail!("only root may mount with --allow-suid or --allow-dev; run as root, or leave them out");
        }
        let ViewFlags { views, events, handler, .. } = &self.views;
        if views.is_none() && (!handler.handler.is_empty() || events.access_events) {
            bail!("--handler and --access-events need --views FILE");
        }
        if events.part.is_some() {
            bail!("--part is only for `tenon events serve`: a mount handles all objects; leave --part out");
        }
        Ok(())
    }

    /// Fails if `--shared` is given for a volume that only this machine can mount.
    fn check_can_be_shared(&self, volume: &Volume) -> Result<()> {
        if self.volume_flags.shared && !matches!(volume, Volume::S3 { .. }) {
            bail!(
                "--shared needs a bucket on a server, which other machines can mount too: {} is on this machine; leave --shared out",
                volume.url()
            );
        }
        Ok(())
    }

    /// Returns the volume to mount: the given one, or the buckets that the rulesets name.
    fn volume(&self, rulesets: Option<&[Ruleset]>) -> Result<Volume> {
        match (&self.mount_point, rulesets, &self.views.views) {
            (None, Some(rulesets), Some(file)) => Volume::for_views(
                file,
                mounted_views::containers(rulesets),
                mounted_views::accounts(rulesets),
            ),
            _ => Volume::parse(&self.volume),
        }
    }

    fn view_settings(&self, rulesets: Option<Vec<Ruleset>>, volume: &Volume) -> ViewSettings {
        let handler = match self.views.handler.handler.is_empty() {
            true => HandlerChoice::Own(self.views.events.settings()),
            false => HandlerChoice::Remote(self.views.handler.settings()),
        };
        let (feeds, top_mode) = (self.views.events.feeds(), self.views_mode(volume));
        ViewSettings { feeds, rulesets, handler, top_mode }
    }

    /// Returns the mode of `.views` if it is not the default. A view shows files regardless of the permissions of the directories that contain
    /// them, so users whom these exclude must not get in unless a flag allows it.
    fn views_mode(&self, volume: &Volume) -> Option<u16> {
        let is_closed =
            self.mount.allow_other && !self.views.views_for_all && !open_volume::is_views_alone(volume);
        is_closed.then_some(0o700)
    }

    /// Returns the mount point and the further mount points. Detaches dead mounts there. Fails if one of them contains another, or cannot be
    /// mounted on.
    fn mount_points(&self) -> Result<(PathBuf, Vec<PathBuf>)> {
        let check = |path: &Path| match fuse::check_mount_point(path, self.mount.nonempty) {
            Err(MountPointError::Dead(dead)) => {
                detach_dead_mount(&dead)?;
                Ok(fuse::check_mount_point(path, self.mount.nonempty)?)
            }
            checked => anyhow::Ok(checked?),
        };
        let mount_point = check(self.mount_point.as_deref().unwrap_or(Path::new(&self.volume)))?;
        let mut also: Vec<PathBuf> = Vec::new();
        for path in &self.mount.also {
            let path = check(path)?;
            let overlaps = |other: &&PathBuf| path.starts_with(other) || other.starts_with(&path);
            if let Some(other) = [&mount_point].into_iter().chain(&also).find(overlaps) {
                let (path, other) = (path.display(), other.display());
                bail!("{path} and {other} overlap; mount on directories of which none contains another");
            }
            also.push(path);
        }
        Ok((mount_point, also))
    }

    /// Starts logging. In the foreground the log is standard error, unless a file is named.
    fn start_log(&self, state: &StateDir) -> Result<Option<LogFile>> {
        let default = self.daemon_child.then(|| state::log_file(state.root()));
        self.log.start(self.log.absolute_path()?.or(default).as_deref())
    }

    /// Opens the volume, mounts it, and starts what the flags ask for: S3 endpoint, console, metrics and a batch.
    async fn start(
        &self,
        volume: &Volume,
        mount_points: &[PathBuf],
        state: &StateDir,
        log: Option<&LogFile>,
        view_settings: ViewSettings,
    ) -> Result<ServedVolume> {
        let (context, store) = (ProcessContext::system()?, self.store.settings());
        let console = self.console.settings(&self.endpoint.tls)?;
        let traces = self.traces.settings(store.ca_bundle.clone())?;
        let metrics = self.metrics.settings(console.is_some());
        let endpoint = self.endpoint_settings(console.as_ref(), &store, &metrics);
        let bucket_name = match &endpoint {
            Some(endpoint) => {
                endpoint.check()?;
                self.endpoint.bucket_name(volume)?
            }
            None => None,
        };
        let has_page_cache =
            self.mount.also.is_empty() && self.volume_flags.coherence == Coherence::CloseToOpen;
        let settings = self.volume_flags.settings(volume, state, store, has_page_cache);
        let opened = OpenVolume::open(volume, state, settings, Some(view_settings), &context).await?;
        let progress_files = Arc::new(ProgressFiles::default());
        let options = fuse::MountOptions {
            virtual_files: Some(Arc::clone(&progress_files) as Arc<dyn VirtualFiles>),
            ..self.fuse_options(volume, &opened.metadata)
        };
        let runtime = Handle::current();
        let mount = |at: &PathBuf| fuse::mount(Arc::clone(&opened.fs), at, &options, &runtime);
        let sessions = mount_points.iter().map(mount).collect::<Result<Vec<_>, _>>()?;
        let (mut server, mut shown) = (None, None);
        if let Some(endpoint) = &endpoint {
            let served = opened.open_endpoint(bucket_name.clone(), endpoint, state, &context)?;
            shown = console.map(|settings| ConsoleParts {
                settings,
                endpoint: served.clone(),
                context: context.clone(),
            });
            if self.serve.is_some() {
                server = Some(opened.start_endpoint(served, bucket_name.as_deref(), endpoint).await?);
            }
        }
        if opened.names_only_here {
            warn_of_local_names(volume, state.root(), log.is_none());
        }
        let batches =
            Batches::new(state.root(), BatchAccess::Mount(Box::new(options)), self.mount.batch_expiry);
        let shown = (metrics, shown);
        let served = ServedVolume::start(opened, sessions, server, state, batches, log, shown).await?;
        served.show_progress(&progress_files);
        if let Some(traces) = traces {
            served.export_traces(traces, &context)?;
        }
        if let Some(subtree) = &self.mount.batch {
            let begun = served.begin_batch(subtree).await;
            begun.with_context(|| format!("--batch {}", subtree.display()))?;
        }
        Ok(served)
    }

    /// Returns the settings of the endpoint of `--serve`. The console accesses objects through an endpoint: without `--serve`, one is opened
    /// for the console alone, and listens at no address.
    fn endpoint_settings(
        &self,
        console: Option<&ConsoleSettings>,
        store: &StoreSettings,
        metrics: &MetricsSettings,
    ) -> Option<EndpointSettings> {
        let address = self.serve.or(console.map(|console| console.address))?;
        let memory_limit = self.volume_flags.memory_limit;
        Some(self.endpoint.settings(address, store.ca_bundle.clone(), memory_limit, metrics.endpoint.clone()))
    }

    /// Fails if `--shared` is given and the bucket is mounted without it on this machine, or the reverse.
    fn check_other_mounts(&self, volume: &Volume) -> Result<()> {
        let (url, server) = (volume.url(), self.store.settings().endpoint());
        let mounts = Registry::of_user().mounts().into_iter().filter(|mount| mount.holder.volume == url);
        let others = mounts.filter_map(|mount| Client::connect(&mount).ok()?.status().ok());
        let differs = |other: &Status| {
            !other.ending && other.server == server && other.shared != self.volume_flags.shared
        };
        let places: Vec<String> = others.filter(differs).map(|other| other.mount_point).collect();
        let at = places.join(" and ");
        match (places.is_empty(), self.volume_flags.shared) {
            (true, _) => Ok(()),
            (false, false) => {
                bail!("{url} is mounted with --shared at {at}: mount it with --shared here, too")
            }
            (false, true) => {
                bail!(
                    "{url} is mounted without --shared at {at}: unmount it there, or leave --shared out here"
                )
            }
        }
    }

    fn fuse_options(&self, volume: &Volume, metadata: &Metadata) -> fuse::MountOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match metadata {
            Metadata::Disk(_) => processors.clamp(*FUSE_THREADS.start(), *FUSE_THREADS.end()),
            Metadata::Database(_) => FUSE_THREADS_WITH_DATABASE,
        };
        let is_shared_engine = metadata.engine().is_shared();
        // No kernel cache can be dropped before another machine's call returns: the kernel may hold a lock for a call that waits itself.
        let is_strict = is_shared_engine && self.volume_flags.coherence == Coherence::Strict;
        fuse::MountOptions {
            source: volume.url(),
            root: vfs::Ino::ROOT,
            read_only: self.volume_flags.read_only,
            allow_other: self.mount.allow_other,
            no_exec: self.mount.noexec,
            suid: self.mount.allow_suid,
            dev: self.mount.allow_dev,
            locks: match self.volume_flags.shared {
                true => fuse::Locks::Refused,
                false if is_shared_engine => fuse::Locks::FileSystem,
                false => fuse::Locks::Kernel,
            },
            threads,
            is_shared: !self.mount.also.is_empty() || is_strict,
            virtual_files: None,
        }
    }
}

/// Detaches the mount of a process that died, so that fstab and systemd can mount again without manual help.
fn detach_dead_mount(mount_point: &Path) -> Result<()> {
    if fuse::mounted_at(mount_point).context("cannot read the mount table")?.is_none() {
        bail!("{} is inside a dead mount; `tenon umount` that mount first", mount_point.display());
    }
    eprintln!("tenon: the mount at {} was dead; mounting again", mount_point.display());
    Ok(fuse::detach(mount_point)?)
}

/// Warns that only this machine has the names of this volume.
fn warn_of_local_names(volume: &Volume, state: &Path, is_log_on_stderr: bool) {
    let warning = metadata::names_warning(&volume.url(), state);
    tracing::info!("{warning}");
    // Without a log file the line above went to standard error already.
    if !is_log_on_stderr {
        eprintln!("tenon: {warning}");
    }
}

/// Detaches a mount after a failure: the mount of a process that ended would refuse every request.
fn detach_failed_mount(mount_point: &Path) {
    let is_mounted = matches!(fuse::mounted_at(mount_point), Ok(Some(_)));
    if is_mounted && let Err(error) = fuse::detach(mount_point) {
        tracing::warn!("{error}");
    }
}
