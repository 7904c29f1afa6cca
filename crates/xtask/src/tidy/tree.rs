//! The repository's files, as text: all files that git tracks or would track. Files that are not UTF-8 are left out.
//!
//! Owns the distinction between test code and product code.

use anyhow::{Context, Result, ensure};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// Crates for tests and tools only. They may panic, and read the clock and the environment.
const TEST_CRATES: [&str; 3] = ["servers", "sim", "xtask"];

/// One file of the repository.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Path relative to the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files of the repository, ordered by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// Reads the files that `git ls-files` lists at `root`, with new files that are not ignored.
    pub(crate) fn of_repository(root: &Path) -> Result<Self> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot run git")?;
        ensure!(
            listing.status.success(),
            "git ls-files failed: {}",
            String::from_utf8_lossy(&listing.stderr)
        );
        let names = String::from_utf8(listing.stdout).context("a file name is not UTF-8")?;
        let mut files: Vec<File> = names.split_terminator('\0').filter_map(|path| read(root, path)).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// Makes a tree of the given paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        Self { files: files.iter().map(file).collect() }
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the file with this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or folder has this path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty() || self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    /// Returns the Rust files of the crates.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"))
    }
}

/// Reads a file. Returns `None` for a file that is in git's index but was removed, and for one that is not UTF-8.
fn read(root: &Path, path: &str) -> Option<File> {
    let bytes = std::fs::read(root.join(path)).ok()?;
    Some(File { path: path.to_owned(), text: String::from_utf8(bytes).ok()? })
}

impl File {
    /// Returns the name of the file's crate.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Returns the lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    /// Whether the whole file is test code, by its path or its crate.
    pub(crate) fn is_test(&self) -> bool {
        self.crate_name().is_some_and(|name| TEST_CRATES.contains(&name)) || self.is_test_of_crate()
    }

    /// Whether the whole file is a test of its crate, by its path.
    fn is_test_of_crate(&self) -> bool {
        let mut parts = self.path.split('/').skip(2);
        parts.any(|part| matches!(part, "tests" | "tests.rs" | "benches" | "conformance" | "conformance.rs"))
    }

    /// Returns the lines that are not test code: neither in a test file nor in a `#[cfg(test)]` module.
    pub(crate) fn product_lines(&self) -> Vec<(usize, &str)> {
        if self.is_test() { Vec::new() } else { self.lines_outside_tests() }
    }

    /// Like [`File::product_lines`], but crates that are only for tests have such lines too.
    pub(crate) fn lines_outside_tests(&self) -> Vec<(usize, &str)> {
        if self.is_test_of_crate() {
            return Vec::new();
        }
        let tests = self.test_modules();
        self.lines().filter(|(number, _)| !tests.iter().any(|range| range.contains(number))).collect()
    }

    /// Returns the line ranges of `#[cfg(test)]` items. An item ends at the closing brace with the indentation of the attribute.
    fn test_modules(&self) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut lines = self.lines();
        while let Some((begin, line)) = lines.next() {
            if line.trim() != "#[cfg(test)]" {
                continue;
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            let is_last = |text: &str| {
                text.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}') || rest.ends_with(';'))
            };
            let end = lines.find(|(_, text)| is_last(text)).map_or(usize::MAX, |(number, _)| number + 1);
            ranges.push(begin..end);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_test_modules_are_not_product_lines() {
        let text = "a\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nc\n#[cfg(test)]\nmod more;\nd\n";
        let tree = Tree::of(&[("crates/store/src/lib.rs", text)]);
        let lines: Vec<&str> = tree.files()[0].product_lines().into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["a", "c", "d"]);
    }

    #[test]
    fn test_files_have_no_product_lines() {
        for path in
            ["crates/store/tests/main.rs", "crates/store/src/key/tests.rs", "crates/servers/src/lib.rs"]
        {
            assert_eq!(Tree::of(&[(path, "x")]).files()[0].product_lines(), []);
        }
    }

    #[test]
    fn a_tree_contains_files_and_folders() {
        let tree = Tree::of(&[("docs/format.md", "")]);
        assert!(tree.contains("docs") && tree.contains("docs/format.md") && tree.contains(""));
        assert!(!tree.contains("doc") && !tree.contains("docs/format"));
    }
}
