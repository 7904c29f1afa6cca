//! Caching of derived directories in front ends, and its invalidation.
//!
//! Front ends cache names, attributes and listings for the time that [`super::Derived::lifetime`] returns. Views report stale
//! names, of which front ends are told ([`super::stale_names`]).
//!
//! Invariants: an answer is not cached if something changed while it was made, except that an entry of a listing is
//! cached for [`LISTED_FOR`] in any case. A listing is not cached if any part of it was read before the last change.
//! A created file that the view does not know yet is not cached, as there may be no report about it.

use meta::{Ino, Name};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::is_derived;
use super::listings::{Asked, ListingCache, ListingReader};
use super::nodes::DerivedDirectories;
use crate::Result;
use crate::derived::router::ViewRouter;
use crate::names::handles::Handle;

/// Minimum time to cache an entry from a listing: programs often ask for the attributes of listed entries next.
const LISTED_FOR: Duration = Duration::from_secs(1);

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

    /// Like `lifetime`, for entries of a listing: at least `LISTED_FOR` in a derived directory, also if something
    /// changed meanwhile.
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

    /// Returns how long a front end may cache what it found in a directory, by its view; zero if it is unknown.
    fn lifetime_in(&self, views: &DerivedDirectories, dir: Ino) -> Duration {
        views.path(dir).map_or(Duration::ZERO, |path| views.tree.lifetime(&path))
    }

    /// Returns what a front end may do with its cache of the listing that it reads through a handle: nothing for a
    /// directory that is not derived.
    pub fn listing_cache(&self, handle: Handle) -> ListingCache {
        let handle = self.names.handles().directory(handle).ok();
        handle.and_then(|handle| Some(handle.kept.as_ref()?.cache)).unwrap_or(ListingCache::None)
    }

    /// Returns the share that a new handle has in the cached listing of its directory; `None` if the listing must not
    /// be cached.
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
}
