//! What earlier builds wrote opens in this one.
//!
//! `scripts/fixtures` made the archives in `formats/`, each folder with the build that it is called after.

use crate::fixture::{Home, said};
use rustix::fs::getxattr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The archive of a volume, unpacked into a home.
fn unpacked(home: &Home, build: &str, volume: &str) {
    let archives = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let archive = archives.join(build).join(format!("{volume}.tar.xz"));
    let unpacked = said(home.command("tar").args(["--extract", "--xattrs", "--file"]).arg(archive));
    assert_eq!((unpacked.code, unpacked.err.as_str()), (0, ""));
}

/// Every file is as `fill` in the script made it.
fn is_as_it_was_made(mnt: &Path) {
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

/// The file is still there, and is there after another mount, when a program has changed it.
fn can_be_changed(home: &Home, volume: &str) {
    fs::write(home.mnt().join("dir/new"), "new").unwrap();
    fs::write(home.mnt().join("dir/nothing"), "something").unwrap();
    home.ok(["umount", "mnt"]);
    home.is_sound_but_for_garbage(volume);
    home.ok(["mount", volume, "mnt"]);
    assert_eq!(fs::read_to_string(home.mnt().join("dir/new")).unwrap(), "new");
    assert_eq!(fs::read_to_string(home.mnt().join("dir/nothing")).unwrap(), "something");
    home.ok(["umount", "mnt"]);
}

fn opens(build: &str, volume: &str, flags: &[&str]) {
    let home = Home::new();
    unpacked(&home, build, volume);
    home.ok(["mount", volume, "mnt"].iter().chain(flags).copied());
    is_as_it_was_made(&home.mnt());
    if volume == "by-inode" {
        let (file, second) = (home.mnt().join("dir/file"), home.mnt().join("dir/second name"));
        assert_eq!(fs::metadata(file).unwrap().ino(), fs::metadata(second).unwrap().ino());
    }
    can_be_changed(&home, volume);
}

#[test]
fn s522_a_volume_by_path_of_77752b7_opens() {
    opens("77752b7", "by-path", &[]);
}

#[test]
fn s522_a_volume_by_inode_in_chunks_of_77752b7_opens() {
    opens("77752b7", "by-inode", &[]);
}

/// All of its bytes are in the write-back log and none in the bucket.
#[test]
fn s522_a_write_back_log_of_77752b7_opens() {
    opens("77752b7", "waiting", &["--writeback"]);
}

/// Its process was killed, so that the drive's log is replayed.
#[test]
fn s522_a_drive_of_77752b7_opens() {
    opens("77752b7", "on-drive", &[]);
}
