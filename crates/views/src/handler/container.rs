//! A container: the views that name it, the matcher of their rules, its store, and its listings.

use super::listing_state::{Coverage, ListingState};
use super::objects::{ContainerQuery, Matcher, Objects, TimeCuts};
use super::view::View;
use crate::Unlisted;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Buckets, ObjectStore, StoreError, Timestamp};

/// A bucket that views name or match by a pattern.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    rules: Mutex<Rules>,
    /// Whether the views changed since the matcher was built.
    is_outdated: AtomicBool,
    /// Number of the listing in progress; 0 if none is.
    running_listing: AtomicU32,
    listing: Mutex<ListingState>,
    store: Mutex<Option<Arc<dyn ObjectStore>>>,
}

/// The views that name a container, and what is computed from their rules.
#[derive(Debug)]
struct Rules {
    views: Vec<Arc<View>>,
    matcher: Arc<Matcher>,
    /// The bounds of all rules on times, as absolute times at the moment of the last request.
    time_cuts: Arc<TimeCuts>,
    /// The last moment for which clients were told the content of views with rules on ages, as the log has it.
    last_moment: Option<Timestamp>,
}

impl Container {
    pub(super) fn new(number: u32, name: Arc<str>, now: Timestamp) -> Self {
        let matcher = Arc::new(Matcher::new(std::iter::empty()));
        let time_cuts = Arc::new(matcher.time_cuts(now));
        Self {
            number,
            name,
            rules: Mutex::new(Rules { views: Vec::new(), matcher, time_cuts, last_moment: None }),
            is_outdated: AtomicBool::new(true),
            running_listing: AtomicU32::new(0),
            listing: Mutex::default(),
            store: Mutex::default(),
        }
    }

    /// Restores what earlier listings cover, and the last moment for which clients were told the content of views.
    pub(super) fn restore(&self, covered: Coverage, is_stale: bool, last_moment: Option<Timestamp>) {
        *self.listing() = ListingState::restored(covered, is_stale);
        self.rules().last_moment = last_moment;
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listing(&self) -> MutexGuard<'_, ListingState> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> MutexGuard<'_, Option<Arc<dyn ObjectStore>>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn views(&self) -> Vec<Arc<View>> {
        self.rules().views.clone()
    }

    /// Returns whether the view of this number names the container.
    pub(super) fn has_view(&self, view_number: u32) -> bool {
        self.rules().views.iter().any(|known| known.number == view_number)
    }

    /// Adds a view that names this container.
    pub(super) fn add_view(&self, view: &Arc<View>) {
        let mut rules = self.rules();
        if !rules.views.iter().any(|known| known.number == view.number) {
            rules.views.push(Arc::clone(view));
            self.is_outdated.store(true, Ordering::Release);
        }
    }

    /// Removes a view, and the coverage that only this view needed. Returns whether another view still names the
    /// container.
    pub(super) fn remove_view(&self, view_number: u32) -> bool {
        let mut listing = self.listing();
        let mut rules = self.rules();
        rules.views.retain(|known| known.number != view_number);
        self.is_outdated.store(true, Ordering::Release);
        listing.keep_coverage_of(&rules.views);
        !rules.views.is_empty()
    }

    /// Removes and returns the views that the listings in `listing` do not cover.
    pub(super) fn remove_uncovered_views(&self, listing: &ListingState) -> Vec<Arc<View>> {
        let mut rules = self.rules();
        let (covered, uncovered) =
            std::mem::take(&mut rules.views).into_iter().partition(|view| listing.covers(view));
        rules.views = covered;
        self.is_outdated.store(true, Ordering::Release);
        uncovered
    }

    /// Rebuilds the matcher, if the views have changed.
    pub(super) fn rebuild_matcher(&self, objects: &Objects, now: Timestamp) {
        if !self.is_outdated.load(Ordering::Acquire) {
            return;
        }
        let mut rules = self.rules();
        if !self.is_outdated.swap(false, Ordering::AcqRel) {
            return;
        }
        let views = rules.views.iter().map(|view| (view.number, view.rules.as_slice()));
        rules.matcher = Arc::new(Matcher::new(views));
        rules.time_cuts = Arc::new(rules.matcher.time_cuts(now));
        objects.set_matcher(self.number, &rules.matcher, &rules.time_cuts);
    }

    /// Returns the container's rules for a request for changes as of `now`.
    pub(super) fn query(&self, now: Timestamp) -> ContainerQuery {
        let mut rules = self.rules();
        if rules.matcher.has_ages() && rules.time_cuts.now != now {
            rules.time_cuts = Arc::new(rules.matcher.time_cuts(now));
        }
        let (matcher, time_cuts) = (Arc::clone(&rules.matcher), Arc::clone(&rules.time_cuts));
        ContainerQuery::new(self.number, Arc::clone(&self.name), matcher, time_cuts)
    }

    /// Notes that a client was told the content of a view as of a moment. Returns whether the moment has to be logged, because views have
    /// rules on ages.
    pub(super) fn note_moment(&self, now: Timestamp) -> bool {
        let mut rules = self.rules();
        rules.matcher.has_ages() && rules.last_moment.replace(now) != Some(now)
    }

    /// Returns the last moment for which clients were told the content of views with rules on ages; `None` if there was
    /// none.
    pub(super) fn last_moment(&self) -> Option<Timestamp> {
        self.rules().last_moment
    }

    /// Returns the number of distinct sets of views that the matcher has found for objects so far, with the empty set.
    pub(super) fn set_count(&self) -> usize {
        self.rules().matcher.set_count()
    }

    /// Returns why the known objects of the container may be incomplete; `None` if nothing failed since the last
    /// listing that succeeded.
    pub(super) fn unlisted(&self) -> Option<Unlisted> {
        let why = self.listing().failed()?.to_string();
        Some(Unlisted { container: self.name.to_string(), why })
    }

    /// Returns the number of the listing in progress; `None` if none is.
    pub(super) fn running_listing(&self) -> Option<u32> {
        Some(self.running_listing.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    pub(super) fn set_running_listing(&self, number: Option<u32>) {
        self.running_listing.store(number.unwrap_or(0), Ordering::Release);
    }

    /// Returns the container's store, which is opened at the first call and after [`Container::forget_store`].
    pub(super) async fn open_store(&self, buckets: &dyn Buckets) -> Result<Arc<dyn ObjectStore>, StoreError> {
        let opened = self.store().clone();
        match opened {
            Some(store) => Ok(store),
            None => {
                let store = buckets.open(&self.name).await?;
                *self.store() = Some(Arc::clone(&store));
                Ok(store)
            }
        }
    }

    /// Forgets the store, so that the next call opens it again.
    pub(super) fn forget_store(&self) {
        *self.store() = None;
    }
}
