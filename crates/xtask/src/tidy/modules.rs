//! Checks of modules: every file is part of its crate, a crate has one integration test binary, and `meta` has no async code.

use super::Finding;
use super::tree::{File, Tree};

/// Checks that every file is declared by its parent module. rustc ignores undeclared files.
pub(crate) fn undeclared_files(tree: &Tree) -> Vec<Finding> {
    let undeclared = tree.sources().filter(|file| !is_root(&file.path) && !is_declared(tree, file));
    undeclared
        .map(|file| {
            Finding::new(
                &file.path,
                0,
                "no module declares this file, so it is not compiled: add a `mod` declaration",
            )
        })
        .collect()
}

/// Checks that integration tests are modules of `tests/main.rs`, as every further test binary links all dependencies again.
pub(crate) fn integration_binaries(tree: &Tree) -> Vec<Finding> {
    let is_extra = |file: &&File| {
        let inside = file.path.split('/').skip(2).collect::<Vec<_>>();
        matches!(inside.as_slice(), ["tests", name] if *name != "main.rs") && !is_declared(tree, file)
    };
    let extra = tree.sources().filter(is_extra);
    extra
        .map(|file| Finding::new(&file.path, 0, "a second integration binary: make it a module of main.rs"))
        .collect()
}

/// Checks that the crate `meta` has no async code.
pub(crate) fn async_in_meta(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources().filter(|file| file.crate_name() == Some("meta")) {
        let is_async = |line: &str| line.contains(".await") || line.contains("async fn");
        let lines = file.product_lines().into_iter().filter(|(_, line)| is_async(line));
        findings.extend(
            lines.map(|(number, _)| Finding::new(&file.path, number, "`meta` must not have async code")),
        );
    }
    findings
}

/// Whether the file is a root module, which cargo finds without a declaration.
fn is_root(path: &str) -> bool {
    let inside: Vec<&str> = path.split('/').skip(2).collect();
    matches!(
        inside.as_slice(),
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["tests" | "benches" | "examples", _]
    )
}

fn is_declared(tree: &Tree, file: &File) -> bool {
    let Some((folder, name)) = file.path.rsplit_once('/') else { return false };
    let (folder, module) = match (name.trim_end_matches(".rs"), folder.rsplit_once('/')) {
        ("mod", Some((above, module))) => (above, module),
        (module, _) => (folder, module),
    };
    let parents = [
        format!("{folder}/mod.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}/main.rs"),
        format!("{folder}.rs"),
    ];
    let declaration = format!("mod {module};");
    let declares = |parent: &File| parent.text.lines().any(|line| is_declaration(line, &declaration));
    parents.iter().filter_map(|path| tree.file(path)).any(declares)
}

/// Whether the line is the declaration, with or without a visibility before it.
fn is_declaration(line: &str, declaration: &str) -> bool {
    let before = line.trim().strip_suffix(declaration);
    before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn an_undeclared_file_is_found() {
        let tree = Tree::of(&[
            ("crates/vfs/src/lib.rs", "mod read;\npub(crate) mod write;\n"),
            ("crates/vfs/src/read.rs", "mod ahead;\n"),
            ("crates/vfs/src/read/ahead.rs", ""),
            ("crates/vfs/src/read/behind.rs", ""),
            ("crates/vfs/src/write/mod.rs", ""),
            ("crates/vfs/src/lost.rs", ""),
            ("crates/vfs/tests/main.rs", "mod seen;\n"),
            ("crates/vfs/tests/seen.rs", ""),
        ]);
        assert_eq!(
            paths(undeclared_files(&tree)),
            ["crates/vfs/src/read/behind.rs", "crates/vfs/src/lost.rs"]
        );
    }

    #[test]
    fn a_second_integration_binary_is_found() {
        let tree = Tree::of(&[
            ("crates/vfs/tests/main.rs", "mod a;\n"),
            ("crates/vfs/tests/a.rs", ""),
            ("crates/vfs/tests/b.rs", ""),
        ]);
        assert_eq!(paths(integration_binaries(&tree)), ["crates/vfs/tests/b.rs"]);
    }

    #[test]
    fn async_code_in_meta_is_found() {
        let tree =
            Tree::of(&[("crates/meta/src/lib.rs", "a.await;\n"), ("crates/vfs/src/lib.rs", "a.await;\n")]);
        assert_eq!(paths(async_in_meta(&tree)), ["crates/meta/src/lib.rs"]);
    }
}
