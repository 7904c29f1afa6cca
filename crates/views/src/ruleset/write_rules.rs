//! From rulesets to a file: what [`read`](super::read::read) gives back.

use super::{Rule, Ruleset, Wanted};
use std::fmt::{Display, Write};

/// Rulesets as the YAML text of one document.
pub fn write(rulesets: &[Ruleset]) -> String {
    let mut text = String::new();
    for ruleset in rulesets {
        line(&mut text, 0, &ruleset.name, "");
        if let Some(account) = &ruleset.account {
            line(&mut text, 1, "account", &quoted(account));
        }
        write_rules(&mut text, &ruleset.rules);
        if !ruleset.directories {
            line(&mut text, 1, "directories", "off");
        }
        if let Some(recency) = ruleset.recency {
            line(&mut text, 1, "recency", &format!("{}ns", recency.as_nanos()));
        }
        if !ruleset.output.is_empty() {
            line(&mut text, 1, "output", "");
            ruleset.output.iter().for_each(|(name, value)| line(&mut text, 2, name, &quoted(value)));
        }
    }
    text
}

/// The rules as they stand below a ruleset's name. Rules that are written alike mean the same.
pub(crate) fn write_rules(text: &mut String, rules: &[Rule]) {
    let mut sizes = Vec::new();
    let (mut modified, mut accessed) = (Vec::new(), Vec::new());
    let (mut properties, mut tags) = (Vec::new(), Vec::new());
    for rule in rules {
        match rule {
            Rule::Container(names) => line(text, 1, "container", &list(names)),
            Rule::Object(keys) => line(text, 1, "object", &list(keys)),
            Rule::ContentType(types) => line(text, 1, "content_type", &list(types)),
            Rule::Size(bound) => sizes.push(bound),
            Rule::Modified(bound) => modified.push(bound),
            Rule::Accessed(bound) => accessed.push(bound),
            Rule::Property(name, values) => properties.push((name, values)),
            Rule::Tag(name, values) => tags.push((name, values)),
        }
    }
    if !sizes.is_empty() {
        line(text, 1, "size", &list(&sizes));
    }
    for (word, bounds) in [("modified", modified), ("accessed", accessed)] {
        if !bounds.is_empty() {
            line(text, 1, word, &list(&bounds));
        }
    }
    for (word, wanted) in [("properties", properties), ("tags", tags)] {
        if !wanted.is_empty() {
            line(text, 1, word, "");
        }
        wanted.into_iter().for_each(|(name, values)| line(text, 2, name, &alternatives(values)));
    }
}

fn line(text: &mut String, depth: usize, name: &str, value: &str) {
    let name = if depth == 1 { name.to_owned() } else { quoted(name) };
    let gap = if value.is_empty() { "" } else { " " };
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{:indent$}{name}:{gap}{value}", "", indent = depth * 2);
}

fn list<T: Display>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
    format!("[{}]", values.join(", "))
}

fn alternatives(values: &[Wanted]) -> String {
    let value = |wanted: &Wanted| match wanted {
        Wanted::Absent => "null".to_owned(),
        Wanted::Like(pattern) => quoted(&pattern.to_string()),
    };
    format!("[{}]", values.iter().map(value).collect::<Vec<_>>().join(", "))
}

/// A double-quoted scalar (YAML 1.2.2, section 7.3.1).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' || c == '\u{feff}' => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
