//! What many rules want of one text: a property's value, a tag's, a type.

use crate::{Pattern, Wanted};
use hashbrown::HashMap;

/// The texts that rules can tell apart.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Texts without wildcards, by number from 1.
    literals: HashMap<Box<str>, u32>,
    patterns: Vec<Pattern>,
}

/// In an outline: there is no such text.
const ABSENT: u32 = u32::MAX - 1;

/// In an outline: what follows is of something else.
const END: u32 = u32::MAX - 2;

impl Wishes {
    pub(super) fn add(&mut self, wanted: &[Wanted]) {
        for wanted in wanted {
            if let Wanted::Like(pattern) = wanted {
                self.add_pattern(pattern);
            }
        }
    }

    pub(super) fn add_patterns(&mut self, patterns: &[Pattern]) {
        patterns.iter().for_each(|pattern| self.add_pattern(pattern));
    }

    fn add_pattern(&mut self, pattern: &Pattern) {
        match pattern.only_text() {
            Some(text) => {
                let next = self.literals.len() as u32 + 1;
                self.literals.entry(text.into()).or_insert(next);
            }
            None if self.patterns.contains(pattern) => {}
            None => self.patterns.push(pattern.clone()),
        }
    }

    /// Appends which of the wishes the text fulfils.
    pub(super) fn outline(&self, text: Option<&str>, into: &mut Vec<u32>) {
        let Some(text) = text else { return into.push(ABSENT) };
        into.push(self.literals.get(text).copied().unwrap_or(0));
        let matched = (0..).zip(&self.patterns).filter(|(_, pattern)| pattern.matches(text.as_bytes()));
        into.extend(matched.map(|(number, _)| number));
        into.push(END);
    }
}
