//! Tests with real mounts over an in-memory store. They need /dev/fuse and the right to mount.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod direct_io;
mod directories;
mod files;
mod fixture;
mod invalidation;
mod new_files;
mod open_directories;
mod panics;
mod replaced_objects;
mod sessions;
mod set_id_bits;
mod virtual_files;
