//! The `tenon` program itself, with real mounts. Needs /dev/fuse, the right to mount, and MinIO for some.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod acls;
mod also;
mod analyze;
mod arrays;
mod attacks;
mod bad_drives;
mod bad_input;
mod by_inode;
mod by_path;
mod chain;
mod coherence;
mod conflicts;
mod credentials;
mod daemon;
mod drives;
mod embedded;
mod endpoint;
mod events;
mod fixture;
mod handlers;
mod interface;
mod kills;
mod machines;
mod million;
mod mount8;
mod odd_keys;
mod outages;
mod pools;
mod programs;
mod replays;
mod root_tree;
mod s3;
mod secrets;
mod users;
mod view_buckets;
mod view_faults;
mod view_mounts;
mod views;
mod volumes;
mod workflow;
mod writeback;
