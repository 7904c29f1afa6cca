//! Objects under keys of their own, and uploads whose answer was lost.

use store::{Attributes, ObjectKey, ObjectMeta, ObjectRef, Payload, Precondition, PutOptions, StoreError};

use crate::Result;
use crate::mount::Mount;

impl Mount {
    /// Returns the object under the key if it has the length and user metadata of what was to be stored: an earlier
    /// attempt succeeded and its answer was lost. Times in nanoseconds in the metadata distinguish it from foreign
    /// objects.
    pub(crate) async fn already_stored(
        &self,
        key: &ObjectKey,
        attributes: &Attributes,
        size_bytes: u64,
    ) -> Result<Option<ObjectRef>, StoreError> {
        let is_ours =
            |found: &ObjectMeta| found.attributes.user == attributes.user && found.size_bytes == size_bytes;
        Ok(self.store.find(key).await?.filter(is_ours).map(|found| found.object))
    }

    /// Turns the failure of a repeated upload into success if its first attempt stored the object and only the answer was lost.
    pub(super) async fn accept_earlier_upload(
        &self,
        stored: Result<ObjectRef, StoreError>,
        key: &ObjectKey,
        attributes: &Attributes,
        size_bytes: u64,
    ) -> Result<ObjectRef, StoreError> {
        match stored {
            Err(StoreError::PreconditionFailed(text) | StoreError::NotFound(text)) => {
                let found = self.already_stored(key, attributes, size_bytes).await?;
                found.ok_or_else(|| StoreError::Unavailable(format!("'{text}' was not stored")))
            }
            stored => stored,
        }
    }

    /// Stores bytes of an inode under an unused key.
    pub(crate) async fn store_payload(
        &self,
        key: &ObjectKey,
        payload: Payload,
        attributes: &Attributes,
    ) -> Result<ObjectRef, StoreError> {
        let size_bytes = payload.len();
        let options = PutOptions {
            precondition: Precondition::None,
            attributes: attributes.clone(),
            ..PutOptions::default()
        };
        let stored = self.store.put(key, payload, options).await;
        self.accept_earlier_upload(stored, key, attributes, size_bytes).await
    }
}
