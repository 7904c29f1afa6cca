//! What no path may be called and no file may hold: drawers, places of one machine, outside hosts, secrets.

use super::Finding;
use super::tree::Tree;

/// Names that say nothing and so collect everything.
const DRAWERS: [&str; 9] =
    ["common", "util", "utils", "core", "helper", "helpers", "misc", "shared", "stuff"];

/// Folders that exist on one machine only. Cut in two, so that this file does not break its own rule.
const MACHINE_PATHS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Settings that send a build to another registry than the public ones.
const REGISTRIES: [&str; 4] = [
    concat!("GOPROXY", "=http"),
    concat!("index", "-url"),
    concat!("replace", "-with"),
    concat!("[regis", "tries"),
];

/// Beginnings that only secrets have.
const SECRETS: [&str; 5] = [
    concat!("-----BEGIN ", "PRIVATE KEY"),
    concat!("-----BEGIN ", "RSA PRIVATE KEY"),
    concat!("-----BEGIN ", "EC PRIVATE KEY"),
    concat!("gh", "p_"),
    concat!("github", "_pat_"),
];

/// Checks that no crate, module or folder is a drawer.
pub(crate) fn drawers(tree: &Tree) -> Vec<Finding> {
    let is_drawer = |part: &str| DRAWERS.contains(&part.trim_end_matches(".rs"));
    let files = tree.files().iter().filter(|file| file.path.starts_with("crates/"));
    let broken = files.filter(|file| file.path.split('/').any(is_drawer));
    broken.map(|file| Finding::at(&file.path, 0, "a drawer, not a name: say what it holds")).collect()
}

/// Checks that nothing ties the repository to one machine, and that no secret is in it.
pub(crate) fn outside_hosts_and_secrets(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (number, line) in file.lines() {
            findings.extend(breach(line).map(|what| Finding::at(&file.path, number, what)));
        }
    }
    findings
}

fn breach(line: &str) -> Option<&'static str> {
    if MACHINE_PATHS.iter().any(|path| begins_a_path(line, path)) {
        return Some("a path that exists on one machine only");
    }
    if REGISTRIES.iter().any(|setting| line.contains(setting)) {
        return Some("a registry of one machine; the user's own configuration says where registries are");
    }
    (SECRETS.iter().any(|secret| line.contains(secret)) || holds_access_key(line))
        .then_some("looks like a secret")
}

/// Whether `path` stands in the line where an absolute path can begin.
fn begins_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-~/}>*".contains(c)))
    })
}

/// Whether the line holds an AWS access key id; the ones of AWS's documentation end in `EXAMPLE`.
fn holds_access_key(line: &str) -> bool {
    const BEGINNING: &str = concat!("AK", "IA");
    line.match_indices(BEGINNING).any(|(at, _)| {
        let id: String =
            line[at..].chars().take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit()).collect();
        id.len() == 20 && !id.ends_with("EXAMPLE")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawers_are_found_as_crate_folder_and_file() {
        for path in ["crates/common/src/lib.rs", "crates/vfs/src/util/mod.rs", "crates/vfs/src/helpers.rs"] {
            assert_eq!(drawers(&Tree::of(&[(path, "")])).len(), 1, "{path}");
        }
        assert_eq!(drawers(&Tree::of(&[("crates/vfs/src/utility.rs", "")])), []);
    }

    #[test]
    fn machine_paths_are_found_but_not_inside_other_paths() {
        assert!(breach(concat!("cat /ho", "me/someone/file")).is_some());
        assert!(breach(concat!("\"/ro", "ot/.cache\"")).is_some());
        assert!(breach(concat!("bucket/ho", "me/x")).is_none());
        assert!(breach("https://example.com/homepage").is_none());
    }

    #[test]
    fn secrets_and_registries_are_found() {
        assert!(breach(concat!("key = AK", "IA0123456789ABCDEF")).is_some());
        assert!(breach(concat!("key = AK", "IAIOSFODNN7EXAMPLE")).is_none());
        assert!(breach(concat!("GOPROXY", "=http://mirror")).is_some());
        assert!(breach(concat!("-----BEGIN ", "PRIVATE KEY-----")).is_some());
    }
}
