//! Outages through the kernel: real programs on MinIO, behind a proxy that fails like networks and servers do.
//!
//! The matrix of every operation and outage in simulated time is in `crates/vfs/tests/outages.rs`, that of every
//! request in `crates/store/tests/s3/budget.rs`. These tests show that the parts work together.

use crate::fixture::{Home, capture, eventually, is_mounted, peak_bytes_without_program};
use crate::kills::make;
use crate::s3::{home, new_bucket};
use servers::{Mode, Proxy, S3Server, SmallDisk};
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Layouts: flags of `tenon format`, none for a bucket without a volume record.
const LAYOUTS: [&[&str]; 3] =
    [&[], &["--naming", "inode"], &["--mapping", "chunked", "--chunk-size", "1MiB"]];

/// Time limit of the programs. Each call is retried for a second and waits for five. The kernel makes calls in one
/// directory one after the other, so the last program waits for the calls of all others.
const PROGRAMS_TIMEOUT: Duration = Duration::from_secs(70);

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at / 4099) as u8).collect()
}

/// A volume on a server, mounted through a proxy of its own.
struct OutageSetup {
    home: Home,
    proxy: Proxy,
    volume: String,
}

impl OutageSetup {
    fn new(server: &S3Server, name: &str, layout: &[&str], flags: &[&str]) -> Self {
        let volume = format!("s3://{}", new_bucket(server, name));
        let proxy = servers::proxy(&server.endpoint());
        let home = home(server).with("AWS_ENDPOINT_URL", &proxy.endpoint());
        if !layout.is_empty() {
            home.ok([&["format", &volume], layout].concat());
        }
        home.ok([&["mount", &volume, "mnt", "--metadata-ttl=0s"], flags].concat());
        fs::write(home.path("source"), pattern(300_000)).unwrap();
        fs::write(home.path("large"), pattern(12 << 20)).unwrap();
        Self { home, proxy, volume }
    }

    /// Makes the files that the programs of one round use, and unmounts.
    fn prepare(&self, round: usize) {
        let mnt = self.home.mnt();
        fs::write(mnt.join(format!("old-{round}")), pattern(300_000)).unwrap();
        fs::write(mnt.join(format!("gone-{round}")), b"gone").unwrap();
        fs::write(mnt.join(format!("cut-{round}")), pattern(5000)).unwrap();
        fs::create_dir(mnt.join(format!("dir-{round}"))).unwrap();
        fs::write(mnt.join(format!("dir-{round}/moves")), pattern(70_000)).unwrap();
        self.home.ok(["umount", "mnt"]);
    }

    /// Runs all programs at the same time. Returns their exit codes, and the time until the last one ended.
    fn run(&self, round: usize) -> (Vec<(&'static str, i32)>, Duration) {
        let began = Instant::now();
        let done = thread::scope(|scope| {
            let running: Vec<_> = PROGRAMS
                .iter()
                .map(|(name, script)| {
                    let script = script.replace('#', &round.to_string());
                    let run = move || capture(self.home.command("/bin/sh").args(["-c", &script])).code;
                    (*name, scope.spawn(run))
                })
                .collect();
            running.into_iter().map(|(name, program)| (name, program.join().unwrap())).collect()
        });
        (done, began.elapsed())
    }

    /// Checks the files after a round: what a program was told is done is there, and everything else is old or new.
    fn check(&self, round: usize, done: &[(&str, i32)], what: &str) {
        let mnt = self.home.mnt();
        let has_succeeded = |name: &str| done.iter().any(|(of, code)| *of == name && *code == 0);
        let found = |name: &str| match fs::read(mnt.join(name.replace('#', &round.to_string()))) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{what}: {name}: {error}"),
        };
        let source = Some(pattern(300_000));
        let assert_new = |name: &str, file: &str| {
            let found = found(file);
            // The name may exist although the content was never stored.
            let is_old = found.as_ref().is_none_or(Vec::is_empty);
            assert!(found == source || is_old && !has_succeeded(name), "{what}: {name}");
        };
        assert_new("cp", "copy-#");
        assert_new("dd", "dd-#");
        assert!(!has_succeeded("rm") || found("gone-#").is_none(), "{what}: rm");
        assert!(!has_succeeded("mkdir") || mnt.join(format!("made-{round}")).is_dir(), "{what}: mkdir");
        assert!(!has_succeeded("touch") || found("touched-#").is_some(), "{what}: touch");
        let cut = found("cut-#").unwrap();
        assert!(cut == pattern(10) || cut == pattern(5000) && !has_succeeded("truncate"), "{what}: truncate");
        let places = [found("dir-#/moves"), found("moved-#")];
        assert!(places.iter().flatten().all(|bytes| *bytes == pattern(70_000)), "{what}: mv");
        assert!(places[1].is_some() || places[0].is_some() && !has_succeeded("mv"), "{what}: mv");
        assert!(found("old-#") == source, "{what}: an untouched file");
        // `cmp` exits with 1 if bytes differ, and with 2 if it cannot read.
        assert!(
            done.iter().all(|(name, code)| *name != "cmp" || *code != 1),
            "{what}: bytes that no program wrote"
        );
    }

    fn remount(&self, flags: &[&str]) {
        self.home.ok([&["mount", &self.volume, "mnt", "--metadata-ttl=0s"], flags].concat());
    }
}

/// Programs that run while the store fails, in the home's directory; `#` is the round.
const PROGRAMS: [(&str, &str); 10] = [
    ("ls", "ls -f mnt/dir-#"),
    ("cmp", "cmp mnt/old-# source"),
    ("cp", "cp source mnt/copy-#"),
    ("dd", "dd if=source of=mnt/dd-# bs=64k conv=fsync"),
    ("mkdir", "mkdir mnt/made-#"),
    ("mv", "mv mnt/dir-#/moves mnt/moved-#"),
    ("rm", "rm mnt/gone-#"),
    ("touch", "touch mnt/touched-#"),
    ("truncate", "truncate -s 10 mnt/cut-#"),
    ("sync", "sync -f mnt"),
];

/// Runs a test on every layout, with and without write-back, at the same time.
fn on_every_volume(server: &S3Server, name: &str, test: impl Fn(&OutageSetup, &[&str]) + Sync, retry: &str) {
    thread::scope(|scope| {
        for (index, layout) in LAYOUTS.iter().enumerate() {
            for write_back in [false, true] {
                let test = &test;
                scope.spawn(move || {
                    let flags: &[&str] = if write_back { &[retry, "--writeback"] } else { &[retry] };
                    let name = format!("{name}-{index}-{write_back}");
                    let mounted = OutageSetup::new(server, &name, layout, flags);
                    test(&mounted, flags);
                    mounted.home.ok(["umount", "mnt"]);
                    let checked = mounted.home.tenon(["fsck", &mounted.volume]);
                    assert!(matches!(checked.code, 0 | 1), "{name}: {checked:?}");
                });
            }
        }
    });
}

#[test]
fn s120_s123_programs_in_outages_that_last() {
    let modes = [Mode::Refuse, Mode::LoseReplies, Mode::CutBodies(100_000), Mode::FlipBytes, Mode::BlackHole];
    let test = |mounted: &OutageSetup, flags: &[&str]| {
        for (round, mode) in modes.into_iter().enumerate() {
            mounted.prepare(round);
            // Mount anew, so that nothing is known or cached.
            mounted.remount(flags);
            mounted.proxy.set(mode);
            let (done, took) = mounted.run(round);
            assert!(took <= PROGRAMS_TIMEOUT, "{flags:?} {mode:?}: {took:?}");
            mounted.proxy.set(Mode::Pass);
            eventually("the mount works again", || fs::metadata(mounted.home.mnt().join("old-0")).is_ok());
            let failed = done.iter().filter(|(_, code)| *code != 0).count();
            println!("{} {flags:?} {mode:?}: {failed} of {} failed, {took:.1?}", mounted.volume, done.len());
            mounted.check(round, &done, &format!("{} {flags:?} {mode:?}", mounted.volume));
        }
    };
    on_every_volume(servers::shared_minio(), "outages", test, "--retry-timeout=1s");
}

fn succeeds(work: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok()
}

#[test]
fn s110_s123_programs_in_outages_that_end_soon() {
    let server = servers::minio();
    let modes = [Some(Mode::Refuse), Some(Mode::Busy), Some(Mode::LoseReplies), Some(Mode::BlackHole), None];
    let barrier = std::sync::Barrier::new(6);
    let test = |mounted: &OutageSetup, flags: &[&str]| {
        let mut is_sound = true;
        for (round, mode) in modes.into_iter().enumerate() {
            // A volume that failed reports it at the end: the other volumes wait for it at the barrier.
            is_sound = is_sound
                && succeeds(|| {
                    mounted.prepare(round);
                    mounted.remount(flags);
                });
            let is_leader = barrier.wait().is_leader();
            if !is_sound {
                continue;
            }
            match mode {
                Some(mode) => mounted.proxy.set(mode),
                // Freeze the server itself, with the connections of all volumes.
                None if is_leader => server.freeze(),
                None => {}
            }
            let (done, took) = thread::scope(|scope| {
                let running = scope.spawn(|| mounted.run(round));
                thread::sleep(Duration::from_millis(1500));
                mounted.proxy.set(Mode::Pass);
                if mode.is_none() && is_leader {
                    server.thaw();
                }
                running.join().unwrap()
            });
            println!("{} {flags:?} {mode:?}: {took:.1?}", mounted.volume);
            is_sound = succeeds(|| {
                let what = format!("{} {flags:?} {mode:?}", mounted.volume);
                assert!(done.iter().all(|(_, code)| *code == 0), "{what}: {done:?}");
                mounted.check(round, &done, &what);
            });
        }
        assert!(is_sound, "{} {flags:?}: see above", mounted.volume);
    };
    on_every_volume(&server, "moments", test, "--retry-timeout=15s");
}

/// Regression: an `fsync` makes several requests, and took a whole `--retry-timeout` for each until it failed.
#[test]
fn s451_the_store_calls_of_an_fsync_share_the_retry_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(6);
    let mounted = OutageSetup::new(servers::shared_minio(), "budget", &[], &["--retry-timeout=6s"]);
    let mut file = File::create(mounted.home.mnt().join("file")).unwrap();
    for _ in 0..2 {
        file.write_all(&pattern(300_000)).unwrap();
        mounted.proxy.set(Mode::Busy);
        let began = Instant::now();
        assert!(file.sync_all().is_err());
        let took = began.elapsed();
        assert!(took >= TIMEOUT && took < TIMEOUT * 7 / 4, "{took:?}");
        mounted.proxy.set(Mode::Pass);
        file.sync_all().unwrap();
    }
    drop(file);
    mounted.home.ok(["umount", "mnt"]);
}

/// On a slow line nothing fails: an upload that still makes progress is not given up.
#[test]
fn s120_a_slow_line_is_only_slow() {
    let server = servers::shared_minio();
    let mounted = OutageSetup::new(server, "slow", &[], &["--retry-timeout=1s", "--part-size=5MiB"]);
    mounted.proxy.set(Mode::Throttle(800 << 10));
    let copied = capture(mounted.home.command("/bin/sh").args(["-c", "cp large mnt/large && sync -f mnt"]));
    assert_eq!(copied.code, 0, "{copied:?}");
    let read = capture(mounted.home.command("/bin/sh").args(["-c", "cmp mnt/large large"]));
    assert_eq!(read.code, 0, "{read:?}");
    mounted.proxy.set(Mode::Pass);
    mounted.home.ok(["umount", "mnt"]);
}

/// A process that is killed when this value is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Length of an outage in seconds; `TENON_OUTAGE_SECS` asks for more.
#[expect(clippy::disallowed_methods, reason = "a developer may ask for longer outages")]
fn outage_secs() -> u64 {
    std::env::var("TENON_OUTAGE_SECS").map_or(8, |secs| secs.parse().unwrap())
}

/// Programs that read and write during an outage do not make memory grow.
#[test]
fn s125_memory_is_bounded_while_the_store_is_away() {
    const LIMIT_MIB: u64 = 128;
    let server = servers::shared_minio();
    for write_back in [None, Some("--writeback")] {
        let flags: Vec<&str> =
            ["--retry-timeout=2s", "--memory-limit=128MiB"].into_iter().chain(write_back).collect();
        let mounted =
            OutageSetup::new(server, &format!("memory-{}", write_back.is_some()), LAYOUTS[1], &flags);
        for n in 0..8 {
            fs::copy(mounted.home.path("large"), mounted.home.mnt().join(format!("large-{n}"))).unwrap();
        }
        mounted.home.ok(["umount", "mnt"]);
        mounted.remount(&flags);
        let pid = mounted.home.pid();
        mounted.proxy.set(Mode::BlackHole);
        let until = Instant::now() + Duration::from_secs(outage_secs());
        thread::scope(|scope| {
            for n in 0..8 {
                let mounted = &mounted;
                scope.spawn(move || {
                    let mut round = 0;
                    while Instant::now() < until {
                        round += 1;
                        let script = format!("cat mnt/large-{n} >/dev/null; cp large mnt/new-{n}-{round}");
                        capture(mounted.home.command("/bin/sh").args(["-c", &script]));
                    }
                });
            }
        });
        let peak = peak_bytes_without_program(pid);
        println!("{flags:?}: peak {} MiB of {LIMIT_MIB}", peak >> 20);
        assert!(peak <= LIMIT_MIB << 20, "{flags:?}: {} MiB", peak >> 20);
        mounted.proxy.set(Mode::Pass);
        let large = fs::read(mounted.home.path("large")).unwrap();
        eventually("files are read again", || {
            fs::read(mounted.home.mnt().join("large-0")).is_ok_and(|bytes| bytes == large)
        });
        mounted.home.ok(["umount", "mnt"]);
    }
}

/// Dirty files keep a mount from being unmounted in an outage. A signal ends it nevertheless, and its log says what
/// was lost.
#[test]
fn s124_an_unmount_in_an_outage_ends_and_says_what_is_left() {
    let server = servers::shared_minio();
    let flags = ["--retry-timeout=1s", "--drain-timeout=4s"];
    let mounted = OutageSetup::new(server, "unmount", &[], &flags);
    let pid = mounted.home.pid();
    // The writer is a process of its own, which writes after the last close of a copy of its descriptor: a close
    // stores.
    fs::write(mounted.home.path("lines"), "so far\n").unwrap();
    let script = "exec tail -f lines > mnt/half-written";
    let _writer = KillOnDrop(mounted.home.command("/bin/sh").args(["-c", script]).spawn().unwrap());
    let written = mounted.home.mnt().join("half-written");
    eventually("it is written", || fs::metadata(&written).is_ok_and(|found| found.len() == 7));
    mounted.proxy.set(Mode::BlackHole);
    let began = Instant::now();
    let refused = mounted.home.tenon(["umount", "mnt", "--timeout=4s"]);
    assert!(refused.code == 1 && refused.err.contains("the mount stays"), "{refused:?}");
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(is_mounted(&mounted.home.mnt()));
    let began = Instant::now();
    mounted.home.signal(pid, rustix::process::Signal::TERM);
    let is_over = || !Path::new(&format!("/proc/{pid}")).exists();
    eventually("the daemon ends", is_over);
    // The limits of the dirty file, the unmount, the last closes and the last answers.
    assert!(began.elapsed() <= Duration::from_secs(4 + 5 + 5 + 2), "{:?}", began.elapsed());
    let logs = capture(
        mounted.home.command("/bin/sh").args(["-c", "cat home/.local/state/tenon/*/log* 2>/dev/null"]),
    );
    assert!(logs.out.contains("not everything was stored"), "{logs:?}");
    assert!(logs.out.contains("half-written"), "{logs:?}");
}

/// A full disk under the write-back log, the names and the cache files gives ENOSPC and damages nothing, and
/// everything works again once there is room. A log on a disk smaller than one of its segments makes room by
/// uploading.
#[test]
fn s126_a_full_disk_is_an_error_and_no_damage() {
    let server = servers::shared_minio();
    for (index, layout) in LAYOUTS.iter().enumerate() {
        for write_back in [None, Some("--writeback")] {
            let disk = SmallDisk::with_room_for(40 << 20);
            let state = format!("--state-dir={}", disk.path().join("state").display());
            let flags: Vec<&str> = ["--retry-timeout=2s", &state].into_iter().chain(write_back).collect();
            let mounted =
                OutageSetup::new(server, &format!("full-{index}-{}", write_back.is_some()), layout, &flags);
            let (mnt, what) = (mounted.home.mnt(), format!("{layout:?} {write_back:?}"));
            let body = pattern(6 << 20);
            for n in 0..10 {
                make(&mnt.join(format!("file-{n}")), &body, false)
                    .unwrap_or_else(|error| panic!("{what}: file-{n}: {error}"));
            }
            let open = File::options().read(true).write(true).open(mnt.join("file-0")).unwrap();
            disk.fill();
            let outcomes = [
                open.write_all_at(b"edited", 1000).and_then(|()| open.sync_all()),
                make(&mnt.join("new"), &pattern(100_000), false),
                fs::create_dir(mnt.join("made")),
            ];
            println!("{what}: {outcomes:?}");
            for error in outcomes.into_iter().filter_map(Result::err) {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{what}: {error}");
            }
            disk.free();
            drop(open);
            eventually("there is room again", || make(&mnt.join("after"), &body, true).is_ok());
            mounted.home.ok(["umount", "mnt"]);
            mounted.remount(&flags);
            for n in 1..10 {
                assert!(fs::read(mnt.join(format!("file-{n}"))).unwrap() == body, "{what}: file-{n}");
            }
            assert!(fs::read(mnt.join("after")).unwrap() == body, "{what}");
            mounted.home.ok(["umount", "mnt"]);
            let checked = mounted.home.tenon(["fsck", &mounted.volume, &state]);
            assert!(matches!(checked.code, 0 | 1), "{what}: {checked:?}");
        }
    }
}
