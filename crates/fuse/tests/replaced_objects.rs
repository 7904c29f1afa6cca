//! An object that is replaced while programs read its file: each open file reads one version only.

use crate::fixture::{Mount, options};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;
const CALL_BYTES: usize = 128 << 10;

/// Returns a mount that caches no metadata.
fn mount() -> Mount {
    Mount::with_config(&options(), |config| config.metadata_ttl = Duration::ZERO)
}

/// Returns one version of the object: the version's number, repeated.
fn version(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(len / 8)
}

/// Replaces the object as another client would. Requests from now on look at the bucket again.
fn replace(mount: &Mount, number: u64, len: usize) {
    mount.put("file", version(number, len));
    mount.clock.advance(Duration::from_millis(1));
}

/// Reads the file and returns the number of the version read, or `None` if the read failed with ESTALE.
fn read_version(path: &Path, lens: &[usize]) -> Option<u64> {
    let mut bytes = Vec::with_capacity(MIB);
    let mut call = vec![0; CALL_BYTES];
    let mut file = unless_stale(File::open(path))?;
    loop {
        match unless_stale(file.read(&mut call))? {
            0 => break,
            count => bytes.extend_from_slice(&call[..count]),
        }
    }
    let numbers: Vec<u64> =
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let pages: Vec<u64> = numbers.iter().step_by(512).copied().collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "pages of several versions: {pages:?}");
    // The kernel may learn the length of a shorter version between its checks of the attributes and of the file's end (S431).
    let len = lens[numbers[0] as usize % lens.len()];
    let is_cut_by_the_kernel = bytes.len() < len && lens.iter().any(|shorter| *shorter <= bytes.len());
    assert!(bytes.len() == len || is_cut_by_the_kernel, "{} bytes of version {}", bytes.len(), numbers[0]);
    Some(numbers[0])
}

fn unless_stale<T>(outcome: std::io::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => None,
        Err(error) => panic!("{error}"),
    }
}

fn read_while_replacing(lens: &[usize], rounds: u64) {
    let mount = mount();
    let path = mount.path("file");
    replace(&mount, 0, lens[0]);
    let (is_over, seen, stale) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = u64::MAX;
                while !is_over.load(Ordering::Relaxed) {
                    match read_version(&path, lens) {
                        Some(number) => {
                            seen.fetch_add(u64::from(number != last), Ordering::Relaxed);
                            last = number;
                        }
                        None => {
                            stale.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        for number in 1..=rounds {
            let before = seen.load(Ordering::Relaxed) + stale.load(Ordering::Relaxed);
            replace(&mount, number, lens[number as usize % lens.len()]);
            // Some replacements follow at once, others after a reader has seen the version before.
            for _ in 0..number % 4 * 100 {
                if seen.load(Ordering::Relaxed) + stale.load(Ordering::Relaxed) > before {
                    break;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!(
        "{} replacements seen, {} reads stale",
        seen.load(Ordering::Relaxed),
        stale.load(Ordering::Relaxed)
    );
    assert!(
        seen.load(Ordering::Relaxed) > rounds / 20,
        "the readers must see at least a twentieth of the replacements"
    );
}

/// While another client replaced an object again and again, a reader got pages of two versions once in some thousand reads. The reads of
/// one open file switched to the object's new bytes one by one, and the pages of all versions shared the inode's page cache.
#[test]
fn s40_an_open_file_reads_one_version_while_its_object_is_replaced() {
    read_while_replacing(&[MIB], 500);
}

#[test]
fn s40_an_open_file_reads_one_version_whatever_the_lengths() {
    read_while_replacing(&[MIB, 300 << 10, 700 << 10], 500);
}

/// An open file keeps showing what was read from it as long as the kernel has its pages, even while other programs open the new version.
#[test]
fn s431_an_older_open_file_and_a_newer_one_are_read_side_by_side() {
    let mount = mount();
    let path = mount.path("file");
    replace(&mount, 1, MIB);
    let older = File::open(&path).unwrap();
    let mut bytes = vec![0; MIB];
    older.read_exact_at(&mut bytes, 0).unwrap();
    replace(&mount, 2, MIB);
    let newer = File::open(&path).unwrap();
    for at in (0..MIB).step_by(CALL_BYTES) {
        newer.read_exact_at(&mut bytes[..CALL_BYTES], at as u64).unwrap();
        assert!(bytes[..CALL_BYTES] == version(2, CALL_BYTES), "newer bytes at {at}");
        match older.read_exact_at(&mut bytes[..CALL_BYTES], at as u64) {
            Ok(()) => assert!(bytes[..CALL_BYTES] == version(1, CALL_BYTES), "older bytes at {at}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE)),
        }
    }
    drop((older, newer));
    assert_eq!(read_version(&path, &[MIB]), Some(2));
    assert_eq!(fs::metadata(&path).unwrap().size(), MIB as u64);
}

/// A program that had read half of an object took the end of a shorter version for the object's end.
#[test]
fn s431_the_end_of_a_newer_version_is_not_taken_for_that_of_an_older_one() {
    let mount = mount();
    let path = mount.path("file");
    replace(&mount, 1, MIB);
    let older = File::open(&path).unwrap();
    let mut bytes = vec![0; CALL_BYTES];
    older.read_exact_at(&mut bytes, 0).unwrap();
    replace(&mount, 2, CALL_BYTES);
    assert_eq!(fs::metadata(&path).unwrap().size(), CALL_BYTES as u64);
    assert_eq!(fs::read(&path).unwrap(), version(2, CALL_BYTES));
    let read = older.read_at(&mut bytes, 2 * CALL_BYTES as u64);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ESTALE));
}

/// Maps a file and prints, for each line of input, which versions the pages of the mapping belong to. `SIGBUS` would end it.
const MAPPING_PROGRAM: &str = r#"
import mmap, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
mapping = mmap.mmap(fd, 1 << 20, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
while True:
    print(*sorted({struct.unpack_from('<Q', mapping, at)[0] for at in range(0, 1 << 20, 4096)}), flush=True)
    if not sys.stdin.readline():
        break
"#;

struct Mapping(std::process::Child, std::io::BufReader<std::process::ChildStdout>);

impl Mapping {
    fn of(path: &Path) -> Self {
        let mut python = std::process::Command::new("/usr/bin/python3");
        let python = python.args(["-c", MAPPING_PROGRAM]).arg(path);
        let piped = std::process::Stdio::piped;
        let mut child = python.stdin(piped()).stdout(piped()).spawn().unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.1, &mut line).unwrap();
        line.trim().to_owned()
    }

    fn next_line(&mut self) -> String {
        std::io::Write::write_all(self.0.stdin.as_mut().unwrap(), b"\n").unwrap();
        self.read_line()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn s432_a_mapping_shows_the_version_that_was_opened() {
    let mount = mount();
    let path = mount.path("file");
    replace(&mount, 1, MIB);
    let mut older = Mapping::of(&path);
    assert_eq!(older.read_line(), "1");
    replace(&mount, 2, MIB);
    assert_eq!(read_version(&path, &[MIB]), Some(2), "the read must bypass the mapped pages");
    assert_eq!(older.next_line(), "1");
    drop(older);
    let mut newer = Mapping::of(&path);
    assert_eq!(newer.read_line(), "2");
    assert_eq!(read_version(&path, &[MIB]), Some(2));
    // Another newer version is mapped at the same time. Nothing is guaranteed for the older mapping, but the newest shows its version.
    replace(&mount, 3, MIB);
    let mut newest = Mapping::of(&path);
    assert_eq!(newest.read_line(), "3");
    assert_eq!(read_version(&path, &[MIB]), Some(3));
}
