//! Tells the kernel which entries of views that it caches are stale.
//!
//! Invariants: every stale name taken from the tree is reported, however long the kernel is busy. A change through
//! this mount is reported before its caller learns that it is done, if the kernel's queue has room. It is never
//! waited for, as the kernel may hold a lock until then.

use super::MountedViews;
use meta::Name;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use vfs::{DerivedStale, Filesystem};
use views::tree::Stale;

/// Stale names taken from the tree at once.
const NAMES_MAX: usize = 512;
/// Pause between two steps, so that many changes in a row are one step, and between attempts while the kernel is
/// busy.
const PAUSE: Duration = Duration::from_millis(1);

/// The file system to notify, and the reports that it has not taken yet.
#[derive(Debug, Default)]
pub(super) struct KernelInvalidation(Mutex<InvalidationState>);

#[derive(Debug, Default)]
struct InvalidationState {
    fs: Weak<Filesystem>,
    waiting: VecDeque<DerivedStale>,
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
    /// Starts to report stale names to a file system that shows the views.
    pub(crate) fn start_invalidation(self: &Arc<Self>, fs: &Arc<Filesystem>) {
        let viewing = Arc::clone(self);
        let task = tokio::spawn(async move {
            loop {
                viewing.tree.follow().await;
                while !viewing.report_stale() {
                    tokio::time::sleep(PAUSE).await;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        let mut state = self.kernel.state();
        (state.fs, state.task) = (Arc::downgrade(fs), Some(task.abort_handle()));
    }

    /// Reports stale names, as far as the kernel's queue has room. Returns whether all were reported.
    pub(super) fn report_stale(&self) -> bool {
        let mut state = self.kernel.state();
        let Some(fs) = state.fs.upgrade() else { return true };
        loop {
            while let Some(entries) = state.waiting.front() {
                if !fs.views().say_stale(entries) {
                    return false;
                }
                state.waiting.pop_front();
            }
            let stale = self.tree.take_stale(NAMES_MAX);
            if stale.is_empty() {
                return true;
            }
            state.waiting.extend(stale.into_iter().flat_map(|stale| to_entries(&fs, stale)));
        }
    }
}

fn to_entries(fs: &Filesystem, stale: Stale) -> Vec<DerivedStale> {
    let name = |name: &Arc<[u8]>| Name::new(name).ok();
    // The kernel cannot cache a name that is invalid.
    let Some(directory) = stale.directory.iter().map(name).collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    match stale.names {
        Some(names) => vec![DerivedStale { directory, names: names.iter().filter_map(name).collect() }],
        None => fs.views().kept_below(&directory),
    }
}
