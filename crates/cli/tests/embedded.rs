//! Embedded volumes that have their objects on a drive.

use crate::fixture::{Home, is_mounted};
use std::fs;

impl Home {
    fn with_volume_on_drive(self) -> Self {
        let said = self.ok(["format", "volume", "--drive", "--size", "64MiB"]);
        assert!(said.contains("with 64 MiB for its objects"), "{said}");
        self
    }

    fn object(&self, key: &str) -> String {
        self.ok(["object", "get", &format!("volume/{key}")])
    }
}

#[test]
fn s323_files_are_objects_on_the_drive_while_it_is_mounted_and_after() {
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
    home.after_a_kill();
    assert_eq!(fs::read_to_string(home.mnt().join("dir/file")).unwrap(), "by a program");
    home.ok(["umount", "mnt"]);
    assert!(!is_mounted(&home.mnt()));
    assert_eq!(home.object("object"), "by a client");
    assert!(home.ok(["drive", "check", "volume/objects.drive"]).ends_with(" 0 problems\n"));
}

#[test]
fn a_mount_without_an_endpoint_says_that_it_has_none() {
    let home = Home::new().with_volume_on_drive();
    home.ok(["mount", "volume", "mnt"]);
    let refused = home.refused(["object", "ls", "volume/"]);
    assert!(refused.contains("--serve"), "{refused}");
}

#[test]
fn s324_what_cannot_be_made_leaves_nothing_and_what_is_there_stays_what_it_is() {
    let home = Home::new();
    let refused = home.refused(["format", "volume", "--drive", "--size", "900TiB"]);
    assert!(refused.contains("are free at") && refused.contains("--size"), "{refused}");
    let refused = home.refused(["format", "volume", "--drive", "--size", "1MiB"]);
    assert!(refused.contains("too small"), "{refused}");
    assert!(!home.path("volume").exists());
    assert!(home.refused(["format", "s3://bucket", "--drive"]).contains("local directory"));
    home.mounted();
    fs::write(home.mnt().join("file"), "in a directory").unwrap();
    assert!(home.refused(["format", "volume", "--drive"]).contains("already"));
    assert_eq!(fs::read_to_string(home.path("volume/objects/file")).unwrap(), "in a directory");
    assert!(!home.path("volume/objects.drive").exists());
}
