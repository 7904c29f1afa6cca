//! What has to be listed for rules: what all keys begin with that they want.

use super::Rule;

/// Beginnings of keys that are listed beside each other; of more the whole container is listed.
const BEGINNINGS_MAX: usize = 16;

/// What the keys begin with that several sets of rules want, none the beginning of another.
pub(crate) fn beginnings<'r>(rules: impl Iterator<Item = &'r [Rule]>) -> Vec<String> {
    let mut all: Vec<String> = rules.flat_map(of_one).collect();
    all.sort_unstable();
    all.dedup_by(|next, last| next.starts_with(last.as_str()));
    if all.len() > BEGINNINGS_MAX { vec![String::new()] } else { all }
}

/// For each of the alternatives.
fn of_one(rules: &[Rule]) -> Vec<String> {
    let keys = rules.iter().find_map(|rule| match rule {
        Rule::Object(keys) => Some(keys),
        _ => None,
    });
    keys.map_or_else(|| vec![String::new()], |keys| keys.iter().map(|key| key.beginning().0).collect())
}
