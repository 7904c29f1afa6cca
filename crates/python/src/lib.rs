//! The extension module `tenon._native`: files of a volume for Python, without a mount.
//!
//! Owns the conversion between Python's values and those of `vfs`, paths, and many operations in one call. The Python
//! package in `python/tenon` adds file objects, `fsspec` and documentation.
//!
//! A method blocks its caller, without holding Python's global interpreter lock (GIL). If it gets a callback `done`, it returns at
//! once, and another thread calls `done(value, error)` later.
//!
//! Does not know fsspec, and has no caches of its own: those of `vfs` are used. Permissions of files are not checked: a program with
//! access to the bucket may change all files.

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
