//! Reads Tenon's mounts from the kernel's mount table (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The file system type that the mount table shows for Tenon's mounts.
pub const FILE_SYSTEM_TYPE: &str = "fuse.tenon";

/// One mount of Tenon, as the mount table shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The mount point.
    pub mount_point: PathBuf,
    /// The source as given to `mount`.
    pub source: OsString,
    /// The device number `major:minor`, which names the mount in `/sys/class/bdi`. Its minor part names the connection
    /// in `/sys/fs/fuse/connections`.
    pub device: String,
}

/// Returns all mounts of Tenon that this process sees, in the order in which they were made.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Returns the topmost mount of Tenon at exactly this path; `None` if there is none.
pub fn mounted_at(path: &Path) -> io::Result<Option<Mounted>> {
    Ok(mounts()?.into_iter().rev().find(|mounted| mounted.mount_point == path))
}

/// Returns the device number of the topmost mount at exactly this path, of any file system.
pub(crate) fn device_at(path: &Path) -> io::Result<Option<String>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let lines = table.split(|&byte| byte == b'\n').rev();
    Ok(lines
        .filter_map(parse_any)
        .map(|(mounted, _)| mounted)
        .find(|at| at.mount_point == path)
        .map(|at| at.device))
}

fn parse(table: &[u8]) -> Vec<Mounted> {
    let all = table.split(|&byte| byte == b'\n').filter_map(parse_any);
    all.filter(|(_, kind)| *kind == FILE_SYSTEM_TYPE.as_bytes()).map(|(mounted, _)| mounted).collect()
}

/// Parses `id parent major:minor root mount-point options [optional ...] - type source super-options`, of any type. Also returns the type.
fn parse_any(line: &[u8]) -> Option<(Mounted, &[u8])> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let mount_point = unescape(fields.nth(1)?);
    fields.find(|field| *field == b"-")?;
    let kind = fields.next()?;
    let source = unescape(fields.next()?);
    Some((Mounted { mount_point: mount_point.into(), source, device }, kind))
}

/// Decodes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_other_file_systems_are_skipped() {
        let table = b"22 1 0:21 / /proc rw - proc proc rw\n\
            30 22 0:45 / /mnt/a\\040b rw,nosuid shared:7 - fuse.tenon s3://bucket rw,user_id=0\n\
            31 22 0:46 / /mnt/c rw - fuse.sshfs host: rw\n";
        let expected = Mounted {
            mount_point: "/mnt/a b".into(),
            source: "s3://bucket".into(),
            device: "0:45".to_owned(),
        };
        assert_eq!(parse(table), [expected]);
    }

    #[test]
    fn a_backslash_without_octal_digits_stays() {
        assert_eq!(unescape(b"a\\134b\\x"), "a\\b\\x");
    }
}
