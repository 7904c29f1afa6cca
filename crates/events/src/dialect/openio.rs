//! OpenIO SDS: what its metadata services tell about contents (seed of the views: an event queue on every node).

use super::text::{FoldVisitor, Text, Whole};
use super::{DialectError, checked};
use crate::{Hint, Order, Said, What};
use serde::Deserialize;
use serde::de::Deserializer;
use std::borrow::Cow;
use store::Timestamp;

pub(super) struct Event<'a> {
    pub(super) event: Text<'a>,
    /// Microseconds.
    pub(super) when: Option<u64>,
    pub(super) url: Option<Url<'a>>,
    pub(super) data: Option<Data<'a>>,
    /// In how many messages it comes.
    pub(super) parts: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Url<'a> {
    #[serde(borrow, default)]
    user: Text<'a>,
    #[serde(borrow, default)]
    bucket: Text<'a>,
    #[serde(borrow, default)]
    path: Text<'a>,
    #[serde(borrow, default)]
    version: Text<'a>,
}

/// What the beans say, taken together.
#[derive(Debug, Default)]
pub(super) struct Data<'a> {
    size_bytes: Option<u64>,
    etag: Option<Cow<'a, str>>,
    content_type: Option<Cow<'a, str>>,
    properties: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

#[derive(Deserialize)]
struct Bean<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(default)]
    size: Whole,
    #[serde(borrow, default)]
    hash: Text<'a>,
    #[serde(rename = "mime-type", borrow, default)]
    mime_type: Text<'a>,
    #[serde(borrow, default)]
    key: Text<'a>,
    #[serde(borrow, default)]
    value: Text<'a>,
}

impl<'a> Data<'a> {
    fn add(&mut self, bean: Bean<'a>) {
        match &*bean.kind {
            "contents_headers" => {
                self.size_bytes = bean.size.0;
                self.etag = bean.hash.filled().map(super::s3::lower);
                self.content_type = bean.mime_type.filled();
            }
            "properties" => self.properties.push((super::s3::lower(bean.key.0), bean.value.0)),
            _ => {}
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Data<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FoldVisitor(Data::default(), Data::add))
    }
}

impl<'a> Event<'a> {
    pub(super) fn read(self, each: &mut dyn FnMut(Hint<'a>)) -> Result<(), DialectError> {
        let Some(kind) = self.event.strip_prefix("storage.") else {
            return Err(DialectError::Unknown(super::Dialect::OpenIo));
        };
        let Some(what) = what(kind) else { return Ok(()) };
        let url = self.url.ok_or(DialectError::Field("url"))?;
        let data = self.data.filter(|_| what == What::Stored).unwrap_or_default();
        // An update tells what changed, and a part of several not all.
        let has_all = kind == "content.new" && self.parts.is_none_or(|parts| parts <= 1);
        let micros = |when: u64| i64::try_from(when).unwrap_or(i64::MAX).saturating_mul(1000);
        let hint = checked(Hint {
            bucket: url.bucket.filled().unwrap_or(url.user.0),
            key: url.path.bytes(),
            what,
            order: self.when.map(|when| Order(u128::from(when))),
            time: self.when.map(|when| Timestamp(micros(when))),
            said: Said {
                size_bytes: data.size_bytes,
                etag: data.etag,
                version: url.version.filled().filter(|_| what == What::Stored),
                content_type: data.content_type,
                properties: has_all.then_some(data.properties),
                tags: None,
            },
        })?;
        hint.into_iter().for_each(each);
        Ok(())
    }
}

/// What a kind of event means; `None` for containers, chunks and what else has no place here.
fn what(kind: &str) -> Option<What> {
    match kind {
        "content.new" | "content.append" => Some(What::Stored),
        "content.update" | "content.drained" | "content.transitioned" => Some(What::Changed),
        "content.deleted" => Some(What::Removed),
        _ => None,
    }
}
