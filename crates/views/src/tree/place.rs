//! Finds the bucket, key and metadata for a new file of a view, such that the view shows it.

use super::naming::{DIRECTORY_PROPERTY, encode_directory, is_valid_name};
use crate::{ObjectState, Pattern, Rule, Ruleset, Wanted};
use std::collections::BTreeMap;
use store::names::KeyPrefix;
use store::{ObjectKey, Tags, Timestamp};

/// Name in a ruleset's `output` that is not a property but the bucket of new files.
const CONTAINER: &str = "container";
/// Name in a ruleset's `output` that is not a property but the content type of new files.
const CONTENT_TYPE: &str = "content_type";

/// The object of a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The bucket of the object.
    pub container: String,
    /// The key of the object.
    pub key: ObjectKey,
    /// The user metadata with which the object is stored.
    pub properties: BTreeMap<String, String>,
    /// The tags with which the object is stored.
    pub tags: Tags,
    /// Its `Content-Type`, if the ruleset asks for one.
    pub content_type: Option<String>,
}

/// Returns the places for a new file, best first and at least one; the caller takes the first that is free. Fails with
/// the reason if the view could not show the file at any place.
pub(super) fn places(ruleset: &Ruleset, directory: &[&[u8]], name: &[u8]) -> Result<Vec<Place>, String> {
    if !is_valid_name(name) {
        return Err("this name is not valid for a file".to_owned());
    }
    let place = template(ruleset, directory)?;
    let keys = candidate_keys(ruleset, directory, name);
    let placed = keys.into_iter().map(|key| Place { key, ..place.clone() });
    let (valid, invalid): (Vec<_>, Vec<_>) = placed
        .map(|place| (violation(ruleset, &place), place))
        .partition(|(violation, _)| violation.is_none());
    if !valid.is_empty() {
        return Ok(valid.into_iter().map(|(_, place)| place).collect());
    }
    let violation = invalid.into_iter().find_map(|(violation, _)| violation);
    Err(violation.unwrap_or_else(|| "the object's key would be too long for this path".to_owned()))
}

/// Returns a place with the ruleset's bucket and metadata for `directory`, and with a key that the caller replaces.
/// Fails if the ruleset does not say the bucket.
fn template(ruleset: &Ruleset, directory: &[&[u8]]) -> Result<Place, String> {
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
    if let Some(directory) = encode_directory(directory) {
        properties.insert(DIRECTORY_PROPERTY.to_owned(), directory);
    }
    let container = container.ok_or_else(|| {
        let name = &ruleset.name;
        format!("the ruleset '{name}' does not say in which bucket new files lie; add `output: {{container: BUCKET}}`")
    })?;
    // The key is replaced by the caller; it cannot be empty.
    let key = ObjectKey::try_from("-").map_err(|error| error.to_string())?;
    Ok(Place { container, key, properties, tags, content_type })
}

/// Returns the candidate keys for a file, best first: with its directory, then without, as some patterns require.
fn candidate_keys(ruleset: &Ruleset, directory: &[&[u8]], name: &[u8]) -> Vec<ObjectKey> {
    let patterns = ruleset.rules.iter().find_map(|rule| match rule {
        Rule::Object(patterns) => Some(patterns.as_slice()),
        _ => None,
    });
    let prefixes: Vec<String> = match patterns {
        Some(patterns) => patterns.iter().map(directory_prefix).collect(),
        None => vec![String::new()],
    };
    let deep = prefixes.iter().filter_map(|prefix| join_key(prefix, directory, name));
    let flat = prefixes.iter().filter_map(|prefix| join_key(prefix, &[], name));
    let mut keys: Vec<ObjectKey> = deep.collect();
    if !directory.is_empty() {
        keys.extend(flat);
    }
    keys
}

/// Returns the literal directories at the beginning of a pattern, with the last `/`.
fn directory_prefix(pattern: &Pattern) -> String {
    let (mut prefix, _) = pattern.literal_prefix();
    prefix.truncate(prefix.rfind('/').map_or(0, |at| at + 1));
    prefix
}

/// Joins names to a key; `None` if it would be too long. Names that cannot be part of a path are escaped.
fn join_key(prefix: &str, directory: &[&[u8]], name: &[u8]) -> Option<ObjectKey> {
    let mut at = KeyPrefix::root(prefix.as_bytes());
    for name in directory {
        at = at.child_dir(name).ok()?;
    }
    at.child_key(name).ok()
}

/// Returns a message about the first rule that a new file at a place would violate; `None` if it violates none. Rules
/// on length and times do not count.
fn violation(ruleset: &Ruleset, place: &Place) -> Option<String> {
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
    // Length and times depend on what is written later.
    let is_decidable = |rule: &&Rule| !matches!(rule, Rule::Size(_) | Rule::Modified(_) | Rule::Accessed(_));
    let broken = ruleset.rules.iter().filter(is_decidable).find(|rule| !rule.holds(&object, Timestamp(0)))?;
    let advice = match broken {
        Rule::Property(name, _) => format!("; set a value for new files: `output: {{{name}: VALUE}}`"),
        Rule::ContentType(_) => "; set a type for new files: `output: {content_type: TYPE}`".to_owned(),
        _ => String::new(),
    };
    Some(format!("'{}' shows only {broken}{advice}", ruleset.name))
}

/// Returns the text of the first pattern without wildcards, if there is one.
fn first_literal(patterns: &[Pattern]) -> Option<String> {
    patterns.iter().find_map(Pattern::only_text)
}

/// Returns the first alternative that is a literal value; `None` if there is none, or if the absence of the value comes
/// first.
fn first_wanted(wanted: &[Wanted]) -> Option<String> {
    let first = wanted.iter().find_map(|wanted| match wanted {
        Wanted::Absent => Some(None),
        Wanted::Like(pattern) => pattern.only_text().map(Some),
    });
    first.flatten()
}
