//! Amazon EventBridge (S3 User Guide, "EventBridge event message structure"). A key is written as it is.

use super::s3::{Bucket, etag, order};
use super::text::{Text, Whole};
use super::{DialectError, checked};
use crate::{Hint, Said, What};
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Detail<'a> {
    #[serde(borrow)]
    bucket: Option<Bucket<'a>>,
    #[serde(borrow)]
    object: Option<Object<'a>>,
    #[serde(rename = "deletion-type", borrow, default)]
    deletion: Text<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(default)]
    size: Whole,
    #[serde(borrow, default)]
    etag: Text<'a>,
    #[serde(rename = "version-id", borrow, default)]
    version: Text<'a>,
    #[serde(borrow, default)]
    sequencer: Text<'a>,
}

impl<'a> Detail<'a> {
    pub(super) fn read(
        self,
        kind: &str,
        time: Option<&Text<'_>>,
        each: &mut dyn FnMut(Hint<'a>),
    ) -> Result<(), DialectError> {
        let is_marked = self.deletion == "Delete Marker Created";
        let Some(what) = what(kind, is_marked) else { return Ok(()) };
        let object = self.object.ok_or(DialectError::Field("object"))?;
        // Only a version is gone, which may be an old one.
        let is_version = what == What::Removed && !is_marked && !object.version.is_empty();
        let what = if is_version { What::Changed } else { what };
        let hint = checked(Hint {
            bucket: self.bucket.ok_or(DialectError::Field("bucket"))?.name.0,
            key: object.key.bytes(),
            what,
            order: order(&object.sequencer),
            time: time.and_then(Text::timestamp),
            said: match what {
                What::Stored => Said {
                    size_bytes: object.size.0,
                    etag: etag(object.etag),
                    version: object.version.filled(),
                    ..Said::default()
                },
                _ => Said::default(),
            },
        })?;
        hint.into_iter().for_each(each);
        Ok(())
    }
}

fn what(kind: &str, is_marked: bool) -> Option<What> {
    match kind {
        "Object Created" => Some(What::Stored),
        "Object Deleted" => Some(What::Removed),
        "Object Tags Added" | "Object Tags Deleted" | "Object ACL Updated" => Some(What::Changed),
        _ if is_marked => Some(What::Removed),
        _ => None,
    }
}
