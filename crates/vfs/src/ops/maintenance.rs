//! Maintenance: what the bucket has that the volume does not know or need.

use bytes::Bytes;
use meta::Moment;
use store::{ObjectKey, ObjectMeta};

use crate::{Filesystem, Result};

impl Filesystem {
    /// Reconciles names with an object that was observed under a key at `looked_at`; `None` if there was none.
    pub async fn reconcile(
        &self,
        key: &ObjectKey,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<()> {
        self.bucket.discovery.reconcile(key, observed, looked_at).await
    }

    /// Evicts everything that can be read from the bucket again, so that it is read with this mount's settings.
    pub fn forget_learned(&self) -> Result<()> {
        self.bucket.evictor.forget_learned()
    }

    /// Imports objects that other clients stored in a volume named by inode. Returns the paths of the new files. Does nothing
    /// in a volume named by path, where such objects are files already.
    pub async fn import_foreign(&self) -> Result<Vec<Bytes>> {
        self.bucket.importer.import_foreign().await
    }

    /// Finds content that belongs to no file and expired leases; deletes them unless `only_find`.
    pub async fn collect_garbage(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        self.content.collect_garbage(only_find).await
    }

    /// Sets the function by which `statfs` and `fallocate` determine the free space of the backing store.
    pub fn measure_space_by(&self, measure: crate::MeasureDiskSpace) {
        self.content.measure_space_by(measure);
    }
}
