//! `tenon mount`: from a volume and a directory to a mount that answers.
//!
//! Order matters: everything that can be refused without touching anything comes first; the directory is mounted last.

use crate::allocator;
use crate::bucket::{self, World};
use crate::command::format;
use crate::control::client::Client;
use crate::control::protocol::Status;
use crate::daemon;
use crate::endpoint;
use crate::environment;
use crate::flags::{EndpointFlags, LogFlags, MountFlags, StoreFlags, ViewFlags, VolumeFlags};
use crate::logging::{self, LogFile};
use crate::opened::{self, Opened, Wanted};
use crate::serving::{self, Served};
use crate::state::{self, State};
use crate::viewing;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use fuse::MountPointError;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Handle, Runtime};
use views::Ruleset;

/// Threads that read requests from the kernel: one per processor within these bounds. More only adds switching,
/// as nothing waits on them.
const FUSE_THREADS: std::ops::RangeInclusive<usize> = 2..=4;

/// Mount a volume on a directory.
///
/// A volume is s3://bucket[/prefix], file:///dir, or a directory made by `tenon format`. Every flag is also an
/// option for `-o`, fstab and mount(8).
#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// What to mount; with --views it may be left out
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// An empty directory
    #[arg(value_name = "DIR", required_unless_present = "views")]
    mount_point: Option<PathBuf>,
    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    foreground: bool,
    /// Options as mount(8) takes them: key=value,...
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
    /// Serve the volume as objects too, at this address
    #[arg(long, value_name = "ADDR:PORT", help_heading = "S3 endpoint")]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    endpoint: EndpointFlags,
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
        if (self.mount.allow_suid || self.mount.allow_dev) && !rustix::process::geteuid().is_root() {
            bail!("only root may mount with --allow-suid or --allow-dev");
        }
        let ViewFlags { views, events, handler, .. } = &self.views;
        if views.is_none() && (!handler.handler.is_empty() || events.access_events) {
            bail!("--handler and --access-events are for views: add --views FILE");
        }
        if events.part.is_some() {
            bail!("--part is of a handler for many clients: a mount hears of all objects");
        }
        let rulesets = self.views.views.as_deref().map(viewing::read).transpose()?;
        let volume = self.volume(rulesets.as_deref())?;
        if self.volume_flags.shared && !matches!(volume, Volume::S3 { .. }) {
            bail!(
                "--shared is for buckets of a server, which other machines mount too: {} is on this one",
                volume.url()
            );
        }
        let (mount_point, also) = self.mount_points()?;
        self.agrees_with_others(&volume)?;
        let state = opened::take_state(&volume, mount_point.clone(), &also, &self.volume_flags, &self.store)?;
        let mount_points = [vec![mount_point], also].concat();
        let log = self.start_log(&state)?;
        allocator::keep_within(self.volume_flags.memory_limit);
        let runtime = Runtime::new().context("cannot start")?;
        let is_mounted = AtomicBool::new(false);
        let ended = runtime.block_on(async {
            let wanted = Wanted { flags: &self.views, rulesets, top_mode: self.views_mode(&volume) };
            let served =
                self.start(&volume, &mount_points, &state, log.as_ref(), wanted, runtime.handle()).await?;
            is_mounted.store(true, Ordering::Relaxed);
            if let (true, Some(log)) = (self.daemon_child, &log) {
                log.take_stderr().context("cannot log")?;
                daemon::announce()?;
            }
            served.until_the_end(self.volume_flags.drain_timeout, log).await
        });
        if ended.is_err() {
            mount_points.iter().for_each(|mount_point| leave_no_dead_mount(mount_point));
        }
        serving::end(runtime);
        // The last thing that is given up: who waits for it finds everything closed.
        if is_mounted.into_inner() {
            drop(state)
        } else {
            state.abandon()
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// What is mounted: a volume, or the buckets of the rulesets.
    fn volume(&self, rulesets: Option<&[Ruleset]>) -> Result<Volume> {
        match (&self.mount_point, rulesets, &self.views.views) {
            (None, Some(rulesets), Some(file)) => {
                Volume::of_views(file, viewing::containers(rulesets), viewing::accounts(rulesets))
            }
            _ => Volume::parse(&self.volume),
        }
    }

    /// The mode of `.views`. A view shows files without regard to the permissions of the directories that they lie in, so
    /// that users whom these keep out must not get in here unless a flag says so.
    fn views_mode(&self, volume: &Volume) -> Option<u16> {
        let is_closed =
            self.mount.allow_other && !self.views.views_for_all && !opened::is_views_alone(volume);
        is_closed.then_some(0o700)
    }

    /// Where to mount, and where else: no directory lies in another.
    fn mount_points(&self) -> Result<(PathBuf, Vec<PathBuf>)> {
        let check = |path: &Path| match fuse::check_mount_point(path, self.mount.nonempty) {
            Err(MountPointError::Dead(dead)) => {
                take_over(&dead)?;
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
                bail!(
                    "{path} and {other} are one directory, or one lies in the other; mount on directories beside each other"
                );
            }
            also.push(path);
        }
        Ok((mount_point, also))
    }

    /// In the foreground the log is standard error, unless a file is named.
    fn start_log(&self, state: &State) -> Result<Option<LogFile>> {
        let path = match (&self.log.log_file, self.daemon_child) {
            (Some(path), _) => Some(std::path::absolute(path).context("cannot resolve the log file")?),
            (None, true) => Some(state::log_file(state.root())),
            (None, false) => None,
        };
        let file = path.as_deref().map(LogFile::open).transpose()?;
        logging::start(&self.log, file.clone())?;
        Ok(file)
    }

    /// Joins the parts and mounts.
    async fn start(
        &self,
        volume: &Volume,
        mount_points: &[PathBuf],
        state: &State,
        log: Option<&LogFile>,
        wanted: Wanted<'_>,
        runtime: &Handle,
    ) -> Result<Served> {
        let world = World::real()?;
        let is_alone = self.mount.also.is_empty();
        if self.serve.is_some() {
            endpoint::check(&self.endpoint)?;
        }
        let opened =
            Opened::open(volume, state, &self.volume_flags, &self.store, is_alone, Some(wanted), &world)
                .await?;
        let options = self.fuse_options(volume);
        let mount = |at: &PathBuf| fuse::mount(Arc::clone(&opened.fs), at, &options, runtime);
        let sessions = mount_points.iter().map(mount).collect::<Result<Vec<_>, _>>()?;
        let server = match self.serve {
            Some(address) => {
                let (memory_limit, at) = (self.volume_flags.memory_limit, (state, &world));
                Some(endpoint::start(&opened, address, &self.endpoint, &self.store, memory_limit, at).await?)
            }
            None => None,
        };
        if opened.names_only_here {
            say_where_names_are(volume, state.root(), log.is_none());
        }
        Served::start(opened, sessions, server, state, log).await
    }

    /// Mounts of a bucket on this machine are all with `--shared` or all without.
    fn agrees_with_others(&self, volume: &Volume) -> Result<()> {
        let (url, server) = (volume.url(), bucket::endpoint(&self.store));
        let mounts = environment::registry().mounts().into_iter().filter(|mount| mount.holder.volume == url);
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

    fn fuse_options(&self, volume: &Volume) -> fuse::MountOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        fuse::MountOptions {
            source: volume.url(),
            read_only: self.volume_flags.read_only,
            allow_other: self.mount.allow_other,
            no_exec: self.mount.noexec,
            suid: self.mount.allow_suid,
            dev: self.mount.allow_dev,
            locks: if self.volume_flags.shared { fuse::Locks::Refused } else { fuse::Locks::Kernel },
            threads: processors.clamp(*FUSE_THREADS.start(), *FUSE_THREADS.end()),
            is_shared: !self.mount.also.is_empty(),
        }
    }
}

/// Takes the mount of a process that died away, so that fstab and systemd can mount again without a hand.
fn take_over(mount_point: &Path) -> Result<()> {
    if fuse::mounted_at(mount_point).context("cannot read the mount table")?.is_none() {
        bail!("{} lies in a mount that is dead; `tenon umount` that one first", mount_point.display());
    }
    eprintln!("tenon: the mount at {} was dead; it is mounted anew", mount_point.display());
    Ok(fuse::detach(mount_point)?)
}

/// Warns that no bucket shows the names of this volume.
fn say_where_names_are(volume: &Volume, state: &Path, is_log_on_stderr: bool) {
    let warning = format::names_warning(&volume.url(), state);
    tracing::info!("{warning}");
    // Without a log file the line above is on standard error already.
    if !is_log_on_stderr {
        eprintln!("tenon: {warning}");
    }
}

/// After a failure: the mount of a process that ends would refuse everything.
fn leave_no_dead_mount(mount_point: &Path) {
    let is_mounted = matches!(fuse::mounted_at(mount_point), Ok(Some(_)));
    if is_mounted && let Err(error) = fuse::detach(mount_point) {
        tracing::warn!("{error}");
    }
}
