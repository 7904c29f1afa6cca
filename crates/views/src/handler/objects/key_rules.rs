//! Finds which of many rules on keys match a key.
//!
//! Patterns whose first path component is literal are found by that component; all others are compiled into one
//! automaton. So matching a key costs about the same under ten rules as under ten thousand that differ in their first
//! component.

use crate::Pattern;
use crate::ruleset::pattern::WILDCARDS;
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use hashbrown::HashMap;

/// Numbered rules on keys. A rule is a list of patterns, of which one must match.
#[derive(Debug, Default)]
pub(super) struct KeyRules {
    /// Patterns without wildcards, by the only key that they match.
    exact: HashMap<Box<[u8]>, Vec<u32>>,
    /// Patterns with wildcards whose first path component is literal, by that component.
    by_first: HashMap<Box<[u8]>, Globs>,
    /// All other patterns.
    rest: Globs,
}

/// Patterns, each with the number of its rule.
#[derive(Debug, Default)]
struct Globs {
    patterns: Vec<(Pattern, u32)>,
    /// The patterns as one automaton; `None` if they are so few that each is tried.
    set: Option<GlobSet>,
}

/// With fewer patterns than this, each is tried.
const SET_PATTERNS_MIN: usize = 4;

impl KeyRules {
    /// Builds the index. A rule's number is its index in `rules`.
    pub(super) fn new(rules: &[Vec<Pattern>]) -> Self {
        let mut keys = Self::default();
        for (rule, patterns) in (0..).zip(rules) {
            for pattern in patterns {
                keys.add(pattern, rule);
            }
        }
        keys.by_first.values_mut().for_each(Globs::build);
        keys.rest.build();
        keys
    }

    fn add(&mut self, pattern: &Pattern, rule: u32) {
        if let Some(key) = pattern.only_text() {
            self.exact.entry(key.as_bytes().into()).or_default().push(rule);
            return;
        }
        let globs = match literal_first_component(pattern.written()) {
            Some(first) => self.by_first.entry(first.as_bytes().into()).or_default(),
            None => &mut self.rest,
        };
        globs.patterns.push((pattern.clone(), rule));
    }

    /// Replaces the content of `found` with the numbers of the rules that match the key, ascending.
    pub(super) fn find(&self, key: &[u8], found: &mut Vec<u32>) {
        found.clear();
        if let Some(rules) = self.exact.get(key) {
            found.extend_from_slice(rules);
        }
        if let Some(end) = key.iter().position(|byte| *byte == b'/')
            && let Some(globs) = self.by_first.get(&key[..end])
        {
            globs.find(key, found);
        }
        self.rest.find(key, found);
        found.sort_unstable();
        found.dedup();
    }
}

impl Globs {
    /// Compiles the patterns into one automaton, if they are many.
    fn build(&mut self) {
        if self.patterns.len() < SET_PATTERNS_MIN {
            return;
        }
        let mut set = GlobSetBuilder::new();
        for (pattern, _) in &self.patterns {
            // Cannot fail, because the pattern itself was built from the same text. Without the automaton, each pattern
            // is tried.
            let Ok(glob) =
                GlobBuilder::new(pattern.written()).literal_separator(true).backslash_escape(true).build()
            else {
                return;
            };
            set.add(glob);
        }
        self.set = set.build().ok();
    }

    fn find(&self, key: &[u8], found: &mut Vec<u32>) {
        match &self.set {
            Some(set) if is_path(key) => {
                let Ok(text) = std::str::from_utf8(key) else { return self.try_each(key, found) };
                let matched = set.matches_candidate(&Candidate::new(text));
                found.extend(matched.into_iter().map(|pattern| self.patterns[pattern].1));
            }
            _ => self.try_each(key, found),
        }
    }

    fn try_each(&self, key: &[u8], found: &mut Vec<u32>) {
        let matched = self.patterns.iter().filter(|(pattern, _)| pattern.matches(key));
        found.extend(matched.map(|(_, rule)| *rule));
    }
}

/// Returns the first path component of a pattern; `None` if it has wildcards or nothing follows it.
fn literal_first_component(pattern: &str) -> Option<&str> {
    let (first, _) = pattern.split_once('/')?;
    (!first.contains(WILDCARDS)).then_some(first)
}

/// Returns whether a `GlobSet`, which normalises its input as a path, sees the key unchanged.
fn is_path(key: &[u8]) -> bool {
    key.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..") && !name.ends_with(b"."))
        && !key.contains(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn matching_all_rules_at_once_equals_matching_each(
            rules in proptest::collection::vec("(\\*\\*/|a/|b/|\\{a,b\\}/|)(\\*|\\*\\*|x\\*|\\?|[a-c])(\\.[a-c]|/\\*\\*|)", 1..12),
            keys in proptest::collection::vec(proptest::collection::vec(proptest::sample::select(b"abcx./\n\xff".to_vec()), 1..8), 1..20),
        ) {
            let rules: Vec<Vec<Pattern>> = rules.iter().filter_map(|rule| Pattern::of_key(rule).ok().map(|rule| vec![rule])).collect();
            let all = KeyRules::new(&rules);
            let mut found = Vec::new();
            for key in keys {
                all.find(&key, &mut found);
                let expected: Vec<u32> = (0..).zip(&rules).filter(|(_, rule)| rule[0].matches(&key)).map(|(number, _)| number).collect();
                proptest::prop_assert_eq!(&found, &expected, "{:?} under {:?}", key, &rules);
            }
        }
    }
}
