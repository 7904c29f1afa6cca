//! Google Cloud Storage by Pub/Sub (Cloud Storage documentation, "Pub/Sub notifications"): attributes say what happened, and a
//! payload, if one is sent, is the object's resource. A push has both in an envelope of its own.

use super::json::{Json, Pairs};
use super::{DialectError, bytes, checked, filled, lower, unbase64};
use crate::{Hint, Message, Order, Said, What};
use std::borrow::Cow;

/// Greater than the metageneration of whatever was there.
const AFTER_ALL: u64 = u64::MAX;

/// What the attributes say.
#[derive(Default)]
pub(super) struct Attributes<'a> {
    kind: Cow<'a, str>,
    bucket: Cow<'a, str>,
    key: Cow<'a, str>,
    generation: Option<u64>,
    time: Cow<'a, str>,
    is_overwritten: bool,
}

impl<'m> Attributes<'m> {
    /// Those of a message that has them.
    pub(super) fn of(message: &'m Message) -> Option<Self> {
        if message.attributes.is_empty() {
            return None;
        }
        let attributes = message.attributes.iter();
        Self::among(attributes.map(|(name, value)| (name.as_str(), Cow::Borrowed(value.as_str()))))
    }
}

impl<'a> Attributes<'a> {
    /// Transports change the case of names.
    fn among<'n>(attributes: impl Iterator<Item = (&'n str, Cow<'a, str>)>) -> Option<Self> {
        let mut all = Self::default();
        for (name, value) in attributes {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("eventType") {
                all.kind = value;
            } else if is("bucketId") {
                all.bucket = value;
            } else if is("objectId") {
                all.key = value;
            } else if is("objectGeneration") {
                all.generation = value.parse().ok();
            } else if is("eventTime") {
                all.time = value;
            } else if is("overwrittenByGeneration") {
                all.is_overwritten = true;
            }
        }
        (!all.bucket.is_empty() && all.kind.starts_with("OBJECT_")).then_some(all)
    }

    /// Reads the payload besides, if there is one.
    pub(super) fn read<'m>(
        self,
        payload: &'m [u8],
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError>
    where
        'a: 'm,
    {
        let resource: Resource<'m> = match payload.trim_ascii() {
            b"" => Resource::default(),
            payload => Resource::read_from(payload)?,
        };
        if let Some(hint) = self.hint(resource)? {
            each(hint);
        }
        Ok(())
    }

    fn hint(self, resource: Resource<'a>) -> Result<Option<Hint<'a>>, DialectError> {
        let Some(what) = self.what() else { return Ok(None) };
        let meta_generation = match what {
            What::Removed => AFTER_ALL,
            _ => resource.meta_generation.unwrap_or(0),
        };
        let order = |generation| Order(u128::from(generation) << 64 | u128::from(meta_generation));
        let is_told = resource.generation.is_some();
        let said = match what {
            What::Stored | What::Changed if is_told => Said {
                size_bytes: resource.size_bytes,
                version: self.generation.map(|generation| Cow::Owned(generation.to_string())),
                content_type: filled(resource.content_type),
                properties: Some(resource.metadata.into_iter().map(named).collect()),
                ..Said::default()
            },
            _ => Said::default(),
        };
        let hint = Hint {
            bucket: self.bucket,
            key: bytes(self.key),
            what,
            order: self.generation.map(order),
            time: crate::aws::time(&self.time),
            said,
        };
        checked(hint).map(Some)
    }

    /// What was overwritten is there, as what another event tells.
    fn what(&self) -> Option<What> {
        match &*self.kind {
            "OBJECT_FINALIZE" => Some(What::Stored),
            "OBJECT_METADATA_UPDATE" => Some(What::Changed),
            "OBJECT_DELETE" | "OBJECT_ARCHIVE" => (!self.is_overwritten).then_some(What::Removed),
            _ => None,
        }
    }
}

fn named<'a>((name, value): (Cow<'a, str>, Cow<'a, str>)) -> (Cow<'a, str>, Cow<'a, str>) {
    (lower(name), value)
}

/// The object's resource, of which the etag is left out: it is not that of the S3 side.
#[derive(Default)]
struct Resource<'a> {
    generation: Option<u64>,
    meta_generation: Option<u64>,
    size_bytes: Option<u64>,
    content_type: Cow<'a, str>,
    metadata: Pairs<'a>,
}

impl<'a> Resource<'a> {
    fn read_from(payload: &'a [u8]) -> Result<Self, DialectError> {
        let (mut json, mut resource) = (Json::new(payload)?, Self::default());
        json.fields(|json, name| {
            match name {
                b"generation" => resource.generation = json.whole()?,
                b"metageneration" => resource.meta_generation = json.whole()?,
                b"size" => resource.size_bytes = json.whole()?,
                b"contentType" => resource.content_type = json.text()?,
                b"metadata" => resource.metadata = json.pairs()?,
                _ => json.skip()?,
            }
            Ok::<_, DialectError>(())
        })?;
        json.end()?;
        Ok(resource)
    }
}

/// What is pushed.
#[derive(Default)]
pub(super) struct Pushed<'a> {
    attributes: Pairs<'a>,
    data: Cow<'a, str>,
}

impl<'a> Pushed<'a> {
    pub(super) fn read_from(json: &mut Json<'a>) -> Result<Self, DialectError> {
        let mut pushed = Self::default();
        json.fields(|json, name| {
            match name {
                b"attributes" => pushed.attributes = json.pairs()?,
                b"data" => pushed.data = json.text()?,
                _ => json.skip()?,
            }
            Ok::<_, DialectError>(())
        })?;
        Ok(pushed)
    }

    pub(super) fn read(self, each: &mut dyn FnMut(Hint<'a>)) -> Result<(), DialectError> {
        let payload = unbase64(&self.data)?;
        let attributes = self.attributes.iter().map(|(name, value)| (&**name, Cow::Borrowed(&**value)));
        let attributes = Attributes::among(attributes).ok_or(DialectError::Field("attributes"))?;
        attributes.read(&payload, &mut |hint| each(hint.into_owned()))
    }
}
