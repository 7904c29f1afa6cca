//! The file system's fields and its beginning; what it does is in `ops`, `reconcile`, `write` and `exports`.

use meta::namespace::read_inode;
use meta::{Content, Ctx, FsError, Ino, Inode, Kind, Moment, Name, Namespace, Reader};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use store::mover::Mover;
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
use crate::bucket::room::Rooms;
use crate::bucket::sharing::Sharing;
use crate::config::{AttributeSource, Config, Parts};
use crate::content::budget::Budget;
use crate::content::discards::Discards;
use crate::content::open_file::OpenFiles;
use crate::content::pin::Pin;
use crate::content::read::blocks::Blocks;
use crate::content::slab::{SLAB_BYTES, SlabPool};
use crate::derived::DerivedDirectories;
use crate::layout::Layout;
use crate::moments::Moments;
use crate::names::access_times::AccessTimes;
use crate::names::handles::Handles;
use crate::names::invalidation::{Invalidations, News};
use crate::names::locks::Locks;
use crate::names::references::References;
use crate::objects::{MovedSettings, SettingsCache, Storing};
use crate::turns::Turns;
use crate::volume::VolumeRecord;
use crate::{Attr, Error, Result};

/// A mounted volume. Calls are `POSIX`'s; every one may be made from any thread.
#[derive(Debug)]
pub struct Filesystem {
    pub(crate) me: Weak<Self>,
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The same store, where names are keys: what renames.
    pub(crate) mover: Option<Arc<Mover>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) moments: Arc<Moments>,
    pub(crate) entropy: Arc<Entropy>,
    pub(crate) names: Namespace,
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    pub(crate) defaults: Defaults,
    /// Attributes of what is only listed are not believed: its headers are asked for.
    pub(crate) reads_headers: bool,
    pub(crate) slabs: SlabPool,
    pub(crate) blocks: Blocks,
    pub(crate) write_budget: Budget,
    pub(crate) assembling: Turns,
    pub(crate) files: OpenFiles,
    pub(crate) handles: Handles,
    pub(crate) directories: Directories,
    /// What is shown besides, where something is.
    pub(crate) derived: OnceLock<DerivedDirectories>,
    pub(crate) room: Rooms,
    pub(crate) references: References,
    pub(crate) hand: ClockHand,
    pub(crate) lister: Lister,
    pub(crate) locks: Locks,
    pub(crate) changes: Changes,
    /// Keys that somebody is about to change: storing an object and naming it are two steps, and two changes of one mount
    /// under one key must not take each other's objects for a stranger's. Claimed after a file's work and path, see `path_locks`.
    pub(crate) claims: Claims<ObjectKey>,
    /// Keys that the endpoint changes, until the names say what became of them. Claimed before everything else.
    pub(crate) unseen: Claims<ObjectKey>,
    pub(crate) conflicts: Conflicts,
    /// What is agreed with other mounts of the bucket, where there are any.
    pub(crate) sharing: Option<Sharing>,
    /// Uploads that somebody is changing, by their ids.
    pub(crate) uploads: Claims<ObjectKey>,
    pub(crate) storing: Storing,
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
    /// Taken by who writes it.
    pub(crate) recording: Turns,
}

impl Filesystem {
    /// Opens the volume; lists nothing.
    pub fn mount(parts: Parts, mut config: Config) -> Result<Arc<Self>> {
        if config.is_shared {
            // What is almost too old here is believed as long again by the front end.
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
            assembling: Turns::with_permits(config.assembled_parts()),
            files: OpenFiles::default(),
            handles: Handles::default(),
            directories: Directories::new(keeps_directories),
            derived: OnceLock::new(),
            room: Rooms::default(),
            references: References::default(),
            hand: ClockHand::default(),
            lister: Lister::default(),
            locks: Locks::default(),
            changes: Changes::new(moments),
            claims: Claims::default(),
            unseen: Claims::default(),
            conflicts,
            sharing,
            uploads: Claims::default(),
            storing: Storing::default(),
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
            recording: Turns::default(),
            config,
        });
        fs.install_mover_callbacks();
        fs.load_moved_settings()?;
        Ok(fs)
    }

    /// How long a front end may believe entries and attributes.
    pub fn ttl(&self) -> Duration {
        self.config.metadata_ttl
    }

    /// Changes from now on that a front end's caches must hear of. Every front end listens by itself.
    pub fn invalidations(&self) -> News {
        self.invalidations.listen()
    }

    /// Locks of programs, for front ends that cannot see each other's.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The wall-clock time, for the times of inodes and for people. It orders nothing: see [`Filesystem::moment`].
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present moment: later than every look and change before it. A look is made at the moment at which it begins.
    pub fn moment(&self) -> Moment {
        self.moments.now()
    }

    /// The moment at which the monotonic clock showed `reading`; one that outranks nothing if this was not mounted then.
    pub fn moment_at(&self, reading: Duration) -> Moment {
        self.moments.at(reading)
    }

    pub(crate) fn ctx(&self) -> Ctx {
        Ctx { now: self.now(), at: self.moment(), uid: self.config.uid, gid: self.config.gid }
    }

    pub(crate) fn is_fresh(&self, seen_at: Moment) -> bool {
        self.moment().since(seen_at) < self.config.metadata_ttl
    }

    /// The same of something in a directory, unless it is doubted since.
    pub(crate) fn is_trusted(&self, dir: Ino, seen_at: Moment) -> bool {
        self.is_fresh(seen_at) && !self.directories.is_marked_stale(dir, seen_at)
    }

    pub(crate) fn writable(&self) -> Result<()> {
        if self.config.read_only { Err(Error::READ_ONLY) } else { Ok(()) }
    }

    /// A new number for a child of `parent`.
    pub(crate) fn new_ino(&self, parent: Ino) -> Result<Ino> {
        self.names
            .allocate(parent, 1)
            .first()
            .copied()
            .ok_or(Error::new(libc::ENOSPC, "no inode number is left"))
    }

    /// Returns the immutable bytes that an inode consists of now; `None` where the bucket will show it: it is not stored yet.
    pub(crate) fn pin_of(&self, ino: Ino) -> Result<Option<Pin>> {
        Ok(self.inode_with_pin(ino)?.1)
    }

    /// Returns an inode with the immutable bytes that it consists of now, if it is stored.
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

    /// Returns the immutable bytes that an inode consisted of when it was read. `StaleBase` if it consists of others by now, and the
    /// inode says not where they are.
    pub(crate) fn pin(&self, inode: &Inode) -> Result<Option<Pin>> {
        self.pin_with(inode, || {
            let tables = self.names.snapshot();
            let is_same = read_inode(&*tables, inode.ino)?.is_some_and(|now| now.content == inode.content);
            if is_same { Ok(tables) } else { Err(FsError::StaleBase.into()) }
        })
    }

    /// As [`Filesystem::pin`]. `tables` returns those that the inode was read from.
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
            Content::Inline(extents) => Pin::spread(extents, size_bytes, path.as_ref()),
            Content::Rows(summary) => Pin::of_rows(tables()?, inode.ino, summary.clone(), size_bytes, path),
        }))
    }

    /// Whether an inode's bytes lie, or will lie when they are stored, under a key that is its path.
    pub(crate) fn lies_at_path(&self, inode: &Inode) -> Result<bool> {
        match inode.object() {
            Some(object) => Ok(self.layout.follows_paths() && object.key.is_none()),
            None => self.has_path_key(inode),
        }
    }

    /// Whether an inode's path can be a key; of what has no name nothing else is expected.
    pub(crate) fn has_path_key(&self, inode: &Inode) -> Result<bool> {
        match &inode.home {
            Some((dir, name)) if self.layout.follows_paths() => {
                Ok(self.layout.has_key(&self.layout.directory(&self.names, *dir)?, name, inode.kind))
            }
            _ => Ok(self.layout.follows_paths()),
        }
    }

    /// The key that a file has by its path, if its path can be one.
    pub(crate) fn path_key(&self, inode: &Inode) -> Result<Option<ObjectKey>> {
        if !self.layout.follows_paths() {
            return Ok(None);
        }
        match self.layout.path_key(&self.names, inode) {
            Err(Error::Name(BadName::Key(InvalidKey::TooLong(_)))) => Ok(None),
            key => Ok(Some(key?)),
        }
    }

    /// An error for a new name that stands for a key which is no name.
    pub(crate) fn must_be_plain(&self, parent: Ino, name: &Name, kind: Kind) -> Result<()> {
        Ok(self.layout.must_be_plain(&self.layout.directory(&self.names, parent)?, name, kind)?)
    }

    /// Whether the bucket shows an inode under a name, as soon as it is stored.
    pub(crate) fn is_shown(&self, parent: Ino, name: &Name, inode: &Inode) -> Result<bool> {
        Ok(self.layout.follows_paths()
            && self.layout.shows((parent, &self.layout.directory(&self.names, parent)?), name, inode))
    }

    /// The object of a file in a volume named by path.
    pub(crate) fn object(&self, inode: &Inode) -> Result<Option<ObjectRef>> {
        let Some(stored) = inode.object() else { return Ok(None) };
        if inode.home.is_none() && stored.key.is_none() {
            // Its bytes went with its name.
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

    /// The inode with the unpublished writes of its open file, and when it was last read.
    pub(crate) fn seen(&self, inode: Inode) -> Inode {
        let inode = self.access_times.overlay(inode);
        match self.files.get(inode.ino) {
            Some(file) => file.overlay(inode),
            None => inode,
        }
    }
}

/// A name as a program gave it.
pub(crate) fn name(bytes: &[u8]) -> Result<Name> {
    Ok(Name::new(bytes)?)
}
