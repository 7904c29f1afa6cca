//! Where a file lies that is made in a view, and what it gets so that the view shows it.

use super::naming::{DIRECTORY_PROPERTY, is_name, written_directory};
use crate::{ObjectState, Pattern, Rule, Ruleset, Wanted};
use std::collections::BTreeMap;
use store::names::KeyPrefix;
use store::{ObjectKey, Tags, Timestamp};

/// Words of `output` that are no properties: the bucket, and the type, of what is made.
const CONTAINER: &str = "container";
const CONTENT_TYPE: &str = "content_type";

/// What becomes of a file that is made in a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its bucket.
    pub container: String,
    /// Its key.
    pub key: ObjectKey,
    /// User metadata that it gets.
    pub properties: BTreeMap<String, String>,
    /// Tags that it gets.
    pub tags: Tags,
    /// `Content-Type`, where the ruleset asks for one.
    pub content_type: Option<String>,
}

/// Where a file of this name in this directory of a view may lie: the first place that is free is its own. Why there is none, if
/// the view could not show it.
pub(super) fn places(ruleset: &Ruleset, directory: &[&[u8]], name: &[u8]) -> Result<Vec<Place>, String> {
    if !is_name(name) {
        return Err("no file can have this name".to_owned());
    }
    let place = described(ruleset, directory)?;
    let keys = keys(ruleset, directory, name);
    let placed = keys.into_iter().map(|key| Place { key, ..place.clone() });
    let (kept, not): (Vec<_>, Vec<_>) =
        placed.map(|place| (breach(ruleset, &place), place)).partition(|(breach, _)| breach.is_none());
    if !kept.is_empty() {
        return Ok(kept.into_iter().map(|(_, place)| place).collect());
    }
    let breach = not.into_iter().find_map(|(breach, _)| breach);
    Err(breach.unwrap_or_else(|| "no key of an object is as long as this path".to_owned()))
}

/// All of a place but the key.
fn described(ruleset: &Ruleset, directory: &[&[u8]]) -> Result<Place, String> {
    let output = |word: &str| ruleset.output.get(word).cloned();
    let (mut container, mut content_type) = (output(CONTAINER), output(CONTENT_TYPE));
    let mut properties = ruleset.output.clone();
    properties.retain(|name, _| name != CONTAINER && name != CONTENT_TYPE);
    let mut tags = Tags::new();
    for rule in &ruleset.rules {
        match rule {
            Rule::Container(names) => container = container.or_else(|| first_literal(names)),
            Rule::ContentType(types) => content_type = content_type.or_else(|| first_literal(types)),
            Rule::Property(name, wanted) if !properties.contains_key(name) => {
                properties.extend(first_wanted(wanted).map(|value| (name.clone(), value)));
            }
            Rule::Tag(name, wanted) => tags.extend(first_wanted(wanted).map(|value| (name.clone(), value))),
            _ => {}
        }
    }
    if let Some(directory) = written_directory(directory) {
        properties.insert(DIRECTORY_PROPERTY.to_owned(), directory);
    }
    let container = container.ok_or_else(|| {
        let name = &ruleset.name;
        format!("'{name}' does not say in which bucket new files lie; add `output: {{container: BUCKET}}`")
    })?;
    // The key comes later; any is one until then.
    let key = ObjectKey::try_from("-").map_err(|error| error.to_string())?;
    Ok(Place { container, key, properties, tags, content_type })
}

/// The keys that a file of this name could have, best first: in its directory, or beside all others where patterns ask for that.
fn keys(ruleset: &Ruleset, directory: &[&[u8]], name: &[u8]) -> Vec<ObjectKey> {
    let patterns = ruleset.rules.iter().find_map(|rule| match rule {
        Rule::Object(patterns) => Some(patterns.as_slice()),
        _ => None,
    });
    let prefixes: Vec<String> = match patterns {
        Some(patterns) => patterns.iter().map(folder).collect(),
        None => vec![String::new()],
    };
    let deep = prefixes.iter().filter_map(|prefix| key(prefix, directory, name));
    let flat = prefixes.iter().filter_map(|prefix| key(prefix, &[], name));
    let mut keys: Vec<ObjectKey> = deep.collect();
    if !directory.is_empty() {
        keys.extend(flat);
    }
    keys
}

/// The directories that a pattern begins with, each with its `/`.
fn folder(pattern: &Pattern) -> String {
    let (mut prefix, _) = pattern.beginning();
    prefix.truncate(prefix.rfind('/').map_or(0, |at| at + 1));
    prefix
}

/// The key whose path in the bucket ends with these names; it is escaped where it is no path.
fn key(prefix: &str, directory: &[&[u8]], name: &[u8]) -> Option<ObjectKey> {
    let mut at = KeyPrefix::root(prefix.as_bytes());
    for name in directory {
        at = at.child_dir(name).ok()?;
    }
    at.child_key(name).ok()
}

/// The rule that a new file at a place does not keep, if it could not by what it is called and described by.
fn breach(ruleset: &Ruleset, place: &Place) -> Option<String> {
    let object = ObjectState {
        container: &place.container,
        key: place.key.as_bytes(),
        size_bytes: 0,
        modified: Timestamp(0),
        accessed: None,
        content_type: place.content_type.as_deref(),
        properties: &place.properties,
        tags: &place.tags,
    };
    // Length and times are what becomes of the file.
    let is_given = |rule: &&Rule| !matches!(rule, Rule::Size(_) | Rule::Modified(_) | Rule::Accessed(_));
    let broken = ruleset.rules.iter().filter(is_given).find(|rule| !rule.holds(&object, Timestamp(0)))?;
    let says = match broken {
        Rule::Property(name, _) => format!("; say what new files get: `output: {{{name}: VALUE}}`"),
        Rule::ContentType(_) => "; say what new files are: `output: {content_type: TYPE}`".to_owned(),
        _ => String::new(),
    };
    Some(format!("'{}' shows only {broken}{says}", ruleset.name))
}

fn first_literal(patterns: &[Pattern]) -> Option<String> {
    patterns.iter().find_map(Pattern::only_text)
}

/// The first alternative that says just what the value is; none where that is "not there".
fn first_wanted(wanted: &[Wanted]) -> Option<String> {
    let said = wanted.iter().find_map(|wanted| match wanted {
        Wanted::Absent => Some(None),
        Wanted::Like(pattern) => pattern.only_text().map(Some),
    });
    said.flatten()
}
