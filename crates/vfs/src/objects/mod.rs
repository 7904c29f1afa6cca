//! A volume as an object store, which Tenon's own S3 endpoint serves.
//!
//! Keys are paths. In a volume named by path they are keys of the bucket, and calls go through to it, in one order with the
//! mount's own changes. In a volume named by inode they are names of the namespace, and content is in objects that are not
//! served. In both cases the mount shows a change when its call returns.
//!
//! Does not show or change anything below `.tenon`; does not know HTTP.
//!
//! Invariant: a reader sees all that one call stored, or nothing of it.

mod at_path;
mod body;
mod buckets;
mod description;
mod directory_objects;
mod document;
mod errors;
mod etag;
pub(crate) mod moved_settings;
mod named;
mod served_directory;
mod settings;
mod settings_cache;
pub(crate) mod uploads;

use meta::{FsError, Inode, Kind, Namespace};
use std::sync::Arc;
use store::{ObjectMeta, ObjectStore};

use crate::Filesystem;
use crate::bucket::headers;
use crate::objects::description::ObjectDescription;
use crate::objects::directory_objects::{InodeObjects, PathObjects};
use crate::volumes::Volume;

pub use buckets::directory_buckets;
pub(crate) use description::OWN;

/// Serves the objects of the directory `base` (`bucket/`), or of the whole volume if it is empty. A missing directory is reported
/// by the calls, not here.
pub fn objects(fs: &Arc<Filesystem>, base: &[u8]) -> Arc<dyn ObjectStore> {
    match fs.volume {
        Volume::ByPath(_) => Arc::new(PathObjects::new(fs, base)),
        Volume::ByInode(_) => Arc::new(InodeObjects::new(fs, base)),
    }
}

/// Returns whether a file has an etag that holds as long as its content is in the same place.
pub(crate) fn has_assigned_etag(names: &Namespace, inode: &Inode) -> Result<bool, FsError> {
    let given = ObjectDescription::read(names, inode.ino)?.record.given;
    Ok(given.is_some_and(|given| given.is_of(inode)))
}

/// Returns what an object is as a file, according to its headers: a regular file unless they say otherwise.
pub fn kind_of(object: &ObjectMeta) -> Kind {
    headers::kind_of(&object.attributes)
}
