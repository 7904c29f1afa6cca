//! kill -9 at random moments while programs write: nothing that was acknowledged is lost, and no file has bytes that
//! no program wrote.

use crate::fixture::{Home, is_mounted};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::Entropy;

/// Number of concurrent writers.
const WRITERS: u64 = 3;

/// State of each file that was acknowledged to a writer, by name; `None` if the file was removed.
type Acknowledged = BTreeMap<String, Option<Vec<u8>>>;

/// Returns bytes that are determined by a seed and a length.
fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed.wrapping_mul(31) ^ (at / 64)) as u8 | 1).collect()
}

/// Makes, edits, renames and removes files until the mount is gone. Returns the acknowledged states, and the change
/// that was in progress.
fn write(mnt: &Path, writer: u64, seed: u64, stop: &AtomicBool) -> (Acknowledged, Option<(String, Vec<u8>)>) {
    let entropy = Entropy::new(seed * WRITERS + writer);
    let mut acknowledged = Acknowledged::new();
    for number in 0.. {
        let name = format!("{writer}-{seed}-{}", entropy.below(40));
        let path = mnt.join(&name);
        let bytes = body(seed * 1000 + number, 1 + entropy.below(300_000) as usize);
        let done = match entropy.below(5) {
            0 => fs::remove_file(&path).or_else(not_found).map(|()| None),
            1 => by_rename(&path, &bytes).map(|()| Some(bytes.clone())),
            2 => make(&path, &bytes, true).map(|()| Some(bytes.clone())),
            _ => make(&path, &bytes, false).map(|()| Some(bytes.clone())),
        };
        match done {
            Ok(state) => acknowledged.insert(name, state),
            // The file may be as before, as wanted, or in between.
            Err(_) => return (acknowledged, Some((name, bytes))),
        };
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    (acknowledged, None)
}

/// Makes a file. An error of its close counts.
pub(crate) fn make(path: &Path, bytes: &[u8], sync: bool) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    if sync {
        file.sync_all()?;
    }
    // Dropping the file would not report an error of the close.
    // SAFETY: the descriptor is ours, and is not used afterwards.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn by_rename(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let staged = path.with_extension("new");
    make(&staged, bytes, true)?;
    fs::rename(staged, path)
}

fn not_found(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn assert_kills_lose_nothing(layout: &[&str], mode: &[&str]) {
    let home = Home::new();
    home.ok([&["format", "volume"], layout].concat());
    let mount = || home.ok([&["mount", "volume", "mnt"], mode].concat());
    let mnt: PathBuf = home.mnt();
    let pause = Entropy::new(9);
    mount();
    for round in 0..rounds() {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (mnt, stop) = (mnt.clone(), stop.clone());
                std::thread::spawn(move || write(&mnt, writer, round, &stop))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30 + pause.below(500)));
        home.signal(home.pid(), rustix::process::Signal::KILL);
        stop.store(true, Ordering::Relaxed);
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        home.ok(["umount", "mnt"]);
        assert!(!is_mounted(&mnt));
        mount();
        for (acknowledged, in_progress) in outcomes {
            for (name, state) in acknowledged {
                let found = fs::read(mnt.join(&name)).ok();
                let is_as_acknowledged = found == state;
                let may_differ = in_progress.as_ref().is_some_and(|(other, _)| *other == name);
                assert!(
                    is_as_acknowledged || may_differ,
                    "{layout:?} {mode:?}, round {round}: {name} is not as it was acknowledged"
                );
            }
            if let Some((name, bytes)) = in_progress
                && let Ok(found) = fs::read(mnt.join(&name))
            {
                let is_of_one_write = bytes.starts_with(&found) || found.iter().all(|byte| byte & 1 == 1);
                assert!(
                    is_of_one_write,
                    "{layout:?} {mode:?}, round {round}: {name} has bytes that no program wrote"
                );
            }
        }
    }
    home.ok(["umount", "mnt"]);
    let output = home.tenon(["fsck", "volume", "--remove-orphans"]);
    assert!(matches!(output.code, 0 | 1), "{layout:?} {mode:?}: {output:?}");
}

/// Number of rounds; `TENON_ROUNDS` asks for more.
#[expect(clippy::disallowed_methods, reason = "a developer may ask for more rounds")]
pub(crate) fn rounds() -> u64 {
    std::env::var("TENON_ROUNDS").map_or(4, |count| count.parse().unwrap())
}

#[test]
fn s11_random_kills_lose_nothing_that_was_acknowledged_by_path() {
    assert_kills_lose_nothing(&[], &[]);
}

#[test]
fn s11_random_kills_lose_nothing_that_was_acknowledged_by_inode() {
    assert_kills_lose_nothing(&["--naming", "inode"], &[]);
}

#[test]
fn s11_random_kills_lose_nothing_that_was_acknowledged_in_chunks() {
    assert_kills_lose_nothing(&["--mapping", "chunked", "--chunk-size", "1MiB"], &[]);
}

#[test]
fn s152_random_kills_lose_nothing_that_was_acknowledged_with_write_back() {
    for layout in [&[][..], &["--naming", "inode"], &["--mapping", "chunked", "--chunk-size", "1MiB"]] {
        assert_kills_lose_nothing(layout, &["--writeback"]);
    }
}
