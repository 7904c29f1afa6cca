//! Volumes inside other programs, without a mount: the language bindings open them by this module.
//!
//! A volume named by path gets a private state directory, so that any number of processes can open it at the same time.
//! Names that are only on this machine can be used by one process at a time: opening such a volume fails with
//! [`OpenError::Busy`] while a mount has it. Such a volume can have batches ([`OpenedVolume::begin_batch`]).
//!
//! Does not start threads of its own, log, or change the process.

use crate::bucket::credentials::StoreSettings;
use crate::bucket::{Bucket, devices};
use crate::command::flags::library::LibraryFlags;
use crate::process::context::ProcessContext;
use crate::process::environment;
use crate::serving::batches::library_batches::BegunBatch;
use crate::serving::batches::{Batches, Unavailable};
use crate::serving::caches::{self, CacheSettings, SharedCacheSettings};
use crate::serving::open_volume::{self, OpenVolume, VolumeSettings};
use crate::state::lock::InUse;
use crate::state::{StateDir, private};
use crate::volume::Volume;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::ObjectStore;

pub use crate::serving::batches::refused_changes::RefusedChange;
pub use batch::Totals as BatchTotals;
pub use meta::BatchId;
pub use store_s3::{Addressing, Credentials};

/// Interval of backups of the metadata, as for mounts.
const BACKUP_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum size of a disk cache in bytes.
pub const DISK_CACHE_BYTES_MIN: u64 = caches::SIZE_BYTES_MIN;

/// Settings for opening a volume. Where they name no server, region or credentials, those of the environment and the AWS files apply.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Access to the bucket.
    pub access: Access,
    /// State directory to use, which one process at a time can open; `None` for the default.
    pub state_dir: Option<PathBuf>,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Limit on metadata and data held in memory, in bytes.
    pub memory_limit_bytes: u64,
    /// How long cached metadata of a name or an object stays valid.
    pub metadata_ttl: Duration,
    /// Whether attributes are read from the headers of every object instead of from listings.
    pub reads_headers: bool,
    /// The caches below memory; `None` for none.
    pub caches: Option<Caches>,
}

/// Caches of bytes that were read, below memory.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Directory of the disk cache, which other processes of the user may share.
    pub dir: PathBuf,
    /// Limit of its size in bytes, at least [`DISK_CACHE_BYTES_MIN`].
    pub limit_bytes: u64,
    /// The cache that machines share; `None` for none.
    pub shared: Option<SharedCache>,
}

/// A bucket as a cache that machines share.
#[derive(Debug, Clone)]
pub struct SharedCache {
    /// URL of the bucket: `s3://bucket[/prefix]`.
    pub url: String,
    /// Profile in the AWS files with its server and credentials; `None` for those of the volume.
    pub profile: Option<String>,
}

/// Access to the bucket of a volume.
#[derive(Debug, Clone)]
pub struct Access {
    /// URL of the server; `None` for AWS or the environment's.
    pub endpoint_url: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Profile in the AWS files.
    pub profile: Option<String>,
    /// Access key, instead of a profile.
    pub credentials: Option<Credentials>,
    /// Whether requests are not signed.
    pub is_anonymous: bool,
    /// Where a URL names the bucket; `None` for the server's default.
    pub addressing: Option<Addressing>,
    /// Certificate authorities to trust in addition to the system's.
    pub ca_bundle: Option<PathBuf>,
    /// How long a failing request is repeated before its error is returned.
    pub retry_timeout: Duration,
}

/// Reasons why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the volume, and only one process can.
    #[error("{0}")]
    Busy(String),
    /// The URL is not one of a volume, or an option is unknown or has an invalid value.
    #[error("{0}")]
    Invalid(String),
    /// Another reason.
    #[error("{0}")]
    Failed(String),
}

/// Errors of batches.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct BatchError {
    errno: i32,
    text: String,
}

/// An open volume. It must be closed with [`OpenedVolume::close`], which stores pending changes.
#[derive(Debug)]
pub struct OpenedVolume {
    opened: OpenVolume,
    state: StateDir,
    /// Whether the state directory is removed at the end.
    is_private: bool,
    batches: Batches,
}

/// The settings by which a volume is opened, once its state directory is known.
type MakeSettings = dyn Fn(&Volume, &StateDir, StoreSettings, bool) -> VolumeSettings + Send + Sync;

impl OpenedVolume {
    /// Opens a volume: `s3://bucket[/prefix]`, `file:///dir`, `drive:///device`, `dirs:///dir`, or the directory of an embedded volume.
    ///
    /// # Errors
    /// The text of an error is one line, without secrets.
    pub async fn open(url: &str, settings: Settings) -> Result<Self, OpenError> {
        let volume = parse(url)?;
        let caches = settings.caches.as_ref().map(cache_settings).transpose()?;
        let (store, state_dir) = (store_settings(&settings.access), settings.state_dir.clone());
        let may_be_private = state_dir.is_none();
        let make_settings =
            move |volume: &Volume, state: &StateDir, store: StoreSettings, is_private: bool| VolumeSettings {
                caches: caches.clone(),
                ..volume_settings(volume, state, settings.clone(), store, is_private)
            };
        Self::open_volume(volume, store, state_dir, may_be_private, &make_settings).await.map_err(open_error)
    }

    /// Opens a volume with options, each `NAME` or `NAME=VALUE`: the flags of `tenon mount` for volumes and object stores, without hyphens at
    /// their beginning. `credentials` take the place of those that the options name.
    ///
    /// # Errors
    /// As for [`OpenedVolume::open`].
    pub async fn open_with_options(
        url: &str,
        options: &[OsString],
        credentials: Option<Credentials>,
    ) -> Result<Self, OpenError> {
        let volume = parse(url)?;
        let LibraryFlags { volume: flags, store } =
            LibraryFlags::parse_options(options).map_err(OpenError::Invalid)?;
        let store = StoreSettings { access_key: credentials, ..store.settings() };
        // The write-back log must outlive the process.
        let may_be_private = flags.state_dir.is_none() && !flags.has_writeback();
        let state_dir = flags.state_dir.clone();
        let make_settings =
            move |volume: &Volume, state: &StateDir, store: StoreSettings, is_private: bool| {
                let mut settings = flags.settings(volume, state, store, false);
                if is_private {
                    (settings.fs.is_shared, settings.fs.atime) = (true, vfs::Atime::Off);
                }
                settings
            };
        Self::open_volume(volume, store, state_dir, may_be_private, &make_settings).await.map_err(open_error)
    }

    async fn open_volume(
        volume: Volume,
        store: StoreSettings,
        state_dir: Option<PathBuf>,
        may_be_private: bool,
        make_settings: &MakeSettings,
    ) -> Result<Self> {
        let context = ProcessContext::system()?;
        let is_private = may_be_private && has_learnable_names(&volume, &store, &context).await?;
        let state = match is_private {
            true => private::make(&volume, &environment::states_dir())?,
            false => {
                let root = store.state_dir(&volume, state_dir.as_deref());
                open_volume::lock_state(&volume, PathBuf::new(), &[], &root)?
            }
        };
        let settings = make_settings(&volume, &state, store, is_private);
        let opened = OpenVolume::open(&volume, &state, settings, None, &context).await?;
        let batches = Batches::of_library(state.root());
        if !opened.read_only {
            batches.clean_up(&opened)?;
        }
        Ok(Self { opened, state, is_private, batches })
    }

    /// Puts a directory into batch mode, or opens its open batch again. `path` is relative to the root of the volume, and must have no
    /// symbolic links.
    pub async fn begin_batch(&self, path: &[u8]) -> Result<OpenedBatch, BatchError> {
        let BegunBatch { id, fs, root, is_resumed } =
            self.batches.begin_in_process(&self.opened, path).await.map_err(batch_error)?;
        Ok(OpenedBatch { fs, root, is_resumed, id })
    }

    /// Verifies a batch and adds its changes to the volume, after pending changes are stored within `patience`. Nothing may use the file system of the
    /// batch any more. After an error, the batch can be begun again, with all its changes.
    pub async fn merge_batch(&self, id: BatchId, patience: Duration) -> Result<MergedBatch, BatchError> {
        let merged = self.batches.merge_in_process(&self.opened, id, patience).await;
        let (accepted, refused) = merged.map_err(batch_error)?;
        Ok(MergedBatch { accepted, refused })
    }

    /// Drops a batch with all its changes. Nothing may use the file system of the batch any more.
    pub async fn discard_batch(&self, id: BatchId) -> Result<(), BatchError> {
        self.batches.discard_in_process(&self.opened, id).await.map_err(batch_error)
    }

    /// Makes a batch durable and closes it. It can be begun again, also by a mount. Nothing may use its file system any more.
    pub async fn suspend_batch(&self, id: BatchId) -> Result<(), BatchError> {
        self.batches.suspend_in_process(id).await.map_err(batch_error)
    }

    /// Returns what was counted in an open batch.
    pub fn batch_totals(&self, id: BatchId) -> BatchTotals {
        self.batches.totals(id).unwrap_or_default()
    }

    /// Returns the first refused change of a merged batch with at least this index; `None` if there is none.
    pub fn next_refused_change(&self, id: BatchId, from: u64) -> Result<Option<RefusedChange>, BatchError> {
        self.batches.next_refused(&self.opened, id, from).map_err(batch_error)
    }

    /// Makes a refused change again on the present names, and removes it from the list of refused changes. Removes and replaces no file.
    pub async fn retry_refused_change(&self, id: BatchId, index: u64) -> Result<(), BatchError> {
        self.batches.retry_refused(&self.opened, id, index).await.map_err(batch_error)
    }

    /// Removes a change from the list of refused changes. A file that keeps its bytes stays.
    pub async fn forget_refused_change(&self, id: BatchId, index: u64) -> Result<(), BatchError> {
        self.batches.forget_refused(&self.opened, id, index).await.map_err(batch_error)
    }

    /// Returns the files of the volume.
    pub fn filesystem(&self) -> &Arc<vfs::Filesystem> {
        &self.opened.fs
    }

    /// Returns the objects of the volume, whose keys are paths.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        vfs::objects(&self.opened.fs, b"")
    }

    /// Returns the URL of the volume, without secrets.
    pub fn url(&self) -> String {
        self.opened.volume.url()
    }

    /// Stores pending changes, within `patience`, and closes the volume.
    pub async fn close(self, patience: Duration) -> Result<()> {
        let Self { opened, state, is_private, batches } = self;
        let suspended = batches.suspend(patience, true).await;
        let outcome = opened.close(patience).await.and(suspended.context("a batch cannot be closed"));
        drop(opened);
        if is_private {
            private::remove(state)?;
        }
        outcome
    }
}

/// A batch that the program uses.
#[derive(Debug)]
pub struct OpenedBatch {
    /// The files of the whole volume, as they are in the batch.
    pub fs: Arc<vfs::Filesystem>,
    /// The directory of the batch. No change outside of it may be made.
    pub root: vfs::Ino,
    /// Whether the batch was open before.
    pub is_resumed: bool,
    /// The id of the batch.
    pub id: BatchId,
}

/// The result of a merge.
#[derive(Debug, Clone, Copy)]
pub struct MergedBatch {
    /// Number of changes that were added.
    pub accepted: u64,
    /// Number of changes that were refused, or added under another name.
    pub refused: u64,
}

impl BatchError {
    /// Returns the errno for programs.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

/// Waits until no metadata engine is open in this process, before its end.
pub fn wait_until_closed() {
    meta_disk::all_are_closed_within(crate::CLOSE_TIMEOUT);
}

fn parse(url: &str) -> Result<Volume, OpenError> {
    Volume::parse(url).map_err(|error| OpenError::Invalid(one_line(&error)))
}

fn open_error(error: anyhow::Error) -> OpenError {
    let text = one_line(&error);
    match error.chain().any(|cause| cause.is::<InUse>()) || devices::is_in_use(&error) {
        true => OpenError::Busy(format!(
            "{text}; or use its files at the mount, or its objects at an S3 endpoint (`tenon mount --serve`)"
        )),
        false => OpenError::Failed(text),
    }
}

fn batch_error(error: anyhow::Error) -> BatchError {
    let errno = error.chain().find_map(|cause| {
        let unavailable = cause.downcast_ref::<Unavailable>().map(Unavailable::errno);
        let fs = || cause.downcast_ref::<vfs::Error>().map(vfs::Error::errno);
        let merge = || cause.downcast_ref::<batch::MergeError>().and_then(merge_errno);
        unavailable.or_else(fs).or_else(merge)
    });
    BatchError { errno: errno.unwrap_or(libc::EIO), text: one_line(&error) }
}

fn merge_errno(error: &batch::MergeError) -> Option<i32> {
    match error {
        batch::MergeError::Busy => Some(libc::EBUSY),
        batch::MergeError::Rejected(batch::Rejected::Quota(_)) => Some(libc::EDQUOT),
        _ => None,
    }
}

fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether the names of a volume are in its bucket or a database, so that each process can learn them for itself.
async fn has_learnable_names(
    volume: &Volume,
    store: &StoreSettings,
    context: &ProcessContext,
) -> Result<bool> {
    if !matches!(volume, Volume::S3 { .. } | Volume::Directory { .. }) {
        return Ok(false);
    }
    let bucket = Bucket::open(volume, store, true, context).await?;
    let record = vfs::VolumeRecord::read(bucket.store.as_ref(), volume.prefix().as_bytes()).await;
    let record = record.with_context(|| format!("cannot use {}", volume.url()))?;
    // A volume named by path whose names are in a database is opened by one process at a time.
    Ok(record.is_none_or(|found| (found.naming == vfs::Naming::Inode) == found.database.is_some()))
}

fn store_settings(access: &Access) -> StoreSettings {
    StoreSettings {
        endpoint_url: access.endpoint_url.clone(),
        region: access.region.clone(),
        profile: access.profile.clone(),
        access_key_file: None,
        access_key: access.credentials.clone(),
        is_anonymous: access.is_anonymous,
        addressing: access.addressing,
        ca_bundle: access.ca_bundle.clone(),
        degraded: false,
        retry_timeout: access.retry_timeout,
    }
}

fn cache_settings(caches: &Caches) -> Result<CacheSettings, OpenError> {
    if caches.limit_bytes < DISK_CACHE_BYTES_MIN {
        return Err(OpenError::Invalid("the disk cache must have at least 256MiB".to_owned()));
    }
    let shared = caches.shared.as_ref().map(|shared| {
        let place = parse(&shared.url)?;
        Ok::<_, OpenError>(SharedCacheSettings { place, profile: shared.profile.clone() })
    });
    let (dir, limit_bytes) = (caches.dir.clone(), caches.limit_bytes);
    Ok(CacheSettings { dir, limit_bytes, shared: shared.transpose()? })
}

fn volume_settings(
    volume: &Volume,
    state: &StateDir,
    settings: Settings,
    store: StoreSettings,
    is_private: bool,
) -> VolumeSettings {
    let attributes = match settings.reads_headers {
        true => vfs::AttributeSource::Headers,
        false => vfs::AttributeSource::Listing,
    };
    let fs = vfs::Config {
        prefix: volume.prefix().as_bytes().to_vec(),
        read_only: settings.read_only,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        metadata_ttl: settings.metadata_ttl,
        attributes,
        atime: vfs::Atime::Off,
        memory_limit_bytes: settings.memory_limit_bytes,
        // Other processes have the volume, too. A rename must be complete when it returns, as its journal is not kept.
        is_shared: is_private,
        moves_path: state.moves_path(),
        ..vfs::Config::new(state.cache_dir())
    };
    VolumeSettings {
        is_strict: false,
        fs,
        store,
        conflicts: None,
        caches: None,
        writeback: None,
        list_interval: Duration::ZERO,
        publish_interval: Duration::ZERO,
        backup_interval: BACKUP_INTERVAL,
    }
}
