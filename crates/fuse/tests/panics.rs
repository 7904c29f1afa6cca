//! Requests that panic must not affect other requests.

use crate::fixture::{Mount, options};
use fuse::MountOptions;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A user other than root that every machine has.
const NOBODY: u32 = 65534;

/// `drop_set_id` ran on a thread of the transport, which has no runtime, and spawned a task there. A write to a set-user-id file by a
/// user other than root panicked the thread, and the session ended with its last thread.
#[test]
fn a_write_by_another_user_drops_the_set_user_id_bit() {
    let mount = Mount::with(&MountOptions { allow_other: true, suid: true, ..options() });
    let program = mount.path("program");
    fs::write(&program, b"old").unwrap();
    for _ in 0..4 {
        fs::set_permissions(&program, Permissions::from_mode(0o6777)).unwrap();
        mount.runtime.block_on(mount.fs.sync()).unwrap();
        let script = format!("printf x | dd of={} conv=notrunc bs=1 count=1", program.display());
        let written = Command::new("sh").args(["-c", &script]).uid(NOBODY).gid(NOBODY).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
    assert_eq!(fs::read(&program).unwrap(), b"xld");
    let mode = mount.runtime.block_on(mount.fs.lookup(vfs::Ino::ROOT, b"program")).unwrap().mode;
    assert_eq!(mode & 0o6000, 0, "the bits must be cleared");
}

/// A panic outside of what `carry_out` polled ended the transport's thread, and the last such panic ended the session.
#[test]
fn a_panic_affects_its_request_only() {
    let mount = Mount::new();
    let path = mount.path("file");
    fs::write(&path, b"before").unwrap();
    let mut open = OpenOptions::new().append(true).open(&path).unwrap();
    mount.clock.set_panics(true);
    for _ in 0..8 {
        let refused = open.write_all(b"lost").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO));
        let refused = fs::create_dir(mount.path("made")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    }
    mount.clock.set_panics(false);
    open.write_all(b" and after").unwrap();
    drop(open);
    assert!(fs::read(&path).unwrap().ends_with(b" and after"));
    fs::create_dir(mount.path("made")).unwrap();
}
