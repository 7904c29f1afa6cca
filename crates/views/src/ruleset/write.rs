//! Writes rulesets as YAML, which reads as the same rulesets.

use super::{Rule, Ruleset, Wanted};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

/// Writes rulesets as the text of a file.
pub fn write(rulesets: &[Ruleset]) -> String {
    rulesets.iter().map(Ruleset::to_yaml).collect()
}

/// Writes rules as they appear below a ruleset's name. Rules with equal texts are equal.
pub(crate) fn write_rules(text: &mut String, rules: &[Rule]) {
    for (word, values) in values_by_keyword(rules) {
        write_entry(text, word, &list(values));
    }
    for (word, of) in [("properties", named(rules, is_property)), ("tags", named(rules, is_tag))] {
        if !of.is_empty() {
            let entries = of.into_iter().map(|(name, wanted)| (name, alternatives(wanted)));
            write_entry(text, word, &mapping(entries));
        }
    }
}

impl Ruleset {
    /// Writes the ruleset as YAML. Equal rulesets have equal texts, [`read`](crate::read) returns the ruleset again,
    /// and several texts joined are a file of several rulesets.
    pub fn to_yaml(&self) -> String {
        let mut text = format!("{}:\n", Quoted(&self.name));
        write_rules(&mut text, &self.rules);
        if !self.directories {
            write_entry(&mut text, "directories", "off");
        }
        if let Some(recency) = self.recency {
            let recency = SignedDuration::try_from(recency).unwrap_or(SignedDuration::MAX);
            write_entry(&mut text, "recency", &recency.to_string());
        }
        if !self.output.is_empty() {
            let output = self.output.iter().map(|(name, value)| (name, Quoted(value).to_string()));
            write_entry(&mut text, "output", &mapping(output));
        }
        text
    }
}

fn write_entry(text: &mut String, word: &str, value: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "  {word}: {value}");
}

/// Returns the rules that have no names: each keyword once, in the order of the rules, with its values.
fn values_by_keyword(rules: &[Rule]) -> Vec<(&'static str, Vec<String>)> {
    let mut words: Vec<(&'static str, Vec<String>)> = Vec::new();
    for rule in rules {
        let (word, said) = match rule {
            Rule::Container(names) => ("container", quoted(names)),
            Rule::Object(keys) => ("object", quoted(keys)),
            Rule::ContentType(types) => ("content_type", quoted(types)),
            Rule::Size(bound) => ("size", quoted(std::slice::from_ref(bound))),
            Rule::Modified(bound) => ("modified", quoted(std::slice::from_ref(bound))),
            Rule::Accessed(bound) => ("accessed", quoted(std::slice::from_ref(bound))),
            Rule::Property(..) | Rule::Tag(..) => continue,
        };
        match words.iter_mut().find(|(known, _)| *known == word) {
            Some((_, values)) => values.extend(said),
            None => words.push((word, said)),
        }
    }
    words
}

/// The name of a property or tag, and the values that a rule accepts.
type Named<'r> = (&'r String, &'r Vec<Wanted>);

fn is_property(rule: &Rule) -> Option<Named<'_>> {
    if let Rule::Property(name, wanted) = rule { Some((name, wanted)) } else { None }
}

fn is_tag(rule: &Rule) -> Option<Named<'_>> {
    if let Rule::Tag(name, wanted) = rule { Some((name, wanted)) } else { None }
}

fn named<'r>(
    rules: &'r [Rule],
    of: fn(&'r Rule) -> Option<Named<'r>>,
) -> BTreeMap<&'r String, &'r Vec<Wanted>> {
    rules.iter().filter_map(of).collect()
}

/// Returns the values that a rule accepts as a YAML list.
fn alternatives(wanted: &[Wanted]) -> String {
    let said = wanted.iter().map(|wanted| match wanted {
        Wanted::Absent => "null".to_owned(),
        Wanted::Like(pattern) => Quoted(&pattern.to_string()).to_string(),
    });
    list(said.collect())
}

fn quoted<T: Display>(values: &[T]) -> Vec<String> {
    values.iter().map(|value| Quoted(&value.to_string()).to_string()).collect()
}

fn list(values: Vec<String>) -> String {
    format!("[{}]", values.join(", "))
}

fn mapping<'n>(entries: impl Iterator<Item = (&'n String, String)>) -> String {
    let entries: Vec<String> = entries.map(|(name, value)| format!("{}: {value}", Quoted(name))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// A text in double quotes (YAML 1.2.2, 7.3.1), in ASCII.
struct Quoted<'t>(&'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                ' '..='~' => f.write_char(character)?,
                _ => write!(f, "\\U{:08X}", u32::from(character))?,
            }
        }
        f.write_char('"')
    }
}
