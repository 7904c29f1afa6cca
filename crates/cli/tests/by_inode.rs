//! Volumes named by inode: their names are in the state directory, and survive every way in which a mount can end.

use crate::fixture::Home;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

impl Home {
    fn mount_by_inode(&self) -> PathBuf {
        self.ok(["format", "volume", "--naming", "inode"]);
        self.ok(["mount", "volume", "mnt"]);
        self.mnt()
    }
}

#[test]
fn s140_s141_s143_everything_survives_a_remount() {
    let home = Home::new();
    let mnt = home.mount_by_inode();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "text").unwrap();
    fs::set_permissions(mnt.join("dir/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(mnt.join("dir/file"), mnt.join("other")).unwrap();
    symlink("dir/file", mnt.join("link")).unwrap();
    let pipe = mnt.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    rustix::fs::setxattr(mnt.join("other"), "user.color", b"blue", rustix::fs::XattrFlags::empty()).unwrap();
    fs::rename(mnt.join("dir"), mnt.join("moved")).unwrap();
    home.remount();
    assert_eq!(fs::read_to_string(mnt.join("link")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let file = fs::metadata(mnt.join("moved/file")).unwrap();
    assert_eq!((file.nlink(), file.mode() & 0o7777, file.len()), (2, 0o640, 4));
    assert_eq!(file.ino(), fs::metadata(mnt.join("other")).unwrap().ino());
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let mut value = [0; 8];
    let len = rustix::fs::getxattr(mnt.join("moved/file"), "user.color", &mut value).unwrap();
    assert_eq!(&value[..len], b"blue");
    assert_eq!(home.ok(["fsck", "mnt"]).lines().last().unwrap(), format!("{} is clean", home.text("volume")));
}

#[test]
fn devices_and_set_id_programs_work_where_root_allows_them() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt"]);
    let null = home.mnt().join("null");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, &null, rustix::fs::FileType::CharacterDevice, mode, device).unwrap();
    assert_eq!(fs::read(&null).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--allow-dev", "--allow-suid"]);
    fs::write(&null, "into nothing").unwrap();
    assert_eq!(fs::read(&null).unwrap(), b"");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let ours = mounts.lines().find(|line| line.contains(home.mnt().to_str().unwrap())).unwrap();
    assert!(!ours.contains("nosuid") && !ours.contains("nodev"), "{ours}");
}

/// Files that were closed before a kill -9 survive, files that were open without a name are gone, and nothing else is
/// damaged.
#[test]
fn s11_s12_s144_a_killed_mount_loses_nothing_that_was_closed() {
    let home = Home::new();
    let mnt = home.mount_by_inode();
    for round in 0..5 {
        for file in 0..20 {
            fs::write(mnt.join(format!("{round}-{file}")), format!("{round} {file}")).unwrap();
        }
        let mut synced = File::create(mnt.join(format!("synced-{round}"))).unwrap();
        synced.write_all(b"synced").unwrap();
        synced.sync_all().unwrap();
        synced.write_all(b", and more").unwrap();
        let mut nameless = File::open(mnt.join(format!("{round}-0"))).unwrap();
        fs::remove_file(mnt.join(format!("{round}-0"))).unwrap();
        let mut text = String::new();
        nameless.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("{round} 0"));
        home.kill_and_remount();
    }
    for round in 0..5 {
        assert!(!mnt.join(format!("{round}-0")).exists());
        for file in 1..20 {
            let text = fs::read_to_string(mnt.join(format!("{round}-{file}"))).unwrap();
            assert_eq!(text, format!("{round} {file}"));
        }
        let synced = fs::read_to_string(mnt.join(format!("synced-{round}"))).unwrap();
        assert!(synced == "synced" || synced == "synced, and more", "{synced}");
    }
    home.ok(["umount", "mnt"]);
    // A kill may leave content that no file refers to, and nothing else.
    let repaired = home.tenon(["fsck", "volume"]);
    assert!(matches!(repaired.code, 0 | 1), "{repaired:?}");
    home.ok(["fsck", "volume"]);
    let listed = home.ok(["object", "ls", "volume", "-r"]);
    assert_eq!(listed.lines().filter(|line| line.contains("inodes/")).count(), 5 * 20, "{listed}");
}

/// Files in chunks, killed while they are written: synced data survives, and the rest is garbage.
#[test]
fn s147_s148_s150_files_in_chunks_survive_a_kill() {
    let home = Home::new();
    let refused = home.refused(["format", "volume", "--mapping", "chunked", "--naming", "file-path"]);
    assert!(refused.contains("--naming inode"), "{refused}");
    let refused = home.refused(["format", "volume", "--mapping", "chunked", "--chunk-size", "3MiB"]);
    assert!(refused.contains("4, 8"), "{refused}");
    home.ok(["format", "volume", "--mapping", "chunked", "--chunk-size", "1MiB"]);
    home.ok(["mount", "volume", "mnt"]);
    let mnt = home.mnt();
    let body: Vec<u8> = (0..(3 << 20) + 7).map(|at: u32| (at / 1000) as u8).collect();
    fs::write(mnt.join("file"), &body).unwrap();
    let located = home.ok(["locate", "mnt/file"]);
    assert_eq!(located.lines().filter(|line| line.contains("inodes/")).count(), 4, "{located}");
    // Regression: the path of an object's key was computed from the key, and did not exist.
    let key = located.split_whitespace().find(|word| word.contains("inodes/")).unwrap();
    assert_eq!(home.ok(["locate", "volume", key]).trim(), mnt.join("file").to_str().unwrap());
    let mut edited = fs::OpenOptions::new().write(true).open(mnt.join("file")).unwrap();
    edited.write_all(b"edited").unwrap();
    edited.sync_all().unwrap();
    let mut writing = File::create(mnt.join("writing")).unwrap();
    writing.write_all(&vec![1; 20 << 20]).unwrap();
    home.kill_and_remount();
    let found = fs::read(mnt.join("file")).unwrap();
    assert!(found[..6] == *b"edited" && found[6..] == body[6..]);
    let garbage = home.ok(["gc", "mnt", "--dry-run"]);
    assert!(garbage.contains("would be deleted"), "{garbage}");
    let lost = garbage.lines().count() - 1;
    assert!(home.ok(["gc", "mnt"]).contains(&format!("{lost} objects that no file refers to deleted")));
    assert_eq!(home.ok(["gc", "mnt"]), "0 objects that no file refers to deleted\n");
    fs::remove_file(mnt.join("writing")).ok();
    home.ok(["umount", "mnt"]);
    assert_eq!(home.ok(["gc", "volume"]), "0 objects that no file refers to deleted\n");
    home.ok(["fsck", "volume"]);
}

#[test]
fn metadata_of_another_volume_is_refused() {
    let home = Home::new();
    let mnt = home.mount_by_inode();
    fs::write(mnt.join("file"), "text").unwrap();
    home.ok(["umount", "mnt"]);
    let refused = home.refused(["mount", "volume", "mnt", "--state-dir", "elsewhere"]);
    assert!(refused.contains("mount the volume on the machine that has them"), "{refused}");
    home.ok(["format", "another", "--naming", "inode"]);
    let state = home.text("volume/state");
    let refused = home.refused(["mount", "another", "mnt", "--state-dir", &state]);
    assert!(refused.contains("another volume"), "{refused}");
    home.ok(["mount", "volume", "mnt"]);
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "text");
}

#[test]
fn s158_a_foreign_object_becomes_a_file() {
    let home = Home::new();
    let mnt = home.mount_by_inode();
    fs::create_dir(home.path("volume/objects/dir")).unwrap();
    fs::write(home.path("volume/objects/dir/new"), "theirs").unwrap();
    assert_eq!(home.ok(["import", "mnt"]), "dir/new\n1 files imported\n");
    assert_eq!(fs::read_to_string(mnt.join("dir/new")).unwrap(), "theirs");
    fs::write(home.path("volume/objects/later"), "theirs too").unwrap();
    home.remount();
    assert_eq!(fs::read_to_string(mnt.join("later")).unwrap(), "theirs too");
    assert!(!home.path("volume/objects/later").exists());
}

#[test]
fn damaged_metadata_is_reported() {
    let home = Home::new();
    let mnt = home.mount_by_inode();
    fs::write(mnt.join("file"), "text").unwrap();
    home.ok(["umount", "mnt"]);
    home.damage_metadata();
    let refused = home.refused(["mount", "volume", "mnt"]);
    assert!(refused.contains("meta"), "{refused}");
}
