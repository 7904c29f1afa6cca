//! Parser of `use` declarations, as far as rustfmt writes them.

/// One imported path, and the name that it has in the importing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// Name in the importing file; `*` for a glob import.
    pub(crate) name: String,
    /// Whether the declaration exports the name again.
    pub(crate) is_export: bool,
}

/// Returns the imports of a file, given its lines.
pub(crate) fn imports<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut lines = lines.into_iter().map(without_comment);
    while let Some(line) = lines.next() {
        let Some((is_export, begin)) = declaration(line) else { continue };
        let mut tree = begin.to_owned();
        while !tree.contains(';') {
            let Some(next) = lines.next() else { break };
            tree.push_str(next);
        }
        let tree = tree.split(';').next().unwrap_or_default();
        expand(tree, &[], is_export, &mut imports);
    }
    imports
}

/// Returns the line before a comment. Cuts a string that contains `//`, too.
pub(crate) fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Returns the text after a visibility, and whether there was one.
pub(crate) fn split_visibility(text: &str) -> (bool, &str) {
    let Some(rest) = text.strip_prefix("pub") else { return (false, text) };
    match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => (true, rest.trim_start()),
        None if rest.starts_with(' ') => (true, rest.trim_start()),
        None => (false, text),
    }
}

/// Returns whether a line that begins a `use` declaration exports names, and the text after `use`.
fn declaration(line: &str) -> Option<(bool, &str)> {
    let (is_export, rest) = split_visibility(line.trim());
    Some((is_export, rest.strip_prefix("use ")?))
}

/// Adds the imports of a tree like `a::{b, c::{self, d as e}}` below a prefix.
fn expand(tree: &str, prefix: &[String], is_export: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((path, group)) = tree.split_once('{') {
        let prefix = [prefix, &segments(path)].concat();
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        split_group(group).into_iter().for_each(|part| expand(part, &prefix, is_export, imports));
        return;
    }
    let (path, alias) =
        tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = [prefix, &segments(path)].concat();
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let Some(name) = alias.map(str::to_owned).or_else(|| path.last().cloned()) else { return };
    imports.push(Import { path, name, is_export });
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// Splits a group at the commas outside of inner groups.
fn split_group(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[begin..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        let shown = |import: Import| format!("{}={}", import.name, import.path.join("::"));
        imports(text.lines()).into_iter().map(shown).collect()
    }

    #[test]
    fn groups_and_aliases_are_expanded() {
        let text = "use crate::a::{self, b, c::{D, E as F}};\n    use super::*;\nlet used = 1;\n";
        assert_eq!(
            parsed(text),
            ["a=crate::a", "b=crate::a::b", "D=crate::a::c::D", "F=crate::a::c::E", "*=super::*"]
        );
    }

    #[test]
    fn a_declaration_may_have_several_lines_and_comments() {
        let text = "pub(crate) use child::{ // exported\n    One,\n    Two,\n};\n";
        assert_eq!(parsed(text), ["One=child::One", "Two=child::Two"]);
        assert!(imports(text.lines()).iter().all(|import| import.is_export));
        assert!(!imports(["use a::b;"])[0].is_export);
    }
}
