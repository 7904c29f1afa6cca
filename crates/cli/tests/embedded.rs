//! Embedded volumes whose objects are on a drive.

use crate::fixture::{Home, is_mounted};
use std::fs;

impl Home {
    fn with_volume_on_drive(self) -> Self {
        let output = self.ok(["format", "volume", "--drive", "--size", "64MiB"]);
        assert!(output.contains("with 64 MiB for its objects"), "{output}");
        self
    }

    fn object(&self, key: &str) -> String {
        self.ok(["object", "get", &format!("volume/{key}")])
    }
}

#[test]
fn s323_files_are_objects_on_the_drive_during_and_after_a_mount() {
    let home = Home::new().with_volume_on_drive();
    home.ok(["mount", "volume", "mnt", "--serve", "127.0.0.1:0"]);
    fs::create_dir(home.mnt().join("dir")).unwrap();
    fs::write(home.mnt().join("dir/file"), "by a program").unwrap();
    assert_eq!(home.object("dir/file"), "by a program");
    let hello = home.path("hello");
    fs::write(&hello, "by a client").unwrap();
    home.ok(["object", "put", "volume/object", hello.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(home.mnt().join("object")).unwrap(), "by a client");
    home.ok(["fsck", "mnt"]);
    home.kill_and_remount();
    assert_eq!(fs::read_to_string(home.mnt().join("dir/file")).unwrap(), "by a program");
    home.ok(["umount", "mnt"]);
    assert!(!is_mounted(&home.mnt()));
    assert_eq!(home.object("object"), "by a client");
    assert!(home.ok(["drive", "check", "volume/objects.drive"]).ends_with(" 0 problems\n"));
}

#[test]
fn a_mount_without_an_endpoint_says_what_to_do() {
    let home = Home::new().with_volume_on_drive();
    home.ok(["mount", "volume", "mnt"]);
    let refused = home.refused(["object", "ls", "volume/"]);
    assert!(refused.contains("--serve"), "{refused}");
}

#[test]
fn s324_a_failed_format_leaves_nothing_and_keeps_existing_volumes() {
    let home = Home::new();
    let refused = home.refused(["format", "volume", "--drive", "--size", "900TiB"]);
    assert!(refused.contains("are free at") && refused.contains("--size"), "{refused}");
    let refused = home.refused(["format", "volume", "--drive", "--size", "1MiB"]);
    assert!(refused.contains("too small"), "{refused}");
    assert!(!home.path("volume").exists());
    assert!(home.refused(["format", "s3://bucket", "--drive"]).contains("local directory"));
    home.mount_volume();
    fs::write(home.mnt().join("file"), "in a directory").unwrap();
    assert!(home.refused(["format", "volume", "--drive"]).contains("already"));
    assert_eq!(fs::read_to_string(home.path("volume/objects/file")).unwrap(), "in a directory");
    assert!(!home.path("volume/objects.drive").exists());
}

/// Regression: `df` showed 4.0P for a drive of 64 MiB and for a volume on a small disk, and `fallocate` of more than
/// the free space succeeded.
#[test]
fn s515_s516_the_free_space_is_that_of_the_drive_or_disk() {
    let home = Home::new().with_volume_on_drive();
    home.ok(["mount", "volume", "mnt"]);
    let bytes = |path: &str| {
        let found = rustix::fs::statvfs(home.path(path)).unwrap();
        (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
    };
    let (total, free) = bytes("mnt");
    assert!(total <= 64 << 20 && free > 16 << 20 && free <= total, "{total} {free}");
    let file = fs::File::create(home.mnt().join("file")).unwrap();
    let allocate = |len| rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len);
    assert_eq!(allocate(1 << 30), Err(rustix::io::Errno::NOSPC));
    assert_eq!(file.metadata().unwrap().len(), 0);
    allocate(1 << 20).unwrap();
    drop(file);
    home.ok(["umount", "mnt"]);
    home.ok(["format", "plain"]);
    home.ok(["mount", "plain", "mnt"]);
    assert_eq!(bytes("mnt").0, bytes("plain").0 / 4096 * 4096);
}
