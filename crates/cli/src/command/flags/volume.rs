//! Flags for opening and mounting a volume.

use crate::bucket::credentials::StoreSettings;
use crate::command::units;
use crate::serving::caches::{self, CacheSettings, SharedCacheSettings};
use crate::serving::open_volume::{VolumeSettings, WritebackSettings};
use crate::state::StateDir;
use crate::volume::Volume;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flags for opening a volume.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct VolumeFlags {
    /// Directory for the lock, the control socket, the log and the cache
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Limit on metadata and data held in memory; a mounted drive takes half of it
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory_limit)]
    pub(crate) memory_limit: u64,
    /// How long cached metadata of a name or an object stays valid
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration)]
    pub(crate) metadata_ttl: Duration,
    /// Rate of background LIST requests that compare known names with the bucket; 0 turns them off
    #[arg(long, value_name = "RATE", default_value = "6/m", value_parser = units::interval)]
    pub(crate) list_budget: Duration,
    /// Time after which changes of an open file are stored, so that other clients see it grow; 0: only at fsync and
    /// close
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    pub(crate) publish_interval: Duration,
    /// Source of attributes: object headers (exact) or listings (fast)
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) attributes: Attributes,
    /// When reads update access times
    #[arg(long, value_name = "WHEN", default_value = "relatime")]
    pub(crate) atime: Atime,
    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Owner of objects without owner metadata (default: the mounting user)
    #[arg(long)]
    pub(crate) uid: Option<u32>,
    /// Group of objects without group metadata (default: the mounting user's group)
    #[arg(long)]
    pub(crate) gid: Option<u32>,
    /// Permissions of objects without mode metadata
    #[arg(long, value_name = "OCTAL", default_value = "644", value_parser = units::mode)]
    pub(crate) file_mode: u16,
    /// Permissions of directories without mode metadata
    #[arg(long, value_name = "OCTAL", default_value = "755", value_parser = units::mode)]
    pub(crate) dir_mode: u16,
    /// Size of the first parts of a multipart upload; later parts are larger
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = part_size)]
    pub(crate) part_size: u64,
    /// Data to cache between programs and the bucket
    #[arg(long, value_name = "KIND", default_value = "full", value_enum)]
    pub(crate) cache: Cache,
    /// Directory on a local disk for a cache of bytes that were read; it outlives the mount, and mounts may share it
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Size of the disk cache above which what was used longest ago is deleted
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = cache_size)]
    pub(crate) cache_size: u64,
    /// Bucket near the machines for a cache that they share, below the disk cache
    #[arg(long, value_name = "s3://BUCKET[/PREFIX]", requires = "cache_dir", value_parser = shared_cache)]
    shared_cache: Option<Volume>,
    /// Profile in the AWS files with the server and credentials of the shared cache (default: those of the volume)
    #[arg(long, value_name = "NAME", requires = "shared_cache")]
    shared_cache_profile: Option<String>,
    /// Coordinate, by objects in the bucket, with other machines that mount it with --shared too; file locks are
    /// refused
    #[arg(long, conflicts_with = "writeback")]
    pub(crate) shared: bool,
    /// Coherence with other machines, if the metadata is in a database
    #[arg(long, value_name = "KIND", default_value = "close-to-open", value_enum)]
    pub(crate) coherence: Coherence,
    /// Acknowledge writes once they are in a log on the local disk, and upload them in the background
    ///
    /// With --read-only, changes already in the log are still uploaded, as they were acknowledged; programs cannot
    /// change anything.
    #[arg(long)]
    writeback: bool,
    /// Size of the write-back log above which writers wait
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = units::size_bytes)]
    pub(crate) writeback_limit: u64,
    /// Mount although disk damage destroyed names in the write-back log; the names from before the damage are used
    #[arg(long, requires = "writeback")]
    pub(crate) accept_lost_names: bool,
    /// Interval of backups of the metadata to the bucket, below .tenon/metadata/; 0 turns them off
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub(crate) metadata_backup: Duration,
    /// Which side keeps the name when an object changes in the bucket while its file is written here; stored in the
    /// volume
    #[arg(long, value_name = "POLICY")]
    pub(crate) conflict: Option<Conflict>,
    /// How long to wait for uploads after a termination signal
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
}

impl VolumeFlags {
    /// Returns the settings for opening a volume. `has_page_cache` says whether the kernel may cache what is read.
    pub(crate) fn settings(
        &self,
        volume: &Volume,
        state: &StateDir,
        store: StoreSettings,
        has_page_cache: bool,
    ) -> VolumeSettings {
        let writeback = WritebackSettings {
            limit_bytes: self.writeback_limit,
            accepts_lost_names: self.accept_lost_names,
        };
        VolumeSettings {
            fs: self.filesystem_config(volume, state, has_page_cache),
            store,
            conflicts: self.conflict.map(Into::into),
            caches: self.cache_dir.as_ref().map(|dir| self.caches(dir)),
            writeback: self.writeback.then_some(writeback),
            list_interval: self.list_budget,
            publish_interval: self.publish_interval,
            backup_interval: self.metadata_backup,
            is_strict: self.coherence == Coherence::Strict,
        }
    }

    fn caches(&self, dir: &Path) -> CacheSettings {
        let shared = |place: &Volume| SharedCacheSettings {
            place: place.clone(),
            profile: self.shared_cache_profile.clone(),
        };
        CacheSettings {
            dir: dir.to_owned(),
            limit_bytes: self.cache_size,
            shared: self.shared_cache.as_ref().map(shared),
        }
    }

    /// Returns whether the volume is opened with a write-back log.
    pub(crate) fn has_writeback(&self) -> bool {
        self.writeback
    }

    fn filesystem_config(&self, volume: &Volume, state: &StateDir, has_page_cache: bool) -> vfs::Config {
        vfs::Config {
            prefix: volume.prefix().as_bytes().to_vec(),
            joins_buckets: volume.is_buckets(),
            read_only: self.read_only,
            uid: self.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
            gid: self.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
            file_mode: self.file_mode,
            dir_mode: self.dir_mode,
            metadata_ttl: self.metadata_ttl,
            attributes: match self.attributes {
                // It is not known in which of several buckets Tenon has written.
                Attributes::Auto if volume.is_buckets() => vfs::AttributeSource::Listing,
                Attributes::Auto => vfs::AttributeSource::Auto,
                Attributes::Headers => vfs::AttributeSource::Headers,
                Attributes::Listing => vfs::AttributeSource::Listing,
            },
            atime: match self.atime {
                Atime::Strict => vfs::Atime::Strict,
                Atime::Relatime => vfs::Atime::Relatime,
                Atime::Off => vfs::Atime::Off,
            },
            memory_limit_bytes: self.memory_limit,
            part_size_bytes: self.part_size,
            page_cache_above: self.cache == Cache::Full && has_page_cache,
            bypasses_page_cache_for_new_files: false,
            is_uncached: self.cache == Cache::None,
            write_back: self.writeback,
            is_shared: self.shared,
            batch: None,
            conflicts: self.conflict.map(Into::into).unwrap_or_default(),
            disk_cache: None,
            shared_cache: None,
            cache_dir: state.cache_dir(),
            moves_path: state.moves_path(),
        }
    }
}

/// Flags of the kernel's mount.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mount")]
pub(crate) struct MountFlags {
    /// Mount the volume on this directory too; all its mount points show the same files at any time (repeatable)
    #[arg(long, value_name = "DIR")]
    pub(crate) also: Vec<PathBuf>,
    /// Put this directory of the volume into batch mode (see `tenon batch`)
    #[arg(long, value_name = "SUBTREE")]
    pub(crate) batch: Option<PathBuf>,
    /// Time without a change after which an open batch is dropped, unless it was submitted or programs use it; 0: never
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = units::duration)]
    pub(crate) batch_expiry: Duration,
    /// Allow access by other users, not only by the mounting user
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Mount over a directory that is not empty
    #[arg(long)]
    pub(crate) nonempty: bool,
    /// Refuse to run programs from the mount
    #[arg(long)]
    pub(crate) noexec: bool,
    /// Honor set-user-id and set-group-id bits of programs (root only)
    #[arg(long)]
    pub(crate) allow_suid: bool,
    /// Allow device files to be opened as devices (root only)
    #[arg(long)]
    pub(crate) allow_dev: bool,
}

/// Policy for conflicts: which side keeps the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflict {
    /// The bucket's object keeps the name; close fails, and the file's bytes are kept under lost+found.
    BucketWins,
    /// The file keeps the name; the bucket's bytes are kept under lost+found.
    FileWins,
    /// The bucket's object keeps the name; the file continues under another name in the same directory.
    KeepBoth,
    /// Like bucket-wins, and the path refuses writes until the conflict is resolved.
    Fail,
}

impl From<Conflict> for vfs::ConflictPolicy {
    fn from(policy: Conflict) -> Self {
        match policy {
            Conflict::BucketWins => Self::BucketWins,
            Conflict::FileWins => Self::FileWins,
            Conflict::KeepBoth => Self::KeepBoth,
            Conflict::Fail => Self::Fail,
        }
    }
}

/// Source of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attributes {
    /// Headers in volumes that Tenon has written to, otherwise listings.
    Auto,
    /// Exact, with one HEAD per object.
    Headers,
    /// Size and time from the listing, defaults for the rest.
    Listing,
}

/// Data to cache between programs and the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Reads are cached in memory; writes are collected until close or fsync.
    Full,
    /// Nothing is cached: a write returns when its bytes are stored, a read asks the bucket.
    None,
}

/// Coherence with changes on other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Coherence {
    /// An open shows what was closed before it; names and attributes follow within milliseconds.
    CloseToOpen,
    /// Every change is visible as soon as its call has returned: such calls wait for this mount, whose kernel caches nothing.
    Strict,
}

/// When reads update access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Atime {
    /// On every read that reaches Tenon; the kernel's page cache is not kept across opens.
    Strict,
    /// If the access time is older than the last change, or than a day.
    Relatime,
    /// Never.
    Off,
}

/// Minimum memory limit. Less could not hold the parts of one file and the metadata tables.
const MEMORY_LIMIT_MIN: u64 = 64 << 20;
/// Sizes that S3 allows for all parts but the last (S3 User Guide, "Multipart upload limits").
const PART_SIZES: std::ops::RangeInclusive<u64> = 5 << 20..=5 << 30;

fn memory_limit(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if bytes < MEMORY_LIMIT_MIN => Err("the memory limit must be at least 64MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn shared_cache(text: &str) -> Result<Volume, String> {
    match Volume::parse_unchecked(text) {
        Ok(place @ Volume::S3 { .. }) => Ok(place),
        Ok(_) => Err("write s3://bucket or s3://bucket/prefix".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn cache_size(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if bytes < caches::SIZE_BYTES_MIN => Err("the disk cache must have at least 256MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn part_size(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if PART_SIZES.contains(&bytes) => Ok(bytes),
        _ => Err("the part size must be between 5MiB and 5GiB".to_owned()),
    }
}
