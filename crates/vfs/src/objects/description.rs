//! Everything about an object besides its bytes, stored with a file: headers, user metadata and tags.
//!
//! User metadata becomes the extended attribute `user.<name>`, a tag `user.tag.<key>`, so that programs can read and set them.
//! Everything else, and metadata that could not be read back from these attributes, is in one attribute of Tenon's own.
//!
//! | attribute | holds |
//! |---|---|
//! | `tenon.object` | a [`Record`] |
//! | `tenon.implicit` | of a directory: it exists only because of its contents and has no marker |
//! | `tenon.marker` | of a directory: the body of its marker, unless it is empty |

use bytes::Bytes;
use meta::{FsError, Ino, Inode, Namespace, Op, XattrHow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{Attributes, ETag, StoreError, Tags, Timestamp};

use super::etag::AssignedEtag;
use crate::bucket::headers;
use crate::bucket::headers::describes_content;
use crate::bucket::metadata::{TAG, USER, USER_BYTES_MAX, tag_of, user_of};

/// Prefix of the names of Tenon's own attributes.
pub(crate) const OWN: &[u8] = b"tenon.";
pub(super) const RECORD: &[u8] = b"tenon.object";
pub(super) const IMPLICIT: &[u8] = b"tenon.implicit";
pub(super) const MARKER: &[u8] = b"tenon.marker";

const VERSION: u32 = 1;

/// Everything about an object that is in no other attribute.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(rename = "v")]
    version: u32,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(rename = "s", default, skip_serializing_if = "BTreeMap::is_empty")]
    system: BTreeMap<String, String>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    storage_class: Option<String>,
    /// User metadata that is no extended attribute, POSIX attributes included.
    #[serde(rename = "u", default, skip_serializing_if = "BTreeMap::is_empty")]
    user: BTreeMap<String, String>,
    #[serde(rename = "g", default, skip_serializing_if = "BTreeMap::is_empty")]
    tags: Tags,
    /// User metadata that the endpoint computed from the bytes with the etag `of`.
    #[serde(rename = "e", default, skip_serializing_if = "BTreeMap::is_empty")]
    endpoints: BTreeMap<String, String>,
    /// Etag of the bytes that the description was stored with.
    #[serde(rename = "o", default, skip_serializing_if = "String::is_empty")]
    of: String,
    /// Mode, owner, group and mtime that the user metadata was stored with; while the inode still has them, it describes the
    /// inode.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    posix: Option<(u16, u32, u32, i64)>,
    /// The etag that was assigned to the content, if one was.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub(super) given: Option<AssignedEtag>,
    /// Time at which a directory's marker was stored.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<i64>,
}

/// Everything about an object, as it is stored.
#[derive(Debug, Default)]
pub(super) struct ObjectDescription {
    pub(super) record: Record,
    /// Values of `user.` attributes.
    xattrs: BTreeMap<Vec<u8>, Bytes>,
}

/// Divides an object's headers and tags between the record and extended attributes.
pub(super) fn describe_object(attributes: &Attributes, tags: &Tags) -> store::Result<ObjectDescription> {
    let mut record = Record {
        version: VERSION,
        content_type: attributes.content_type.clone(),
        system: attributes.system.clone(),
        storage_class: attributes.storage_class.clone(),
        ..Record::default()
    };
    let mut xattrs = BTreeMap::new();
    let mut user_bytes = 0;
    for (name, value) in &attributes.user {
        let into = match describes_content(name) {
            true => &mut record.endpoints,
            false => {
                user_bytes += name.len() + value.len();
                let xattr = [USER, name.as_bytes()].concat();
                if user_of(&xattr, value.as_bytes()).is_some() {
                    xattrs.insert(xattr, Bytes::copy_from_slice(value.as_bytes()));
                    continue;
                }
                &mut record.user
            }
        };
        into.insert(name.clone(), value.clone());
    }
    if user_bytes > USER_BYTES_MAX {
        return Err(StoreError::Invalid(format!("user metadata exceeds {USER_BYTES_MAX} bytes")));
    }
    for (name, value) in tags {
        let xattr = [TAG, name.as_bytes()].concat();
        match tag_of(&xattr, value.as_bytes()) {
            Some(_) => drop(xattrs.insert(xattr, Bytes::copy_from_slice(value.as_bytes()))),
            None => drop(record.tags.insert(name.clone(), value.clone())),
        }
    }
    Ok(ObjectDescription { record, xattrs })
}

impl ObjectDescription {
    /// Reads what is stored about an inode.
    pub(super) fn read(names: &Namespace, ino: Ino) -> Result<Self, FsError> {
        let mut description = Self::default();
        for name in names.xattrs(ino)? {
            let is_record = *name == *RECORD;
            if !is_record && !name.starts_with(USER) {
                continue;
            }
            let value = match names.xattr(ino, &name) {
                // The attribute was removed meanwhile.
                Err(FsError::NoData) => continue,
                value => value?,
            };
            match is_record {
                true => description.record = Record::parse(&value)?,
                false => drop(description.xattrs.insert(name.into_vec(), value)),
            }
        }
        Ok(description)
    }

    /// Binds the description to the bytes with this etag and to these attributes of the inode.
    pub(super) fn bind(
        &mut self,
        etag: &ETag,
        given: Option<AssignedEtag>,
        posix: (u16, u32, u32, Timestamp),
    ) {
        let (mode, uid, gid, mtime) = posix;
        self.record.of = etag.as_str().to_owned();
        self.record.given = given;
        self.record.posix = Some((mode, uid, gid, mtime.0));
    }

    /// Returns the ops that store the description with an inode that has none.
    pub(super) fn ops(&self, ino: Ino) -> store::Result<Vec<Op>> {
        let set =
            |name: &[u8], value: Bytes| Op::SetXattr { ino, name: name.into(), value, how: XattrHow::Set };
        let mut ops: Vec<Op> = self.xattrs.iter().map(|(name, value)| set(name, value.clone())).collect();
        ops.push(set(RECORD, self.record.encode()?));
        Ok(ops)
    }

    /// Returns the ops that replace the description `before` of an inode. Attributes that are neither metadata nor tags stay.
    pub(super) fn replacement_ops(&self, ino: Ino, before: &Self) -> store::Result<Vec<Op>> {
        let mut ops = before.removal_ops(ino);
        ops.retain(|op| !matches!(op, Op::RemoveXattr { name, .. } if self.xattrs.contains_key(&**name)));
        ops.extend(self.ops(ino)?);
        Ok(ops)
    }

    /// Returns the ops that remove metadata and tags from an inode's extended attributes.
    pub(super) fn removal_ops(&self, ino: Ino) -> Vec<Op> {
        let is_ours = |(name, value): &(&Vec<u8>, &Bytes)| {
            user_of(name, value).is_some() || tag_of(name, value).is_some()
        };
        let ours = self.xattrs.iter().filter(is_ours).map(|(name, _)| name.as_slice().into());
        ours.map(|name| Op::RemoveXattr { ino, name }).collect()
    }

    /// Returns the description with other tags.
    pub(super) fn with_tags(&self, tags: &Tags) -> store::Result<Self> {
        let Self { record, xattrs } = describe_object(&Attributes::default(), tags)?;
        let is_user = |(name, value): &(&Vec<u8>, &Bytes)| user_of(name, value).is_some();
        let user = self.xattrs.iter().filter(is_user).map(|(name, value)| (name.clone(), value.clone()));
        Ok(Self {
            xattrs: xattrs.into_iter().chain(user).collect(),
            record: Record { version: VERSION, tags: record.tags, ..self.record.clone() },
        })
    }

    /// Returns the headers of an inode's object whose bytes have this etag.
    pub(super) fn attributes(&self, inode: &Inode, etag: &ETag) -> Attributes {
        let record = &self.record;
        let mut attributes = Attributes {
            content_type: record.content_type.clone(),
            system: record.system.clone(),
            user: record.user.clone(),
            storage_class: record.storage_class.clone(),
        };
        let size = |(name, value): (&String, &String)| name.len() + value.len();
        let mut room = USER_BYTES_MAX.saturating_sub(attributes.user.iter().map(size).sum());
        for (name, value) in self.xattrs.iter().filter_map(|(name, value)| user_of(name, value)) {
            // Headers cannot hold more; further attributes are left out.
            if let Some(left) = room.checked_sub(name.len() + value.len()) {
                room = left;
                attributes.user.insert(name.to_owned(), value.to_owned());
            }
        }
        if record.of == etag.as_str() {
            attributes.user.extend(record.endpoints.clone());
        }
        if self.is_current_for(inode) { attributes } else { headers::with_posix(attributes, inode) }
    }

    /// Returns whether the stored metadata still describes the inode's attributes.
    fn is_current_for(&self, inode: &Inode) -> bool {
        let Some((mode, uid, gid, mtime)) = self.record.posix else { return false };
        // A directory's mtime follows its contents.
        let is_as_old = inode.is_dir() || inode.mtime.0 == mtime;
        (inode.mode, inode.uid, inode.gid) == (mode, uid, gid) && is_as_old
    }

    /// Returns the object's tags.
    pub(super) fn tags(&self) -> Tags {
        let of_xattrs = self.xattrs.iter().filter_map(|(name, value)| tag_of(name, value));
        let of_xattrs = of_xattrs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.record.tags.clone().into_iter().chain(of_xattrs).collect()
    }
}

impl Record {
    fn parse(value: &[u8]) -> Result<Self, FsError> {
        let record: Self = serde_json::from_slice(value)
            .map_err(|error| FsError::Corrupt(format!("the record of an object is damaged: {error}")))?;
        match record.version {
            0..=VERSION => Ok(record),
            newer => Err(FsError::Corrupt(format!(
                "the record of an object has version {newer}: use a newer Tenon"
            ))),
        }
    }

    fn encode(&self) -> store::Result<Bytes> {
        let text = serde_json::to_vec(self).map_err(|error| StoreError::Invalid(error.to_string()))?;
        Ok(text.into())
    }

    /// Reads the record of an inode.
    pub(super) fn read(names: &Namespace, ino: Ino) -> Result<Self, FsError> {
        match names.xattr(ino, RECORD) {
            Err(FsError::NoData) => Ok(Self::default()),
            value => Self::parse(&value?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_round_trip() {
        let pairs = [("a", "x"), ("mode", "0100644"), ("Odd Name", "y"), ("tag.z", "z"), ("tenon-sum", "1")];
        let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let attributes = Attributes { user: pairs.map(text).into(), ..Attributes::default() };
        let long = "ü".repeat(128);
        let tags = Tags::from([("stage", "raw"), (long.as_str(), "v")].map(text));
        let description = describe_object(&attributes, &tags).unwrap();
        assert_eq!(description.xattrs.len(), 2, "{:?}", description.xattrs);
        assert_eq!(description.tags(), tags);
        let again = Record::parse(&description.record.encode().unwrap()).unwrap();
        assert_eq!(again, description.record);
        assert_eq!(description.record.endpoints.len(), 1);
        assert_eq!(description.record.user.len(), 3);
    }
}
