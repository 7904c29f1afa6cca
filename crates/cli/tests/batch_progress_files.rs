//! The progress of batches as files of a real mount.

use crate::batches::write_all;
use crate::fixture::{Home, eventually};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The numbers of a file `progress`, by name.
fn counters(path: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split_once(' ').unwrap());
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The columns `bytes`, `added` and `removed` of a directory in a file `directories`.
fn directory(text: &str, path: &str) -> Option<Vec<u64>> {
    let mut lines = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let line = lines.find(|line| line[3] == path)?;
    Some(line[..3].iter().map(|number| number.parse().unwrap()).collect())
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

impl Home {
    fn progress_dir(&self, id: &str) -> PathBuf {
        self.mnt().join(".tenon/batches").join(id)
    }
}

#[test]
fn s618_the_progress_of_a_batch_is_in_files_of_the_mount() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    assert!(!home.mnt().join(".tenon").exists(), "no batch was begun");
    home.ok(["batch", "begin", "mnt/job"]);
    let id = home.begun_batch();
    let dir = home.progress_dir(&id);
    let progress = dir.join("progress");
    assert_eq!(counters(&progress)["files"], 0);
    write_all(&job, 0..70);
    fs::remove_file(job.join("3/file-3")).unwrap();
    fs::rename(job.join("4/file-4"), job.join("moved")).unwrap();
    // A text may be some milliseconds old.
    eventually("the rename is counted", || counters(&progress)["renames"] == 1);
    let found = counters(&progress);
    assert_eq!((found["files"], found["directories"], found["removed"]), (70, 7, 1), "{found:?}");
    let text = fs::read_to_string(&progress).unwrap();
    assert!(text.starts_with(&format!("batch {id}\nstate mounted\nbegan 20")), "{text}");
    let read = || fs::read_to_string(dir.join("directories")).unwrap();
    eventually("the directories are counted", || directory(&read(), "/job/4").is_some_and(|row| row[2] == 1));
    let all: u64 = ["", "/0", "/1", "/2", "/3", "/4", "/5", "/6"]
        .iter()
        .filter_map(|sub| Some(directory(&read(), &format!("/job{sub}"))?[0]))
        .sum();
    assert_eq!(all, found["bytes"]);
    assert_eq!(directory(&read(), "/job").unwrap()[1..], [8, 0]);
    // An open file is read again from its beginning.
    let open = File::open(&progress).unwrap();
    let mut buffer = [0; 4096];
    let mut files = || {
        let len = open.read_at(&mut buffer, 0).unwrap();
        let text = String::from_utf8(buffer[..len].to_vec()).unwrap();
        text.lines().find_map(|line| line.strip_prefix("files ")).unwrap().to_owned()
    };
    assert_eq!(files(), "70");
    write_all(&job, 70..71);
    eventually("the open file shows another file", || counters(&progress)["files"] == 71);
    assert_eq!(files(), "71");
    drop(open);
    // The counters survive the end of the process and the end of the batch.
    home.remount();
    assert_eq!(counters(&progress)["files"], 71);
    let before = counters(&progress);
    home.ok(["batch", "end", "mnt/job"]);
    eventually("the merge is shown", || fs::read_to_string(&progress).unwrap().contains("state merged"));
    assert_eq!(counters(&progress), before);
    assert_eq!(directory(&read(), "/job").unwrap()[1..], [8, 0]);
    home.ok(["batch", "discard", "mnt", &id]);
    assert!(!home.mnt().join(".tenon").exists(), "the batch is forgotten");
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// Programs that walk the volume do not find the files, and no program can change them.
#[test]
fn s618_progress_files_are_read_only_and_not_listed() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    let (id, tenon) = (home.begun_batch(), home.mnt().join(".tenon"));
    assert_eq!(names(&home.mnt()), ["job"]);
    assert_eq!(names(&tenon), ["batches"]);
    assert_eq!(names(&tenon.join("batches")), [id.as_str()]);
    let dir = home.progress_dir(&id);
    assert_eq!(names(&dir), ["directories", "progress"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(&tenon), mode(&dir.join("progress"))), (0o555, 0o444));
    assert_eq!(mode(&dir.join("directories")), 0o400, "it has names that only some users may list");
    assert!(!dir.join("other").exists() && !tenon.join("metadata").exists());
    let errno = |outcome: std::io::Result<()>| outcome.unwrap_err().raw_os_error().unwrap();
    let progress = dir.join("progress");
    for refused in [
        fs::write(&progress, "0"),
        fs::write(dir.join("new"), "0"),
        fs::create_dir(tenon.join("new")),
        fs::remove_file(&progress),
        fs::remove_dir(&tenon),
        fs::rename(&progress, job.join("taken")).or_else(|error| match error.raw_os_error() {
            // The batch is a mount of its own.
            Some(libc::EXDEV) => fs::rename(&progress, home.mnt().join("taken")),
            _ => Err(error),
        }),
        fs::rename(home.mnt().join("job"), dir.join("job")),
        fs::hard_link(&progress, home.mnt().join("linked")),
        std::os::unix::fs::symlink("x", dir.join("link")),
        File::open(&progress).unwrap().set_permissions(fs::metadata(&job).unwrap().permissions()),
    ] {
        let errno = errno(refused);
        assert!(matches!(errno, libc::EPERM | libc::EACCES | libc::EBUSY), "errno {errno}");
    }
    // Programs that copy files read them to the end although their length is 0.
    let copied = Command::new("cp").arg(&progress).arg(home.mnt().join("copy")).status().unwrap();
    assert!(copied.success());
    assert!(fs::read_to_string(home.mnt().join("copy")).unwrap().starts_with("batch "));
    let listed = Command::new("ls").arg("-laR").arg(&tenon).output().unwrap();
    assert!(listed.status.success() && listed.stderr.is_empty(), "{listed:?}");
}

/// A reader that never rests sees counters that only grow, while the job runs and while it is merged.
#[test]
fn s619_counters_in_files_only_grow() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    let progress = home.progress_dir(&home.begun_batch()).join("progress");
    let has_ended = AtomicBool::new(false);
    let samples = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut samples = vec![counters(&progress)];
            while !has_ended.load(Ordering::Relaxed) {
                samples.push(counters(&progress));
            }
            samples.push(counters(&progress));
            samples
        });
        write_all(&job, 0..400);
        (0..50).for_each(|number| {
            fs::remove_file(job.join(format!("{}/file-{number}", number % 7))).unwrap();
        });
        home.ok(["batch", "end", "mnt/job"]);
        std::thread::sleep(std::time::Duration::from_millis(100));
        has_ended.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    for name in ["files", "directories", "removed", "renames", "writes", "bytes"] {
        let values: Vec<u64> = samples.iter().map(|sample| sample[name]).collect();
        assert!(values.is_sorted(), "{name}: {values:?}");
    }
    let last = samples.last().unwrap();
    assert_eq!((last["files"], last["removed"]), (400, 50));
    assert!(samples.iter().any(|sample| (1..400).contains(&sample["files"])), "{} samples", samples.len());
}
