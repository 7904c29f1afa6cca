//! Reads rulesets from YAML. Reports all problems at once, each with its position and a correction.

use super::bound::{SizeBound, TimeBound};
use super::pattern::{Pattern, WILDCARDS};
use super::{Rule, Ruleset, Wanted};
use crate::tree::DIRECTORY_PROPERTY;
use crate::yaml::{self, Node, Place, Problem, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use store::accounts::{account_of, in_account};

/// Names of the rules and settings that a ruleset may have.
const KEYWORDS: [&str; 12] = [
    "account",
    "container",
    "object",
    "size",
    "modified",
    "accessed",
    "properties",
    "tags",
    "content_type",
    "directories",
    "recency",
    "output",
];

/// Jaro-Winkler similarity, from 0 to 1, above which an unknown word counts as a typing error for a known one.
const SIMILARITY_MIN: f64 = 0.75;

/// Maximum length of a file name, in bytes (POSIX `NAME_MAX` on Linux).
const NAME_BYTES_MAX: usize = 255;

/// Reads the rulesets of a YAML text: mappings from names to rules, in one or more documents.
///
/// # Errors
/// All problems of the text.
pub fn read(text: &str) -> Result<Vec<Ruleset>, Vec<Problem>> {
    let documents = yaml::documents(text).map_err(|problem| vec![problem])?;
    let mut reader = RulesetReader::default();
    let rulesets: Vec<Ruleset> =
        documents.into_iter().flat_map(|document| reader.document(document)).collect();
    if rulesets.is_empty() && reader.problems.is_empty() {
        reader.add_problem(
            Place { line: 1, column: 1 },
            "there is no ruleset; write NAME: and its rules below".to_owned(),
        );
    }
    if reader.problems.is_empty() { Ok(rulesets) } else { Err(reader.problems) }
}

/// Reads rulesets from a tree of YAML nodes, and collects the problems.
#[derive(Default)]
struct RulesetReader {
    problems: Vec<Problem>,
    /// The names of the rulesets so far, with their places.
    names: BTreeMap<String, Place>,
}

impl RulesetReader {
    fn add_problem(&mut self, place: Place, says: String) {
        self.problems.push(Problem { place, says });
    }

    /// Returns the value that was read; `None` if there is an error, which is added as a problem.
    fn ok_or_add<T>(&mut self, place: Place, read: Result<T, String>) -> Option<T> {
        read.map_err(|says| self.add_problem(place, says)).ok()
    }

    fn document(&mut self, document: Node) -> Vec<Ruleset> {
        let Value::Map(entries) = document.value else {
            self.add_problem(document.place, "a ruleset begins with its name and a colon".to_owned());
            return Vec::new();
        };
        entries.into_iter().filter_map(|(name, rules)| self.entry(name, rules)).collect()
    }

    /// Reads a name and the rules below it. Returns `None` if the ruleset cannot be read, after adding a problem.
    fn entry(&mut self, name: Node, rules: Node) -> Option<Ruleset> {
        let place = name.place;
        let name = self.text(name, "the name of a ruleset")?;
        self.ok_or_add(place, check_name(&name))?;
        if let Some(before) = self.names.insert(name.clone(), place) {
            self.add_problem(place, format!("there is a ruleset '{name}' already, at {before}"));
        }
        let Value::Map(entries) = rules.value else {
            self.add_problem(
                place,
                format!("ruleset '{name}' has no rules; write at least `container: BUCKET` below it"),
            );
            return None;
        };
        self.ruleset(name, place, entries)
    }

    fn ruleset(&mut self, name: String, place: Place, entries: Vec<(Node, Node)>) -> Option<Ruleset> {
        let output = BTreeMap::new();
        let mut ruleset = Ruleset { name, rules: Vec::new(), directories: true, recency: None, output };
        let account = account_in(&entries);
        let mut seen = Vec::new();
        for (word, value) in entries {
            let place = word.place;
            let Some(word) = self.text(word, "a rule") else { continue };
            if seen.contains(&word) {
                self.add_problem(place, format!("'{word}' appears twice; write its values as a list"));
                continue;
            }
            match word.as_str() {
                "account" => self.account(place, value),
                "container" => {
                    let of_account = |text: &str| Pattern::of_container(account.as_deref(), text);
                    ruleset.rules.push(Rule::Container(self.values(value, &word, of_account)));
                }
                _ => self.rule(&word, place, value, &mut ruleset),
            }
            seen.push(word);
        }
        if !seen.iter().any(|word| word == "container") {
            self.add_problem(
                place,
                format!("ruleset '{}' does not say which container; add `container: BUCKET`", ruleset.name),
            );
        }
        if ruleset.directories && seen.iter().any(|word| word == "directories") {
            self.require_directory_property(place, &mut ruleset.rules);
        }
        if let Some(container) = ruleset.output.get_mut("container")
            && let (None, bucket) = account_of(container)
        {
            *container = in_account(account.as_deref(), bucket);
        }
        // Cheap rules that exclude most objects come first.
        ruleset.rules.sort_by(|one, other| rank(one).cmp(&rank(other)));
        Some(ruleset)
    }

    /// Adds a rule on the directory property that every object matches, unless there is a rule on it. So the property
    /// must be known before an object is shown.
    fn require_directory_property(&mut self, place: Place, rules: &mut Vec<Rule>) {
        let is_required = |rule: &Rule| matches!(rule, Rule::Property(name, _) if name == DIRECTORY_PROPERTY);
        if !rules.iter().any(is_required)
            && let Some(any) = self.ok_or_add(place, Pattern::of_value("*"))
        {
            let wanted = vec![Wanted::Like(any), Wanted::Absent];
            rules.push(Rule::Property(DIRECTORY_PROPERTY.to_owned(), wanted));
        }
    }

    fn account(&mut self, place: Place, value: Node) {
        if let Some(name) = self.text(value, "an account")
            && (name.is_empty() || name.contains(WILDCARDS) || name.contains(['/', ':']))
        {
            self.add_problem(place, format!("'{name}' cannot be the name of an account"));
        }
    }

    fn rule(&mut self, word: &str, place: Place, value: Node, ruleset: &mut Ruleset) {
        match word {
            "object" => ruleset.rules.push(Rule::Object(self.values(value, word, Pattern::of_key))),
            "content_type" => {
                ruleset.rules.push(Rule::ContentType(self.values(value, word, Pattern::of_value)))
            }
            "size" => {
                let bounds = self.values(value, word, SizeBound::new);
                ruleset.rules.extend(bounds.into_iter().map(Rule::Size));
            }
            "modified" => {
                let bounds = self.values(value, word, TimeBound::new);
                ruleset.rules.extend(bounds.into_iter().map(Rule::Modified));
            }
            "accessed" => {
                let bounds = self.values(value, word, TimeBound::new);
                ruleset.rules.extend(bounds.into_iter().map(Rule::Accessed));
            }
            // Names of user metadata have no case, because they are header names.
            "properties" => {
                let wanted = self.wanted(value, word, |name| name.to_ascii_lowercase());
                ruleset.rules.extend(wanted.into_iter().map(|(name, values)| Rule::Property(name, values)));
            }
            "tags" => {
                let wanted = self.wanted(value, word, str::to_owned);
                ruleset.rules.extend(wanted.into_iter().map(|(name, values)| Rule::Tag(name, values)));
            }
            "directories" => {
                if let Some(text) = self.text(value, "directories")
                    && let Some(is_on) = self.ok_or_add(place, read_switch(&text))
                {
                    ruleset.directories = is_on;
                }
            }
            "recency" => {
                if let Some(text) = self.text(value, "recency") {
                    ruleset.recency = self.ok_or_add(place, read_recency(&text));
                }
            }
            "output" => ruleset.output = self.output(value),
            _ => self.add_problem(place, unknown_keyword(word)),
        }
    }

    /// Reads one value or a list of values with `read`. Leaves out values that cannot be read, after adding a problem;
    /// `word` is the rule's name.
    fn values<T>(&mut self, value: Node, word: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let place = value.place;
        let values = match value.value {
            Value::List(values) => values,
            _ => vec![value],
        };
        if values.is_empty() {
            self.add_problem(place, format!("'{word}' has no value"));
        }
        let mut found = Vec::new();
        for value in values {
            let place = value.place;
            if let Some(text) = self.text(value, word)
                && let Some(value) = self.ok_or_add(place, read(&text))
            {
                found.push(value);
            }
        }
        found
    }

    /// Reads values by name, in the order of the names. Several values of one name, repeated or in a list, are
    /// alternatives.
    fn wanted(
        &mut self,
        value: Node,
        word: &str,
        name_of: impl Fn(&str) -> String,
    ) -> BTreeMap<String, Vec<Wanted>> {
        let mut wanted: BTreeMap<String, Vec<Wanted>> = BTreeMap::new();
        for (name, value) in self.entries(value, word) {
            let values = match value.value {
                Value::List(values) => values,
                _ => vec![value],
            };
            let wanted = wanted.entry(name_of(&name)).or_default();
            for value in values {
                if matches!(value.value, Value::Null) {
                    wanted.push(Wanted::Absent);
                    continue;
                }
                let place = value.place;
                if let Some(text) = self.text(value, &name)
                    && let Some(pattern) = self.ok_or_add(place, Pattern::of_value(&text))
                {
                    wanted.push(Wanted::Like(pattern));
                }
            }
        }
        wanted
    }

    fn output(&mut self, value: Node) -> BTreeMap<String, String> {
        let mut output = BTreeMap::new();
        for (name, value) in self.entries(value, "output") {
            if let Some(text) = self.text(value, &name) {
                output.insert(name.to_ascii_lowercase(), text);
            }
        }
        output
    }

    /// Returns the names and values of a mapping; if it is none, adds a problem and returns nothing.
    fn entries(&mut self, value: Node, word: &str) -> Vec<(String, Node)> {
        let Value::Map(entries) = value.value else {
            self.add_problem(
                value.place,
                format!("'{word}' needs names and values, as in `{word}: {{color: black}}`"),
            );
            return Vec::new();
        };
        let named = |(name, value): (Node, Node)| Some((self.text(name, word)?, value));
        entries.into_iter().filter_map(named).collect()
    }

    /// Returns the text of a node; if it has none, adds a problem that calls it `what` and returns `None`.
    fn text(&mut self, node: Node, what: &str) -> Option<String> {
        match node.value {
            Value::Text(text) => Some(text),
            Value::Null => {
                self.add_problem(node.place, format!("'{what}' has no value"));
                None
            }
            Value::List(_) | Value::Map(_) => {
                self.add_problem(node.place, format!("'{what}' must be one text, not a list or a mapping"));
                None
            }
        }
    }
}

/// Returns the account that the entries of a ruleset name, if one does.
fn account_in(entries: &[(Node, Node)]) -> Option<String> {
    entries.iter().find_map(|(word, value)| match (&word.value, &value.value) {
        (Value::Text(word), Value::Text(name)) if word == "account" => Some(name.clone()),
        _ => None,
    })
}

fn check_name(name: &str) -> Result<(), String> {
    let is_name =
        !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']) && name.len() <= NAME_BYTES_MAX;
    if is_name { Ok(()) } else { Err(format!("'{name}' cannot be the name of a directory")) }
}

fn read_switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("'{text}' must be on or off")),
    }
}

fn read_recency(text: &str) -> Result<Duration, String> {
    let malformed = || format!("'{text}' is not a duration; write it like 5s, 500ms or 2min");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = text.parse::<jiff::SignedDuration>().map_err(|_| malformed())?;
    Duration::try_from(time).map_err(|_| malformed())
}

/// Returns the message about a word that is no keyword, with the keyword that was probably meant.
fn unknown_keyword(word: &str) -> String {
    let similarity = |known: &&str| strsim::jaro_winkler(word, known);
    let nearest = KEYWORDS.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    match nearest.filter(|nearest| similarity(nearest) > SIMILARITY_MIN) {
        Some(nearest) => format!("'{word}' is not a rule; do you mean '{nearest}'?"),
        None => format!("'{word}' is not a rule; the rules are {}", KEYWORDS.join(", ")),
    }
}

/// Returns the sort key of a rule: its kind, then its name.
fn rank(rule: &Rule) -> (u8, &str) {
    match rule {
        Rule::Container(_) => (0, ""),
        Rule::Object(_) => (1, ""),
        Rule::Size(_) => (2, ""),
        Rule::Modified(_) | Rule::Accessed(_) => (3, ""),
        Rule::ContentType(_) => (4, ""),
        Rule::Property(name, _) => (5, name),
        Rule::Tag(name, _) => (6, name),
    }
}
