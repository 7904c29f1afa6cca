//! How mounts end and start again: waiting for earlier processes, dead mount points, remounts, and what `status`
//! shows.

use crate::fixture::{Home, capture, eventually, is_mounted, tenon};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

impl Home {
    /// Returns whether no process has the volume's state directory or its metadata engine open.
    fn is_state_free(&self) -> bool {
        ["volume/state/lock", "volume/state/meta/lock"].iter().all(|lock| {
            let lock = File::open(self.path(lock)).unwrap();
            flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        })
    }

    /// Kills the daemon of `mnt` as a crash would; its mount point stays, dead.
    fn kill_mount(&self) {
        self.signal(self.pid(), Signal::KILL);
    }
}

/// Regression: `tenon umount` returned when the daemon said that the mount was gone, which is before it had closed
/// its metadata engine. A backup of the state directory could be torn, and the next mount was refused.
#[test]
fn s507_the_state_is_free_when_umount_returns() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    for round in 0..5 {
        home.ok(["mount", "volume", "mnt", "--writeback"]);
        fs::write(home.mnt().join(format!("file{round}")), "x").unwrap();
        home.ok(["umount", "mnt"]);
        assert!(home.is_state_free(), "round {round}");
    }
}

/// Regression: umount(8) does not wait for the daemon. A mount in the next second was refused, as the state was in
/// use.
#[test]
fn s507_a_mount_waits_for_an_ending_daemon() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt", "--writeback"]);
    for round in 0..3 {
        fs::write(home.mnt().join(format!("file{round}")), vec![b'x'; 1 << 20]).unwrap();
        eventually("it is not busy", || fuse::unmount(&home.mnt()).is_ok());
        home.ok(["mount", "volume", "mnt", "--writeback"]);
        assert_eq!(fs::read_dir(home.mnt()).unwrap().count(), round + 1);
    }
    eventually("it is not busy", || fuse::unmount(&home.mnt()).is_ok());
    // A script may run `tenon umount` after umount(8).
    let waited = home.tenon(["umount", "mnt"]);
    assert!(waited.code == 0 || waited.err.contains("no Tenon volume is mounted"), "{waited:?}");
    eventually("the state is free", || home.is_state_free());
}

/// Regression: after a crash `tenon mount` said that the volume was mounted already, so that fstab and systemd could
/// not mount it again.
#[test]
fn s508_a_dead_mount_point_is_mounted_again() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::write(mnt.join("file"), "stored").unwrap();
    home.kill_mount();
    let mounted = home.tenon(["mount", "volume", "mnt"]);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    assert!(mounted.err.contains("was dead"), "{mounted:?}");
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "stored");
    home.kill_mount();
    let helper = home.path("mount.fuse.tenon");
    symlink(tenon(), &helper).unwrap();
    let mounted =
        capture(home.command(&helper).args([home.text("volume"), home.text("mnt")]).args(["-o", "rw"]));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "stored");
    assert!(home.refused(["mount", "volume", "mnt"]).contains("already"));
    let helper = home.path("umount.fuse.tenon");
    symlink(tenon(), &helper).unwrap();
    let unmounted = capture(home.command(&helper).args([home.text("mnt").as_str(), "-n"]));
    assert!(unmounted.code == 0 && !is_mounted(&mnt) && home.is_state_free(), "{unmounted:?}");
}

/// Regression: `status` failed with the error of one mount that had just died, and did not show where the state and
/// the log are.
#[test]
fn s509_status_shows_dead_mounts_and_all_others() {
    let home = Home::new();
    home.mount_volume();
    fs::create_dir(home.path("mnt2")).unwrap();
    home.ok(["format", "volume2"]);
    home.ok(["mount", "volume2", "mnt2"]);
    let refused = || home.tenon(["status", "mnt"]).err;
    home.kill_mount();
    eventually("status says that it is dead", || refused().contains("dead: its process ended"));
    let all = home.ok(["status"]);
    let line =
        |path: &str| all.lines().find(|line| line.starts_with(&format!("{} ", home.text(path)))).unwrap();
    assert!(line("mnt").contains("dead"), "{all}");
    for part in [home.text("volume2/state"), home.text("volume2/state/log"), "version ".to_owned()] {
        assert!(line("mnt2").contains(&part), "{all}");
    }
    let json = home.ok(["status", "--json"]);
    assert!(
        json.lines().any(|line| line.contains("\"dead\":true") && line.contains(&home.text("mnt"))),
        "{json}"
    );
    let detail = home.ok(["status", "mnt2"]);
    assert!(detail.contains(&home.text("volume2/state/log")) && detail.contains("free of"), "{detail}");
    assert!(home.tenon(["conflicts", "show", "none"]).err.contains("no mount has a conflict"));
}

/// Regression: a served drive was in no list, and `drive info` did not say which process had it open.
#[test]
fn s509_a_served_drive_is_listed_and_named() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
    let volume = format!("drive://{}", home.text("drive.img"));
    let serving = home.serve(&volume, &[]);
    let listed = home.ok(["status"]);
    assert!(listed.contains(&volume) && listed.contains(&serving.1), "{listed}");
    let detail = home.ok(["status", &volume]);
    assert!(detail.contains("free of") && detail.contains("state"), "{detail}");
    let refused = home.refused(["drive", "info", "drive.img"]);
    assert!(refused.contains(&format!("serves {volume}")) && refused.contains("`tenon status"), "{refused}");
    assert!(home.refused(["serve", &volume]).contains("serves"));
}

/// Regression: `-o ro` was refused together with `writeback`, so that a line of fstab could not be mounted read-only.
#[test]
fn s510_read_only_with_write_back_shows_and_uploads_waiting_changes() {
    for naming in ["file-path", "inode"] {
        let home = Home::new();
        home.ok(["format", "volume", "--naming", naming]);
        home.ok(["mount", "volume", "mnt", "--writeback"]);
        fs::write(home.mnt().join("file"), "acknowledged").unwrap();
        home.kill_mount();
        home.ok(["mount", "volume", "mnt", "-o", "writeback,ro"]);
        assert_eq!(fs::read_to_string(home.mnt().join("file")).unwrap(), "acknowledged");
        assert_eq!(fs::write(home.mnt().join("new"), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        home.ok(["umount", "mnt"]);
        home.ok(["mount", "volume", "mnt", "--read-only"]);
        assert_eq!(fs::read_to_string(home.mnt().join("file")).unwrap(), "acknowledged", "{naming}");
    }
}

/// Regression: `remount,ro` was an unknown option.
#[test]
fn s506_remount_changes_the_flags_that_the_kernel_enforces() {
    let home = Home::new();
    let mnt = home.mount_volume();
    let helper = home.path("mount.fuse.tenon");
    symlink(tenon(), &helper).unwrap();
    let remount = |options: &str| {
        capture(
            home.command(&helper)
                .args(["volume", "mnt", "-n", "-o"])
                .arg(format!("rw,user_id=0,remount,{options}")),
        )
    };
    assert_eq!(remount("ro").code, 0);
    assert_eq!(fs::write(mnt.join("file"), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(remount("rw").code, 0);
    fs::write(mnt.join("file"), "x").unwrap();
    let open = File::options().append(true).open(mnt.join("file")).unwrap();
    assert!(remount("ro").err.contains("busy"));
    drop(open);
    eventually("the close has arrived", || remount("ro,noexec").code == 0);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let ours = table.lines().find(|line| line.contains(&home.text("mnt"))).unwrap();
    assert!(ours.contains(" ro,nosuid,nodev,noexec,"), "{ours}");
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "-o", "ro"]);
    let refused = remount("rw");
    assert!(refused.code == 1 && refused.err.contains("mounted read-only"), "{refused:?}");
    assert!(home.refused(["mount", "elsewhere", "-o", "remount,ro"]).contains("no Tenon volume"));
}

/// Regression: a process that got SIGTERM continues to serve while it stores; a mount elsewhere was refused
/// meanwhile.
#[test]
fn s507_a_mount_waits_for_a_process_that_got_a_signal() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    fs::create_dir(home.path("mnt2")).unwrap();
    home.ok(["mount", "volume", "mnt"]);
    fs::write(home.mnt().join("file"), "x").unwrap();
    home.signal(home.pid(), Signal::TERM);
    eventually("the process has received the signal", || {
        let status = home.tenon(["status", "mnt", "--json"]);
        status.code != 0 || status.out.contains("\"ending\":true")
    });
    home.ok(["mount", "volume", "mnt2"]);
    assert_eq!(fs::read_to_string(home.path("mnt2/file")).unwrap(), "x");
}

/// Regression: `tenon umount` waited without a message while another mount namespace had a copy of the mount.
#[test]
fn s507_an_unmount_says_that_another_mount_namespace_has_the_mount() {
    let home = Home::new();
    home.mount_volume();
    let words = ["--mount", "--propagation", "private", "sh", "-c", "echo there; read end"];
    let mut namespace =
        Command::new("unshare").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut there = String::new();
    BufReader::new(namespace.stdout.take().unwrap()).read_line(&mut there).unwrap();
    let mut umount = home.command(tenon()).args(["umount", "mnt"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(umount.stderr.take().unwrap()).read_line(&mut said).unwrap();
    drop(namespace.stdin.take());
    assert!(said.contains("another mount namespace (a container's) has a copy of it"), "{said}");
    assert!(umount.wait().unwrap().success() && namespace.wait().is_ok());
    assert!(home.is_state_free());
}

/// Regression: the lock file of a process that serves objects named the address of `--listen`, so that users read `http://127.0.0.1:0`.
#[test]
fn s767_a_volume_in_use_is_named_with_the_address_at_which_it_is_served() {
    let home = Home::new().with_users();
    home.ok(["format", "volume", "--naming", "inode"]);
    let serving = home.serve("volume", &[]);
    let refused = home.refused(["mount", "volume", "mnt"]);
    assert!(refused.contains(&format!("at {};", serving.1)), "{refused}");
    drop(serving);
    home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
    let drive = format!("drive://{}", home.path("drive.img").display());
    let serving = home.serve(&drive, &[]);
    let refused = home.refused(["serve", &drive, "--listen", "127.0.0.1:0", "--users", "users.toml"]);
    assert!(refused.contains(&format!("at {};", serving.1)), "{refused}");
}

/// A mount of a volume that is in use is refused at once: only an ending process is waited for.
#[test]
fn a_volume_in_use_is_refused_without_waiting() {
    let home = Home::new();
    home.mount_volume();
    fs::create_dir(home.path("mnt2")).unwrap();
    let refused =
        home.command(tenon()).args(["mount", "volume", "mnt2"]).stderr(Stdio::piped()).output().unwrap();
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("is in use") && !refused.contains("waiting"), "{refused}");
}
