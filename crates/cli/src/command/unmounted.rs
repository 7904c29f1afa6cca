//! Volumes that no process mounts: how commands find and open them.

use crate::bucket::Bucket;
use crate::bucket::credentials::StoreSettings;
use crate::command::flags::StoreFlags;
use crate::metadata::{self, Metadata, Use};
use crate::process::context::ProcessContext;
use crate::state;
use crate::volume::Volume;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use store::ObjectStore;
use vfs::{Naming, VolumeRecord};

/// Memory limit of the metadata engine and of the file system that a command opens, in bytes.
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

    /// Reads the volume's record in a bucket that is open already, and returns both as [`UnmountedFlags::open`] does.
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
    /// Returns the URL of the database that has the metadata, if one has it.
    fn database(&self) -> Option<&str> {
        self.record.as_ref()?.database.as_deref()
    }

    /// Returns whether there is metadata: in a database, or in the state directory because a process of this machine has
    /// mounted the volume.
    pub(crate) fn has_metadata(&self) -> bool {
        self.database().is_some() || metadata::exists_in(&self.state_root)
    }

    /// Makes the state directory if it is missing, and locks it for this command. Also a volume in a database needs it: the
    /// database knows this machine by a name in it.
    pub(crate) fn lock_state(&self) -> Result<File> {
        state::create_private_dir(&self.state_root)?;
        state::lock_for_command(&self.state_root, &self.volume)
    }

    /// Fails if the metadata is in a database, for commands that make metadata in a state directory.
    pub(crate) fn require_no_database(&self) -> Result<()> {
        match self.database() {
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

    /// Returns what determines the keys of the volume.
    pub(crate) fn key_space(&self) -> vfs::KeySpace<'_> {
        let (record, joins_buckets) = (self.record.as_ref(), self.volume.is_buckets());
        vfs::KeySpace { prefix: self.prefix(), record, joins_buckets }
    }

    /// Returns the id by which a state directory knows the volume.
    pub(crate) fn id(&self) -> Result<String> {
        metadata::owner_id(&self.volume, self.record.as_ref())
    }

    /// Opens the metadata in the state directory, which the caller must have locked.
    pub(crate) async fn open_metadata(&self) -> Result<Metadata> {
        let (record, root) = (self.record.as_ref(), &self.state_root);
        metadata::open(&self.volume, record, self.store(), root, None, MEMORY_BYTES, Use::Command).await
    }

    /// Returns settings of a file system in which the user of this process owns what has no owner.
    pub(crate) fn config(&self, cache_dir: PathBuf) -> vfs::Config {
        vfs::Config {
            prefix: self.prefix().to_vec(),
            joins_buckets: self.volume.is_buckets(),
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
