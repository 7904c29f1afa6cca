//! Patterns: texts with wildcards.

use globset::GlobBuilder;
use regex::bytes::{Regex, RegexBuilder};
use std::fmt;
use store::accounts::{account_of, in_account};

/// A pattern in which `*` matches any bytes, `?` one byte, `[a-z]` one of these, and `{a,b}` either text. `\` makes the
/// next character literal.
///
/// In patterns of object keys, `*` and `?` do not match `/`, and `**` between slashes matches any number of
/// directories. A key is its exact bytes, which need not be UTF-8.
#[derive(Debug, Clone)]
pub struct Pattern {
    written: String,
    regex: Regex,
}

/// Characters with a special meaning in patterns.
pub(crate) const WILDCARDS: [char; 6] = ['*', '?', '[', '{', '}', '\\'];

impl Pattern {
    /// Compiles a pattern of object keys. An error is a message for the user.
    pub fn of_key(text: &str) -> Result<Self, String> {
        Self::new(text, true)
    }

    /// Compiles a pattern of values, in which `/` is an ordinary character.
    pub fn of_value(text: &str) -> Result<Self, String> {
        Self::new(text, false)
    }

    /// Compiles a pattern of container names of `account`, `None` being the default account; the text may name another
    /// one: `ACCOUNT:BUCKET`.
    pub fn of_container(account: Option<&str>, text: &str) -> Result<Self, String> {
        let (named_account, bucket) = account_of(text);
        if named_account.is_some_and(|name| name.is_empty() || name.contains(WILDCARDS)) {
            return Err(format!(
                "'{text}' has a wildcard or nothing in place of an account; write the account's name"
            ));
        }
        Self::of_value(&in_account(named_account.or(account), bucket))
    }

    fn new(text: &str, is_path: bool) -> Result<Self, String> {
        let glob = GlobBuilder::new(text).literal_separator(is_path).backslash_escape(true).build();
        let glob = glob.map_err(|error| format!("'{text}' is not a pattern: {}", error.kind()))?;
        let regex = RegexBuilder::new(glob.regex()).dot_matches_new_line(true).unicode(false).build();
        let regex = regex.map_err(|_| format!("the pattern '{text}' is too large"))?;
        Ok(Self { written: text.to_owned(), regex })
    }

    /// Returns whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the account of a pattern of container names; `None` if it names no account.
    pub fn account(&self) -> Option<&str> {
        account_of(&self.written).0
    }

    /// Returns whether a pattern of container names matches a container. Wildcards do not match accounts.
    pub fn names(&self, container: &str) -> bool {
        self.account() == account_of(container).0 && self.matches(container.as_bytes())
    }

    /// Returns the pattern as it was written.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// Returns the only text that the pattern matches; `None` if it has wildcards.
    pub fn only_text(&self) -> Option<String> {
        let (text, is_all) = self.literal_prefix();
        is_all.then_some(text)
    }

    /// Returns the literal prefix of every text that the pattern matches, and whether this prefix is the whole
    /// pattern.
    pub(crate) fn literal_prefix(&self) -> (String, bool) {
        let mut text = String::new();
        let mut characters = self.written.chars();
        while let Some(character) = characters.next() {
            match character {
                '*' | '?' | '[' | '{' => return (text, false),
                '\\' => text.extend(characters.next()),
                _ => text.push(character),
            }
        }
        (text, true)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str()
    }
}

impl Eq for Pattern {}
