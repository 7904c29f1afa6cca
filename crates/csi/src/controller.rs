//! The controller service: creates and deletes volumes, which are prefixes of a bucket, or buckets.
//!
//! Invariant: only volumes with a record of the driver are deleted. A place that has objects but no record never becomes a volume.

use crate::access::Access;
use crate::bucket_volume::{BucketVolume, VolumeRecord, status};
use crate::disk_cache::WantedCache;
use crate::in_flight::InFlight;
use crate::message::{
    Confirmed, CreateVolume, DeleteVolume, Empty, ExpandVolume, Texts, ValidateVolumeCapabilities, Validated,
    Volume, VolumeCreated, VolumeExpanded,
};
use crate::usage::{Usage, capacity, has_capacity, missing, required};
use crate::volume_place::VolumePlace;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use store::{Buckets, Precondition, StoreError};
use tonic::Status;

/// A function that signs in to a server. Its error is one line without secrets.
pub type OpenBuckets =
    Box<dyn Fn(Access) -> BoxFuture<'static, Result<Arc<dyn Buckets>, String>> + Send + Sync>;

/// `ControllerServiceCapability.RPC.Type`: CREATE_DELETE_VOLUME, EXPAND_VOLUME, SINGLE_NODE_MULTI_WRITER.
pub(crate) const CAPABILITIES: [i32; 3] = [1, 9, 13];

/// The controller service.
pub(crate) struct Controller {
    open_buckets: OpenBuckets,
    in_flight: Arc<InFlight>,
}

impl Controller {
    pub(crate) fn new(open_buckets: OpenBuckets) -> Self {
        Self { open_buckets, in_flight: Arc::default() }
    }

    /// Creates a volume, or finds the one that an earlier request of this name created.
    pub(crate) async fn create(&self, request: CreateVolume) -> Result<VolumeCreated, Status> {
        let name = required("name", &request.name)?;
        Usage::check_all(&request.volume_capabilities)?;
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "volumes are always made empty, not from snapshots or other volumes",
            ));
        }
        if !request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("there are no mutable parameters"));
        }
        let wanted =
            VolumeRecord { name: name.to_owned(), capacity_bytes: capacity(request.capacity_range)? };
        let place = VolumePlace::of_new_volume(name, &request.parameters)?;
        let volume_context = WantedCache::attributes_of_new_volume(&request.parameters)?;
        let _operation = self.in_flight.begin(&place.to_string())?;
        let buckets = self.buckets(&request.secrets).await?;
        if place.is_bucket() {
            match buckets.create(place.bucket()).await {
                // The record shows whether the bucket is this volume.
                Ok(()) | Err(StoreError::BucketState { .. }) => {}
                Err(error) => return Err(status(error)),
            }
        }
        let volume = BucketVolume::open(buckets.as_ref(), place.clone()).await?;
        let volume = volume.ok_or_else(|| {
            Status::invalid_argument(format!(
                "there is no bucket '{}'; create it, or change the storage class",
                place.bucket()
            ))
        })?;
        let record = find_or_make(&volume, wanted).await?;
        if !has_capacity(record.capacity_bytes, request.capacity_range) {
            return Err(Status::already_exists(format!(
                "{place} exists with the size {} bytes",
                record.capacity_bytes
            )));
        }
        let (capacity_bytes, volume_id) = (record.capacity_bytes, place.to_string());
        Ok(VolumeCreated { volume: Some(Volume { capacity_bytes, volume_id, volume_context }) })
    }

    /// Deletes a volume with all its objects. A volume that does not exist is not an error.
    pub(crate) async fn delete(&self, request: DeleteVolume) -> Result<Empty, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let Some(place) = VolumePlace::parse(id) else { return Ok(Empty {}) };
        let _operation = self.in_flight.begin(&place.to_string())?;
        let buckets = self.buckets(&request.secrets).await?;
        let Some(volume) = BucketVolume::open(buckets.as_ref(), place.clone()).await? else {
            return Ok(Empty {});
        };
        match volume.record().await? {
            Some(_) => volume.remove_objects().await?,
            None if volume.has_objects().await? => {
                return Err(Status::failed_precondition(format!(
                    "{place} was not made by this driver, so its objects are kept; use the reclaim policy Retain, or remove them yourself"
                )));
            }
            None => return Ok(Empty {}),
        }
        if place.is_bucket() {
            match buckets.delete(place.bucket()).await {
                Ok(()) | Err(StoreError::NoSuchBucket(_)) => {}
                Err(error) => return Err(status(error)),
            }
        }
        Ok(Empty {})
    }

    /// Confirms that a volume can be used in all ways that a request names.
    pub(crate) async fn validate(&self, request: ValidateVolumeCapabilities) -> Result<Validated, Status> {
        let id = required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(missing("volume_capabilities"));
        }
        let url = request.volume_context.get("volume").map_or(id, String::as_str);
        self.existing(url, &request.secrets).await?;
        if let Err(refused) = Usage::check_all(&request.volume_capabilities) {
            return Ok(Validated { confirmed: None, message: refused.message().to_owned() });
        }
        let ValidateVolumeCapabilities { volume_context, volume_capabilities, parameters, .. } = request;
        let confirmed = Confirmed { volume_context, volume_capabilities, parameters };
        Ok(Validated { confirmed: Some(confirmed), message: String::new() })
    }

    /// Records a larger size.
    pub(crate) async fn expand(&self, request: ExpandVolume) -> Result<VolumeExpanded, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let wanted = capacity(Some(request.capacity_range.ok_or_else(|| missing("capacity_range"))?))?;
        let _operation = self.in_flight.begin(id)?;
        let volume = self.existing(id, &request.secrets).await?;
        let record = volume
            .record()
            .await?
            .ok_or_else(|| Status::not_found(format!("{id} was not made by this driver")))?;
        if record.capacity_bytes < wanted {
            let larger = VolumeRecord { capacity_bytes: wanted, ..record.clone() };
            volume.put_record(&larger, Precondition::None).await?;
        }
        Ok(VolumeExpanded {
            capacity_bytes: record.capacity_bytes.max(wanted),
            node_expansion_required: false,
        })
    }

    /// Removes all objects of a pod's own volume.
    pub(crate) async fn remove_scratch(&self, place: VolumePlace, access: Access) -> Result<(), Status> {
        let buckets = self.sign_in(access).await?;
        match BucketVolume::open(buckets.as_ref(), place).await? {
            Some(volume) => volume.remove_objects().await,
            None => Ok(()),
        }
    }

    /// Opens a volume that exists: it has the record of the driver, or other objects.
    async fn existing(&self, url: &str, secrets: &Texts) -> Result<BucketVolume, Status> {
        let missing = || Status::not_found(format!("there is no volume {}", url.escape_debug()));
        let place = VolumePlace::parse(url).ok_or_else(missing)?;
        let buckets = self.buckets(secrets).await?;
        let volume = BucketVolume::open(buckets.as_ref(), place).await?.ok_or_else(missing)?;
        if volume.has_objects().await? { Ok(volume) } else { Err(missing()) }
    }

    async fn buckets(&self, secrets: &Texts) -> Result<Arc<dyn Buckets>, Status> {
        self.sign_in(Access::from_secrets(secrets)?).await
    }

    async fn sign_in(&self, access: Access) -> Result<Arc<dyn Buckets>, Status> {
        (self.open_buckets)(access).await.map_err(Status::unauthenticated)
    }
}

/// Returns the record of a volume. Makes it if the volume is new.
async fn find_or_make(volume: &BucketVolume, wanted: VolumeRecord) -> Result<VolumeRecord, Status> {
    if let Some(found) = volume.record().await? {
        return Ok(found);
    }
    if volume.has_objects().await? {
        return Err(Status::already_exists("the place of the volume has objects that are not the driver's"));
    }
    if volume.put_record(&wanted, Precondition::Absent).await? {
        return Ok(wanted);
    }
    let found = volume.record().await?;
    found.ok_or_else(|| Status::aborted("the volume is being deleted; try again"))
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AccessMode, CapacityRange, Mode, MountVolume, VolumeCapability};
    use store::memory::MemoryBuckets;
    use store::{ListRequest, ObjectKey, ObjectStore, Payload, PutOptions, SystemClock};
    use tonic::Code;

    /// Returns a controller over a server in memory that has the bucket `data`.
    async fn controller() -> (Controller, Arc<dyn Buckets>) {
        let buckets: Arc<dyn Buckets> = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
        buckets.create("data").await.unwrap();
        let opened = Arc::clone(&buckets);
        let open = move |_| -> BoxFuture<'static, _> {
            let buckets = Arc::clone(&opened);
            Box::pin(async move { Ok(buckets) })
        };
        (Controller::new(Box::new(open)), buckets)
    }

    fn create(name: &str, parameters: &[(&str, &str)], bytes: i64) -> CreateVolume {
        let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
        let mount = Some(MountVolume::default());
        CreateVolume {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![VolumeCapability { block: None, mount, access_mode }],
            parameters: parameters
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..CreateVolume::default()
        }
    }

    fn delete(id: &str) -> DeleteVolume {
        DeleteVolume { volume_id: id.to_owned(), secrets: Texts::new() }
    }

    async fn put(store: &dyn ObjectStore, key: &str) {
        let key = ObjectKey::try_from(key).unwrap();
        store.put(&key, Payload::from("x"), PutOptions::default()).await.unwrap();
    }

    async fn count(store: &dyn ObjectStore) -> usize {
        store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await.unwrap().entries.len()
    }

    #[tokio::test]
    async fn creation_and_deletion_can_be_repeated() {
        let (controller, buckets) = controller().await;
        let volume = |bytes| create("pvc-1", &[("bucket", "data")], bytes);
        let made = controller.create(volume(5)).await.unwrap().volume.unwrap();
        assert_eq!((made.volume_id.as_str(), made.capacity_bytes), ("s3://data/pvc-1", 5));
        assert_eq!(controller.create(volume(5)).await.unwrap().volume.unwrap(), made);
        assert_eq!(controller.create(volume(3)).await.unwrap().volume.unwrap(), made);
        assert_eq!(controller.create(volume(6)).await.unwrap_err().code(), Code::AlreadyExists);
        let store = buckets.open("data").await.unwrap();
        for number in 0..200 {
            put(store.as_ref(), &format!("pvc-1/dir/{number}")).await;
        }
        put(store.as_ref(), "pvc-10/file").await;
        for _ in 0..2 {
            controller.delete(delete(&made.volume_id)).await.unwrap();
            assert_eq!(count(store.as_ref()).await, 1);
        }
    }

    #[tokio::test]
    async fn a_volume_can_be_a_bucket() {
        let (controller, buckets) = controller().await;
        let volume = || create("pvc-1", &[("bucketPrefix", "team-")], 0);
        let made = controller.create(volume()).await.unwrap().volume.unwrap();
        assert_eq!(made.volume_id, "s3://team-pvc-1");
        assert_eq!(controller.create(volume()).await.unwrap().volume.unwrap(), made);
        put(buckets.open("team-pvc-1").await.unwrap().as_ref(), "file").await;
        controller.delete(delete(&made.volume_id)).await.unwrap();
        assert_eq!(buckets.list().await.unwrap(), ["data"]);
        controller.delete(delete(&made.volume_id)).await.unwrap();
    }

    #[tokio::test]
    async fn what_the_driver_did_not_make_is_kept() {
        let (controller, buckets) = controller().await;
        let store = buckets.open("data").await.unwrap();
        put(store.as_ref(), "pvc-1/file").await;
        let refused = controller.create(create("pvc-1", &[("bucket", "data")], 0)).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        for id in ["s3://data/pvc-1", "s3://data"] {
            assert_eq!(controller.delete(delete(id)).await.unwrap_err().code(), Code::FailedPrecondition);
        }
        for id in ["any", "s3://data/pvc-2", "s3://none"] {
            controller.delete(delete(id)).await.unwrap();
        }
        assert_eq!(count(store.as_ref()).await, 1);
        let missing = controller.create(create("pvc-1", &[("bucket", "none")], 0)).await.unwrap_err();
        assert_eq!(missing.code(), Code::InvalidArgument);
    }

    #[tokio::test]
    async fn a_size_only_grows() {
        let (controller, _) = controller().await;
        controller.create(create("pvc-1", &[("bucket", "data")], 5)).await.unwrap();
        let expand = |id: &str, required_bytes| ExpandVolume {
            volume_id: id.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            secrets: Texts::new(),
        };
        for (wanted, bytes) in [(9, 9), (7, 9)] {
            let expanded = controller.expand(expand("s3://data/pvc-1", wanted)).await.unwrap();
            assert_eq!((expanded.capacity_bytes, expanded.node_expansion_required), (bytes, false));
        }
        assert_eq!(controller.expand(expand("s3://data/pvc-2", 9)).await.unwrap_err().code(), Code::NotFound);
    }
}
