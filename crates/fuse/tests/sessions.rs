//! Mounting and unmounting.

use crate::fixture::{Mount, eventually, options};
use fuse::{MountOptions, MountPointError, UnmountError};
use std::fs::{self, File};

#[test]
fn the_mount_table_shows_source_and_type() {
    let mount = Mount::new();
    let mounted = fuse::mounted_at(mount.root()).unwrap().unwrap();
    assert_eq!(mounted.source, options().source.as_str());
    let refused = fuse::check_mount_point(mount.root(), true).unwrap_err();
    assert!(matches!(refused, MountPointError::Mounted { .. }), "{refused}");
}

#[test]
fn a_busy_mount_stays_until_it_is_free() {
    let mount = Mount::new();
    fs::write(mount.path("file"), b"x").unwrap();
    let open = File::open(mount.path("file")).unwrap();
    assert!(matches!(fuse::unmount(mount.root()), Err(UnmountError::Busy(_))));
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"x");
    drop(open);
    eventually("the mount can be unmounted", || fuse::unmount(mount.root()).is_ok());
    mount.runtime.block_on(mount.session.as_ref().unwrap().ended());
    assert!(matches!(fuse::unmount(mount.root()), Err(UnmountError::NotMounted(_))));
}

#[test]
fn dropping_the_session_unmounts() {
    let mut mount = Mount::new();
    drop(mount.session.take());
    assert_eq!(fuse::mounted_at(mount.root()).unwrap(), None);
}

/// Regression: a session that was dropped detached whatever was mounted at its mount point by then.
#[test]
fn dropping_the_session_of_a_replaced_mount_leaves_the_new_mount() {
    let mut mount = Mount::new();
    fs::write(mount.path("file"), b"x").unwrap();
    let open = File::open(mount.path("file")).unwrap();
    fuse::detach(mount.root()).unwrap();
    let root = mount.root().to_owned();
    let tmpfs = |what: &str| {
        let mut command = std::process::Command::new(what);
        let command =
            if what == "mount" { command.args(["-t", "tmpfs", "tenon-tests"]) } else { &mut command };
        assert!(command.arg(&root).status().unwrap().success(), "{what}: run the tests as root");
    };
    tmpfs("mount");
    fs::write(mount.path("other"), b"kept").unwrap();
    drop(mount.session.take());
    assert_eq!(fs::read(mount.path("other")).unwrap(), b"kept");
    tmpfs("umount");
    drop(open);
}

#[test]
fn a_detached_mount_serves_its_open_files() {
    let mount = Mount::new();
    fs::write(mount.path("file"), b"still here").unwrap();
    let open = File::open(mount.path("file")).unwrap();
    fuse::detach(mount.root()).unwrap();
    assert_eq!(fuse::mounted_at(mount.root()).unwrap(), None);
    assert_eq!(std::io::read_to_string(&open).unwrap(), "still here");
    drop(open);
    mount.runtime.block_on(mount.session.as_ref().unwrap().ended());
}

#[test]
fn the_kernel_refuses_changes_of_a_read_only_mount() {
    let mount = Mount::with(&MountOptions { read_only: true, ..options() });
    let refused = fs::write(mount.path("file"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
}
