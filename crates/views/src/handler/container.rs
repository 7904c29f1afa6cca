//! A container that some view names: its rulesets, and how far it was listed.

use super::matcher::{Matcher, Moment, Needs};
use crate::ruleset::write::write_rules;
use crate::{Pattern, Rule, Unlisted, ViewId, containers};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{ObjectStore, StoreError, Timestamp};
use tokio::sync::watch;

/// What is wanted to be seen: the rules of a ruleset, whatever its name is.
#[derive(Debug)]
pub(super) struct View {
    pub(super) number: u32,
    /// In which life of the handler it was opened: a number whose view was lost with the end of a log has another one then.
    pub(super) life: u32,
    pub(super) rules: Vec<Rule>,
    /// What equal views have in common.
    pub(super) text: String,
    /// The rules on keys as text, empty if every key will do.
    pub(super) keys: String,
    pub(super) needs: Needs,
    /// The containers that it names are there, in this life.
    pub(super) has_containers: AtomicBool,
    /// When somebody last asked for it, in nanoseconds.
    asked: AtomicI64,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    rules: Mutex<Rules>,
    /// There are views that the matcher does not know.
    pub(super) is_outdated: AtomicBool,
    /// The listing that runs, or 0.
    running: AtomicU32,
    pub(super) listing: Mutex<Listing>,
    pub(super) store: Mutex<Option<Arc<dyn ObjectStore>>>,
}

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) views: Vec<Arc<View>>,
    pub(super) matcher: Arc<Matcher>,
    pub(super) moment: Arc<Moment>,
    /// The last moment that the log knows of.
    pub(super) noted: Option<Timestamp>,
}

/// What is known of the whole container.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// How many there were.
    pub(super) number: u32,
    /// What came of the one that runs, to come.
    pub(super) running: Option<watch::Receiver<Option<Result<(), StoreError>>>>,
    /// What was listed, by rules on keys, and what was learnt of the objects.
    pub(super) covered: Vec<(String, Needs)>,
    /// Since then events were lost, or nobody could look.
    pub(super) is_stale: bool,
    /// When it was last tried.
    pub(super) tried: Timestamp,
    /// What the store said when it last was, if that failed.
    pub(super) failed: Option<StoreError>,
}

impl View {
    pub(super) fn new(number: u32, life: u32, rules: Vec<Rule>, now: Timestamp) -> Self {
        let keys = rules.iter().filter(|rule| matches!(rule, Rule::Object(_))).map(Rule::to_string);
        let keys = keys.collect::<Vec<_>>().join("\n");
        Self {
            number,
            life,
            text: text_of(&rules),
            keys,
            needs: Needs::of(&rules),
            rules,
            has_containers: AtomicBool::new(false),
            asked: AtomicI64::new(now.0),
        }
    }

    /// Somebody asks for it.
    pub(super) fn is_asked(&self, now: Timestamp) {
        self.asked.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn asked(&self) -> Timestamp {
        Timestamp(self.asked.load(Ordering::Relaxed))
    }

    pub(super) fn id(&self) -> ViewId {
        ViewId(u64::from(self.life) << 32 | u64::from(self.number))
    }

    /// Whether a container is named.
    pub(super) fn names(&self, container: &str) -> bool {
        let names = |rule: &Rule| match rule {
            Rule::Container(names) => names.iter().any(|name| name.names(container)),
            _ => true,
        };
        self.rules.iter().all(names)
    }

    /// The containers that are named literally, and whether there are patterns besides.
    pub(super) fn containers(&self) -> (Vec<String>, bool) {
        let names: Vec<&Pattern> = containers(&self.rules).collect();
        let literal: Vec<String> = names.iter().filter_map(|name| name.only_text()).collect();
        let has_patterns = names.is_empty() || literal.len() < names.len();
        (literal, has_patterns)
    }

    /// What every key that is wanted begins with, for each of the alternatives.
    pub(super) fn prefixes(&self) -> Vec<String> {
        let keys = self.rules.iter().find_map(|rule| match rule {
            Rule::Object(keys) => Some(keys),
            _ => None,
        });
        keys.map_or_else(|| vec![String::new()], |keys| keys.iter().map(|key| key.beginning().0).collect())
    }
}

/// Equal rulesets have equal texts; names and what only clients act on are none of the handler's.
pub(super) fn text_of(rules: &[Rule]) -> String {
    let mut text = String::new();
    write_rules(&mut text, rules);
    text
}

impl Container {
    pub(super) fn new(number: u32, name: Arc<str>, now: Timestamp) -> Self {
        let matcher = Arc::new(Matcher::new(std::iter::empty()));
        let moment = Arc::new(matcher.moment(now));
        Self {
            number,
            name,
            rules: Mutex::new(Rules { views: Vec::new(), matcher, moment, noted: None }),
            is_outdated: AtomicBool::new(true),
            running: AtomicU32::new(0),
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

    /// Another view names it.
    pub(super) fn add(&self, view: &Arc<View>) {
        let mut rules = self.rules();
        if !rules.views.iter().any(|is| is.number == view.number) {
            rules.views.push(Arc::clone(view));
            self.is_outdated.store(true, Ordering::Release);
        }
    }

    /// A view is forgotten, and what was listed for it alone. Returns whether another names the container.
    pub(super) fn remove(&self, view: u32) -> bool {
        let mut listing = self.listing();
        let mut rules = self.rules();
        rules.views.retain(|is| is.number != view);
        self.is_outdated.store(true, Ordering::Release);
        listing.covered = covered(rules.views.iter().filter(|view| listing.covers(view)));
        !rules.views.is_empty()
    }

    pub(super) fn has(&self, view: u32) -> bool {
        self.rules().views.iter().any(|is| is.number == view)
    }

    /// What is to be said where it cannot be listed.
    pub(super) fn unlisted(&self) -> Option<Unlisted> {
        let why = self.listing().failed.as_ref()?.to_string();
        Some(Unlisted { container: self.name.to_string(), why })
    }

    /// The number of the listing that runs.
    pub(super) fn running(&self) -> Option<u32> {
        Some(self.running.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    pub(super) fn set_running(&self, number: Option<u32>) {
        self.running.store(number.unwrap_or(0), Ordering::Release);
    }
}

/// What is known when so much was listed for views: their rules on keys, and what was learnt of the objects.
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
    /// Whether who goes on with what is known has to list again.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_stale || (self.running.is_some() && !self.covered.is_empty())
    }

    /// Whether everything that a view wants was listed.
    pub(super) fn covers(&self, view: &View) -> bool {
        self.covered
            .iter()
            .any(|(keys, needs)| (keys.is_empty() || *keys == view.keys) && needs.and(view.needs) == *needs)
    }
}
