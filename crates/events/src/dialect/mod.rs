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
mod openio;
mod s3;
mod text;

use crate::{Hint, Message};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use std::fmt;
use store::KEY_BYTES_MAX;
use text::Text;

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
    Json(#[from] serde_json::Error),
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
        let attributes = gcs::Attributes::of(message);
        match attributes {
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
        if body.trim_ascii_start().first() == Some(&b'[') {
            let batches: Vec<s3::Access<'_>> = serde_json::from_slice(body)?;
            return all(batches.into_iter().flat_map(|batch| batch.records), s3::Record::read, each);
        }
        self.read_top(serde_json::from_slice(body)?, may_be_wrapped, each)
    }

    fn read_top<'m>(
        self,
        top: Top<'m>,
        may_be_wrapped: bool,
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        match top {
            Top { records: Some(records), .. } if self.is(Self::S3) => all(records, s3::Record::read, each),
            Top { event: Some(event), when, url, data, parts, .. } if self.is(Self::OpenIo) => {
                openio::Event { event, when, url, data, parts }.read(each)
            }
            Top { test: Some(test), .. } if self.is(Self::S3) && test == "s3:TestEvent" => Ok(()),
            Top { detail_type: Some(kind), detail: Some(detail), time, .. } if self.is(Self::EventBridge) => {
                detail.read(&kind, time.as_ref(), each)
            }
            Top { pushed: Some(pushed), .. } if self.is(Self::Gcs) => pushed.read(each),
            Top { sns_kind: Some(kind), sns: Some(inner), .. } if self.is(Self::Sns) && may_be_wrapped => {
                match &*kind {
                    "Notification" => Self::Detected.read_wrapped(inner.as_bytes(), each),
                    _ => Err(DialectError::Unconfirmed),
                }
            }
            _ => Err(DialectError::Unknown(self)),
        }
    }

    /// What was packed into a message: its hints are their own, for it has to be unpacked.
    fn read_wrapped<'m>(self, body: &[u8], each: &mut dyn FnMut(Hint<'m>)) -> Result<(), DialectError> {
        self.read_body(body, false, &mut |hint| each(hint.into_owned()))
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

/// What stands at the top of a message of any dialect: which it is, is seen in what is there.
#[derive(Deserialize)]
struct Top<'a> {
    #[serde(rename = "Records", borrow)]
    records: Option<s3::Records<'a>>,
    #[serde(rename = "Event", borrow)]
    test: Option<Text<'a>>,
    #[serde(borrow)]
    event: Option<Text<'a>>,
    when: Option<u64>,
    #[serde(borrow)]
    url: Option<openio::Url<'a>>,
    #[serde(borrow)]
    data: Option<openio::Data<'a>>,
    parts: Option<u32>,
    #[serde(rename = "detail-type", borrow)]
    detail_type: Option<Text<'a>>,
    #[serde(borrow)]
    time: Option<Text<'a>>,
    #[serde(borrow)]
    detail: Option<event_bridge::Detail<'a>>,
    #[serde(rename = "Type", borrow)]
    sns_kind: Option<Text<'a>>,
    #[serde(rename = "Message", borrow)]
    sns: Option<Text<'a>>,
    #[serde(rename = "message", borrow)]
    pushed: Option<gcs::Pushed<'a>>,
}

/// Hands on all that can be read, and then the first error.
fn all<'m, R>(
    records: impl IntoIterator<Item = R>,
    read: impl Fn(R) -> Result<Option<Hint<'m>>, DialectError>,
    each: &mut dyn FnMut(Hint<'m>),
) -> Result<(), DialectError> {
    let mut outcome = Ok(());
    for record in records {
        match read(record) {
            Ok(hint) => hint.into_iter().for_each(&mut *each),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

/// A hint whose names can be ones.
fn checked(hint: Hint<'_>) -> Result<Option<Hint<'_>>, DialectError> {
    if hint.bucket.is_empty() {
        return Err(DialectError::Field("bucket"));
    }
    if hint.key.is_empty() || hint.key.len() > KEY_BYTES_MAX {
        return Err(DialectError::Field("key"));
    }
    Ok(Some(hint))
}

fn unbase64(text: &str) -> Result<Vec<u8>, DialectError> {
    BASE64_STANDARD.decode(text).map_err(|_| DialectError::Field("data"))
}

#[cfg(test)]
mod tests;
