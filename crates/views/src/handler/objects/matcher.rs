//! Finds the views that show an object of one container.
//!
//! Owns the steps from an object to its set of views:
//! - Keys that match the same rules on keys are one *key class*, found once for each key.
//! - The *signature* of an object is all that the other rules of its class can distinguish: between which bounds its
//!   length and times lie, and which literals and patterns its properties, tags and type match.
//! - Objects of one class and one signature are in the same set of views. The set is computed once, by evaluating all
//!   rulesets, and then looked up.
//!
//! So the cost of an event depends on the length of its object's signature, not on the number of rulesets that have
//! the same rules.
//!
//! Invariants: a set is valid for the [`TimeCuts`] that its signature was made with; ids of classes and sets belong
//! to one matcher.

use super::key_rules::KeyRules;
use super::value_predicates::ValuePredicates;
use crate::object_record::{LiveObject, Pairs};
use crate::ruleset::bound::TimeBound;
use crate::{ObjectState, Pattern, Rule};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Tags, Timestamp};

/// Id of a key class in a matcher. A key that no view wants has no class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyClassId(pub(super) u32);

/// Id of a set of views in a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ViewSetId(pub(super) u32);

impl ViewSetId {
    /// The id of the empty set in every matcher.
    pub(super) const NONE: Self = Self(0);
}

/// Numbers of views, ascending.
pub(super) type ViewSet = Arc<[u32]>;

/// The rules of one view, for objects of a container that it names.
#[derive(Debug)]
pub(super) struct ViewRules {
    pub(super) view_number: u32,
    /// Numbers of the rules on keys, all of which the key must match.
    key_rules: Vec<u32>,
    /// The rules that are not on containers or keys.
    other_rules: Vec<Rule>,
    needs: Needs,
}

/// The metadata that rules need and a listing does not show. `accessed` is never required of an object, which may never
/// have been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    pub(crate) properties: bool,
    pub(crate) content_type: bool,
    pub(crate) tags: bool,
    pub(crate) accessed: bool,
}

/// A class of keys: those that match the same rules on keys.
#[derive(Debug)]
pub(super) struct KeyClass {
    /// The views that may show objects with such keys, as indexes into `Matcher::views`.
    views: Vec<u32>,
    /// The metadata that any of these views needs.
    pub(super) needs: Needs,
    /// The lengths at which the answer of a rule on sizes changes, ascending.
    sizes: Vec<u64>,
    /// Predicates of the rules on types; `None` if there are none.
    content_type: Option<ValuePredicates>,
    properties: Vec<(String, ValuePredicates)>,
    tags: Vec<(String, ValuePredicates)>,
}

/// The bounds of all rules on times, as absolute times for one moment `now`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimeCuts {
    pub(crate) now: Timestamp,
    modified: Vec<Cut>,
    accessed: Vec<Cut>,
}

/// A time at which the answer of a bound changes: the time, the number of the bound, and which of the bound's two
/// cuts it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cut(Timestamp, u32, u8);

/// Matches objects of one container with the rules of the views that name it.
#[derive(Debug)]
pub(crate) struct Matcher {
    views: Vec<ViewRules>,
    keys: KeyRules,
    /// The distinct bounds of rules on modification times; the index is a bound's number.
    modified: Vec<TimeBound>,
    /// The distinct bounds of rules on access times.
    accessed: Vec<TimeBound>,
    interned: Mutex<Interned>,
}

/// The classes and sets found so far, each with an id.
#[derive(Debug, Default)]
struct Interned {
    classes: Vec<Arc<KeyClass>>,
    /// Classes by the numbers of the rules on keys that match, ascending; `None` if no view wants such keys.
    class_of: HashMap<Box<[u32]>, Option<KeyClassId>>,
    sets: Vec<ViewSet>,
    set_of: HashMap<ViewSet, ViewSetId>,
}

impl Matcher {
    /// Builds a matcher from the numbers of views and their rules.
    pub(crate) fn new<'v>(views: impl Iterator<Item = (u32, &'v [Rule])>) -> Self {
        let mut rules_on_keys: Vec<Vec<Pattern>> = Vec::new();
        let mut number_of: HashMap<String, u32> = HashMap::new();
        let mut view_rules = Vec::new();
        for (view_number, rules) in views {
            let mut key_rules = Vec::new();
            for rule in rules {
                if let Rule::Object(patterns) = rule {
                    let number = number_of.entry(rule.to_string()).or_insert_with(|| {
                        rules_on_keys.push(patterns.clone());
                        (rules_on_keys.len() - 1) as u32
                    });
                    key_rules.push(*number);
                }
            }
            let is_other = |rule: &&Rule| !matches!(rule, Rule::Object(_) | Rule::Container(_));
            let other_rules: Vec<Rule> = rules.iter().filter(is_other).cloned().collect();
            view_rules.push(ViewRules {
                view_number,
                key_rules,
                needs: Needs::of(&other_rules),
                other_rules,
            });
        }
        let all = || view_rules.iter().flat_map(|view: &ViewRules| &view.other_rules);
        let modified = distinct(all().filter_map(|rule| match rule {
            Rule::Modified(bound) => Some(bound),
            _ => None,
        }));
        let accessed = distinct(all().filter_map(|rule| match rule {
            Rule::Accessed(bound) => Some(bound),
            _ => None,
        }));
        let mut interned = Interned::default();
        interned.intern(&[]);
        let keys = KeyRules::new(&rules_on_keys);
        Self { views: view_rules, keys, modified, accessed, interned: Mutex::new(interned) }
    }

    fn interned(&self) -> std::sync::MutexGuard<'_, Interned> {
        self.interned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the class of a key; `None` if no view wants it. `scratch` is overwritten.
    pub(super) fn class_of(&self, key: &[u8], scratch: &mut Vec<u32>) -> Option<KeyClassId> {
        self.keys.find(key, scratch);
        let mut interned = self.interned();
        if let Some(class) = interned.class_of.get(scratch.as_slice()) {
            return *class;
        }
        let class = self.new_class(scratch);
        let id = class.map(|class| {
            interned.classes.push(Arc::new(class));
            KeyClassId((interned.classes.len() - 1) as u32)
        });
        interned.class_of.insert(scratch.as_slice().into(), id);
        id
    }

    pub(super) fn class(&self, id: KeyClassId) -> Arc<KeyClass> {
        Arc::clone(&self.interned().classes[id.0 as usize])
    }

    pub(super) fn set(&self, id: ViewSetId) -> ViewSet {
        Arc::clone(&self.interned().sets[id.0 as usize])
    }

    /// Extends `is_in`, which is indexed by set id and says whether the view is in the set, to all sets found so far.
    pub(super) fn extend_membership(&self, view_number: u32, is_in: &mut Vec<bool>) {
        let interned = self.interned();
        let new = &interned.sets[is_in.len()..];
        is_in.extend(new.iter().map(|set| set.binary_search(&view_number).is_ok()));
    }

    /// Returns the number of distinct sets found so far, with the empty set.
    pub(crate) fn set_count(&self) -> usize {
        self.interned().sets.len()
    }

    /// Returns whether the passing of time alone can change an object's set.
    pub(crate) fn has_ages(&self) -> bool {
        self.modified.iter().chain(&self.accessed).any(TimeBound::is_age)
    }

    /// Returns the bounds of the rules on times, as absolute times at the moment `now`.
    pub(crate) fn time_cuts(&self, now: Timestamp) -> TimeCuts {
        TimeCuts { now, modified: cuts(&self.modified, now), accessed: cuts(&self.accessed, now) }
    }

    /// Returns the class of keys that match exactly the rules with these numbers; `None` if no view wants such keys.
    fn new_class(&self, keys: &[u32]) -> Option<KeyClass> {
        let is_matched = |key: &u32| keys.binary_search(key).is_ok();
        let may_show = |view: &ViewRules| view.key_rules.iter().all(is_matched);
        let views: Vec<u32> =
            (0..).zip(&self.views).filter(|(_, view)| may_show(view)).map(|(index, _)| index).collect();
        (!views.is_empty()).then(|| self.class_with(views))
    }

    /// Returns the class of keys whose objects these views may show.
    fn class_with(&self, views: Vec<u32>) -> KeyClass {
        let mut class = KeyClass {
            needs: Needs::default(),
            sizes: Vec::new(),
            content_type: None,
            properties: Vec::new(),
            tags: Vec::new(),
            views: Vec::new(),
        };
        let (mut properties, mut tags) = (BTreeMap::new(), BTreeMap::new());
        for index in &views {
            let view = &self.views[*index as usize];
            class.needs = class.needs.union(view.needs);
            for rule in &view.other_rules {
                match rule {
                    Rule::Size(bound) => class.sizes.extend(bound.cuts()),
                    Rule::ContentType(types) => {
                        class.content_type.get_or_insert_default().add_patterns(types);
                    }
                    Rule::Property(name, values) => {
                        properties.entry(name.clone()).or_insert_with(ValuePredicates::default).add(values);
                    }
                    Rule::Tag(name, values) => {
                        tags.entry(name.clone()).or_insert_with(ValuePredicates::default).add(values);
                    }
                    Rule::Container(_) | Rule::Object(_) | Rule::Modified(_) | Rule::Accessed(_) => {}
                }
            }
        }
        class.sizes.sort_unstable();
        class.sizes.dedup();
        class.properties = properties.into_iter().collect();
        class.tags = tags.into_iter().collect();
        class.views = views;
        class
    }

    /// Computes the set of an object at the moment `now` by evaluating the rules of the class's views. A view that
    /// needs properties, tags or a type that are not known does not show the object.
    pub(super) fn match_rules(&self, class: &KeyClass, object: &LiveObject<'_>, now: Timestamp) -> ViewSetId {
        let map = |pairs: Option<Pairs<'_>>| pairs.map(Pairs::to_map).unwrap_or_default();
        let (properties, tags): (_, Tags) = (map(object.properties), map(object.tags));
        // The views of the class match the container and the key already, so none of these rules looks at them.
        let state = ObjectState {
            container: "",
            key: b"",
            size_bytes: object.size_bytes,
            modified: object.modified,
            accessed: object.accessed,
            content_type: object.content_type.flatten(),
            properties: &properties,
            tags: &tags,
        };
        let views = class.views.iter().map(|index| &self.views[*index as usize]);
        let showing = views.filter(|view| {
            view.needs.are_met_by(object) && view.other_rules.iter().all(|rule| rule.holds(&state, now))
        });
        let set: Vec<u32> = showing.map(|view| view.view_number).collect();
        self.interned().intern(&set)
    }
}

impl Interned {
    fn intern(&mut self, set: &[u32]) -> ViewSetId {
        if let Some(id) = self.set_of.get(set) {
            return *id;
        }
        let set: ViewSet = set.into();
        let id = ViewSetId(self.sets.len() as u32);
        self.sets.push(Arc::clone(&set));
        self.set_of.insert(set, id);
        id
    }
}

impl KeyClass {
    /// Appends the object's signature. For objects of the class with equal signatures all rules give equal answers, at
    /// one moment and at all moments whose cuts have the same order.
    pub(super) fn append_signature(
        &self,
        object: &LiveObject<'_>,
        time_cuts: &TimeCuts,
        into: &mut Vec<u32>,
    ) {
        into.push(self.sizes.partition_point(|cut| *cut <= object.size_bytes) as u32);
        into.push(index_between(&time_cuts.modified, object.modified));
        into.push(object.accessed.map_or(UNKNOWN, |accessed| index_between(&time_cuts.accessed, accessed)));
        if let Some(types) = &self.content_type {
            match object.content_type {
                None => into.push(UNKNOWN),
                Some(content_type) => types.append_signature(content_type, into),
            }
        }
        for (predicates, pairs) in [(&self.properties, object.properties), (&self.tags, object.tags)] {
            match pairs {
                None => into.push(UNKNOWN),
                Some(pairs) => {
                    predicates
                        .iter()
                        .for_each(|(name, predicates)| predicates.append_signature(pairs.get(name), into));
                }
            }
        }
    }
}

/// Signature of a value that is not known.
const UNKNOWN: u32 = u32::MAX;

impl Needs {
    /// Returns what rules need. Rules on access times need properties, too, because they may hold the access time.
    pub(crate) fn of(rules: &[Rule]) -> Self {
        let mut needs = Self::default();
        for rule in rules {
            match rule {
                Rule::Property(..) => needs.properties = true,
                Rule::Tag(..) => needs.tags = true,
                Rule::ContentType(_) => needs.content_type = true,
                Rule::Accessed(_) => (needs.accessed, needs.properties) = (true, true),
                Rule::Container(_) | Rule::Object(_) | Rule::Size(_) | Rule::Modified(_) => {}
            }
        }
        needs
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            properties: self.properties || other.properties,
            content_type: self.content_type || other.content_type,
            tags: self.tags || other.tags,
            accessed: self.accessed || other.accessed,
        }
    }

    /// Returns the needs as one byte for a file.
    pub(crate) fn bits(self) -> u8 {
        let flags = [self.properties, self.content_type, self.tags, self.accessed];
        (0..).zip(flags).map(|(bit, is_set)| u8::from(is_set) << bit).sum()
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        let has = |bit: u8| bits >> bit & 1 == 1;
        Self { properties: has(0), content_type: has(1), tags: has(2), accessed: has(3) }
    }

    /// Returns the object without the type and tags that no view needs. Properties stay: clients show them as attributes, and find in
    /// them the directory of the object.
    pub(super) fn trim<'a>(self, object: LiveObject<'a>) -> LiveObject<'a> {
        LiveObject {
            content_type: object.content_type.filter(|_| self.content_type),
            tags: object.tags.filter(|_| self.tags),
            ..object
        }
    }

    /// Returns whether the needed metadata of the object is known; the access time need not be.
    pub(super) fn are_met_by(self, object: &LiveObject<'_>) -> bool {
        (!self.properties || object.properties.is_some())
            && (!self.content_type || object.content_type.is_some())
            && (!self.tags || object.tags.is_some())
    }
}

impl TimeCuts {
    /// Returns whether signatures have the same meaning at both moments: the cuts are in the same order.
    pub(super) fn has_same_order(&self, other: &Self) -> bool {
        let same = |left: &[Cut], right: &[Cut]| {
            left.iter().zip(right).all(|(left, right)| (left.1, left.2) == (right.1, right.2))
        };
        same(&self.modified, &other.modified) && same(&self.accessed, &other.accessed)
    }

    /// Returns the ranges of `modified` and of `accessed` times for which answers may differ between the two moments.
    pub(super) fn changed_ranges(&self, other: &Self) -> [Vec<(Timestamp, Timestamp)>; 2] {
        let ranges = |left: &[Cut], right: &[Cut]| {
            let mut right: Vec<Cut> = right.to_vec();
            let mut left: Vec<Cut> = left.to_vec();
            left.sort_unstable_by_key(|cut| (cut.1, cut.2));
            right.sort_unstable_by_key(|cut| (cut.1, cut.2));
            let moved = left.iter().zip(&right).filter(|(left, right)| left.0 != right.0);
            moved.map(|(left, right)| (left.0.min(right.0), left.0.max(right.0))).collect()
        };
        [ranges(&self.modified, &other.modified), ranges(&self.accessed, &other.accessed)]
    }
}

/// Returns each bound once, in the order of their texts.
fn distinct<'b>(bounds: impl Iterator<Item = &'b TimeBound>) -> Vec<TimeBound> {
    let by_text: BTreeMap<String, &TimeBound> = bounds.map(|bound| (bound.to_string(), bound)).collect();
    by_text.into_values().cloned().collect()
}

fn cuts(bounds: &[TimeBound], now: Timestamp) -> Vec<Cut> {
    let of = |(number, bound): (u32, &TimeBound)| {
        let [at, above] = bound.cuts(now);
        [Cut(at, number, 0), Cut(above, number, 1)]
    };
    let mut cuts: Vec<Cut> = (0..).zip(bounds).flat_map(of).collect();
    cuts.sort_unstable();
    cuts
}

/// Returns the number of cuts at or before a time.
fn index_between(cuts: &[Cut], time: Timestamp) -> u32 {
    cuts.partition_point(|cut| cut.0 <= time) as u32
}
