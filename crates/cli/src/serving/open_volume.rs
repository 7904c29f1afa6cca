//! An open volume: its bucket, its names, and the file system over both.
//!
//! Order matters: the state directory is locked before the bucket is accessed.

use crate::bucket::Bucket;
use crate::bucket::credentials::StoreSettings;
use crate::bucket::disk_space::SpaceSource;
use crate::bucket::local_buckets;
use crate::control::holder::Holder;
use crate::control::protocol::EventSource;
use crate::endpoint::{self, EndpointSettings};
use crate::event_handler::feeds::{FeedParts, FeedSettings, Feeds};
use crate::metadata::{self, Metadata, Use};
use crate::mounted_views::{HandlerChoice, MountedViews, MountedViewsParts, ObjectScope, SingleBucket};
use crate::process::context::ProcessContext;
use crate::serving::caches::CacheSettings;
use crate::serving::filesystem_sink::FilesystemSink;
use crate::serving::metadata_backup::{self, BackupParts, MetadataBackup};
use crate::state::{self, StateDir};
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use events::Sink;
use s3::{Endpoint, Server};
use staging::writeback::WritebackOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, ObjectStore};

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
    /// The backup of the metadata; `None` if it is off.
    pub(crate) backup: Option<MetadataBackup>,
    /// The views; `None` if no rulesets are given.
    pub(crate) mounted_views: Option<Arc<MountedViews>>,
    /// Feeds of the file system alone. `None` if there is no source, or if the handler of the views forwards its
    /// hints.
    feeds: Option<Feeds>,
}

/// Settings for opening a volume.
#[derive(Debug, Clone)]
pub(crate) struct VolumeSettings {
    /// Settings of the file system. Its memory limit is that of the whole process.
    pub(crate) fs: vfs::Config,
    pub(crate) store: StoreSettings,
    /// Conflict policy to store in the volume; `None` keeps the volume's.
    pub(crate) conflicts: Option<vfs::ConflictPolicy>,
    /// The caches below memory; `None` for none.
    pub(crate) caches: Option<CacheSettings>,
    pub(crate) writeback: Option<WritebackSettings>,
    /// Interval of background listings; zero turns them off.
    pub(crate) list_interval: Duration,
    /// Interval at which changes of open files are stored; zero turns this off.
    pub(crate) publish_interval: Duration,
    /// Interval of backups of the metadata; zero turns them off.
    pub(crate) backup_interval: Duration,
    /// Whether changes on other machines wait until this mount has acknowledged them.
    pub(crate) is_strict: bool,
}

/// Settings of the write-back log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WritebackSettings {
    /// Length of the log above which writers wait.
    pub(crate) limit_bytes: u64,
    /// Whether to open the volume although disk damage destroyed names in the log.
    pub(crate) accepts_lost_names: bool,
}

/// Locks a volume's state directory. `at` is where the volume will be reached, and `also` are further mount points.
pub(crate) fn lock_state(volume: &Volume, at: PathBuf, also: &[PathBuf], root: &Path) -> Result<StateDir> {
    let root = std::path::absolute(root).with_context(|| format!("cannot resolve {}", root.display()))?;
    let holder =
        Holder { pid: std::process::id(), mount_point: at, also: also.to_vec(), volume: volume.url() };
    StateDir::lock(&root, &holder)
}

impl OpenVolume {
    /// Opens a volume. Repairs what a process that died left behind, unless the volume is read-only.
    pub(crate) async fn open(
        volume: &Volume,
        state: &StateDir,
        mut settings: VolumeSettings,
        view_settings: Option<ViewSettings>,
        context: &ProcessContext,
    ) -> Result<Self> {
        open_caches(volume, &mut settings, context)?;
        let OpenBucket { mut bucket, direct, record } =
            open_bucket(volume, state, &mut settings, context).await?;
        let unusable = |error| anyhow!("cannot use {}: {error}", volume.url());
        let is_by_inode = record.as_ref().is_some_and(|found| found.naming == vfs::Naming::Inode);
        let event_sink = match &view_settings {
            Some(view_settings) => view_settings.event_sink(volume, is_by_inode)?,
            None => None,
        };
        let mounted_views = match &view_settings {
            Some(view_settings) => {
                let further_sink = event_sink.clone();
                view_settings.open_views(volume, &mut bucket, state, &settings, further_sink, context).await?
            }
            None => None,
        };
        let accepts_lost_names = settings.writeback.is_some_and(|log| log.accepts_lost_names);
        // The cache of the metadata engine does not shrink, so it is made for the half of the limit that views leave.
        let metadata_limit_bytes =
            settings.fs.memory_limit_bytes / if mounted_views.is_some() { 2 } else { 1 };
        let metadata = metadata::open(
            volume,
            record.as_ref(),
            bucket.store.as_ref(),
            state.root(),
            bucket.writeback.as_ref().map(|log| (log, accepts_lost_names)),
            metadata_limit_bytes,
            Use::Serving { is_strict: settings.is_strict },
        )
        .await?;
        let VolumeSettings {
            fs: mut config, store, list_interval, publish_interval, backup_interval, ..
        } = settings;
        // No single one of several buckets can hold a backup.
        let is_backed_up = !config.read_only && !volume.is_buckets();
        if is_backed_up {
            metadata_backup::check_holder(volume, direct.as_ref(), &metadata, state.root()).await?;
        }
        let are_settings_new = metadata::record_settings(state.root(), &config)?;
        let backup = match is_backed_up && !backup_interval.is_zero() {
            true => {
                let parts = BackupParts {
                    volume,
                    bucket: direct,
                    writeback: bucket.writeback.clone(),
                    metadata: &metadata,
                    state_root: state.root(),
                    has_all_names: is_by_inode,
                    context,
                };
                Some(MetadataBackup::open(parts, backup_interval).await?)
            }
            false => None,
        };
        if let Some(found) = &record {
            config.conflicts = found.conflicts;
        }
        let (read_only, shared) = (config.read_only, config.is_shared);
        let parts = vfs::Dependencies {
            store: Arc::clone(&bucket.store),
            clock: context.clock.clone(),
            entropy: context.entropy.clone(),
            engine: metadata.engine(),
            record,
        };
        let fs = vfs::Filesystem::mount(parts, config).map_err(unusable)?;
        connect_bucket(&fs, volume, &bucket);
        if let Some(mounted_views) = &mounted_views {
            let top_mode = view_settings.as_ref().and_then(|view_settings| view_settings.top_mode);
            attach_views(&fs, volume, mounted_views, top_mode).map_err(unusable)?;
        }
        if are_settings_new {
            fs.admin().forget_learned().map_err(unusable)?;
        }
        if !read_only {
            recover(&fs).await.map_err(unusable)?;
        }
        if let Some(backup) = &backup {
            backup.start(&fs).await;
        }
        fs.admin().list_in_background(list_interval);
        fs.publisher().publish_in_background(publish_interval);
        let has_handler = mounted_views.as_ref().is_some_and(|mounted_views| mounted_views.has_handler());
        let feeds = match (&view_settings, &event_sink) {
            (Some(view_settings), Some(sink)) if !has_handler => {
                Some(view_settings.open_feeds(volume, sink, state, &store, context).await?)
            }
            _ => None,
        };
        if let Some(event_sink) = event_sink {
            event_sink.start(&fs).await;
        }
        let names_only_here =
            is_by_inode && matches!(metadata, Metadata::Disk(_)) && backup_interval.is_zero();
        let (volume, server) = (volume.clone(), store.endpoint());
        Ok(Self {
            fs,
            bucket,
            metadata,
            volume,
            read_only,
            shared,
            server,
            names_only_here,
            backup,
            mounted_views,
            feeds,
        })
    }

    /// Stores pending changes, within `patience`, makes the last backup, and closes the drives. No front end may use the volume any more.
    pub(crate) async fn close(&self, patience: Duration) -> Result<()> {
        let outcome = self.fs.shutdown(patience).await;
        self.stop_events().await;
        if let (Ok(()), Some(backup)) = (&outcome, &self.backup) {
            backup.finish(patience).await;
        }
        self.checkpoint_and_close_drives().await;
        outcome.map_err(|error| anyhow!("not everything was stored: {error}"))
    }

    /// Completes the metadata and the drives on disk, so that the next opening need not repeat logs.
    pub(crate) async fn checkpoint_and_close_drives(&self) {
        if let Err(error) = self.metadata.checkpoint() {
            tracing::warn!(
                "cannot write names to the tables of the metadata, so they stay in the write-back log until the next mount: {error:#}"
            );
        }
        if let Some(local) = &self.bucket.local
            && let Err(error) = local.close().await
        {
            tracing::warn!("cannot close the drive, so the next opening replays its log: {error:#}");
        }
    }

    /// Opens the S3 endpoint of the volume: one bucket of this name or, without a name, a bucket for each directory at
    /// the root.
    pub(crate) fn open_endpoint(
        &self,
        bucket_name: Option<String>,
        settings: &EndpointSettings,
        state: &StateDir,
        context: &ProcessContext,
    ) -> Result<Endpoint> {
        let buckets = endpoint::buckets_of_volume(&self.fs, bucket_name);
        endpoint::open(buckets, settings, state.root(), context)
    }

    /// Starts to serve the endpoint.
    pub(crate) async fn start_endpoint(
        &self,
        endpoint: Endpoint,
        bucket_name: Option<&str>,
        settings: &EndpointSettings,
    ) -> Result<Server> {
        let description = match bucket_name {
            None => "the directories at its root are the buckets".to_owned(),
            Some(name) => format!("bucket {name}"),
        };
        let server = endpoint::start(endpoint, settings).await?;
        tracing::info!("objects of {} are served at {}: {description}", self.volume.url(), server.url());
        Ok(server)
    }

    /// Returns the state of the event sources.
    pub(crate) fn sources(&self) -> Vec<EventSource> {
        let own = self.feeds.iter().flat_map(Feeds::reports).map(EventSource::from);
        self.mounted_views.iter().flat_map(|mounted_views| mounted_views.sources()).chain(own).collect()
    }

    /// Stops receiving events, at the end of the mount.
    pub(crate) async fn stop_events(&self) {
        if let Some(feeds) = &self.feeds {
            feeds.stop();
        }
        if let Some(mounted_views) = &self.mounted_views {
            mounted_views.stop().await;
        }
    }
}

/// Opens the caches that the settings name, and adds them to the settings of the file system.
fn open_caches(volume: &Volume, settings: &mut VolumeSettings, context: &ProcessContext) -> Result<()> {
    let Some(caches) = &settings.caches else { return Ok(()) };
    if settings.fs.is_uncached {
        bail!("--cache-dir contradicts --cache none; leave one of them out");
    }
    let disk = Arc::new(caches.open_disk(volume, &settings.store, context)?);
    settings.fs.disk_cache = Some(disk.clone());
    // In the background: there may be a million files.
    tokio::task::spawn_blocking(move || disk.measure_all());
    settings.fs.shared_cache = caches.open_shared(&settings.store, context)?.map(Arc::new);
    Ok(())
}

/// Gives the file system what it needs from the bucket in addition to objects: the free space, and the conflicts of the write-back log.
fn connect_bucket(fs: &Arc<vfs::Filesystem>, volume: &Volume, bucket: &Bucket) {
    if let Some(space) = SpaceSource::of_volume(volume, bucket) {
        fs.admin().measure_space_by(Box::new(move || space.measure()));
    }
    if let Some(log) = &bucket.writeback {
        fs.moves().connect_writeback(log);
    }
}

/// Shows the views as directories of the file system. `top_mode` is the mode of the directory that contains them.
fn attach_views(
    fs: &Arc<vfs::Filesystem>,
    volume: &Volume,
    mounted_views: &Arc<MountedViews>,
    top_mode: Option<u16>,
) -> vfs::Result<()> {
    let at = (!is_views_alone(volume)).then_some(VIEWS_NAME);
    fs.attach_view(at, mounted_views.clone(), top_mode)?;
    mounted_views.start_invalidation(fs);
    mounted_views.start_memory_reservation(fs);
    Ok(())
}

/// Repairs what a process that died left behind, and makes files of objects that other programs stored.
async fn recover(fs: &vfs::Filesystem) -> vfs::Result<()> {
    fs.recover().await?;
    let imported = fs.admin().import_foreign().await?;
    if !imported.is_empty() {
        tracing::info!("imported {} objects that other programs stored", imported.len());
    }
    Ok(())
}

/// The open bucket of a volume.
struct OpenBucket {
    bucket: Bucket,
    /// The bucket itself, without a write-back log in front of it.
    direct: Arc<dyn ObjectStore>,
    record: Option<vfs::VolumeRecord>,
}

/// Opens the bucket of a volume, with the write-back log in front of it if the settings name one, and reads the volume's record.
/// Halves the memory limit of the settings if drives take the other half.
async fn open_bucket(
    volume: &Volume,
    state: &StateDir,
    settings: &mut VolumeSettings,
    context: &ProcessContext,
) -> Result<OpenBucket> {
    // Changes in the log were acknowledged, so they are uploaded even if the volume is read-only now.
    let read_only = settings.fs.read_only && settings.writeback.is_none();
    let drive_options = local_buckets::options_within(settings.fs.memory_limit_bytes / 2, read_only);
    let mut bucket = Bucket::open_with(volume, &settings.store, drive_options, context).await?;
    if bucket.local.as_ref().is_some_and(|local| local.has_drives()) {
        // The drives take the other half of the memory limit.
        settings.fs.memory_limit_bytes /= 2;
    }
    let direct = Arc::clone(&bucket.store);
    let unusable = |error| anyhow!("cannot use {}: {error}", volume.url());
    let prefix = volume.prefix().as_bytes();
    let mut record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
    if let Some(found) = record.take() {
        record = Some(store_policy(found, &bucket, prefix, settings).await.map_err(unusable)?);
    }
    if settings.writeback.is_some() && record.as_ref().is_some_and(|found| found.database.is_some()) {
        bail!(
            "--writeback: the names of {} are in a database, and the write-back log is on this machine",
            volume.url()
        );
    }
    match settings.writeback {
        Some(log) => {
            let keys_are_used_once = record.as_ref().is_some_and(|found| found.naming == vfs::Naming::Inode);
            let options = writeback_options(volume, log, settings.fs.memory_limit_bytes, keys_are_used_once);
            bucket.add_writeback_log(&state.writeback_dir(), options, context)?;
            if let Some(log) = &bucket.writeback {
                log.await_conflict_callbacks();
            }
            record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        }
        None => state::check_no_backlog(state.root())?,
    }
    if volume.is_buckets() {
        // Several buckets have no common place for a record, so each mount makes its own.
        let policy = settings.conflicts.unwrap_or_default();
        record = Some(joined_record(context)?.with_conflicts(policy)?);
    }
    Ok(OpenBucket { bucket, direct, record })
}

/// Name of the directory of views in a volume's root.
const VIEWS_NAME: &[u8] = b".views";

/// Views and event sources of a mount.
pub(crate) struct ViewSettings {
    /// Event sources, also of a mount without views.
    pub(crate) feeds: FeedSettings,
    pub(crate) rulesets: Option<Vec<views::Ruleset>>,
    pub(crate) handler: HandlerChoice,
    /// Mode of `.views`, if it differs from that of other directories.
    pub(crate) top_mode: Option<u16>,
}

impl ViewSettings {
    /// Returns the sink that applies events to the file system, if event sources are named. Refuses a volume named by
    /// inode.
    fn event_sink(&self, volume: &Volume, is_by_inode: bool) -> Result<Option<Arc<FilesystemSink>>> {
        if self.feeds.sources.is_empty() {
            return Ok(None);
        }
        if is_by_inode {
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
        store: &StoreSettings,
        context: &ProcessContext,
    ) -> Result<Feeds> {
        let dir = state.root().join("events");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let sink: Arc<dyn Sink> = sink.clone();
        let parts = FeedParts {
            settings: &self.feeds,
            bucket_access: store,
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
        settings: &VolumeSettings,
        further_sink: Option<Arc<FilesystemSink>>,
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
            store: &settings.store,
            further_sink: further_sink.map(|sink| sink as Arc<dyn Sink>),
            metadata_ttl: settings.fs.metadata_ttl,
            memory_limit_bytes: settings.fs.memory_limit_bytes,
            context,
        };
        let mounted_views = MountedViews::start(&self.handler, rulesets, parts).await?;
        bucket.store = mounted_views.wrap_store(Arc::clone(&bucket.store));
        Ok(Some(mounted_views))
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

/// Returns the record with the conflict policy that the settings name. Stores it in the bucket, unless the volume is
/// read-only.
async fn store_policy(
    record: vfs::VolumeRecord,
    bucket: &Bucket,
    prefix: &[u8],
    settings: &VolumeSettings,
) -> vfs::Result<vfs::VolumeRecord> {
    let Some(policy) = settings.conflicts.filter(|policy| *policy != record.conflicts) else {
        return Ok(record);
    };
    let record = record.with_conflicts(policy)?;
    if !settings.fs.read_only {
        record.rewrite(bucket.store.as_ref(), prefix).await?;
    }
    Ok(record)
}

fn writeback_options(
    volume: &Volume,
    log: WritebackSettings,
    memory_limit_bytes: u64,
    keys_are_used_once: bool,
) -> WritebackOptions {
    let prefix = volume.prefix().as_bytes().to_vec();
    let joins_buckets = volume.is_buckets();
    let root = prefix.clone();
    WritebackOptions {
        limit_bytes: log.limit_bytes,
        limit_changes: (memory_limit_bytes / WAITING_MEMORY_SHARE / WAITING_BYTES) as usize,
        patience: ROOM_TIMEOUT,
        delay: UPLOAD_DELAY,
        checks_at_once: !keys_are_used_once,
        shared: Arc::new(move |key| {
            !keys_are_used_once && vfs::KeySpace { prefix: &root, record: None, joins_buckets }.is_shared(key)
        }),
        keys_are_used_once,
        lost: Arc::new(move |key, unique| {
            // If the volume's prefix leaves no room for a name in `lost+found`, return the key itself; the change
            // then keeps waiting.
            let keys = vfs::KeySpace { prefix: &prefix, record: None, joins_buckets };
            keys.lost_key(key, unique).unwrap_or_else(|_| key.clone())
        }),
        early_bytes: EARLY_UPLOAD_BYTES,
        memory_bytes: memory_limit_bytes / SEND_MEMORY_SHARE,
    }
}
