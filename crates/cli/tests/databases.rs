//! Volumes whose metadata is in a PostgreSQL database.

use crate::fixture::Home;
use crate::s3::{home, new_bucket};
use servers::Postgres;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// A volume in a bucket of MinIO, with its metadata in a PostgreSQL of its own.
struct Setup {
    database: Postgres,
    home: Home,
    url: String,
}

impl Setup {
    /// Formats a volume with these flags.
    fn new(name: &str, flags: &[&str]) -> Self {
        let (database, server) = (servers::postgres(), servers::shared_minio());
        let url = format!("s3://{}", new_bucket(server, name));
        let home =
            home(server).with("AWS_ENDPOINT_URL", &server.endpoint()).with("PGPASSWORD", database.password());
        let setup = Self { database, home, url };
        let meta = setup.database.url();
        setup.home.ok([&["format", &setup.url, "--meta", &meta], flags].concat());
        setup
    }

    /// Mounts the volume as a machine with this state directory.
    fn mount(&self, state: &str) -> PathBuf {
        self.home.ok(["mount", &self.url, "mnt", "--state-dir", state]);
        self.home.mnt()
    }
}

#[test]
fn names_outlive_the_state_directory() {
    let setup = Setup::new("outlive-state", &["--mapping", "chunked", "--chunk-size", "1MiB"]);
    let mnt = setup.mount("one");
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "text").unwrap();
    fs::set_permissions(mnt.join("dir/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(mnt.join("dir/file"), mnt.join("other")).unwrap();
    symlink("moved/file", mnt.join("link")).unwrap();
    fs::rename(mnt.join("dir"), mnt.join("moved")).unwrap();
    (0..30).for_each(|number| fs::write(mnt.join(format!("moved/{number}")), number.to_string()).unwrap());
    // More extents than fit into an inode.
    let long: Vec<u8> = (0..(9 << 20) + 5).map(|at: u32| (at / 1000) as u8).collect();
    fs::write(mnt.join("long"), &long).unwrap();
    setup.home.ok(["umount", "mnt"]);
    fs::remove_dir_all(setup.home.path("one")).unwrap();
    let mnt = setup.mount("two");
    let file = fs::metadata(mnt.join("moved/file")).unwrap();
    assert_eq!((file.nlink(), file.mode() & 0o7777, file.len()), (2, 0o640, 4));
    assert_eq!(file.ino(), fs::metadata(mnt.join("other")).unwrap().ino());
    assert_eq!(fs::read_to_string(mnt.join("link")).unwrap(), "text");
    assert_eq!(fs::read_dir(mnt.join("moved")).unwrap().count(), 31);
    assert_eq!(fs::read_to_string(mnt.join("moved/29")).unwrap(), "29");
    assert!(fs::read(mnt.join("long")).unwrap() == long);
    setup.home.ok(["dump", "mnt", "names"]);
    assert!(fs::metadata(setup.home.path("names")).unwrap().len() > 1000);
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
    setup.home.ok(["fsck", &setup.url, "--state-dir", "two"]);
    let refused = setup.home.refused(["restore", &setup.url, "--state-dir", "three"]);
    assert!(refused.contains("is in the database"), "{refused}");
}

#[test]
fn objects_named_by_path_have_their_metadata_in_a_database_too() {
    let setup = Setup::new("database-by-path", &[]);
    let mnt = setup.mount("one");
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "text").unwrap();
    fs::hard_link(mnt.join("dir/file"), mnt.join("dir/other")).unwrap();
    assert_eq!(setup.home.ok(["object", "get", &format!("{}/dir/file", setup.url)]), "text");
    setup.home.ok(["umount", "mnt"]);
    let mnt = setup.mount("two");
    assert_eq!(fs::metadata(mnt.join("dir/other")).unwrap().nlink(), 2);
    setup.home.ok(["umount", "mnt"]);
}

/// Calls wait while the database restarts, and no file that was closed is lost.
#[test]
fn a_mount_survives_restarts_of_its_database() {
    let mut setup = Setup::new("database-restarts", &["--naming", "inode"]);
    let mnt = setup.mount("one");
    let write = |round: usize| {
        (0..10).for_each(|file| fs::write(mnt.join(format!("{round}-{file}")), "text").unwrap())
    };
    for round in 0..3 {
        thread::scope(|scope| {
            let writing = scope.spawn(|| write(round));
            thread::sleep(Duration::from_millis(50));
            setup.database.stop();
            setup.database.restart();
            writing.join().unwrap();
        });
    }
    assert_eq!(fs::read_dir(&mnt).unwrap().count(), 30);
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
}

#[test]
fn one_machine_at_a_time_mounts_a_volume() {
    let setup = Setup::new("database-exclusive", &["--naming", "inode"]);
    setup.mount("one");
    fs::create_dir(setup.home.path("there")).unwrap();
    let refused = setup.home.refused(["mount", &setup.url, "there", "--state-dir", "two"]);
    assert!(refused.contains("the volume is in use by"), "{refused}");
    // This machine, after a crash of its mount, need not wait.
    setup.home.signal(setup.home.pid(), rustix::process::Signal::KILL);
    setup.home.ok(["umount", "mnt"]);
    setup.mount("one");
    setup.home.ok(["umount", "mnt"]);
    setup.mount("two");
    setup.home.ok(["umount", "mnt"]);
}

#[test]
fn passwords_are_not_stored_and_mistakes_are_one_line() {
    let setup = Setup::new("database-secrets", &["--naming", "inode"]);
    let (home, secret) = (&setup.home, setup.database.password());
    let with_password = setup.database.url().replace("tenon@", &format!("tenon:{secret}@"));
    let refused = home.refused(["format", &format!("{}/other", setup.url), "--meta", &with_password]);
    assert!(refused.contains("PGPASSWORD") && !refused.contains(secret), "{refused}");
    let record = home.ok(["object", "get", &format!("{}/.tenon/volume", setup.url)]);
    assert!(record.contains("postgres://tenon@127.0.0.1") && !record.contains(secret), "{record}");
    let writeback = home.refused(["mount", &setup.url, "mnt", "--writeback"]);
    assert!(writeback.contains("--writeback"), "{writeback}");
    let again = home.refused(["format", &setup.url, "--naming", "inode", "--meta", &setup.database.url()]);
    assert!(again.contains("is a Tenon volume already"), "{again}");
    let mut stopped = servers::postgres();
    stopped.stop();
    let down = home.refused(["format", &format!("{}/other", setup.url), "--meta", &stopped.url()]);
    assert!(down.contains("cannot connect to the database at 127.0.0.1"), "{down}");
}
