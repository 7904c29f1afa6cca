//! Hints: what an event source says about objects.

use crate::{EventKind, ObjectEvent, Sequence};
use std::borrow::Cow;
use store::Timestamp;

/// A statement about an object from an event source. It may be late, repeated, out of order or wrong, so a consumer that needs
/// certainty must check the object. The hint borrows from the message that contained it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint<'a> {
    /// The bucket (container).
    pub bucket: Cow<'a, str>,
    /// The object's exact key.
    pub key: Cow<'a, [u8]>,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The position among the hints for the key from the same source, if the source states it.
    pub order: Option<Order>,
    /// The time of the change by the source's clock.
    pub time: Option<Timestamp>,
    /// Further statements of the source about the object.
    pub object: ObjectDescription<'a>,
}

/// The kinds of changes of an object that consumers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The object has new bytes and new metadata.
    Stored,
    /// The object is gone.
    Removed,
    /// The object has the same bytes with other metadata, tags or permissions; or a version was removed and the event does not say what
    /// is current now.
    Changed,
    /// The object was read.
    Read,
}

/// The order of hints: a greater value is later. Values of different keys or different sources cannot be compared.
///
/// Sources write a number of up to 128 bits: AWS, MinIO and Ceph a hexadecimal `sequencer`, GCS a generation and a
/// metageneration (here the upper and the lower half), OpenIO the microseconds of `when`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(pub u128);

/// The statements of a source about an object. `None` means that the source does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectDescription<'a> {
    /// The length in bytes.
    pub size_bytes: Option<u64>,
    /// The etag, without quotes.
    pub etag: Option<Cow<'a, str>>,
    /// The version id.
    pub version: Option<Cow<'a, str>>,
    /// The value of `Content-Type`.
    pub content_type: Option<Cow<'a, str>>,
    /// All of the user metadata: names in lower case without `x-amz-meta-`.
    pub properties: Option<Vec<(Cow<'a, str>, Cow<'a, str>)>>,
    /// All of the tags.
    pub tags: Option<Vec<(Cow<'a, str>, Cow<'a, str>)>>,
}

impl From<Sequence> for Order {
    fn from(sequence: Sequence) -> Self {
        Self(u128::from(sequence.0))
    }
}

impl Hint<'_> {
    /// Returns a copy that borrows nothing.
    pub fn into_owned(self) -> Hint<'static> {
        Hint {
            bucket: Cow::Owned(self.bucket.into_owned()),
            key: Cow::Owned(self.key.into_owned()),
            kind: self.kind,
            order: self.order,
            time: self.time,
            object: self.object.into_owned(),
        }
    }
}

impl ObjectDescription<'_> {
    fn into_owned(self) -> ObjectDescription<'static> {
        let text = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        let pair = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned()))
        };
        ObjectDescription {
            size_bytes: self.size_bytes,
            etag: text(self.etag),
            version: text(self.version),
            content_type: text(self.content_type),
            properties: self.properties.map(|all| all.into_iter().map(pair).collect()),
            tags: self.tags.map(|all| all.into_iter().map(pair).collect()),
        }
    }
}

/// Converts an event of this process's own endpoint.
impl<'a> From<&'a ObjectEvent> for Hint<'a> {
    fn from(event: &'a ObjectEvent) -> Self {
        let has_version = event.object.version.is_some();
        let kind = match event.kind {
            EventKind::TaggingPut | EventKind::TaggingDelete => ChangeKind::Changed,
            // Only one version was removed, which need not be the current one.
            EventKind::RemovedDelete | EventKind::ExpirationDelete if has_version => ChangeKind::Changed,
            kind if kind.is_removed() => ChangeKind::Removed,
            _ => ChangeKind::Stored,
        };
        let pair = |(name, value): (&'a String, &'a String)| {
            (Cow::Borrowed(name.as_str()), Cow::Borrowed(value.as_str()))
        };
        let object = &event.object;
        let exists = !event.kind.is_removed();
        Self {
            bucket: Cow::Borrowed(&event.bucket),
            key: Cow::Borrowed(event.key.as_bytes()),
            kind,
            order: Some(event.sequence.into()),
            time: Some(event.time),
            object: ObjectDescription {
                size_bytes: object.size_bytes,
                etag: object.etag.as_ref().map(|etag| Cow::Borrowed(etag.as_str())),
                version: None,
                content_type: object.content_type.as_deref().map(Cow::Borrowed),
                properties: exists.then(|| object.user.iter().map(pair).collect()),
                tags: exists.then(|| object.tags.iter().map(pair).collect()),
            },
        }
    }
}
