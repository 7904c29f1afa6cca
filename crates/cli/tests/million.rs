//! A large bucket: mounted at once, listed whole, and no more memory than allowed.
//!
//! 150,000 objects here; with `TENON_TEST_OBJECTS=1000000` the figures of `docs/testing.md`.

#![expect(clippy::disallowed_methods, reason = "it measures, and its size may be asked for")]

use crate::fixture::{Home, said};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

const OBJECTS: usize = 150_000;
/// One in ten lies in a directory of so many.
const PER_DIRECTORY: usize = 100;
const MEMORY_LIMIT_MIB: u64 = 128;
/// Mounting takes some milliseconds; this is what the machine may be busy with besides.
const MOUNTED_WITHIN: Duration = Duration::from_secs(2);

struct Bucket {
    flat: usize,
    directories: usize,
}

impl Bucket {
    fn of(objects: usize) -> Self {
        let directories = objects / 10 / PER_DIRECTORY;
        Self { flat: objects - directories * PER_DIRECTORY, directories }
    }

    /// Empty files: what a bucket of many small objects costs is their names.
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

    /// What `find` lists: all files, the directories, `flat` and the root.
    fn listed(&self) -> usize {
        self.flat + self.directories * (PER_DIRECTORY + 1) + 2
    }
}

fn flat_name(file: usize) -> String {
    format!("flat/n{file:07}")
}

impl Home {
    /// Runs a shell line and tells how long it took and what the daemon has needed until then.
    fn measured(&self, line: &str) -> String {
        let begun = Instant::now();
        let done = said(self.command("/bin/sh").args(["-ec", line]));
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
    assert!(begun.elapsed() < MOUNTED_WITHIN);

    let middle = flat_name(bucket.flat / 2);
    assert_eq!(home.measured(&format!("stat -c %s mnt/{middle}")), "0");
    assert_eq!(home.measured("ls -f mnt/flat | tee names | wc -l"), (bucket.flat + 2).to_string());
    assert_eq!(home.measured("sort -u names | wc -l"), (bucket.flat + 2).to_string());
    assert_eq!(home.measured("find mnt | wc -l"), bucket.listed().to_string());
    assert_eq!(home.measured(&format!("stat -c %s mnt/{middle}")), "0");
    // Attributes of everything: the kernel comes to know every inode.
    let files = bucket.listed() - bucket.directories - 2;
    assert_eq!(home.measured("find mnt -type f -size 0 -links 1 | wc -l"), files.to_string());
    assert!(home.peak_bytes() <= MEMORY_LIMIT_MIB << 20, "{} bytes", home.peak_bytes());
    home.ok(["umount", "mnt"]);
}
