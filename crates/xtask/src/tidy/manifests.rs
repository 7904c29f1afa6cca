//! Checks of the manifests: allowed dependencies between crates, owners of external crates, and versions in the workspace manifest only.
//!
//! Invariant: a new crate or a new dependency between crates needs a change of [`EDGES`], so that reviewers see it.

use super::Finding;
use super::tree::{File, Tree};
use toml::{Table, Value};

/// Every crate of the workspace, with the workspace crates that it may depend on.
const EDGES: [(&str, &[&str]); 37] = [
    ("listen", &[]),
    ("connect", &[]),
    ("metrics", &[]),
    ("otlp", &["connect", "metrics"]),
    ("store", &["metrics"]),
    ("log", &[]),
    ("store-s3", &["store", "connect", "metrics"]),
    ("store-dir", &["store"]),
    ("staging", &["store", "log"]),
    ("sst", &[]),
    ("harness", &[]),
    ("servers", &["harness"]),
    ("drive", &["store", "sst", "log"]),
    ("analyze", &["store", "store-s3", "harness"]),
    ("meta", &["store"]),
    ("meta-disk", &["meta", "sst", "log"]),
    ("meta-remote", &["meta", "store"]),
    ("meta-postgres", &["meta", "meta-remote", "connect"]),
    ("meta-redis", &["meta", "meta-remote", "connect"]),
    ("backup", &["meta", "sst", "log", "store"]),
    ("batch", &["meta", "sst", "log", "store"]),
    ("cache", &["log", "store"]),
    ("vfs", &["meta", "store", "staging", "cache"]),
    ("events", &["store", "listen", "connect"]),
    ("sources", &["events", "store", "store-s3", "connect"]),
    ("s3", &["store", "events", "listen", "metrics"]),
    ("views", &["store", "events", "listen", "connect", "log"]),
    ("console", &["store", "listen", "s3", "views"]),
    ("fuse", &["vfs", "metrics"]),
    ("csi", &["store", "fuse"]),
    ("sim", &["store", "staging", "meta", "meta-remote", "batch", "backup", "vfs", "drive"]),
    ("bench", &["store", "store-s3", "store-dir", "listen", "harness"]),
    (
        "fuzz",
        &[
            "store",
            "store-s3",
            "store-dir",
            "staging",
            "meta",
            "events",
            "sources",
            "s3",
            "sst",
            "drive",
            "views",
        ],
    ),
    (
        "cli",
        &[
            "store",
            "store-s3",
            "store-dir",
            "staging",
            "log",
            "metrics",
            "otlp",
            "meta",
            "meta-disk",
            "meta-remote",
            "meta-postgres",
            "meta-redis",
            "backup",
            "batch",
            "cache",
            "vfs",
            "fuse",
            "connect",
            "listen",
            "events",
            "sources",
            "s3",
            "views",
            "console",
            "csi",
            "drive",
            "analyze",
            "bench",
            "harness",
        ],
    ),
    ("python", &["store", "vfs", "cli"]),
    ("capi", &["store", "vfs", "cli"]),
    (
        "xtask",
        &[
            "store", "store-s3", "meta", "vfs", "fuse", "events", "sources", "views", "servers", "bench",
            "sst", "drive", "s3", "analyze", "harness",
        ],
    ),
];

/// Crates that every other crate may use in its tests.
const TEST_ONLY: [&str; 5] = ["servers", "sim", "store-s3", "store-dir", "meta-disk"];

/// External crates that only some crates may use.
const RESTRICTED: [(&str, &[&str]); 19] = [
    ("fuser", &["fuse"]),
    ("clap", &["cli", "xtask", "bench"]),
    ("indicatif", &["cli", "xtask", "bench"]),
    ("tracing-subscriber", &["cli", "xtask", "bench"]),
    ("hyper", &["listen", "store-s3", "events", "sources", "s3", "views", "console", "servers", "bench"]),
    (
        "hyper-util",
        &["listen", "connect", "store-s3", "events", "sources", "s3", "views", "console", "servers", "bench"],
    ),
    (
        "rustls",
        &[
            "listen",
            "connect",
            "store-s3",
            "meta-postgres",
            "meta-redis",
            "s3",
            "views",
            "console",
            "cli",
            "servers",
            "sources",
        ],
    ),
    ("maud", &["console"]),
    ("prost", &["otlp", "csi"]),
    ("tonic", &["csi"]),
    ("tonic-prost", &["csi"]),
    ("pyo3", &["python"]),
    ("quick-xml", &["s3", "store-s3", "console"]),
    ("s3s", &["s3"]),
    ("granit-parser", &["views"]),
    ("io-uring", &["drive"]),
    ("rust-rocksdb", &["meta-disk"]),
    ("tokio-postgres", &["meta-postgres"]),
    ("redis", &["meta-redis", "sources", "xtask"]),
];

/// Checks that crates depend only on the crates that [`EDGES`] allows.
pub(crate) fn edges(tree: &Tree) -> Vec<Finding> {
    let known: Vec<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == manifest.name) else {
            findings.push(
                manifest.finding(
                    "the crate is not in EDGES of crates/xtask/src/tidy/manifests.rs: add it".into(),
                ),
            );
            continue;
        };
        for dependency in manifest.dependencies.iter().filter(|d| known.contains(&d.name.as_str())) {
            let name = dependency.name.as_str();
            // A crate's tests may depend on the crate itself, to enable its features for tests (`conformance`), and on all its transitive
            // dependencies.
            let is_allowed_in_tests = dependency.dev
                && (TEST_ONLY.contains(&name) || name == manifest.name || is_transitive(name, allowed));
            if !is_allowed_in_tests && !allowed.contains(&name) {
                findings.push(manifest.finding(format!("'{}' must not depend on '{name}'", manifest.name)));
            }
        }
    }
    findings
}

/// Checks that versions of dependencies are stated in the workspace manifest only.
pub(crate) fn workspace_versions(tree: &Tree) -> Vec<Finding> {
    let finding = |manifest: &Manifest, dependency: &Dependency| {
        manifest.finding(format!("'{}' must be declared with `workspace = true`", dependency.name))
    };
    findings_per_dependency(tree, |_, dependency| !dependency.from_workspace, finding)
}

/// Checks that external crates of [`RESTRICTED`] are used by the listed crates only.
pub(crate) fn restricted_dependencies(tree: &Tree) -> Vec<Finding> {
    let is_forbidden = |manifest: &Manifest, dependency: &Dependency| {
        let users = RESTRICTED.iter().find(|(name, _)| *name == dependency.name).map(|(_, users)| *users);
        !dependency.dev && users.is_some_and(|users| !users.contains(&manifest.name.as_str()))
    };
    let finding = |manifest: &Manifest, dependency: &Dependency| {
        manifest.finding(format!("'{}' must not use '{}'", manifest.name, dependency.name))
    };
    findings_per_dependency(tree, is_forbidden, finding)
}

fn findings_per_dependency(
    tree: &Tree,
    is_forbidden: impl Fn(&Manifest, &Dependency) -> bool,
    finding: impl Fn(&Manifest, &Dependency) -> Finding,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let forbidden = manifest.dependencies.iter().filter(|dependency| is_forbidden(&manifest, dependency));
        findings.extend(forbidden.map(|dependency| finding(&manifest, dependency)));
    }
    findings
}

#[derive(Debug)]
struct Manifest {
    path: String,
    /// Name of the crate's folder.
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
    fn finding(&self, message: String) -> Finding {
        Finding::new(&self.path, 0, message)
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
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let mut found = Vec::new();
    for table in tables {
        for (section, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let entries = table.get(section).and_then(Value::as_table).into_iter().flatten();
            found.extend(entries.map(|(name, value)| dependency(name, value, dev)));
        }
    }
    found
}

fn dependency(name: &str, value: &Value, dev: bool) -> Dependency {
    let from_workspace = value.get("workspace").and_then(Value::as_bool).unwrap_or(false);
    Dependency { name: name.to_owned(), dev, from_workspace }
}

/// Whether the crate is one of `roots` or a transitive dependency of one.
fn is_transitive(name: &str, roots: &[&str]) -> bool {
    let edges_of =
        |from: &&str| EDGES.iter().find(|(crate_name, _)| crate_name == from).map_or(&[][..], |(_, to)| *to);
    roots.iter().any(|from| *from == name || is_transitive(name, edges_of(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(manifest: &str) -> Tree {
        Tree::of(&[("crates/meta/Cargo.toml", manifest)])
    }

    #[test]
    fn tests_may_use_transitive_dependencies() {
        let manifest = "[dev-dependencies]\nmeta.workspace = true\nstore.workspace = true\n";
        assert_eq!(edges(&Tree::of(&[("crates/fuse/Cargo.toml", manifest)])), []);
        let manifest = "[dev-dependencies]\nfuse.workspace = true\n";
        assert_eq!(edges(&Tree::of(&[("crates/vfs/Cargo.toml", manifest)])).len(), 1);
    }

    #[test]
    fn a_forbidden_dependency_is_found() {
        let findings = edges(&tree("[dependencies]\nvfs.workspace = true\nstore.workspace = true\n"));
        assert_eq!(findings, [Finding::new("crates/meta/Cargo.toml", 0, "'meta' must not depend on 'vfs'")]);
    }

    #[test]
    fn servers_may_be_used_in_tests_only() {
        assert_eq!(edges(&tree("[dev-dependencies]\nservers.workspace = true\n")), []);
        assert_eq!(edges(&tree("[dependencies]\nservers.workspace = true\n")).len(), 1);
    }

    #[test]
    fn a_crate_missing_in_edges_is_found() {
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
    fn fuser_may_be_used_by_fuse_only() {
        assert_eq!(restricted_dependencies(&tree("[dependencies]\nfuser.workspace = true\n")).len(), 1);
    }
}
