//! kill -9 at any moment, while programs write: nothing that was acknowledged is lost, and no byte is there that nobody
//! wrote.

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

/// Programs that write at the same time.
const WRITERS: u64 = 3;

/// What a writer was told is there, by name; `None`: is gone.
type Acknowledged = BTreeMap<String, Option<Vec<u8>>>;

/// The bytes of a file, which its name and version tell.
fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed.wrapping_mul(31) ^ (at / 64)) as u8 | 1).collect()
}

/// Makes, edits, renames and removes files until the mount is gone.
fn write(mnt: &Path, writer: u64, seed: u64, over: &AtomicBool) -> (Acknowledged, Option<(String, Vec<u8>)>) {
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
            // It may be as before, as wanted, or on the way.
            Err(_) => return (acknowledged, Some((name, bytes))),
        };
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    (acknowledged, None)
}

/// Makes a file; an error of its close counts.
pub(crate) fn make(path: &Path, bytes: &[u8], sync: bool) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    if sync {
        file.sync_all()?;
    }
    // `drop` would not say how the close went.
    // SAFETY: the descriptor is ours, and nobody uses it afterwards.
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

fn survives(layout: &[&str], mode: &[&str]) {
    let home = Home::new();
    home.ok([&["format", "volume"], layout].concat());
    let mount = || home.ok([&["mount", "volume", "mnt"], mode].concat());
    let mnt: PathBuf = home.mnt();
    let pause = Entropy::new(9);
    mount();
    for round in 0..rounds() {
        let over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (mnt, over) = (mnt.clone(), over.clone());
                std::thread::spawn(move || write(&mnt, writer, round, &over))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30 + pause.below(500)));
        home.signal(home.pid(), rustix::process::Signal::KILL);
        over.store(true, Ordering::Relaxed);
        let told: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        home.ok(["umount", "mnt"]);
        assert!(!is_mounted(&mnt));
        mount();
        for (acknowledged, under_way) in told {
            for (name, state) in acknowledged {
                let found = fs::read(mnt.join(&name)).ok();
                let is_as_told = found == state;
                let may_differ = under_way.as_ref().is_some_and(|(other, _)| *other == name);
                assert!(
                    is_as_told || may_differ,
                    "{layout:?} {mode:?}, round {round}: {name} is not as it was told"
                );
            }
            if let Some((name, bytes)) = under_way
                && let Ok(found) = fs::read(mnt.join(&name))
            {
                let is_of_one_write = bytes.starts_with(&found) || found.iter().all(|byte| byte & 1 == 1);
                assert!(
                    is_of_one_write,
                    "{layout:?} {mode:?}, round {round}: {name} has bytes that nobody wrote"
                );
            }
        }
    }
    home.ok(["umount", "mnt"]);
    let said = home.tenon(["fsck", "volume", "--remove-orphans"]);
    assert!(matches!(said.code, 0 | 1), "{layout:?} {mode:?}: {said:?}");
}

/// More for a long night.
#[expect(clippy::disallowed_methods, reason = "the reader is a person at a shell")]
pub(crate) fn rounds() -> u64 {
    std::env::var("TENON_ROUNDS").map_or(4, |count| count.parse().unwrap())
}

#[test]
fn s11_random_kills_lose_nothing_that_was_acknowledged_by_path() {
    survives(&[], &[]);
}

#[test]
fn s11_random_kills_lose_nothing_that_was_acknowledged_by_inode() {
    survives(&["--naming", "inode"], &[]);
}

#[test]
fn s11_random_kills_lose_nothing_that_was_acknowledged_in_chunks() {
    survives(&["--mapping", "chunked", "--chunk-size", "1MiB"], &[]);
}

#[test]
fn s152_random_kills_lose_nothing_that_was_acknowledged_with_write_back() {
    for layout in [&[][..], &["--naming", "inode"], &["--mapping", "chunked", "--chunk-size", "1MiB"]] {
        survives(layout, &["--writeback"]);
    }
}
