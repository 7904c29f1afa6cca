//! `docs/semantics.md` against the tests: what is promised now is proven by a test that carries its id.
//!
//! A row of the document is `| S22 | now | text |`; a test is `fn s22_…`, or `fn s22_s23_…` for several. Ids have
//! two digits at least, so that a test about `s3_…` is no evidence for anything.

use super::Finding;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "docs/semantics.md";

/// What the comparison found.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// A malformed row, an id used twice, a test of a statement that does not exist.
    pub(crate) broken: Vec<Finding>,
    /// Statements that hold now and have no test.
    pub(crate) unproven: Vec<Finding>,
}

/// One promise.
#[derive(Debug)]
struct Statement<'a> {
    line: usize,
    since: &'a str,
}

/// Compares the statements with the names of the tests.
pub(crate) fn compare(tree: &Tree) -> Evidence {
    let mut evidence = Evidence::default();
    let Some(document) = tree.file(DOCUMENT) else {
        evidence.broken.push(Finding::at(DOCUMENT, 0, "is missing"));
        return evidence;
    };
    let statements = statements(&document.text, &mut evidence.broken);
    let proven = proven(tree, &statements, &mut evidence.broken);
    for (id, statement) in &statements {
        if statement.since == "now" && !proven.contains(id) {
            evidence.unproven.push(Finding::at(
                DOCUMENT,
                statement.line,
                format!("S{id} has no test `s{id}_…`"),
            ));
        }
    }
    evidence
}

fn statements<'a>(text: &'a str, broken: &mut Vec<Finding>) -> BTreeMap<u32, Statement<'a>> {
    let mut found = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| S")) {
        let line_number = at + 1;
        let Some((id, since)) = row(line) else {
            broken.push(Finding::at(
                DOCUMENT,
                line_number,
                "a row is `| S<two digits> | now or issue <n> | text |`",
            ));
            continue;
        };
        if found.insert(id, Statement { line: line_number, since }).is_some() {
            broken.push(Finding::at(DOCUMENT, line_number, format!("S{id} is used twice")));
        }
    }
    found
}

fn row(line: &str) -> Option<(u32, &str)> {
    let mut cells = line.split('|').skip(1).map(str::trim);
    let (id, since, text) = (cells.next()?, cells.next()?, cells.next()?);
    let id: u32 = id.strip_prefix('S')?.parse().ok()?;
    let issue = since.strip_prefix("issue ").is_some_and(|number| number.parse::<u32>().is_ok());
    (id >= 10 && (since == "now" || issue) && !text.is_empty()).then_some((id, since))
}

/// The ids that tests carry; a test of an unknown id is broken.
fn proven(tree: &Tree, known: &BTreeMap<u32, Statement<'_>>, broken: &mut Vec<Finding>) -> BTreeSet<u32> {
    let mut proven = BTreeSet::new();
    for file in tree.sources() {
        for (number, line) in file.lines() {
            for id in ids_of_test(line) {
                if !known.contains_key(&id) {
                    broken.push(Finding::at(&file.path, number, format!("S{id} is not in {DOCUMENT}")));
                }
                proven.insert(id);
            }
        }
    }
    proven
}

/// The ids at the beginning of a test function's name.
fn ids_of_test(line: &str) -> Vec<u32> {
    let line = line.trim_start();
    let Some(mut name) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn ")) else {
        return Vec::new();
    };
    let mut ids = Vec::new();
    while let Some((id, rest)) = leading_id(name) {
        ids.push(id);
        name = rest;
    }
    ids
}

fn leading_id(name: &str) -> Option<(u32, &str)> {
    let (digits, rest) = name.strip_prefix('s')?.split_once('_')?;
    let is_id = digits.len() >= 2 && digits.bytes().all(|b| b.is_ascii_digit());
    is_id.then(|| digits.parse().ok()).flatten().map(|id| (id, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(document: &str, test: &str) -> (usize, Vec<String>) {
        let evidence = compare(&Tree::of(&[(DOCUMENT, document), ("crates/vfs/tests/main.rs", test)]));
        (evidence.broken.len(), evidence.unproven.into_iter().map(|finding| finding.what).collect())
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        let document = "| S22 | now | a |\n| S23 | now | b |\n| S24 | issue 3 | c |\n";
        assert_eq!(compared(document, "fn s22_a() {}"), (0, vec!["S23 has no test `s23_…`".to_owned()]));
        assert_eq!(compared(document, "    async fn s22_s23_both() {}"), (0, vec![]));
    }

    #[test]
    fn a_test_of_no_statement_and_a_double_id_are_found() {
        assert_eq!(compared("| S22 | issue 4 | a |\n", "fn s99_a() {}").0, 1);
        assert_eq!(compared("| S22 | issue 4 | a |\n| S22 | issue 4 | b |\n", "").0, 1);
        assert_eq!(compared("| S22 | soon | a |\n", "").0, 1);
    }

    #[test]
    fn a_test_about_s3_is_no_evidence() {
        assert!(ids_of_test("fn s3_put() {}").is_empty());
        assert_eq!(ids_of_test("fn s22_s3_put() {}"), [22]);
    }
}
