//! What others write: messages as bytes, read into hints that borrow from them.
//!
//! Owns the forms of event messages, known by what is in them or by name. Unknown fields are passed over without a copy, and an
//! ordinary key costs no allocation.
//!
//! Refuses: to ask anybody whether it is true; to put hints in order; to know where messages come from.
//!
//! Invariants: whatever the bytes are, nothing panics; a message that tells of several things tells those that can be read even
//! if one of them cannot; what is not said stays `None`, so that whoever needs it looks.

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
use json::{Broken, Json};
use std::borrow::Cow;
use std::fmt;
use store::KEY_BYTES_MAX;

/// A form of event messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Whichever of the others a message is in.
    #[default]
    Detected,
    /// Records as S3 has them: AWS, MinIO and its kin, Ceph RGW, versitygw, Tenon.
    S3,
    /// Amazon EventBridge.
    EventBridge,
    /// Amazon SNS around one of the others.
    Sns,
    /// Google Cloud Storage by Pub/Sub.
    Gcs,
    /// OpenIO SDS.
    OpenIo,
}

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DialectError {
    /// It is not the JSON that it should be.
    #[error("no JSON of events: {0}")]
    Json(#[from] Broken),
    /// It is JSON, of another kind.
    #[error("no {0} message")]
    Unknown(Dialect),
    /// A field is missing or has no sense.
    #[error("an event's {0} cannot be read")]
    Field(&'static str),
    /// SNS asks whether we want to hear it.
    #[error("SNS asks for a confirmation: open the SubscribeURL that is in the message")]
    Unconfirmed,
}

impl Dialect {
    /// All that have a name, and the one that is found out.
    pub const ALL: [Self; 6] =
        [Self::Detected, Self::S3, Self::EventBridge, Self::Sns, Self::Gcs, Self::OpenIo];

    /// Its name, as configurations have it.
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

    /// The dialect of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Reads a message, and hands on what it says: nothing, for a message that tells of nothing that matters here.
    ///
    /// # Errors
    /// The first thing that cannot be read; what comes before and after it is handed on all the same.
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
        let mut top = Top::default();
        json.fields(|json, name| self.read_field(json, name, &mut top, &mut records, each))?;
        json.end()?;
        match top {
            _ if records.were_there() => records.outcome(),
            Top { is_test: true, .. } => Ok(()),
            Top { open_io: event, .. } if event.is_one() => event.read(each),
            Top { event_bridge: event, .. } if event.is_one() => event.read(each),
            Top { pushed: Some(pushed), .. } => pushed.read(each),
            Top { sns: Some(inner), .. } if may_be_wrapped => {
                if top.sns_kind != "Notification" {
                    return Err(DialectError::Unconfirmed);
                }
                // What was packed has to be unpacked: its hints are their own.
                Self::Detected.read_body(inner.as_bytes(), false, &mut |hint| each(hint.into_owned()))
            }
            _ => Err(DialectError::Unknown(self)),
        }
    }

    /// Reads a field at the top of a message; whose it is, is seen by its name.
    fn read_field<'m>(
        self,
        json: &mut Json<'m>,
        name: &[u8],
        top: &mut Top<'m>,
        records: &mut s3::Records,
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        match name {
            b"Records" if self.is(Self::S3) => return records.read(json, each),
            b"Event" if self.is(Self::S3) => top.is_test = json.text()? == "s3:TestEvent",
            b"event" if self.is(Self::OpenIo) => top.open_io.kind = json.text()?,
            b"when" | b"url" | b"data" | b"parts" if self.is(Self::OpenIo) => {
                top.open_io.read_field(json, name)?
            }
            b"detail-type" if self.is(Self::EventBridge) => top.event_bridge.kind = json.text()?,
            b"time" | b"detail" if self.is(Self::EventBridge) => top.event_bridge.read_field(json, name)?,
            b"message" if self.is(Self::Gcs) && json.peek() == Some(b'{') => {
                top.pushed = Some(gcs::Pushed::read_from(json)?);
            }
            b"Type" if self.is(Self::Sns) => top.sns_kind = json.text()?,
            b"Message" if self.is(Self::Sns) => top.sns = Some(json.text()?),
            _ => json.skip()?,
        }
        Ok(())
    }

    fn is(self, other: Self) -> bool {
        self == other || self == Self::Detected
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detected => "known",
            named => named.name(),
        })
    }
}

/// What stands at the top of a message of any dialect but S3's, whose records are read as they come.
#[derive(Default)]
struct Top<'a> {
    is_test: bool,
    open_io: openio::Event<'a>,
    event_bridge: event_bridge::Event<'a>,
    pushed: Option<gcs::Pushed<'a>>,
    sns_kind: Cow<'a, str>,
    sns: Option<Cow<'a, str>>,
}

/// A hint whose names can be ones.
fn checked(hint: Hint<'_>) -> Result<Hint<'_>, DialectError> {
    if hint.bucket.is_empty() {
        return Err(DialectError::Field("bucket"));
    }
    if hint.key.is_empty() || hint.key.len() > KEY_BYTES_MAX {
        return Err(DialectError::Field("key"));
    }
    Ok(hint)
}

fn unbase64(text: &str) -> Result<Vec<u8>, DialectError> {
    BASE64_STANDARD.decode(text).map_err(|_| DialectError::Field("data"))
}

/// The bytes of a name.
fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// In lower case.
fn lower(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(name.to_ascii_lowercase());
    }
    name
}

/// The text, unless it is empty.
fn filled(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
