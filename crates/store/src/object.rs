//! What a store says of its objects.

use crate::{ETag, ObjectKey, Result, Timestamp};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::collections::BTreeMap;
use std::fmt;

/// The version id of a versioned bucket, opaque.
pub type VersionId = Box<str>;

/// The id of the version that a key has where its bucket kept no versions when it was stored.
pub const NULL_VERSION: &str = "null";

/// Whether a bucket keeps what is overwritten and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versioning {
    /// It does not and never did.
    #[default]
    Never,
    /// Every write makes a version, every deletion a marker.
    Enabled,
    /// What there is stays; writes and deletions replace the version `null`.
    Suspended,
}

/// A version of an object, or the mark of its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Whose.
    pub key: ObjectKey,
    /// By which it is found.
    pub id: VersionId,
    /// Whether it is what the key is now.
    pub is_newest: bool,
    /// When it was stored.
    pub last_modified: Timestamp,
    /// What was stored; `None` for a deletion's mark.
    pub stored: Option<ObjectMeta>,
}

/// One entry of a listing of versions, by key, and the newest of a key first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionEntry {
    /// A version.
    Version(Box<Version>),
    /// Keys folded by the delimiter: the common beginning, delimiter included.
    Prefix(Bytes),
}

impl VersionEntry {
    /// The key or common prefix, by which listings are ordered.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Version(version) => version.key.as_bytes(),
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// What a deletion did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// The version that was removed, or the mark that was made; `None` in a bucket without versions.
    pub version: Option<VersionId>,
    /// Whether that is a deletion's mark.
    pub is_marker: bool,
}

/// Object tags (S3 Object Tagging: at most 10 on AWS).
pub type Tags = BTreeMap<String, String>;

/// The identity of some immutable bytes: key + etag + version id or modification time.
///
/// On an unversioned bucket the bytes are what the ref says *or gone*: a `get` with this etag either returns
/// them or fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Where.
    pub key: ObjectKey,
    /// Which bytes.
    pub etag: ETag,
    /// Which version, where the bucket keeps versions.
    pub version: Option<VersionId>,
    /// When they were stored; the answer to a PUT does not say.
    pub last_modified: Option<Timestamp>,
}

impl ObjectRef {
    /// The bytes that a key has under a tag.
    pub fn new(key: ObjectKey, etag: ETag) -> Self {
        Self { key, etag, version: None, last_modified: None }
    }
}

/// The descriptive headers that travel with an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Encoding`, `Content-Language`, `Content-Disposition`, `Cache-Control` and `Expires`, and where a website
    /// sends who asks for the object (`x-amz-website-redirect-location`), by lower-case header name.
    pub system: BTreeMap<String, String>,
    /// User metadata: names in lower case without `x-amz-meta-`, at most 2 KB in all on S3.
    pub user: BTreeMap<String, String>,
    /// The storage class, where it is not the store's default.
    pub storage_class: Option<String>,
}

/// What `head` knows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Identity.
    pub object: ObjectRef,
    /// Length of the whole object in bytes.
    pub size_bytes: u64,
    /// Descriptive headers.
    pub attributes: Attributes,
    /// How many tags it has, where the store says so unasked. S3 says nothing of an object that has none.
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

/// An upload under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// What it will become.
    pub key: ObjectKey,
    /// By which it is found.
    pub id: String,
    /// When it was begun.
    pub began: Timestamp,
    /// The headers that the object will have.
    pub attributes: Attributes,
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: u32,
    /// Which bytes.
    pub etag: ETag,
    /// Their length.
    pub size_bytes: u64,
    /// When they came.
    pub last_modified: Timestamp,
    /// What who sent it wanted kept with it.
    pub note: Option<String>,
}

/// What must hold at the key for a call to take effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// No object has the key (`If-None-Match: *`).
    Absent,
    /// The object has this tag (`If-Match`).
    Matches(ETag),
}

impl Precondition {
    /// Whether it holds where an object with this tag is, or none.
    pub fn holds(&self, found: Option<&ETag>) -> bool {
        match (self, found) {
            (Self::None, _) | (Self::Absent, None) => true,
            (Self::Matches(wanted), Some(found)) => wanted == found,
            (Self::Absent, Some(_)) | (Self::Matches(_), None) => false,
        }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListRequest {
    /// Only keys that begin so.
    pub prefix: Bytes,
    /// Fold keys that go on after the prefix and this byte into one common prefix.
    pub delimiter: Option<u8>,
    /// Only entries whose text (key or common prefix) is greater than this.
    pub start_after: Option<Bytes>,
    /// The [`ListPage::next`] of the page before; where given it wins over `start_after`.
    pub token: Option<String>,
    /// At most this many entries; a store may return fewer (S3: 1,000).
    pub limit: usize,
}

/// One entry of a listing, in byte order of key or prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListEntry {
    /// An object.
    Object {
        /// Identity.
        object: ObjectRef,
        /// Length in bytes.
        size_bytes: u64,
    },
    /// Keys folded by the delimiter: the common beginning, delimiter included.
    Prefix(Bytes),
}

impl ListEntry {
    /// The key or common prefix, by which listings are ordered.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Object { object, .. } => object.key.as_bytes(),
            Self::Prefix(prefix) => prefix,
        }
    }

    /// The object and its length in bytes, if it is one.
    pub fn into_object(self) -> Option<(ObjectRef, u64)> {
        match self {
            Self::Object { object, size_bytes } => Some((object, size_bytes)),
            Self::Prefix(_) => None,
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListPage {
    /// Ascending by [`ListEntry::text`].
    pub entries: Vec<ListEntry>,
    /// For [`ListRequest::token`] of the next page; `None` at the end.
    pub next: Option<String>,
}
