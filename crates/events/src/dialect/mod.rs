//! Parsers of event messages: turn the bytes of a message into hints that borrow from it.
//!
//! Owns the formats of event messages, which are detected or given by name. Unknown fields are skipped without a copy, and an ordinary key
//! costs no allocation.
//!
//! Refuses to verify what a message says, to sort hints, and to know where messages come from.
//!
//! Invariants: nothing panics, whatever the bytes are. In a message with several events, an unreadable one does not prevent the others
//! from being read. What a message does not say stays `None`, so that a consumer that needs it checks the object.

mod event_bridge;
mod gcs;
mod json;
mod openio;
mod s3;

use crate::{Hint, Message};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
#[cfg(feature = "fuzz")]
pub(crate) use json::fuzz_json;
use json::{Json, JsonError};
use std::borrow::Cow;
use std::fmt;
use store::KEY_BYTES_MAX;

/// A format of event messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Any of the formats below, detected for each message.
    #[default]
    Detected,
    /// S3 event records: AWS, MinIO and its relatives, Ceph RGW, versitygw, Tenon.
    S3,
    /// Amazon EventBridge's events of S3.
    EventBridge,
    /// Amazon SNS, wrapped around one of the other formats.
    Sns,
    /// Google Cloud Storage through Pub/Sub.
    Gcs,
    /// Events of OpenIO SDS.
    OpenIo,
}

/// An error of reading a message.
#[derive(Debug, thiserror::Error)]
pub enum DialectError {
    /// The message is not the JSON that it should be.
    #[error("the message is not JSON, or has another structure than expected: {0}")]
    Json(#[from] JsonError),
    /// The message is JSON, but not in this format.
    #[error("the message does not have the expected format: {0}")]
    Unknown(Dialect),
    /// A field is missing or invalid.
    #[error("the field {0} of an event is missing or invalid")]
    Field(&'static str),
    /// The message is SNS's request to confirm a subscription or its end.
    #[error("SNS waits for a confirmation of the subscription: open the SubscribeURL in the message")]
    Unconfirmed,
}

impl Dialect {
    /// All values: detection, and each format.
    pub const ALL: [Self; 6] =
        [Self::Detected, Self::S3, Self::EventBridge, Self::Sns, Self::Gcs, Self::OpenIo];

    /// Returns the format's name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Detected => "auto",
            Self::S3 => "s3",
            Self::EventBridge => "eventbridge",
            Self::Sns => "sns",
            Self::Gcs => "gcs",
            Self::OpenIo => "openio",
        }
    }

    /// Returns the format with this name in configurations; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Reads a message and passes its hints to `each`. A message without relevant events has no hints.
    ///
    /// # Errors
    /// The first error. Hints read before it are passed on all the same, and after an invalid S3 record also the
    /// hints of later records.
    pub fn read<'m>(
        &self,
        message: &'m Message,
        each: &mut impl FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        match gcs::Attributes::of(message) {
            Some(attributes) if self.is(Self::Gcs) => attributes.read(&message.body, each),
            _ => self.read_body(&message.body, true, each),
        }
    }

    fn read_body<'m>(
        self,
        body: &'m [u8],
        may_be_wrapped: bool,
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        let mut json = Json::new(body)?;
        let mut records = s3::Records::default();
        if json.peek() == Some(b'[') {
            if !self.is(Self::S3) {
                return Err(DialectError::Unknown(self));
            }
            json.elements(|json| records.read_access(json, each))?;
            json.end()?;
            return records.outcome();
        }
        let mut fields = TopLevel::default();
        json.fields(|json, name| self.read_field(json, name, &mut fields, &mut records, each))?;
        json.end()?;
        match fields {
            _ if records.are_present() => records.outcome(),
            TopLevel { is_test: true, .. } => Ok(()),
            TopLevel { open_io: event, .. } if event.is_present() => event.read(each),
            TopLevel { event_bridge: event, .. } if event.is_present() => event.read(each),
            TopLevel { pushed: Some(pushed), .. } => pushed.read(each),
            TopLevel { sns: Some(inner), .. } if may_be_wrapped => {
                if fields.sns_kind != "Notification" {
                    return Err(DialectError::Unconfirmed);
                }
                // The wrapped message is a temporary string, so its hints must own their data.
                Self::Detected.read_body(inner.as_bytes(), false, &mut |hint| each(hint.into_owned()))
            }
            _ => Err(DialectError::Unknown(self)),
        }
    }

    /// Reads a top-level field of a message. Its name tells the format to which it belongs.
    fn read_field<'m>(
        self,
        json: &mut Json<'m>,
        name: &[u8],
        fields: &mut TopLevel<'m>,
        records: &mut s3::Records,
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        match name {
            b"Records" if self.is(Self::S3) => return records.read(json, each),
            b"Event" if self.is(Self::S3) => fields.is_test = json.text()? == "s3:TestEvent",
            b"event" if self.is(Self::OpenIo) => fields.open_io.kind = json.text()?,
            b"when" | b"url" | b"data" | b"parts" if self.is(Self::OpenIo) => {
                fields.open_io.read_field(json, name)?
            }
            b"detail-type" if self.is(Self::EventBridge) => fields.event_bridge.kind = json.text()?,
            b"time" | b"detail" if self.is(Self::EventBridge) => {
                fields.event_bridge.read_field(json, name)?
            }
            b"message" if self.is(Self::Gcs) && json.peek() == Some(b'{') => {
                fields.pushed = Some(gcs::PushMessage::read_from(json)?);
            }
            b"Type" if self.is(Self::Sns) => fields.sns_kind = json.text()?,
            b"Message" if self.is(Self::Sns) => fields.sns = Some(json.text()?),
            _ => json.skip()?,
        }
        Ok(())
    }

    /// Returns whether messages of the format `other` are read: it is this format, or formats are detected.
    fn is(self, other: Self) -> bool {
        self == other || self == Self::Detected
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detected => "any known format",
            named => named.name(),
        })
    }
}

/// Top-level fields of all formats but S3, whose records are passed on while they are read.
#[derive(Default)]
struct TopLevel<'a> {
    is_test: bool,
    open_io: openio::Event<'a>,
    event_bridge: event_bridge::Event<'a>,
    pushed: Option<gcs::PushMessage<'a>>,
    sns_kind: Cow<'a, str>,
    /// The message that SNS wraps.
    sns: Option<Cow<'a, str>>,
}

/// Checks that a hint has a bucket and a key of valid length.
fn check_names(hint: Hint<'_>) -> Result<Hint<'_>, DialectError> {
    if hint.bucket.is_empty() {
        return Err(DialectError::Field("bucket"));
    }
    if hint.key.is_empty() || hint.key.len() > KEY_BYTES_MAX {
        return Err(DialectError::Field("key"));
    }
    Ok(hint)
}

fn decode_base64(text: &str) -> Result<Vec<u8>, DialectError> {
    BASE64_STANDARD.decode(text).map_err(|_| DialectError::Field("data"))
}

/// Converts a string to bytes.
fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Converts a name to lower case.
fn to_lowercase(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(name.to_ascii_lowercase());
    }
    name
}

/// Returns the text unless it is empty.
fn non_empty(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
