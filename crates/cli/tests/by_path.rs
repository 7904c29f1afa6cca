//! Volumes named by path: what their bucket cannot show is in the state directory, and survives every way in which a
//! mount can end.

use crate::fixture::{Home, eventually};
use rustix::fs::XattrFlags;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

/// Makes a directory whose path is longer than a key, with all its parents.
fn make_deep_dir(mnt: &Path) -> PathBuf {
    let deep = (0..5).fold(mnt.to_owned(), |path, _| path.join("d".repeat(220)));
    fs::create_dir_all(&deep).unwrap();
    deep
}

#[test]
fn s45_s71_s89_s93_what_a_bucket_cannot_show_survives_a_remount() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    home.ok(["mount", "volume", "mnt"]);
    let mnt = home.mnt();
    fs::write(mnt.join("file"), "text").unwrap();
    fs::hard_link(mnt.join("file"), mnt.join("other")).unwrap();
    rustix::fs::setxattr(mnt.join("other"), "user.color", b"blue", XattrFlags::empty()).unwrap();
    let deep = make_deep_dir(&mnt);
    fs::write(deep.join("below"), "deep").unwrap();
    symlink("below", deep.join("link")).unwrap();
    let ino = fs::metadata(mnt.join("file")).unwrap().ino();
    for end in [Home::remount as fn(&Home), Home::kill_and_remount] {
        end(&home);
        let file = fs::metadata(mnt.join("other")).unwrap();
        assert_eq!((file.nlink(), file.ino()), (2, ino));
        let mut value = [0; 8];
        let len = rustix::fs::getxattr(mnt.join("file"), "user.color", &mut value).unwrap();
        assert_eq!(&value[..len], b"blue");
        assert_eq!(fs::read_to_string(deep.join("link")).unwrap(), "deep");
    }
    assert_eq!(home.ok(["gc", "mnt"]), "0 objects that no file refers to deleted\n");
    home.ok(["umount", "mnt"]);
    assert_eq!(home.ok(["gc", "volume"]), "0 objects that no file refers to deleted\n");
    assert_eq!(
        home.ok(["fsck", "volume"]).lines().last().unwrap(),
        format!("{} is clean", home.text("volume"))
    );
    let listed = home.ok(["object", "ls", "volume", "-r"]);
    assert!(listed.contains("file") && !listed.contains("other"), "{listed}");
}

#[test]
fn an_embedded_volume_can_be_moved() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    home.ok(["mount", "volume", "mnt"]);
    fs::write(home.mnt().join("file"), "text").unwrap();
    fs::hard_link(home.mnt().join("file"), home.mnt().join("other")).unwrap();
    home.ok(["umount", "mnt"]);
    fs::rename(home.path("volume"), home.path("moved")).unwrap();
    home.ok(["mount", "moved", "mnt"]);
    assert_eq!(fs::read_to_string(home.mnt().join("other")).unwrap(), "text");
}

#[test]
fn s12_s21_an_fsync_in_a_large_file_survives_a_kill() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    home.ok(["mount", "volume", "mnt"]);
    let path = home.mnt().join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"synced", 500_000).unwrap();
    file.sync_all().unwrap();
    let object = home.path("volume/objects/file");
    assert_eq!(fs::read(&object).unwrap()[500_000], 1, "the fsync stored one delta object");
    file.write_all_at(b"not synced", 900_000).unwrap();
    home.signal(home.pid(), rustix::process::Signal::KILL);
    drop(file);
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt"]);
    assert_eq!(&fs::read(&path).unwrap()[500_000..500_006], b"synced");
    assert_eq!(&fs::read(&object).unwrap()[500_000..500_006], b"synced", "the mount has assembled it");
}

#[test]
fn s97_another_mount_s_defaults_are_not_remembered() {
    let home = Home::new();
    fs::create_dir_all(home.path("bucket/dir")).unwrap();
    fs::write(home.path("bucket/dir/file"), "text").unwrap();
    let url = format!("file://{}", home.text("bucket"));
    for uid in [7, 1234] {
        home.ok(["mount", &url, "mnt", "--uid", &uid.to_string()]);
        for path in ["dir", "dir/file"] {
            assert_eq!(fs::metadata(home.mnt().join(path)).unwrap().uid(), uid, "{path}");
        }
        home.ok(["umount", "mnt"]);
    }
}

#[test]
fn damaged_metadata_is_reported_and_rebuilt_from_the_bucket() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    home.ok(["mount", "volume", "mnt"]);
    let mnt = home.mnt();
    fs::create_dir(mnt.join("dir")).unwrap();
    for name in ["dir/a", "dir/b", "c"] {
        File::create(mnt.join(name)).unwrap().write_all(name.as_bytes()).unwrap();
    }
    fs::hard_link(mnt.join("c"), mnt.join("link")).unwrap();
    let mount_point = mnt.canonicalize().unwrap();
    let expected = format!("`tenon umount {}` first", mount_point.display());
    let refused = home.refused(["rebuild", "volume"]);
    assert!(refused.contains(" mounts ") && refused.contains(&expected), "{refused}");
    home.ok(["umount", "mnt"]);
    assert!(home.refused(["rebuild", "volume"]).contains("is sound"));
    home.damage_metadata();
    let refused = home.refused(["mount", "volume", "mnt"]);
    assert!(refused.contains("is damaged") && refused.contains("tenon rebuild"), "{refused}");
    let output = home.ok(["rebuild", "volume"]);
    assert!(output.starts_with("rebuilt 4 names") && output.contains("meta.old-1"), "{output}");
    home.ok(["mount", "volume", "mnt"]);
    for name in ["dir/a", "dir/b", "c"] {
        assert_eq!(fs::read_to_string(mnt.join(name)).unwrap(), name);
    }
    assert!(!mnt.join("link").exists(), "no bucket shows it");
}

/// A program keeps its log open, and a client of the bucket reads along.
#[test]
fn s285_an_s3_client_sees_an_open_file_grow() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", crate::s3::new_bucket(server, "growing"));
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt", "--publish-interval=200ms"]);
    let mut log = File::create(home.mnt().join("log")).unwrap();
    let mut text = String::new();
    for line in ["first\n", "second\n", "third\n"] {
        log.write_all(line.as_bytes()).unwrap();
        text += line;
        let key = format!("{bucket}/log");
        eventually("the line is in the bucket", || home.tenon(["object", "get", &key]).out == text);
    }
    drop(log);
    home.ok(["umount", "mnt"]);
}

/// Regression: for a volume that is only served, `tenon rebuild` said that it is mounted at a URL and has to be unmounted.
#[test]
fn a_volume_that_is_served_is_stopped_before_it_is_rebuilt() {
    let home = Home::new().with_users();
    home.ok(["format", "volume"]);
    let serving = home.serve("volume", &[]);
    let refused = home.refused(["rebuild", "volume"]);
    assert!(refused.contains(" serves ") && refused.contains("(`kill "), "{refused}");
    assert!(!refused.contains("mount"), "{refused}");
    drop(serving);
}
