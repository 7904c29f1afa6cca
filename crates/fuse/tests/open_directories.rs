//! Directories that are removed while they are open, and positions in open directories.

use crate::fixture::{Mount, noise};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// `fstat` failed with ENOENT for a directory that was open while `rmdir` removed it or `rename` replaced it.
#[test]
fn s436_a_removed_directory_has_its_attributes_while_it_is_open() {
    let mount = Mount::new();
    let [removed, replaced, other] = ["removed", "replaced", "other"].map(|name| mount.path(name));
    [&removed, &replaced, &other].iter().for_each(|dir| fs::create_dir(dir).unwrap());
    for dir in [&removed, &replaced] {
        let open = File::open(dir).unwrap();
        let before = open.metadata().unwrap();
        match *dir == removed {
            true => fs::remove_dir(dir).unwrap(),
            false => fs::rename(&other, dir).unwrap(),
        }
        let after = open.metadata().unwrap();
        assert_eq!((after.ino(), after.mode(), after.nlink()), (before.ino(), before.mode(), 0));
        assert!(after.is_dir());
    }
    assert!(!removed.exists() && replaced.exists() && !other.exists());
}

/// Seeks to the positions of entries in random order and reads there, at last at one of the first positions.
const PROGRAM: &str = r#"
import ctypes, os, random, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
libc.readdir.argtypes = libc.telldir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
directory = libc.opendir(sys.argv[1].encode())
def read():
    ctypes.set_errno(0)
    entry = libc.readdir(directory)
    assert entry or ctypes.get_errno() == 0, os.strerror(ctypes.get_errno())
    return ctypes.string_at(entry + 19) if entry else None
found = []
while True:
    position, name = libc.telldir(directory), read()
    if name is None:
        break
    found.append((position, name))
assert len(found) == int(sys.argv[2]) + 2, len(found)
random.seed(1)
for _ in range(100):
    index = random.randrange(len(found))
    libc.seekdir(directory, found[index][0])
    for position, name in found[index:index + random.randrange(1, 5)]:
        assert read() == name
libc.seekdir(directory, found[3][0])
assert read() == found[3][1]
"#;

/// In a directory of 4,000 entries, 2,312 of 3,000 seeks failed, because entries that were read again got positions that belonged to
/// other entries.
#[test]
fn s430_a_program_returns_to_every_position_of_an_open_directory() {
    let mount = Mount::new();
    let body = noise(1);
    (0..1_500).for_each(|number| mount.put(&format!("dir/file-{number:05}"), body.clone()));
    let mut python = Command::new("/usr/bin/python3");
    let output = python.args(["-c", PROGRAM]).arg(mount.path("dir")).arg("1500").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
