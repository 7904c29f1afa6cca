//! A view: the rules of a ruleset, and what the handler notes of the requests for it.

use super::objects::Needs;
use crate::ruleset::write::write_rules;
use crate::{Pattern, Rule, ViewId, containers};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Timestamp;

/// During this time after a view was refused, requests for it get the reason.
const REFUSAL_TTL: Duration = Duration::from_secs(5 * 60);

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
    /// The metadata that the rules need.
    pub(super) needs: Needs,
    /// Whether, in this incarnation, the containers that the view names are registered.
    has_containers: AtomicBool,
    /// Time of the last request for the view, in nanoseconds.
    last_asked: AtomicI64,
    /// If there was not enough memory for the view's objects: when, and the reason.
    refused: Mutex<Option<(Timestamp, String)>>,
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
            refused: Mutex::default(),
        }
    }

    /// Notes a request for the view, so that maintenance does not forget it.
    pub(super) fn touch(&self, now: Timestamp) {
        self.last_asked.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn last_asked(&self) -> Timestamp {
        Timestamp(self.last_asked.load(Ordering::Relaxed))
    }

    /// Returns whether the containers that the view names are registered.
    pub(super) fn has_containers(&self) -> bool {
        self.has_containers.load(Ordering::Acquire)
    }

    pub(super) fn set_has_containers(&self, has_containers: bool) {
        self.has_containers.store(has_containers, Ordering::Release);
    }

    /// Notes that there is not enough memory for the view's objects. Once the refusal has expired, its containers are registered again.
    pub(super) fn refuse(&self, why: String, now: Timestamp) {
        self.set_has_containers(false);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, why));
    }

    /// Returns why the view was refused; `None` if it was not, or not recently.
    pub(super) fn refusal(&self, now: Timestamp) -> Option<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        refused.filter(|(at, _)| *at <= now && now.since(*at) < REFUSAL_TTL).map(|(_, why)| why)
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

    /// Returns the literal prefix of each alternative of the rule on keys; the empty prefix if there is no such rule.
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
