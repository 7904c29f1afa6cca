//! Checks of Markdown documents: every relative link leads to an existing file, folder or heading, and the index of decisions lists every
//! decision record.

use super::Finding;
use super::tree::Tree;

const DECISIONS: &str = "docs/decisions/";

/// Checks that relative links resolve.
pub(crate) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in prose_lines(&file.text) {
            let broken = link_targets(line).filter(|target| !resolves(tree, &file.path, target));
            findings.extend(
                broken.map(|target| Finding::new(&file.path, number, format!("broken link '{target}'"))),
            );
        }
    }
    findings
}

/// Checks that the index of decisions lists every record.
pub(crate) fn decisions(tree: &Tree) -> Vec<Finding> {
    let index = format!("{DECISIONS}README.md");
    let text = tree.file(&index).map_or("", |file| file.text.as_str());
    let names = tree.files().iter().filter_map(|file| file.path.strip_prefix(DECISIONS));
    let missing = names.filter(|name| *name != "README.md" && !text.contains(&format!("({name})")));
    missing.map(|name| Finding::new(&index, 0, format!("{name} is missing from the index"))).collect()
}

/// Returns the lines outside code fences, with their numbers.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// Returns the targets of the links `[text](target)` in a line.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split_once(')').map(|(target, _)| target))
}

fn resolves(tree: &Tree, from: &str, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.to_owned() } else { resolve_path(from, path) };
    tree.contains(&path) && (heading.is_empty() || has_heading(tree, &path, heading))
}

/// Resolves `target` relative to the folder of `from`, without `.` and `..`.
fn resolve_path(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn has_heading(tree: &Tree, path: &str, heading: &str) -> bool {
    let Some(file) = tree.file(path) else { return false };
    prose_lines(&file.text).any(|(_, line)| line.starts_with('#') && slug(line) == heading)
}

/// Returns the anchor of a heading: lower case, spaces replaced by `-`, punctuation dropped.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_link_is_found() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md) [b](docs/b.md)\n"),
            (
                "docs/a.md",
                "# One thing\n[up](../README.md) [x](#one-thing) [y](#two) [web](https://example.com)\n",
            ),
        ]);
        let found: Vec<String> = links(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(found, ["README.md:1: broken link 'docs/b.md'", "docs/a.md:2: broken link '#two'"]);
    }

    #[test]
    fn a_decision_missing_from_the_index_is_found() {
        let tree = Tree::of(&[
            ("docs/decisions/README.md", "[0001](0001-a.md)"),
            ("docs/decisions/0001-a.md", ""),
            ("docs/decisions/0002-b.md", ""),
        ]);
        assert_eq!(
            decisions(&tree),
            [Finding::new("docs/decisions/README.md", 0, "0002-b.md is missing from the index")]
        );
    }

    #[test]
    fn links_in_code_fences_are_ignored() {
        assert_eq!(links(&Tree::of(&[("a.md", "```\n[a](b)\n```\n")])), []);
    }
}
