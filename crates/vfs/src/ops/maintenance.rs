//! Reconciliation of names with observed objects, and attaching of views.

use meta::Moment;
use std::sync::Arc;
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
}
