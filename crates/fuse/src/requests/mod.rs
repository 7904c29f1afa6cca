//! The families of requests. Each decodes its requests, calls `vfs`, and shapes the result.

mod attributes;
mod directories;
mod files;
mod locks;
mod names;
mod virtual_files;
mod xattrs;

pub(crate) use locks::LockRequest;
