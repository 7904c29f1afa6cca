//! Wrong input: one line that says what is wrong and what to do, an exit code, and nothing lost or left behind.

use crate::fixture::{Home, is_mounted};
use std::fs;
use std::net::TcpListener;

#[test]
fn an_unknown_option_suggests_the_nearest_valid_one() {
    let home = Home::new();
    assert!(
        home.refused(["mount", "v", "mnt", "-o", "endpont_url=x"]).contains("did you mean 'endpoint_url'?")
    );
    let flag = home.tenon(["mount", "v", "mnt", "--endpont-url=x"]);
    assert_eq!(flag.code, 2);
    assert!(flag.err.contains("'--endpoint-url'") && flag.err.lines().count() == 1, "{flag:?}");
    assert_eq!(home.tenon(["mount", "v", "mnt", "-o", "metadata_ttl=soon"]).code, 2);
    assert!(home.refused(["mount", "v", "mnt", "-o", "memory_limit=1M"]).contains("at least 64MiB"));
    assert!(home.refused(["mount", "v", "mnt", "--part-size=1M"]).contains("between 5MiB and 5GiB"));
    assert_eq!(home.tenon(["mount"]).code, 2);
    assert_eq!(home.tenon(["mont", "v", "mnt"]).code, 2);
}

#[test]
fn s117_a_mount_point_must_be_an_empty_directory() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    assert!(home.refused(["mount", "volume", "missing"]).contains("does not exist; make it first"));
    fs::write(home.path("file"), "").unwrap();
    assert!(home.refused(["mount", "volume", "file"]).contains("is not a directory"));
    fs::write(home.mnt().join("precious"), "x").unwrap();
    assert!(home.refused(["mount", "volume", "mnt"]).contains("is not empty"));
    assert_eq!(fs::read_to_string(home.mnt().join("precious")).unwrap(), "x");
    home.ok(["mount", "volume", "mnt", "--nonempty"]);
    assert!(!home.mnt().join("precious").exists());
    home.ok(["umount", "mnt"]);
    assert!(home.mnt().join("precious").exists());
}

#[test]
fn s116_a_second_mount_is_told_of_the_first() {
    let home = Home::new();
    home.mount_volume();
    fs::create_dir(home.path("other")).unwrap();
    let refused = home.refused(["mount", "volume", "other"]);
    let pid = home.pid().to_string();
    assert!(refused.contains(&pid) && refused.contains(home.mnt().to_str().unwrap()), "{refused}");
    assert!(home.refused(["mount", "volume", "mnt"]).contains("already"));
    fs::write(home.mnt().join("still"), "works").unwrap();
    assert!(!is_mounted(&home.path("other")));
}

/// Regression: an endpoint that could not start printed the reason and then died of SIGABRT ("pthread lock: Invalid
/// argument"). Threads of the mount still closed the metadata engine when `main` had returned and RocksDB's global
/// state was destroyed.
#[test]
fn s551_a_start_that_fails_after_opening_ends_in_order() {
    let home = Home::new();
    home.ok(["format", "by-path"]);
    home.ok(["format", "by-inode", "--naming", "inode"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    fs::write(home.path("users.toml"), "[[user]]\n").unwrap();
    let failures: [(&[&str], &str); 4] = [
        (&[], "Address already in use"),
        (&["--bucket", "No_Name"], "is not a valid bucket name"),
        (&["--domain", "no domain"], "--domain"),
        (&["--users", "users.toml"], "users.toml"),
    ];
    for volume in ["by-path", "by-inode"] {
        for (flags, why) in failures {
            let serve: &[&str] = &["serve", volume, "--listen", &taken];
            let mount: &[&str] = &["mount", "-f", volume, "mnt", "--writeback", "--serve", &taken];
            for words in [serve, mount, mount] {
                let words = [words, flags].concat();
                let output = home.tenon(&words);
                assert!(output.code == 1 && output.err.contains(why), "{words:?}: {output:?}");
                assert!(!output.err.contains("pthread") && !is_mounted(&home.mnt()), "{words:?}: {output:?}");
                home.ok(["mount", volume, "mnt", "--writeback"]);
                home.ok(["umount", "mnt"]);
            }
        }
    }
}

#[test]
fn a_path_that_is_no_volume_says_how_to_make_one() {
    let home = Home::new();
    fs::create_dir(home.path("plain")).unwrap();
    let refused = home.refused(["mount", "plain", "mnt"]);
    assert!(refused.contains("tenon format") && refused.contains("file://"), "{refused}");
    assert!(home.refused(["mount", "file:///no/such/dir", "mnt"]).contains("is not a directory"));
    assert!(home.refused(["mount", "gs://bucket", "mnt"]).contains("use s3://bucket"));
    assert!(home.refused(["mount", "s3://x", "mnt"]).contains("is not a valid bucket name"));
}

#[test]
fn umount_refuses_a_path_without_a_mount() {
    let home = Home::new();
    assert!(home.refused(["umount", "mnt"]).contains("no Tenon volume is mounted"));
    assert!(home.refused(["umount", "missing/dir"]).contains("cannot resolve"));
}

#[test]
fn format_changes_no_existing_files() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    assert!(home.refused(["format", "volume"]).contains("already"));
    fs::create_dir(home.path("full")).unwrap();
    fs::write(home.path("full/precious"), "x").unwrap();
    assert!(home.refused(["format", "full"]).contains("not empty"));
    assert!(home.ok(["format", "s3://bucket"]).contains("needs no format"));
}

#[test]
fn a_damaged_volume_is_not_mounted() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    fs::write(home.path("volume/tenon.toml"), "version = 1\n").unwrap();
    assert!(home.refused(["mount", "volume", "mnt"]).contains("is damaged"));
    fs::remove_file(home.path("volume/tenon.toml")).unwrap();
    assert!(home.refused(["mount", "volume", "mnt"]).contains("is not a Tenon volume"));
}

#[test]
fn a_state_directory_that_cannot_be_used_says_so() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    fs::write(home.path("file"), "").unwrap();
    let refused = home.refused(["mount", "volume", "mnt", "--state-dir", "file/state"]);
    assert!(refused.contains("choose another with --state-dir"), "{refused}");
    assert!(home.refused(["mount", "volume", "mnt", "--log-level", "a=b=c"]).contains("is not a log level"));
    assert!(home.refused(["mount", "volume", "mnt", "--log-file", "file/log"]).contains("--log-file"));
    assert!(!is_mounted(&home.mnt()));
}
