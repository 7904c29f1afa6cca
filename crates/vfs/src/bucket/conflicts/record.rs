//! Conflict records and their encoding.

use serde::{Deserialize, Serialize};
use store::{ETag, ObjectKey, ObjectRef, Timestamp};

use super::ConflictPolicy;

/// Version of the record format that this Tenon reads and writes.
const VERSION: u32 = 1;

/// A conflict, with the locations of both sides' bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Unique id: 16 hexadecimal digits.
    pub id: String,
    /// The key that both sides stored to.
    pub key: ObjectKey,
    /// The file's path from the volume's root.
    pub path: Vec<u8>,
    /// When the conflict was detected.
    pub at: Timestamp,
    /// The policy that was applied.
    pub policy: ConflictPolicy,
    /// The etag of the bucket's object when the conflict was detected; `None` if it had been deleted.
    pub seen: Option<ETag>,
    /// The location of the bytes written here. `None` while they are being stored, or if nothing is left of incomplete bytes.
    pub file: Option<Side>,
    /// The location of the bucket's bytes; `None` if the object was deleted there.
    pub bucket: Option<Side>,
    /// Whether the file's bytes are complete. If the file was edited in place, the unmodified part may have been lost with the
    /// object.
    pub is_complete: bool,
}

/// The location of one side's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The object's key.
    pub key: ObjectKey,
    /// The object's etag when it was stored.
    pub etag: ETag,
}

impl Side {
    pub(crate) fn of(object: &ObjectRef) -> Self {
        Self { key: object.key.clone(), etag: object.etag.clone() }
    }
}

impl Conflict {
    /// Returns whether the path takes no writes until the conflict is resolved.
    pub fn blocks(&self) -> bool {
        self.policy == ConflictPolicy::Fail
    }

    /// Returns whether nothing is left of the bytes written here.
    pub fn is_gone(&self) -> bool {
        self.file.is_none() && !self.is_complete
    }

    /// Returns the side whose object is at the conflict's key; `None` if neither is.
    pub(crate) fn side_at_key(&self) -> Option<&Side> {
        let has_name = |side: &&Side| side.key == self.key;
        self.file.as_ref().filter(has_name).or(self.bucket.as_ref().filter(has_name))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let written = ConflictRecord {
            v: VERSION,
            key: store::hex(self.key.as_bytes()),
            path: store::hex(&self.path),
            at: self.at.0,
            policy: self.policy,
            seen: self.seen.as_ref().map(|etag| etag.as_str().to_owned()),
            file: self.file.as_ref().map(side_record),
            bucket: self.bucket.as_ref().map(side_record),
            complete: self.is_complete,
        };
        match serde_json::to_vec(&written) {
            Ok(text) => text,
            Err(error) => unreachable!("a record is valid JSON: {error}"),
        }
    }

    pub(super) fn decode(id: &str, text: &[u8]) -> Result<Self, String> {
        let written: ConflictRecord = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if written.v != VERSION {
            return Err(format!("it has version {}, this Tenon knows version {VERSION}", written.v));
        }
        Ok(Self {
            id: id.to_owned(),
            key: key(&written.key)?,
            path: store::unhex(&written.path).ok_or("its path is damaged")?,
            at: Timestamp(written.at),
            policy: written.policy,
            seen: written.seen.as_deref().map(ETag::new),
            file: written.file.map(side).transpose()?,
            bucket: written.bucket.map(side).transpose()?,
            is_complete: written.complete,
        })
    }
}

/// The record as JSON. Keys and paths are in hexadecimal, as they may not be valid UTF-8.
#[derive(Serialize, Deserialize)]
struct ConflictRecord {
    /// Version of the record.
    v: u32,
    key: String,
    path: String,
    at: i64,
    policy: ConflictPolicy,
    /// Etag of the bucket's object when the conflict was detected.
    seen: Option<String>,
    file: Option<SideRecord>,
    bucket: Option<SideRecord>,
    complete: bool,
}

#[derive(Serialize, Deserialize)]
struct SideRecord {
    key: String,
    etag: String,
}

fn side_record(side: &Side) -> SideRecord {
    SideRecord { key: store::hex(side.key.as_bytes()), etag: side.etag.as_str().to_owned() }
}

fn side(side_record: SideRecord) -> Result<Side, String> {
    Ok(Side { key: key(&side_record.key)?, etag: ETag::new(&side_record.etag) })
}

fn key(text: &str) -> Result<ObjectKey, String> {
    let bytes = store::unhex(text).ok_or("a key in it is damaged")?;
    ObjectKey::new(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_newer_versions_refused() {
        let key = |text: &str| ObjectKey::try_from(text).unwrap();
        let side = |text: &str| Some(Side { key: key(text), etag: ETag::new("e") });
        let conflict = Conflict {
            id: "0123456789abcdef".into(),
            key: key("a/b"),
            path: b"a/b".to_vec(),
            at: Timestamp(5),
            policy: ConflictPolicy::FileWins,
            seen: Some(ETag::new("theirs")),
            file: side("a/b"),
            bucket: side("lost+found/a_b.01234567"),
            is_complete: true,
        };
        assert_eq!(Conflict::decode(&conflict.id, &conflict.encode()).unwrap(), conflict);
        assert_eq!(conflict.side_at_key(), conflict.file.as_ref());
        let deleted = Conflict { bucket: None, file: side("lost+found/x"), seen: None, ..conflict };
        assert_eq!(Conflict::decode(&deleted.id, &deleted.encode()).unwrap(), deleted);
        assert_eq!(deleted.side_at_key(), None);
        let newer = String::from_utf8(deleted.encode()).unwrap().replace("\"v\":1", "\"v\":2");
        assert!(Conflict::decode("x", newer.as_bytes()).unwrap_err().contains("version 2"));
        assert!(Conflict::decode("x", b"{}").is_err());
    }
}
