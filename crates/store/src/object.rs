//! Types that describe objects, versions, uploads and listings.

use crate::{ETag, ObjectKey, Result, Timestamp};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::collections::BTreeMap;
use std::fmt;

/// The id of an object's version in a versioned bucket; opaque.
pub type VersionId = Box<str>;

/// The id of a version that was stored while its bucket kept no versions.
pub const NULL_VERSION: &str = "null";

/// The versioning state of a bucket: whether it keeps objects that are overwritten or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versioning {
    /// Versioning was never enabled.
    #[default]
    Never,
    /// Every write makes a version, every deletion a delete marker.
    Enabled,
    /// Existing versions stay; writes and deletions replace the version `null`.
    Suspended,
}

/// A version of an object, or a delete marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The object's key.
    pub key: ObjectKey,
    /// The version's id.
    pub id: VersionId,
    /// Whether this is the key's current version.
    pub is_newest: bool,
    /// When the version was stored.
    pub last_modified: Timestamp,
    /// The stored object; `None` for a delete marker.
    pub stored: Option<ObjectMeta>,
}

/// An entry of a listing of versions. Entries are in order of their keys, the newest version of a key first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionEntry {
    /// A version.
    Version(Box<Version>),
    /// Keys folded by the delimiter: the common beginning, delimiter included.
    Prefix(Bytes),
}

impl VersionEntry {
    /// Returns the key or common prefix, by which listings are ordered.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Version(version) => version.key.as_bytes(),
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// The effect of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// The version that was removed, or the delete marker that was made; `None` in a bucket without versions.
    pub version: Option<VersionId>,
    /// Whether `version` is a delete marker.
    pub is_marker: bool,
}

/// Object tags (S3 Object Tagging: at most 10 on AWS).
pub type Tags = BTreeMap<String, String>;

/// The identity of some immutable bytes: key + etag + version id or modification time.
///
/// In an unversioned bucket the bytes may have been replaced or removed since: a `get` with this etag either
/// returns exactly these bytes or fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// The object's key.
    pub key: ObjectKey,
    /// The etag of the bytes.
    pub etag: ETag,
    /// The version, if the bucket keeps versions.
    pub version: Option<VersionId>,
    /// When the bytes were stored; unknown after a PUT, whose response does not contain the time.
    pub last_modified: Option<Timestamp>,
}

impl ObjectRef {
    /// Makes a reference without version and modification time.
    pub fn new(key: ObjectKey, etag: ETag) -> Self {
        Self { key, etag, version: None, last_modified: None }
    }
}

/// The descriptive headers that travel with an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Encoding`, `Content-Language`, `Content-Disposition`, `Cache-Control`, `Expires` and
    /// `x-amz-website-redirect-location`, by lower-case header name.
    pub system: BTreeMap<String, String>,
    /// User metadata: names in lower case without `x-amz-meta-`; on S3 at most 2 KB in total.
    pub user: BTreeMap<String, String>,
    /// The storage class, if it is not the store's default.
    pub storage_class: Option<String>,
}

/// An object's description, as `head` returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The object's identity: its key, etag and version.
    pub object: ObjectRef,
    /// Length of the whole object in bytes.
    pub size_bytes: u64,
    /// Descriptive headers.
    pub attributes: Attributes,
    /// The number of tags, if the store returns it with the description. S3 omits the header for objects without tags.
    pub tag_count: Option<u32>,
}

/// An object being read: its description and its bytes.
pub struct Object {
    /// Description of the whole object, also for a ranged read.
    pub meta: ObjectMeta,
    /// The bytes asked for, in order. A body that ends early is an error item, never a short stream.
    pub body: BoxStream<'static, Result<Bytes>>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// A multipart upload in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The key of the object that the upload will create.
    pub key: ObjectKey,
    /// The upload's id.
    pub id: String,
    /// When the upload was begun.
    pub began: Timestamp,
    /// The headers that the object will have.
    pub attributes: Attributes,
}

/// A part of a multipart upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The part's number.
    pub number: u32,
    /// The part's etag.
    pub etag: ETag,
    /// The part's length in bytes.
    pub size_bytes: u64,
    /// When the part was stored.
    pub last_modified: Timestamp,
    /// A text that the sender stored with the part ([`MakePartNote`](crate::MakePartNote)).
    pub note: Option<String>,
}

/// A condition on the object at a key, without which a call has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// No condition.
    #[default]
    None,
    /// No object has the key (`If-None-Match: *`).
    Absent,
    /// The object has this tag (`If-Match`).
    Matches(ETag),
}

impl Precondition {
    /// Returns whether the condition holds for the etag found at the key; `None` stands for no object.
    pub fn holds(&self, found: Option<&ETag>) -> bool {
        match (self, found) {
            (Self::None, _) | (Self::Absent, None) => true,
            (Self::Matches(wanted), Some(found)) => wanted == found,
            (Self::Absent, Some(_)) | (Self::Matches(_), None) => false,
        }
    }
}

/// A request for one page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListRequest {
    /// Return only keys with this prefix.
    pub prefix: Bytes,
    /// Group keys that contain this byte after the prefix into one entry, a common prefix.
    pub delimiter: Option<u8>,
    /// Return only entries whose text (key or common prefix) is greater than this.
    pub start_after: Option<Bytes>,
    /// The [`ListPage::next`] of the previous page; overrides `start_after`.
    pub token: Option<String>,
    /// Maximum number of entries; a store may return fewer (S3: 1,000).
    pub limit: usize,
    /// Return the attributes of objects too, if the store can do so without a request for each object.
    pub with_attributes: bool,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// The object's identity: its key, etag and version.
    pub object: ObjectRef,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Descriptive headers, if the listing has them ([`ListRequest::with_attributes`]).
    pub attributes: Option<Box<Attributes>>,
}

impl ListedObject {
    /// Makes an entry without attributes.
    pub fn new(object: ObjectRef, size_bytes: u64) -> Self {
        Self { object, size_bytes, attributes: None }
    }

    /// Makes an entry of an object's description, with its attributes if the request asked for them.
    pub fn of(meta: ObjectMeta, with_attributes: bool) -> Self {
        let attributes = with_attributes.then(|| Box::new(meta.attributes));
        Self { object: meta.object, size_bytes: meta.size_bytes, attributes }
    }

    /// Returns the entry under another key.
    pub fn with_key(self, key: ObjectKey) -> Self {
        Self { object: ObjectRef { key, ..self.object }, ..self }
    }
}

/// An entry of a listing. Entries are in byte order of key or prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListEntry {
    /// An object.
    Object(ListedObject),
    /// Keys folded by the delimiter: the common beginning, delimiter included.
    Prefix(Bytes),
}

impl ListEntry {
    /// Returns the key or common prefix, by which listings are ordered.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Object(listed) => listed.object.key.as_bytes(),
            Self::Prefix(prefix) => prefix,
        }
    }

    /// Returns the object and its length in bytes, unless the entry is a prefix.
    pub fn into_object(self) -> Option<(ObjectRef, u64)> {
        match self {
            Self::Object(listed) => Some((listed.object, listed.size_bytes)),
            Self::Prefix(_) => None,
        }
    }

    /// Returns the entry with `change` applied if it is an object; a prefix stays unchanged.
    pub fn map_object(self, change: impl FnOnce(ListedObject) -> ListedObject) -> Self {
        match self {
            Self::Object(listed) => Self::Object(change(listed)),
            Self::Prefix(_) => self,
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListPage {
    /// Ascending by [`ListEntry::text`].
    pub entries: Vec<ListEntry>,
    /// The [`ListRequest::token`] of the next page; `None` on the last page.
    pub next: Option<String>,
}
