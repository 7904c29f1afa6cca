//! Rulesets: rules on objects, and the directory that shows the objects that match them.

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

/// A directory and the rules that objects must match, all of them, to be its files.
#[derive(Debug, Clone)]
pub struct Ruleset {
    /// The directory's name.
    pub name: String,
    /// The rules; the first is on the container.
    pub rules: Vec<Rule>,
    /// Whether objects lie in the subdirectory that their property `tenon-directory` names.
    pub directories: bool,
    /// How long a client may use a listing without asking again; `None` is the client's default.
    pub recency: Option<Duration>,
    /// The properties that a new file gets besides those that the rules ask for.
    pub output: BTreeMap<String, String>,
}

/// A condition on an object.
#[derive(Debug, Clone)]
pub enum Rule {
    /// The container (bucket) has one of these names: `BUCKET` or `ACCOUNT:BUCKET`, the form of [`store::accounts`].
    Container(Vec<Pattern>),
    /// The key matches one of these patterns.
    Object(Vec<Pattern>),
    /// The length is within this bound.
    Size(SizeBound),
    /// The time of the last modification is within this bound.
    Modified(TimeBound),
    /// The time of the last read is within this bound. An object whose last read is not known does not match.
    Accessed(TimeBound),
    /// The property, which is user metadata of S3, has one of these values.
    Property(String, Vec<Wanted>),
    /// The tag has one of these values.
    Tag(String, Vec<Wanted>),
    /// The type matches one of these patterns.
    ContentType(Vec<Pattern>),
}

/// Returns the patterns of container names in rules.
pub fn containers(rules: &[Rule]) -> impl Iterator<Item = &Pattern> {
    let names = rules.iter().filter_map(|rule| match rule {
        Rule::Container(names) => Some(names),
        _ => None,
    });
    names.flatten()
}

/// A value that a rule accepts for a property or a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The value exists and matches the pattern.
    Like(Pattern),
    /// The property or tag does not exist.
    Absent,
}

/// The known state of an object, as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct ObjectState<'a> {
    /// Its bucket.
    pub container: &'a str,
    /// Its exact key.
    pub key: &'a [u8],
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Time of the last modification.
    pub modified: Timestamp,
    /// Time of the last read, if known.
    pub accessed: Option<Timestamp>,
    /// Its content type; `None` if it has none or it is not known.
    pub content_type: Option<&'a str>,
    /// Its user metadata; empty if it is not known.
    pub properties: &'a BTreeMap<String, String>,
    /// Its tags; empty if they are not known.
    pub tags: &'a Tags,
}

/// Result of one rule for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The rule, as text.
    pub rule: String,
    /// The object's value that the rule checks, as text.
    pub found: String,
    /// Whether the object matches the rule.
    pub holds: bool,
}

impl Ruleset {
    /// Returns whether an object matches all rules at a moment.
    pub fn matches(&self, object: &ObjectState<'_>, now: Timestamp) -> bool {
        self.rules.iter().all(|rule| rule.holds(object, now))
    }

    /// Returns whether the passing of time alone can change which objects match.
    pub fn has_ages(&self) -> bool {
        let is_age = |rule: &Rule| match rule {
            Rule::Modified(bound) | Rule::Accessed(bound) => bound.is_age(),
            _ => false,
        };
        self.rules.iter().any(is_age)
    }

    /// Returns the result of each rule, for the same question as [`Ruleset::matches`].
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

    /// Returns the object's value that the rule checks, as text.
    fn found(&self, object: &ObjectState<'_>) -> String {
        let text = |value: Option<&str>| value.map_or_else(|| NOTHING.to_owned(), str::to_owned);
        match self {
            Self::Container(_) => object.container.to_owned(),
            Self::Object(_) => String::from_utf8_lossy(object.key).into_owned(),
            Self::Size(_) => object.size_bytes.to_string(),
            Self::Modified(_) => time_text(object.modified),
            Self::Accessed(_) => object.accessed.map_or_else(|| "not known".to_owned(), time_text),
            Self::Property(name, _) => text(object.properties.get(name).map(String::as_str)),
            Self::Tag(name, _) => text(object.tags.get(name).map(String::as_str)),
            Self::ContentType(_) => text(object.content_type),
        }
    }
}

/// Text for a property, tag or content type that does not exist, and for a time that is outside of the calendar.
const NOTHING: &str = "none";

fn matches_any(patterns: &[Pattern], text: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

/// Returns whether a property or tag has one of the wanted values; `found` is `None` if it does not exist.
fn is_wanted(values: &[Wanted], found: Option<&String>) -> bool {
    values.iter().any(|wanted| match (wanted, found) {
        (Wanted::Absent, found) => found.is_none(),
        (Wanted::Like(pattern), Some(found)) => pattern.matches(found.as_bytes()),
        (Wanted::Like(_), None) => false,
    })
}

fn time_text(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| NOTHING.to_owned(), |time| time.to_string())
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(names) => write!(f, "container {}", alternatives(names)),
            Self::Object(keys) => write!(f, "object {}", alternatives(keys)),
            Self::Size(bound) => write!(f, "size {bound}"),
            Self::Modified(bound) => write!(f, "modified {bound}"),
            Self::Accessed(bound) => write!(f, "accessed {bound}"),
            Self::Property(name, values) => write!(f, "property {name}: {}", alternatives(values)),
            Self::Tag(name, values) => write!(f, "tag {name}: {}", alternatives(values)),
            Self::ContentType(types) => write!(f, "content_type {}", alternatives(types)),
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

fn alternatives<T: fmt::Display>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" or ")
}
