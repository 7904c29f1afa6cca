//! The messages of the protocol, as JSON.

use crate::{Changes, Cursor, ObjectName, PackedObject, Shown, Unlisted, ViewError};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use store::{ETag, ObjectKey, StoreError, Tags, Timestamp};

/// Bytes of a key that are percent-encoded: those that JSON text cannot hold as they are, and `%`.
const KEY: AsciiSet = CONTROLS.add(b'%');

/// The answer to a request that opens a view.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opened {
    /// The handler's number of the view.
    pub(super) view: u64,
}

/// One page of changes of a view.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Page {
    cursor: String,
    beginning: bool,
    more: bool,
    /// Buckets; objects refer to them by index.
    containers: Vec<String>,
    shown: Vec<Row>,
    gone: Vec<(usize, String)>,
    /// Buckets that cannot be read, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unlisted: Vec<(String, String)>,
}

/// An object: index of the bucket, key, size, etag, modification time in nanoseconds, type, properties, tags.
type Row = (usize, String, u64, String, i64, Option<String>, Option<BTreeMap<String, String>>, Option<Tags>);

/// The body of an answer that is an error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    /// Kind of the error. A newer peer may send kinds that are not known here.
    pub(super) kind: String,
    /// The message, or the name of the bucket that does not exist.
    pub(super) says: String,
    /// The container whose store failed; `None` for other errors.
    #[serde(default, rename = "container", skip_serializing_if = "Option::is_none")]
    pub(super) failed_container: Option<String>,
}

impl Page {
    pub(super) fn new(changes: &Changes) -> Self {
        let mut buckets = BucketTable::default();
        let row = |object: &PackedObject, buckets: &mut BucketTable| -> Row {
            let object = object.unpack();
            (
                buckets.index_of(&object.name.container),
                key_text(&object.name.key),
                object.size_bytes,
                object.etag.as_str().to_owned(),
                object.modified.0,
                object.content_type,
                object.properties,
                object.tags,
            )
        };
        let shown = changes.shown.iter().map(|shown| row(shown, &mut buckets)).collect();
        let gone = changes.gone.iter().map(|name| (buckets.index_of(&name.container), key_text(&name.key)));
        let gone = gone.collect();
        let unlisted =
            changes.unlisted.iter().map(|unlisted| (unlisted.container.clone(), unlisted.why.clone()));
        Self {
            cursor: cursor_text(&changes.cursor),
            beginning: changes.is_beginning,
            more: changes.has_more,
            containers: buckets.0.iter().map(|name| name.to_string()).collect(),
            shown,
            gone,
            unlisted: unlisted.collect(),
        }
    }

    /// Decodes the page; `None` if it is malformed.
    pub(super) fn read(self) -> Option<Changes> {
        let containers: Vec<Arc<str>> = self.containers.iter().map(|name| name.as_str().into()).collect();
        let name = |at: usize, key: &str| {
            let key: Vec<u8> = percent_decode_str(key).collect();
            Some(ObjectName { container: containers.get(at)?.clone(), key: ObjectKey::new(key).ok()? })
        };
        let shown = self.shown.into_iter().map(
            |(at, key, size_bytes, etag, modified, content_type, properties, tags)| {
                let (etag, modified) = (ETag::new(&etag), Timestamp(modified));
                let name = name(at, &key)?;
                Some(PackedObject::from(Shown {
                    name,
                    size_bytes,
                    etag,
                    modified,
                    content_type,
                    properties,
                    tags,
                }))
            },
        );
        Some(Changes {
            cursor: read_cursor(&self.cursor)?,
            is_beginning: self.beginning,
            has_more: self.more,
            shown: shown.collect::<Option<_>>()?,
            gone: self.gone.iter().map(|(at, key)| name(*at, key)).collect::<Option<_>>()?,
            unlisted: self.unlisted.into_iter().map(|(container, why)| Unlisted { container, why }).collect(),
        })
    }
}

/// The buckets of a page; few enough for a linear search.
#[derive(Default)]
struct BucketTable(Vec<Arc<str>>);

impl BucketTable {
    fn index_of(&mut self, container: &Arc<str>) -> usize {
        // Consecutive objects are mostly of one bucket, so the search begins at the last one.
        let known = self.0.iter().rposition(|known| Arc::ptr_eq(known, container) || known == container);
        known.unwrap_or_else(|| {
            self.0.push(container.clone());
            self.0.len() - 1
        })
    }
}

fn key_text(key: &ObjectKey) -> String {
    percent_encode(key.as_bytes(), &KEY).to_string()
}

/// Writes a cursor as text: epoch and versions in hexadecimal, with `-` between them.
pub(super) fn cursor_text(cursor: &Cursor) -> String {
    let mut text = format!("{:x}", cursor.epoch);
    for version in &*cursor.versions {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "-{version:x}");
    }
    text
}

/// Reads a cursor from its text; `None` if it is malformed.
pub(super) fn read_cursor(text: &str) -> Option<Cursor> {
    let mut numbers = text.split('-').map(|number| u64::from_str_radix(number, 16).ok());
    let epoch = numbers.next()??;
    Some(Cursor { epoch, versions: numbers.collect::<Option<_>>()? })
}

impl From<&ViewError> for Failure {
    fn from(error: &ViewError) -> Self {
        let (kind, says) = match error {
            ViewError::Unreachable(says) => ("unreachable", says.clone()),
            ViewError::Unknown => ("unknown", error.to_string()),
            ViewError::Refused(says) | ViewError::TooLarge(says) => ("refused", says.clone()),
            ViewError::Store { source, .. } => store_failure(source),
        };
        let failed_container = match error {
            ViewError::Store { container, .. } => Some(container.clone()),
            _ => None,
        };
        Self { kind: kind.to_owned(), says, failed_container }
    }
}

/// Returns the kind and the message of a store's error.
fn store_failure(error: &StoreError) -> (&'static str, String) {
    match error {
        StoreError::NoSuchBucket(bucket) => ("no-bucket", bucket.clone()),
        StoreError::Denied(says) => ("denied", says.clone()),
        StoreError::Throttled(says) => ("throttled", says.clone()),
        StoreError::Unavailable(says) => ("unavailable", says.clone()),
        StoreError::Corrupt(says) => ("corrupt", says.clone()),
        StoreError::Unsupported(says) => ("unsupported", says.clone()),
        StoreError::Invalid(says) => ("invalid", says.clone()),
        error => ("invalid", error.to_string()),
    }
}

impl From<Failure> for ViewError {
    fn from(failure: Failure) -> Self {
        let Failure { kind, says, failed_container } = failure;
        let Some(container) = failed_container else {
            return match kind.as_str() {
                "unknown" => Self::Unknown,
                "unreachable" => Self::Unreachable(says),
                _ => Self::Refused(says),
            };
        };
        let source = match kind.as_str() {
            "no-bucket" => StoreError::NoSuchBucket(says),
            "denied" => StoreError::Denied(says),
            "throttled" => StoreError::Throttled(says),
            "unavailable" => StoreError::Unavailable(says),
            "corrupt" => StoreError::Corrupt(says),
            "unsupported" => StoreError::Unsupported(says),
            _ => StoreError::Invalid(says),
        };
        Self::Store { container, source }
    }
}

/// Decodes the bytes as each message of the protocol, for the fuzz target.
#[cfg(feature = "fuzz")]
pub fn fuzz_messages(bytes: &[u8]) {
    drop(serde_json::from_slice::<Opened>(bytes));
    if let Ok(failure) = serde_json::from_slice::<Failure>(bytes) {
        drop(ViewError::from(failure));
    }
    if let Some(cursor) = std::str::from_utf8(bytes).ok().and_then(read_cursor) {
        assert_eq!(read_cursor(&cursor_text(&cursor)), Some(cursor));
    }
    let Some(changes) = serde_json::from_slice::<Page>(bytes).ok().and_then(Page::read) else { return };
    assert_eq!(Page::new(&changes).read(), Some(changes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(key: Vec<u8>, size_bytes: u64, modified: i64) -> Shown {
        Shown {
            name: ObjectName { container: "bucket".into(), key: ObjectKey::new(key).unwrap() },
            size_bytes,
            etag: ETag::new("e-1"),
            modified: Timestamp(modified),
            content_type: size_bytes.is_multiple_of(2).then(|| "text/plain".to_owned()),
            properties: size_bytes.is_multiple_of(3).then(|| [("a".to_owned(), "ü\n".to_owned())].into()),
            tags: size_bytes.is_multiple_of(5).then(Tags::new),
        }
    }

    proptest! {
        #[test]
        fn a_page_survives_encoding(
            keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..8), 0..6),
            sizes in proptest::collection::vec(any::<(u64, i64)>(), 6),
            versions in proptest::collection::vec(any::<u64>(), 0..4),
            (is_beginning, has_more) in any::<(bool, bool)>(),
        ) {
            let mut gone: Vec<_> = keys.iter().map(|key| shown(key.clone(), 0, 0).name).collect();
            gone.iter_mut().skip(1).for_each(|name| name.container = "other".into());
            let shown = keys.into_iter().zip(sizes).map(|(key, (size, at))| PackedObject::from(shown(key, size, at)));
            let cursor = Cursor { epoch: 7, versions: versions.into() };
            let unlisted = gone.iter().map(|name| Unlisted { container: name.container.to_string(), why: "ü".into() });
            let unlisted = unlisted.collect();
            let changes = Changes { cursor, is_beginning, has_more, shown: shown.collect(), gone, unlisted };
            let text = serde_json::to_string(&Page::new(&changes)).unwrap();
            let page: Page = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(page.read().unwrap(), changes);
        }

        #[test]
        fn no_text_of_a_cursor_panics(text in "\\PC{0,40}") {
            if let Some(cursor) = read_cursor(&text) {
                prop_assert_eq!(read_cursor(&cursor_text(&cursor)).unwrap(), cursor);
            }
        }
    }

    #[test]
    fn an_error_survives_encoding() {
        let store = |source| ViewError::Store { container: "b".into(), source };
        for error in [
            ViewError::Unknown,
            ViewError::Unreachable("no".into()),
            ViewError::Refused("no".into()),
            store(StoreError::NoSuchBucket("b".into())),
            store(StoreError::Denied("no".into())),
            store(StoreError::Unavailable("no".into())),
        ] {
            let text = serde_json::to_string(&Failure::from(&error)).unwrap();
            let back = ViewError::from(serde_json::from_str::<Failure>(&text).unwrap());
            assert_eq!(back.to_string(), error.to_string());
        }
        let page =
            r#"{"cursor":"1","beginning":false,"more":false,"containers":[],"shown":[],"gone":[[0,"k"]]}"#;
        assert_eq!(serde_json::from_str::<Page>(page).unwrap().read(), None);
    }
}
