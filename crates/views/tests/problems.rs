//! Problems in a file of rulesets: all are reported, with their positions.

use proptest::prelude::*;
use views::read;

fn problems(text: &str) -> Vec<String> {
    read(text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn every_problem_is_reported_with_position_and_correction() {
    let text = "\
Gecko:
  contaner: gecko
  size: big
  modified: 7 days
  object: ['*.fa', '[']
  properties: black
Gecko:
  container: gecko
  flavour: sweet
  size: '1'
  size: '2'
../up:
  container: x
Empty:
";
    let expected = [
        "2:3: 'contaner' is not a rule; do you mean 'container'?",
        "3:9: 'big' is not a size; write it like \">10MiB\" or \"<=4096\"",
        "4:13: '7 days' needs < or > before the time, as in \"<7 days\"",
        "5:20: '[' is not a pattern: unclosed character class; missing ']'",
        "6:15: 'properties' needs names and values, as in `properties: {color: black}`",
        "1:1: ruleset 'Gecko' does not say which container; add `container: BUCKET`",
        "7:1: there is a ruleset 'Gecko' already, at 1:1",
        "9:3: 'flavour' is not a rule; the rules are account, container, object, size, modified, accessed, properties, tags, \
         content_type, directories, recency, output",
        "11:3: 'size' appears twice; write its values as a list",
        "12:1: '../up' cannot be the name of a directory",
        "14:1: ruleset 'Empty' has no rules; write at least `container: BUCKET` below it",
    ];
    assert_eq!(problems(text), expected);
}

/// In YAML, `>` begins a folded text, `*` an alias and `[` a list.
#[test]
fn missing_quotes_are_reported() {
    for (value, hint) in [
        ("size: >10MiB", "\">10MiB\""),
        ("object: *.fasta", "\"*.fasta\""),
        ("object: [ab]*.fa", "\"[ab]*.fa\""),
    ] {
        let said = problems(&format!("set:\n  container: a\n  {value}\n"));
        assert!(said[0].starts_with("3:") && said[0].contains(hint), "{said:?}");
    }
}

#[test]
fn texts_that_are_not_rulesets_are_refused() {
    for (text, says) in [
        ("", "1:1: there is no ruleset"),
        ("# only a comment\n", "1:1: there is no ruleset"),
        ("just text", "1:1: a ruleset begins with its name"),
        ("- a\n- b\n", "1:1: a ruleset begins with its name"),
        ("a: &x\n  container: b\nc: *x\n", "3:4: aliases"),
        ("a:\n  container: [[b]]\n", "2:15: 'container' must be one text"),
        ("a:\n  container: []\n", "2:14: 'container' has no value"),
        ("a:\n  container:\n", "2:"),
        ("a: {container: b", "1:"),
    ] {
        let said = problems(text);
        assert!(said[0].starts_with(says), "{text:?}: {said:?}");
    }
    let deep = format!("a: {}", "[".repeat(10_000));
    assert!(!problems(&deep).is_empty());
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "[a-c:{}\\[\\]\\-*&!|>'\"# \n,]{0,60}") {
        let _ = read(&text);
    }
}
