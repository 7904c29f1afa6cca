//! The attributes of a file as Python sees them.

use pyo3::pyclass;
use vfs::{Attr, Kind};

/// Attributes of a file. Times are in nanoseconds since 1970.
#[derive(Debug, Clone)]
#[pyclass(frozen, get_all, module = "tenon._native")]
pub(crate) struct Stat {
    /// `file`, `directory`, `link` or `other`.
    kind: &'static str,
    size: u64,
    /// Type and permission bits, as in `st_mode`.
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    ino: u64,
    mtime_ns: i64,
    atime_ns: i64,
    ctime_ns: i64,
    birthtime_ns: i64,
}

impl From<&Attr> for Stat {
    fn from(attr: &Attr) -> Self {
        let kind = match attr.kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "link",
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => "other",
        };
        Self {
            kind,
            size: attr.size_bytes,
            mode: attr.st_mode(),
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            ino: attr.ino.0,
            mtime_ns: attr.mtime.0,
            atime_ns: attr.atime.0,
            ctime_ns: attr.ctime.0,
            birthtime_ns: attr.btime.0,
        }
    }
}

impl Stat {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == "directory"
    }
}
