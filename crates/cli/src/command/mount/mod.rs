//! `tenon mount`: from a volume and a directory to a mount that answers.
//!
//! Order matters: everything that can be refused without touching anything comes first; the state directory is
//! held before the bucket is asked; the directory is mounted last.

mod serving;

use crate::bucket::{self, Bucket, World};
use crate::flags::{Atime, Attributes, Cache, LogFlags, MountFlags, StoreFlags};
use crate::logging::{self, LogFile};
use crate::state::{self, Holder, State};
use crate::volume::Volume;
use crate::{daemon, metadata};
use anyhow::{Context, Result, bail};
use clap::Args;
use serving::Served;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::writeback::WritebackOptions;
use tokio::runtime::Runtime;

/// Threads that read requests from the kernel: one per processor within these bounds. More only adds switching,
/// as nothing waits on them.
const FUSE_THREADS: std::ops::RangeInclusive<usize> = 2..=4;

/// A bucket that takes nothing for so long makes a full log an error of who writes.
const ROOM_WITHIN: Duration = Duration::from_secs(60);

/// Changes that wait may take this share of the memory limit, and take so many bytes each.
const WAITING_MEMORY_SHARE: u64 = 10;
const WAITING_BYTES: u64 = 512;

/// What is written goes up after so long: much is replaced or deleted soon.
const UPLOAD_DELAY: Duration = Duration::from_secs(1);

/// Mount a volume on a directory.
///
/// A volume is s3://bucket[/prefix], file:///dir, or a directory made by `tenon format`. Every flag is also an
/// option for `-o`, fstab and mount(8).
#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// What to mount
    volume: String,
    /// An empty directory
    #[arg(value_name = "DIR")]
    mount_point: PathBuf,
    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    foreground: bool,
    /// Options as mount(8) takes them: key=value,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    _options: Option<String>,
    #[arg(long, hide = true)]
    daemon_child: bool,
    #[command(flatten)]
    mount: MountFlags,
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
        let volume = Volume::parse(&self.volume)?;
        let mount_point = fuse::check_mount_point(&self.mount_point, self.mount.nonempty)?;
        let state = self.take_state(&volume, &mount_point)?;
        let log = self.start_log(&state)?;
        let runtime = Runtime::new().context("cannot start")?;
        let ended = runtime.block_on(async {
            let served = self.start(&volume, &mount_point, &state, runtime.handle()).await?;
            if let (true, Some(log)) = (self.daemon_child, &log) {
                log.take_stderr().context("cannot log")?;
                daemon::announce()?;
            }
            served.until_the_end(self.mount.drain_timeout, log).await
        });
        if ended.is_err() {
            leave_no_dead_mount(&mount_point);
        }
        // Before the runtime, whose end closes the connection that `tenon umount` waits on.
        drop(state);
        // What still runs (a request to a server that hangs) must not keep the process.
        runtime.shutdown_background();
        ended.map(|()| ExitCode::SUCCESS)
    }

    fn take_state(&self, volume: &Volume, mount_point: &Path) -> Result<State> {
        let root = bucket::state_dir(volume, self.mount.state_dir.as_deref(), &self.store);
        let root =
            std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))?;
        let holder =
            Holder { pid: std::process::id(), mount_point: mount_point.to_owned(), volume: volume.url() };
        State::take(&root, &holder)
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
        mount_point: &Path,
        state: &State,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Served> {
        let world = World::real()?;
        let mut bucket = Bucket::open(volume, &self.store, self.mount.read_only, &world).await?;
        let unusable = |error| anyhow::anyhow!("cannot use {}: {error}", volume.url());
        let prefix = volume.prefix().as_bytes();
        let mut record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        if self.mount.writeback {
            let keys_are_used_once = record.as_ref().is_some_and(|found| found.naming == vfs::Naming::Inode);
            let options = self.writeback_options(volume, keys_are_used_once);
            bucket.write_back(&state.writeback_dir(), options, &world)?;
            record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        } else {
            state::nothing_waits(state.root())?;
        }
        let metadata = metadata::open(
            volume,
            record.as_ref(),
            bucket.store.as_ref(),
            state.root(),
            bucket.writeback.as_ref(),
            self.mount.memory_limit,
        )
        .await?;
        let parts = vfs::Parts {
            store: Arc::clone(&bucket.store),
            clock: world.clock,
            entropy: world.entropy,
            engine: metadata.engine.clone(),
            record,
        };
        let config = self.config(volume, state);
        let are_settings_new = metadata::note_settings(state.root(), &config)?;
        let fs = vfs::Filesystem::mount(parts, config).map_err(unusable)?;
        if are_settings_new {
            fs.forget_learned().map_err(unusable)?;
        }
        if !self.mount.read_only {
            fs.recover().await.map_err(unusable)?;
            let imported = fs.import_foreign().await.map_err(unusable)?;
            if !imported.is_empty() {
                tracing::info!("{} objects that somebody else stored are files now", imported.len());
            }
        }
        let session = fuse::mount(Arc::clone(&fs), mount_point, &self.fuse_options(volume), runtime)?;
        Served::start(fs, session, bucket, metadata, volume, state, self.mount.read_only).await
    }

    fn writeback_options(&self, volume: &Volume, keys_are_used_once: bool) -> WritebackOptions {
        let prefix = volume.prefix().as_bytes().to_vec();
        WritebackOptions {
            limit_bytes: self.mount.writeback_limit,
            limit_changes: (self.mount.memory_limit / WAITING_MEMORY_SHARE / WAITING_BYTES) as usize,
            patience: ROOM_WITHIN,
            delay: UPLOAD_DELAY,
            checks_at_once: !keys_are_used_once,
            keys_are_used_once,
            lost: Arc::new(move |key, unique| {
                // A path too long to be kept aside under its name stays where it was, as the newer one.
                vfs::lost_key(&prefix, key, unique).unwrap_or_else(|_| key.clone())
            }),
        }
    }

    fn config(&self, volume: &Volume, state: &State) -> vfs::Config {
        let flags = &self.mount;
        vfs::Config {
            prefix: volume.prefix().as_bytes().to_vec(),
            read_only: flags.read_only,
            uid: flags.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
            gid: flags.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
            file_mode: flags.file_mode,
            dir_mode: flags.dir_mode,
            metadata_ttl: flags.metadata_ttl,
            attributes: match flags.attributes {
                Attributes::Auto => vfs::AttributeSource::Auto,
                Attributes::Headers => vfs::AttributeSource::Headers,
                Attributes::Listing => vfs::AttributeSource::Listing,
            },
            atime: match flags.atime {
                Atime::Strict => vfs::Atime::Strict,
                Atime::Relatime => vfs::Atime::Relatime,
                Atime::Off => vfs::Atime::Off,
            },
            memory_limit_bytes: flags.memory_limit,
            part_size_bytes: flags.part_size,
            page_cache_above: flags.cache == Cache::Full,
            is_uncached: flags.cache == Cache::None,
            write_back: flags.writeback,
            cache_dir: state.cache_dir(),
        }
    }

    fn fuse_options(&self, volume: &Volume) -> fuse::MountOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        fuse::MountOptions {
            source: volume.url(),
            read_only: self.mount.read_only,
            allow_other: self.mount.allow_other,
            no_exec: self.mount.noexec,
            suid: self.mount.allow_suid,
            dev: self.mount.allow_dev,
            threads: processors.clamp(*FUSE_THREADS.start(), *FUSE_THREADS.end()),
        }
    }
}

/// After a failure: the mount of a process that ends would refuse everything.
fn leave_no_dead_mount(mount_point: &Path) {
    let is_mounted = matches!(fuse::mounted_at(mount_point), Ok(Some(_)));
    if is_mounted && let Err(error) = fuse::detach(mount_point) {
        tracing::warn!("{error}");
    }
}
