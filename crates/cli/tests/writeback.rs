//! Mounts with a write-back log: closed files survive a kill of the process, and changes that a stopped server did
//! not receive are uploaded later.

use crate::fixture::{Home, is_mounted};
use crate::s3::{home, new_bucket};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// The layouts of buckets, as flags of `tenon format`. The first has no flags: such a bucket is not formatted.
const LAYOUTS: [&[&str]; 3] =
    [&[], &["--naming", "inode"], &["--mapping", "chunked", "--chunk-size", "1MiB"]];

fn mount(home: &Home, volume: &str) {
    home.ok(["mount", volume, "mnt", "--writeback", "--retry-timeout=1s"]);
}

/// Kills the daemon, as a crash does, and mounts anew.
fn crash(home: &Home, volume: &str) {
    home.signal(home.pid(), rustix::process::Signal::KILL);
    home.ok(["umount", "mnt"]);
    assert!(!is_mounted(&home.mnt()));
    mount(home, volume);
}

fn body(number: usize) -> Vec<u8> {
    let byte = |at: usize| (at / 100 + number) as u8;
    (0..number * 400_000).map(byte).collect()
}

/// Writes files of up to 2 MB. One is edited after it was stored, one is removed, one renamed.
fn work(mnt: &Path, round: usize) {
    let dir = mnt.join(format!("round-{round}"));
    fs::create_dir(&dir).unwrap();
    for number in 0..6 {
        fs::write(dir.join(number.to_string()), body(number)).unwrap();
    }
    fs::remove_file(dir.join("0")).unwrap();
    fs::rename(dir.join("1"), dir.join("one")).unwrap();
    let mut edited = File::options().append(true).open(dir.join("2")).unwrap();
    edited.write_all(b"and more").unwrap();
    edited.sync_all().unwrap();
}

fn assert_worked(mnt: &Path, round: usize) {
    let dir = mnt.join(format!("round-{round}"));
    let mut names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["2", "3", "4", "5", "one"], "round {round}");
    assert!(fs::read(dir.join("one")).unwrap() == body(1), "round {round}");
    assert!(fs::read(dir.join("2")).unwrap() == [body(2), b"and more".to_vec()].concat(), "round {round}");
    for number in 3..6 {
        assert!(fs::read(dir.join(number.to_string())).unwrap() == body(number), "round {round}");
    }
}

#[test]
fn s152_a_killed_mount_and_a_dead_server_lose_nothing_that_was_closed() {
    for (index, layout) in LAYOUTS.iter().enumerate() {
        let mut server = servers::minio();
        let volume = format!("s3://{}", new_bucket(&server, &format!("writeback-{index}")));
        let home = home(&server).with("AWS_ENDPOINT_URL", &server.endpoint());
        if !layout.is_empty() {
            home.ok([&["format", &volume], *layout].concat());
        }
        mount(&home, &volume);
        work(&home.mnt(), 0);
        crash(&home, &volume);
        assert_worked(&home.mnt(), 0);
        if index == 0 {
            // The server stays up here: names of path volumes are found by listing the bucket, so nothing could be
            // checked while it is down.
            work(&home.mnt(), 1);
        } else {
            server.stop();
            work(&home.mnt(), 1);
            assert_worked(&home.mnt(), 1);
            let pending = &home.status()["pending"];
            assert!(pending["backlog_changes"].as_u64().unwrap() > 0, "{pending}");
            server.restart();
        }
        crash(&home, &volume);
        home.ok(["umount", "mnt"]);
        // Everything must be in the bucket: a mount without the log finds all files.
        home.ok(["mount", &volume, "mnt"]);
        assert_worked(&home.mnt(), 0);
        assert_worked(&home.mnt(), 1);
        home.ok(["umount", "mnt"]);
        let output = home.tenon(["fsck", &volume]);
        assert!(matches!(output.code, 0 | 1), "{output:?}");
    }
}

#[test]
fn s156_commands_refuse_a_volume_with_pending_changes() {
    let mut server = servers::minio();
    let volume = format!("s3://{}", new_bucket(&server, "waiting"));
    let home = home(&server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["format", &volume, "--naming", "inode"]);
    mount(&home, &volume);
    server.stop();
    fs::write(home.mnt().join("file"), "text").unwrap();
    let left = home.tenon(["umount", "mnt", "--timeout=1s"]);
    assert!(left.code == 0 && left.err.contains("safe in the write-back log"), "{left:?}");
    server.restart();
    for words in [&["mount", &volume, "mnt"][..], &["fsck", &volume], &["gc", &volume]] {
        let refused = home.refused(words);
        assert!(refused.contains("mount with --writeback"), "{refused}");
    }
    mount(&home, &volume);
    assert_eq!(fs::read_to_string(home.mnt().join("file")).unwrap(), "text");
    home.ok(["umount", "mnt"]);
    assert!(home.ok(["fsck", &volume]).contains("is clean"));
}

/// Names in the write-back log that disk damage destroyed are not given up without the user's word.
#[test]
fn s445_a_mount_that_lost_names_is_refused_unless_the_loss_is_accepted() {
    let server = servers::shared_minio();
    let volume = format!("s3://{}", new_bucket(server, "lost-names"));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["format", &volume, "--naming", "inode"]);
    let words = ["mount", &volume, "mnt", "--writeback", "--state-dir", "state"];
    home.ok(words);
    for name in ["first", "second-directory", "third"] {
        fs::create_dir(home.mnt().join(name)).unwrap();
        File::open(home.mnt()).unwrap().sync_all().unwrap();
    }
    home.signal(home.pid(), rustix::process::Signal::KILL);
    home.ok(["umount", "mnt"]);
    let damaged = fs::read_dir(home.path("state/writeback")).unwrap().filter(|segment| {
        let path = segment.as_ref().unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let name = b"second-directory";
        let Some(at) = bytes.windows(name.len()).position(|window| window == name) else { return false };
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        true
    });
    assert_eq!(damaged.count(), 1, "the name is in the log");

    let refused = home.tenon(words);
    assert!(refused.code != 0 && refused.err.contains("--accept-lost-names"), "{refused:?}");
    assert!(!is_mounted(&home.mnt()));
    home.ok([&words[..], &["--accept-lost-names"]].concat());
    assert!(home.mnt().join("first").is_dir());
    assert!(!home.mnt().join("second-directory").exists() && !home.mnt().join("third").exists());
    fs::write(home.mnt().join("first/file"), "text").unwrap();
    home.ok(["umount", "mnt"]);
    home.ok(words);
    assert_eq!(fs::read_to_string(home.mnt().join("first/file")).unwrap(), "text");
    home.ok(["umount", "mnt"]);
}
