//! Checks of Rust source files.

use super::Finding;
use super::tree::{File, Tree};

/// Maximum number of lines of a file; a longer one holds more than one concept.
const LINES_MAX: usize = 700;

/// Lints that may be silenced in tests only.
const TEST_ONLY_LINTS: [&str; 6] = [
    concat!("clippy::", "unwrap_used"),
    concat!("clippy::", "expect_used"),
    concat!("clippy::", "panic"),
    concat!("clippy::", "todo"),
    concat!("clippy::", "unimplemented"),
    concat!("clippy::", "await_holding_lock"),
];

/// The clippy lint that finds uses of clock and environment.
const CLOCK_LINT: &str = concat!("clippy::", "disallowed_methods");

/// Calls that make runs nondeterministic.
const NONDETERMINISTIC_CALLS: [&str; 8] = [
    "SystemTime::now",
    "time::Instant::now",
    "env::var",
    "rand::",
    "thread_rng",
    "getrandom",
    "fastrand",
    "Uuid::new_v4",
];

/// Paths that may use clock, environment and random numbers: front ends and the implementation of `Clock`.
const NONDETERMINISM_ALLOWED: [&str; 3] =
    ["crates/cli/", "crates/harness/src/clock.rs", "crates/store/src/clock.rs"];

/// Marks of unfinished work.
const UNFINISHED_MARKS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];

/// Words that no comment begins with: its subject comes first.
const COMMENT_OPENINGS: [&str; 9] =
    ["Who", "Whoever", "What", "Of", "So many", "Nobody", "Somebody", "Else", "The same"];

/// The attribute of a test that does not run.
const IGNORE_ATTRIBUTE: &str = concat!("#[", "ignore");

/// Checks that every module has a doc comment.
pub(crate) fn module_docs(tree: &Tree) -> Vec<Finding> {
    let undocumented = tree.sources().filter(|file| !file.text.starts_with("//!"));
    undocumented
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "begin the file with a `//!` comment: what the module owns and refuses",
            )
        })
        .collect()
}

/// Checks that lints against panics are not silenced outside tests.
pub(crate) fn silenced_lints(tree: &Tree) -> Vec<Finding> {
    findings_in_product_lines(tree, |_, line| {
        let lint = TEST_ONLY_LINTS.iter().find(|lint| line.contains(*lint))?;
        Some(format!("{lint} is silenced outside tests: return an error instead"))
    })
}

/// Checks that nothing below the front ends uses the clock, the environment or random numbers directly.
pub(crate) fn nondeterminism(tree: &Tree) -> Vec<Finding> {
    findings_in_product_lines(tree, |file, line| {
        if NONDETERMINISM_ALLOWED.iter().any(|path| file.path.starts_with(path))
            || line.trim_start().starts_with("//")
        {
            return None;
        }
        let call = NONDETERMINISTIC_CALLS.iter().chain([&CLOCK_LINT]).find(|call| has_word(line, call))?;
        Some(format!(
            "{call}: take a `store::Clock` or `store::Entropy` as an argument; only the cli reads the environment"
        ))
    })
}

/// Checks that there are no marks of unfinished work.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| is_checked(&file.path)) {
        for (number, line) in file.lines() {
            let mark = UNFINISHED_MARKS.iter().find(|mark| has_mark(line, mark));
            findings.extend(
                mark.map(|_| {
                    Finding::new(&file.path, number, "unfinished work: finish it, or open an issue")
                }),
            );
        }
    }
    findings
}

/// Checks that every test runs.
pub(crate) fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources() {
        let ignored = file.lines().filter(|(_, line)| line.trim_start().starts_with(IGNORE_ATTRIBUTE));
        findings.extend(
            ignored
                .map(|(number, _)| Finding::new(&file.path, number, "an ignored test: enable or remove it")),
        );
    }
    findings
}

/// Checks that no file is too long.
pub(crate) fn file_length(tree: &Tree) -> Vec<Finding> {
    let long =
        tree.sources().map(|file| (file, file.text.lines().count())).filter(|(_, lines)| *lines > LINES_MAX);
    long.map(|(file, lines)| {
        Finding::new(&file.path, 0, format!("{lines} lines, more than {LINES_MAX}: split the file"))
    })
    .collect()
}

/// Checks that no comment begins with a word that hides its subject.
pub(crate) fn comment_openings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        let Some(marker) = comment_marker(&file.path) else { continue };
        for (number, line) in file.lines() {
            if let Some(word) = comment_opening(line, marker) {
                let message = format!("a comment begins with '{word}': begin with its subject or a verb");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

/// Returns the beginning of a comment line in a file of this kind.
fn comment_marker(path: &str) -> Option<&'static str> {
    if path.ends_with(".rs") {
        return Some("//");
    }
    let is_script =
        path.starts_with("scripts/") || [".toml", ".sh", ".py"].iter().any(|end| path.ends_with(end));
    is_script.then_some("#")
}

fn comment_opening(line: &str, marker: &str) -> Option<&'static str> {
    let comment = line.trim_start().strip_prefix(marker)?;
    let text = comment.strip_prefix(['!', '/']).unwrap_or(comment).strip_prefix(' ')?;
    let begins = |word: &&&str| {
        text.strip_prefix(**word)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    COMMENT_OPENINGS.iter().find(begins).copied()
}

fn is_checked(path: &str) -> bool {
    [".rs", ".md", ".toml", ".sh"].iter().any(|end| path.ends_with(end)) || path.starts_with("scripts/")
}

fn findings_in_product_lines(tree: &Tree, check: impl Fn(&File, &str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources() {
        for (number, line) in file.product_lines() {
            findings.extend(check(file, line).map(|message| Finding::new(&file.path, number, message)));
        }
    }
    findings
}

/// Whether the line contains `word`, and not only as the end of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word_char))
}

/// Whether the line contains `mark` as a whole word.
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
    fn clock_and_random_numbers_are_found_below_the_front_ends() {
        let text = "let t = std::time::SystemTime::now();\n";
        assert_eq!(check(nondeterminism, "crates/vfs/src/a.rs", text), 1);
        assert_eq!(check(nondeterminism, "crates/cli/src/a.rs", text), 0);
        assert_eq!(check(nondeterminism, "crates/vfs/src/a.rs", "let n = rand::random();\n"), 1);
        assert_eq!(check(nondeterminism, "crates/vfs/src/a.rs", "operand::new();\n"), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(check(unfinished, "crates/vfs/src/a.rs", concat!("// TO", "DO: later\n")), 1);
        assert_eq!(check(unfinished, "docs/a.md", concat!("FIX", "ME\n")), 1);
        assert_eq!(check(unfinished, "docs/a.md", "mktemp a-XXXXXX\n"), 0);
    }

    #[test]
    fn a_comment_without_a_subject_is_found() {
        let path = "crates/s3/src/a.rs";
        for text in ["/// Who asks.\n", "    // What is left of it.\n", "//! The same of a bucket.\n"] {
            assert_eq!(check(comment_openings, path, text), 1, "{text}");
        }
        for text in
            ["/// Whole objects.\n", "/// Offset of it.\n", "let what = 1; // What\n", "\"// What\"\n"]
        {
            assert_eq!(check(comment_openings, path, text), 0, "{text}");
        }
    }

    #[test]
    fn a_comment_of_a_manifest_is_checked_too() {
        assert_eq!(check(comment_openings, "Cargo.toml", "# What it is for.\n"), 1);
        assert_eq!(check(comment_openings, "docs/a.md", "# What it is for\n"), 0);
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
        assert_eq!(check(file_length, "crates/vfs/src/a.rs", &"\n".repeat(LINES_MAX + 1)), 1);
        assert_eq!(check(file_length, "crates/vfs/src/a.rs", &"\n".repeat(LINES_MAX)), 0);
    }
}
