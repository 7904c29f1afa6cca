//! Which views show an object of one container.
//!
//! Owns the way from an object to its set of views: the rules on keys that its key keeps are its *class*, found once; what the
//! class's other rules can tell apart of the object (between which bounds its length lies, which of the wanted values a property
//! has) is its *outline*; and of equal class and outline the set is the same, found once by asking every ruleset. So an
//! event costs what its outline costs, however many rulesets are alike.
//!
//! Invariants: a set is right for the moment of [`Matcher::moment`]'s [`Moment`]; numbers of classes and sets are of one matcher.

use super::key_rules::KeyRules;
use super::object_record::{Pairs, There};
use super::value_predicates::Wishes;
use crate::ruleset::bound::TimeBound;
use crate::{ObjectState, Pattern, Rule};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Tags, Timestamp};

/// A class by its number in a matcher; keys that no view wants have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClassId(pub(super) u32);

/// A set of views by its number in a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SetId(pub(super) u32);

impl SetId {
    /// No view.
    pub(super) const NONE: Self = Self(0);
}

/// Views by number, ascending.
pub(super) type Set = Arc<[u32]>;

/// What one view asks of the objects of a container that it names.
#[derive(Debug)]
pub(super) struct Wants {
    pub(super) view: u32,
    /// Numbers of rules on keys, all of which the key must keep.
    keys: Vec<u32>,
    /// The other rules.
    rest: Vec<Rule>,
    needs: Needs,
}

/// What rules must know of an object besides what a listing says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Needs {
    pub(super) properties: bool,
    pub(super) content_type: bool,
    pub(super) tags: bool,
    pub(super) accessed: bool,
}

/// Keys that keep the same rules.
#[derive(Debug)]
pub(super) struct Class {
    /// The views, by place in the matcher, that such a key's object may be in.
    wants: Vec<u32>,
    pub(super) needs: Needs,
    sizes: Vec<u64>,
    content_type: Option<Wishes>,
    properties: Vec<(String, Wishes)>,
    tags: Vec<(String, Wishes)>,
}

/// The bounds on times, as moments, for one moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    modified: Vec<Cut>,
    accessed: Vec<Cut>,
}

/// Where answers change: a time, the bound that it is of, and which of the bound's two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cut(Timestamp, u32, u8);

/// The views that name a container.
#[derive(Debug)]
pub(super) struct Matcher {
    wants: Vec<Wants>,
    keys: KeyRules,
    modified: Vec<TimeBound>,
    accessed: Vec<TimeBound>,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    classes: Vec<Arc<Class>>,
    class_of: HashMap<Box<[u32]>, Option<ClassId>>,
    sets: Vec<Set>,
    set_of: HashMap<Set, SetId>,
}

impl Matcher {
    /// Of views by number, with their rules.
    pub(super) fn new<'v>(views: impl Iterator<Item = (u32, &'v [Rule])>) -> Self {
        let mut rules_on_keys: Vec<Vec<Pattern>> = Vec::new();
        let mut number_of: HashMap<String, u32> = HashMap::new();
        let mut wants = Vec::new();
        for (view, rules) in views {
            let mut keys = Vec::new();
            for rule in rules {
                if let Rule::Object(patterns) = rule {
                    let number = number_of.entry(rule.to_string()).or_insert_with(|| {
                        rules_on_keys.push(patterns.clone());
                        (rules_on_keys.len() - 1) as u32
                    });
                    keys.push(*number);
                }
            }
            let is_rest = |rule: &&Rule| !matches!(rule, Rule::Object(_) | Rule::Container(_));
            let rest: Vec<Rule> = rules.iter().filter(is_rest).cloned().collect();
            wants.push(Wants { view, keys, needs: Needs::of(&rest), rest });
        }
        let all = || wants.iter().flat_map(|wants| &wants.rest);
        let modified = distinct(all().filter_map(|rule| match rule {
            Rule::Modified(bound) => Some(bound),
            _ => None,
        }));
        let accessed = distinct(all().filter_map(|rule| match rule {
            Rule::Accessed(bound) => Some(bound),
            _ => None,
        }));
        let mut found = Found::default();
        found.intern(&[]);
        let keys = KeyRules::new(&rules_on_keys);
        Self { wants, keys, modified, accessed, found: Mutex::new(found) }
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The class of a key; `None` if no view wants it.
    pub(super) fn class_of(&self, key: &[u8], scratch: &mut Vec<u32>) -> Option<ClassId> {
        self.keys.find(key, scratch);
        let mut found = self.found();
        if let Some(class) = found.class_of.get(scratch.as_slice()) {
            return *class;
        }
        let class = self.new_class(scratch);
        let id = class.map(|class| {
            found.classes.push(Arc::new(class));
            ClassId((found.classes.len() - 1) as u32)
        });
        found.class_of.insert(scratch.as_slice().into(), id);
        id
    }

    pub(super) fn class(&self, id: ClassId) -> Arc<Class> {
        Arc::clone(&self.found().classes[id.0 as usize])
    }

    pub(super) fn set(&self, id: SetId) -> Set {
        Arc::clone(&self.found().sets[id.0 as usize])
    }

    /// Appends of the sets that are not there yet, by number, whether a view is in them.
    pub(super) fn add_sets_with(&self, view: u32, is_in: &mut Vec<bool>) {
        let found = self.found();
        let new = &found.sets[is_in.len()..];
        is_in.extend(new.iter().map(|set| set.binary_search(&view).is_ok()));
    }

    /// How many sets were found so far.
    pub(super) fn set_count(&self) -> usize {
        self.found().sets.len()
    }

    /// Whether time alone can change a set.
    pub(super) fn has_ages(&self) -> bool {
        self.modified.iter().chain(&self.accessed).any(TimeBound::is_age)
    }

    pub(super) fn moment(&self, now: Timestamp) -> Moment {
        Moment { now, modified: cuts(&self.modified, now), accessed: cuts(&self.accessed, now) }
    }

    fn new_class(&self, keys: &[u32]) -> Option<Class> {
        let is_kept = |key: &u32| keys.binary_search(key).is_ok();
        let of = |wants: &Wants| wants.keys.iter().all(is_kept);
        let wants: Vec<u32> =
            (0..).zip(&self.wants).filter(|(_, wants)| of(wants)).map(|(place, _)| place).collect();
        (!wants.is_empty()).then(|| self.class_with(wants))
    }

    fn class_with(&self, wants: Vec<u32>) -> Class {
        let mut class = Class {
            needs: Needs::default(),
            sizes: Vec::new(),
            content_type: None,
            properties: Vec::new(),
            tags: Vec::new(),
            wants: Vec::new(),
        };
        let (mut properties, mut tags) = (BTreeMap::new(), BTreeMap::new());
        for place in &wants {
            let wants = &self.wants[*place as usize];
            class.needs = class.needs.and(wants.needs);
            for rule in &wants.rest {
                match rule {
                    Rule::Size(bound) => class.sizes.extend(bound.cuts()),
                    Rule::ContentType(types) => {
                        class.content_type.get_or_insert_default().add_patterns(types);
                    }
                    Rule::Property(name, values) => {
                        properties.entry(name.clone()).or_insert_with(Wishes::default).add(values);
                    }
                    Rule::Tag(name, values) => {
                        tags.entry(name.clone()).or_insert_with(Wishes::default).add(values);
                    }
                    Rule::Container(_) | Rule::Object(_) | Rule::Modified(_) | Rule::Accessed(_) => {}
                }
            }
        }
        class.sizes.sort_unstable();
        class.sizes.dedup();
        class.properties = properties.into_iter().collect();
        class.tags = tags.into_iter().collect();
        class.wants = wants;
        class
    }

    /// The set of an object, by asking the rulesets. Its properties and tags count as not there where they are not known, and
    /// rulesets that need them do not show it.
    pub(super) fn ask(&self, class: &Class, object: &There<'_>, now: Timestamp) -> SetId {
        let map = |pairs: Option<Pairs<'_>>| pairs.map(Pairs::to_map).unwrap_or_default();
        let (properties, tags): (_, Tags) = (map(object.properties), map(object.tags));
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
        let wants = class.wants.iter().map(|place| &self.wants[*place as usize]);
        let shown = wants.filter(|wants| {
            wants.needs.are_met(object) && wants.rest.iter().all(|rule| rule.holds(&state, now))
        });
        let set: Vec<u32> = shown.map(|wants| wants.view).collect();
        self.found().intern(&set)
    }
}

impl Found {
    fn intern(&mut self, set: &[u32]) -> SetId {
        if let Some(id) = self.set_of.get(set) {
            return *id;
        }
        let set: Set = set.into();
        let id = SetId(self.sets.len() as u32);
        self.sets.push(Arc::clone(&set));
        self.set_of.insert(set, id);
        id
    }
}

impl Class {
    /// Appends what the class's rules can tell apart of an object: of equal outlines the rulesets say the same, at one moment and
    /// at all whose cuts have the same order.
    pub(super) fn outline(&self, object: &There<'_>, moment: &Moment, into: &mut Vec<u32>) {
        into.push(self.sizes.partition_point(|cut| *cut <= object.size_bytes) as u32);
        into.push(between(&moment.modified, object.modified));
        into.push(object.accessed.map_or(UNKNOWN, |accessed| between(&moment.accessed, accessed)));
        if let Some(types) = &self.content_type {
            match object.content_type {
                None => into.push(UNKNOWN),
                Some(content_type) => types.outline(content_type, into),
            }
        }
        for (wishes, pairs) in [(&self.properties, object.properties), (&self.tags, object.tags)] {
            match pairs {
                None => into.push(UNKNOWN),
                Some(pairs) => {
                    wishes.iter().for_each(|(name, wishes)| wishes.outline(pairs.get(name), into));
                }
            }
        }
    }
}

/// In an outline: nobody said.
const UNKNOWN: u32 = u32::MAX;

impl Needs {
    pub(super) fn of(rules: &[Rule]) -> Self {
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

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            properties: self.properties || other.properties,
            content_type: self.content_type || other.content_type,
            tags: self.tags || other.tags,
            accessed: self.accessed || other.accessed,
        }
    }

    /// As one byte of a file.
    pub(super) fn bits(self) -> u8 {
        let flags = [self.properties, self.content_type, self.tags, self.accessed];
        (0..).zip(flags).map(|(bit, is_set)| u8::from(is_set) << bit).sum()
    }

    pub(super) fn from_bits(bits: u8) -> Self {
        let has = |bit: u8| bits >> bit & 1 == 1;
        Self { properties: has(0), content_type: has(1), tags: has(2), accessed: has(3) }
    }

    /// Whether everything that is needed is known of the object.
    pub(super) fn are_met(self, object: &There<'_>) -> bool {
        (!self.properties || object.properties.is_some())
            && (!self.content_type || object.content_type.is_some())
            && (!self.tags || object.tags.is_some())
    }
}

impl Moment {
    /// Whether outlines mean the same at both moments.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |left: &[Cut], right: &[Cut]| {
            left.iter().zip(right).all(|(left, right)| (left.1, left.2) == (right.1, right.2))
        };
        same(&self.modified, &other.modified) && same(&self.accessed, &other.accessed)
    }

    /// Ranges of times of which answers may differ at the two moments: of `modified`, and of `accessed`.
    pub(super) fn differs(&self, other: &Self) -> [Vec<(Timestamp, Timestamp)>; 2] {
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

fn between(cuts: &[Cut], time: Timestamp) -> u32 {
    cuts.partition_point(|cut| cut.0 <= time) as u32
}
