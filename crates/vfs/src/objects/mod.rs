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
mod settings;
mod settings_cache;
pub(crate) mod uploads;

use std::sync::Arc;
use store::ObjectStore;

use crate::Filesystem;
use crate::objects::directory_objects::{InodeObjects, PathObjects};
use crate::volumes::Volume;

pub use buckets::directory_buckets;
pub(crate) use description::OWN;
pub(crate) use uploads::from_hex;

/// Serves the objects of the directory `base` (`bucket/`), or of the whole volume if it is empty. A missing directory is reported
/// by the calls, not here.
pub fn objects(fs: &Arc<Filesystem>, base: &[u8]) -> Arc<dyn ObjectStore> {
    match fs.volume {
        Volume::ByPath(_) => Arc::new(PathObjects::new(fs, base)),
        Volume::ByInode(_) => Arc::new(InodeObjects::new(fs, base)),
    }
}
