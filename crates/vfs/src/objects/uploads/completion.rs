//! A multipart upload that is being completed.

use meta::{Extent, Inode};
use store::{Attributes, ETag, ObjectKey, Precondition, Tags};

use super::record::PartRecord;

/// An upload that is being completed.
pub(crate) struct Completion<'c> {
    pub(super) key: &'c ObjectKey,
    /// The orphan that holds the upload's parts.
    pub(super) upload: Inode,
    /// The content of the upload: that of all parts, in the order of their arrival.
    pub(super) stored: Vec<Extent>,
    /// All parts of the upload, with their numbers.
    pub(super) parts: Vec<(u32, PartRecord)>,
    /// Numbers of the parts that the object is to have, in order.
    pub(super) numbers: &'c [u32],
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
    pub(super) precondition: Precondition,
    pub(super) etag: Option<ETag>,
}
