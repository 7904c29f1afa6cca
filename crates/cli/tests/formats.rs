//! Volumes that earlier builds wrote can be opened by this build.
//!
//! `scripts/fixtures` made the archives in `formats/`; each folder is named after the build.

use crate::fixture::{Home, capture};
use rustix::fs::getxattr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Unpacks the archive of a volume into a home.
pub(crate) fn unpack(home: &Home, build: &str, volume: &str) {
    let archives = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let archive = archives.join(build).join(format!("{volume}.tar.xz"));
    let unpacked = capture(home.command("tar").args(["--extract", "--xattrs", "--file"]).arg(archive));
    assert_eq!((unpacked.code, unpacked.err.as_str()), (0, ""));
}

/// Asserts that every file is as `fill` in the script made it.
fn assert_contents(mnt: &Path) {
    let read = |path: &str| fs::read_to_string(mnt.join(path)).unwrap();
    assert_eq!(read("dir/file"), "hello\n");
    assert_eq!(read("dir/deep/link"), "hello\n");
    assert_eq!(read("dir/nothing"), "");
    assert_eq!(read("after ü"), "renamed\n");
    assert!(!mnt.join("before").exists());
    assert_eq!(fs::read_dir(mnt.join("empty")).unwrap().count(), 0);
    assert_eq!(fs::metadata(mnt.join("dir/file")).unwrap().permissions().mode() & 0o777, 0o640);

    let large = fs::read(mnt.join("large")).unwrap();
    assert_eq!(large.len(), 3 << 20);
    assert!(large.iter().enumerate().all(|(at, byte)| *byte == if at == 1_500_000 { b'b' } else { b'a' }));

    let mut color = [0; 16];
    let len = getxattr(mnt.join("dir/file"), "user.color", &mut color).unwrap();
    assert_eq!(&color[..len], b"green");
}

/// Changes files, and asserts that the changes survive a remount.
fn assert_changeable(home: &Home, volume: &str) {
    fs::write(home.mnt().join("dir/new"), "new").unwrap();
    fs::write(home.mnt().join("dir/nothing"), "something").unwrap();
    home.ok(["umount", "mnt"]);
    home.assert_sound_but_for_garbage(volume);
    home.ok(["mount", volume, "mnt"]);
    assert_eq!(fs::read_to_string(home.mnt().join("dir/new")).unwrap(), "new");
    assert_eq!(fs::read_to_string(home.mnt().join("dir/nothing")).unwrap(), "something");
    home.ok(["umount", "mnt"]);
}

fn assert_opens(build: &str, volume: &str, flags: &[&str]) {
    let home = Home::new();
    unpack(&home, build, volume);
    home.ok(["mount", volume, "mnt"].iter().chain(flags).copied());
    assert_contents(&home.mnt());
    if volume == "by-inode" {
        let (file, second) = (home.mnt().join("dir/file"), home.mnt().join("dir/second name"));
        assert_eq!(fs::metadata(file).unwrap().ino(), fs::metadata(second).unwrap().ino());
    }
    assert_changeable(&home, volume);
}

#[test]
fn s522_a_volume_by_path_of_77752b7_opens() {
    assert_opens("77752b7", "by-path", &[]);
}

#[test]
fn s522_a_volume_by_inode_in_chunks_of_77752b7_opens() {
    assert_opens("77752b7", "by-inode", &[]);
}

/// All bytes of the volume are in the write-back log, and none in the bucket.
#[test]
fn s522_a_write_back_log_of_77752b7_opens() {
    assert_opens("77752b7", "waiting", &["--writeback"]);
}

/// The process of the volume was killed, so the drive's log must be replayed.
#[test]
fn s522_a_drive_of_77752b7_opens() {
    assert_opens("77752b7", "on-drive", &[]);
}
