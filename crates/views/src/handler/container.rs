//! Views and containers: the rules of a view, the views that name a container, and which parts of a container were
//! listed.

use super::matcher::{Matcher, Needs, TimeCuts};
use crate::ruleset::write::write_rules;
use crate::{Pattern, Rule, Unlisted, ViewId, containers};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{ObjectStore, StoreError, Timestamp};
use tokio::sync::watch;

/// A view: the rules of a ruleset. Rulesets that differ only in name, or in settings for the client, are the same
/// view.
#[derive(Debug)]
pub(super) struct View {
    pub(super) number: u32,
    /// The handler's incarnation in which the view was opened. If the record of a view is lost with the end of a torn
    /// log, its number is used again, but in a later incarnation.
    pub(super) incarnation: u32,
    pub(super) rules: Vec<Rule>,
    /// The rules as canonical text; equal for equal views.
    pub(super) text: String,
    /// The rules on keys as text; empty if every key matches.
    pub(super) keys: String,
    pub(super) needs: Needs,
    /// Whether, in this incarnation, the containers that the view names are registered.
    pub(super) has_containers: AtomicBool,
    /// Time of the last request for the view, in nanoseconds.
    last_asked: AtomicI64,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    rules: Mutex<Rules>,
    /// Whether `views` changed since the matcher was built.
    pub(super) is_outdated: AtomicBool,
    /// Number of the listing in progress; 0 if none is.
    running_listing: AtomicU32,
    pub(super) listing: Mutex<Listing>,
    pub(super) store: Mutex<Option<Arc<dyn ObjectStore>>>,
}

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) views: Vec<Arc<View>>,
    pub(super) matcher: Arc<Matcher>,
    pub(super) time_cuts: Arc<TimeCuts>,
    /// Moment of the last `RecordKind::Time` in the log.
    pub(super) last_moment: Option<Timestamp>,
}

/// Listings of a container: the one in progress, and which rules on keys earlier ones cover.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Number of the last listing that was started.
    pub(super) number: u32,
    /// Receives the result of the listing in progress.
    pub(super) running: Option<watch::Receiver<Option<Result<(), StoreError>>>>,
    /// Coverage of the listings so far: rules on keys as text, and the metadata that was read for the objects that
    /// match them.
    pub(super) covered: Vec<(String, Needs)>,
    /// Whether the known state may be wrong since the last listing, because hints were lost or an object could not be
    /// verified.
    pub(super) is_stale: bool,
    /// Whether another listing was asked for while one was in progress, which may have been too early.
    pub(super) must_repeat: bool,
    /// Start of the last listing.
    pub(super) last_tried: Timestamp,
    /// Error of the last listing, if it failed.
    pub(super) failed: Option<StoreError>,
}

impl View {
    pub(super) fn new(number: u32, incarnation: u32, rules: Vec<Rule>, now: Timestamp) -> Self {
        let keys = rules.iter().filter(|rule| matches!(rule, Rule::Object(_))).map(Rule::to_string);
        let keys = keys.collect::<Vec<_>>().join("\n");
        Self {
            number,
            incarnation,
            text: text_of(&rules),
            keys,
            needs: Needs::of(&rules),
            rules,
            has_containers: AtomicBool::new(false),
            last_asked: AtomicI64::new(now.0),
        }
    }

    /// Notes a request for the view, so that maintenance does not forget it.
    pub(super) fn touch(&self, now: Timestamp) {
        self.last_asked.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn last_asked(&self) -> Timestamp {
        Timestamp(self.last_asked.load(Ordering::Relaxed))
    }

    pub(super) fn id(&self) -> ViewId {
        ViewId(u64::from(self.incarnation) << 32 | u64::from(self.number))
    }

    /// Returns whether the view names a container.
    pub(super) fn names(&self, container: &str) -> bool {
        let allows = |rule: &Rule| match rule {
            Rule::Container(names) => names.iter().any(|name| name.names(container)),
            _ => true,
        };
        self.rules.iter().all(allows)
    }

    /// Returns the containers that the view names literally, and whether it names others by patterns.
    pub(super) fn containers(&self) -> (Vec<String>, bool) {
        let names: Vec<&Pattern> = containers(&self.rules).collect();
        let literal: Vec<String> = names.iter().filter_map(|name| name.only_text()).collect();
        let has_patterns = names.is_empty() || literal.len() < names.len();
        (literal, has_patterns)
    }

    /// Returns the literal prefix of each alternative of the rule on keys.
    pub(super) fn prefixes(&self) -> Vec<String> {
        let keys = self.rules.iter().find_map(|rule| match rule {
            Rule::Object(keys) => Some(keys),
            _ => None,
        });
        keys.map_or_else(
            || vec![String::new()],
            |keys| keys.iter().map(|key| key.literal_prefix().0).collect(),
        )
    }
}

/// Returns the canonical text of rules. It leaves out the ruleset's name and the settings that only clients use.
pub(super) fn text_of(rules: &[Rule]) -> String {
    let mut text = String::new();
    write_rules(&mut text, rules);
    text
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

    pub(super) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Option<Arc<dyn ObjectStore>>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn remove_view(&self, view: u32) -> bool {
        let mut listing = self.listing();
        let mut rules = self.rules();
        rules.views.retain(|known| known.number != view);
        self.is_outdated.store(true, Ordering::Release);
        listing.covered = covered(rules.views.iter().filter(|view| listing.covers(view)));
        !rules.views.is_empty()
    }

    pub(super) fn has_view(&self, view: u32) -> bool {
        self.rules().views.iter().any(|known| known.number == view)
    }

    /// Returns why the container cannot be listed, if the last listing failed.
    pub(super) fn unlisted(&self) -> Option<Unlisted> {
        let why = self.listing().failed.as_ref()?.to_string();
        Some(Unlisted { container: self.name.to_string(), why })
    }

    /// Returns the number of the listing in progress.
    pub(super) fn running_listing(&self) -> Option<u32> {
        Some(self.running_listing.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    pub(super) fn set_running_listing(&self, number: Option<u32>) {
        self.running_listing.store(number.unwrap_or(0), Ordering::Release);
    }
}

/// Returns what listings for `views` cover: their rules on keys, and the metadata that was read.
pub(super) fn covered<'v>(views: impl Iterator<Item = &'v Arc<View>>) -> Vec<(String, Needs)> {
    let mut covered: Vec<(String, Needs)> = Vec::new();
    for view in views {
        if !covered.iter().any(|(keys, needs)| *keys == view.keys && *needs == view.needs) {
            covered.push((view.keys.clone(), view.needs));
        }
    }
    covered
}

impl Listing {
    /// Returns whether a handler that restarts from this state has to list the container again.
    pub(super) fn needs_relisting(&self) -> bool {
        self.is_stale || (self.running.is_some() && !self.covered.is_empty())
    }

    /// Returns whether listings cover everything that a view needs.
    pub(super) fn covers(&self, view: &View) -> bool {
        self.covered
            .iter()
            .any(|(keys, needs)| (keys.is_empty() || *keys == view.keys) && needs.union(view.needs) == *needs)
    }
}
