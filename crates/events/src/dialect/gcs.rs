//! Google Cloud Storage through Pub/Sub (Cloud Storage documentation, "Pub/Sub notifications"). Attributes say what happened; the payload,
//! if there is one, is the object's resource. A push delivery carries both in an envelope.

use super::json::{Json, Pairs};
use super::{DialectError, bytes, check_names, decode_base64, non_empty, to_lowercase};
use crate::{ChangeKind, Hint, Message, ObjectDescription, Order};
use std::borrow::Cow;

/// The metageneration used for deletions: greater than any that the object can have had.
const DELETION_METAGENERATION: u64 = u64::MAX;

/// The attributes of a Pub/Sub message about an object.
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
    /// Reads a message's attributes; `None` if they are not those of Cloud Storage.
    pub(super) fn of(message: &'m Message) -> Option<Self> {
        if message.attributes.is_empty() {
            return None;
        }
        let attributes = message.attributes.iter();
        Self::from_pairs(attributes.map(|(name, value)| (name.as_str(), Cow::Borrowed(value.as_str()))))
    }
}

impl<'a> Attributes<'a> {
    /// Reads attributes from names and values; `None` if they are not those of Cloud Storage. Names are compared
    /// without case, because transports change it.
    fn from_pairs<'n>(attributes: impl Iterator<Item = (&'n str, Cow<'a, str>)>) -> Option<Self> {
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

    /// Passes on the hint made of the attributes and of the payload, if there is one.
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
        let Some(kind) = self.classify() else { return Ok(None) };
        let meta_generation = match kind {
            ChangeKind::Removed => DELETION_METAGENERATION,
            _ => resource.meta_generation.unwrap_or(0),
        };
        let order = |generation| Order(u128::from(generation) << 64 | u128::from(meta_generation));
        let has_resource = resource.generation.is_some();
        let object = match kind {
            ChangeKind::Stored | ChangeKind::Changed if has_resource => ObjectDescription {
                size_bytes: resource.size_bytes,
                version: self.generation.map(|generation| Cow::Owned(generation.to_string())),
                content_type: non_empty(resource.content_type),
                properties: Some(resource.metadata.into_iter().map(named).collect()),
                ..ObjectDescription::default()
            },
            _ => ObjectDescription::default(),
        };
        let hint = Hint {
            bucket: self.bucket,
            key: bytes(self.key),
            kind,
            order: self.generation.map(order),
            time: crate::aws::parse_time(&self.time),
            object,
        };
        check_names(hint).map(Some)
    }

    /// Returns what happened; `None` if it is irrelevant here. The deletion of an overwritten generation is
    /// irrelevant, because another event reports the new generation.
    fn classify(&self) -> Option<ChangeKind> {
        match &*self.kind {
            "OBJECT_FINALIZE" => Some(ChangeKind::Stored),
            "OBJECT_METADATA_UPDATE" => Some(ChangeKind::Changed),
            "OBJECT_DELETE" | "OBJECT_ARCHIVE" => (!self.is_overwritten).then_some(ChangeKind::Removed),
            _ => None,
        }
    }
}

/// Returns an entry of user metadata with its name in lower case.
fn named<'a>((name, value): (Cow<'a, str>, Cow<'a, str>)) -> (Cow<'a, str>, Cow<'a, str>) {
    (to_lowercase(name), value)
}

/// The fields of the object's resource in the payload. Its etag is left out, because it differs from the etag of the S3
/// interface.
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
                b"generation" => resource.generation = json.integer()?,
                b"metageneration" => resource.meta_generation = json.integer()?,
                b"size" => resource.size_bytes = json.integer()?,
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

/// The message in a push delivery's envelope.
#[derive(Default)]
pub(super) struct PushMessage<'a> {
    attributes: Pairs<'a>,
    data: Cow<'a, str>,
}

impl<'a> PushMessage<'a> {
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
        let payload = decode_base64(&self.data)?;
        let attributes = self.attributes.iter().map(|(name, value)| (&**name, Cow::Borrowed(&**value)));
        let attributes = Attributes::from_pairs(attributes).ok_or(DialectError::Field("attributes"))?;
        attributes.read(&payload, &mut |hint| each(hint.into_owned()))
    }
}
