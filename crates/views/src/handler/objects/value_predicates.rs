//! Predicates of many rules on one text: the value of one property or tag, or the content type of an object.

use crate::{Pattern, Wanted};
use hashbrown::HashMap;

/// The literals and patterns that rules compare a text with.
#[derive(Debug, Default)]
pub(super) struct ValuePredicates {
    /// Literal texts, numbered from 1.
    literals: HashMap<Box<str>, u32>,
    patterns: Vec<Pattern>,
}

/// Signature of an absent text.
const ABSENT: u32 = u32::MAX - 1;

/// End of a text's part of a signature.
const END: u32 = u32::MAX - 2;

impl ValuePredicates {
    /// Adds the patterns of a rule. That a value is absent needs no predicate, because signatures tell it anyway.
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

    /// Appends which of the predicates the text satisfies. Texts with equal signatures satisfy the same predicates.
    pub(super) fn append_signature(&self, text: Option<&str>, into: &mut Vec<u32>) {
        let Some(text) = text else { return into.push(ABSENT) };
        into.push(self.literals.get(text).copied().unwrap_or(0));
        let matched = (0..).zip(&self.patterns).filter(|(_, pattern)| pattern.matches(text.as_bytes()));
        into.extend(matched.map(|(number, _)| number));
        into.push(END);
    }
}
