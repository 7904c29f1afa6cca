//! A volume, open: its bucket, its names, and the file system over both.
//!
//! Order matters: the state directory is held before the bucket is asked.

use crate::bucket::{self, Bucket, World};
use crate::coherence::Coherence;
use crate::control::protocol::EventSource;
use crate::feeding::{FeedParts, Feeds};
use crate::flags::{Atime, Attributes, Cache, StoreFlags, ViewFlags, VolumeFlags};
use crate::handling;
use crate::local;
use crate::metadata::{self, Metadata};
use crate::room::RoomOf;
use crate::state::{self, Holder, State};
use crate::viewing::{OnlyBucket, Reach, Viewing, ViewingParts};
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use events::Sink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Buckets;
use store::writeback::WritebackOptions;

/// A bucket that takes nothing for so long makes a full log an error of who writes.
const ROOM_WITHIN: Duration = Duration::from_secs(60);

/// Changes that wait may take this share of the memory limit, and take so many bytes each.
const WAITING_MEMORY_SHARE: u64 = 10;
const WAITING_BYTES: u64 = 512;

/// What is written goes up after so long: much is replaced or deleted soon.
const UPLOAD_DELAY: Duration = Duration::from_secs(1);

/// Longer files begin to go up while they are written.
const EARLY_UPLOAD_BYTES: u64 = 32 << 20;
/// Bodies on their way from the write-back log to the bucket may take this share of the memory limit.
const SEND_MEMORY_SHARE: u64 = 8;

/// A volume that this process holds.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fs: Arc<vfs::Filesystem>,
    pub(crate) bucket: Bucket,
    pub(crate) metadata: Metadata,
    pub(crate) volume: Volume,
    pub(crate) read_only: bool,
    /// Whether other machines may mount the bucket too.
    pub(crate) shared: bool,
    /// The server of the bucket, where one was named.
    pub(crate) server: Option<String>,
    /// Whether names are in the state directory alone, so that its loss is theirs.
    pub(crate) names_only_here: bool,
    pub(crate) viewing: Option<Arc<Viewing>>,
    /// What the file system hears by itself; views hear for it where they hear at all.
    feeds: Option<Feeds>,
}

/// Holds a volume's state directory; `at` is where the volume will be reached, and `also` where else.
pub(crate) fn take_state(
    volume: &Volume,
    at: PathBuf,
    also: &[PathBuf],
    flags: &VolumeFlags,
    store: &StoreFlags,
) -> Result<State> {
    let root = bucket::state_dir(volume, flags.state_dir.as_deref(), store);
    let root = std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))?;
    let holder =
        Holder { pid: std::process::id(), mount_point: at, also: also.to_vec(), volume: volume.url() };
    State::take(&root, &holder)
}

impl Opened {
    /// Opens a volume, and brings in order what a process left that died. `has_page_cache`: the kernel may keep what is
    /// read.
    pub(crate) async fn open(
        volume: &Volume,
        state: &State,
        flags: &VolumeFlags,
        store: &StoreFlags,
        has_page_cache: bool,
        wanted: Option<Wanted<'_>>,
        world: &World,
    ) -> Result<Self> {
        // The log was acknowledged before: it goes up, whoever may write now.
        let beneath = local::within(flags.memory_limit / 2, flags.read_only && !flags.writeback);
        let mut bucket = Bucket::open_with(volume, store, beneath, world).await?;
        let flags = &beside(&bucket, flags);
        let unusable = |error| anyhow!("cannot use {}: {error}", volume.url());
        let prefix = volume.prefix().as_bytes();
        let mut record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        if let Some(found) = record.take() {
            record = Some(note_policy(found, &bucket, prefix, flags).await.map_err(unusable)?);
        }
        if flags.writeback {
            let keys_are_used_once = record.as_ref().is_some_and(|found| found.naming == vfs::Naming::Inode);
            let options = writeback_options(volume, flags, keys_are_used_once);
            bucket.write_back(&state.writeback_dir(), options, world)?;
            if let Some(log) = &bucket.writeback {
                log.awaits_judge();
            }
            record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await.map_err(unusable)?;
        } else {
            state::nothing_waits(state.root())?;
        }
        if volume.is_buckets() {
            // Of several buckets none can hold it.
            record = Some(joined_record(world)?);
        }
        let coherence = match &wanted {
            Some(wanted) => wanted.coherence(volume, record.as_ref())?,
            None => None,
        };
        let viewing = match &wanted {
            Some(wanted) => {
                let also = coherence.clone();
                wanted.open_views(volume, &mut bucket, state, (flags, store), also, world).await?
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
            clock: world.clock.clone(),
            entropy: world.entropy.clone(),
            engine: metadata.engine.clone(),
            record,
        };
        let mut config = config(volume, flags, state);
        config.page_cache_above &= has_page_cache;
        if let Some(found) = &parts.record {
            config.conflicts = found.conflicts;
        }
        let are_settings_new = metadata::note_settings(state.root(), &config)?;
        let fs = vfs::Filesystem::mount(parts, config).map_err(unusable)?;
        if let Some(room) = RoomOf::volume(volume, &bucket) {
            fs.measure_room_by(Box::new(move || room.now()));
        }
        if let Some(viewing) = &viewing {
            let at = (!is_views_alone(volume)).then_some(VIEWS_NAME);
            let top_mode = wanted.as_ref().and_then(|wanted| wanted.top_mode);
            fs.derive(at, viewing.clone(), top_mode).map_err(unusable)?;
            viewing.follow(&fs);
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
                tracing::info!("{} objects that somebody else stored are files now", imported.len());
            }
        }
        fs.list_in_background(flags.list_budget);
        fs.publish_in_background(flags.publish_interval);
        let feeds = match (&wanted, &coherence) {
            (Some(wanted), Some(hears)) if !viewing.as_ref().is_some_and(|viewing| viewing.hears()) => {
                Some(wanted.open_feeds(volume, hears, state, store, world).await?)
            }
            _ => None,
        };
        if let Some(coherence) = coherence {
            coherence.begin(&fs).await;
        }
        let (volume, read_only, shared) = (volume.clone(), flags.read_only, flags.shared);
        let server = bucket::endpoint(store);
        Ok(Self { fs, bucket, metadata, volume, read_only, shared, server, names_only_here, viewing, feeds })
    }

    /// How the sources of events do.
    pub(crate) fn sources(&self) -> Vec<EventSource> {
        let own = self.feeds.iter().flat_map(handling::reports).map(EventSource::from);
        self.viewing.iter().flat_map(|viewing| viewing.sources()).chain(own).collect()
    }

    /// The mount ends.
    pub(crate) async fn stop_hearing(&self) {
        if let Some(feeds) = &self.feeds {
            feeds.stop();
        }
        if let Some(viewing) = &self.viewing {
            viewing.stop().await;
        }
    }
}

/// Where a volume has views, in its root.
const VIEWS_NAME: &[u8] = b".views";

/// What a mount is to show besides its volume, and to hear of it.
pub(crate) struct Wanted<'v> {
    pub(crate) flags: &'v ViewFlags,
    pub(crate) rulesets: Option<Vec<views::Ruleset>>,
    /// The mode of `.views`, where it is not that of other directories.
    pub(crate) top_mode: Option<u16>,
}

impl Wanted<'_> {
    /// Who hears what sources say, if any are named.
    fn coherence(
        &self,
        volume: &Volume,
        record: Option<&vfs::VolumeRecord>,
    ) -> Result<Option<Arc<Coherence>>> {
        if self.flags.events.events.is_empty() {
            return Ok(None);
        }
        if record.is_some_and(|record| record.naming == vfs::Naming::Inode) {
            bail!(
                "--events: {0} is named by inode, and others' objects are no files in it; `tenon import {0}` makes files of them",
                volume.url()
            );
        }
        Ok(Some(Coherence::of(Reach::of(volume))))
    }

    /// Opens the sources for the file system alone.
    async fn open_feeds(
        &self,
        volume: &Volume,
        hears: &Arc<Coherence>,
        state: &State,
        store: &StoreFlags,
        world: &World,
    ) -> Result<Feeds> {
        let dir = state.root().join("events");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let hears: Arc<dyn Sink> = hears.clone();
        let parts = FeedParts {
            sources: &self.flags.events.events,
            flags: &self.flags.events.sources,
            store,
            wanted: Reach::of(volume).wanted(),
            sinks: &|_| vec![hears.clone()],
            dir: &dir,
            world,
        };
        Feeds::open(parts).await
    }

    /// Opens the views, if any are asked for; what is done through the bucket they hear of from now on.
    async fn open_views(
        &self,
        volume: &Volume,
        bucket: &mut Bucket,
        state: &State,
        (flags, store): (&VolumeFlags, &StoreFlags),
        also: Option<Arc<Coherence>>,
        world: &World,
    ) -> Result<Option<Arc<Viewing>>> {
        let Some(rulesets) = self.rulesets.clone() else { return Ok(None) };
        let only = || {
            let store = Arc::clone(&bucket.store);
            Arc::new(OnlyBucket { name: volume.bucket_name(), store }) as Arc<dyn Buckets>
        };
        let parts = ViewingParts {
            volume,
            buckets: bucket.buckets.clone().unwrap_or_else(only),
            dir: state.root().join("views"),
            store,
            also: also.map(|also| also as Arc<dyn Sink>),
            metadata_ttl: flags.metadata_ttl,
            world,
        };
        let viewing = Viewing::start(self.flags, rulesets, parts).await?;
        bucket.store = viewing.watch(Arc::clone(&bucket.store));
        Ok(Some(viewing))
    }
}

/// Whether a volume is there for the views of it, and has no other directories to show.
pub(crate) fn is_views_alone(volume: &Volume) -> bool {
    matches!(volume, Volume::Buckets { url, .. } if !url.starts_with("s3://"))
}

/// What is known of buckets as directories.
fn joined_record(world: &World) -> Result<vfs::VolumeRecord> {
    let id = u128::from(world.entropy.next_u64());
    Ok(vfs::VolumeRecord::new(vfs::Mapping::Whole, vfs::Naming::FilePath, id, world.clock.now())?)
}

/// Who mounts may choose another policy for conflicts, which the volume then has.
async fn note_policy(
    record: vfs::VolumeRecord,
    bucket: &Bucket,
    prefix: &[u8],
    flags: &VolumeFlags,
) -> vfs::Result<vfs::VolumeRecord> {
    let Some(wanted) = flags.conflict.map(Into::into).filter(|wanted| *wanted != record.conflicts) else {
        return Ok(record);
    };
    let record = record.with_conflicts(wanted)?;
    if !flags.read_only {
        record.rewrite(bucket.store.as_ref(), prefix).await?;
    }
    Ok(record)
}

/// The flags with the memory that a drive leaves to who uses it: half.
fn beside(bucket: &Bucket, flags: &VolumeFlags) -> VolumeFlags {
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
        patience: ROOM_WITHIN,
        delay: UPLOAD_DELAY,
        checks_at_once: !keys_are_used_once,
        shared: Arc::new(move |key| !keys_are_used_once && vfs::is_shared(&root, key)),
        keys_are_used_once,
        lost: Arc::new(move |key, unique| {
            // Where the volume's prefix leaves no room for a name in `lost+found`, this gives the key itself, and the change waits.
            vfs::lost_key(&prefix, key, unique).unwrap_or_else(|_| key.clone())
        }),
        early_bytes: EARLY_UPLOAD_BYTES,
        memory_bytes: flags.memory_limit / SEND_MEMORY_SHARE,
    }
}

fn config(volume: &Volume, flags: &VolumeFlags, state: &State) -> vfs::Config {
    vfs::Config {
        prefix: volume.prefix().as_bytes().to_vec(),
        read_only: flags.read_only,
        uid: flags.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
        gid: flags.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
        file_mode: flags.file_mode,
        dir_mode: flags.dir_mode,
        metadata_ttl: flags.metadata_ttl,
        attributes: match flags.attributes {
            // Which of several buckets Tenon wrote in nobody has asked.
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
