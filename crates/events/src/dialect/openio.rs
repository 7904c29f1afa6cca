//! OpenIO SDS: what its metadata services tell about contents, by an event queue on every node.

use super::json::{Json, Pairs};
use super::{DialectError, bytes, checked, filled, lower};
use crate::{Hint, Order, Said, What};
use std::borrow::Cow;
use store::Timestamp;

#[derive(Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Cow<'a, str>,
    /// Microseconds.
    when: Option<u64>,
    /// In how many messages it comes.
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
    pub(super) fn is_one(&self) -> bool {
        self.kind.starts_with("storage.")
    }

    pub(super) fn read_field(&mut self, json: &mut Json<'a>, name: &[u8]) -> Result<(), DialectError> {
        match (name, json.peek()) {
            (b"when", _) => self.when = json.whole()?,
            (b"parts", _) => self.parts = json.whole()?,
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
            // Events of containers have an object there.
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
            "properties" => self.properties.push((lower(bean.key), bean.value)),
            _ => {}
        }
    }

    pub(super) fn read(self, each: &mut dyn FnMut(Hint<'a>)) -> Result<(), DialectError> {
        let Some(what) = self.what() else { return Ok(()) };
        let micros = |when: u64| i64::try_from(when).unwrap_or(i64::MAX).saturating_mul(1000);
        each(checked(Hint {
            what,
            order: self.when.map(|when| Order(u128::from(when))),
            time: self.when.map(|when| Timestamp(micros(when))),
            bucket: if self.bucket.is_empty() { self.user.clone() } else { self.bucket.clone() },
            key: bytes(self.path.clone()),
            said: if what == What::Stored { self.said() } else { Said::default() },
        })?);
        Ok(())
    }

    /// An append tells what is new, and a part of several not all.
    fn said(self) -> Said<'a> {
        let has_all = self.kind == "storage.content.new" && self.parts.is_none_or(|parts| parts <= 1);
        Said {
            size_bytes: self.size_bytes,
            etag: filled(self.hash).map(lower),
            version: filled(self.version),
            content_type: filled(self.content_type),
            properties: has_all.then_some(self.properties),
            tags: None,
        }
    }

    /// `None` for containers, chunks and what else has no place here.
    fn what(&self) -> Option<What> {
        match self.kind.strip_prefix("storage.content.")? {
            "new" | "append" => Some(What::Stored),
            "update" | "drained" | "transitioned" => Some(What::Changed),
            "deleted" => Some(What::Removed),
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
                b"size" => bean.size_bytes = json.whole()?,
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
