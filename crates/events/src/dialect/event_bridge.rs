//! Amazon EventBridge (S3 User Guide, "EventBridge event message structure"). A key is written as it is.

use super::json::Json;
use super::s3::{Bucket, etag, order};
use super::{DialectError, bytes, checked, filled};
use crate::{Hint, Said, What};
use std::borrow::Cow;

#[derive(Default)]
pub(super) struct Event<'a> {
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
    pub(super) fn is_one(&self) -> bool {
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
                    b"size" => self.size_bytes = json.whole()?,
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
        let Some(what) = self.what() else { return Ok(()) };
        let said = match what {
            What::Stored => Said {
                size_bytes: self.size_bytes,
                etag: etag(self.etag),
                version: filled(self.version),
                ..Said::default()
            },
            _ => Said::default(),
        };
        each(checked(Hint {
            bucket: self.bucket,
            key: bytes(self.key),
            what,
            order: order(&self.sequencer),
            time: crate::aws::time(&self.time),
            said,
        })?);
        Ok(())
    }

    fn what(&self) -> Option<What> {
        match &*self.kind {
            "Object Created" => Some(What::Stored),
            "Object Deleted" if self.deletion == "Delete Marker Created" => Some(What::Removed),
            // Only a version is gone, which may be an old one.
            "Object Deleted" if !self.version.is_empty() => Some(What::Changed),
            "Object Deleted" => Some(What::Removed),
            "Object Tags Added" | "Object Tags Deleted" | "Object ACL Updated" => Some(What::Changed),
            _ => None,
        }
    }
}
