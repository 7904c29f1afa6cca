//! From a file to rulesets: all that is wrong with it is said at once, with its place and what would be right.

use super::bound::{SizeBound, TimeBound};
use super::pattern::{Pattern, WILD};
use super::{Rule, Ruleset, Wanted};
use crate::tree::DIRECTORY_PROPERTY;
use crate::yaml::{self, Node, Place, Problem, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use store::accounts::{account_of, in_account};

/// What a ruleset may say.
const WORDS: [&str; 12] = [
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

/// A word that is closer than this to one that is known is a slip.
const SLIP: f64 = 0.75;

/// A name of a file, in bytes (POSIX `NAME_MAX` on Linux).
const NAME_BYTES_MAX: usize = 255;

/// The rulesets of a YAML text: mappings of names to rules, in one document or several.
pub fn read(text: &str) -> Result<Vec<Ruleset>, Vec<Problem>> {
    let documents = yaml::documents(text).map_err(|problem| vec![problem])?;
    let mut reader = Reader::default();
    let rulesets: Vec<Ruleset> =
        documents.into_iter().flat_map(|document| reader.document(document)).collect();
    if rulesets.is_empty() && reader.problems.is_empty() {
        reader.wrong(
            Place { line: 1, column: 1 },
            "there is no ruleset; write NAME: and its rules below".to_owned(),
        );
    }
    if reader.problems.is_empty() { Ok(rulesets) } else { Err(reader.problems) }
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
    names: BTreeMap<String, Place>,
}

impl Reader {
    fn wrong(&mut self, place: Place, says: String) {
        self.problems.push(Problem { place, says });
    }

    /// What was read, or `None` and a problem more.
    fn noted<T>(&mut self, place: Place, read: Result<T, String>) -> Option<T> {
        read.map_err(|says| self.wrong(place, says)).ok()
    }

    fn document(&mut self, document: Node) -> Vec<Ruleset> {
        let Value::Map(entries) = document.value else {
            self.wrong(document.place, "a ruleset begins with its name and a colon".to_owned());
            return Vec::new();
        };
        entries.into_iter().filter_map(|(name, rules)| self.named(name, rules)).collect()
    }

    fn named(&mut self, name: Node, rules: Node) -> Option<Ruleset> {
        let place = name.place;
        let name = self.text(name, "the name of a ruleset")?;
        self.noted(place, check_name(&name))?;
        if let Some(before) = self.names.insert(name.clone(), place) {
            self.wrong(place, format!("there is a ruleset '{name}' already, at {before}"));
        }
        let Value::Map(entries) = rules.value else {
            self.wrong(
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
        let account = account(&entries);
        let mut seen = Vec::new();
        for (word, value) in entries {
            let place = word.place;
            let Some(word) = self.text(word, "a rule") else { continue };
            if seen.contains(&word) {
                self.wrong(place, format!("'{word}' is said twice; write its values as a list"));
                continue;
            }
            match word.as_str() {
                "account" => self.account(place, value),
                "container" => {
                    let of_account = |text: &str| Pattern::of_container(account.as_deref(), text);
                    ruleset.rules.push(Rule::Container(self.each(value, &word, of_account)));
                }
                _ => self.rule(&word, place, value, &mut ruleset),
            }
            seen.push(word);
        }
        if !seen.iter().any(|word| word == "container") {
            self.wrong(
                place,
                format!("ruleset '{}' does not say which container; add `container: BUCKET`", ruleset.name),
            );
        }
        if ruleset.directories && seen.iter().any(|word| word == "directories") {
            self.ask_for_directories(place, &mut ruleset.rules);
        }
        if let Some(container) = ruleset.output.get_mut("container")
            && let (None, bucket) = account_of(container)
        {
            *container = in_account(account.as_deref(), bucket);
        }
        // What is cheapest to tell and leaves most out comes first.
        ruleset.rules.sort_by(|one, other| rank(one).cmp(&rank(other)));
        Some(ruleset)
    }

    /// A rule that every object keeps, whatever its directory is: it is not shown before that is known.
    fn ask_for_directories(&mut self, place: Place, rules: &mut Vec<Rule>) {
        let asks = |rule: &Rule| matches!(rule, Rule::Property(name, _) if name == DIRECTORY_PROPERTY);
        if !rules.iter().any(asks)
            && let Some(any) = self.noted(place, Pattern::of_value("*"))
        {
            let wanted = vec![Wanted::Like(any), Wanted::Absent];
            rules.push(Rule::Property(DIRECTORY_PROPERTY.to_owned(), wanted));
        }
    }

    fn account(&mut self, place: Place, value: Node) {
        if let Some(name) = self.text(value, "an account")
            && (name.is_empty() || name.contains(WILD) || name.contains(['/', ':']))
        {
            self.wrong(place, format!("'{name}' cannot be the name of an account"));
        }
    }

    fn rule(&mut self, word: &str, place: Place, value: Node, ruleset: &mut Ruleset) {
        match word {
            "object" => ruleset.rules.push(Rule::Object(self.each(value, word, Pattern::of_key))),
            "content_type" => {
                ruleset.rules.push(Rule::ContentType(self.each(value, word, Pattern::of_value)))
            }
            "size" => {
                let bounds = self.each(value, word, SizeBound::new);
                ruleset.rules.extend(bounds.into_iter().map(Rule::Size));
            }
            "modified" => {
                let bounds = self.each(value, word, TimeBound::new);
                ruleset.rules.extend(bounds.into_iter().map(Rule::Modified));
            }
            "accessed" => {
                let bounds = self.each(value, word, TimeBound::new);
                ruleset.rules.extend(bounds.into_iter().map(Rule::Accessed));
            }
            // Names of user metadata have no case: they are headers.
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
                    && let Some(is_on) = self.noted(place, is_on(&text))
                {
                    ruleset.directories = is_on;
                }
            }
            "recency" => {
                if let Some(text) = self.text(value, "recency") {
                    ruleset.recency = self.noted(place, recency(&text));
                }
            }
            "output" => ruleset.output = self.output(value),
            _ => self.wrong(place, unknown(word)),
        }
    }

    /// The values of a rule that has one or several.
    fn each<T>(&mut self, value: Node, word: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let place = value.place;
        let values = match value.value {
            Value::List(values) => values,
            _ => vec![value],
        };
        if values.is_empty() {
            self.wrong(place, format!("'{word}' has no value"));
        }
        let mut found = Vec::new();
        for value in values {
            let place = value.place;
            if let Some(text) = self.text(value, word)
                && let Some(value) = self.noted(place, read(&text))
            {
                found.push(value);
            }
        }
        found
    }

    /// Values by name, in the order of the names; those of one name are alternatives, repeated or in a list.
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
                if matches!(value.value, Value::Nothing) {
                    wanted.push(Wanted::Absent);
                    continue;
                }
                let place = value.place;
                if let Some(text) = self.text(value, &name)
                    && let Some(pattern) = self.noted(place, Pattern::of_value(&text))
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

    fn entries(&mut self, value: Node, word: &str) -> Vec<(String, Node)> {
        let Value::Map(entries) = value.value else {
            self.wrong(
                value.place,
                format!("'{word}' needs names and values, as in `{word}: {{color: black}}`"),
            );
            return Vec::new();
        };
        let named = |(name, value): (Node, Node)| Some((self.text(name, word)?, value));
        entries.into_iter().filter_map(named).collect()
    }

    fn text(&mut self, node: Node, what: &str) -> Option<String> {
        match node.value {
            Value::Text(text) => Some(text),
            Value::Nothing => {
                self.wrong(node.place, format!("'{what}' has no value"));
                None
            }
            Value::List(_) | Value::Map(_) => {
                self.wrong(node.place, format!("'{what}' is one text, no list and no names with values"));
                None
            }
        }
    }
}

/// The account that a ruleset says, wherever it does.
fn account(entries: &[(Node, Node)]) -> Option<String> {
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

fn is_on(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("'{text}' is neither on nor off")),
    }
}

fn recency(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no time; write it like 5s, 500ms or 2min");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = text.parse::<jiff::SignedDuration>().map_err(|_| wrong())?;
    Duration::try_from(time).map_err(|_| wrong())
}

fn unknown(word: &str) -> String {
    let closeness = |known: &&str| strsim::jaro_winkler(word, known);
    let nearest = WORDS.into_iter().max_by(|a, b| closeness(a).total_cmp(&closeness(b)));
    match nearest.filter(|nearest| closeness(nearest) > SLIP) {
        Some(nearest) => format!("'{word}' is no rule; do you mean '{nearest}'?"),
        None => format!("'{word}' is no rule; there are {}", WORDS.join(", ")),
    }
}

/// By kind, and those with names by these.
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
