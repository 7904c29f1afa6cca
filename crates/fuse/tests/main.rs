//! Real mounts over a store in memory. They need /dev/fuse and the right to mount.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod direct;
mod directories;
mod files;
mod fixture;
mod news;
mod panics;
mod privileges;
mod removed;
mod replaced;
mod sessions;
