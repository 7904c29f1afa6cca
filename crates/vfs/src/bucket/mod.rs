//! Synchronization of a volume named by path with its bucket: listings, changes by other clients, attributes in
//! headers, conflicts, renames, mounts on other machines, and the eviction of names that the bucket can restore. Also
//! the import of foreign objects into a volume named by inode.

pub(crate) mod changes;
pub(crate) mod conflicts;
pub(crate) mod directories;
pub(crate) mod discovery;
pub(crate) mod evict;
pub(crate) mod export_queue;
pub(crate) mod exports;
mod find_reported;
pub(crate) mod headers;
pub(crate) mod hints;
pub(crate) mod imports;
pub(crate) mod known_state;
pub(crate) mod lister;
pub(crate) mod metadata;
pub(crate) mod mover;
mod object_xattrs;
pub(crate) mod observe;
pub(crate) mod parts;
pub(crate) mod path_locks;
pub(crate) mod reconcile;
pub(crate) mod rewrites;
pub(crate) mod sharing;
pub(crate) mod sort_keys;
mod store_all;

use std::sync::Arc;

use crate::bucket::conflicts::ConflictRecords;
use crate::bucket::conflicts::resolve::ConflictResolver;
use crate::bucket::discovery::Discovery;
use crate::bucket::evict::NameEvictor;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::exports::Exporter;
use crate::bucket::hints::Hints;
use crate::bucket::known_state::KnownState;
use crate::bucket::lister::BackgroundLister;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::mover::Moves;
use crate::bucket::path_locks::ChangeLocks;

/// The services that keep a volume and its bucket in agreement.
#[derive(Debug)]
pub(crate) struct BucketServices {
    pub(crate) known: Arc<KnownState>,
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) exports: Arc<ExportQueue>,
    pub(crate) locks: Arc<ChangeLocks>,
    pub(crate) conflicts: Arc<ConflictRecords>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) name_evictor: Arc<NameEvictor>,
    pub(crate) hints: Arc<Hints>,
    /// Finds changes of known names that events, lookups and open files missed.
    pub(crate) lister: Arc<BackgroundLister>,
    pub(crate) resolver: Arc<ConflictResolver>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) moves: Arc<Moves>,
}
