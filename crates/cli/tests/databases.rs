//! Volumes whose metadata is in a PostgreSQL database.

use crate::fixture::Home;
use servers::Postgres;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

/// Returns a home whose processes know the database's password.
fn home_of(server: &Postgres) -> Home {
    Home::new().with("PGPASSWORD", server.password())
}

#[test]
fn a_volume_outlives_the_state_directory() {
    let server = servers::postgres();
    let home = home_of(&server);
    home.ok(["format", "volume", "--naming", "inode", "--meta", &server.url()]);
    home.ok(["mount", "volume", "mnt"]);
    let mnt = home.mnt();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "text").unwrap();
    fs::set_permissions(mnt.join("dir/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(mnt.join("dir/file"), mnt.join("other")).unwrap();
    symlink("moved/file", mnt.join("link")).unwrap();
    fs::rename(mnt.join("dir"), mnt.join("moved")).unwrap();
    (0..50).for_each(|number| fs::write(mnt.join(format!("moved/{number}")), number.to_string()).unwrap());
    home.ok(["umount", "mnt"]);
    // Another machine has no state directory.
    fs::remove_dir_all(home.path("volume/state")).unwrap();
    home.ok(["mount", "volume", "mnt"]);
    let file = fs::metadata(mnt.join("moved/file")).unwrap();
    assert_eq!((file.nlink(), file.mode() & 0o7777, file.len()), (2, 0o640, 4));
    assert_eq!(file.ino(), fs::metadata(mnt.join("other")).unwrap().ino());
    assert_eq!(fs::read_to_string(mnt.join("link")).unwrap(), "text");
    assert_eq!(fs::read_dir(mnt.join("moved")).unwrap().count(), 51);
    assert_eq!(fs::read_to_string(mnt.join("moved/49")).unwrap(), "49");
    home.ok(["fsck", "mnt"]);
}
