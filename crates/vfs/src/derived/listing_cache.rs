//! Caching of derived directories in front ends, and its invalidation.
//!
//! Front ends cache names, attributes and listings for the time that [`super::Derived::lifetime`] returns. The source of
//! changes reports stale names ([`ViewRouter::say_stale`]).
//!
//! Invariants: an answer is not cached if something changed while it was made. A listing is not cached if any part of it was
//! read before the last change. A created file that the view does not know yet is not cached, as there may be no report about
//! it.

use meta::{Ino, Name};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::listings::{Asked, ListingCache, ListingReader};
use super::nodes::DerivedDirectories;
use super::{DerivedStale, is_derived};
use crate::Result;
use crate::derived::router::ViewRouter;
use crate::followers::front_ends::Invalidation;
use crate::names::handles::Handle;

/// Minimum time to cache an entry from a listing: programs often ask for the attributes of listed entries next.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// Maximum stale names in one report; further names go into further reports.
const NAMES_PER_REPORT_MAX: usize = 512;

impl ViewRouter {
    /// Returns a token for an answer that is about to be made. It tells later whether something changed meanwhile.
    pub fn asked(&self) -> Asked {
        Asked(self.derived.attached().map_or(0, |views| views.listings.stale_reports.load(Ordering::Acquire)))
    }

    /// Returns how long a front end may cache the entry under a name, for an answer begun at `asked`.
    pub fn lifetime(&self, dir: Ino, name: &[u8], asked: Asked) -> Duration {
        let Some(views) = self.derived.derived_at(dir) else { return self.mount.ttl() };
        let is_awaited = Name::new(name).is_ok_and(|name| views.created.get(&(dir, name)).is_some());
        match is_awaited || self.asked() != asked {
            true => Duration::ZERO,
            false => self.lifetime_in(views, dir),
        }
    }

    /// Like `lifetime`, for entries of a listing.
    pub fn lifetime_listed(&self, dir: Ino, asked: Asked) -> Duration {
        match self.derived.derived_at(dir) {
            Some(_) if self.asked() != asked => LISTED_FOR,
            Some(views) => self.lifetime_in(views, dir).max(LISTED_FOR),
            None => self.mount.ttl(),
        }
    }

    /// Returns how long a front end may cache an inode's attributes.
    pub fn lifetime_of(&self, ino: Ino) -> Duration {
        let Some(views) = self.derived.attached() else { return self.mount.ttl() };
        if is_derived(ino) {
            return self.lifetime_in(views, views.parent(ino));
        }
        match views.shown_at(ino) {
            Some(place)
                if views.created.get(&place).is_none() && !self.content.has_unpublished_writes(ino) =>
            {
                self.lifetime_in(views, place.0)
            }
            _ => self.mount.ttl(),
        }
    }

    fn lifetime_in(&self, views: &DerivedDirectories, dir: Ino) -> Duration {
        views.path(dir).map_or(Duration::ZERO, |path| views.tree.lifetime(&path))
    }

    /// Returns what a front end may do with its cache of the listing that it reads through a handle.
    pub fn listing_cache(&self, handle: Handle) -> ListingCache {
        let handle = self.names.handles().directory(handle).ok();
        handle.and_then(|handle| Some(handle.kept.as_ref()?.cache)).unwrap_or(ListingCache::None)
    }

    pub(crate) async fn open_derived(
        &self,
        views: &DerivedDirectories,
        dir: Ino,
    ) -> Result<Option<ListingReader>> {
        let path = views.path(dir)?;
        // If the version cannot be read now, reading the directory reports the error.
        let Ok(version) = views.tree.version(&path).await else { return Ok(None) };
        match views.created.names(dir, None, None).is_empty() {
            true => Ok(Some(views.listings.open(dir, version))),
            false => {
                views.listings.invalidate(dir);
                Ok(None)
            }
        }
    }

    /// Sends invalidations for stale names to front ends. Returns false if they are too busy; the caller must then try again.
    pub fn say_stale(&self, stale: &DerivedStale) -> bool {
        let Some(views) = self.derived.attached() else { return true };
        views.listings.stale_reports.fetch_add(1, Ordering::AcqRel);
        let Some(dir) = views.held(&stale.directory) else { return true };
        let mut news = vec![Invalidation::Inode(dir)];
        for name in &stale.names {
            // This order matters: a lookup that is under way ends before the front end drops the entry.
            news.push(Invalidation::entry(dir, name.as_bytes()));
            news.extend(views.held_file(&(dir, name.clone())).map(Invalidation::Attributes));
        }
        self.names.invalidations().try_notify_all(news)
    }

    /// Returns everything that front ends may have cached of a directory and those below, in pieces of bounded size.
    pub fn kept_below(&self, directory: &[Name]) -> Vec<DerivedStale> {
        let Some(views) = self.derived.attached() else { return Vec::new() };
        let Some(top) = views.held(directory) else { return Vec::new() };
        let mut pieces = Vec::new();
        for (dir, names) in views.held_below(top) {
            let Ok(directory) = views.path(dir) else { continue };
            for names in names.chunks(NAMES_PER_REPORT_MAX) {
                pieces.push(DerivedStale { directory: directory.clone(), names: names.to_vec() });
            }
        }
        pieces
    }
}
