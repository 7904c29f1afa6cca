//! All views and containers.
//!
//! Owns their numbers and their records in the log. Refuses: to list a container.

use super::container::Container;
use super::listing_state::Coverage;
use super::objects::{LogRecord, Objects, RecordKind};
use super::state_log::StateLog;
use super::view::{View, text_of};
use crate::ruleset::write::write_rules;
use crate::{Rule, Ruleset, ViewId};
use hashbrown::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Clock, Timestamp};

/// All containers by name.
pub(super) type Containers = HashMap<Arc<str>, Arc<Container>>;

/// The views and containers of a handler.
#[derive(Debug)]
pub(super) struct Registry {
    state: Mutex<State>,
    objects: Arc<Objects>,
    log: Arc<StateLog>,
    clock: Arc<dyn Clock>,
    /// Number of this process run, which is part of the ids of new views.
    incarnation: u32,
}

#[derive(Debug, Default)]
struct State {
    /// Views, indexed by number; `None` for a forgotten view.
    views: Vec<Option<Arc<View>>>,
    /// Numbers of the views, by the text of their rules.
    by_text: HashMap<String, u32>,
    containers: Arc<Containers>,
    /// Number of the next container. Numbers of forgotten containers are not used again.
    container_count: u32,
    /// Whether some view names containers by a pattern.
    has_patterns: bool,
    /// Negative cache, used while `has_patterns`: buckets that hints named and that no view wants.
    unwanted_buckets: HashSet<Box<str>>,
}

/// A container as the log has it.
#[derive(Debug)]
pub(super) struct SavedContainer {
    pub(super) name: String,
    /// Coverage of its listings.
    pub(super) covered: Coverage,
    /// Whether the container has to be listed again.
    pub(super) is_stale: bool,
    /// The last moment for which clients were told the content of views with rules on ages.
    pub(super) last_moment: Option<Timestamp>,
}

impl Registry {
    pub(super) fn new(
        objects: Arc<Objects>,
        log: Arc<StateLog>,
        clock: Arc<dyn Clock>,
        incarnation: u32,
    ) -> Self {
        Self { state: Mutex::default(), objects, log, clock, incarnation }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn containers(&self) -> Arc<Containers> {
        Arc::clone(&self.state().containers)
    }

    /// Returns all views, indexed by number; `None` for a forgotten view.
    pub(super) fn views(&self) -> Vec<Option<Arc<View>>> {
        self.state().views.clone()
    }

    /// Returns the view of a ruleset's rules, which is added if it is not known, and notes the request.
    pub(super) fn find_or_add_view(&self, ruleset: &Ruleset) -> Arc<View> {
        let mut state = self.state();
        let text = text_of(&ruleset.rules);
        let now = self.clock.now();
        let known = state.by_text.get(&text).and_then(|number| state.views[*number as usize].as_ref());
        if let Some(view) = known {
            view.touch(now);
            return Arc::clone(view);
        }
        let number = state.views.len() as u32;
        let view = Arc::new(View::new(number, self.incarnation, ruleset.rules.clone(), now));
        state.add_view(&view);
        self.log.append(LogRecord {
            kind: RecordKind::View,
            number,
            version: u64::from(view.incarnation),
            body: rules_body(&view.rules).as_bytes(),
        });
        view
    }

    /// Returns a view, `None` if it is not known or forgotten, and notes the request, under the lock under which idle
    /// views are forgotten.
    pub(super) fn touch_view(&self, id: ViewId) -> Option<Arc<View>> {
        let state = self.state();
        let view = state.views.get(id.0 as u32 as usize)?.as_ref().filter(|view| view.id() == id)?;
        view.touch(self.clock.now());
        Some(Arc::clone(view))
    }

    /// Returns the container of a name, which is added, with the views that name it, if it is not known.
    pub(super) fn find_or_add_container(&self, name: &str) -> Arc<Container> {
        let mut state = self.state();
        if let Some(container) = state.containers.get(name) {
            return Arc::clone(container);
        }
        let number = state.container_count;
        state.container_count += 1;
        let now = self.clock.now();
        let container = Arc::new(Container::new(number, name.into(), now));
        state.views_of(name).for_each(|view| container.add_view(view));
        container.rebuild_matcher(&self.objects, now);
        self.log.append(LogRecord { kind: RecordKind::Container, number, version: 0, body: name.as_bytes() });
        let mut containers = (*state.containers).clone();
        containers.insert(Arc::clone(&container.name), Arc::clone(&container));
        state.containers = Arc::new(containers);
        container
    }

    /// Returns whether some view wants a container that is not known yet. False if no view names containers by a
    /// pattern, because containers that views name literally are added when the view is opened.
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        let mut state = self.state();
        if !state.has_patterns || state.unwanted_buckets.contains(name) {
            return false;
        }
        let is_wanted = state.views_of(name).next().is_some();
        if !is_wanted {
            state.remember_unwanted_bucket(name);
        }
        is_wanted
    }

    /// Returns the views that name containers by patterns.
    pub(super) fn pattern_views(&self) -> Vec<Arc<View>> {
        let state = self.state();
        state.views.iter().flatten().filter(|view| view.containers().1).cloned().collect()
    }

    /// Forgets the views that no client has asked for during `idle_max`, the containers that no other view names, and the objects that
    /// only these views wanted.
    pub(super) fn forget_idle_views(&self, idle_max: Duration) {
        let now = self.clock.now();
        let mut state = self.state();
        let is_idle = |view: &&Arc<View>| now.since(view.last_asked()) >= idle_max;
        let idle: Vec<Arc<View>> = state.views.iter().flatten().filter(is_idle).cloned().collect();
        if idle.is_empty() {
            return;
        }
        idle.iter().for_each(|view| self.remove_view(&mut state, view));
        state.has_patterns = state.views.iter().flatten().any(|view| view.containers().1);
        drop(state);
        for container in self.containers().values() {
            container.rebuild_matcher(&self.objects, now);
        }
    }

    /// Removes a view, and the containers that no other view names. Objects that only this view wanted, in containers
    /// that remain, are dropped when the matchers are rebuilt.
    fn remove_view(&self, state: &mut State, view: &View) {
        let mut containers = (*state.containers).clone();
        containers.retain(|_, container| {
            let is_named = !container.has_view(view.number) || self.detach_view(container, view);
            if !is_named {
                self.objects.forget(container.number);
                self.log.append_number(RecordKind::ContainerForgotten, container.number);
            }
            is_named
        });
        state.containers = Arc::new(containers);
        state.views[view.number as usize] = None;
        state.by_text.remove(&view.text);
        self.log.append_number(RecordKind::ViewForgotten, view.number);
    }

    /// Removes a view from a container, and logs what listings cover for the remaining views, so that a client that
    /// opens the view again triggers a new listing. Returns whether another view still names the container.
    fn detach_view(&self, container: &Container, view: &View) -> bool {
        let is_named = container.remove_view(view.number);
        self.log.append_with(|into| container.listing().append_records(container.number, into));
        is_named
    }

    /// Restores the views, each with its incarnation, and the containers; both indexed by number.
    pub(super) fn restore(
        &self,
        views: &[Option<(u32, Vec<Rule>)>],
        containers: impl IntoIterator<Item = Option<SavedContainer>>,
    ) {
        let mut state = self.state();
        let now = self.clock.now();
        for (number, view) in (0..).zip(views) {
            match view {
                Some((incarnation, rules)) => {
                    state.add_view(&Arc::new(View::new(number, *incarnation, rules.clone(), now)));
                }
                None => state.views.push(None),
            }
        }
        let mut restored = Containers::new();
        for saved in containers {
            let number = state.container_count;
            state.container_count += 1;
            let Some(saved) = saved else { continue };
            let moment = saved.last_moment.unwrap_or(now);
            let container = Arc::new(Container::new(number, saved.name.as_str().into(), moment));
            container.restore(saved.covered, saved.is_stale, saved.last_moment);
            state.views_of(&saved.name).for_each(|view| container.add_view(view));
            container.rebuild_matcher(&self.objects, moment);
            restored.insert(Arc::clone(&container.name), container);
        }
        state.containers = Arc::new(restored);
    }

    /// Appends the records of all views and containers.
    pub(super) fn write_snapshot(&self, into: &mut Vec<u8>) {
        let (views, containers, container_count) = {
            let state = self.state();
            (state.views.clone(), Arc::clone(&state.containers), state.container_count)
        };
        for (number, view) in (0..).zip(views) {
            match view {
                Some(view) => LogRecord {
                    kind: RecordKind::View,
                    number,
                    version: u64::from(view.incarnation),
                    body: rules_body(&view.rules).as_bytes(),
                }
                .append(into),
                None => append_number(RecordKind::ViewForgotten, number, into),
            }
        }
        let by_number: HashMap<u32, _> =
            containers.values().map(|container| (container.number, container)).collect();
        for number in 0..container_count {
            match by_number.get(&number) {
                Some(container) => write_container(container, into),
                None => append_number(RecordKind::ContainerForgotten, number, into),
            }
        }
    }
}

impl State {
    fn add_view(&mut self, view: &Arc<View>) {
        self.by_text.insert(view.text.clone(), view.number);
        self.views.push(Some(Arc::clone(view)));
        self.has_patterns |= view.containers().1;
        self.unwanted_buckets.clear();
        let named = self.containers.values().filter(|container| view.names(&container.name));
        named.for_each(|container| container.add_view(view));
    }

    /// Returns the views that name a container.
    fn views_of(&self, container: &str) -> impl Iterator<Item = &Arc<View>> {
        self.views.iter().flatten().filter(move |view| view.names(container))
    }

    fn remember_unwanted_bucket(&mut self, name: &str) {
        /// With more names than this the cache is cleared.
        const UNWANTED_BUCKETS_MAX: usize = 65_536;
        if self.unwanted_buckets.len() >= UNWANTED_BUCKETS_MAX {
            self.unwanted_buckets.clear();
        }
        self.unwanted_buckets.insert(name.into());
    }
}

/// Returns the body of a record of a view: its rules as YAML, under a name that is not used.
fn rules_body(rules: &[Rule]) -> String {
    let mut body = String::from("view:\n");
    write_rules(&mut body, rules);
    body
}

fn append_number(kind: RecordKind, number: u32, into: &mut Vec<u8>) {
    LogRecord { kind, number, version: 0, body: &[] }.append(into);
}

/// Appends the records of a container.
fn write_container(container: &Container, into: &mut Vec<u8>) {
    let number = container.number;
    let body = container.name.as_bytes();
    LogRecord { kind: RecordKind::Container, number, version: 0, body }.append(into);
    if let Some(moment) = container.last_moment() {
        LogRecord { kind: RecordKind::Time, number, version: moment.0 as u64, body: &[] }.append(into);
    }
    container.listing().append_records(number, into);
}
