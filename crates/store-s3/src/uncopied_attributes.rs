//! Attributes that S3's CopyObject does not copy.
//!
//! CopyObject copies user metadata and the descriptive headers, but the copy gets the bucket's default storage class
//! and encryption, and no redirect (S3 API reference, CopyObject). This client preserves these attributes. It
//! requests them from the source first, but only if it has ever seen an object with such attributes, since most
//! buckets have none. Until then, a copy of an object that it has not seen loses them.

use super::S3Store;
use super::learned::has_uncopied;
use store::{CopyOptions, ObjectRef, Result, StoreError};

impl S3Store {
    /// Returns the options of a copy to another key, with the source's attributes if CopyObject would not copy some of
    /// them. Without a request if they have attributes, or if the client has not seen such attributes.
    /// `PreconditionFailed`: the source was replaced.
    pub(super) async fn preserve_uncopied(
        &self,
        from: &ObjectRef,
        options: CopyOptions,
    ) -> Result<CopyOptions> {
        if options.attributes.is_some() || !self.client.learned.uncopied_attributes.has_seen_some() {
            return Ok(options);
        }
        let source = self.head_object(&from.key).await?;
        if source.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let attributes = Some(source.attributes).filter(has_uncopied);
        Ok(CopyOptions { attributes, ..options })
    }
}
