//! The file system's fields and its beginning; what it does is in `ops`, `reconcile`, `write` and `exports`.

use meta::{Ctx, Ino, Inode, Name, Namespace};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{Clock, Entropy, ObjectRef, ObjectStore, Timestamp};
use tokio::sync::{OnceCell, RwLock, Semaphore, mpsc};

use crate::budget::Budget;
use crate::changes::Changes;
use crate::claims::Claims;
use crate::config::{AttributeSource, Config, Parts};
use crate::directories::Directories;
use crate::discards::Discards;
use crate::evict::Hand;
use crate::exports::Exports;
use crate::handles::Handles;
use crate::headers::Defaults;
use crate::invalidation::{Invalidation, Invalidations};
use crate::layout::Layout;
use crate::open_file::OpenFiles;
use crate::pin::Pin;
use crate::read::blocks::Blocks;
use crate::references::References;
use crate::slab::{SLAB_BYTES, SlabPool};
use crate::turns::Turns;
use crate::volume::VolumeRecord;
use crate::{Error, Result};

/// Parts of files being assembled at the same time, over all files.
const ASSEMBLED_PARTS_MAX: usize = 4;

/// A mounted volume. Calls are `POSIX`'s; every one may be made from any thread.
#[derive(Debug)]
pub struct Filesystem {
    pub(crate) me: Weak<Self>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) clock: Arc<dyn Clock>,
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
    pub(crate) assembling: Semaphore,
    pub(crate) files: OpenFiles,
    pub(crate) handles: Handles,
    pub(crate) directories: Directories,
    pub(crate) references: References,
    pub(crate) hand: Hand,
    pub(crate) changes: Changes,
    pub(crate) claims: Claims,
    pub(crate) exports: Exports,
    pub(crate) discards: Discards,
    pub(crate) invalidations: Invalidations,
    /// Read by whoever stores under a path, written by whoever moves a tree of paths.
    pub(crate) moves: RwLock<()>,
    pub(crate) volume_record: OnceCell<VolumeRecord>,
    /// Taken by who writes it.
    pub(crate) recording: Turns,
}

impl Filesystem {
    /// Opens the volume; lists nothing.
    pub fn mount(parts: Parts, config: Config) -> Result<Arc<Self>> {
        std::fs::create_dir_all(&config.cache_dir)?;
        let record = parts.record;
        let layout = match &record {
            Some(record) => Layout::of(&config.prefix, record),
            None => Layout::by_path(&config.prefix),
        };
        let ctx = Ctx { now: parts.clock.now(), uid: config.uid, gid: config.gid };
        let names = Namespace::new(parts.engine, &ctx)?;
        let pool = ((config.read_bytes() + config.write_bytes()) as usize / SLAB_BYTES).max(1);
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            store: parts.store,
            clock: parts.clock.clone(),
            entropy: parts.entropy,
            names,
            reads_headers: layout.follows_paths()
                && match config.attributes {
                    AttributeSource::Auto => record.is_some(),
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
            assembling: Semaphore::new(assembled_parts(&config)),
            files: OpenFiles::default(),
            handles: Handles::default(),
            directories: Directories::default(),
            references: References::default(),
            hand: Hand::default(),
            changes: Changes::new(parts.clock.clone()),
            claims: Claims::default(),
            exports: Exports::default(),
            discards: Discards::default(),
            invalidations: Invalidations::default(),
            moves: RwLock::new(()),
            volume_record: record.map_or_else(OnceCell::new, |record| OnceCell::new_with(Some(record))),
            recording: Turns::default(),
            config,
        }))
    }

    /// How long a front end may believe entries and attributes.
    pub fn ttl(&self) -> Duration {
        self.config.metadata_ttl
    }

    /// Changes that a front end's caches must hear of. Taken once.
    pub fn invalidations(&self) -> Option<mpsc::Receiver<Invalidation>> {
        self.invalidations.take()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn ctx(&self) -> Ctx {
        Ctx { now: self.now(), uid: self.config.uid, gid: self.config.gid }
    }

    pub(crate) fn is_fresh(&self, seen_at: Timestamp) -> bool {
        self.now().since(seen_at) < self.config.metadata_ttl
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

    /// The immutable bytes an inode consists of now, by its number.
    pub(crate) fn pin_of(&self, ino: Ino) -> Result<Option<Pin>> {
        self.pin(&self.names.inode(ino)?)
    }

    /// The immutable bytes an inode consists of now; `None` in a volume named by path: it has no object.
    pub(crate) fn pin(&self, inode: &Inode) -> Result<Option<Pin>> {
        if !self.layout.follows_paths() {
            return Ok(Some(Pin::spread(inode)));
        }
        let size_bytes = inode.content.iter().map(|extent| extent.len).sum();
        Ok(self.object(inode)?.map(|object| Pin::whole(object, size_bytes)))
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

    /// The inode with the unpublished writes of its open file.
    pub(crate) fn seen(&self, inode: Inode) -> Inode {
        match self.files.get(inode.ino) {
            Some(file) => file.overlay(inode),
            None => inode,
        }
    }
}

/// Half the share for writing, at least one part.
fn assembled_parts(config: &Config) -> usize {
    let parts = config.write_bytes() / 2 / config.part_size_bytes.max(1);
    usize::try_from(parts).map_or(ASSEMBLED_PARTS_MAX, |parts| parts.clamp(1, ASSEMBLED_PARTS_MAX))
}

/// A name as a program gave it.
pub(crate) fn name(bytes: &[u8]) -> Result<Name> {
    Ok(Name::new(bytes)?)
}
