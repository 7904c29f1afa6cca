//! `cargo xtask tidy`: the project's rules that neither rustc nor clippy knows.
//!
//! Owns the list of checks and how findings are shown. Every check is a pure function from a [`Tree`] to
//! [`Finding`]s, so that each has a small bad example as its test.

mod documents;
mod manifests;
mod modules;
mod names;
mod semantics;
mod source;
mod tree;

use anyhow::{Result, bail};
use std::fmt;
use std::path::Path;
use tree::Tree;

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// From 1; 0 stands for the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [Check; 16] = [
    manifests::edges,
    manifests::workspace_versions,
    manifests::owned_dependencies,
    modules::forgotten,
    modules::integration_binaries,
    modules::awaits,
    names::drawers,
    names::outside_hosts_and_secrets,
    source::module_docs,
    source::silenced_lints,
    source::time_and_chance,
    source::unfinished,
    source::ignored_tests,
    source::length,
    documents::links,
    documents::decisions,
];

/// Checks the repository at `root` and prints what breaks a rule.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let strict = match arguments {
        [] => false,
        [flag] if flag == "--semantics" => true,
        _ => bail!("tidy takes no argument but --semantics"),
    };
    let tree = Tree::of_repository(root)?;
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    let evidence = semantics::compare(&tree);
    findings.extend(evidence.broken);
    if strict {
        findings.extend(evidence.unproven);
    } else if !evidence.unproven.is_empty() {
        eprintln!("tidy: {} statements of docs/semantics.md have no test yet", evidence.unproven.len());
    }
    report(findings, tree.files().len())
}

fn report(mut findings: Vec<Finding>, files: usize) -> Result<()> {
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {files} files in order");
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
        assert_eq!(semantics::compare(&tree).broken, []);
    }

    #[test]
    fn a_finding_names_file_and_line() {
        assert_eq!(Finding::at("a.rs", 3, "wrong").to_string(), "a.rs:3: wrong");
        assert_eq!(Finding::at("a.rs", 0, "wrong").to_string(), "a.rs: wrong");
    }
}
