//! Mounts of local volumes: files appear as objects, and objects as files.

use crate::fixture::{Home, capture, is_mounted, tenon};
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn files_are_objects_and_objects_are_files() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "from the file side").unwrap();
    assert_eq!(home.ok(["object", "get", "volume/dir/file"]), "from the file side");
    let mut put = home
        .command(tenon())
        .args(["object", "put", "volume/dir/object"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(b"from the object side").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(fs::read_to_string(mnt.join("dir/object")).unwrap(), "from the object side");
    home.ok(["object", "rm", "volume/dir/object"]);
    assert!(!mnt.join("dir/object").exists());
}

#[test]
fn objects_are_listed_and_described() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::create_dir_all(mnt.join("a/b")).unwrap();
    fs::write(mnt.join("a/b/file"), "12345").unwrap();
    let listed = home.ok(["object", "ls", "volume/a/", "--json"]);
    assert!(listed.contains(r#"{"prefix":"a/b/"}"#), "{listed}");
    let listed = home.ok(["object", "ls", "volume", "-r"]);
    assert!(listed.contains("5  a/b/file"), "{listed}");
    let described = home.ok(["object", "head", "volume/a/b/file"]);
    assert!(
        described.contains("file-permissions 0100644") && described.contains("size            5"),
        "{described}"
    );
}

#[test]
fn a_directory_of_files_is_a_bucket() {
    let home = Home::new();
    fs::create_dir_all(home.path("bucket/deep")).unwrap();
    fs::write(home.path("bucket/deep/file"), "somebody else's").unwrap();
    home.ok(["mount", &format!("file://{}", home.text("bucket")), "mnt"]);
    assert_eq!(fs::read_to_string(home.mnt().join("deep/file")).unwrap(), "somebody else's");
    fs::write(home.mnt().join("deep/mine"), "mine").unwrap();
    assert_eq!(fs::read_to_string(home.path("bucket/deep/mine")).unwrap(), "mine");
    home.ok(["umount", "mnt"]);
    assert!(!is_mounted(&home.mnt()));
}

#[test]
fn written_files_are_there_at_the_next_mount() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), vec![7; 20 << 20]).unwrap();
    fs::write(mnt.join("small"), "x").unwrap();
    home.ok(["umount", "mnt"]);
    assert!(!mnt.join("file").exists());
    home.ok(["mount", "volume", "mnt"]);
    assert!(fs::read(mnt.join("file")).unwrap() == vec![7; 20 << 20]);
}

#[test]
fn s66_locate_maps_paths_to_keys_and_back() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "123").unwrap();
    let found: serde_json::Value =
        serde_json::from_str(&home.ok(["locate", "mnt/dir/file", "--json"])).unwrap();
    assert_eq!((found["key"].as_str(), found["size_bytes"].as_u64()), (Some("dir/file"), Some(3)));
    assert!(found["url"].as_str().unwrap().ends_with("/volume/objects/dir/file"), "{found}");
    assert_eq!(home.ok(["locate", "volume", "dir/file"]).trim(), mnt.join("dir/file").to_str().unwrap());
    assert!(home.ok(["locate", "volume", "a//b"]).ends_with("mnt/a/%!/b\n"));
    assert!(home.refused(["locate", "mnt/nothing"]).contains("no such file"));
    assert!(home.refused(["locate", "/etc/passwd"]).contains("is not in a Tenon mount"));
}

#[test]
fn status_lists_mounts_and_counts_requests() {
    let home = Home::new();
    // Mounts of other tests' daemons may be listed too.
    assert!(!home.ok(["status"]).contains(home.mnt().to_str().unwrap()));
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), "x").unwrap();
    let status = home.status();
    assert_eq!(status["mount_point"].as_str(), mnt.to_str());
    assert_eq!(status["fuse_requests"]["CREATE"], 1);
    assert_eq!(status["pending"]["dirty_files"], 0);
    assert!(status["store_requests"]["PUT"].as_u64().unwrap() >= 1, "{status}");
    assert!(home.ok(["status"]).contains(&format!("{}  {}", home.text("mnt"), home.text("volume"))));
    assert!(home.ok(["status", "volume"]).contains("FUSE requests"));
    assert!(home.refused(["status", "elsewhere"]).contains("is not mounted"));
}

#[test]
fn fsck_finds_a_sound_volume_clean_and_cleans_up_after_a_crash() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), "x").unwrap();
    assert!(home.ok(["fsck", "mnt", "--headers"]).contains("is clean"));
    home.ok(["umount", "mnt"]);
    assert!(home.ok(["fsck", "volume"]).contains("is clean"));
    fs::write(home.path("volume/state/cache/leftover"), "x").unwrap();
    assert_eq!(home.tenon(["fsck", "volume", "-n"]).code, 4);
    assert_eq!(home.tenon(["fsck", "volume"]).code, 1);
    assert_eq!(home.tenon(["fsck", "volume"]).code, 0);
    fs::create_dir_all(home.path("volume/objects/.tenon/orphans")).unwrap();
    fs::write(home.path("volume/objects/.tenon/orphans/9"), "x").unwrap();
    assert_eq!(home.tenon(["fsck", "volume"]).code, 4);
    assert!(!home.ok(["object", "ls", "volume", "-r"]).contains(".tenon"), "Tenon's own objects are hidden");
    assert!(home.ok(["object", "ls", "volume/.tenon/", "-r"]).contains(".tenon/orphans/9"));
    assert_eq!(home.tenon(["fsck", "volume", "--remove-orphans"]).code, 1);
    assert_eq!(home.tenon(["fsck", "volume"]).code, 0);
}

#[test]
fn s90_a_read_only_mount_changes_nothing() {
    let home = Home::new();
    fs::create_dir(home.path("bucket")).unwrap();
    fs::write(home.path("bucket/file"), "x").unwrap();
    home.ok(["mount", &format!("file://{}", home.text("bucket")), "mnt", "-o", "ro"]);
    assert_eq!(fs::read_to_string(home.mnt().join("file")).unwrap(), "x");
    assert_eq!(fs::write(home.mnt().join("new"), "x").unwrap_err().raw_os_error(), Some(30));
    let status = home.status();
    let sent: Vec<&str> = status["store_requests"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(kind, _)| kind.as_str())
        .collect();
    assert!(sent.iter().all(|kind| ["GET", "HEAD", "LIST"].contains(kind)), "{sent:?}");
    home.ok(["umount", "mnt"]);
    let left: Vec<_> =
        fs::read_dir(home.path("bucket")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
}

#[test]
fn version_and_help_need_no_volume() {
    let home = Home::new();
    assert!(home.ok(["version"]).starts_with("tenon "));
    assert!(home.ok(["version", "--json"]).starts_with("{\"version\""));
    assert!(home.ok(["mount", "--help"]).contains("--endpoint-url"));
    let output = capture(&mut home.command(tenon()));
    assert_eq!(output.code, 2, "{output:?}");
}
