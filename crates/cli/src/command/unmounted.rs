//! Volumes that no process mounts: how commands find and open them.

use crate::bucket::Bucket;
use crate::bucket::credentials::StoreSettings;
use crate::command::flags::StoreFlags;
use crate::metadata::{self, Metadata};
use crate::process::context::ProcessContext;
use crate::volume::Volume;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use store::ObjectStore;
use vfs::{Naming, VolumeRecord};

/// Memory limit of the metadata engine, in bytes.
pub(crate) const MEMORY_BYTES: u64 = 256 << 20;

/// Flags for opening a volume that is not mounted.
#[derive(Debug, Args)]
pub(crate) struct UnmountedFlags {
    /// The state directory given to `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

/// A volume whose bucket this process has open.
pub(crate) struct UnmountedVolume {
    pub(crate) bucket: Bucket,
    pub(crate) record: Option<VolumeRecord>,
    volume: Volume,
    state_root: PathBuf,
    context: ProcessContext,
}

impl UnmountedFlags {
    pub(crate) fn store(&self) -> StoreSettings {
        self.store.settings()
    }

    /// Returns the volume's state directory, which need not exist.
    pub(crate) fn state_root(&self, volume: &Volume) -> PathBuf {
        self.store.settings().state_dir(volume, self.state_dir.as_deref())
    }

    /// Opens the bucket of a volume, and reads the volume's record.
    pub(crate) async fn open(&self, volume: &Volume, read_only: bool) -> Result<UnmountedVolume> {
        let context = ProcessContext::system()?;
        let bucket = Bucket::open(volume, &self.store.settings(), read_only, &context).await?;
        self.with_bucket(volume, bucket, context).await
    }

    /// Like [`UnmountedFlags::open`], with a bucket that is open already.
    pub(crate) async fn with_bucket(
        &self,
        volume: &Volume,
        bucket: Bucket,
        context: ProcessContext,
    ) -> Result<UnmountedVolume> {
        let record = VolumeRecord::read(bucket.store.as_ref(), volume.prefix().as_bytes()).await?;
        let (state_root, volume) = (self.state_root(volume), volume.clone());
        Ok(UnmountedVolume { bucket, record, volume, state_root, context })
    }
}

impl UnmountedVolume {
    /// Fails if the metadata is in a database, for commands that make metadata in a state directory.
    pub(crate) fn require_no_database(&self) -> Result<()> {
        match self.record.as_ref().and_then(|record| record.database.as_ref()) {
            None => Ok(()),
            Some(url) => bail!(
                "the metadata of {} is in the database {url}, not in a state directory",
                self.volume.url()
            ),
        }
    }

    /// Returns whether the names of the volume are only in its metadata.
    pub(crate) fn is_by_inode(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.naming == Naming::Inode)
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.bucket.store.as_ref()
    }

    /// Returns the prefix of all keys of the volume.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.volume.prefix().as_bytes()
    }

    /// Returns the id by which a state directory knows the volume.
    pub(crate) fn id(&self) -> Result<String> {
        metadata::owner_id(&self.volume, self.record.as_ref())
    }

    /// Opens the metadata in the state directory, which the caller must have locked.
    pub(crate) async fn open_metadata(&self) -> Result<Metadata> {
        let (record, root) = (self.record.as_ref(), &self.state_root);
        metadata::open(&self.volume, record, self.store(), root, None, MEMORY_BYTES).await
    }

    /// Returns settings of a file system in which the user of this process owns what has no owner.
    pub(crate) fn config(&self, cache_dir: PathBuf) -> vfs::Config {
        vfs::Config {
            prefix: self.prefix().to_vec(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            ..vfs::Config::new(cache_dir)
        }
    }

    /// Opens the file system of the volume, without a mount.
    pub(crate) fn open_filesystem(
        &self,
        metadata: &Metadata,
        config: vfs::Config,
    ) -> Result<Arc<vfs::Filesystem>> {
        let parts = vfs::Dependencies {
            store: Arc::clone(&self.bucket.store),
            clock: Arc::clone(&self.context.clock),
            entropy: Arc::clone(&self.context.entropy),
            engine: metadata.engine(),
            record: self.record.clone(),
        };
        vfs::Filesystem::mount(parts, config)
            .map_err(|error| anyhow!("cannot use {}: {error}", self.volume.url()))
    }
}
