//! The fields of the file system and `mount`. Its operations are in `ops`, `reconcile`, `write` and `exports`.

use meta::namespace::read_inode;
use meta::{Content, Ctx, FsError, Ino, Inode, Kind, Moment, Name, Namespace, Reader};
use staging::mover::Mover;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use store::names::BadName;
use store::{Claims, Clock, Entropy, InvalidKey, ObjectKey, ObjectRef, ObjectStore, Timestamp};
use tokio::sync::OnceCell;

use crate::bucket::changes::Changes;
use crate::bucket::conflicts::Conflicts;
use crate::bucket::directories::Directories;
use crate::bucket::evict::ClockHand;
use crate::bucket::exports::Exports;
use crate::bucket::headers::Defaults;
use crate::bucket::lister::Lister;
use crate::bucket::metadata::{MetadataCache, PendingLock, Renamed};
use crate::bucket::mover;
use crate::bucket::path_locks::PathLocks;
use crate::content::disk_space::SpaceSource;
use crate::bucket::sharing::Sharing;
use crate::config::{AttributeSource, Config, Dependencies};
use crate::content::budget::Budget;
use crate::content::discards::Discards;
use crate::content::open_file::OpenFiles;
use crate::content::pin::Pin;
use crate::content::read::blocks::Blocks;
use crate::content::slab::{SLAB_BYTES, SlabPool};
use crate::derived::DerivedDirectories;
use crate::fail_fast::FailFastSemaphore;
use crate::layout::{Layout, content_keys};
use crate::moments::Moments;
use crate::names::access_times::AccessTimes;
use crate::names::handles::Handles;
use crate::names::invalidation::{Invalidations, InvalidationQueue};
use crate::names::locks::Locks;
use crate::names::references::References;
use crate::objects::{MovedSettings, SettingsCache, StoringInodes};
use crate::volume::VolumeRecord;
use crate::{Attr, Error, Result};

/// A mounted volume. Calls follow POSIX and may be made from any thread.
#[derive(Debug)]
pub struct Filesystem {
    pub(crate) me: Weak<Self>,
    pub(crate) store: Arc<dyn ObjectStore>,
    /// In volumes named by path, the store in `store`: it also performs renames.
    pub(crate) mover: Option<Arc<Mover>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) moments: Arc<Moments>,
    pub(crate) entropy: Arc<Entropy>,
    pub(crate) names: Namespace,
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    pub(crate) defaults: Defaults,
    /// Whether attributes come from an object's headers (one HEAD each) instead of from the listing.
    pub(crate) reads_headers: bool,
    pub(crate) slabs: SlabPool,
    pub(crate) blocks: Blocks,
    pub(crate) write_budget: Budget,
    pub(crate) assembling: FailFastSemaphore,
    pub(crate) files: OpenFiles,
    pub(crate) handles: Handles,
    pub(crate) directories: Directories,
    /// The view (derived directories), where one is attached.
    pub(crate) derived: OnceLock<DerivedDirectories>,
    pub(crate) disk_space: SpaceSource,
    pub(crate) references: References,
    pub(crate) hand: ClockHand,
    pub(crate) lister: Lister,
    pub(crate) locks: Locks,
    pub(crate) changes: Changes,
    /// Keys that are about to change. Storing an object and naming it are two steps; two changes of one mount under one key
    /// must not take each other's objects for foreign ones. Claimed after a file's `write_state` and path, see `path_locks`.
    pub(crate) claims: Claims<ObjectKey>,
    /// Keys that the endpoint changes, claimed until the namespace shows the outcome. Claimed before any other lock.
    pub(crate) endpoint_claims: Claims<ObjectKey>,
    pub(crate) conflicts: Conflicts,
    /// Coordination with other mounts of the bucket, if it is shared.
    pub(crate) sharing: Option<Sharing>,
    /// Multipart uploads that are being changed, by upload id.
    pub(crate) uploads: Claims<ObjectKey>,
    pub(crate) storing: StoringInodes,
    pub(crate) settings: SettingsCache,
    pub(crate) moved_settings: MovedSettings,
    pub(crate) access_times: AccessTimes,
    pub(crate) exports: Exports,
    pub(crate) metadata_cache: MetadataCache,
    pub(crate) pending_lock: PendingLock,
    pub(crate) renamed: Renamed,
    pub(crate) discards: Discards,
    pub(crate) invalidations: Invalidations,
    pub(crate) paths: PathLocks,
    pub(crate) volume_record: OnceCell<VolumeRecord>,
    /// Serializes writers of the volume record.
    pub(crate) record_writers: FailFastSemaphore,
}

impl Filesystem {
    /// Opens the volume; lists nothing.
    pub fn mount(parts: Dependencies, mut config: Config) -> Result<Arc<Self>> {
        if config.is_shared {
            // The front end caches an answer for the whole TTL again: a fact that is almost expired here would live twice as
            // long.
            config.metadata_ttl /= 2;
        }
        std::fs::create_dir_all(&config.cache_dir)?;
        let record = parts.record;
        let ctx = Ctx { now: parts.clock.now(), at: Moment::default(), uid: config.uid, gid: config.gid };
        let names = Namespace::new(parts.engine, &ctx)?;
        let moments = Arc::new(Moments::new(parts.clock.clone(), names.mount()));
        let layout = Layout::of(&config.prefix, record.as_ref(), names.inode(Ino::ROOT)?.btime);
        let sharing = Sharing::of(&parts.store, &parts.entropy, &layout, &config)?;
        let (store, mover) = match layout.follows_paths() {
            true => {
                let mover = mover::open(&parts.store, &parts.entropy, &config)?;
                (mover.clone() as Arc<dyn ObjectStore>, Some(mover))
            }
            false => (parts.store, None),
        };
        let conflicts = Conflicts::load(&names)?;
        let keeps_directories = layout.follows_paths();
        let pool = ((config.read_bytes() + config.write_bytes()) as usize / SLAB_BYTES).max(1);
        let fs = Arc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            store,
            mover,
            clock: parts.clock,
            moments: moments.clone(),
            entropy: parts.entropy,
            names,
            reads_headers: layout.follows_paths()
                && match config.attributes {
                    AttributeSource::Auto => record.is_some() || config.is_shared,
                    AttributeSource::Headers => true,
                    AttributeSource::Listing => false,
                },
            layout,
            defaults: Defaults {
                uid: config.uid,
                gid: config.gid,
                file_mode: config.file_mode,
                dir_mode: config.dir_mode,
            },
            slabs: SlabPool::new(pool),
            blocks: Blocks::new(config.read_bytes()),
            write_budget: Budget::new(config.write_bytes()),
            assembling: FailFastSemaphore::with_permits(config.assembled_parts()),
            files: OpenFiles::default(),
            handles: Handles::default(),
            directories: Directories::new(keeps_directories),
            derived: OnceLock::new(),
            disk_space: SpaceSource::default(),
            references: References::default(),
            hand: ClockHand::default(),
            lister: Lister::default(),
            locks: Locks::default(),
            changes: Changes::new(moments),
            claims: Claims::default(),
            endpoint_claims: Claims::default(),
            conflicts,
            sharing,
            uploads: Claims::default(),
            storing: StoringInodes::default(),
            settings: SettingsCache::default(),
            moved_settings: MovedSettings::default(),
            access_times: AccessTimes::default(),
            exports: Exports::default(),
            metadata_cache: MetadataCache::default(),
            pending_lock: PendingLock::default(),
            renamed: Renamed::default(),
            discards: Discards::default(),
            invalidations: Invalidations::default(),
            paths: PathLocks::default(),
            volume_record: record.map_or_else(OnceCell::new, |record| OnceCell::new_with(Some(record))),
            record_writers: FailFastSemaphore::default(),
            config,
        });
        fs.install_mover_callbacks();
        fs.load_moved_settings()?;
        Ok(fs)
    }

    /// Returns how long a front end may cache entries and attributes.
    pub fn ttl(&self) -> Duration {
        self.config.metadata_ttl
    }

    /// Subscribes to invalidations of a front end's caches from now on. Each front end has its own subscription.
    pub fn invalidations(&self) -> InvalidationQueue {
        self.invalidations.listen()
    }

    /// Returns the locks that programs hold, for front ends that cannot see each other's.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns the wall-clock time, for times of inodes and for display. Order events by [`Filesystem::moment`] instead.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the present moment, which is later than every earlier observation and change. An observation of the bucket has
    /// the moment at which its request began.
    pub fn moment(&self) -> Moment {
        self.moments.now()
    }

    /// Returns the moment at which the monotonic clock showed `reading`; before the mount, a moment that is older than every
    /// other.
    pub fn moment_at(&self, reading: Duration) -> Moment {
        self.moments.at(reading)
    }

    pub(crate) fn ctx(&self) -> Ctx {
        Ctx { now: self.now(), at: self.moment(), uid: self.config.uid, gid: self.config.gid }
    }

    pub(crate) fn is_fresh(&self, seen_at: Moment) -> bool {
        self.moment().since(seen_at) < self.config.metadata_ttl
    }

    /// Like `is_fresh` for an observation inside a directory, which a hint about the directory may have made stale.
    pub(crate) fn is_trusted(&self, dir: Ino, seen_at: Moment) -> bool {
        self.is_fresh(seen_at) && !self.directories.is_marked_stale(dir, seen_at)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.config.read_only { Err(Error::READ_ONLY) } else { Ok(()) }
    }

    /// Allocates an inode number for a child of `parent`.
    pub(crate) fn new_ino(&self, parent: Ino) -> Result<Ino> {
        self.names
            .allocate(parent, 1)
            .first()
            .copied()
            .ok_or(Error::new(libc::ENOSPC, "no inode number is left"))
    }

    /// Returns the snapshot of an inode's content; `None` if the content is not stored yet and will be at the file's path.
    pub(crate) fn pin_of(&self, ino: Ino) -> Result<Option<Pin>> {
        Ok(self.inode_with_pin(ino)?.1)
    }

    /// Returns an inode with the snapshot of its content, `None` if the content is not stored yet.
    pub(crate) fn inode_with_pin(&self, ino: Ino) -> Result<(Inode, Option<Pin>)> {
        let inode = self.names.inode(ino)?;
        if let Content::Inline(_) = inode.content {
            let pin = self.pin(&inode)?;
            return Ok((inode, pin));
        }
        let tables = self.names.snapshot();
        let inode = read_inode(&*tables, ino)?.ok_or(FsError::NotFound)?;
        let pin = self.pin_with(&inode, || Ok(tables))?;
        Ok((inode, pin))
    }

    /// Returns the content that `inode` had when it was read. Fails with `StaleBase` if the content has changed since and its
    /// extents are not in the inode record.
    pub(crate) fn pin(&self, inode: &Inode) -> Result<Option<Pin>> {
        self.pin_with(inode, || {
            let tables = self.names.snapshot();
            let is_same = read_inode(&*tables, inode.ino)?.is_some_and(|now| now.content == inode.content);
            if is_same { Ok(tables) } else { Err(FsError::StaleBase.into()) }
        })
    }

    /// Returns the objects under keys of their own that hold an inode's content; none if the inode is gone.
    pub(crate) fn own_objects(&self, ino: Ino) -> Result<BTreeSet<ObjectKey>> {
        match self.names.content(ino) {
            Ok((_, extents)) => Ok(content_keys(&extents)),
            Err(FsError::NotFound) => Ok(BTreeSet::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Like [`Filesystem::pin`]; `tables` returns the tables that the inode was read from.
    fn pin_with(
        &self,
        inode: &Inode,
        tables: impl FnOnce() -> Result<Arc<dyn Reader>>,
    ) -> Result<Option<Pin>> {
        let path = match self.lies_at_path(inode)? {
            false => None,
            true => match self.object(inode)? {
                None => return Ok(None),
                Some(object) if inode.is_ahead() => Some(object.key),
                Some(object) => return Ok(Some(Pin::whole(object, inode.content.data_bytes()))),
            },
        };
        let size_bytes = inode.size_bytes;
        Ok(Some(match &inode.content {
            Content::Inline(extents) => Pin::of_extents(extents, size_bytes, path.as_ref()),
            Content::Rows(summary) => Pin::of_rows(tables()?, inode.ino, summary.clone(), size_bytes, path),
        }))
    }

    /// Returns whether an inode's bytes are, or will be once stored, under the key that its path gives.
    pub(crate) fn lies_at_path(&self, inode: &Inode) -> Result<bool> {
        match inode.object() {
            Some(object) => Ok(self.layout.follows_paths() && object.key.is_none()),
            None => self.has_path_key(inode),
        }
    }

    /// Returns whether an inode's path can be a key. An inode without a name counts as if it could.
    pub(crate) fn has_path_key(&self, inode: &Inode) -> Result<bool> {
        match &inode.home {
            Some((dir, name)) if self.layout.follows_paths() => {
                Ok(self.layout.has_key(&self.layout.directory(&self.names, *dir)?, name, inode.kind))
            }
            _ => Ok(self.layout.follows_paths()),
        }
    }

    /// Returns the key that a file's path gives; `None` if the path cannot be a key.
    pub(crate) fn path_key(&self, inode: &Inode) -> Result<Option<ObjectKey>> {
        if !self.layout.follows_paths() {
            return Ok(None);
        }
        match self.layout.path_key(&self.names, inode) {
            Err(Error::Name(BadName::Key(InvalidKey::TooLong(_)))) => Ok(None),
            key => Ok(Some(key?)),
        }
    }

    /// Fails if a new name is the escaped form of a key that is no path.
    pub(crate) fn check_not_escape(&self, parent: Ino, name: &Name, kind: Kind) -> Result<()> {
        Ok(self.layout.check_not_escape(&self.layout.directory(&self.names, parent)?, name, kind)?)
    }

    /// Returns whether a listing of the bucket shows an inode under a name, once it is stored.
    pub(crate) fn is_shown(&self, parent: Ino, name: &Name, inode: &Inode) -> Result<bool> {
        Ok(self.layout.follows_paths()
            && self.layout.would_show((parent, &self.layout.directory(&self.names, parent)?), name, inode))
    }

    /// Returns the object of a file in a volume named by path.
    pub(crate) fn object(&self, inode: &Inode) -> Result<Option<ObjectRef>> {
        let Some(stored) = inode.object() else { return Ok(None) };
        if inode.home.is_none() && stored.key.is_none() {
            // The object at the path was deleted or replaced together with the name.
            return Ok(None);
        }
        Ok(Some(ObjectRef {
            key: self.layout.key(&self.names, inode)?,
            etag: stored.etag.clone(),
            version: stored.version.clone(),
            last_modified: None,
        }))
    }

    /// Returns the attributes that programs see, unpublished writes included.
    pub(crate) fn attr(&self, inode: Inode) -> Attr {
        let pending =
            self.files.get(inode.ino).map(|file| file.pending()).filter(|pending| pending.is_edited);
        let attr = Attr::from(&self.seen(inode));
        match pending {
            Some(pending) => attr.with_data_bytes(pending.data_bytes),
            None => attr,
        }
    }

    /// Returns the inode with the unpublished writes and the access time of its open file.
    pub(crate) fn seen(&self, inode: Inode) -> Inode {
        let inode = self.access_times.overlay(inode);
        match self.files.get(inode.ino) {
            Some(file) => file.overlay(inode),
            None => inode,
        }
    }
}

/// Validates a name given by a program.
pub(crate) fn name(bytes: &[u8]) -> Result<Name> {
    Ok(Name::new(bytes)?)
}
