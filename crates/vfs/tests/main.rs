//! Tests of the promises of `docs/semantics.md` that the layers below the front ends keep: one module per section.

#![expect(clippy::unwrap_used, reason = "tests")]

mod access_times;
mod allocate;
mod attributes;
mod by_inode;
mod clock;
mod conflicts;
mod conflicts_of_renames;
mod consistency;
mod content;
mod copies;
mod costs;
mod derived;
mod detached_objects;
mod disk;
mod disk_cache;
mod durability;
mod failure;
mod foreign;
mod hints;
mod identity;
mod kernel_cache;
mod keys;
mod lengths;
mod lister;
mod mass_removal;
mod memory;
mod metadata;
mod names;
mod names_without_keys;
mod objects;
mod observations;
mod outages;
mod packs;
mod path_locks;
mod publishing;
mod quotas;
mod races;
mod rename;
mod requests;
mod round_trips;
mod several_buckets;
mod shared_mounts;
mod unnamed_files;
mod world;
