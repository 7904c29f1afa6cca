//! Which objects match a ruleset.

use std::collections::BTreeMap;
use store::Timestamp;
use views::{ObjectState, Ruleset, read};

/// 2026-06-15T12:00:00Z.
const NOW: Timestamp = Timestamp(1_781_524_800_000_000_000);
const DAY: i64 = 86_400_000_000_000;

/// An object that tests modify.
#[derive(Clone)]
struct Object {
    container: &'static str,
    key: &'static [u8],
    size_bytes: u64,
    modified: Timestamp,
    accessed: Option<Timestamp>,
    content_type: Option<&'static str>,
    properties: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

impl Object {
    fn new() -> Self {
        Self {
            container: "gecko_genome",
            key: b"eublepharis.fasta",
            size_bytes: 5000,
            modified: NOW,
            accessed: None,
            content_type: None,
            properties: [("color".to_owned(), "green".to_owned())].into(),
            tags: BTreeMap::new(),
        }
    }

    fn is_in(&self, ruleset: &Ruleset) -> bool {
        let object = ObjectState {
            container: self.container,
            key: self.key,
            size_bytes: self.size_bytes,
            modified: self.modified,
            accessed: self.accessed,
            content_type: self.content_type,
            properties: &self.properties,
            tags: &self.tags,
        };
        let is_in = ruleset.matches(&object, NOW);
        let reasons = ruleset.explain(&object, NOW);
        assert_eq!(reasons.iter().all(|reason| reason.holds), is_in);
        is_in
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut object = self.clone();
        change(&mut object);
        object
    }
}

fn one(rules: &str) -> Ruleset {
    let text = format!("set:\n  container: gecko_genome\n  {}\n", rules.replace('\n', "\n  "));
    let [ruleset] = <[_; 1]>::try_from(read(&text).unwrap()).unwrap();
    ruleset
}

/// The rulesets of the paper's Figure 2, which repeats a property: one of its values is enough.
#[test]
fn the_rulesets_of_the_paper_are_read() {
    let text = "---\nGecko:\n  account: \"delvesfs\"\n  container: \"gecko_genome\"\n  object: \"*.fasta\"\n  properties:\n    \
                color: \"black\"\n    color: \"green\"\nLeopard:\n  container: leopard\n---\n";
    let rulesets = read(text).unwrap();
    let names: Vec<_> = rulesets.iter().map(|ruleset| ruleset.name.as_str()).collect();
    assert_eq!(names, ["Gecko", "Leopard"]);
    let gecko = &rulesets[0];
    let object = Object::new().with(|object| object.container = "delvesfs:gecko_genome");
    let color =
        |color: &str| object.with(|object| drop(object.properties.insert("color".into(), color.into())));
    assert!(color("green").is_in(gecko) && color("black").is_in(gecko));
    assert!(!color("red").is_in(gecko) && !color("blackish").is_in(gecko));
    assert!(!object.with(|object| object.properties.clear()).is_in(gecko));
    assert!(!object.with(|object| object.key = b"eublepharis.fastq").is_in(gecko));
    assert!(!object.with(|object| object.container = "gecko").is_in(gecko));
    assert!(!object.is_in(&rulesets[1]));
    let text: Vec<_> = gecko.rules.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["container delvesfs:gecko_genome", "object *.fasta", "property color: black or green"]);
}

#[test]
fn values_of_one_property_are_alternatives_and_all_properties_must_match() {
    let ruleset =
        one("properties: {color: [black, 'gr*'], Stage: null, owner: [null, me]}\ntags: {kind: raw}");
    let object = Object::new().with(|object| drop(object.tags.insert("kind".into(), "raw".into())));
    assert!(object.is_in(&ruleset));
    assert!(!Object::new().is_in(&ruleset));
    for (name, value, is_in) in [
        ("color", "grey", true),
        ("color", "red", false),
        ("stage", "", false),
        ("owner", "me", true),
        ("owner", "you", false),
    ] {
        let object = object.with(|object| drop(object.properties.insert(name.into(), value.into())));
        assert_eq!(object.is_in(&ruleset), is_in, "{name}={value}");
    }
}

#[test]
fn sizes_times_and_types_bound_what_is_shown() {
    let object = Object::new();
    for (rules, is_in) in [
        ("size: '>4KiB'", true),
        ("size: ['>4KiB', '<=5kB']", true),
        ("size: ['>4KiB', '<5kB']", false),
        ("size: 5000", true),
        ("modified: '<1 day'", true),
        ("modified: '>1 day'", false),
        ("modified: '>2026-06-15'", true),
        ("accessed: '<7 days'", false),
        ("content_type: text/*", false),
    ] {
        assert_eq!(object.is_in(&one(rules)), is_in, "{rules}");
    }
    let read = object.with(|object| object.accessed = Some(Timestamp(NOW.0 - 6 * DAY)));
    assert!(read.is_in(&one("accessed: '<7 days'")) && !read.is_in(&one("accessed: '<5 days'")));
    let typed = object.with(|object| object.content_type = Some("text/plain"));
    assert!(typed.is_in(&one("content_type: [image/png, text/*]")));
}

#[test]
fn settings_for_the_client_are_read() {
    let ruleset = one("directories: off\nrecency: 250ms\noutput: {Project: bowtie}");
    assert!(!ruleset.directories);
    assert_eq!(ruleset.recency, Some(std::time::Duration::from_millis(250)));
    assert_eq!(ruleset.output, [("project".to_owned(), "bowtie".to_owned())].into());
    let on = one("directories: on\nproperties: {zebra: striped}");
    let rules: Vec<String> = on.rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules[1..], ["property tenon-directory: * or none", "property zebra: striped"]);
    let own = one("directories: on\nproperties: {tenon-directory: usr/*}");
    assert_eq!(own.rules[1].to_string(), "property tenon-directory: usr/*");
    let plain = one("recency: 0");
    assert_eq!((plain.directories, plain.recency), (true, Some(std::time::Duration::ZERO)));
    assert_eq!(plain.rules.len(), 1);
}

/// A bucket of another account is another bucket, even if the names are equal.
#[test]
fn buckets_of_different_accounts_are_distinct() {
    let text = "a: {container: [reads, 'x-*'], account: lab, output: {container: results}}\n\
                b: {container: [reads, 'lab:reads']}\nc: {container: '*'}\nd: {container: 'lab:*'}\n";
    let rulesets = read(text).unwrap();
    let shown = |container: &'static str| {
        let object = Object::new().with(|object| object.container = container);
        let shown = rulesets.iter().filter(|ruleset| object.is_in(ruleset));
        shown.map(|ruleset| ruleset.name.as_str()).collect::<String>()
    };
    assert_eq!(["reads", "lab:reads", "lab:x-1", "x-1"].map(shown), ["bc", "abd", "ad", "c"]);
    assert_eq!(rulesets[0].output["container"], "lab:results");
    for ruleset in &rulesets {
        let again = read(&ruleset.to_yaml()).unwrap();
        assert_eq!(again[0].to_yaml(), ruleset.to_yaml());
    }
    let wrong = read("a: {container: 'l*b:reads'}\nb: {container: reads, account: 'a:b'}\n").unwrap_err();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].to_string().contains("account") && wrong[1].to_string().contains("'a:b'"), "{wrong:?}");
}
