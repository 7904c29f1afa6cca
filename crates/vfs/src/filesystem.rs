//! The parts of a mounted volume, and how they are put together. Its operations are in `ops`.

use meta::{Ino, Moment, Namespace, OpContext, Origin};
use staging::mover::Mover;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::ObjectStore;

use crate::Result;
use crate::base::Base;
use crate::bucket::BucketServices;
use crate::bucket::conflicts::resolve::ConflictResolver;
use crate::bucket::conflicts::{ConflictRecords, Conflicts};
use crate::bucket::discovery::Discovery;
use crate::bucket::evict::NameEvictor;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::exports::{self, Exporter};
use crate::bucket::headers::Defaults;
use crate::bucket::hints::Hints;
use crate::bucket::known_state::KnownState;
use crate::bucket::lister::BackgroundLister;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::mover::{self, Moves};
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::bucket::reconcile::Reconciler;
use crate::bucket::sharing::Sharing;
use crate::config::{AttributeSource, Config, Dependencies};
use crate::content::Content;
use crate::content::io::FileIo;
use crate::content::opener::FileOpener;
use crate::content::read::reader::FileReader;
use crate::content::write::editor::FileEditor;
use crate::content::write::publisher::Publisher;
use crate::content::write::uploader::Uploader;
use crate::derived::router::ViewRouter;
use crate::derived::views::Views;
use crate::followers::other_sessions;
use crate::kernel_caches::KernelCaches;
use crate::layout::{KeySpace, Layout};
use crate::memory_limit::MemoryLimit;
use crate::moments::Moments;
use crate::mount::Mount;
use crate::names::Names;
use crate::objects::moved_settings::BucketSettings;
use crate::ops::create::Creator;
use crate::ops::directory::DirectoryReader;
use crate::ops::entries::EntryOps;
use crate::ops::remove::Remover;
use crate::ops::rename::Renamer;
use crate::volume::Naming;
use crate::volumes::{self, InodeVolume, PathVolume, Volume};

/// A mounted volume. Calls follow POSIX and may be made from any thread.
#[derive(Debug)]
pub struct Filesystem {
    pub(crate) me: Weak<Self>,
    pub(crate) mount: Arc<Mount>,
    pub(crate) names: Arc<Names>,
    pub(crate) content: Arc<Content>,
    pub(crate) io: FileIo,
    pub(crate) bucket: BucketServices,
    pub(crate) entries: EntryOps,
    pub(crate) volume: Volume,
    pub(crate) views: Arc<ViewRouter>,
    pub(crate) directories: Arc<DirectoryReader>,
    pub(crate) settings: Arc<BucketSettings>,
    pub(crate) kernel_caches: KernelCaches,
}

impl Filesystem {
    /// Opens the volume, without a request to the bucket. Fails if the settings do not fit the volume, or its metadata
    /// or journal cannot be read.
    pub fn mount(dependencies: Dependencies, mut config: Config) -> Result<Arc<Self>> {
        if config.is_shared {
            // The front end caches an answer for the whole TTL again: a fact that is almost expired here would live twice as
            // long.
            config.metadata_ttl /= 2;
        }
        std::fs::create_dir_all(&config.cache_dir)?;
        let Dependencies { store, engine, clock, entropy, record } = dependencies;
        let (now, at) = (clock.now(), Moment::default());
        let context = OpContext { now, at, uid: config.uid, gid: config.gid, origin: Origin::Bookkeeping };
        let tables = Namespace::new(engine, &context)?;
        let keys = KeySpace { record: record.as_ref(), ..config.key_space() };
        let mut layout = Layout::of(keys, tables.inode(Ino::ROOT)?.btime);
        if let Some(batch) = &config.batch {
            layout = layout.with_content_prefix(&batch.content_prefix);
        }
        let rules = volumes::rules_of(layout.naming());
        let sharing = Sharing::of(&store, &entropy, &layout, &rules, &config)?;
        let (store, mover) = match layout.naming() {
            Naming::FilePath => {
                let mover = mover::open(&store, &entropy, &config)?;
                (mover.clone() as Arc<dyn ObjectStore>, Some(mover))
            }
            Naming::Inode => (store, None),
        };
        let reads_headers = rules.exports_attributes
            && match config.attributes {
                AttributeSource::Auto => record.is_some() || config.is_shared,
                AttributeSource::Headers => true,
                AttributeSource::Listing => false,
            };
        let mount = Arc::new(Mount {
            store,
            moments: Arc::new(Moments::new(clock.clone(), tables.mount())),
            clock,
            entropy,
            layout,
            rules,
            memory: Arc::new(MemoryLimit::new(config.memory_limit_bytes)),
            defaults: Defaults {
                uid: config.uid,
                gid: config.gid,
                file_mode: config.file_mode,
                dir_mode: config.dir_mode,
            },
            config,
        });
        let conflicts = Conflicts::load(&tables)?;
        let names = Names::new(mount.clone(), tables);
        let content = Content::new(mount.clone(), names.clone());
        let base = Base { mount, names, content };
        let parts = BucketParts {
            known: KnownState::new(&base, sharing, reads_headers),
            metadata: Metadata::new(&base),
            exports: ExportQueue::new(&base),
            locks: ChangeLocks::new(&base),
            conflicts: ConflictRecords::new(&base, conflicts),
        };
        assemble(base, parts, mover, record)
    }

    /// Returns the service that invalidates the caches of front ends.
    pub fn kernel_caches(&self) -> &KernelCaches {
        &self.kernel_caches
    }

    /// Returns the service that processes hints that objects changed.
    pub fn hints(&self) -> &Hints {
        &self.bucket.hints
    }

    /// Returns the records of unresolved conflicts.
    pub fn conflicts(&self) -> &ConflictRecords {
        &self.bucket.conflicts
    }

    /// Returns the service that decides conflicts.
    pub fn conflict_resolver(&self) -> &ConflictResolver {
        &self.bucket.resolver
    }

    /// Returns the service for renames whose objects have not moved yet.
    pub fn moves(&self) -> &Moves {
        &self.bucket.moves
    }

    /// Returns the service that publishes unpublished writes.
    pub fn publisher(&self) -> &Publisher {
        &self.io.publisher
    }

    /// Returns the views of the volume.
    pub fn views(&self) -> &ViewRouter {
        &self.views
    }

    /// Returns the present moment, which is later than every earlier observation and change. An observation of the bucket has
    /// the moment at which its request began.
    pub fn moment(&self) -> Moment {
        self.mount.moment()
    }

    /// Returns the moment at which the monotonic clock showed `reading`; before the mount, a moment that is older than every
    /// other.
    pub fn moment_at(&self, reading: Duration) -> Moment {
        self.mount.moment_at(reading)
    }
}

/// Puts the services together, each over those that it uses.
fn assemble(
    base: Base,
    parts: BucketParts,
    mover: Option<Arc<Mover>>,
    record: Option<crate::VolumeRecord>,
) -> Result<Arc<Filesystem>> {
    let views = Views::new();
    let name_evictor = NameEvictor::new(&base, &parts, &views);
    let reconciler = Reconciler::new(&base, &parts);
    let discovery = Discovery::new(&base, &parts, &reconciler, &name_evictor);
    let resolver = ConflictResolver::new(&base, &parts, &discovery);
    let uploader = Uploader::new(&base);
    let opener = FileOpener::new(&base, &parts);
    let publisher = Publisher::new(&base, &parts, &uploader, &discovery, record);
    let exporter = Exporter::new(&base, &parts, &publisher, &opener, mover.clone());
    let weak = Arc::downgrade(&exporter);
    parts.exports.serve(move || exports::start(weak.clone()));
    let moves = Moves::new(&base, &parts, &resolver, mover);
    let settings = BucketSettings::new(&base, &parts);
    let io = FileIo {
        reader: FileReader::new(&base, &discovery, &reconciler, &publisher),
        editor: FileEditor::new(&base, &parts, &uploader, &publisher, &opener),
        uploader,
        publisher,
        opener,
    };
    let renamer = Renamer::new(&base, &parts, &discovery, &exporter, &moves, &settings);
    let entries = EntryOps {
        creator: Creator::new(&base, &parts, &discovery, &io.publisher, &io.opener, &settings),
        remover: Remover::new(&base, &parts, &io.publisher, &io.opener, &settings, &renamer),
        renamer,
    };
    other_sessions::follow(&base)?;
    moves.install_mover_callbacks();
    settings.load_moved_settings()?;
    let bucket = BucketServices {
        hints: Hints::new(&base, &parts, &discovery),
        lister: BackgroundLister::new(&base, &parts, &reconciler, &discovery),
        known: parts.known,
        metadata: parts.metadata,
        exports: parts.exports,
        locks: parts.locks,
        conflicts: parts.conflicts,
        discovery,
        name_evictor,
        resolver,
        exporter,
        moves,
    };
    let volume = match base.mount.layout.naming() {
        Naming::FilePath => Volume::ByPath(PathVolume::new(&base, &bucket, &io.publisher, &entries)),
        Naming::Inode => Volume::ByInode(InodeVolume::new(&base, &bucket, &io.opener, &entries)),
    };
    let views = ViewRouter::new(&base, &bucket, &entries, &io.editor, &views);
    views.follow_changes();
    let directories = DirectoryReader::new(&base, &bucket, &views);
    Ok(Arc::new_cyclic(|me| Filesystem {
        kernel_caches: KernelCaches::new(&base),
        me: me.clone(),
        mount: base.mount,
        names: base.names,
        content: base.content,
        io,
        bucket,
        entries,
        volume,
        views,
        directories,
        settings,
    }))
}
