//! The kernel keeps what it found in views: here it hears what is stale.
//!
//! Invariants: what is taken from the tree is said, however long the kernel is busy; what is done through this mount is said, if
//! there is room, before whoever did it hears that it is done, and never waited for, as the kernel may hold a lock until then.

use super::Viewing;
use meta::Name;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use vfs::{DerivedStale, Filesystem};
use views::tree::Stale;

/// Names taken from the tree at once.
const NAMES_MAX: usize = 512;
/// Between two steps, so that many changes in a row are one step; and for a kernel that is busy.
const PAUSE: Duration = Duration::from_millis(1);

/// Who is told, and what it was not told yet.
#[derive(Debug, Default)]
pub(super) struct Following(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    fs: Weak<Filesystem>,
    untold: VecDeque<DerivedStale>,
    task: Option<AbortHandle>,
}

impl Following {
    pub(super) fn stop(&self) {
        if let Some(task) = self.state().task.take() {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Viewing {
    /// From now on a file system that shows the views hears what is stale.
    pub(crate) fn follow(self: &Arc<Self>, fs: &Arc<Filesystem>) {
        let viewing = Arc::clone(self);
        let task = tokio::spawn(async move {
            loop {
                viewing.tree.follow().await;
                while !viewing.say_stale() {
                    tokio::time::sleep(PAUSE).await;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        let mut state = self.kernel.state();
        (state.fs, state.task) = (Arc::downgrade(fs), Some(task.abort_handle()));
    }

    /// Says what is stale, as far as there is room; whether that was all.
    pub(super) fn say_stale(&self) -> bool {
        let mut state = self.kernel.state();
        let Some(fs) = state.fs.upgrade() else { return true };
        loop {
            while let Some(one) = state.untold.front() {
                if !fs.say_stale(one) {
                    return false;
                }
                state.untold.pop_front();
            }
            let stale = self.tree.take_stale(NAMES_MAX);
            if stale.is_empty() {
                return true;
            }
            state.untold.extend(stale.into_iter().flat_map(|stale| in_pieces(&fs, stale)));
        }
    }
}

fn in_pieces(fs: &Filesystem, stale: Stale) -> Vec<DerivedStale> {
    let name = |name: &Arc<[u8]>| Name::new(name).ok();
    // What is no name the kernel never heard of.
    let Some(directory) = stale.directory.iter().map(name).collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    match stale.names {
        Some(names) => vec![DerivedStale { directory, names: names.iter().filter_map(name).collect() }],
        None => fs.kept_below(&directory),
    }
}
