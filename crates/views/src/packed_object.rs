//! An object that a view shows, as one packed record that the handler and its clients in this process share.

use crate::object_record::{LiveObject, ObjectRecord, Pairs, key_of};
use crate::{ObjectName, Shown};
use std::fmt;
use std::sync::Arc;
use store::{ETag, ObjectKey, Timestamp};

/// An object that a view shows, in its last known state. Clones share one allocation.
///
/// Invariant: the record is that of an object that exists, and its key is valid.
#[derive(Clone)]
pub struct PackedObject {
    container: Arc<str>,
    record: Arc<[u8]>,
}

impl PackedObject {
    /// Returns an object of a packed record; `None` if the record is a tombstone or malformed, or its key is invalid.
    pub(crate) fn new(container: &Arc<str>, record: &Arc<[u8]>) -> Option<Self> {
        let known = ObjectRecord::read(record).filter(|known| known.live.is_some())?;
        ObjectKey::try_from(known.key).ok()?;
        Some(Self::from_parts(Arc::clone(container), Arc::clone(record)))
    }

    /// Returns an object of parts that [`PackedObject::into_parts`] returned.
    pub(crate) fn from_parts(container: Arc<str>, record: Arc<[u8]>) -> Self {
        Self { container, record }
    }

    pub(crate) fn into_parts(self) -> (Arc<str>, Arc<[u8]>) {
        (self.container, self.record)
    }

    /// Returns the length of the record in bytes.
    pub(crate) fn record_bytes(&self) -> usize {
        self.record.len()
    }

    /// Returns the bucket.
    pub fn container(&self) -> &Arc<str> {
        &self.container
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        key_of(&self.record)
    }

    /// Returns the bucket and key.
    pub fn name(&self) -> ObjectName {
        let Ok(key) = ObjectKey::try_from(self.key()) else { unreachable!("the key was checked") };
        ObjectName { container: Arc::clone(&self.container), key }
    }

    /// Returns the length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.live().size_bytes
    }

    /// Returns the time of the last modification.
    pub fn modified(&self) -> Timestamp {
        self.live().modified
    }

    /// Returns the value of a property; `None` if the object has none of this name, or its properties are not known.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.live().properties.and_then(|properties| properties.get(name))
    }

    /// Returns whether both have the same etag, and so the same bytes.
    pub(crate) fn has_same_etag(&self, other: &Self) -> bool {
        self.live().etag == other.live().etag
    }

    /// Returns the object's fields.
    pub fn unpack(&self) -> Shown {
        let live = self.live();
        Shown {
            name: self.name(),
            size_bytes: live.size_bytes,
            etag: ETag::from(live.etag),
            modified: live.modified,
            content_type: live.content_type.flatten().map(str::to_owned),
            properties: live.properties.map(Pairs::to_map),
            tags: live.tags.map(Pairs::to_map),
        }
    }

    fn live(&self) -> LiveObject<'_> {
        let live = ObjectRecord::read(&self.record).and_then(|known| known.live);
        live.unwrap_or_else(|| unreachable!("the record was read when the object was made"))
    }
}

impl From<&Shown> for PackedObject {
    fn from(shown: &Shown) -> Self {
        let live = LiveObject {
            size_bytes: shown.size_bytes,
            modified: shown.modified,
            etag: shown.etag.as_str().into(),
            accessed: None,
            content_type: shown.content_type.as_deref().map(Some),
            properties: shown.properties.as_ref().map(Pairs::Map),
            tags: shown.tags.as_ref().map(Pairs::Map),
        };
        let mut record = Vec::new();
        ObjectRecord { key: shown.name.key.as_bytes(), order: None, live: Some(live) }.pack(&mut record);
        Self { container: Arc::clone(&shown.name.container), record: record.into() }
    }
}

impl From<Shown> for PackedObject {
    fn from(shown: Shown) -> Self {
        Self::from(&shown)
    }
}

/// Two objects are equal if clients see no difference.
impl PartialEq for PackedObject {
    fn eq(&self, other: &Self) -> bool {
        (self.container == other.container && self.record == other.record) || self.unpack() == other.unpack()
    }
}

impl Eq for PackedObject {}

impl fmt::Debug for PackedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unpack().fmt(f)
    }
}
