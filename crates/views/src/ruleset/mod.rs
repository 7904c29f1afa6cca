//! A ruleset: who wants to see which objects, and as what.

pub(crate) mod bound;
pub(crate) mod pattern;
pub(crate) mod read;
pub(crate) mod write;

use bound::{SizeBound, TimeBound};
use pattern::Pattern;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use store::{Tags, Timestamp};

/// The rules that an object must keep, all of them, to be a file of a directory.
#[derive(Debug, Clone)]
pub struct Ruleset {
    /// The directory's name.
    pub name: String,
    /// The first is of the container.
    pub rules: Vec<Rule>,
    /// Whether objects that say in which directory they are lie in that one.
    pub directories: bool,
    /// For how long what a client knows is recent; its own setting if `None`.
    pub recency: Option<Duration>,
    /// The properties that a file made here gets besides those that the rules ask for.
    pub output: BTreeMap<String, String>,
}

/// What an object must be like.
#[derive(Debug, Clone)]
pub enum Rule {
    /// In a container (bucket) with one of these names, as [`store::accounts`] says them.
    Container(Vec<Pattern>),
    /// Under one of these keys.
    Object(Vec<Pattern>),
    /// So long.
    Size(SizeBound),
    /// Stored then.
    Modified(TimeBound),
    /// Last read then. An object of which that is not known does not keep it.
    Accessed(TimeBound),
    /// With one of these values in a property, which is user metadata of S3.
    Property(String, Vec<Wanted>),
    /// With one of these values in a tag.
    Tag(String, Vec<Wanted>),
    /// Of one of these types.
    ContentType(Vec<Pattern>),
}

/// The names of containers that rules ask for.
pub fn containers(rules: &[Rule]) -> impl Iterator<Item = &Pattern> {
    let names = rules.iter().filter_map(|rule| match rule {
        Rule::Container(names) => Some(names),
        _ => None,
    });
    names.flatten()
}

/// What a property or a tag may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// There and like this.
    Like(Pattern),
    /// Not there.
    Absent,
}

/// What is known of an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectState<'a> {
    /// Its bucket.
    pub container: &'a str,
    /// Its exact key.
    pub key: &'a [u8],
    /// Its length.
    pub size_bytes: u64,
    /// When it was stored.
    pub modified: Timestamp,
    /// When it was last read, where that is known.
    pub accessed: Option<Timestamp>,
    /// Its type, where it has one.
    pub content_type: Option<&'a str>,
    /// Its user metadata.
    pub properties: &'a BTreeMap<String, String>,
    /// Its tags.
    pub tags: &'a Tags,
}

/// Why an object is seen or not: one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The rule, as text.
    pub rule: String,
    /// What the object has there, as text.
    pub found: String,
    /// Whether the object keeps the rule.
    pub holds: bool,
}

impl Ruleset {
    /// Whether an object is seen at a moment.
    pub fn matches(&self, object: &ObjectState<'_>, now: Timestamp) -> bool {
        self.rules.iter().all(|rule| rule.holds(object, now))
    }

    /// Whether time alone changes what is seen.
    pub fn has_ages(&self) -> bool {
        let is_age = |rule: &Rule| match rule {
            Rule::Modified(bound) | Rule::Accessed(bound) => bound.is_age(),
            _ => false,
        };
        self.rules.iter().any(is_age)
    }

    /// The same, rule by rule.
    pub fn explain(&self, object: &ObjectState<'_>, now: Timestamp) -> Vec<Reason> {
        let reason = |rule: &Rule| Reason {
            rule: rule.to_string(),
            found: rule.found(object),
            holds: rule.holds(object, now),
        };
        self.rules.iter().map(reason).collect()
    }
}

impl Rule {
    pub(crate) fn holds(&self, object: &ObjectState<'_>, now: Timestamp) -> bool {
        match self {
            Self::Container(names) => names.iter().any(|name| name.names(object.container)),
            Self::Object(keys) => matches_any(keys, object.key),
            Self::Size(bound) => bound.holds(object.size_bytes),
            Self::Modified(bound) => bound.holds(object.modified, now),
            Self::Accessed(bound) => object.accessed.is_some_and(|accessed| bound.holds(accessed, now)),
            Self::Property(name, values) => is_wanted(values, object.properties.get(name)),
            Self::Tag(name, values) => is_wanted(values, object.tags.get(name)),
            Self::ContentType(types) => {
                object.content_type.is_some_and(|is| matches_any(types, is.as_bytes()))
            }
        }
    }

    fn found(&self, object: &ObjectState<'_>) -> String {
        let text = |value: Option<&str>| value.map_or_else(|| NOTHING.to_owned(), str::to_owned);
        match self {
            Self::Container(_) => object.container.to_owned(),
            Self::Object(_) => String::from_utf8_lossy(object.key).into_owned(),
            Self::Size(_) => object.size_bytes.to_string(),
            Self::Modified(_) => time(object.modified),
            Self::Accessed(_) => object.accessed.map_or_else(|| "not known".to_owned(), time),
            Self::Property(name, _) => text(object.properties.get(name).map(String::as_str)),
            Self::Tag(name, _) => text(object.tags.get(name).map(String::as_str)),
            Self::ContentType(_) => text(object.content_type),
        }
    }
}

/// How the absence of a property reads.
const NOTHING: &str = "none";

fn matches_any(patterns: &[Pattern], text: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

fn is_wanted(values: &[Wanted], found: Option<&String>) -> bool {
    values.iter().any(|wanted| match (wanted, found) {
        (Wanted::Absent, found) => found.is_none(),
        (Wanted::Like(pattern), Some(found)) => pattern.matches(found.as_bytes()),
        (Wanted::Like(_), None) => false,
    })
}

fn time(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| NOTHING.to_owned(), |time| time.to_string())
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(names) => write!(f, "container {}", either(names)),
            Self::Object(keys) => write!(f, "object {}", either(keys)),
            Self::Size(bound) => write!(f, "size {bound}"),
            Self::Modified(bound) => write!(f, "modified {bound}"),
            Self::Accessed(bound) => write!(f, "accessed {bound}"),
            Self::Property(name, values) => write!(f, "property {name}: {}", either(values)),
            Self::Tag(name, values) => write!(f, "tag {name}: {}", either(values)),
            Self::ContentType(types) => write!(f, "content_type {}", either(types)),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Like(pattern) => pattern.fmt(f),
            Self::Absent => f.write_str(NOTHING),
        }
    }
}

fn either<T: fmt::Display>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" or ")
}
