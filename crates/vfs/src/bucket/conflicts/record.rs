//! What is written down of a conflict.

use serde::{Deserialize, Serialize};
use store::{ETag, ObjectKey, ObjectRef, Timestamp};

use super::ConflictPolicy;
use crate::objects::from_hex;

/// The version that this Tenon writes and reads.
const VERSION: u32 = 1;

/// A conflict, and where the bytes of both sides are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Tells it from others: 16 hexadecimal digits.
    pub id: String,
    /// The object that both sides wanted.
    pub key: ObjectKey,
    /// The file's path from the volume's root.
    pub path: Vec<u8>,
    /// When it was found.
    pub at: Timestamp,
    /// By which it was settled.
    pub policy: ConflictPolicy,
    /// The tag of the bucket's object when it was found; `None`: it was deleted.
    pub seen: Option<ETag>,
    /// Where the bytes that were written here are. `None` while they are being stored, and if they are not complete and
    /// nothing is left of them.
    pub file: Option<Side>,
    /// Where the bucket's bytes are. `None`: it was deleted there.
    pub bucket: Option<Side>,
    /// Whether the file's bytes are all there: of one edited in side_record the rest may have gone with the object.
    pub is_complete: bool,
}

/// Where one side's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The object.
    pub key: ObjectKey,
    /// Its tag when it was stored.
    pub etag: ETag,
}

impl Side {
    pub(crate) fn of(object: &ObjectRef) -> Self {
        Self { key: object.key.clone(), etag: object.etag.clone() }
    }
}

impl Conflict {
    /// Whether the path takes no writes until it is resolved.
    pub fn blocks(&self) -> bool {
        self.policy == ConflictPolicy::Fail
    }

    /// Whether nothing is left of the file's bytes.
    pub fn is_gone(&self) -> bool {
        self.file.is_none() && !self.is_complete
    }

    /// The side that has the name.
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
            Err(error) => unreachable!("numbers and texts are JSON: {error}"),
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
            path: from_hex(&written.path).ok_or("its path is damaged")?,
            at: Timestamp(written.at),
            policy: written.policy,
            seen: written.seen.as_deref().map(ETag::new),
            file: written.file.map(side).transpose()?,
            bucket: written.bucket.map(side).transpose()?,
            is_complete: written.complete,
        })
    }
}

/// The record as JSON; keys and paths in hexadecimal, as they need not be text.
#[derive(Serialize, Deserialize)]
struct ConflictRecord {
    v: u32,
    key: String,
    path: String,
    at: i64,
    policy: ConflictPolicy,
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
    let bytes = from_hex(text).ok_or("a key in it is damaged")?;
    ObjectKey::new(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written_and_newer_ones_refused() {
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
