//! Records of an upload and of its parts.

use bytes::Bytes;
use meta::Ino;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{Attributes, ETag, Entropy, ObjectKey, Part, StoreError, Tags, Timestamp, Upload, hex};

/// The attribute that marks an orphan as an upload.
pub(super) const UPLOAD: &[u8] = b"tenon.upload";
const PART: &str = "tenon.part.";
const VERSION: u32 = 1;
/// Length of an id's random part in hexadecimal digits; the inode's number follows.
const RANDOM_DIGITS: usize = 32;

/// The parameters that an upload was begun with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UploadRecord {
    #[serde(rename = "v")]
    version: u32,
    pub(super) id: String,
    /// The path below the volume's root, in hexadecimal.
    key: String,
    began_ns: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    system: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    user: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage_class: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tags: Tags,
}

/// A part, and the location of its bytes in the orphan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PartRecord {
    #[serde(rename = "v")]
    version: u32,
    etag: String,
    /// The start of the part's bytes in the content of the upload's inode, in bytes.
    pub(super) at: u64,
    pub(super) size_bytes: u64,
    /// Time when the part was stored.
    modified_ns: i64,
    /// A text that the sender stored with the part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl UploadRecord {
    pub(super) fn new(id: &str, path: &[u8], began: Timestamp, attributes: Attributes, tags: Tags) -> Self {
        let Attributes { content_type, system, user, storage_class } = attributes;
        let (version, id, key) = (VERSION, id.to_owned(), hex(path));
        Self { version, id, key, began_ns: began.0, content_type, system, user, storage_class, tags }
    }

    pub(super) fn parse(value: &[u8]) -> store::Result<Self> {
        parse(value)
    }

    pub(super) fn encode(&self) -> store::Result<Bytes> {
        encode(self)
    }

    /// Returns the path below the volume's root.
    pub(super) fn key(&self) -> store::Result<Vec<u8>> {
        store::unhex(&self.key).ok_or_else(|| StoreError::Corrupt("an upload's key is damaged".to_owned()))
    }

    pub(super) fn attributes(&self) -> Attributes {
        Attributes {
            content_type: self.content_type.clone(),
            system: self.system.clone(),
            user: self.user.clone(),
            storage_class: self.storage_class.clone(),
        }
    }

    pub(super) fn upload(&self, key: ObjectKey) -> Upload {
        let (id, began) = (self.id.clone(), Timestamp(self.began_ns));
        Upload { key, id, began, attributes: self.attributes() }
    }
}

impl PartRecord {
    pub(super) fn new(
        etag: &ETag,
        at: u64,
        size_bytes: u64,
        modified: Timestamp,
        note: Option<String>,
    ) -> Self {
        let (version, etag) = (VERSION, etag.as_str().to_owned());
        Self { version, etag, at, size_bytes, modified_ns: modified.0, note }
    }

    pub(super) fn parse(value: &[u8]) -> store::Result<Self> {
        parse(value)
    }

    pub(super) fn encode(&self) -> store::Result<Bytes> {
        encode(self)
    }

    pub(super) fn etag(&self) -> ETag {
        ETag::new(&self.etag)
    }

    pub(super) fn part(&self, number: u32) -> Part {
        Part {
            number,
            etag: self.etag(),
            size_bytes: self.size_bytes,
            last_modified: Timestamp(self.modified_ns),
            note: self.note.clone(),
        }
    }
}

/// Returns the attribute of a part; the attributes sort by part number.
pub(super) fn part_name(number: u32) -> Box<[u8]> {
    format!("{PART}{number:05}").into_bytes().into()
}

pub(super) fn number_of(name: &[u8]) -> Option<u32> {
    std::str::from_utf8(name).ok()?.strip_prefix(PART)?.parse().ok()
}

/// Returns an unguessable id that contains the inode's number.
pub(super) fn new_id(entropy: &Entropy, ino: Ino) -> String {
    format!("{:016x}{:016x}{:x}", entropy.next_u64(), entropy.next_u64(), ino.0)
}

/// Returns the inode of an upload's id; `None` if the text is no id.
pub(super) fn ino_of(id: &str) -> Option<Ino> {
    let number = id.get(RANDOM_DIGITS..)?;
    u64::from_str_radix(number, 16).ok().filter(|_| !number.starts_with('+')).map(Ino)
}

fn parse<T: DeserializeOwned>(value: &[u8]) -> store::Result<T> {
    serde_json::from_slice(value)
        .map_err(|error| StoreError::Corrupt(format!("the record of an upload is damaged: {error}")))
}

fn encode<T: Serialize>(record: &T) -> store::Result<Bytes> {
    match serde_json::to_vec(record) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(StoreError::Invalid(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_contain_their_inode_number() {
        let id = new_id(&Entropy::new(1), Ino(0x1234));
        assert_eq!(ino_of(&id), Some(Ino(0x1234)));
        for wrong in ["", "abc", &id[..32], "ü".repeat(40).as_str(), &format!("{}+1", &id[..32])] {
            assert_eq!(ino_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn records_round_trip() {
        let user = BTreeMap::from([("a".to_owned(), "ü".to_owned())]);
        let attributes = Attributes { user, ..Attributes::default() };
        let begun = UploadRecord::new("id", b"a/\xff", Timestamp(5), attributes, Tags::new());
        let again = UploadRecord::parse(&begun.encode().unwrap()).unwrap();
        assert_eq!((again.key().unwrap(), again), (b"a/\xff".to_vec(), begun));
        assert_eq!(number_of(&part_name(17)), Some(17));
        assert!(part_name(9) < part_name(10_000));
    }
}
