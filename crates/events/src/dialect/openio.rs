//! OpenIO SDS: events of its metadata services about contents, from the event queue on every node.

use super::json::{Json, Pairs};
use super::{DialectError, bytes, check_names, non_empty, to_lowercase};
use crate::{ChangeKind, Hint, ObjectDescription, Order};
use std::borrow::Cow;
use store::Timestamp;

/// The fields of an OpenIO event; empty where the message has none.
#[derive(Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Cow<'a, str>,
    /// The time in microseconds since 1970.
    when: Option<u64>,
    /// The number of messages over which the event is spread.
    parts: Option<u64>,
    user: Cow<'a, str>,
    bucket: Cow<'a, str>,
    path: Cow<'a, str>,
    version: Cow<'a, str>,
    size_bytes: Option<u64>,
    hash: Cow<'a, str>,
    content_type: Cow<'a, str>,
    properties: Pairs<'a>,
}

/// An item of an event's data, which OpenIO calls a bean.
#[derive(Default)]
struct Bean<'a> {
    kind: Cow<'a, str>,
    size_bytes: Option<u64>,
    hash: Cow<'a, str>,
    mime_type: Cow<'a, str>,
    key: Cow<'a, str>,
    value: Cow<'a, str>,
}

impl<'a> Event<'a> {
    pub(super) fn is_present(&self) -> bool {
        self.kind.starts_with("storage.")
    }

    pub(super) fn read_field(&mut self, json: &mut Json<'a>, name: &[u8]) -> Result<(), DialectError> {
        match (name, json.peek()) {
            (b"when", _) => self.when = json.integer()?,
            (b"parts", _) => self.parts = json.integer()?,
            (b"url", Some(b'{')) => json.fields(|json, name| {
                match name {
                    b"user" => self.user = json.text()?,
                    b"bucket" => self.bucket = json.text()?,
                    b"path" => self.path = json.text()?,
                    b"version" => self.version = json.text()?,
                    _ => json.skip()?,
                }
                Ok::<_, DialectError>(())
            })?,
            // In events of containers, `data` is an object.
            (b"data", Some(b'[')) => json.elements(|json| {
                self.add(Bean::read_from(json)?);
                Ok::<_, DialectError>(())
            })?,
            _ => json.skip()?,
        }
        Ok(())
    }

    fn add(&mut self, bean: Bean<'a>) {
        match &*bean.kind {
            "contents_headers" => {
                (self.size_bytes, self.hash, self.content_type) =
                    (bean.size_bytes, bean.hash, bean.mime_type);
            }
            "properties" => self.properties.push((to_lowercase(bean.key), bean.value)),
            _ => {}
        }
    }

    pub(super) fn read(self, each: &mut dyn FnMut(Hint<'a>)) -> Result<(), DialectError> {
        let Some(kind) = self.classify() else { return Ok(()) };
        let micros = |when: u64| i64::try_from(when).unwrap_or(i64::MAX).saturating_mul(1000);
        each(check_names(Hint {
            kind,
            order: self.when.map(|when| Order(u128::from(when))),
            time: self.when.map(|when| Timestamp(micros(when))),
            bucket: if self.bucket.is_empty() { self.user.clone() } else { self.bucket.clone() },
            key: bytes(self.path.clone()),
            object: if kind == ChangeKind::Stored { self.describe() } else { ObjectDescription::default() },
        })?);
        Ok(())
    }

    /// Returns the description of the object. User metadata is left out for an append, which names only what is new, and for one message of
    /// several, which has only a part.
    fn describe(self) -> ObjectDescription<'a> {
        let has_all = self.kind == "storage.content.new" && self.parts.is_none_or(|parts| parts <= 1);
        ObjectDescription {
            size_bytes: self.size_bytes,
            etag: non_empty(self.hash).map(to_lowercase),
            version: non_empty(self.version),
            content_type: non_empty(self.content_type),
            properties: has_all.then_some(self.properties),
            tags: None,
        }
    }

    /// Returns what happened; `None` for containers, chunks and other irrelevant events.
    fn classify(&self) -> Option<ChangeKind> {
        match self.kind.strip_prefix("storage.content.")? {
            "new" | "append" => Some(ChangeKind::Stored),
            "update" | "drained" | "transitioned" => Some(ChangeKind::Changed),
            "deleted" => Some(ChangeKind::Removed),
            _ => None,
        }
    }
}

impl<'a> Bean<'a> {
    fn read_from(json: &mut Json<'a>) -> Result<Self, DialectError> {
        let mut bean = Self::default();
        json.fields(|json, name| {
            match name {
                b"type" => bean.kind = json.text()?,
                b"size" => bean.size_bytes = json.integer()?,
                b"hash" => bean.hash = json.text()?,
                b"mime-type" => bean.mime_type = json.text()?,
                b"key" => bean.key = json.text()?,
                b"value" => bean.value = json.text()?,
                _ => json.skip()?,
            }
            Ok::<_, DialectError>(())
        })?;
        Ok(bean)
    }
}
