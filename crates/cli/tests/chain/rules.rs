//! Rulesets, each together with a predicate in Rust that selects the same objects without using the code under test.

use std::collections::BTreeMap;

/// An object with everything that a listing and a GET return.
#[derive(Debug, Clone)]
pub(super) struct StoredObject {
    pub(super) bucket: &'static str,
    pub(super) key: String,
    pub(super) etag: String,
    pub(super) body: Vec<u8>,
    pub(super) content_type: String,
    pub(super) properties: BTreeMap<String, String>,
    pub(super) tags: BTreeMap<String, String>,
}

impl StoredObject {
    /// Returns the object's path in a view that has directories. The last components of all keys in a test are
    /// distinct.
    pub(super) fn path(&self) -> String {
        let name = self.key.rsplit('/').next().unwrap();
        match self.properties.get("tenon-directory") {
            Some(directory) => format!("{directory}/{name}"),
            None => name.to_owned(),
        }
    }

    fn is(&self, property: &str, value: &str) -> bool {
        self.properties.get(property).is_some_and(|is| is == value)
    }
}

/// A ruleset and a predicate that tells which objects it shows.
pub(super) struct Rules {
    pub(super) name: &'static str,
    pub(super) yaml: &'static str,
    pub(super) shows: fn(&StoredObject) -> bool,
}

pub(super) const BUCKETS: [&str; 2] = ["one", "two"];

pub(super) const RULES: [Rules; 7] = [
    Rules { name: "all", yaml: "container: one", shows: |seen| seen.bucket == "one" },
    Rules {
        name: "green",
        yaml: "container: [one, two]\n  properties: {color: green}",
        shows: |seen| seen.is("color", "green"),
    },
    Rules {
        name: "alternatives",
        yaml: "container: '*'\n  properties: {color: [red, 'bl*'], stage: null}\n  output: {container: one}",
        shows: |seen| {
            let is_blue = seen.properties.get("color").is_some_and(|color| color.starts_with("bl"));
            (seen.is("color", "red") || is_blue) && !seen.properties.contains_key("stage")
        },
    },
    Rules {
        name: "small",
        yaml: "container: one\n  object: 'd1/*.txt'\n  size: '<=4'",
        shows: |seen| {
            let name = seen.key.strip_prefix("d1/").filter(|name| !name.contains('/'));
            seen.bucket == "one" && name.is_some_and(|name| name.ends_with(".txt")) && seen.body.len() <= 4
        },
    },
    Rules {
        name: "tagged",
        yaml: "container: two\n  tags: {project: [apollo, gemini]}",
        shows: |seen| {
            let project = seen.tags.get("project").map(String::as_str);
            seen.bucket == "two" && matches!(project, Some("apollo" | "gemini"))
        },
    },
    Rules {
        name: "untagged",
        yaml: "container: two\n  object: '**/*.bin'\n  tags: {project: null}",
        shows: |seen| {
            seen.bucket == "two" && seen.key.ends_with(".bin") && !seen.tags.contains_key("project")
        },
    },
    Rules {
        name: "texts",
        yaml: "container: '*'\n  content_type: 'text/*'\n  directories: off\n  output: {container: two}",
        shows: |seen| seen.content_type.starts_with("text/"),
    },
];

/// Returns all rulesets as a file.
pub(super) fn file() -> String {
    RULES.iter().map(|rules| format!("{}:\n  recency: 0\n  {}\n", rules.name, rules.yaml)).collect()
}
