//! What an event source says.

use crate::{EventKind, ObjectEvent, Sequence};
use std::borrow::Cow;
use store::Timestamp;

/// What somebody says happened to an object: late, twice, out of order or untrue, so whoever needs to be sure looks at the
/// object. Borrows from the message that said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint<'a> {
    /// The bucket (container).
    pub bucket: Cow<'a, str>,
    /// The object's exact key.
    pub key: Cow<'a, [u8]>,
    /// What.
    pub what: What,
    /// Its place among the hints of the key that come from sources of one kind, where the source says it.
    pub order: Option<Order>,
    /// When it happened, by the source's clock.
    pub time: Option<Timestamp>,
    /// What the source says of the object besides.
    pub said: Said<'a>,
}

/// What can happen to an object, as far as anybody here needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// It has these bytes and this metadata now.
    Stored,
    /// It is gone.
    Removed,
    /// The same bytes have other metadata, tags or permissions; or a version is gone, and what is there now is not said.
    Changed,
    /// Somebody read it.
    Read,
}

/// Greater is later. Of different keys, or of different sources, it says nothing.
///
/// Sources write a number of up to 128 bits: AWS, MinIO and Ceph a hexadecimal `sequencer`, GCS a generation and a
/// metageneration (here the upper and the lower half), OpenIO the microseconds of `when`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(pub u128);

/// What a source says of an object. `None` is "not said".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said<'a> {
    /// Length in bytes.
    pub size_bytes: Option<u64>,
    /// Which bytes, without quotes.
    pub etag: Option<Cow<'a, str>>,
    /// Which version.
    pub version: Option<Cow<'a, str>>,
    /// `Content-Type`.
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
    /// The same, borrowing nothing.
    pub fn into_owned(self) -> Hint<'static> {
        Hint {
            bucket: Cow::Owned(self.bucket.into_owned()),
            key: Cow::Owned(self.key.into_owned()),
            what: self.what,
            order: self.order,
            time: self.time,
            said: self.said.into_owned(),
        }
    }
}

impl Said<'_> {
    fn into_owned(self) -> Said<'static> {
        let text = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        let pair = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned()))
        };
        Said {
            size_bytes: self.size_bytes,
            etag: text(self.etag),
            version: text(self.version),
            content_type: text(self.content_type),
            properties: self.properties.map(|all| all.into_iter().map(pair).collect()),
            tags: self.tags.map(|all| all.into_iter().map(pair).collect()),
        }
    }
}

/// What this process's own endpoint did.
impl<'a> From<&'a ObjectEvent> for Hint<'a> {
    fn from(event: &'a ObjectEvent) -> Self {
        let is_a_version = event.object.version.is_some();
        let what = match event.kind {
            EventKind::TaggingPut | EventKind::TaggingDelete => What::Changed,
            // Only a version is gone, which may be an old one.
            EventKind::RemovedDelete | EventKind::ExpirationDelete if is_a_version => What::Changed,
            kind if kind.is_removed() => What::Removed,
            _ => What::Stored,
        };
        let pair = |(name, value): (&'a String, &'a String)| {
            (Cow::Borrowed(name.as_str()), Cow::Borrowed(value.as_str()))
        };
        let object = &event.object;
        let is_there = !event.kind.is_removed();
        Self {
            bucket: Cow::Borrowed(&event.bucket),
            key: Cow::Borrowed(event.key.as_bytes()),
            what,
            order: Some(event.sequence.into()),
            time: Some(event.time),
            said: Said {
                size_bytes: object.size_bytes,
                etag: object.etag.as_ref().map(|etag| Cow::Borrowed(etag.as_str())),
                version: None,
                content_type: object.content_type.as_deref().map(Cow::Borrowed),
                properties: is_there.then(|| object.user.iter().map(pair).collect()),
                tags: is_there.then(|| object.tags.iter().map(pair).collect()),
            },
        }
    }
}
