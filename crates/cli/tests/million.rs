//! A large bucket is mounted at once and listed completely, within the memory limit.
//!
//! The test uses 150,000 objects; `TENON_TEST_OBJECTS=1000000` gives the figures of `docs/testing.md`.

#![expect(clippy::disallowed_methods, reason = "it measures, and its size may be asked for")]

use crate::fixture::{Home, capture};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

const OBJECTS: usize = 150_000;
/// Files per directory; one file in ten is in such a directory.
const PER_DIRECTORY: usize = 100;
const MEMORY_LIMIT_MIB: u64 = 128;
/// Maximum time of a mount. It takes some milliseconds, but the machine may be busy.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(2);

struct Bucket {
    flat: usize,
    directories: usize,
}

impl Bucket {
    fn of(objects: usize) -> Self {
        let directories = objects / 10 / PER_DIRECTORY;
        Self { flat: objects - directories * PER_DIRECTORY, directories }
    }

    /// Makes empty files: a bucket of many small objects costs mainly their names.
    fn make(&self, root: &Path) {
        for directory in 0..self.directories {
            let dir = root.join(format!("dir-{directory:04}"));
            fs::create_dir(&dir).unwrap();
            (0..PER_DIRECTORY).for_each(|file| drop(File::create(dir.join(format!("f{file}"))).unwrap()));
        }
        fs::create_dir(root.join("flat")).unwrap();
        for file in 0..self.flat {
            File::create(root.join(flat_name(file))).unwrap();
        }
    }

    /// Number of entries that `find` lists: all files, the directories, `flat` and the root.
    fn entry_count(&self) -> usize {
        self.flat + self.directories * (PER_DIRECTORY + 1) + 2
    }
}

fn flat_name(file: usize) -> String {
    format!("flat/n{file:07}")
}

impl Home {
    /// Runs a shell line, and prints how long it took and the daemon's peak memory so far.
    fn measure(&self, line: &str) -> String {
        let begun = Instant::now();
        let done = capture(self.command("/bin/sh").args(["-ec", line]));
        assert_eq!(done.code, 0, "{line}: {done:?}");
        println!("{line}: {:.2} s, peak {} MiB", begun.elapsed().as_secs_f64(), self.peak_bytes() >> 20);
        done.out.trim().to_owned()
    }
}

#[test]
fn s36_s130_s131_s132_s133_a_large_bucket_is_mounted_at_once_and_listed_in_bounded_memory() {
    let objects = std::env::var("TENON_TEST_OBJECTS").map_or(OBJECTS, |count| count.parse().unwrap());
    let bucket = Bucket::of(objects);
    let home = Home::new();
    fs::create_dir(home.path("bucket")).unwrap();
    bucket.make(&home.path("bucket"));

    let begun = Instant::now();
    home.ok([
        "mount",
        &format!("file://{}", home.text("bucket")),
        "mnt",
        &format!("--memory-limit={MEMORY_LIMIT_MIB}MiB"),
    ]);
    println!("mounted in {:.3} s", begun.elapsed().as_secs_f64());
    assert!(begun.elapsed() < MOUNT_TIMEOUT);

    let middle = flat_name(bucket.flat / 2);
    assert_eq!(home.measure(&format!("stat -c %s mnt/{middle}")), "0");
    assert_eq!(home.measure("ls -f mnt/flat | tee names | wc -l"), (bucket.flat + 2).to_string());
    assert_eq!(home.measure("sort -u names | wc -l"), (bucket.flat + 2).to_string());
    assert_eq!(home.measure("find mnt | wc -l"), bucket.entry_count().to_string());
    assert_eq!(home.measure(&format!("stat -c %s mnt/{middle}")), "0");
    // Read attributes of everything, so that the kernel remembers every inode.
    let files = bucket.entry_count() - bucket.directories - 2;
    assert_eq!(home.measure("find mnt -type f -size 0 -links 1 | wc -l"), files.to_string());
    assert!(home.peak_bytes() <= MEMORY_LIMIT_MIB << 20, "{} bytes", home.peak_bytes());
    home.ok(["umount", "mnt"]);
}
