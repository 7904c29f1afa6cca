//! Tags of content that is not one object with a tag of its own.
//!
//! Invariant: the same inode has the same tag until its bytes change, whoever asks and whenever the volume was mounted.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use meta::{Extent, Inode, Kind};
use serde::{Deserialize, Serialize};
use store::{ETag, Timestamp};

/// 128 bits are enough to tell any two contents apart.
const TAG_BYTES: usize = 16;

/// An object that was all of a file when it was stored. One extent alone does not say so: a file that was cut is the
/// beginning of an object whose tag is of more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whole {
    #[serde(rename = "e")]
    etag: String,
    #[serde(rename = "n")]
    size_bytes: u64,
}

impl Whole {
    /// The object that content which was just stored consists of, if it is one.
    pub(super) fn of(content: &[Extent], size_bytes: u64) -> Option<Self> {
        match content {
            [one] if one.offset == 0 && one.object_offset == 0 && one.len == size_bytes => {
                let etag = &one.object.etag;
                (!etag.is_provisional()).then(|| Self { etag: etag.as_str().to_owned(), size_bytes })
            }
            _ => None,
        }
    }
}

/// The tag of a file or link.
pub(super) fn of(inode: &Inode, whole: Option<&Whole>) -> ETag {
    match inode.kind {
        Kind::Symlink => of_link(inode.target.as_ref()),
        _ => of_content((inode.ino.0, inode.mtime), &inode.content, inode.size_bytes, whole),
    }
}

/// The tag of a file with this content; an empty one is told apart by its number and time.
pub(super) fn of_content(
    (ino, mtime): (u64, Timestamp),
    content: &[Extent],
    size_bytes: u64,
    whole: Option<&Whole>,
) -> ETag {
    if let Some(whole) = whole
        && Whole::of(content, size_bytes).as_ref() == Some(whole)
    {
        return ETag::new(&whole.etag);
    }
    let mut digest = Context::new(&SHA256);
    digest.update(&size_bytes.to_be_bytes());
    if size_bytes == 0 {
        digest.update(&ino.to_be_bytes());
        digest.update(&mtime.0.to_be_bytes());
    }
    for extent in content.iter().filter(|extent| extent.len > 0) {
        for number in [extent.offset, extent.len, extent.object_offset] {
            digest.update(&number.to_be_bytes());
        }
        add_text(&mut digest, extent.object.key.as_ref().map_or(b"", |key| key.as_bytes()));
        add_text(&mut digest, extent.object.etag.as_str().as_bytes());
    }
    tag(digest, content.len())
}

/// The tag of a symbolic link's object.
pub(super) fn of_link(target: Option<&Bytes>) -> ETag {
    let mut digest = Context::new(&SHA256);
    add_text(&mut digest, target.map_or(b"", |target| target));
    tag(digest, 1)
}

/// The tag of a directory's marker: its body, and when it was stored.
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

fn tag(digest: Context, pieces: usize) -> ETag {
    let digest = digest.finish();
    let hex: String = digest.as_ref()[..TAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
    ETag::new(&format!("{hex}-{}", pieces.max(1)))
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

    #[test]
    fn a_file_that_was_cut_has_another_tag_than_its_object() {
        let (stored, cut) = ([extent(10)], [extent(5)]);
        let whole = Whole::of(&stored, 10);
        let tag = |content: &[Extent], size| of_content((7, Timestamp(1)), content, size, whole.as_ref());
        assert_eq!(tag(&stored, 10), ETag::new("abc"));
        assert_ne!(tag(&cut, 5), ETag::new("abc"));
        assert_ne!(tag(&stored, 12), ETag::new("abc"));
        assert!(tag(&cut, 5).as_str().ends_with("-1") && tag(&cut, 5).as_str().len() == 34);
    }

    #[test]
    fn empty_files_differ_by_their_number_and_time() {
        let tag = |ino, at| of_content((ino, Timestamp(at)), &[], 0, None);
        assert_eq!(tag(7, 1), tag(7, 1));
        assert!(tag(7, 1) != tag(7, 2) && tag(7, 1) != tag(8, 1));
    }
}
