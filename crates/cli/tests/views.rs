//! `tenon views` on real objects.

use crate::fixture::Home;
use std::fs;

#[test]
fn rulesets_are_checked_and_explained() {
    let home = Home::new();
    let rules = "Gecko:\n  container: volume\n  object: '**/*.fasta'\n  properties:\n    color: black\n    color: green\n";
    fs::write(home.path("rules.yaml"), rules).unwrap();
    let checked = home.ok(["views", "check", "rules.yaml"]);
    assert_eq!(checked, "Gecko\n  container volume\n  object **/*.fasta\n  property color: black or green\n");
    home.ok(["format", "volume", "--naming", "file-path"]);
    home.ok(["mount", "volume", "mnt"]);
    fs::create_dir(home.mnt().join("reads")).unwrap();
    let file = home.mnt().join("reads/a.fasta");
    fs::write(&file, "ACGT").unwrap();
    rustix::fs::setxattr(&file, "user.color", b"green", rustix::fs::XattrFlags::empty()).unwrap();
    home.ok(["umount", "mnt"]);
    let explain = |key: &str| home.ok(["views", "explain", "rules.yaml", key]);
    assert_eq!(
        explain("volume/reads/a.fasta"),
        "Gecko: shown\n  yes container volume\n  yes object **/*.fasta\n  yes property color: black or green\n"
    );
    home.ok(["object", "put", "volume/b.txt", "rules.yaml"]);
    assert_eq!(
        explain("volume/b.txt"),
        "Gecko: not shown\n  yes container volume\n  no  object **/*.fasta, but it is b.txt\n  \
         no  property color: black or green, but it is none\n"
    );
    assert!(home.refused(["views", "explain", "rules.yaml", "volume/c"]).contains('c'));
}

/// The output has one line per problem, and the final line that every error has.
#[test]
fn problems_of_rulesets_are_reported_with_line_and_column() {
    let home = Home::new();
    fs::write(home.path("rules.yaml"), "Gecko:\n  contaner: x\n").unwrap();
    let output = home.tenon(["views", "check", "rules.yaml"]);
    assert_eq!(output.code, 1);
    assert_eq!(
        output.err,
        "rules.yaml:2:3: 'contaner' is not a rule; do you mean 'container'?\n\
         rules.yaml:1:1: ruleset 'Gecko' does not say which container; add `container: BUCKET`\n\
         tenon: rules.yaml has 2 problems\n"
    );
    assert!(home.refused(["views", "check", "none.yaml"]).contains("none.yaml"));
}
