//! One bucket mounted by two machines: two processes that share nothing but the server.

use crate::fixture::{Home, capture, eventually};
use crate::s3::{home, new_bucket};
use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Cache time of the mounts in these tests.
const TTL: Duration = Duration::from_secs(1);
/// Additional time for a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// Makes a home with two mounts of a new bucket, `mnt` and `there`.
fn mount_twice(name: &str) -> (Home, PathBuf, PathBuf) {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, name));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::create_dir(home.path("there")).unwrap();
    for (mount_point, state) in [("mnt", "state"), ("there", "state-there")] {
        mount(&home, &bucket, mount_point, state);
    }
    let (here, there) = (home.mnt(), home.path("there"));
    (home, here, there)
}

fn mount(home: &Home, bucket: &str, mount_point: &str, state: &str) {
    home.ok(["mount", bucket, mount_point, "--shared", "--metadata-ttl=1s", "--state-dir", state]);
}

/// Regression: a mount without `--shared` was accepted next to mounts with `--shared`, though it does not coordinate
/// with them.
#[test]
fn s517_a_mount_without_shared_beside_shared_ones_is_refused() {
    let (home, ..) = mount_twice("shared-mixed");
    fs::create_dir(home.path("third")).unwrap();
    let bucket = home.status()["volume"].as_str().unwrap().to_owned();
    let alone = ["mount", &bucket, "third", "--state-dir", "state-third"];
    let refused = home.refused(alone);
    assert!(refused.contains(&home.text("mnt")) && refused.contains(&home.text("there")), "{refused}");
    for mount_point in ["mnt", "there"] {
        home.ok(["umount", mount_point]);
    }
    home.ok(alone);
    let refused = home.refused(["mount", &bucket, "mnt", "--shared", "--state-dir", "state"]);
    assert!(refused.contains(&home.text("third")), "{refused}");
}

/// Waits until a condition holds, which must be within the cache time.
fn eventually_within_ttl(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    eventually(what, holds);
    assert!(began.elapsed() < TTL + SLACK, "{what} after {:?}", began.elapsed());
}

/// Runs `work` on two threads. Returns how many of them succeeded.
fn race(work: impl Fn(usize) -> std::io::Result<()> + Sync, expected_error: ErrorKind) -> usize {
    let attempt = |which: usize| match work(which) {
        Ok(()) => 1,
        Err(error) => {
            assert_eq!(error.kind(), expected_error, "{error}");
            0
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| attempt(1));
        attempt(0) + other.join().unwrap()
    })
}

#[test]
fn s213_one_of_two_machines_wins_an_exclusive_create() {
    let (_home, here, there) = mount_twice("shared-excl");
    let make = |dir: &Path, number: usize| {
        OpenOptions::new().write(true).create_new(true).open(dir.join(number.to_string())).map(drop)
    };
    for number in 0..30 {
        let won = race(|which| make([&here, &there][which], number), ErrorKind::AlreadyExists);
        let seen = || [&here, &there].map(|dir| fs::metadata(dir.join(number.to_string())));
        assert_eq!(won, 1, "file {number} is {:?}", seen());
    }
    let won: usize = (0..10)
        .map(|number| {
            let dir = |which: usize| [&here, &there][which].join(format!("dir{number}"));
            race(|which| fs::create_dir(dir(which)), ErrorKind::AlreadyExists)
        })
        .sum();
    assert_eq!(won, 10);
}

#[test]
fn s214_alternating_appends_keep_all_lines() {
    let (_home, here, there) = mount_twice("shared-append");
    // The second mount looked for the file before the first one made it.
    assert!(!there.join("log").exists());
    let mut expected = String::new();
    for number in 0..20 {
        let dir = [&here, &there][number % 2];
        let mut log = OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
        writeln!(log, "{number}").unwrap();
        drop(log);
        expected += &format!("{number}\n");
        assert_eq!(fs::read_to_string(dir.join("log")).unwrap(), expected);
    }
}

#[test]
fn s215_each_change_is_seen_within_the_cache_time() {
    let (_home, here, there) = mount_twice("shared-seen");
    let (file, theirs) = (here.join("file"), there.join("file"));
    assert!(!theirs.exists());
    fs::write(&file, "text").unwrap();
    eventually_within_ttl("a new file", || theirs.exists());
    fs::write(&file, "longer text").unwrap();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "longer text", "an open asks the bucket");
    eventually_within_ttl("its length", || fs::metadata(&theirs).unwrap().len() == 11);
    for mode in [0o600, 0o755, 0o644] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        eventually_within_ttl("a mode", || fs::metadata(&theirs).unwrap().mode() & 0o777 == mode);
    }
    fs::rename(&file, here.join("renamed")).unwrap();
    eventually_within_ttl("a rename", || !theirs.exists() && there.join("renamed").exists());
    fs::create_dir(here.join("dir")).unwrap();
    eventually_within_ttl("a directory", || there.join("dir").is_dir());
    fs::remove_dir(there.join("dir")).unwrap();
    eventually_within_ttl("its end", || !here.join("dir").exists());
    fs::remove_file(there.join("renamed")).unwrap();
    eventually_within_ttl("the end of a file", || fs::read_dir(&here).unwrap().next().is_none());
}

#[test]
fn s216_one_of_two_machines_renames_a_file() {
    let (home, here, there) = mount_twice("shared-rename");
    for number in 0..30 {
        fs::write(here.join(number.to_string()), "").unwrap();
    }
    eventually_within_ttl("the last", || there.join("29").exists());
    let rename = |which: usize, number: usize| {
        let dir = [&here, &there][which];
        fs::rename(dir.join(number.to_string()), dir.join(format!("{number}-{which}")))
    };
    let won: usize = (0..30).map(|number| race(|which| rename(which, number), ErrorKind::NotFound)).sum();
    assert_eq!(won, 30);
    for number in 0..10 {
        let dir = here.join(format!("dir{number}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "text").unwrap();
    }
    eventually_within_ttl("the last directory", || there.join("dir9/file").exists());
    let rename = |which: usize, number: usize| {
        let dir = [&here, &there][which];
        fs::rename(dir.join(format!("dir{number}")), dir.join(format!("{number}-dir-{which}")))
    };
    let won: usize = (0..10).map(|number| race(|which| rename(which, number), ErrorKind::NotFound)).sum();
    assert_eq!(won, 10);
    let keys = home.ok(["object", "ls", &volume(&home), "-r"]);
    let count = keys.lines().filter(|line| !line.contains(".tenon/")).count();
    assert_eq!(count, 30 + 20, "no object is at two places: {keys}");
}

/// Returns the volume of the mount at `mnt`.
fn volume(home: &Home) -> String {
    home.status()["volume"].as_str().unwrap().to_owned()
}

/// Features that cannot work between machines are refused.
#[test]
fn s218_locks_and_hard_links_are_refused() {
    let (home, here, _) = mount_twice("shared-locks");
    let file = File::create(here.join("file")).unwrap();
    let flocked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(flocked.unwrap_err(), rustix::io::Errno::NOLCK);
    let locked = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(locked.unwrap_err(), rustix::io::Errno::NOLCK);
    let linked = fs::hard_link(here.join("file"), here.join("other")).unwrap_err();
    assert_eq!(linked.kind(), ErrorKind::PermissionDenied);
    let refused = home.refused(["mount", "file:///tmp", "there", "--shared"]);
    assert!(refused.contains("--shared needs a bucket"), "{refused}");
    let both = home.refused(["mount", &volume(&home), "there", "--shared", "--writeback"]);
    assert!(both.contains("cannot be used with"), "{both}");
    home.ok(["umount", "there"]);
    home.ok(["mount", &volume(&home), "there", "-o", "shared,state_dir=state-there"]);
}

/// The lease of a killed machine expires, and nothing that it held is lost.
#[test]
fn s217_a_machine_that_dies_during_renames_blocks_others_only_for_seconds() {
    let (home, here, there) = mount_twice("shared-kill");
    for number in 0..200 {
        fs::write(here.join(number.to_string()), number.to_string()).unwrap();
    }
    eventually_within_ttl("the last", || there.join("199").exists());
    let renaming = {
        let here = here.clone();
        std::thread::spawn(move || {
            // Rename until the mount is gone.
            (0..200).find(|number| {
                fs::rename(here.join(number.to_string()), here.join(format!("{number}-here"))).is_err()
            })
        })
    };
    std::thread::sleep(Duration::from_millis(500));
    home.signal(home.pid(), rustix::process::Signal::KILL);
    let at = renaming.join().unwrap().expect("it was killed in between");
    let began = Instant::now();
    for number in 0..200 {
        match fs::rename(there.join(number.to_string()), there.join(format!("{number}-there"))) {
            Ok(()) => assert!(number >= at, "{number} had been renamed"),
            Err(error) => assert!(error.kind() == ErrorKind::NotFound && number <= at, "{number}: {error}"),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    home.ok(["umount", "--lazy", "mnt"]);
    let bucket = format!("s3://cli-{}", "shared-kill");
    mount(&home, &bucket, "mnt", "state");
    for number in 0..200 {
        let name = if number < at { format!("{number}-here") } else { format!("{number}-there") };
        if number != at {
            assert_eq!(fs::read_to_string(here.join(&name)).unwrap(), number.to_string());
        }
    }
    let kept = [format!("{at}-here"), format!("{at}-there")];
    // Both names exist if the copy had been made.
    eventually_within_ttl("the file in between", || kept.iter().any(|name| here.join(name).exists()));
    let output = capture(home.command(crate::fixture::tenon()).args(["gc", "mnt"]));
    assert_eq!(output.code, 0, "{output:?}");
    let own = home.ok(["object", "ls", &format!("{bucket}/.tenon/"), "-r"]);
    assert!(!own.contains("leases"), "{own}");
}
