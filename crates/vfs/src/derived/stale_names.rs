//! Notifies front ends of stale names in derived directories, where names change without an op in the op log.
//!
//! Invariants: every stale name that was taken from the views is delivered, however long a front end is busy: a name without room in the
//! queue waits until the front end asks for its next invalidation. Front ends get a change through this mount before its caller gets the
//! result, if there is room. Nothing waits for the kernel, which may hold a lock until the caller is answered.

use meta::Name;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::{DerivedStale, StaleNames};
use crate::derived::router::ViewRouter;
use crate::followers::invalidation::Invalidation;

/// Maximum stale names to take or tell at once.
const NAMES_MAX: usize = 512;

impl ViewRouter {
    /// Makes the follower of the op log notify front ends of the stale names that wait for room in a queue.
    pub(crate) fn follow_changes(self: &Arc<Self>) {
        let me = Arc::downgrade(self);
        self.names.follower().serve_views(move || {
            if let Some(me) = me.upgrade() {
                me.tell_stale();
            }
        });
    }

    /// Tells front ends of the names that the views report as stale, as far as there is room.
    pub fn tell_stale(&self) {
        let Some(views) = self.derived.attached() else { return };
        let mut untold = views.untold.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while let Some(stale) = untold.front() {
                if !self.say_stale(stale) {
                    return self.names.follower().await_room();
                }
                untold.pop_front();
            }
            let taken = views.tree.take_stale(NAMES_MAX);
            if taken.is_empty() {
                return;
            }
            untold.extend(taken.into_iter().flat_map(|stale| match stale {
                StaleNames::In(stale) => vec![stale],
                StaleNames::Below(directory) => self.kept_below(&directory),
            }));
        }
    }

    /// Sends invalidations for stale names to front ends. Returns false if they are too busy; the caller must then try again.
    pub fn say_stale(&self, stale: &DerivedStale) -> bool {
        let Some(views) = self.derived.attached() else { return true };
        views.listings.stale_reports.fetch_add(1, Ordering::AcqRel);
        let Some(dir) = views.held(&stale.directory) else { return true };
        let mut invalidations = vec![Invalidation::Inode(dir)];
        for name in &stale.names {
            // This order matters: a lookup that is under way ends before the front end drops the entry.
            invalidations.push(Invalidation::entry(dir, name.as_bytes()));
            invalidations.extend(views.held_file(&(dir, name.clone())).map(Invalidation::Attributes));
        }
        self.names.front_ends().try_tell_all(&invalidations)
    }

    /// Returns everything that front ends may have cached of a directory and those below, in pieces of bounded size.
    pub fn kept_below(&self, directory: &[Name]) -> Vec<DerivedStale> {
        let Some(views) = self.derived.attached() else { return Vec::new() };
        let Some(top) = views.held(directory) else { return Vec::new() };
        let mut pieces = Vec::new();
        for (dir, names) in views.held_below(top) {
            let Ok(directory) = views.path(dir) else { continue };
            for names in names.chunks(NAMES_MAX) {
                pieces.push(DerivedStale { directory: directory.clone(), names: names.to_vec() });
            }
        }
        pieces
    }
}
