//! What S3 does not copy.
//!
//! CopyObject takes user metadata and the descriptive headers along, but gives the copy the bucket's own storage class and
//! encryption, and no redirect (S3 API reference, CopyObject). A copy here keeps them: its source is looked at first, but
//! only by a client that has ever seen an object with any of them, since most buckets have none.

use super::S3Store;
use super::headers::{ENCRYPTION, WEBSITE_REDIRECT};
use crate::{Attributes, CopyOptions, ObjectRef, Result, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the client has seen an object of which a copy is not all.
#[derive(Debug, Default)]
pub(super) struct Uncopied(AtomicBool);

impl Uncopied {
    /// An object has these headers.
    pub(super) fn saw(&self, attributes: &Attributes) {
        if is_any_in(attributes) {
            self.saw_some();
        }
    }

    /// An object has something of the kind.
    pub(super) fn saw_some(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl S3Store {
    /// The options of a copy to another key that is like its source.
    pub(super) async fn copying_all(&self, from: &ObjectRef, options: CopyOptions) -> Result<CopyOptions> {
        if options.attributes.is_some() || !self.client.uncopied.0.load(Ordering::Relaxed) {
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
