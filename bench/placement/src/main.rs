//! Where should an inode's attributes be: in a record of their own, or in the dentry?
//!
//! `placement` builds the same tree under both schemas, over an ordered map in memory and over an LSM tree on disk, and
//! prints the CPU time of each job. `placement memory` says what a file costs in Tenon's memory engine.

mod jobs;
mod memory;
mod schemas;
mod stores;

use schemas::{Embedded, Numbers, Schema, Separate};
use std::process::ExitCode;
use stores::{Disk, Memory, Store};

/// Directories and files in each.
const DIRS: usize = 5000;
const FILES: usize = 100;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("memory") {
        memory::report();
        return ExitCode::SUCCESS;
    }
    println!("{DIRS} directories of {FILES} files, made in turns; CPU microseconds per op\n");
    println!(
        "| store | schema | create | list + attributes, per entry | lookup + attributes | attributes by number | publish | rename file | rename directory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    rows("memory", Memory::default);
    rows("LSM tree", || Disk::open().expect("a temporary directory for the LSM tree"));
    ExitCode::SUCCESS
}

fn rows<S: Store>(store: &str, open: impl Fn() -> S) {
    row(store, Separate::new(open(), Numbers::PerDirectory));
    row(store, Separate::new(open(), Numbers::InTurn));
    row(store, Embedded::new(open()));
}

fn row(store: &str, mut schema: impl Schema) {
    let times = jobs::run(&mut schema, DIRS, FILES);
    let cells: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
    println!("| {store} | {} | {} |", schema.name(), cells.join(" | "));
}
