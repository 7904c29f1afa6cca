//! What every Rust file must and must not say.

use super::Finding;
use super::tree::{File, Tree};

/// A file longer than this holds more than one concept.
const LINES_MAX: usize = 700;

/// Lints that are only ever silenced in tests.
const NEVER_SILENCED: [&str; 6] = [
    concat!("clippy::", "unwrap_used"),
    concat!("clippy::", "expect_used"),
    concat!("clippy::", "panic"),
    concat!("clippy::", "todo"),
    concat!("clippy::", "unimplemented"),
    concat!("clippy::", "await_holding_lock"),
];

/// The lint through which clippy finds the machine's clock and environment.
const CLOCK_LINT: &str = concat!("clippy::", "disallowed_methods");

/// Calls that make two runs differ.
const TIME_AND_CHANCE: [&str; 8] = [
    "SystemTime::now",
    "time::Instant::now",
    "env::var",
    "rand::",
    "thread_rng",
    "getrandom",
    "fastrand",
    "Uuid::new_v4",
];

/// The front ends and the one seam that may ask the machine.
const MAY_ASK: [&str; 3] = ["crates/cli/", "crates/bench/", "crates/store/src/clock.rs"];

/// Marks of work that is not done.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];

/// The mark of a test that does not run.
const IGNORED: &str = concat!("#[", "ignore");

/// Checks that every module says what it owns.
pub(crate) fn module_docs(tree: &Tree) -> Vec<Finding> {
    let silent = tree.sources().filter(|file| !file.text.starts_with("//!"));
    silent
        .map(|file| Finding::at(&file.path, 1, "a module opens with `//!`: what it owns and refuses"))
        .collect()
}

/// Checks that lints against panics are not silenced outside tests.
pub(crate) fn silenced_lints(tree: &Tree) -> Vec<Finding> {
    product_findings(tree, |_, line| {
        let lint = NEVER_SILENCED.iter().find(|lint| line.contains(*lint))?;
        Some(format!("{lint} is silenced outside tests: make it a value"))
    })
}

/// Checks that nothing below the front ends reads the clock, the environment or a random number.
pub(crate) fn time_and_chance(tree: &Tree) -> Vec<Finding> {
    product_findings(tree, |file, line| {
        if MAY_ASK.iter().any(|place| file.path.starts_with(place)) || line.trim_start().starts_with("//") {
            return None;
        }
        let call = TIME_AND_CHANCE.iter().chain([&CLOCK_LINT]).find(|call| has_word(line, call))?;
        Some(format!("{call}: take a `store::Clock` or `store::Entropy`; the cli reads the environment"))
    })
}

/// Checks that nothing is left for later.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| is_ours(&file.path)) {
        for (number, line) in file.lines() {
            let mark = UNFINISHED.iter().find(|mark| has_mark(line, mark));
            findings.extend(
                mark.map(|_| Finding::at(&file.path, number, "left for later: do it, or open an issue")),
            );
        }
    }
    findings
}

/// Checks that every test runs.
pub(crate) fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources() {
        let ignored = file.lines().filter(|(_, line)| line.trim_start().starts_with(IGNORED));
        findings.extend(
            ignored.map(|(number, _)| {
                Finding::at(&file.path, number, "a test that does not run proves nothing")
            }),
        );
    }
    findings
}

/// Checks that no file is too long to be one concept.
pub(crate) fn length(tree: &Tree) -> Vec<Finding> {
    let long =
        tree.sources().map(|file| (file, file.text.lines().count())).filter(|(_, lines)| *lines > LINES_MAX);
    long.map(|(file, lines)| Finding::at(&file.path, 0, format!("{lines} lines, more than {LINES_MAX}")))
        .collect()
}

fn is_ours(path: &str) -> bool {
    [".rs", ".md", ".toml", ".sh"].iter().any(|end| path.ends_with(end)) || path.starts_with("scripts/")
}

fn product_findings(tree: &Tree, breach: impl Fn(&File, &str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources() {
        for (number, line) in file.product_lines() {
            findings.extend(breach(file, line).map(|what| Finding::at(&file.path, number, what)));
        }
    }
    findings
}

/// Whether `word` stands in the line and is not the end of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word_char))
}

/// Whether `mark` stands in the line by itself.
fn has_mark(line: &str, mark: &str) -> bool {
    let ends = |rest: &str| mark.ends_with('(') || !rest.starts_with(is_word_char);
    line.match_indices(mark)
        .any(|(at, _)| !line[..at].ends_with(is_word_char) && ends(&line[at + mark.len()..]))
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(check: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_module_without_docs_is_found() {
        assert_eq!(check(module_docs, "crates/store/src/a.rs", "fn a() {}\n"), 1);
        assert_eq!(check(module_docs, "crates/store/src/a.rs", "//! Owns a.\n"), 0);
    }

    #[test]
    fn a_silenced_lint_is_found_outside_tests_only() {
        let text = concat!("#[allow(clippy::", "unwrap_used)]\n");
        assert_eq!(check(silenced_lints, "crates/store/src/a.rs", text), 1);
        assert_eq!(check(silenced_lints, "crates/store/tests/main.rs", text), 0);
    }

    #[test]
    fn the_clock_is_found_below_the_front_ends() {
        let text = "let t = std::time::SystemTime::now();\n";
        assert_eq!(check(time_and_chance, "crates/vfs/src/a.rs", text), 1);
        assert_eq!(check(time_and_chance, "crates/cli/src/a.rs", text), 0);
        assert_eq!(check(time_and_chance, "crates/vfs/src/a.rs", "let n = rand::random();\n"), 1);
        assert_eq!(check(time_and_chance, "crates/vfs/src/a.rs", "operand::new();\n"), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(check(unfinished, "crates/vfs/src/a.rs", concat!("// TO", "DO: later\n")), 1);
        assert_eq!(check(unfinished, "docs/a.md", concat!("FIX", "ME\n")), 1);
        assert_eq!(check(unfinished, "docs/a.md", "mktemp a-XXXXXX\n"), 0);
    }

    #[test]
    fn an_ignored_test_is_found() {
        assert_eq!(
            check(ignored_tests, "crates/vfs/tests/main.rs", concat!("    #[", "ignore = \"slow\"]\n")),
            1
        );
        assert_eq!(check(ignored_tests, "crates/vfs/tests/main.rs", "// we ignore\n"), 0);
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(check(length, "crates/vfs/src/a.rs", &"\n".repeat(LINES_MAX + 1)), 1);
        assert_eq!(check(length, "crates/vfs/src/a.rs", &"\n".repeat(LINES_MAX)), 0);
    }
}
