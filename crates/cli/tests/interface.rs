//! Features that programs use beyond reading and writing, through the kernel.

use crate::fixture::{Home, capture, eventually};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

impl Home {
    /// Makes and mounts a volume named by inode, with more flags.
    fn mount_by_inode_with(&self, flags: &[&str]) -> std::path::PathBuf {
        self.ok(["format", "volume", "--naming", "inode"]);
        self.ok([&["mount", "volume", "mnt"], flags].concat());
        self.mnt()
    }

    /// Runs a shell line in the home, which must succeed. Returns what it printed.
    fn sh(&self, line: &str) -> String {
        let output = capture(self.command("/bin/sh").args(["-euc", line]));
        assert_eq!(output.code, 0, "{line}: {output:?}");
        output.out
    }

    fn atime_ns(&self, name: &str) -> i128 {
        let found = fs::metadata(self.mnt().join(name)).unwrap();
        i128::from(found.atime()) * 1_000_000_000 + i128::from(found.atime_nsec())
    }
}

/// The page cache answers reads without asking Tenon: an open that keeps the page cache counts as a read.
#[test]
fn s103_access_times_follow_reads_that_the_page_cache_answers() {
    let home = Home::new();
    let mnt = home.mount_by_inode_with(&[]);
    fs::write(mnt.join("file"), "text").unwrap();
    let made = home.atime_ns("file");
    std::thread::sleep(Duration::from_millis(20));
    home.sh("cat mnt/file");
    eventually("the read is seen", || home.atime_ns("file") > made);
    let read = home.atime_ns("file");
    home.sh("cat mnt/file; dd if=mnt/file of=out iflag=noatime status=none");
    assert_eq!(home.atime_ns("file"), read, "nothing has changed since");
    home.sh("touch -d 2001-01-01 mnt/file; dd if=mnt/file of=out iflag=noatime status=none");
    assert_eq!(home.sh("stat -c %X mnt/file"), home.sh("date -d 2001-01-01 +%s"));
    home.sh("cat mnt/file");
    eventually("the read is seen", || home.atime_ns("file") > read);
    let read = home.atime_ns("file");
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "-o", "strictatime"]);
    assert_eq!(home.atime_ns("file"), read);
    for _ in 0..3 {
        let before = home.atime_ns("file");
        home.sh("cat mnt/file");
        assert!(home.atime_ns("file") > before);
    }
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "-o", "noatime"]);
    let before = home.atime_ns("file");
    home.sh("touch mnt/file -m; cat mnt/file");
    assert_eq!(home.atime_ns("file"), before);
}

#[test]
fn s172_renameat2_leaves_a_whiteout() {
    let home = Home::new();
    let mnt = home.mount_by_inode_with(&[]);
    fs::write(mnt.join("lower"), "text").unwrap();
    let flags = rustix::fs::RenameFlags::WHITEOUT;
    let at = rustix::fs::CWD;
    rustix::fs::renameat_with(at, mnt.join("lower"), at, mnt.join("upper"), flags).unwrap();
    let left = fs::symlink_metadata(mnt.join("lower")).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0);
    assert_eq!(fs::read(mnt.join("upper")).unwrap(), b"text");
}

#[test]
fn s173_cp_copies_inside_the_store() {
    let home = Home::new();
    let mnt = home.mount_by_inode_with(&[]);
    // The source has no holes: cp(1) reads and writes files with holes, to keep them.
    home.sh("head -c 20000000 /dev/urandom > mnt/source; echo end >> mnt/source");
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt"]);
    home.sh("cp mnt/source mnt/copy");
    let asked = home.status();
    assert!(asked["fuse_requests"]["COPY_FILE_RANGE"].as_u64() >= Some(1), "{asked}");
    assert_eq!(asked["fuse_requests"]["WRITE"].as_u64(), None, "{asked}");
    home.sh("cmp mnt/source mnt/copy; rm mnt/source; dd if=mnt/copy of=mnt/copy bs=1M count=8 seek=40 conv=notrunc");
    assert_eq!(fs::metadata(mnt.join("copy")).unwrap().len(), 48 << 20);
    assert!(home.ok(["fsck", "mnt"]).contains("is clean"));
}

#[test]
fn s91_cp_by_path_copies_inside_the_store() {
    let home = Home::new();
    home.mount_volume();
    home.sh("head -c 20000000 /dev/urandom > mnt/source; sync");
    let written = home.status()["fuse_requests"]["WRITE"].as_u64();
    home.sh("cp mnt/source mnt/copy");
    let asked = home.status();
    assert!(asked["fuse_requests"]["COPY_FILE_RANGE"].as_u64() >= Some(1), "{asked}");
    assert_eq!(asked["fuse_requests"]["WRITE"].as_u64(), written, "{asked}");
    home.sh("cmp mnt/source mnt/copy; cp mnt/source mnt/copy; cmp mnt/source mnt/copy");
    home.ok(["umount", "mnt"]);
    for key in ["source", "copy"] {
        home.ok(["object", "get", &format!("volume/{key}"), key]);
    }
    home.sh("cmp source copy");
    assert!(home.ok(["fsck", "volume"]).contains("is clean"));
}

#[test]
fn s92_locks_hold_between_the_processes_of_a_mount() {
    let home = Home::new();
    home.mount_volume();
    home.sh("echo text > mnt/file");
    let tried = |by: &str| home.sh(&format!("{by} && echo taken || echo refused"));
    let file = fs::File::options().read(true).write(true).open(home.mnt().join("file")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(tried("flock --nonblock mnt/file true"), "refused\n");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
    assert_eq!(tried("flock --nonblock mnt/file true"), "taken\n");
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let other = "/usr/bin/python3 -c 'import fcntl; \
        fcntl.lockf(open(\"mnt/file\", \"r+\"), fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null";
    assert_eq!(tried(other), "refused\n");
    drop(file);
    assert_eq!(tried(other), "taken\n", "a close gives the locks of its process back");
}

#[test]
fn s174_s175_quotas_limit_directories_and_the_volume() {
    let home = Home::new();
    let mnt = home.mount_by_inode_with(&[]);
    home.sh("mkdir -p mnt/tree/below; head -c 3000000 /dev/zero > mnt/tree/below/old; touch mnt/outside");
    home.ok(["quota", "set", "mnt/tree", "--bytes", "5MB", "--files", "5"]);
    assert_eq!(
        home.ok(["quota", "get", "mnt/tree"]),
        "bytes  3000000 used, of 5000000\nfiles  2 used, of 5\n"
    );
    // A write without room is refused when it is made.
    let refused = home.sh("head -c 4000000 /dev/zero 2>&1 > mnt/tree/new || echo refused");
    assert!(refused.contains("quota") && refused.contains("refused"), "{refused}");
    let refused = home.sh("truncate -s 9M mnt/tree/new 2>&1 || echo refused");
    assert!(refused.contains("quota"), "{refused}");
    home.sh("rm mnt/tree/new; head -c 2000000 /dev/zero > mnt/tree/fits; touch mnt/tree/1 mnt/tree/2");
    let refused = home.sh("touch mnt/tree/3 2>&1 || echo refused; mkdir mnt/tree/3 2>&1 || echo refused");
    assert_eq!(refused.matches("refused").count(), 2, "{refused}");
    let full = rustix::fs::statvfs(mnt.join("tree")).unwrap();
    assert_eq!((full.f_blocks, full.f_bfree, full.f_files, full.f_ffree), (5_000_000 / 4096, 0, 5, 0));
    // Renames and links across a quota tree's border are refused; mv copies then.
    let across = fs::rename(mnt.join("tree/1"), mnt.join("out")).unwrap_err();
    assert_eq!(across.raw_os_error(), Some(18), "EXDEV");
    assert_eq!(fs::hard_link(mnt.join("outside"), mnt.join("tree/in")).unwrap_err().raw_os_error(), Some(18));
    home.sh("mv mnt/tree/1 mnt/out; mv mnt/tree mnt/moved");
    assert!(home.ok(["quota", "get", "mnt/moved", "--json"]).contains("\"files_used\":4"));
    home.ok(["quota", "set", "mnt", "--bytes", "6MB"]);
    let refused = home.sh("head -c 2000000 /dev/zero 2>&1 > mnt/last || echo refused");
    assert!(refused.contains("No space left"), "{refused}");
    assert!(
        home.sh("df --output=size -B1 mnt").contains("5996544") || home.sh("df -B1 mnt").contains("5996544")
    );
    assert!(home.ok(["fsck", "mnt"]).contains("is clean"));
    // Usage stays exact however a mount ends.
    home.sh("rm mnt/moved/fits; truncate -s 1M mnt/moved/below/old");
    home.kill_and_remount();
    assert!(home.ok(["quota", "get", "mnt/moved"]).starts_with("bytes  1048576 used"));
    assert!(home.ok(["fsck", "mnt"]).contains("is clean"));
    home.ok(["quota", "rm", "mnt"]);
    home.ok(["quota", "rm", "mnt/moved"]);
    home.refused(["quota", "get", "mnt"]);
    home.sh("head -c 20000000 /dev/zero > mnt/moved/large");
}
