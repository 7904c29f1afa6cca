//! The structures of `tenon.h`. A test compares their layout with the header.

use cli::library::{BatchTotals, MergedBatch, RefusedChange as Refused};
use std::ffi::c_char;
use vfs::{Attr, Statfs};

/// Length of a name with its NUL.
pub(crate) const NAME_BYTES: usize = store::names::NAME_BYTES_MAX + 1;
/// Length of a batch's id with its NUL.
pub(crate) const ID_BYTES: usize = 24;
/// Length of the text of a refused change with its NUL.
const CHANGE_BYTES: usize = 1024;
/// Length of the reason of a refusal with its NUL.
const REASON_BYTES: usize = 256;
/// Length of a path with its NUL, as `PATH_MAX` of Linux.
const PATH_BYTES: usize = 4096;

/// `struct tenon_stat`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Stat {
    ino: u64,
    size: u64,
    blocks: u64,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    reserved: u32,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    btime_ns: i64,
}

impl From<&Attr> for Stat {
    fn from(attr: &Attr) -> Self {
        Self {
            ino: attr.ino.0,
            size: attr.size_bytes,
            blocks: attr.blocks,
            mode: attr.st_mode(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            reserved: 0,
            atime_ns: attr.atime.0,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
            btime_ns: attr.btime.0,
        }
    }
}

/// `struct tenon_dirent`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Dirent {
    stat: Stat,
    name: [c_char; NAME_BYTES],
}

impl Dirent {
    pub(crate) fn new(name: &[u8], attr: &Attr) -> Self {
        Self { stat: attr.into(), name: padded(name) }
    }
}

/// `struct tenon_statvfs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Statvfs {
    block_size: u64,
    blocks: u64,
    blocks_free: u64,
    files: u64,
    files_free: u64,
    name_max: u64,
}

impl From<Statfs> for Statvfs {
    fn from(found: Statfs) -> Self {
        Self {
            block_size: found.block_size_bytes.into(),
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            files: found.files,
            files_free: found.files_free,
            name_max: found.name_bytes_max.into(),
        }
    }
}

/// `struct tenon_batch_result`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchResult {
    id: [c_char; ID_BYTES],
    merged: u64,
    refused: u64,
}

impl BatchResult {
    pub(crate) fn new(id: &str, merged: MergedBatch) -> Self {
        Self { id: padded(id.as_bytes()), merged: merged.accepted, refused: merged.refused }
    }
}

/// `struct tenon_batch_progress`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchProgress {
    id: [c_char; ID_BYTES],
    changes: u64,
    files: u64,
    directories: u64,
    removed: u64,
    renames: u64,
    contents: u64,
    bytes: u64,
    last_change_ns: i64,
    is_resumed: u32,
    reserved: u32,
}

impl BatchProgress {
    pub(crate) fn new(id: &str, totals: BatchTotals, is_resumed: bool) -> Self {
        Self {
            id: padded(id.as_bytes()),
            changes: totals.ops,
            files: totals.files,
            directories: totals.directories,
            removed: totals.removed,
            renames: totals.renames,
            contents: totals.writes,
            bytes: totals.bytes,
            last_change_ns: totals.last.map_or(0, |last| last.0),
            is_resumed: is_resumed.into(),
            reserved: 0,
        }
    }
}

/// `struct tenon_refused_change`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RefusedChange {
    index: u64,
    change: [c_char; CHANGE_BYTES],
    reason: [c_char; REASON_BYTES],
    kept_as: [c_char; PATH_BYTES],
}

impl From<Refused> for RefusedChange {
    fn from(refused: Refused) -> Self {
        // A path that is cut would be that of another file.
        let kept_as = refused.kept_as.filter(|path| path.len() < PATH_BYTES).unwrap_or_default();
        Self {
            index: refused.index,
            change: padded(beginning(&refused.change, CHANGE_BYTES - 1).as_bytes()),
            reason: padded(beginning(&refused.reason, REASON_BYTES - 1).as_bytes()),
            kept_as: padded(&kept_as),
        }
    }
}

/// Returns the longest beginning of a text that has at most `len_max` bytes and ends between two characters.
fn beginning(text: &str, len_max: usize) -> &str {
    let end = (0..=len_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Returns a text with NULs after it; a text that is too long is truncated.
fn padded<const LEN: usize>(bytes: &[u8]) -> [c_char; LEN] {
    let mut text = [0; LEN];
    for (to, from) in text[..LEN - 1].iter_mut().zip(bytes) {
        *to = *from as c_char;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::path::Path;
    use std::process::Command;

    /// Lists the fields of a structure with their offsets.
    macro_rules! layout {
        ($record:ident, $name:literal, $($field:ident),+) => {
            ($name, size_of::<$record>(), vec![$((stringify!($field), offset_of!($record, $field))),+])
        };
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((beginning("aé", 2), beginning("aé", 3), beginning("", 3)), ("a", "aé", ""));
    }

    /// A structure of the header must be laid out as the library writes it, and have no other fields.
    #[test]
    fn s783_the_header_has_the_layout_of_the_library() {
        let records = [
            layout!(
                Stat,
                "tenon_stat",
                ino,
                size,
                blocks,
                mode,
                nlink,
                uid,
                gid,
                rdev,
                reserved,
                atime_ns,
                mtime_ns,
                ctime_ns,
                btime_ns
            ),
            layout!(Dirent, "tenon_dirent", stat, name),
            layout!(Statvfs, "tenon_statvfs", block_size, blocks, blocks_free, files, files_free, name_max),
            layout!(BatchResult, "tenon_batch_result", id, merged, refused),
            layout!(
                BatchProgress,
                "tenon_batch_progress",
                id,
                changes,
                files,
                directories,
                removed,
                renames,
                contents,
                bytes,
                last_change_ns,
                is_resumed,
                reserved
            ),
            layout!(RefusedChange, "tenon_refused_change", index, change, reason, kept_as),
        ];
        let mut program = "#include <tenon.h>\n".to_owned();
        for (name, size, fields) in &records {
            program += &format!("_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");\n");
            for (field, offset) in fields {
                program +=
                    &format!("_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{field}\");\n");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("layout.c");
        std::fs::write(&file, program).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let gcc = Command::new("gcc").arg("-fsyntax-only").arg("-I").arg(include).arg(file).output().unwrap();
        assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    }
}
