//! A volume in its bucket: its objects, and the record by which the driver knows the volumes that it made.

use crate::volume_place::VolumePlace;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::{
    Buckets, GetOptions, ListEntry, ListRequest, ObjectKey, ObjectStore, Pages, Payload, Precondition,
    PutOptions, StoreError,
};
use tonic::Status;

/// Removals in flight.
const REMOVALS: usize = 64;
/// Entries of a page of a listing.
const PAGE_ENTRIES: usize = 1000;
/// Maximum length of a record in bytes.
const RECORD_BYTES_MAX: usize = 1 << 16;

/// The driver's record of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeRecord {
    /// The name that the volume was created with.
    pub(crate) name: String,
    /// Size that was asked for, in bytes; 0 for none.
    pub(crate) capacity_bytes: i64,
}

/// A volume in an open bucket.
#[derive(Debug)]
pub(crate) struct BucketVolume {
    place: VolumePlace,
    store: Arc<dyn ObjectStore>,
}

impl BucketVolume {
    /// Opens the bucket of a volume; `None` if it does not exist.
    pub(crate) async fn open(buckets: &dyn Buckets, place: VolumePlace) -> Result<Option<Self>, Status> {
        match buckets.open(place.bucket()).await {
            Ok(store) => Ok(Some(Self { place, store })),
            Err(StoreError::NoSuchBucket(_)) => Ok(None),
            Err(error) => Err(status(error)),
        }
    }

    /// Reads the record.
    pub(crate) async fn record(&self) -> Result<Option<VolumeRecord>, Status> {
        let key = self.place.record_key()?;
        let mut body = match self.store.get(&key, GetOptions::default()).await {
            Ok(object) => object.body,
            Err(StoreError::NotFound(_)) => return Ok(None),
            // Some stores learn only from a read that the bucket does not exist.
            Err(StoreError::NoSuchBucket(_)) => return Ok(None),
            Err(error) => return Err(status(error)),
        };
        let mut text = Vec::new();
        while let Some(piece) = body.try_next().await.map_err(status)? {
            text.extend_from_slice(&piece);
            if text.len() > RECORD_BYTES_MAX {
                break;
            }
        }
        let record = serde_json::from_slice(&text);
        record.map(Some).map_err(|error| {
            Status::internal(format!("the record '{key}' of {} is damaged: {error}", self.place))
        })
    }

    /// Stores the record. Returns false if the condition does not hold.
    pub(crate) async fn put_record(
        &self,
        record: &VolumeRecord,
        precondition: Precondition,
    ) -> Result<bool, Status> {
        let key = self.place.record_key()?;
        let text = serde_json::to_vec(record).map_err(|error| Status::internal(error.to_string()))?;
        let options = PutOptions { precondition, ..PutOptions::default() };
        match self.store.put(&key, Payload::from(text), options).await {
            Ok(_) => Ok(true),
            Err(StoreError::PreconditionFailed(_)) => Ok(false),
            Err(error) => Err(status(error)),
        }
    }

    /// Returns whether the volume has an object.
    pub(crate) async fn has_objects(&self) -> Result<bool, Status> {
        match self.store.list(self.list_request(1)).await {
            Ok(page) => Ok(!page.entries.is_empty()),
            Err(StoreError::NoSuchBucket(_)) => Ok(false),
            Err(error) => Err(status(error)),
        }
    }

    /// Removes all objects, the record last: an interrupted removal can be continued.
    pub(crate) async fn remove_objects(&self) -> Result<(), Status> {
        let record = self.place.record_key()?;
        let mut pages = Pages::new(self.store.as_ref(), self.list_request(PAGE_ENTRIES));
        while let Some(entries) = pages.next().await.map_err(status)? {
            let keys = entries.into_iter().filter_map(ListEntry::into_object).map(|(object, _)| object.key);
            let removals = keys.filter(|key| *key != record).map(|key| self.remove(key));
            let mut removals = futures_util::stream::iter(removals).buffer_unordered(REMOVALS);
            while removals.try_next().await?.is_some() {}
        }
        self.remove(record).await
    }

    async fn remove(&self, key: ObjectKey) -> Result<(), Status> {
        self.store.delete(&key, Precondition::None).await.map_err(status)
    }

    fn list_request(&self, limit: usize) -> ListRequest {
        ListRequest { prefix: Bytes::from(self.place.key_prefix()), limit, ..ListRequest::default() }
    }
}

/// Returns the status for an error of the store.
pub(crate) fn status(error: StoreError) -> Status {
    let text = error.to_string();
    match error {
        StoreError::NoSuchBucket(_) | StoreError::NotFound(_) => Status::not_found(text),
        StoreError::BucketState { .. } | StoreError::Locked(_) => Status::failed_precondition(text),
        StoreError::Denied(_) => Status::permission_denied(text),
        StoreError::Invalid(_) | StoreError::InvalidKey { .. } => Status::invalid_argument(text),
        StoreError::Full(_) => Status::resource_exhausted(text),
        StoreError::Throttled(_) | StoreError::Unavailable(_) => Status::unavailable(text),
        _ => Status::internal(text),
    }
}
