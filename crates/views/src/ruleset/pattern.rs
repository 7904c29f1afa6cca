//! Texts with wildcards.

use globset::GlobBuilder;
use regex::bytes::{Regex, RegexBuilder};
use std::fmt;
use store::accounts::{account_of, in_account};

/// A text in which `*` stands for any characters, `?` for one, `[a-z]` for one of these, and `{a,b}` for either.
///
/// Of object keys `*` and `?` leave out `/`, and `**` between slashes stands for any number of directories; a key is its
/// exact bytes, which need not be UTF-8.
#[derive(Debug, Clone)]
pub struct Pattern {
    written: String,
    regex: Regex,
}

/// What makes a text more than itself.
pub(crate) const WILD: [char; 6] = ['*', '?', '[', '{', '}', '\\'];

impl Pattern {
    /// Of keys of objects.
    pub fn of_key(text: &str) -> Result<Self, String> {
        Self::new(text, true)
    }

    /// Of values, where `/` is a character like any other.
    pub fn of_value(text: &str) -> Result<Self, String> {
        Self::new(text, false)
    }

    /// Of containers of an account; a text may say another: `ACCOUNT:BUCKET`.
    pub fn of_container(account: Option<&str>, text: &str) -> Result<Self, String> {
        let (own, bucket) = account_of(text);
        if own.is_some_and(|own| own.is_empty() || own.contains(WILD)) {
            return Err(format!("'{text}' does not say which account: that takes a name, without wildcards"));
        }
        Self::of_value(&in_account(own.or(account), bucket))
    }

    fn new(text: &str, is_path: bool) -> Result<Self, String> {
        let glob = GlobBuilder::new(text).literal_separator(is_path).backslash_escape(true).build();
        let glob = glob.map_err(|error| format!("'{text}' is no pattern: {}", error.kind()))?;
        let regex = RegexBuilder::new(glob.regex()).dot_matches_new_line(true).unicode(false).build();
        let regex = regex.map_err(|_| format!("'{text}' is too large for a pattern"))?;
        Ok(Self { written: text.to_owned(), regex })
    }

    /// Whether all of the text is what the pattern stands for.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// The account whose containers it stands for.
    pub fn account(&self) -> Option<&str> {
        account_of(&self.written).0
    }

    /// Whether a container is what the pattern stands for. No wildcard stands for an account.
    pub fn names(&self, container: &str) -> bool {
        self.account() == account_of(container).0 && self.matches(container.as_bytes())
    }

    /// As it was written.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// The text, where the pattern stands for only one.
    pub fn only_text(&self) -> Option<String> {
        let (text, is_all) = self.beginning();
        is_all.then_some(text)
    }

    /// What is before the first wildcard, with which every text that it stands for begins, and whether that is all.
    pub(crate) fn beginning(&self) -> (String, bool) {
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
