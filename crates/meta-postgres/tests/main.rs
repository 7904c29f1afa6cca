//! Tests of the engine on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "tests")]

mod databases;
mod engines;
mod fixture;
mod model;
mod tables;

/// Asserts that each file of this directory is a module of this test binary.
#[test]
fn all_files_are_tested() {
    let source = include_str!("main.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || source.contains(&format!("mod {module};")), "{name} is not tested");
    }
}
