//! Checks of the structure of crates: circles of files, and structs that own too much.

use super::Finding;
use super::module_graph::ModuleGraph;
use super::struct_sizes::{StructSize, struct_sizes};
use super::tree::Tree;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Maximum number of files that all lead to each other.
const CIRCLE_FILES_MAX: usize = 3;
/// Maximum number of fields of a struct that is more than data.
const FIELDS_MAX: usize = 12;
/// Maximum number of functions of a struct.
const FUNCTIONS_MAX: usize = 60;

/// Structs that may be larger, each with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("analyze", "Trace", "plain data: what was recorded, by kind"),
    ("cli", "Status", "a reply of the control socket"),
    ("meta", "Inode", "a record of the metadata engine"),
    ("vfs", "Attr", "plain data: the attributes that POSIX lists"),
    ("vfs", "Config", "the settings of a mount"),
];

/// Checks that no more than [`CIRCLE_FILES_MAX`] files of a crate lead to each other.
pub(crate) fn circles(tree: &Tree) -> Vec<Finding> {
    crates(tree).iter().filter_map(|name| circle_finding(tree, name)).collect()
}

fn circle_finding(tree: &Tree, name: &str) -> Option<Finding> {
    let graph = ModuleGraph::of_crate(tree, name);
    let circles: Vec<Vec<usize>> =
        graph.circles().into_iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX).collect();
    let files: usize = circles.iter().map(Vec::len).sum();
    let largest = circles.first()?;
    let names: Vec<String> = largest.iter().map(|module| graph.name(*module)).collect();
    let cycles = largest.iter().map(|module| graph.shortest_cycle(*module));
    let cycle: Vec<String> =
        cycles.min_by_key(Vec::len)?.into_iter().map(|module| graph.name(module)).collect();
    let path = &graph.modules[largest[0]].file.path;
    let message = format!(
        "{files} files of `{name}` are in circles of more than {CIRCLE_FILES_MAX}. The largest: {}. One cycle: {}. Move what both sides need below both",
        names.join(", "),
        cycle.join(" -> ")
    );
    Some(Finding::new(path, 0, message))
}

/// Checks that structs are small, unless they are plain data.
pub(crate) fn structs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in crates(tree) {
        for size in struct_sizes(tree, &name).iter().filter(|size| is_too_large(&name, size)) {
            let message = format!(
                "`{}` has {} fields and {} functions, more than {FIELDS_MAX} or {FUNCTIONS_MAX}: give parts of it owners",
                size.name, size.fields, size.functions
            );
            findings.push(Finding::new(&size.path, size.line, message));
        }
    }
    findings
}

fn is_too_large(crate_name: &str, size: &StructSize) -> bool {
    let is_excepted = EXCEPTIONS.iter().any(|(of, name, _)| *of == crate_name && *name == size.name);
    let is_large = size.fields > FIELDS_MAX || size.functions > FUNCTIONS_MAX;
    is_large && !is_excepted && !size.is_plain_data()
}

/// Describes the circles and the largest structs of each crate, one line per crate, and the worst below it.
pub(crate) fn summary(tree: &Tree) -> String {
    let mut text = String::new();
    for name in crates(tree) {
        let graph = ModuleGraph::of_crate(tree, &name);
        let circles = graph.circles();
        let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        let _ = writeln!(text, "{name}: {} files, circles of {sizes:?} files", graph.modules.len());
        for circle in circles.iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX) {
            let names: Vec<String> = circle.iter().map(|module| graph.name(*module)).collect();
            let _ = writeln!(text, "  circle: {}", names.join(", "));
        }
        let mut large: Vec<StructSize> = struct_sizes(tree, &name);
        large.retain(|size| size.fields > FIELDS_MAX || size.functions > FUNCTIONS_MAX);
        large.sort_by_key(|size| std::cmp::Reverse(size.fields + size.functions));
        for size in large {
            let plain = if size.is_plain_data() { ", plain data" } else { "" };
            let StructSize { path, line, name, fields, functions, .. } = size;
            let _ =
                writeln!(text, "  {path}:{line}: {name} has {fields} fields, {functions} functions{plain}");
        }
    }
    text
}

/// Returns the names of all crates.
fn crates(tree: &Tree) -> BTreeSet<String> {
    tree.sources().filter_map(|file| file.crate_name().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_four_files_is_found_with_a_cycle() {
        let ring = |next: &str| format!("use crate::{next};\n");
        let (a, b, c, d) = (ring("b"), ring("c"), ring("d"), ring("a"));
        let files = [
            ("crates/listen/src/a.rs", a.as_str()),
            ("crates/listen/src/b.rs", b.as_str()),
            ("crates/listen/src/c.rs", c.as_str()),
        ];
        assert_eq!(circles(&Tree::of(&files)), []);
        let tree = Tree::of(&[files.as_slice(), &[("crates/listen/src/d.rs", d.as_str())]].concat());
        let found = circles(&tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("a -> b -> c -> d -> a"), "{}", found[0]);
    }

    #[test]
    fn a_large_struct_is_found_unless_it_is_plain_data() {
        let fields: String = (0..=FIELDS_MAX).map(|n| format!("    f{n}: u8,\n")).collect();
        let plain = format!("struct Large {{\n{fields}}}\n");
        assert_eq!(structs(&Tree::of(&[("crates/listen/src/a.rs", &plain)])), []);
        let with_method = format!("{plain}impl Large {{\n    fn get(&self) {{}}\n}}\n");
        assert_eq!(structs(&Tree::of(&[("crates/listen/src/a.rs", &with_method)])).len(), 1);
        assert_eq!(structs(&Tree::of(&[("crates/sim/src/a.rs", &with_method)])), []);
    }
}
