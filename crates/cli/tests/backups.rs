//! The backup of the metadata in the bucket, `tenon restore`, and dump files.

use crate::fixture::{Home, capture, eventually, tenon};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Properties of a file that a test compares: type and mode, owner, modification time, extended attribute, and bytes or target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    links: u64,
    xattr: Option<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Shown {
    fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

pub(crate) const XATTR: &str = "user.color";

/// Returns everything below a directory, by relative path.
pub(crate) fn tree(dir: &Path) -> BTreeMap<Vec<u8>, Shown> {
    let mut found = BTreeMap::new();
    add_tree(dir, dir, &mut found);
    found
}

fn add_tree(root: &Path, dir: &Path, found: &mut BTreeMap<Vec<u8>, Shown>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let bytes = match meta.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
            kind if kind.is_dir() => Vec::new(),
            _ => fs::read(&path).unwrap(),
        };
        let relative = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let shown = Shown {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            links: meta.nlink(),
            xattr: xattr_of(&path),
            bytes,
        };
        found.insert(relative, shown);
        if meta.is_dir() {
            add_tree(root, &path, found);
        }
    }
}

fn xattr_of(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let len = rustix::fs::lgetxattr(path, XATTR, &mut value[..]).ok()?;
    Some(value[..len].to_vec())
}

impl Home {
    /// Makes and mounts a volume with files of all kinds.
    fn with_files(&self, format: &[&str], flags: &[&str]) {
        self.ok([&["format", "volume"], format].concat());
        self.ok([&["mount", "volume", "mnt"], flags].concat());
        let mnt = self.mnt();
        fs::create_dir(mnt.join("dir")).unwrap();
        for number in 0..20 {
            fs::write(mnt.join(format!("dir/file{number}")), vec![number; 10_000]).unwrap();
        }
        fs::hard_link(mnt.join("dir/file0"), mnt.join("other name")).unwrap();
        std::os::unix::fs::symlink("dir/file1", mnt.join("link")).unwrap();
        fs::set_permissions(mnt.join("dir/file2"), fs::Permissions::from_mode(0o640)).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(mnt.join("dir/file3"), XATTR, b"blue \xff", flags).unwrap();
        fs::rename(mnt.join("dir/file4"), mnt.join("moved")).unwrap();
        let odd: PathBuf = mnt.join(std::ffi::OsStr::from_bytes(b"not \xff utf8"));
        fs::write(odd, "odd").unwrap();
        fs::write(mnt.join("empty"), "").unwrap();
    }

    fn lose_state(&self) {
        fs::remove_dir_all(self.path("volume/state")).unwrap();
    }

    fn kill(&self) {
        self.signal(self.pid(), Signal::KILL);
        self.ok(["umount", "mnt"]);
    }

    fn backup_report(&self) -> serde_json::Value {
        self.status()["backup"].clone()
    }

    /// Waits until a pass that began after this call has ended.
    fn await_backup(&self) {
        std::thread::sleep(std::time::Duration::from_millis(1100));
        eventually("the backup is current", || self.backup_report()["age_secs"] == 0);
    }

    /// Returns the keys of the backup's objects.
    fn backup_objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.path("volume/objects/.tenon/metadata")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { dirs.push(path) } else { found.push(path) }
            }
        }
        found
    }
}

/// Length of the files that are written under load.
const LOADED_BYTES: usize = 9000;

/// Formats of all layouts.
const FORMATS: [&[&str]; 3] =
    [&[], &["--naming", "inode"], &["--mapping", "chunked", "--chunk-size", "1MiB"]];

#[test]
fn a_machine_that_is_thrown_away_is_restored_from_the_bucket() {
    for format in FORMATS {
        for writeback in [&[][..], &["--writeback"]] {
            let home = Home::new();
            home.with_files(format, &[writeback, &["--metadata-backup", "1s"]].concat());
            home.await_backup();
            let files = tree(&home.mnt());
            home.kill();
            home.lose_state();
            let restored = home.ok(["restore", "volume"]);
            assert!(restored.contains("as of 20"), "{restored}");
            assert!(!restored.contains("lost") && !restored.contains("no longer"), "{format:?} {restored}");
            home.ok([&["mount", "volume", "mnt"], writeback].concat());
            let mut found = tree(&home.mnt());
            if format.is_empty() && !writeback.is_empty() {
                // The bucket gives a directory's marker another etag than the log did, so that its times are those of the marker.
                found
                    .values_mut()
                    .zip(files.values())
                    .filter(|(shown, _)| shown.is_directory())
                    .for_each(|(shown, before)| shown.mtime = before.mtime);
            }
            assert_eq!(found, files, "{format:?} {writeback:?}");
            fs::write(home.mnt().join("new"), "after").unwrap();
            home.ok(["umount", "mnt"]);
            home.ok(["fsck", "volume", "--backup"]);
        }
    }
}

/// Kill -9 under load: each file that was closed before the newest backup is there with its bytes, also if it was replaced
/// afterwards. A file that is replaced by truncation is empty until the program writes it, and may be so in the backup.
#[test]
fn files_closed_before_the_newest_backup_survive_a_kill_under_load() {
    for format in [FORMATS[1], FORMATS[2]] {
        let home = Home::new();
        home.with_files(format, &["--metadata-backup", "1s"]);
        home.await_backup();
        let before = tree(&home.mnt());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..2000 {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    // These fail once the mount is killed.
                    let (renamed, truncated) = (5 + number % 5, 10 + number % 5);
                    let body = vec![number as u8; LOADED_BYTES];
                    let _ = fs::write(home.mnt().join("dir/new"), &body);
                    let name = format!("dir/file{renamed}");
                    let _ = fs::rename(home.mnt().join("dir/new"), home.mnt().join(name));
                    let _ = fs::write(home.mnt().join(format!("dir/file{truncated}")), &body);
                    let _ = fs::write(home.mnt().join(format!("load{number}")), vec![1; 5000]);
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(1700));
            home.signal(home.pid(), Signal::KILL);
            over.store(true, Ordering::Relaxed);
        });
        home.ok(["umount", "mnt"]);
        home.lose_state();
        let restored = home.ok(["restore", "volume"]);
        assert!(!restored.contains("content lost"), "{restored}");
        home.ok(["mount", "volume", "mnt"]);
        let after = tree(&home.mnt());
        for (path, shown) in &before {
            let found =
                after.get(path).unwrap_or_else(|| panic!("{} is missing", String::from_utf8_lossy(path)));
            let is_one_of =
                |mut numbers: Range<u32>| numbers.any(|n| path == format!("dir/file{n}").as_bytes());
            let is_loaded = shown.is_directory() || is_one_of(5..15);
            assert!(is_loaded || found == shown, "{}", String::from_utf8_lossy(path));
            let is_new =
                found.bytes.len() == LOADED_BYTES && found.bytes.iter().all(|byte| *byte == found.bytes[0]);
            let is_truncated = found.bytes.is_empty() && is_one_of(10..15);
            let is_whole = found.bytes == shown.bytes || is_one_of(5..15) && (is_new || is_truncated);
            assert!(is_whole, "{}: {} bytes; {restored}", String::from_utf8_lossy(path), found.bytes.len());
        }
        home.ok(["umount", "mnt"]);
        home.assert_sound_but_for_garbage("volume");
    }
}

/// Among two machines only the one that was restored last continues the volume. The other ends with one line.
#[test]
fn a_machine_that_was_replaced_stops() {
    let home = Home::new();
    home.with_files(&["--naming", "inode"], &["--metadata-backup", "1s", "--log-file", "log"]);
    home.await_backup();
    // Another runtime directory stands for another machine, which does not know the mount of this one.
    let mut other = home.command(tenon());
    other.env("XDG_RUNTIME_DIR", home.path("home")).args(["restore", "volume", "--state-dir", "other-state"]);
    let restored = capture(&mut other);
    assert!(restored.code == 0 && restored.out.contains("other-state"), "{restored:?}");
    eventually("the replaced mount has ended", || !crate::fixture::is_mounted(&home.mnt()));
    let log = fs::read_to_string(home.path("log")).unwrap();
    assert!(log.contains("was restored on another machine"), "{log}");
    let refused = home.refused(["mount", "volume", "mnt"]);
    assert!(
        refused.contains("was restored on another machine") && refused.contains("tenon restore"),
        "{refused}"
    );
    home.ok(["mount", "volume", "mnt", "--state-dir", "other-state"]);
    assert_eq!(fs::read(home.mnt().join("moved")).unwrap(), vec![4; 10_000]);
}

/// A volume by path that is only read gets no object; a change that the bucket does not show gets a backup.
#[test]
fn reading_a_bucket_stores_nothing_in_it() {
    let home = Home::new();
    fs::create_dir_all(home.path("bucket/dir")).unwrap();
    fs::write(home.path("bucket/dir/file"), "bytes").unwrap();
    let url = format!("file://{}", home.text("bucket"));
    home.ok(["mount", &url, "mnt", "--metadata-backup", "1s"]);
    assert_eq!(fs::read(home.mnt().join("dir/file")).unwrap(), b"bytes");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(!home.path("bucket/.tenon/metadata").exists());
    fs::write(home.mnt().join("dir/new"), "new").unwrap();
    eventually("there is a backup", || home.path("bucket/.tenon/metadata").exists());
}

#[test]
fn status_and_fsck_tell_about_the_backup() {
    let home = Home::new();
    home.with_files(&["--naming", "inode"], &["--metadata-backup", "1s"]);
    home.await_backup();
    assert!(home.ok(["status", "mnt"]).contains("complete as of"));
    let checked = home.ok(["fsck", "mnt", "--backup"]);
    assert!(checked.contains("1 snapshots") && checked.contains("is clean"), "{checked}");
    let table = home.backup_objects().into_iter().find(|path| path.to_str().unwrap().contains("table-"));
    let mut bytes = fs::read(table.as_ref().unwrap()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(table.unwrap(), bytes).unwrap();
    let checked = home.tenon(["fsck", "mnt", "--backup"]);
    assert!(checked.code == 4 && checked.out.contains("table"), "{checked:?}");
}

/// Without a backup in the bucket, the names of a volume by inode are on one disk only, and the user is told.
#[test]
fn s511_mount_and_status_say_where_the_names_are() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    let mounted = home.tenon(["mount", "volume", "mnt", "--metadata-backup", "0"]);
    for output in [mounted.err, home.ok(["status", "mnt"])] {
        assert!(output.contains(&home.text("volume/state")) && output.contains("tenon dump"), "{output}");
    }
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    assert_eq!(home.tenon(["mount", "volume", "mnt"]).err, "");
}

#[test]
fn s512_s513_a_dump_of_a_mounted_volume_is_loaded() {
    for flags in [&["--metadata-backup", "0"][..], &["--writeback"]] {
        let home = Home::new();
        home.with_files(&["--naming", "inode"], flags);
        let files = tree(&home.mnt());
        let done = home.ok(["dump", "mnt", "names.dump"]);
        assert!(done.contains("records of mnt"), "{done}");
        assert!(home.refused(["dump", "volume", "names.dump"]).contains("already"));
        home.kill();
        assert!(home.refused(["load", "names.dump", "volume"]).contains("already"));
        home.lose_state();
        let loaded = home.ok(["load", "names.dump", "volume"]);
        assert!(loaded.contains("tenon fsck"), "{loaded}");
        assert!(home.ok(["fsck", "volume"]).contains("is clean"));
        home.ok([&["mount", "volume", "mnt"], flags].concat());
        assert_eq!(tree(&home.mnt()), files, "{flags:?}");
        home.ok(["umount", "mnt"]);
        home.ok(["dump", "volume", "second.dump"]);
    }
}

/// A dump is of one commit while programs continue: a file that is renamed back and forth is in it exactly once.
#[test]
fn s512_a_dump_under_load_is_of_one_moment() {
    let home = Home::new();
    home.with_files(&["--naming", "inode"], &["--writeback"]);
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
        home.ok(["dump", "volume", "names.dump"]);
        over.store(true, Ordering::Relaxed);
    });
    home.ok(["umount", "mnt"]);
    home.lose_state();
    home.ok(["load", "names.dump", "volume"]);
    // Files written after the dump leave content without a name.
    home.assert_sound_but_for_garbage("volume");
    home.ok(["mount", "volume", "mnt"]);
    let there = ["one", "two"].map(|name| home.mnt().join(name).exists());
    assert_ne!(there[0], there[1], "the file is there once");
}

#[test]
fn s513_load_refuses_unusable_files_and_changes_nothing() {
    let home = Home::new();
    home.with_files(&["--naming", "inode"], &["--metadata-backup", "0"]);
    home.ok(["umount", "mnt"]);
    home.ok(["dump", "volume", "names.dump"]);
    home.lose_state();
    let mut bytes = fs::read(home.path("names.dump")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(home.path("damaged"), &bytes).unwrap();
    assert!(home.refused(["load", "damaged", "volume"]).contains("of the dump"));
    fs::write(home.path("damaged"), &bytes[..middle]).unwrap();
    assert!(home.refused(["load", "damaged", "volume"]).contains("of the dump"));
    assert!(home.refused(["load", "volume/tenon.toml", "volume"]).contains("not that of a dump"));
    assert!(!home.path("volume/state").exists());
    home.ok(["format", "another", "--naming", "inode"]);
    assert!(home.refused(["load", "names.dump", "another"]).contains("not of"));
    assert!(!home.path("another/state/meta").exists());
    assert!(home.refused(["restore", "volume"]).contains("no complete backup"));
    assert!(!home.path("volume/state").exists());
}

/// Files whose content the bucket lost after the dump are found by fsck.
#[test]
fn s513_fsck_reports_content_lost_since_the_dump() {
    let home = Home::new();
    home.with_files(&["--naming", "inode"], &["--metadata-backup", "0"]);
    home.ok(["dump", "mnt", "names.dump"]);
    fs::remove_file(home.mnt().join("dir/file7")).unwrap();
    eventually("its object is gone", || home.ok(["gc", "mnt", "--dry-run"]).lines().count() <= 1);
    home.ok(["umount", "mnt"]);
    home.lose_state();
    home.ok(["load", "names.dump", "volume"]);
    let checked = home.tenon(["fsck", "volume"]);
    assert!(checked.code != 0 && checked.out.contains("file7"), "{checked:?}");
}

/// Regression: `mount`, `serve` and `rebuild` of a volume whose state was lost created an empty state directory, so
/// that a copy that was put back landed one level too deep. And `rebuild` said that `mount` would help.
#[test]
fn s514_refused_commands_leave_no_directory() {
    let home = Home::new();
    home.with_files(&["--naming", "inode"], &[]);
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
