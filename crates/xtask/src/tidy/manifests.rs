//! What the manifests may say: the crates' edges, who may use which outside crate, where versions stand.
//!
//! Invariant: an edge points down in the order of [`EDGES`]; a new crate or edge is a change here, seen in review.

use super::Finding;
use super::tree::{File, Tree};
use toml::{Table, Value};

/// Every crate and the crates of this workspace that it may depend on.
const EDGES: [(&str, &[&str]); 18] = [
    ("listen", &[]),
    ("store", &[]),
    ("sst", &[]),
    ("servers", &[]),
    ("drive", &["store", "sst"]),
    ("analyze", &["store"]),
    ("meta", &["store"]),
    ("meta-rocks", &["meta"]),
    ("vfs", &["meta", "store"]),
    ("events", &["store", "listen"]),
    ("s3", &["store", "events", "listen"]),
    ("views", &["store", "events", "listen"]),
    ("fuse", &["vfs"]),
    ("sim", &["store", "meta", "vfs", "drive"]),
    ("bench", &["store", "meta", "vfs", "fuse", "servers"]),
    ("fuzz", &["store", "meta", "events", "s3", "sst", "drive", "views"]),
    (
        "cli",
        &[
            "store",
            "meta",
            "meta-rocks",
            "vfs",
            "fuse",
            "listen",
            "events",
            "s3",
            "views",
            "drive",
            "analyze",
        ],
    ),
    (
        "xtask",
        &[
            "store", "meta", "vfs", "fuse", "events", "views", "servers", "bench", "sst", "drive", "s3",
            "analyze",
        ],
    ),
];

/// Crates that any other may use in its tests.
const TEST_ONLY: [&str; 2] = ["servers", "sim"];

/// Outside crates that belong to one concern, and who may use them.
const OWNED: [(&str, &[&str]); 12] = [
    ("fuser", &["fuse"]),
    ("clap", &["cli", "xtask", "bench"]),
    ("indicatif", &["cli", "xtask", "bench"]),
    ("tracing-subscriber", &["cli", "xtask", "bench"]),
    ("hyper", &["listen", "store", "events", "s3", "views", "servers", "bench"]),
    ("hyper-util", &["listen", "store", "events", "s3", "views", "servers", "bench"]),
    ("rustls", &["listen", "store", "s3", "views", "cli", "servers", "events"]),
    ("quick-xml", &["s3", "store"]),
    ("s3s", &["s3"]),
    ("granit-parser", &["views"]),
    ("io-uring", &["drive"]),
    ("rust-rocksdb", &["meta-rocks"]),
];

/// Checks that crates depend only on the crates below them.
pub(crate) fn edges(tree: &Tree) -> Vec<Finding> {
    let known: Vec<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == manifest.name) else {
            findings.push(manifest.finding("the crate is not in xtask's table of crates and edges".into()));
            continue;
        };
        for dependency in manifest.dependencies.iter().filter(|d| known.contains(&d.name.as_str())) {
            let name = dependency.name.as_str();
            // A crate's tests may name the crate itself, to switch on what it offers to tests (`conformance`),
            // and whatever lies below it, to build what it is given.
            let for_tests = dependency.dev
                && (TEST_ONLY.contains(&name) || name == manifest.name || is_below(name, allowed));
            if !for_tests && !allowed.contains(&name) {
                findings.push(manifest.finding(format!("'{}' must not depend on '{name}'", manifest.name)));
            }
        }
    }
    findings
}

/// Checks that every version stands once, in the workspace's manifest.
pub(crate) fn workspace_versions(tree: &Tree) -> Vec<Finding> {
    let breach = |manifest: &Manifest, dependency: &Dependency| {
        manifest.finding(format!("'{}' must say `workspace = true`", dependency.name))
    };
    findings_per_dependency(tree, |_, dependency| !dependency.from_workspace, breach)
}

/// Checks that outside crates stay with the crate that owns their concern.
pub(crate) fn owned_dependencies(tree: &Tree) -> Vec<Finding> {
    let breaks = |manifest: &Manifest, dependency: &Dependency| {
        let owners = OWNED.iter().find(|(name, _)| *name == dependency.name).map(|(_, owners)| *owners);
        !dependency.dev && owners.is_some_and(|owners| !owners.contains(&manifest.name.as_str()))
    };
    let breach = |manifest: &Manifest, dependency: &Dependency| {
        manifest.finding(format!("'{}' is not for '{}'", dependency.name, manifest.name))
    };
    findings_per_dependency(tree, breaks, breach)
}

fn findings_per_dependency(
    tree: &Tree,
    breaks: impl Fn(&Manifest, &Dependency) -> bool,
    breach: impl Fn(&Manifest, &Dependency) -> Finding,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let broken = manifest.dependencies.iter().filter(|dependency| breaks(&manifest, dependency));
        findings.extend(broken.map(|dependency| breach(&manifest, dependency)));
    }
    findings
}

#[derive(Debug)]
struct Manifest {
    path: String,
    /// The crate's name as its folder says it.
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    dev: bool,
    from_workspace: bool,
}

impl Manifest {
    fn finding(&self, what: String) -> Finding {
        Finding::at(&self.path, 0, what)
    }
}

fn manifests(tree: &Tree) -> impl Iterator<Item = Manifest> {
    let is_manifest = |file: &&File| file.path.starts_with("crates/") && file.path.ends_with("/Cargo.toml");
    tree.files().iter().filter(is_manifest).filter_map(|file| {
        let table: Table = file.text.parse().ok()?;
        let name = file.crate_name()?.to_owned();
        Some(Manifest { path: file.path.clone(), name, dependencies: dependencies(&table) })
    })
}

fn dependencies(manifest: &Table) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let mut found = Vec::new();
    for place in places {
        for (section, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let entries = place.get(section).and_then(Value::as_table).into_iter().flatten();
            found.extend(entries.map(|(name, value)| dependency(name, value, dev)));
        }
    }
    found
}

fn dependency(name: &str, value: &Value, dev: bool) -> Dependency {
    let from_workspace = value.get("workspace").and_then(Value::as_bool).unwrap_or(false);
    Dependency { name: name.to_owned(), dev, from_workspace }
}

/// Whether the crate is reached by edges from one of `above`.
fn is_below(name: &str, above: &[&str]) -> bool {
    let edges_of =
        |from: &&str| EDGES.iter().find(|(crate_name, _)| crate_name == from).map_or(&[][..], |(_, to)| *to);
    above.iter().any(|from| *from == name || is_below(name, edges_of(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(manifest: &str) -> Tree {
        Tree::of(&[("crates/meta/Cargo.toml", manifest)])
    }

    #[test]
    fn tests_may_use_whatever_lies_below() {
        let manifest = "[dev-dependencies]\nmeta.workspace = true\nstore.workspace = true\n";
        assert_eq!(edges(&Tree::of(&[("crates/fuse/Cargo.toml", manifest)])), []);
        let manifest = "[dev-dependencies]\nfuse.workspace = true\n";
        assert_eq!(edges(&Tree::of(&[("crates/vfs/Cargo.toml", manifest)])).len(), 1);
    }

    #[test]
    fn an_edge_that_points_up_is_found() {
        let findings = edges(&tree("[dependencies]\nvfs.workspace = true\nstore.workspace = true\n"));
        assert_eq!(findings, [Finding::at("crates/meta/Cargo.toml", 0, "'meta' must not depend on 'vfs'")]);
    }

    #[test]
    fn servers_are_for_tests_only() {
        assert_eq!(edges(&tree("[dev-dependencies]\nservers.workspace = true\n")), []);
        assert_eq!(edges(&tree("[dependencies]\nservers.workspace = true\n")).len(), 1);
    }

    #[test]
    fn a_crate_nobody_declared_is_found() {
        assert_eq!(edges(&Tree::of(&[("crates/stuff/Cargo.toml", "")])).len(), 1);
    }

    #[test]
    fn a_version_in_a_crate_is_found() {
        assert_eq!(workspace_versions(&tree("[dependencies]\nbytes = \"1\"\n")).len(), 1);
        assert_eq!(
            workspace_versions(&tree("[target.'cfg(unix)'.dependencies]\nlibc = { version = \"1\" }\n"))
                .len(),
            1
        );
        assert_eq!(
            workspace_versions(&tree("[dependencies]\nbytes = { workspace = true, features = [] }\n")),
            []
        );
    }

    #[test]
    fn fuse_stays_in_its_crate() {
        assert_eq!(owned_dependencies(&tree("[dependencies]\nfuser.workspace = true\n")).len(), 1);
    }
}
