//! Attributes that S3's CopyObject does not copy.
//!
//! CopyObject copies user metadata and the descriptive headers, but the copy gets the bucket's default storage class and
//! encryption, and no redirect (S3 API reference, CopyObject). This client preserves these attributes. It requests them
//! from the source first, but only if it has ever seen an object with such attributes, since most buckets have none.

use super::S3Store;
use super::headers::{ENCRYPTION, WEBSITE_REDIRECT};
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Attributes, CopyOptions, ObjectRef, Result, StoreError};

/// Whether the client has seen an object with attributes that CopyObject does not copy.
#[derive(Debug, Default)]
pub(super) struct UncopiedAttributes(AtomicBool);

impl UncopiedAttributes {
    /// Notes the attributes of an object.
    pub(super) fn note(&self, attributes: &Attributes) {
        if is_any_in(attributes) {
            self.note_some();
        }
    }

    /// Notes that an object has such attributes.
    pub(super) fn note_some(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl S3Store {
    /// Returns the options of a copy to another key that preserves all attributes of the source.
    pub(super) async fn preserve_uncopied(
        &self,
        from: &ObjectRef,
        options: CopyOptions,
    ) -> Result<CopyOptions> {
        if options.attributes.is_some() || !self.client.uncopied_attributes.0.load(Ordering::Relaxed) {
            return Ok(options);
        }
        let source = self.head_object(&from.key).await?;
        if source.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let attributes = Some(source.attributes).filter(is_any_in);
        Ok(CopyOptions { attributes, ..options })
    }
}

fn is_any_in(attributes: &Attributes) -> bool {
    let system = [WEBSITE_REDIRECT, ENCRYPTION];
    attributes.storage_class.is_some() || system.iter().any(|name| attributes.system.contains_key(*name))
}
