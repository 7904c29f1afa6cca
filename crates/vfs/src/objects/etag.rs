//! Etags of content that is not one object with an etag of its own.
//!
//! Invariant: an inode has the same etag, for every reader and across mounts, until its bytes change or, if they were
//! written through the mount, its times change.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use meta::{Extent, Fingerprint, Inode, Kind};
use serde::{Deserialize, Serialize};
use store::{ETag, Timestamp, hex};

/// 128 bits are enough to distinguish any two contents.
const TAG_BYTES: usize = 16;

/// The etag assigned to content when it was stored, with a fingerprint of that content. Content written through the mount has
/// no assigned etag: it may be in several objects that are joined later, and its bytes are the same before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AssignedEtag {
    #[serde(rename = "e")]
    etag: String,
    /// Fingerprint of the content that has the etag.
    #[serde(rename = "c")]
    content: String,
}

impl AssignedEtag {
    /// Returns the etag of content that was just stored: that of its object if it is one whole object.
    pub(super) fn for_content(content: &[Extent], size_bytes: u64) -> Self {
        let fingerprint = Fingerprint::of(content, size_bytes).to_string();
        let etag = match content {
            [one] if one.object_offset == 0 && one.len == size_bytes && !one.object.etag.is_provisional() => {
                one.object.etag.as_str().to_owned()
            }
            _ => format!("{fingerprint}-{}", content.len().max(1)),
        };
        Self { etag, content: fingerprint }
    }

    /// Returns the same content under another etag.
    pub(super) fn with_etag(self, etag: Option<&ETag>) -> Self {
        Self { etag: etag.map_or(self.etag, |etag| etag.as_str().to_owned()), ..self }
    }

    /// Binds an inode's current etag to its current content, before other attributes of the inode change.
    pub(super) fn preserving(etag: &ETag, inode: &Inode) -> Self {
        Self { etag: etag.as_str().to_owned(), content: fingerprint(inode) }
    }

    /// Returns whether the inode still has the content that has the etag.
    pub(super) fn is_of(&self, inode: &Inode) -> bool {
        self.content == fingerprint(inode)
    }

    pub(super) fn etag(&self) -> ETag {
        ETag::new(&self.etag)
    }
}

/// Returns the etag of a file or symbolic link. The etag of a file written through the mount comes from its times: a write
/// changes them, and no program can set ctime.
pub(super) fn of(inode: &Inode, given: Option<&AssignedEtag>) -> ETag {
    if inode.kind == Kind::Symlink {
        return of_link(inode.target.as_ref());
    }
    if let Some(given) = given
        && given.is_of(inode)
    {
        return given.etag();
    }
    let mut digest = Context::new(&SHA256);
    for number in [inode.ino.0, inode.size_bytes, inode.mtime.0 as u64, inode.ctime.0 as u64] {
        digest.update(&number.to_be_bytes());
    }
    tag(digest, 1)
}

/// Returns a text that differs for different contents.
fn fingerprint(inode: &Inode) -> String {
    inode.content.fingerprint(inode.size_bytes).to_string()
}

/// Returns the etag of a symbolic link's object.
pub(super) fn of_link(target: Option<&Bytes>) -> ETag {
    let mut digest = Context::new(&SHA256);
    add_text(&mut digest, target.map_or(b"", |target| target));
    tag(digest, 1)
}

/// Returns the etag of a directory's marker, from its body and the time it was stored.
pub(super) fn of_marker(ino: u64, body: &[u8], at: Timestamp) -> ETag {
    let mut digest = Context::new(&SHA256);
    digest.update(&ino.to_be_bytes());
    digest.update(&at.0.to_be_bytes());
    add_text(&mut digest, body);
    tag(digest, 1)
}

fn add_text(digest: &mut Context, text: &[u8]) {
    digest.update(&(text.len() as u64).to_be_bytes());
    digest.update(text);
}

/// Returns the etag of content in a number of pieces.
fn tag(digest: Context, pieces: usize) -> ETag {
    ETag::new(&format!("{}-{}", short_hex(digest), pieces.max(1)))
}

fn short_hex(digest: Context) -> String {
    hex(&digest.finish().as_ref()[..TAG_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::Stored;
    use store::ObjectKey;

    fn extent(len: u64) -> Extent {
        let key = Some(ObjectKey::try_from("inodes/1-2").unwrap());
        let object = Stored { key, etag: ETag::new("abc"), version: None, last_modified: None };
        Extent { offset: 0, len, object, object_offset: 0 }
    }

    fn inode(content: Vec<Extent>, size_bytes: u64, ctime: i64) -> Inode {
        Inode {
            ino: meta::Ino(7),
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size_bytes,
            atime: Timestamp(0),
            mtime: Timestamp(1),
            ctime: Timestamp(ctime),
            btime: Timestamp(0),
            home: None,
            content: meta::Content::of(&content, size_bytes),
            target: None,
            exact: true,
            observed_at: meta::Moment::default(),
        }
    }

    #[test]
    fn a_file_that_was_cut_has_another_tag_than_its_object() {
        let given = AssignedEtag::for_content(&[extent(10)], 10);
        let tag = |len, size, ctime| of(&inode(vec![extent(len)], size, ctime), Some(&given));
        assert_eq!(tag(10, 10, 1), ETag::new("abc"));
        assert_eq!(tag(10, 10, 2), ETag::new("abc"), "a chmod changes no bytes");
        assert_ne!(tag(5, 5, 1), ETag::new("abc"));
        assert_ne!(tag(10, 12, 1), ETag::new("abc"));
        assert!(tag(5, 5, 1).as_str().ends_with("-1") && tag(5, 5, 1).as_str().len() == 34);
    }

    /// HDF5 leaves a file in several objects, which are joined after its close: a reader that knew the earlier etag was told
    /// that the file had changed.
    #[test]
    fn the_etag_of_a_written_file_is_independent_of_its_layout() {
        let mut rest = extent(4);
        rest.offset = 6;
        let pieces = of(&inode(vec![extent(6), rest], 10, 1), None);
        assert_eq!(of(&inode(vec![extent(10)], 10, 1), None), pieces);
        assert_ne!(
            of(&inode(vec![extent(10)], 10, 2), None),
            pieces,
            "a rewritten file whose mtime was set back must get another etag"
        );
    }
}
