//! Sizes of structs: their fields, and their methods over all `impl` blocks of their crate.
//!
//! Relies on the layout of rustfmt: an item ends at the closing brace with the indentation of its first line.

use super::imports::{split_visibility, without_comment};
use super::module_graph::ModuleGraph;
use super::tree::Tree;

/// Words that may come before `fn`.
const FN_QUALIFIERS: [&str; 4] = ["default ", "const ", "async ", "unsafe "];

/// Traits whose derivation makes a struct a declaration of command-line flags.
const FLAG_TRAITS: [&str; 2] = ["Args", "Parser"];

/// The size of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StructSize {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) fields: usize,
    /// Functions of all `impl` blocks, also of traits.
    pub(crate) functions: usize,
    /// Functions that take `self`.
    methods: usize,
    declares_flags: bool,
}

impl StructSize {
    /// Whether the struct only carries values: no function takes `self`, or the fields are flags.
    pub(crate) fn is_plain_data(&self) -> bool {
        self.methods == 0 || self.declares_flags
    }
}

/// Returns the sizes of a crate's structs, outside of tests. Structs without named fields have no fields here.
pub(crate) fn struct_sizes(tree: &Tree, crate_name: &str) -> Vec<StructSize> {
    let graph = ModuleGraph::of_crate(tree, crate_name);
    let (mut structs, mut blocks, mut aliases) = (Vec::new(), Vec::new(), Vec::new());
    for (module, found) in graph.modules.iter().enumerate() {
        let lines = found.file.product_lines();
        let lines: Vec<(usize, &str)> =
            lines.into_iter().map(|(number, line)| (number, without_comment(line).trim_end())).collect();
        for (at, (_, line)) in lines.iter().enumerate() {
            structs.extend(parse_struct(&lines, at, &found.file.path).map(|size| (module, size)));
            if line.trim_start().starts_with("impl") {
                blocks.extend(parse_impl(&lines, at).map(|block| (module, block)));
            }
            aliases.extend(parse_alias(line));
        }
    }
    for (module, mut block) in blocks {
        if let Some((_, of)) = aliases.iter().find(|(alias, _)| *alias == block.of) {
            block.of.clone_from(of);
        }
        if let Some(size) = find_struct(&mut structs, &graph, module, &block.of) {
            size.functions += block.functions;
            size.methods += block.methods;
        }
    }
    structs.into_iter().map(|(_, size)| size).collect()
}

/// Returns the struct of a name that a module uses: its own, the imported one, or the only one of the crate.
fn find_struct<'s>(
    structs: &'s mut [(usize, StructSize)],
    graph: &ModuleGraph<'_>,
    module: usize,
    name: &str,
) -> Option<&'s mut StructSize> {
    let all: Vec<usize> = (0..structs.len()).filter(|at| structs[*at].1.name == name).collect();
    let of_module = |module: usize| all.iter().copied().find(|at| structs[*at].0 == module);
    let imported = || graph.definer(module, name).and_then(of_module);
    let only = || if let [only] = all.as_slice() { Some(*only) } else { None };
    let at = of_module(module).or_else(imported).or_else(only)?;
    Some(&mut structs[at].1)
}

/// An `impl` block.
struct ImplBlock {
    /// Name of the type.
    of: String,
    functions: usize,
    methods: usize,
}

fn parse_struct(lines: &[(usize, &str)], at: usize, path: &str) -> Option<StructSize> {
    let (number, line) = lines[at];
    let (_, rest) = split_visibility(line.trim_start());
    let name = identifier(rest.strip_prefix("struct ")?);
    let is_attribute = |line: &str| line.is_empty() || line.trim_start().starts_with(['#', ')']);
    let attributes = lines[..at].iter().rev().map(|(_, line)| *line).take_while(|line| is_attribute(line));
    let declares_flags = attributes
        .filter_map(|line| line.trim_start().strip_prefix("#[derive("))
        .any(|traits| traits.split([',', ')']).any(|name| FLAG_TRAITS.contains(&name.trim())));
    let is_field = |line: &&str| {
        let (_, text) = split_visibility(line.trim_start());
        let name = identifier(text);
        !name.is_empty() && text[name.len()..].starts_with(": ")
    };
    let fields = body(lines, at).filter(is_field).count();
    let (path, name) = (path.to_owned(), name.to_owned());
    Some(StructSize { path, line: number, name, fields, functions: 0, methods: 0, declares_flags })
}

/// Returns the name of a type alias and that of its type.
fn parse_alias(line: &str) -> Option<(String, String)> {
    let (_, rest) = split_visibility(line);
    let (name, of) = rest.strip_prefix("type ")?.split_once(" = ")?;
    Some((identifier(name).to_owned(), identifier(of).to_owned()))
}

fn parse_impl(lines: &[(usize, &str)], at: usize) -> Option<ImplBlock> {
    let (header, _) = header(lines, at);
    let text = skip_generics(header.trim_start().strip_prefix("impl")?);
    let of = text.split_once(" for ").map_or(text, |(_, of)| of);
    let of = of.trim_start().trim_start_matches('&');
    let of = identifier(of.split(['<', ' ', '{']).next()?.rsplit("::").next()?);
    let (mut functions, mut methods) = (0, 0);
    let indent = indentation(lines[at].1) + 4;
    for (offset, (_, line)) in
        lines[at + 1..].iter().enumerate().take_while(|(_, (_, line))| !ends(line, indent - 4))
    {
        if indentation(line) == indent && is_function(line) {
            let signature = lines[at + 1 + offset..].iter().map(|(_, line)| *line);
            functions += 1;
            methods += usize::from(takes_self(signature));
        }
    }
    (!of.is_empty()).then(|| ImplBlock { of: of.to_owned(), functions, methods })
}

/// Returns an item's lines up to its opening brace, as one text, and their number.
fn header(lines: &[(usize, &str)], at: usize) -> (String, usize) {
    let ends = |line: &str| line.ends_with(['{', ';', '}']);
    let count = lines[at..].iter().take_while(|(_, line)| !ends(line)).count() + 1;
    let header: Vec<&str> = lines[at..].iter().take(count).map(|(_, line)| *line).collect();
    (header.join(" "), count)
}

/// Returns the lines of an item's body that are directly in it; none for an item without braces.
fn body<'l>(lines: &'l [(usize, &'l str)], at: usize) -> impl Iterator<Item = &'l str> {
    let indent = indentation(lines[at].1);
    let (header, count) = header(lines, at);
    let has_body = header.ends_with('{');
    let inside = lines[at..].iter().skip(count).map(|(_, line)| *line);
    inside
        .take_while(move |line| has_body && !ends(line, indent))
        .filter(move |line| indentation(line) == indent + 4)
}

/// Whether a line closes the item that began with this indentation.
fn ends(line: &str, indent: usize) -> bool {
    indentation(line) == indent && line.trim_start().starts_with('}')
}

fn is_function(line: &str) -> bool {
    let (_, mut text) = split_visibility(line.trim_start());
    while let Some(rest) = FN_QUALIFIERS.iter().find_map(|word| text.strip_prefix(word)) {
        text = rest;
    }
    text.starts_with("fn ")
}

/// Whether a function takes `self`, given the lines from its signature on.
fn takes_self<'l>(lines: impl Iterator<Item = &'l str>) -> bool {
    for line in lines {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if words.any(|word| word == "self") {
            return true;
        }
        if line.contains(')') {
            return false;
        }
    }
    false
}

/// Returns the text after generic parameters, if it begins with them.
fn skip_generics(text: &str) -> &str {
    if !text.starts_with('<') {
        return text;
    }
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
        before = c;
    }
    text
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(files: &[(&str, &str)]) -> Vec<(String, usize, usize, bool)> {
        let found = struct_sizes(&Tree::of(files), "vfs").into_iter();
        found.map(|size| (size.name.clone(), size.fields, size.functions, size.is_plain_data())).collect()
    }

    #[test]
    fn fields_and_functions_of_all_files_are_counted() {
        let files = [
            (
                "crates/vfs/src/a.rs",
                "#[derive(Debug)]\npub(crate) struct Log<T>\nwhere\n    T: Clone,\n{\n    /// Length: bytes.\n    pub(super) len: u64,\n    parts: Vec<T>, // all: parts\n}\n\nimpl<T: Fn() -> u8> Log<T> {\n    pub(crate) const fn new(len: u64) -> Self {\n        fn inner() {}\n    }\n}\n",
            ),
            (
                "crates/vfs/src/b.rs",
                "use crate::a::Log;\nimpl Display for Log<u8> {\n    async fn fmt(\n        &self,\n        f: u8,\n    ) {\n    }\n}\n",
            ),
        ];
        assert_eq!(sizes(&files), [("Log".to_owned(), 2, 2, false)]);
    }

    #[test]
    fn structs_of_one_name_are_distinguished() {
        let files = [
            ("crates/vfs/src/a.rs", "struct Pair(u8, u8);\nimpl Pair {\n    fn new() {}\n}\n"),
            ("crates/vfs/src/b.rs", "struct Pair {\n    one: u8,\n}\n"),
            (
                "crates/vfs/src/c.rs",
                "use super::b::Pair;\nimpl Pair {\n    fn a(self) {}\n    fn b() {}\n}\n",
            ),
        ];
        assert_eq!(sizes(&files), [("Pair".to_owned(), 0, 1, true), ("Pair".to_owned(), 1, 2, false)]);
    }

    #[test]
    fn functions_of_an_alias_belong_to_its_struct() {
        let text =
            "struct Pair<T> {\n    one: T,\n}\ntype Twins = Pair<u8>;\nimpl Twins {\n    fn a(self) {}\n}\n";
        assert_eq!(sizes(&[("crates/vfs/src/a.rs", text)]), [("Pair".to_owned(), 1, 1, false)]);
    }

    #[test]
    fn flags_are_plain_data() {
        let text = "#[derive(Debug, Args)]\n#[command(about = \"x\")]\nstruct Mount {\n    a: u8,\n}\nimpl Mount {\n    fn run(self) {}\n}\n";
        assert_eq!(sizes(&[("crates/vfs/src/a.rs", text)]), [("Mount".to_owned(), 1, 1, true)]);
    }
}
