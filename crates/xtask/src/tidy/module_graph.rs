//! The graph of a crate's files: which file imports names of which other.
//!
//! Owns the resolution of `use` declarations. An import leads to the file that defines the name, through all re-exports: a name that a module
//! exports again is no way around a circle. Paths in code without a `use` declaration are not followed.

use super::imports::{Import, imports, without_comment};
use super::tree::{File, Tree};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Keywords before the name of a definition.
const DEFINING_KEYWORDS: [&str; 9] =
    ["struct", "enum", "fn", "trait", "type", "const", "static", "union", "macro_rules!"];

/// Number of re-exports that are followed. Only names that re-export each other have more.
const EXPORTS_MAX: usize = 16;

/// A file of a crate, as a module.
#[derive(Debug)]
pub(crate) struct Module<'t> {
    pub(crate) file: &'t File,
    path: Vec<String>,
    imports: Vec<Import>,
}

/// The modules of a crate, and the modules that each imports names of.
#[derive(Debug)]
pub(crate) struct ModuleGraph<'t> {
    pub(crate) modules: Vec<Module<'t>>,
    by_path: BTreeMap<Vec<String>, usize>,
    edges: Vec<BTreeSet<usize>>,
}

impl<'t> ModuleGraph<'t> {
    /// Returns the graph of a crate, without its tests.
    pub(crate) fn of_crate(tree: &'t Tree, name: &str) -> Self {
        let (mut modules, mut by_path) = (Vec::new(), BTreeMap::new());
        for file in tree.sources().filter(|file| file.crate_name() == Some(name)) {
            let lines = file.lines_outside_tests();
            let Some(path) = module_path(&file.path).filter(|_| !lines.is_empty()) else { continue };
            // A crate with `lib.rs` and `main.rs` has two roots: the graph is that of the library.
            if by_path.contains_key(&path) {
                continue;
            }
            by_path.insert(path.clone(), modules.len());
            let imports = imports(lines.into_iter().map(|(_, line)| line));
            modules.push(Module { file, path, imports });
        }
        let mut graph = Self { modules, by_path, edges: Vec::new() };
        graph.edges = (0..graph.modules.len()).map(|module| graph.imported_modules(module)).collect();
        graph
    }

    /// Returns the module that defines a name which `module` uses, if the name is the crate's.
    pub(crate) fn definer(&self, module: usize, name: &str) -> Option<usize> {
        let import = self.modules[module].imports.iter().find(|import| import.name == name)?;
        self.resolve(&self.absolute(module, &import.path)?, EXPORTS_MAX)
    }

    /// Returns the circles: sets of several modules that all lead to each other, the largest first.
    pub(crate) fn circles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.modules.len()).map(|from| self.reachable(from)).collect();
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for module in 0..self.modules.len() {
            if circles.iter().any(|circle| circle.contains(&module)) {
                continue;
            }
            let circle: Vec<usize> =
                reached[module].iter().copied().filter(|other| reached[*other].contains(&module)).collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// Returns the shortest way from a module back to itself.
    pub(crate) fn shortest_cycle(&self, start: usize) -> Vec<usize> {
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        let mut waiting = VecDeque::from([start]);
        while let Some(module) = waiting.pop_front() {
            for &next in &self.edges[module] {
                if let Entry::Vacant(entry) = before.entry(next) {
                    entry.insert(module);
                    waiting.push_back(next);
                }
            }
        }
        let mut cycle = vec![start];
        let mut at = start;
        while let Some(&previous) = before.get(&at) {
            cycle.push(previous);
            at = previous;
            if at == start {
                break;
            }
        }
        cycle.reverse();
        cycle
    }

    /// Returns the name of a module for messages.
    pub(crate) fn name(&self, module: usize) -> String {
        match self.modules[module].path.as_slice() {
            [] => "crate".to_owned(),
            path => path.join("::"),
        }
    }

    fn imported_modules(&self, module: usize) -> BTreeSet<usize> {
        let mut imported = BTreeSet::new();
        for import in &self.modules[module].imports {
            let Some(path) = self.absolute(module, &import.path) else { continue };
            let is_below = path.starts_with(&self.modules[module].path) && import.path[0] != "crate";
            // A module that exports the names of its children does not use them.
            if import.is_export && is_below {
                continue;
            }
            imported.extend(self.resolve(&path, EXPORTS_MAX).filter(|other| *other != module));
        }
        imported
    }

    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![from]);
        while let Some(module) = waiting.pop() {
            waiting.extend(self.edges[module].iter().filter(|next| reached.insert(**next)));
        }
        reached
    }

    /// Returns a path from the crate's root; `None` for a path of another crate.
    fn absolute(&self, module: usize, path: &[String]) -> Option<Vec<String>> {
        let own = &self.modules[module].path;
        let first = path.first()?;
        match first.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([own.as_slice(), &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                let parent = own.get(..own.len().checked_sub(ups)?)?;
                Some([parent, &path[ups..]].concat())
            }
            _ => {
                let child = [own.as_slice(), std::slice::from_ref(first)].concat();
                self.by_path.contains_key(&child).then(|| [own.as_slice(), path].concat())
            }
        }
    }

    /// Returns the module that defines what a path from the root names.
    fn resolve(&self, path: &[String], exports_left: usize) -> Option<usize> {
        let is_glob = path.last().is_some_and(|last| last == "*");
        let path = if is_glob { &path[..path.len() - 1] } else { path };
        let len = (0..=path.len()).rev().find(|len| self.by_path.contains_key(&path[..*len]))?;
        let module = self.by_path[&path[..len]];
        let Some(name) = path.get(len).filter(|_| exports_left > 0) else { return Some(module) };
        let imports = &self.modules[module].imports;
        if let Some(import) = imports.iter().find(|import| import.name == *name) {
            let imported = self.absolute(module, &import.path).map(|base| [&base, &path[len + 1..]].concat());
            return imported.map_or(Some(module), |path| self.resolve(&path, exports_left - 1));
        }
        let globs = imports.iter().filter(|import| import.is_export && import.name == "*");
        let mut exported =
            globs.filter_map(|glob| self.resolve(&self.absolute(module, &glob.path)?, exports_left - 1));
        Some(exported.find(|other| self.modules[*other].defines(name)).unwrap_or(module))
    }
}

impl Module<'_> {
    fn defines(&self, name: &str) -> bool {
        let is_definition = |line: &str| {
            let words: Vec<&str> = without_comment(line)
                .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '!')))
                .filter(|word| !word.is_empty())
                .collect();
            words.windows(2).any(|pair| DEFINING_KEYWORDS.contains(&pair[0]) && pair[1] == name)
        };
        self.file.lines().any(|(_, line)| is_definition(line))
    }
}

/// Returns the path of a file's module from the crate's root; `None` for a file outside `src`, and for the root of another binary.
fn module_path(path: &str) -> Option<Vec<String>> {
    let inside = path.split('/').skip(2).collect::<Vec<_>>();
    let ["src", folders @ .., file] = inside.as_slice() else { return None };
    let mut module: Vec<String> = folders.iter().map(|folder| (*folder).to_owned()).collect();
    match (folders, file.strip_suffix(".rs")?) {
        (["bin", ..], _) => return None,
        ([], "lib" | "main") => {}
        (_, "mod") => {}
        (_, name) => module.push(name.to_owned()),
    }
    Some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let tree = Tree::of(files);
        let graph = ModuleGraph::of_crate(&tree, "vfs");
        let names = |circle: Vec<usize>| circle.into_iter().map(|module| graph.name(module)).collect();
        graph.circles().into_iter().map(names).collect()
    }

    #[test]
    fn a_circle_is_found() {
        let files = [
            ("crates/vfs/src/a.rs", "use crate::b::B;\n"),
            ("crates/vfs/src/b.rs", "use super::c;\n"),
            ("crates/vfs/src/c.rs", "use crate::{a::A, d};\n"),
            ("crates/vfs/src/d.rs", "use store::Key;\n"),
            ("crates/vfs/src/lib.rs", "mod a;\n"),
        ];
        assert_eq!(circles(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn a_re_export_leads_to_the_definition() {
        let files = [
            ("crates/vfs/src/lib.rs", "pub use a::*;\npub use b::B;\n"),
            ("crates/vfs/src/a.rs", "use crate::B;\npub struct A;\n"),
            ("crates/vfs/src/b.rs", "use crate::A;\n"),
        ];
        assert_eq!(circles(&files), [["a", "b"]]);
    }

    #[test]
    fn an_export_of_a_child_is_no_use_and_tests_do_not_count() {
        let files = [
            ("crates/vfs/src/a/mod.rs", "pub(crate) use b::B;\nstruct A;\n"),
            ("crates/vfs/src/a/b.rs", "use super::A;\n"),
            ("crates/vfs/src/c.rs", "#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n"),
            ("crates/vfs/src/d.rs", "use crate::c;\n"),
        ];
        assert_eq!(circles(&files), [] as [Vec<String>; 0]);
    }

    #[test]
    fn the_shortest_cycle_is_shown() {
        let tree = Tree::of(&[
            ("crates/vfs/src/a.rs", "use crate::{b, c};\n"),
            ("crates/vfs/src/b.rs", "use crate::c;\n"),
            ("crates/vfs/src/c.rs", "use crate::a;\n"),
        ]);
        let graph = ModuleGraph::of_crate(&tree, "vfs");
        let cycle: Vec<String> =
            graph.shortest_cycle(0).into_iter().map(|module| graph.name(module)).collect();
        assert_eq!(cycle, ["a", "c", "a"]);
    }
}
