//! `tenon backup` and `tenon restore`: the names of volumes named by inode, which only this machine has.

use crate::fixture::{Home, eventually};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns every file below a directory, with its bytes.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

impl Home {
    /// Makes and mounts a volume named by inode, with some files.
    fn with_names(&self, flags: &[&str]) -> BTreeMap<String, Vec<u8>> {
        self.ok(["format", "volume", "--naming", "inode"]);
        self.ok([&["mount", "volume", "mnt"], flags].concat());
        fs::create_dir(self.mnt().join("dir")).unwrap();
        for number in 0..20 {
            fs::write(self.mnt().join(format!("dir/file{number}")), vec![number; 10_000]).unwrap();
        }
        fs::hard_link(self.mnt().join("dir/file0"), self.mnt().join("other")).unwrap();
        tree(&self.mnt())
    }

    fn lose_state(&self) {
        fs::remove_dir_all(self.path("volume/state")).unwrap();
    }
}

/// Regression: the names of a volume named by inode were on one disk only, without any warning or backup.
#[test]
fn s511_format_mount_and_status_say_where_the_names_are() {
    let home = Home::new();
    let made = home.tenon(["format", "volume", "--naming", "inode"]);
    let mounted = home.tenon(["mount", "volume", "mnt"]);
    for output in [made.err, mounted.err, home.ok(["status", "mnt"])] {
        assert!(output.contains(&home.text("volume/state")) && output.contains("tenon backup"), "{output}");
    }
    let home = Home::new();
    assert_eq!(home.tenon(["format", "volume"]).err, "");
    assert_eq!(home.tenon(["mount", "volume", "mnt"]).err, "");
}

#[test]
fn s512_s513_a_backup_of_a_mounted_volume_restores_all_names() {
    for flags in [&[][..], &["--writeback"]] {
        let home = Home::new();
        let files = home.with_names(flags);
        let done = home.ok(["backup", "mnt", "names.backup"]);
        assert!(done.contains("records of mnt"), "{done}");
        assert!(home.refused(["backup", "volume", "names.backup"]).contains("already"));
        home.signal(home.pid(), Signal::KILL);
        home.ok(["umount", "mnt"]);
        assert!(home.refused(["restore", "names.backup", "volume"]).contains("already"));
        home.lose_state();
        let restored = home.ok(["restore", "names.backup", "volume"]);
        assert!(restored.contains("tenon fsck"), "{restored}");
        assert!(home.ok(["fsck", "volume"]).contains("is clean"));
        home.ok([&["mount", "volume", "mnt"], flags].concat());
        assert_eq!(tree(&home.mnt()), files, "{flags:?}");
        fs::write(home.mnt().join("new"), "after").unwrap();
        home.ok(["umount", "mnt"]);
        home.ok(["backup", "volume", "second.backup"]);
    }
}

/// A backup is of one commit while programs continue: a file that is renamed back and forth is in it exactly once.
#[test]
fn s512_a_backup_under_load_is_of_one_moment() {
    let home = Home::new();
    home.with_names(&["--writeback"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = || {
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // The file exists under exactly one of two names at any time.
                let (from, to) = if number % 2 == 0 { ("one", "two") } else { ("two", "one") };
                if number == 0 {
                    fs::write(home.mnt().join(from), "moves").unwrap();
                }
                fs::rename(home.mnt().join(from), home.mnt().join(to)).unwrap();
                fs::write(home.mnt().join(format!("load{number}")), vec![1; 5000]).unwrap();
            }
        };
        scope.spawn(write);
        eventually("the writer is at work", || home.mnt().join("load3").exists());
        home.ok(["backup", "volume", "names.backup"]);
        over.store(true, Ordering::Relaxed);
    });
    home.ok(["umount", "mnt"]);
    home.lose_state();
    home.ok(["restore", "names.backup", "volume"]);
    // Files written after the backup leave content without a name.
    home.assert_sound_but_for_garbage("volume");
    home.ok(["mount", "volume", "mnt"]);
    let there = ["one", "two"].map(|name| home.mnt().join(name).exists());
    assert_ne!(there[0], there[1], "the file is there once");
    let files = tree(&home.mnt());
    // A file that was open at the moment of the backup has the content that was stored before, which is none.
    assert!(files.values().all(|bytes| [0, 5000, 10_000].contains(&bytes.len()) || bytes == b"moves"));
}

#[test]
fn s513_restore_refuses_unusable_files_and_changes_nothing() {
    let home = Home::new();
    home.with_names(&[]);
    home.ok(["umount", "mnt"]);
    home.ok(["backup", "volume", "names.backup"]);
    home.lose_state();
    let mut bytes = fs::read(home.path("names.backup")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(home.path("damaged"), &bytes).unwrap();
    assert!(home.refused(["restore", "damaged", "volume"]).contains("damaged"));
    fs::write(home.path("damaged"), &bytes[..middle]).unwrap();
    assert!(home.refused(["restore", "damaged", "volume"]).contains("cut off"));
    assert!(home.refused(["restore", "volume/tenon.toml", "volume"]).contains("not a backup"));
    assert!(!home.path("volume/state").exists());
    home.ok(["format", "another", "--naming", "inode"]);
    assert!(home.refused(["restore", "names.backup", "another"]).contains("not of"));
    assert!(!home.path("another/state/meta").exists());
}

/// Files whose content the bucket lost after the backup are found by fsck.
#[test]
fn s513_fsck_reports_content_lost_since_the_backup() {
    let home = Home::new();
    home.with_names(&[]);
    home.ok(["backup", "mnt", "names.backup"]);
    fs::remove_file(home.mnt().join("dir/file7")).unwrap();
    eventually("its object is gone", || home.ok(["gc", "mnt", "--dry-run"]).lines().count() <= 1);
    home.ok(["umount", "mnt"]);
    home.lose_state();
    home.ok(["restore", "names.backup", "volume"]);
    let checked = home.tenon(["fsck", "volume"]);
    assert!(checked.code != 0 && checked.out.contains("file7"), "{checked:?}");
}

/// Regression: `mount`, `serve` and `rebuild` of a volume whose state was lost created an empty state directory, so
/// that a copy that was put back landed one level too deep. And `rebuild` said that `mount` would help.
#[test]
fn s514_refused_commands_leave_no_directory() {
    let home = Home::new();
    home.with_names(&[]);
    home.ok(["umount", "mnt"]);
    home.lose_state();
    for command in [
        &["mount", "volume", "mnt"][..],
        &["mount", "volume", "mnt", "--writeback"],
        &["serve", "volume", "--listen", "127.0.0.1:0"],
        &["rebuild", "volume"],
    ] {
        let refused = home.refused(command);
        assert!(refused.contains("tenon restore"), "{refused}");
        assert!(!home.path("volume/state").exists(), "{command:?}");
    }
}
