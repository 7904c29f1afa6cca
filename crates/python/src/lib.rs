//! The extension module `tenon._native`: files of a volume for Python, without a mount.
//!
//! Owns the conversion between Python's values and those of `vfs`, paths, and many operations in one call. The Python
//! package in `python/tenon` adds file objects, `fsspec` and documentation.
//!
//! Each method blocks its caller without the interpreter's lock or, if it gets a callback `done`, returns at once and
//! calls `done(value, error)` later from another thread.
//!
//! Does not know fsspec, and keeps no names or bytes: caches are those of `vfs`. The caller's permissions are not
//! checked: who may reach the bucket may change its files.

mod answer;
mod bulk;
mod content;
mod failure;
mod file;
mod options;
mod parallel;
mod parts;
mod paths;
mod runtime;
mod stat;
mod tree;
mod volume;

#[pyo3::pymodule]
#[pyo3(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::stat::Stat;
    #[pymodule_export]
    use crate::volume::Volume;
}
