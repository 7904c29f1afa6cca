//! Tests of the promises of `docs/semantics.md` that the layers below the front ends keep: one module per section.

#![expect(clippy::unwrap_used, reason = "tests")]

mod access_times;
mod allocate;
mod attributes;
mod beside;
mod by_inode;
mod clock;
mod conflicts;
mod conflicts_of_renames;
mod consistency;
mod content;
mod copies;
mod derived;
mod disk;
mod durability;
mod failure;
mod foreign;
mod hearing;
mod hints;
mod identity;
mod keys;
mod lengths;
mod lister;
mod machines;
mod memory;
mod metadata;
mod names;
mod objects;
mod outages;
mod path_locks;
mod publishing;
mod quotas;
mod races;
mod rename;
mod requests;
mod unnamed_files;
mod unshown;
mod vanishing;
mod world;
