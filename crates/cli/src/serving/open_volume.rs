//! An open volume: its bucket, its names, and the file system over both.
//!
//! Order matters: the state directory is locked before the bucket is accessed.

use crate::bucket::disk_space::SpaceSource;
use crate::bucket::local_buckets;
use crate::bucket::{self, Bucket, ProcessContext};
use crate::command::flags::{Atime, Attributes, Cache, StoreFlags, ViewFlags, VolumeFlags};
use crate::control::protocol::EventSource;
use crate::event_handler;
use crate::event_handler::feeds::{FeedParts, Feeds};
use crate::metadata::{self, Metadata};
use crate::mounted_views::{MountedViews, MountedViewsParts, ObjectScope, SingleBucket};
use crate::serving::filesystem_sink::FilesystemSink;
use crate::state::{self, Holder, StateDir};
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use events::Sink;
use staging::writeback::WritebackOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Buckets;

/// How long a writer waits for room in a full write-back log before the write fails.
const ROOM_TIMEOUT: Duration = Duration::from_secs(60);

/// Changes that wait in the log may take 1/`WAITING_MEMORY_SHARE` of the memory limit, at `WAITING_BYTES` each.
const WAITING_MEMORY_SHARE: u64 = 10;
const WAITING_BYTES: u64 = 512;

/// Delay before a change is uploaded: many files are replaced or deleted soon after they are written.
const UPLOAD_DELAY: Duration = Duration::from_secs(1);

/// Files longer than this are uploaded while they are still being written.
const EARLY_UPLOAD_BYTES: u64 = 32 << 20;
/// Uploads from the write-back log may take 1/`SEND_MEMORY_SHARE` of the memory limit.
const SEND_MEMORY_SHARE: u64 = 8;

/// A volume that this process has open.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    pub(crate) fs: Arc<vfs::Filesystem>,
    pub(crate) bucket: Bucket,
    pub(crate) metadata: Metadata,
    pub(crate) volume: Volume,
    pub(crate) read_only: bool,
    /// Whether other machines may mount the bucket too.
    pub(crate) shared: bool,
    /// The server of the bucket, where one was named.
    pub(crate) server: Option<String>,
    /// Whether names are only in the state directory, and lost with it.
    pub(crate) names_only_here: bool,
    pub(crate) viewing: Option<Arc<MountedViews>>,
    /// Feeds of the file system alone. `None` if there is no source, or if the handler of the views forwards its
    /// hints.
    feeds: Option<Feeds>,
}

/// Locks a volume's state directory. `at` is where the volume will be reached, and `also` are further mount points.
pub(crate) fn lock_state(
    volume: &Volume,
    at: PathBuf,
    also: &[PathBuf],
    flags: &VolumeFlags,
    store: &StoreFlags,
) -> Result<StateDir> {
    let root = bucket::state_dir(volume, flags.state_dir.as_deref(), store);
    let root = std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))?;
    let holder =
        Holder { pid: std::process::id(), mount_point: at, also: also.to_vec(), volume: volume.url() };
    StateDir::lock(&root, &holder)
}

impl OpenVolume {
    /// Opens a volume, and repairs what a process that died left behind. `has_page_cache`: whether the kernel may
    /// cache what is read.
    pub(crate) async fn open(
        volume: &Volume,
        state: &StateDir,
        flags: &VolumeFlags,
        store: &StoreFlags,
        has_page_cache: bool,
        view_settings: Option<ViewSettings<'_>>,
        context: &ProcessContext,
    ) -> Result<Self> {
        // Changes in the log were acknowledged, so they are uploaded even if the volume is read-only now.
        let drive_options =
            local_buckets::options_within(flags.memory_limit / 2, flags.read_only && !flags.writeback);
        let mut bucket = Bucket::open_with(volume, store, drive_options, context).await?;
        let flags = &without_drive_memory(&bucket, flags);
        let unusable = |error| anyhow!("cannot use {}: {error}", volume.url());
        let prefix = volume.prefix().as_bytes();
        let mut record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        if let Some(found) = record.take() {
            record = Some(store_policy(found, &bucket, prefix, flags).await.map_err(unusable)?);
        }
        if flags.writeback {
            let keys_are_used_once = record.as_ref().is_some_and(|found| found.naming == vfs::Naming::Inode);
            let options = writeback_options(volume, flags, keys_are_used_once);
            bucket.add_writeback_log(&state.writeback_dir(), options, context)?;
            if let Some(log) = &bucket.writeback {
                log.awaits_judge();
            }
            record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        } else {
            state::check_no_backlog(state.root())?;
        }
        if volume.is_buckets() {
            // No single one of several buckets can hold the record.
            record = Some(joined_record(context)?);
        }
        let coherence = match &view_settings {
            Some(view_settings) => view_settings.coherence(volume, record.as_ref())?,
            None => None,
        };
        let viewing = match &view_settings {
            Some(view_settings) => {
                let also = coherence.clone();
                view_settings.open_views(volume, &mut bucket, state, (flags, store), also, context).await?
            }
            None => None,
        };
        let metadata = metadata::open(
            volume,
            record.as_ref(),
            bucket.store.as_ref(),
            state.root(),
            bucket.writeback.as_ref().map(|log| (log, flags.accept_lost_names)),
            flags.memory_limit,
        )
        .await?;
        let names_only_here = record.as_ref().is_some_and(|found| found.naming == vfs::Naming::Inode);
        let parts = vfs::Parts {
            store: Arc::clone(&bucket.store),
            clock: context.clock.clone(),
            entropy: context.entropy.clone(),
            engine: metadata.engine.clone(),
            record,
        };
        let mut config = config(volume, flags, state);
        config.page_cache_above &= has_page_cache;
        if let Some(found) = &parts.record {
            config.conflicts = found.conflicts;
        }
        let are_settings_new = metadata::record_settings(state.root(), &config)?;
        let fs = vfs::Filesystem::mount(parts, config).map_err(unusable)?;
        if let Some(space) = SpaceSource::of_volume(volume, &bucket) {
            fs.measure_room_by(Box::new(move || space.measure()));
        }
        if let Some(viewing) = &viewing {
            let at = (!is_views_alone(volume)).then_some(VIEWS_NAME);
            let top_mode = view_settings.as_ref().and_then(|view_settings| view_settings.top_mode);
            fs.derive(at, viewing.clone(), top_mode).map_err(unusable)?;
            viewing.start_invalidation(&fs);
        }
        if let Some(log) = &bucket.writeback {
            log.judged_by(fs.judge());
        }
        if are_settings_new {
            fs.forget_learned().map_err(unusable)?;
        }
        if !flags.read_only {
            fs.recover().await.map_err(unusable)?;
            let imported = fs.import_foreign().await.map_err(unusable)?;
            if !imported.is_empty() {
                tracing::info!("imported {} objects that other programs stored", imported.len());
            }
        }
        fs.list_in_background(flags.list_budget);
        fs.publish_in_background(flags.publish_interval);
        let feeds = match (&view_settings, &coherence) {
            (Some(view_settings), Some(sink))
                if !viewing.as_ref().is_some_and(|viewing| viewing.has_handler()) =>
            {
                Some(view_settings.open_feeds(volume, sink, state, store, context).await?)
            }
            _ => None,
        };
        if let Some(coherence) = coherence {
            coherence.start(&fs).await;
        }
        let (volume, read_only, shared) = (volume.clone(), flags.read_only, flags.shared);
        let server = bucket::endpoint_url(store);
        Ok(Self { fs, bucket, metadata, volume, read_only, shared, server, names_only_here, viewing, feeds })
    }

    /// Returns the state of the event sources.
    pub(crate) fn sources(&self) -> Vec<EventSource> {
        let own = self.feeds.iter().flat_map(event_handler::feed_reports).map(EventSource::from);
        self.viewing.iter().flat_map(|viewing| viewing.sources()).chain(own).collect()
    }

    /// Stops to receive events, at the end of the mount.
    pub(crate) async fn stop_events(&self) {
        if let Some(feeds) = &self.feeds {
            feeds.stop();
        }
        if let Some(viewing) = &self.viewing {
            viewing.stop().await;
        }
    }
}

/// Name of the directory of views in a volume's root.
const VIEWS_NAME: &[u8] = b".views";

/// Views and event sources of a mount.
pub(crate) struct ViewSettings<'v> {
    pub(crate) flags: &'v ViewFlags,
    pub(crate) rulesets: Option<Vec<views::Ruleset>>,
    /// Mode of `.views`, if it differs from that of other directories.
    pub(crate) top_mode: Option<u16>,
}

impl ViewSettings<'_> {
    /// Returns the sink that applies events to the file system, if event sources are named.
    fn coherence(
        &self,
        volume: &Volume,
        record: Option<&vfs::VolumeRecord>,
    ) -> Result<Option<Arc<FilesystemSink>>> {
        if self.flags.events.events.is_empty() {
            return Ok(None);
        }
        if record.is_some_and(|record| record.naming == vfs::Naming::Inode) {
            bail!(
                "--events: {0} is named by inode, so objects that other programs store do not become files; `tenon import {0}` makes files of them",
                volume.url()
            );
        }
        Ok(Some(FilesystemSink::new(ObjectScope::of(volume))))
    }

    /// Opens the event sources for the file system alone.
    async fn open_feeds(
        &self,
        volume: &Volume,
        sink: &Arc<FilesystemSink>,
        state: &StateDir,
        store: &StoreFlags,
        context: &ProcessContext,
    ) -> Result<Feeds> {
        let dir = state.root().join("events");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let sink: Arc<dyn Sink> = sink.clone();
        let parts = FeedParts {
            sources: &self.flags.events.events,
            flags: &self.flags.events.sources,
            store,
            wanted: ObjectScope::of(volume).wanted(),
            sinks: &|_| vec![sink.clone()],
            dir: &dir,
            context,
        };
        Feeds::open(parts).await
    }

    /// Opens the views, if rulesets are given. From then on they are notified of changes that are made through the
    /// bucket.
    async fn open_views(
        &self,
        volume: &Volume,
        bucket: &mut Bucket,
        state: &StateDir,
        (flags, store): (&VolumeFlags, &StoreFlags),
        also: Option<Arc<FilesystemSink>>,
        context: &ProcessContext,
    ) -> Result<Option<Arc<MountedViews>>> {
        let Some(rulesets) = self.rulesets.clone() else { return Ok(None) };
        let only = || {
            let store = Arc::clone(&bucket.store);
            Arc::new(SingleBucket { name: volume.bucket_name(), store }) as Arc<dyn Buckets>
        };
        let parts = MountedViewsParts {
            volume,
            buckets: bucket.buckets.clone().unwrap_or_else(only),
            dir: state.root().join("views"),
            store,
            also: also.map(|also| also as Arc<dyn Sink>),
            metadata_ttl: flags.metadata_ttl,
            context,
        };
        let viewing = MountedViews::start(self.flags, rulesets, parts).await?;
        bucket.store = viewing.wrap_store(Arc::clone(&bucket.store));
        Ok(Some(viewing))
    }
}

/// Returns whether a volume exists only for its views, and shows no other directories.
pub(crate) fn is_views_alone(volume: &Volume) -> bool {
    matches!(volume, Volume::Buckets { url, .. } if !url.starts_with("s3://"))
}

/// Returns the record of several buckets that are shown as directories.
fn joined_record(context: &ProcessContext) -> Result<vfs::VolumeRecord> {
    let id = u128::from(context.entropy.next_u64());
    Ok(vfs::VolumeRecord::new(vfs::Mapping::Whole, vfs::Naming::FilePath, id, context.clock.now())?)
}

/// Stores the conflict policy that the flags name in the volume's record.
async fn store_policy(
    record: vfs::VolumeRecord,
    bucket: &Bucket,
    prefix: &[u8],
    flags: &VolumeFlags,
) -> vfs::Result<vfs::VolumeRecord> {
    let Some(policy) = flags.conflict.map(Into::into).filter(|policy| *policy != record.conflicts) else {
        return Ok(record);
    };
    let record = record.with_conflicts(policy)?;
    if !flags.read_only {
        record.rewrite(bucket.store.as_ref(), prefix).await?;
    }
    Ok(record)
}

/// Returns the flags with the memory that a drive leaves to the file system: half.
fn without_drive_memory(bucket: &Bucket, flags: &VolumeFlags) -> VolumeFlags {
    let has_drives = bucket.local.as_ref().is_some_and(|local| local.has_drives());
    let memory_limit = if has_drives { flags.memory_limit / 2 } else { flags.memory_limit };
    VolumeFlags { memory_limit, ..flags.clone() }
}

fn writeback_options(volume: &Volume, flags: &VolumeFlags, keys_are_used_once: bool) -> WritebackOptions {
    let prefix = volume.prefix().as_bytes().to_vec();
    let root = prefix.clone();
    WritebackOptions {
        limit_bytes: flags.writeback_limit,
        limit_changes: (flags.memory_limit / WAITING_MEMORY_SHARE / WAITING_BYTES) as usize,
        patience: ROOM_TIMEOUT,
        delay: UPLOAD_DELAY,
        checks_at_once: !keys_are_used_once,
        shared: Arc::new(move |key| !keys_are_used_once && vfs::is_shared(&root, key)),
        keys_are_used_once,
        lost: Arc::new(move |key, unique| {
            // If the volume's prefix leaves no room for a name in `lost+found`, return the key itself; the change
            // then keeps waiting.
            vfs::lost_key(&prefix, key, unique).unwrap_or_else(|_| key.clone())
        }),
        early_bytes: EARLY_UPLOAD_BYTES,
        memory_bytes: flags.memory_limit / SEND_MEMORY_SHARE,
    }
}

fn config(volume: &Volume, flags: &VolumeFlags, state: &StateDir) -> vfs::Config {
    vfs::Config {
        prefix: volume.prefix().as_bytes().to_vec(),
        read_only: flags.read_only,
        uid: flags.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
        gid: flags.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
        file_mode: flags.file_mode,
        dir_mode: flags.dir_mode,
        metadata_ttl: flags.metadata_ttl,
        attributes: match flags.attributes {
            // It is not known in which of several buckets Tenon has written.
            Attributes::Auto if volume.is_buckets() => vfs::AttributeSource::Listing,
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
        is_shared: flags.shared,
        conflicts: flags.conflict.map(Into::into).unwrap_or_default(),
        cache_dir: state.cache_dir(),
        moves_path: state.moves_path(),
    }
}
