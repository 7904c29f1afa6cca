//! Comparison of `docs/semantics.md` with the tests: every statement that holds now needs a test with its id in the name.
//!
//! A row of the document is `| S22 | now | text |`; a test is `fn s22_…`, or `fn s22_s23_…` for several statements. Ids have at least two
//! digits, so that the name of a test about S3, such as `s3_put`, is not taken for an id.

use super::Finding;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "docs/semantics.md";

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// Malformed rows, duplicate ids, and tests of statements that do not exist.
    pub(crate) errors: Vec<Finding>,
    /// Statements that hold now and have no test.
    pub(crate) untested: Vec<Finding>,
}

/// A statement of the document.
#[derive(Debug)]
struct Statement<'a> {
    line: usize,
    /// `now`, or the issue that will implement it.
    since: &'a str,
}

/// Compares the statements with the names of the tests.
pub(crate) fn compare(tree: &Tree) -> Coverage {
    let mut coverage = Coverage::default();
    let Some(document) = tree.file(DOCUMENT) else {
        coverage.errors.push(Finding::new(DOCUMENT, 0, "the file is missing"));
        return coverage;
    };
    let statements = parse_statements(&document.text, &mut coverage.errors);
    let tested = tested_ids(tree, &statements, &mut coverage.errors);
    for (id, statement) in &statements {
        if statement.since == "now" && !tested.contains(id) {
            coverage.untested.push(Finding::new(
                DOCUMENT,
                statement.line,
                format!("S{id} has no test `s{id}_…`"),
            ));
        }
    }
    coverage
}

fn parse_statements<'a>(text: &'a str, errors: &mut Vec<Finding>) -> BTreeMap<u32, Statement<'a>> {
    let mut found = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| S")) {
        let line_number = at + 1;
        let Some((id, since)) = parse_row(line) else {
            errors.push(Finding::new(
                DOCUMENT,
                line_number,
                "malformed row: write `| S<two digits> | now or issue <n> | text |`",
            ));
            continue;
        };
        if found.insert(id, Statement { line: line_number, since }).is_some() {
            errors.push(Finding::new(DOCUMENT, line_number, format!("S{id} is used twice")));
        }
    }
    found
}

fn parse_row(line: &str) -> Option<(u32, &str)> {
    let mut cells = line.split('|').skip(1).map(str::trim);
    let (id, since, text) = (cells.next()?, cells.next()?, cells.next()?);
    let id: u32 = id.strip_prefix('S')?.parse().ok()?;
    let is_issue = since.strip_prefix("issue ").is_some_and(|number| number.parse::<u32>().is_ok());
    (id >= 10 && (since == "now" || is_issue) && !text.is_empty()).then_some((id, since))
}

/// Returns the ids in names of tests. A test with an unknown id is an error.
fn tested_ids(tree: &Tree, known: &BTreeMap<u32, Statement<'_>>, errors: &mut Vec<Finding>) -> BTreeSet<u32> {
    let mut tested = BTreeSet::new();
    for file in tree.sources() {
        for (number, line) in file.lines() {
            for id in ids_of_test(line) {
                if !known.contains_key(&id) {
                    errors.push(Finding::new(&file.path, number, format!("S{id} is not in {DOCUMENT}")));
                }
                tested.insert(id);
            }
        }
    }
    tested
}

/// Returns the ids at the beginning of a test function's name.
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

    fn compare_text(document: &str, test: &str) -> (usize, Vec<String>) {
        let coverage = compare(&Tree::of(&[(DOCUMENT, document), ("crates/vfs/tests/main.rs", test)]));
        (coverage.errors.len(), coverage.untested.into_iter().map(|finding| finding.message).collect())
    }

    #[test]
    fn a_statement_without_a_test_is_found() {
        let document = "| S22 | now | a |\n| S23 | now | b |\n| S24 | issue 3 | c |\n";
        assert_eq!(compare_text(document, "fn s22_a() {}"), (0, vec!["S23 has no test `s23_…`".to_owned()]));
        assert_eq!(compare_text(document, "    async fn s22_s23_both() {}"), (0, vec![]));
    }

    #[test]
    fn an_unknown_id_and_a_duplicate_id_are_found() {
        assert_eq!(compare_text("| S22 | issue 4 | a |\n", "fn s99_a() {}").0, 1);
        assert_eq!(compare_text("| S22 | issue 4 | a |\n| S22 | issue 4 | b |\n", "").0, 1);
        assert_eq!(compare_text("| S22 | soon | a |\n", "").0, 1);
    }

    #[test]
    fn names_of_tests_about_s3_have_no_id() {
        assert!(ids_of_test("fn s3_put() {}").is_empty());
        assert_eq!(ids_of_test("fn s22_s3_put() {}"), [22]);
    }
}
