//! Where the content of a file is stored: a few extents in the inode record, or a summary of many extents that have rows of
//! their own.
//!
//! Invariants: [`Content::Inline`] has at most [`INLINE_EXTENTS_MAX`] extents and
//! [`Content::Rows`] has more; apart from its fingerprint, a summary equals what [`Content::of`] computes from the rows.

use crate::{Extent, Stored};
use aws_lc_rs::digest::{Context, SHA256};
use std::fmt;
use std::ops::Range;
use store::{ObjectKey, hex};

/// Maximum number of extents in an inode record. More extents have rows of their own.
pub const INLINE_EXTENTS_MAX: usize = 4;

/// The content of a file. Its size in memory is bounded, however many extents the file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// All extents, ascending and without overlap; holes read as zeros. Without extents nothing is stored yet. Under the mapping
    /// `Whole` there is one extent, which has length 0 for an empty file and for a directory's marker. An extent of length 0 is
    /// always the only one.
    Inline(Vec<Extent>),
    /// A summary. [`Namespace::content`](crate::Namespace::content) reads the extents themselves.
    Rows(Summary),
}

/// A summary of extents that have rows of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of extents.
    pub extents: u64,
    /// Sum of the lengths of the extents, in bytes.
    pub data_bytes: u64,
    /// Number of extents in the object at the path key (see [`Stored::key`]).
    pub at_path: u64,
    /// The object that [`Content::object`] returns.
    pub object: Stored,
    /// Distinguishes the content from all other contents that the file has had.
    pub fingerprint: Fingerprint,
    /// Whether `R` rows count how many extents are in each object. Inode records of version 1 have no such counts; the next change
    /// of the content adds them.
    pub has_counted_uses: bool,
}

/// A 128-bit identifier of a content: a hash of its extents and length, or after a change of a part, a hash of the previous
/// fingerprint and the change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; Self::BYTES]);

impl Content {
    /// The content of a file of which nothing is stored.
    pub const EMPTY: Self = Self::Inline(Vec::new());

    /// Creates the content that consists of the given extents, in a file of `size_bytes`.
    pub fn of(extents: &[Extent], size_bytes: u64) -> Self {
        if extents.len() <= INLINE_EXTENTS_MAX {
            return Self::Inline(extents.to_vec());
        }
        let Some(object) = object_of(extents).cloned() else { return Self::EMPTY };
        Self::Rows(Summary {
            extents: extents.len() as u64,
            data_bytes: data_bytes(extents),
            at_path: count_at_path(extents),
            object,
            fingerprint: Fingerprint::of(extents, size_bytes),
            has_counted_uses: true,
        })
    }

    /// Returns the object at the path key, or else the object of the first extent; `None` if nothing is stored.
    pub fn object(&self) -> Option<&Stored> {
        match self {
            Self::Inline(extents) => object_of(extents),
            Self::Rows(summary) => Some(&summary.object),
        }
    }

    /// Returns the number of extents.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(extents) => extents.len() as u64,
            Self::Rows(summary) => summary.extents,
        }
    }

    /// Returns whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that are stored: the file's length without its holes.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Inline(extents) => data_bytes(extents),
            Self::Rows(summary) => summary.data_bytes,
        }
    }

    /// Returns the extent if there is exactly one, otherwise `None`.
    pub fn only_extent(&self) -> Option<&Extent> {
        match self {
            Self::Inline(extents) => <&[Extent; 1]>::try_from(extents.as_slice()).ok().map(|[one]| one),
            Self::Rows(_) => None,
        }
    }

    /// Returns the fingerprint of this content in a file of `size_bytes`.
    pub fn fingerprint(&self, size_bytes: u64) -> Fingerprint {
        match self {
            Self::Inline(extents) => Fingerprint::of(extents, size_bytes),
            Self::Rows(summary) => summary.fingerprint,
        }
    }

    /// Returns whether some extents are in the object at the path key and others are not.
    pub(crate) fn is_partly_at_path(&self) -> bool {
        let at_path = match self {
            Self::Inline(extents) => count_at_path(extents),
            Self::Rows(summary) => summary.at_path,
        };
        0 < at_path && at_path < self.len()
    }
}

/// Returns the object at the path key, or else the object of the first extent; `None` without extents.
fn object_of(extents: &[Extent]) -> Option<&Stored> {
    let mut objects = extents.iter().map(|extent| &extent.object);
    objects.clone().find(|object| object.key.is_none()).or_else(|| objects.next())
}

/// Returns the sum of the lengths. The sum saturates, since damaged extents may have any length.
pub(crate) fn data_bytes(extents: &[Extent]) -> u64 {
    extents.iter().fold(0, |sum, extent| sum.saturating_add(extent.len))
}

/// Returns how many extents are in the object at the path key.
pub(crate) fn count_at_path(extents: &[Extent]) -> u64 {
    extents.iter().filter(|extent| extent.object.key.is_none()).count() as u64
}

impl Fingerprint {
    /// Length in bytes.
    pub const BYTES: usize = 16;

    /// Computes the fingerprint of content that is given as a whole.
    pub fn of(extents: &[Extent], size_bytes: u64) -> Self {
        let mut digest = Context::new(&SHA256);
        digest.update(&size_bytes.to_be_bytes());
        add_extents(&mut digest, extents);
        Self::finish(digest)
    }

    /// Computes the fingerprint after `extents` have replaced `ranges` in a content with this fingerprint; `size_bytes` is the new
    /// file size. The cost depends on the change only, not on the file's size.
    pub(crate) fn after_change(self, ranges: &[Range<u64>], extents: &[Extent], size_bytes: u64) -> Self {
        let mut digest = Context::new(&SHA256);
        digest.update(&self.0);
        digest.update(&size_bytes.to_be_bytes());
        digest.update(&(ranges.len() as u64).to_be_bytes());
        for range in ranges {
            digest.update(&range.start.to_be_bytes());
            digest.update(&range.end.to_be_bytes());
        }
        add_extents(&mut digest, extents);
        Self::finish(digest)
    }

    /// Returns the fingerprint that a digest has computed.
    fn finish(digest: Context) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&digest.finish().as_ref()[..Self::BYTES]);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Adds extents to a digest, apart from empty ones.
fn add_extents(digest: &mut Context, extents: &[Extent]) {
    for extent in extents.iter().filter(|extent| extent.len > 0) {
        for number in [extent.offset, extent.len, extent.object_offset] {
            digest.update(&number.to_be_bytes());
        }
        add_bytes(digest, extent.object.key.as_ref().map_or(b"", ObjectKey::as_bytes));
        add_bytes(digest, extent.object.etag.as_str().as_bytes());
    }
}

/// Adds bytes to a digest, after their length.
fn add_bytes(digest: &mut Context, bytes: &[u8]) {
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}
