//! The process of a mount: background, signals, busy mounts, and death.

use crate::fixture::{Home, eventually, is_mounted, tenon};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn the_mount_answers_when_the_command_returns() {
    let home = Home::new();
    let mnt = home.mount_volume();
    assert!(is_mounted(&mnt));
    fs::write(mnt.join("file"), "x").unwrap();
    let log = fs::read_to_string(home.path("volume/state/log")).unwrap();
    assert!(log.contains("is mounted at"), "{log}");
}

#[test]
fn a_signal_stores_what_is_pending_and_unmounts() {
    let home = Home::new();
    let mnt = home.mount_volume();
    let mut open = File::create(mnt.join("open")).unwrap();
    open.write_all(b"not closed yet").unwrap();
    home.signal(home.pid(), Signal::TERM);
    eventually("the mount is gone", || !is_mounted(&mnt));
    eventually("the open file is stored", || {
        home.tenon(["object", "get", "volume/open"]).out == "not closed yet"
    });
    drop(open);
    eventually("the state is free", || home.tenon(["mount", "volume", "mnt"]).code == 0);
    assert_eq!(fs::read_to_string(mnt.join("open")).unwrap(), "not closed yet");
}

#[test]
fn a_busy_mount_says_what_to_do_and_can_be_detached() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), "x").unwrap();
    let open = File::open(mnt.join("file")).unwrap();
    let refused = home.refused(["umount", "mnt"]);
    assert!(refused.contains("is busy") && refused.contains("--lazy"), "{refused}");
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "x");
    let mut lazily = home.command(tenon()).args(["umount", "--lazy", "mnt"]).spawn().unwrap();
    eventually("the mount is detached", || !is_mounted(&mnt));
    assert_eq!(std::io::read_to_string(&open).unwrap(), "x");
    drop(open);
    assert!(lazily.wait().unwrap().success());
}

#[test]
fn a_dead_mount_is_cleaned_up_by_umount() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), "stored").unwrap();
    let pid = home.pid();
    home.signal(pid, Signal::KILL);
    eventually("the process is gone", || fs::metadata(&mnt).is_err());
    let cleaned = home.tenon(["umount", "mnt"]);
    assert_eq!(cleaned.code, 0, "{cleaned:?}");
    assert!(!is_mounted(&mnt));
    home.ok(["mount", "volume", "mnt"]);
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "stored");
}

#[test]
fn in_the_foreground_the_log_is_standard_error() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let mut command = home.command(tenon());
    command.args(["mount", "-f", "volume", "mnt", "--log-format", "json"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mnt = home.mnt();
    eventually("it is mounted", || home.tenon(["status", "mnt"]).code == 0);
    assert_eq!(home.pid(), child.id());
    home.signal(child.id(), Signal::INT);
    let log = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    let ended = child.wait().unwrap();
    assert!(ended.success(), "{ended}: {log}");
    assert!(!is_mounted(&mnt));
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
}

#[test]
fn a_hangup_reopens_the_log() {
    let home = Home::new();
    let mnt = home.mount_volume();
    let log = home.path("volume/state/log");
    fs::rename(&log, home.path("log.1")).unwrap();
    home.signal(home.pid(), Signal::HUP);
    eventually("the log is there again", || log.exists());
    home.ok(["umount", "mnt"]);
    assert!(fs::read_to_string(&log).unwrap().contains("unmounted"));
    assert!(!is_mounted(&mnt));
}

#[test]
fn unmounting_by_umount_8_ends_the_daemon() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), "x").unwrap();
    eventually("it is not busy", || fuse::unmount(&mnt).is_ok());
    eventually("the state is free", || home.tenon(["mount", "volume", "mnt"]).code == 0);
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "x");
}

/// Makes a file immutable until it is dropped, so that every write to it fails.
struct ImmutableFile(PathBuf);

impl ImmutableFile {
    fn new(path: PathBuf) -> Self {
        change_attribute("+i", &path);
        Self(path)
    }
}

impl Drop for ImmutableFile {
    fn drop(&mut self) {
        change_attribute("-i", &self.0);
    }
}

fn change_attribute(change: &str, path: &Path) {
    let changed = Command::new("chattr").arg(change).arg(path).status();
    assert!(changed.is_ok_and(|status| status.success()), "chattr needs root, and a file system like ext4");
}

/// Regression: the engine refused all changes, and the status showed a healthy mount.
#[test]
fn s582_status_shows_that_the_metadata_engine_has_stopped() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::create_dir(mnt.join("before")).unwrap();
    assert!(home.status()["metadata_failure"].is_null());
    // After each sync of the tables, the engine writes the number of the newest commit to this file.
    let _broken = ImmutableFile::new(home.path("volume/state/meta/synced"));
    // Refused if the first directory is synced only now.
    fs::create_dir(mnt.join("unsynced")).ok();
    eventually("the engine has stopped", || !home.status()["metadata_failure"].is_null());
    assert!(fs::create_dir(mnt.join("refused")).is_err());
    assert!(home.ok(["status"]).contains(", the metadata engine has STOPPED"));
    let shown = home.ok(["status", "mnt"]);
    let line = shown.lines().find(|line| line.starts_with("metadata ")).unwrap();
    assert!(line.contains("STOPPED") && line.contains("mount it again"), "{line}");
}
