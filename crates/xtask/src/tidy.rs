//! `cargo xtask tidy`: checks of project rules that neither rustc nor clippy checks.
//!
//! Owns the list of checks and the output of findings. Each check is a pure function from a [`Tree`] to [`Finding`]s, so a test can run it on a
//! small bad example.

mod documents;
mod imports;
mod manifests;
mod module_graph;
mod modules;
mod names;
mod semantics;
mod source;
mod struct_sizes;
mod structure;
mod tree;

use anyhow::{Result, bail};
use std::fmt;
use std::path::Path;
use tree::Tree;

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Line, from 1; 0 stands for the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [Check; 19] = [
    manifests::edges,
    manifests::workspace_versions,
    manifests::restricted_dependencies,
    modules::undeclared_files,
    modules::integration_binaries,
    modules::async_in_meta,
    names::catch_all_names,
    names::machine_paths_and_secrets,
    source::module_docs,
    source::silenced_lints,
    source::nondeterminism,
    source::unfinished,
    source::ignored_tests,
    source::file_length,
    source::comment_openings,
    documents::links,
    documents::decisions,
    structure::circles,
    structure::structs,
];

/// Checks the repository at `root` and prints the findings.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let tree = Tree::of_repository(root)?;
    let checks_all_statements = match arguments {
        [] => false,
        [flag] if flag == "--semantics" => true,
        [flag] if flag == "--structure" => {
            print!("{}", structure::summary(&tree));
            return Ok(());
        }
        _ => bail!("usage: cargo xtask tidy [--semantics | --structure]"),
    };
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    let coverage = semantics::compare(&tree);
    findings.extend(coverage.errors);
    if checks_all_statements {
        findings.extend(coverage.untested);
    } else if !coverage.untested.is_empty() {
        eprintln!("tidy: {} statements of docs/semantics.md have no test yet", coverage.untested.len());
    }
    report(findings, tree.files().len())
}

fn report(mut findings: Vec<Finding>, files: usize) -> Result<()> {
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {files} files checked, no findings");
        return Ok(());
    }
    bail!("tidy: {} findings", findings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let root = crate::workspace_root().unwrap();
        let tree = Tree::of_repository(&root).unwrap();
        let findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
        assert_eq!(findings, []);
        assert_eq!(semantics::compare(&tree).errors, []);
    }

    #[test]
    fn a_finding_names_file_and_line() {
        assert_eq!(Finding::new("a.rs", 3, "wrong").to_string(), "a.rs:3: wrong");
        assert_eq!(Finding::new("a.rs", 0, "wrong").to_string(), "a.rs: wrong");
    }
}
