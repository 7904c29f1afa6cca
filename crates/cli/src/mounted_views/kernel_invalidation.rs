//! Follows the changes of views, and has the file system invalidate stale names in the kernels' caches.

use super::MountedViews;
use meta::Name;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use vfs::{DerivedStale, Filesystem, StaleNames};
use views::tree::Stale;

/// Pause between two steps, so that many changes in a row are one step.
const PAUSE: Duration = Duration::from_millis(1);

/// The file system that invalidates names in kernels, and the task that follows changes.
#[derive(Debug, Default)]
pub(super) struct KernelInvalidation(Mutex<InvalidationState>);

#[derive(Debug, Default)]
struct InvalidationState {
    fs: Weak<Filesystem>,
    task: Option<AbortHandle>,
}

impl KernelInvalidation {
    pub(super) fn stop(&self) {
        if let Some(task) = self.state().task.take() {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, InvalidationState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MountedViews {
    /// Starts to follow changes for a file system that shows the views.
    pub(crate) fn start_invalidation(self: &Arc<Self>, fs: &Arc<Filesystem>) {
        let mounted_views = Arc::clone(self);
        let task = tokio::spawn(async move {
            loop {
                mounted_views.tree.follow().await;
                mounted_views.report_stale();
                tokio::time::sleep(PAUSE).await;
            }
        });
        let mut state = self.kernel.state();
        (state.fs, state.task) = (Arc::downgrade(fs), Some(task.abort_handle()));
    }

    /// Has the file system take the stale names, see [`MountedViews::take_stale_names`].
    pub(super) fn report_stale(&self) {
        let fs = self.kernel.state().fs.upgrade();
        if let Some(fs) = fs {
            fs.views().tell_stale();
        }
    }

    /// Takes stale names of the tree, at most `limit`.
    pub(super) fn take_stale_names(&self, limit: usize) -> Vec<StaleNames> {
        self.tree.take_stale(limit).into_iter().filter_map(stale_names).collect()
    }
}

/// Converts stale names. Leaves out invalid names, which the kernel cannot cache; `None` if the directory's path has one.
fn stale_names(stale: Stale) -> Option<StaleNames> {
    let name = |name: &Arc<[u8]>| Name::new(name).ok();
    let directory = stale.directory.iter().map(name).collect::<Option<Vec<_>>>()?;
    Some(match stale.names {
        Some(names) => {
            StaleNames::In(DerivedStale { directory, names: names.iter().filter_map(name).collect() })
        }
        None => StaleNames::Below(directory),
    })
}
