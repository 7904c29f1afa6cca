//! Checks of file names and content: names without meaning, paths of one machine, private registries, secrets.

use super::Finding;
use super::tree::Tree;

/// Names of modules and folders that tell nothing about their content, and so attract everything.
const CATCH_ALL_NAMES: [&str; 9] =
    ["common", "util", "utils", "core", "helper", "helpers", "misc", "shared", "stuff"];

/// Folders that exist on one machine only. Split, so that this file does not violate its own rule.
const MACHINE_PATHS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Settings that make a build use another registry than the public ones.
const REGISTRIES: [&str; 4] = [
    concat!("GOPROXY", "=http"),
    concat!("index", "-url"),
    concat!("replace", "-with"),
    concat!("[regis", "tries"),
];

/// Prefixes of secrets.
const SECRETS: [&str; 5] = [
    concat!("-----BEGIN ", "PRIVATE KEY"),
    concat!("-----BEGIN ", "RSA PRIVATE KEY"),
    concat!("-----BEGIN ", "EC PRIVATE KEY"),
    concat!("gh", "p_"),
    concat!("github", "_pat_"),
];

/// Checks that no crate, module or folder has a catch-all name.
pub(crate) fn catch_all_names(tree: &Tree) -> Vec<Finding> {
    let is_catch_all = |part: &str| CATCH_ALL_NAMES.contains(&part.trim_end_matches(".rs"));
    let files = tree.files().iter().filter(|file| file.path.starts_with("crates/"));
    let found = files.filter(|file| file.path.split('/').any(is_catch_all));
    found
        .map(|file| {
            Finding::new(&file.path, 0, "a name without meaning: name the file or folder after its content")
        })
        .collect()
}

/// Checks that the repository does not depend on one machine, and contains no secrets.
pub(crate) fn machine_paths_and_secrets(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (number, line) in file.lines() {
            findings.extend(violation(line).map(|message| Finding::new(&file.path, number, message)));
        }
    }
    findings
}

fn violation(line: &str) -> Option<&'static str> {
    if MACHINE_PATHS.iter().any(|path| contains_absolute_path(line, path)) {
        return Some("a path that exists on one machine only: use a relative path");
    }
    if REGISTRIES.iter().any(|setting| line.contains(setting)) {
        return Some("a private registry: leave registries to the user's configuration");
    }
    (SECRETS.iter().any(|secret| line.contains(secret)) || contains_access_key(line))
        .then_some("this looks like a secret: remove it")
}

/// Whether the line contains `path` at a position where an absolute path can begin.
fn contains_absolute_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-~/}>*".contains(c)))
    })
}

/// Whether the line contains an AWS access key id. Those of AWS's documentation end in `EXAMPLE` and are allowed.
fn contains_access_key(line: &str) -> bool {
    const PREFIX: &str = concat!("AK", "IA");
    line.match_indices(PREFIX).any(|(at, _)| {
        let id: String =
            line[at..].chars().take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit()).collect();
        id.len() == 20 && !id.ends_with("EXAMPLE")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catch_all_names_of_crates_folders_and_files_are_found() {
        for path in ["crates/common/src/lib.rs", "crates/vfs/src/util/mod.rs", "crates/vfs/src/helpers.rs"] {
            assert_eq!(catch_all_names(&Tree::of(&[(path, "")])).len(), 1, "{path}");
        }
        assert_eq!(catch_all_names(&Tree::of(&[("crates/vfs/src/utility.rs", "")])), []);
    }

    #[test]
    fn machine_paths_are_found_but_not_inside_other_paths() {
        assert!(violation(concat!("cat /ho", "me/someone/file")).is_some());
        assert!(violation(concat!("\"/ro", "ot/.cache\"")).is_some());
        assert!(violation(concat!("bucket/ho", "me/x")).is_none());
        assert!(violation("https://example.com/homepage").is_none());
    }

    #[test]
    fn secrets_and_registries_are_found() {
        assert!(violation(concat!("key = AK", "IA0123456789ABCDEF")).is_some());
        assert!(violation(concat!("key = AK", "IAIOSFODNN7EXAMPLE")).is_none());
        assert!(violation(concat!("GOPROXY", "=http://mirror")).is_some());
        assert!(violation(concat!("-----BEGIN ", "PRIVATE KEY-----")).is_some());
    }
}
