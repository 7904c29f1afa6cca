//! Set-id bits are dropped when a user without the right to keep them changes the file.

use crate::fixture::{Mount, options};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs a Python program as an unprivileged user. The program finds the path of the file in `path`.
fn as_nobody(program: &str, path: &Path) {
    let program =
        format!("import ctypes, os, sys\npath = sys.argv[1]\nos.setgid(65534)\nos.setuid(65534)\n{program}");
    let mut python = Command::new("/usr/bin/python3");
    let output = python.args(["-c", &program]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_id_file(mount: &Mount, name: &str) -> std::path::PathBuf {
    let path = mount.path(name);
    fs::write(&path, vec![7; 64 << 10]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(mode(&path), 0o6777);
    path
}

/// After an unprivileged user had written to a set-user-id program, the kernel kept the old mode in its cache: `stat` showed the bit,
/// and whoever ran the program got its owner's rights.
#[test]
fn s433_the_kernel_forgets_set_id_bits_with_the_write_that_drops_them() {
    let mount = Mount::with(&fuse::MountOptions { allow_other: true, ..options() });
    let path = set_id_file(&mount, "program");
    as_nobody("fd = os.open(path, os.O_WRONLY)\nos.write(fd, b'x')", &path);
    assert_eq!(mode(&path), 0o777);
}

/// `fallocate` and `copy_file_range` change a file as a write does, but did not drop the bits.
#[test]
fn s434_other_ways_of_changing_a_file_drop_set_id_bits_too() {
    let mount = Mount::with(&fuse::MountOptions { allow_other: true, ..options() });
    let libc = "libc = ctypes.CDLL(None, use_errno=True)\nfd = os.open(path, os.O_RDWR)\n";
    let modes = [("allocate", 0), ("punch", 3), ("zero", 16), ("keep", 1)];
    for (name, flags) in modes {
        let path = set_id_file(&mount, name);
        let call = format!(
            "{libc}off = ctypes.c_long\nassert libc.fallocate(fd, {flags}, off(4096), off(8192)) == 0, ctypes.get_errno()"
        );
        as_nobody(&call, &path);
        assert_eq!(mode(&path), 0o777, "{name}");
    }
    let path = set_id_file(&mount, "copied");
    as_nobody(
        "fd = os.open(path, os.O_RDWR)\nassert os.copy_file_range(fd, fd, 4096, 0, 8192) == 4096",
        &path,
    );
    assert_eq!(mode(&path), 0o777);
}
