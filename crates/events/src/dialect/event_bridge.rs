//! Amazon EventBridge (S3 User Guide, "EventBridge event message structure"). Keys are not encoded.

use super::json::Json;
use super::s3::{Bucket, parse_order, unquote_etag};
use super::{DialectError, bytes, check_names, non_empty};
use crate::{ChangeKind, Hint, ObjectDescription};
use std::borrow::Cow;

/// The fields of an EventBridge event; empty where the message has none.
#[derive(Default)]
pub(super) struct Event<'a> {
    /// The value of `detail-type`, which is the kind of event.
    pub(super) kind: Cow<'a, str>,
    time: Cow<'a, str>,
    bucket: Cow<'a, str>,
    deletion: Cow<'a, str>,
    key: Cow<'a, str>,
    size_bytes: Option<u64>,
    etag: Cow<'a, str>,
    version: Cow<'a, str>,
    sequencer: Cow<'a, str>,
}

impl<'a> Event<'a> {
    pub(super) fn is_present(&self) -> bool {
        !self.kind.is_empty()
    }

    pub(super) fn read_field(&mut self, json: &mut Json<'a>, name: &[u8]) -> Result<(), DialectError> {
        match name {
            b"time" => self.time = json.text()?,
            b"detail" if json.peek() == Some(b'{') => {
                json.fields(|json, name| self.read_detail(json, name))?
            }
            _ => json.skip()?,
        }
        Ok(())
    }

    fn read_detail(&mut self, json: &mut Json<'a>, name: &[u8]) -> Result<(), DialectError> {
        match name {
            b"bucket" => self.bucket = Bucket::read_from(json)?.name,
            b"deletion-type" => self.deletion = json.text()?,
            b"object" => json.fields(|json, name| {
                match name {
                    b"key" => self.key = json.text()?,
                    b"size" => self.size_bytes = json.integer()?,
                    b"etag" => self.etag = json.text()?,
                    b"version-id" => self.version = json.text()?,
                    b"sequencer" => self.sequencer = json.text()?,
                    _ => json.skip()?,
                }
                Ok::<_, DialectError>(())
            })?,
            _ => json.skip()?,
        }
        Ok(())
    }

    pub(super) fn read(self, each: &mut dyn FnMut(Hint<'a>)) -> Result<(), DialectError> {
        let Some(kind) = self.classify() else { return Ok(()) };
        let object = match kind {
            ChangeKind::Stored => ObjectDescription {
                size_bytes: self.size_bytes,
                etag: unquote_etag(self.etag),
                version: non_empty(self.version),
                ..ObjectDescription::default()
            },
            _ => ObjectDescription::default(),
        };
        each(check_names(Hint {
            bucket: self.bucket,
            key: bytes(self.key),
            kind,
            order: parse_order(&self.sequencer),
            time: crate::aws::parse_time(&self.time),
            object,
        })?);
        Ok(())
    }

    fn classify(&self) -> Option<ChangeKind> {
        match &*self.kind {
            "Object Created" => Some(ChangeKind::Stored),
            "Object Deleted" if self.deletion == "Delete Marker Created" => Some(ChangeKind::Removed),
            // Only one version was removed, possibly not the current one.
            "Object Deleted" if !self.version.is_empty() => Some(ChangeKind::Changed),
            "Object Deleted" => Some(ChangeKind::Removed),
            "Object Tags Added" | "Object Tags Deleted" | "Object ACL Updated" => Some(ChangeKind::Changed),
            _ => None,
        }
    }
}
