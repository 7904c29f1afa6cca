//! Rulesets are written as YAML that reads as the same rulesets.

use proptest::prelude::*;
use views::{Ruleset, read};

/// Generates files of rulesets: plausible ones, and worse.
fn files() -> impl Strategy<Value = String> {
    let text = "[ -~äß☃\u{7f}\u{85}]{0,8}|null|~|on";
    let quoted = move || text.prop_map(|text| serde_json::to_string(&text).unwrap());
    let plain = || "[a-zäß☃ ./'\"]{0,8}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let pattern = move || {
        prop_oneof![plain(), quoted(), Just("'**/*.f{a,q}'".to_owned()), Just("'[!a-c]?'".to_owned())]
    };
    let patterns =
        move || proptest::collection::vec(pattern(), 1..3).prop_map(|all| format!("[{}]", all.join(", ")));
    let wanted = move || {
        prop_oneof![patterns(), Just("null".to_owned()), Just("[]".to_owned()), Just("[a, null]".to_owned())]
    };
    let properties = move || {
        proptest::collection::vec((plain(), wanted()), 1..4).prop_map(|all| {
            let entries: Vec<_> = all.into_iter().map(|(name, wanted)| format!("{name}: {wanted}")).collect();
            format!("{{{}}}", entries.join(", "))
        })
    };
    let size = proptest::sample::select(vec!["'>1KiB'", "0", "['<= 1.5 MB', '>3']"]).prop_map(str::to_owned);
    let time = proptest::sample::select(vec!["'<7 days'", "['>=2026-01-31', '<P1Y']", "'>36h'"])
        .prop_map(str::to_owned);
    let recency = proptest::sample::select(vec!["0", "250ms", "2min", "1h 3s"]).prop_map(str::to_owned);
    let output = (plain(), quoted()).prop_map(|(name, value)| format!("{{{name}: {value}}}"));
    let rule = prop_oneof![
        pattern().prop_map(|value| ("account", value)),
        patterns().prop_map(|value| ("object", value)),
        patterns().prop_map(|value| ("content_type", value)),
        size.prop_map(|value| ("size", value)),
        time.clone().prop_map(|value| ("modified", value)),
        time.prop_map(|value| ("accessed", value)),
        properties().prop_map(|value| ("properties", value)),
        properties().prop_map(|value| ("tags", value)),
        proptest::sample::select(vec!["on", "off"]).prop_map(|is_on| ("directories", is_on.to_owned())),
        recency.prop_map(|value| ("recency", value)),
        output.prop_map(|value| ("output", value)),
    ];
    let rules = proptest::collection::vec(rule, 0..8);
    (quoted(), patterns(), rules).prop_map(|(name, container, rules)| {
        let rules: Vec<_> = rules.into_iter().map(|(word, value)| format!("  {word}: {value}\n")).collect();
        format!("{name}:\n  container: {container}\n{}", rules.concat())
    })
}

fn debug(rulesets: &[Ruleset]) -> String {
    format!("{rulesets:?}")
}

proptest! {
    #[test]
    fn a_written_ruleset_reads_as_the_same(file in files()) {
        if let Ok(rulesets) = read(&file) {
            let text: String = rulesets.iter().map(Ruleset::to_yaml).collect();
            let back = read(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
            prop_assert_eq!(debug(&back), debug(&rulesets), "{}", text);
        }
    }
}

#[test]
fn equal_rulesets_have_one_text() {
    let file = "b: {container: x, tags: {Kind: [raw, null]}}\na:\n  container: [x]\n  object: '*.fq'\n  modified: '<7 days'\n  \
                size: ['>1KiB', '<2GiB']\n  properties: {color: black, color: 'gr*'}\n  recency: 0\n  output: {to: \"a\\\"b\"}\n";
    let texts: Vec<_> = read(file).unwrap().iter().map(Ruleset::to_yaml).collect();
    assert_eq!(texts[0], "\"b\":\n  container: [\"x\"]\n  tags: {\"Kind\": [\"raw\", null]}\n");
    assert_eq!(
        texts[1],
        "\"a\":\n  container: [\"x\"]\n  object: [\"*.fq\"]\n  size: [\">1KiB\", \"<2GiB\"]\n  modified: [\"<7 days\"]\n  \
         properties: {\"color\": [\"black\", \"gr*\"]}\n  recency: PT0S\n  output: {\"to\": \"a\\\"b\"}\n"
    );
    assert_eq!(read(&texts.concat()).unwrap().len(), 2);
}
