//! Maintenance: what the bucket has that the volume does not know or need.

use bytes::Bytes;
use meta::Moment;
use std::sync::Arc;
use std::time::Duration;
use store::{ObjectKey, ObjectMeta};

use crate::derived::Derived;
use crate::names::name;
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
        self.volume.forget_learned()
    }

    /// Imports objects that other clients stored in a volume named by inode. Returns the paths of the new files. Does nothing
    /// in a volume named by path, where such objects are files already.
    pub async fn import_foreign(&self) -> Result<Vec<Bytes>> {
        self.volume.import_foreign().await
    }

    /// Finds content that belongs to no file and expired leases; deletes them unless `only_find`.
    pub async fn collect_garbage(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        let mut found = self.content.collect_garbage(only_find).await?;
        found.extend(self.volume.collect_leases(only_find).await?);
        Ok(found)
    }

    /// Starts the background lister, with the time `every` for each request. It runs until the file system is dropped. Does
    /// nothing for a volume named by inode, whose objects no other client changes.
    pub fn list_in_background(&self, every: Duration) {
        self.volume.list_in_background(every);
    }

    /// Shows a tree of derived directories: under a name in the root that listings leave out, or, if `at` is `None`, in place
    /// of all other names. Called once, before the file system is used. The top directory has the mode `top_mode` if given, or
    /// else the default mode of directories.
    ///
    /// # Errors
    /// EIO in a volume named by inode, which has no views. EBUSY if derived directories are shown already.
    pub fn attach_view(
        &self,
        at: Option<&[u8]>,
        tree: Arc<dyn Derived>,
        top_mode: Option<u16>,
    ) -> Result<()> {
        let at = at.map(name).transpose()?;
        self.volume.check_has_views()?;
        self.views.attach(at, tree, top_mode)
    }

    /// Sets the function by which `statfs` and `fallocate` determine the free space of the backing store.
    pub fn measure_space_by(&self, measure: crate::MeasureDiskSpace) {
        self.content.measure_space_by(measure);
    }
}
