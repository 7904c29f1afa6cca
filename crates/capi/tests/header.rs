//! Comparison of `tenon.h` with the library.

use crate::compiler::{built, source};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Returns the functions that the header declares: each has a comment before its declaration.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(source("include/tenon.h")).unwrap();
    let mut functions = BTreeSet::new();
    let mut is_documented = false;
    for line in header.lines() {
        let is_declaration = line.starts_with(|first: char| first.is_ascii_lowercase());
        if let (true, Some((before, _))) = (is_declaration, line.split_once('('))
            && let Some(name) = before.split([' ', '*']).next_back()
            && name.starts_with("tenon_")
        {
            assert!(is_documented, "{name} has no comment in tenon.h");
            functions.insert(name.to_owned());
        }
        is_documented = line.ends_with("*/");
    }
    functions
}

fn exported() -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(built("libtenon.so")).output().unwrap();
    assert!(output.status.success());
    let symbols = String::from_utf8(output.stdout).unwrap();
    let names = symbols.lines().filter_map(|line| line.split(' ').next_back());
    // A dependency has C functions of its own, which a feature of s3s turns on. Rust exports all C functions.
    names.filter(|name| !name.starts_with("crc_fast_")).map(str::to_owned).collect()
}

#[test]
fn s783_the_header_declares_what_the_library_exports() {
    let declared = declared();
    assert!(declared.len() > 35, "{declared:?}");
    assert_eq!(exported(), declared);
}

#[test]
fn s783_the_library_has_a_name_with_its_interface() {
    let output = Command::new("objdump").arg("-p").arg(built("libtenon.so")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let name = text.lines().find(|line| line.contains("SONAME")).unwrap();
    assert_eq!(name.split_whitespace().next_back(), Some("libtenon.so.0"));
}

#[test]
fn the_header_is_valid_in_c_and_cpp() {
    for (compiler, language) in [("gcc", ["-std=c99", "-xc"]), ("g++", ["-std=c++11", "-xc++"])] {
        let output = Command::new(compiler)
            .args(language)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .arg(source("include/tenon.h"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
