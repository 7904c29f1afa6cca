//! `tenon batch`: directories in batch mode, on real mounts.

use crate::fixture::{Home, eventually, is_mounted, tenon};
use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A length beyond which a content is an object of its own.
const LARGE: usize = 200 << 10;

impl Home {
    /// Mounts a volume named by inode with the directory `job`, in batch mode if `begins`.
    pub(crate) fn mount_with_job(&self, begins: bool) -> PathBuf {
        self.ok(["format", "volume", "--naming", "inode"]);
        self.ok(["mount", "volume", "mnt"]);
        fs::create_dir(self.mnt().join("job")).unwrap();
        if begins {
            self.begin_batch();
        }
        self.mnt().join("job")
    }

    /// Returns the id of the batch.
    fn begin_batch(&self) -> String {
        let begun = self.ok(["batch", "begin", "mnt/job"]);
        begun.trim().rsplit(' ').next().unwrap().to_owned()
    }

    /// Puts a directory into batch mode, on a mount whose batches expire soon. Returns its open directory, which keeps the batch from expiring,
    /// and the id of the batch.
    fn begin_in_use(&self, dir: &str) -> (fs::File, String) {
        let volume = fs::metadata(self.mnt()).unwrap().dev();
        loop {
            let begun = self.ok(["batch", "begin", &format!("mnt/{dir}")]);
            let used = fs::File::open(self.mnt().join(dir)).unwrap();
            // Otherwise the batch has expired before the directory was opened.
            if used.metadata().unwrap().dev() != volume {
                return (used, begun.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned());
            }
        }
    }

    /// Returns the id of the only batch.
    pub(crate) fn begun_batch(&self) -> String {
        let listed = self.ok(["batch", "list", "mnt"]);
        listed.split(' ').next().unwrap().to_owned()
    }

    /// Returns the objects of batches.
    pub(crate) fn batch_objects(&self) -> Vec<String> {
        let dir = self.path("volume/objects/.tenon/batches");
        let batches = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
        let objects =
            batches.flat_map(|batch| fs::read_dir(batch).unwrap().map(|entry| entry.unwrap().path()));
        objects.map(|path| path.display().to_string()).collect()
    }
}

/// Returns bytes of a file by its number.
fn body(number: usize) -> Vec<u8> {
    let len = if number % 50 == 7 { LARGE + number } else { number * 37 % 3000 };
    (0..len).map(|at| (at * 31 + number) as u8).collect()
}

pub(crate) fn write_all(dir: &Path, files: std::ops::Range<usize>) {
    for number in files {
        let sub = dir.join(format!("{}", number % 7));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(format!("file-{number}")), body(number)).unwrap();
    }
}

pub(crate) fn assert_all(dir: &Path, files: std::ops::Range<usize>) {
    for number in files {
        let path = dir.join(format!("{}/file-{number}", number % 7));
        assert!(fs::read(&path).unwrap() == body(number), "{}", path.display());
    }
}

#[test]
fn s600_s601_s602_a_batch_is_invisible_until_it_is_merged_at_once() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    fs::write(job.join("before"), "before").unwrap();
    fs::write(job.join("removed"), "removed").unwrap();
    let id = home.begin_batch();
    assert!(is_mounted(&job));
    assert_eq!(fs::read_to_string(job.join("before")).unwrap(), "before");
    write_all(&job, 0..300);
    fs::write(job.join("before"), "changed").unwrap();
    fs::remove_file(job.join("removed")).unwrap();
    fs::rename(job.join("0/file-0"), job.join("moved")).unwrap();
    fs::hard_link(job.join("1/file-1"), job.join("linked")).unwrap();
    symlink("moved", job.join("symlink")).unwrap();
    fs::set_permissions(job.join("moved"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(job.join("2/file-2")).unwrap();
    assert_all(&job, 3..300);
    let listed = home.ok(["batch", "list", "mnt"]);
    assert!(listed.contains(&id) && listed.contains("mounted") && listed.contains("/job"), "{listed}");
    assert!(home.ok(["batch", "show", "mnt", &id]).contains("not yet"));
    // The volume itself has nothing of the batch: neither its names, nor garbage.
    home.ok(["dump", "mnt", "names.dump"]);
    assert!(home.ok(["gc", "mnt", "--dry-run"]).starts_with("0 objects"));
    let ended = home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains("merged") && ended.contains("0 refused"), "{ended}");
    assert!(!is_mounted(&job));
    assert_all(&job, 3..300);
    assert_eq!(fs::read_to_string(job.join("before")).unwrap(), "changed");
    assert!(
        !job.join("removed").exists() && !job.join("2/file-2").exists() && !job.join("0/file-0").exists()
    );
    assert_eq!(fs::read(job.join("moved")).unwrap(), body(0));
    assert_eq!(fs::metadata(job.join("moved")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::metadata(job.join("linked")).unwrap().nlink(), 2);
    assert_eq!(fs::read(job.join("symlink")).unwrap(), body(0));
    // Small files share objects: each of the 6 large files has one, and all others one pack.
    assert_eq!(home.batch_objects().len(), 7, "{:?}", home.batch_objects());
    // Nothing is left to do for a second command.
    let again = home.refused(["batch", "end", "mnt/job"]);
    assert!(again.contains("not in batch mode"), "{again}");
    assert!(home.ok(["batch", "list", "mnt"]).contains("merged"));
    home.remount();
    assert_all(&job, 3..300);
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

#[test]
fn s603_a_killed_mount_resumes_its_batches() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    write_all(&job, 0..100);
    home.kill_and_remount();
    assert!(is_mounted(&job));
    assert_all(&job, 0..100);
    write_all(&job, 100..150);
    fs::rename(job.join("3"), job.join("third")).unwrap();
    home.remount();
    assert_eq!(fs::read(job.join("third/file-3")).unwrap(), body(3));
    fs::rename(job.join("third"), job.join("3")).unwrap();
    let ended = home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains("0 refused"), "{ended}");
    assert_all(&job, 0..150);
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

#[test]
fn s604_a_discarded_batch_leaves_nothing() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    fs::write(job.join("kept"), vec![7; LARGE]).unwrap();
    let id = home.begin_batch();
    write_all(&job, 0..60);
    fs::write(job.join("kept"), "overwritten").unwrap();
    fs::remove_file(job.join("kept")).unwrap();
    home.ok(["batch", "discard", "mnt", &id]);
    assert!(!is_mounted(&job));
    let names: Vec<_> = fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(fs::read(job.join("kept")).unwrap(), vec![7; LARGE]);
    assert!(home.ok(["batch", "list", "mnt"]).contains("no batches"));
    home.ok(["gc", "mnt"]);
    assert_eq!(home.batch_objects(), [] as [String; 0]);
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// Without the record of a merged batch, `tenon gc` deleted objects of it that programs in another batch could still read.
#[test]
fn s628_a_merged_batch_is_not_forgotten_while_another_is_open() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    let merged = home.begin_batch();
    fs::write(job.join("shared"), vec![7; LARGE]).unwrap();
    home.ok(["batch", "end", "mnt/job"]);
    home.begin_batch();
    let refused = home.refused(["batch", "discard", "mnt", &merged]);
    assert!(refused.contains(&merged) && refused.contains("no batch is open"), "{refused}");
    home.ok(["batch", "end", "mnt/job"]);
    home.ok(["batch", "discard", "mnt", &merged]);
    home.ok(["gc", "mnt"]);
    assert_eq!(fs::read(job.join("shared")).unwrap(), vec![7; LARGE]);
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// Changes of others, made through a second mount point, are kept; what collides keeps its bytes under other names.
#[test]
fn s605_s606_colliding_files_keep_their_bytes_under_other_names() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    fs::create_dir(home.path("outside")).unwrap();
    home.ok(["mount", "volume", "mnt", "--also", "outside"]);
    let (job, outside) = (home.mnt().join("job"), home.path("outside/job"));
    fs::create_dir_all(job.join("gone")).unwrap();
    fs::write(job.join("deleted"), "first").unwrap();
    fs::write(job.join("deleted-large"), "first").unwrap();
    let id = home.begin_batch();
    fs::write(job.join("same"), "of the batch").unwrap();
    fs::create_dir(job.join("both")).unwrap();
    fs::write(job.join("both/mine"), "mine").unwrap();
    fs::write(job.join("gone/file"), "in a directory that is removed").unwrap();
    fs::write(job.join("deleted"), "second").unwrap();
    // A regression test: this object, whose key has the inode that is gone, was deleted after the merge.
    let large = "large ".repeat(LARGE);
    fs::write(job.join("deleted-large"), &large).unwrap();
    fs::write(job.join("plain"), "plain").unwrap();
    assert!(!outside.join("same").exists(), "others see nothing of the batch");
    fs::write(outside.join("same"), "of somebody else").unwrap();
    fs::create_dir(outside.join("both")).unwrap();
    fs::write(outside.join("both/theirs"), "theirs").unwrap();
    fs::remove_dir(outside.join("gone")).unwrap();
    fs::remove_file(outside.join("deleted")).unwrap();
    fs::remove_file(outside.join("deleted-large")).unwrap();
    assert!(!job.join("both/theirs").exists(), "the batch sees the volume as it was");
    let ended = home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains(", 6 refused"), "{ended}");
    assert_eq!(fs::read_to_string(job.join("same")).unwrap(), "of somebody else");
    assert_eq!(fs::read_to_string(job.join("both/mine")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(job.join("both/theirs")).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(outside.join("plain")).unwrap(), "plain");
    let conflicts = home.ok(["batch", "conflicts", "mnt", &id, "--json"]);
    let kept = |text: &str| {
        let records = conflicts.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let paths = records.filter_map(|record| record["kept_as"].as_str().map(|path| home.mnt().join(path)));
        paths.filter(|path| fs::read_to_string(path).unwrap() == text).count()
    };
    assert_eq!(kept("of the batch"), 1, "{conflicts}");
    assert_eq!(kept("in a directory that is removed"), 1, "{conflicts}");
    assert_eq!(kept("second"), 1, "{conflicts}");
    home.ok(["gc", "mnt"]);
    home.ok(["umount", "mnt"]);
    home.ok(["umount", "outside"]);
    home.ok(["mount", "volume", "mnt"]);
    assert_eq!(kept(&large), 1, "{conflicts}");
    home.ok(["batch", "discard", "mnt", &id]);
    assert!(home.ok(["batch", "list", "mnt"]).contains("no batches"));
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// Regression: a large file that was removed or rewritten in the volume could no longer be read in an open batch.
#[test]
fn s627_a_batch_reads_what_the_volume_has_given_up() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    fs::create_dir(home.path("outside")).unwrap();
    home.ok(["mount", "volume", "mnt", "--also", "outside", "--metadata-backup", "0"]);
    let (job, outside) = (home.mnt().join("job"), home.path("outside/job"));
    fs::create_dir(&job).unwrap();
    let large = "large ".repeat(LARGE);
    for name in ["removed", "rewritten", "same"] {
        fs::write(job.join(name), &large).unwrap();
    }
    let objects = || fs::read_dir(home.path("volume/objects/inodes")).unwrap().count();
    home.begin_batch();
    fs::remove_file(outside.join("removed")).unwrap();
    fs::write(outside.join("rewritten"), "new").unwrap();
    let collected = home.ok(["gc", "mnt"]);
    assert!(collected.contains("a batch is open"), "{collected}");
    for name in ["removed", "rewritten", "same"] {
        assert!(fs::read_to_string(job.join(name)).unwrap() == large, "{name}");
    }
    assert_eq!(objects(), 4);
    home.ok(["batch", "end", "mnt/job"]);
    assert_eq!(fs::read_to_string(job.join("rewritten")).unwrap(), "new");
    assert!(!job.join("removed").exists());
    home.ok(["gc", "mnt"]);
    assert_eq!(objects(), 2);
    home.ok(["umount", "mnt"]);
    home.ok(["umount", "outside"]);
    home.ok(["fsck", "volume"]);
}

#[test]
fn s607_a_batch_that_programs_use_is_not_ended() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    let open = fs::File::create(job.join("open")).unwrap();
    let refused = home.refused(["batch", "end", "mnt/job"]);
    assert!(refused.contains("programs use"), "{refused}");
    assert!(home.refused(["umount", "mnt"]).contains("busy"));
    drop(open);
    home.ok(["batch", "end", "mnt/job"]);
    assert!(job.join("open").exists());
    let refused = home.refused(["batch", "begin", "mnt/none"]);
    assert!(refused.contains("no such file"), "{refused}");
    home.ok(["batch", "begin", "mnt/job"]);
    let refused = home.refused(["batch", "begin", "mnt"]);
    assert!(refused.contains("above or below"), "{refused}");
}

/// A file that is removed while a program has it open keeps its bytes for this program, and is not part of the merge.
#[test]
fn open_files_without_a_name_are_not_merged() {
    use std::io::Seek;
    let home = Home::new();
    let job = home.mount_with_job(true);
    let mut open = fs::File::options().create_new(true).read(true).write(true).open(job.join("a")).unwrap();
    open.write_all(b"first").unwrap();
    fs::remove_file(job.join("a")).unwrap();
    open.write_all(b", second").unwrap();
    open.sync_all().unwrap();
    open.rewind().unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first, second");
    drop(open);
    fs::write(job.join("b"), "b").unwrap();
    let ended = home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains("0 refused"), "{ended}");
    assert!(!job.join("a").exists() && job.join("b").exists());
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

#[test]
fn s608_a_mount_can_begin_in_batch_mode() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--batch", "job"]);
    assert!(is_mounted(&job));
    write_all(&job, 0..20);
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--batch", "/job"]);
    home.ok(["batch", "end", "mnt/job"]);
    assert_all(&job, 0..20);
}

#[test]
fn batches_need_a_volume_named_by_inode() {
    let home = Home::new();
    let mnt = home.mount_volume();
    fs::create_dir(mnt.join("job")).unwrap();
    let refused = home.refused(["batch", "begin", "mnt/job"]);
    assert!(refused.contains("named by path"), "{refused}");
}

/// Packs of which files use nothing any more are deleted, and packs that one file uses stay.
#[test]
fn s609_packs_are_deleted_when_no_file_uses_them() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    for number in 0..10 {
        fs::write(job.join(number.to_string()), vec![number; 1000]).unwrap();
    }
    home.ok(["batch", "end", "mnt/job"]);
    assert_eq!(home.batch_objects().len(), 1);
    for number in 1..10 {
        fs::remove_file(job.join(number.to_string())).unwrap();
    }
    fs::write(job.join("other"), "other").unwrap();
    home.ok(["gc", "mnt"]);
    assert_eq!(home.batch_objects().len(), 1, "one file is left");
    home.remount();
    assert_eq!(fs::read(job.join("0")).unwrap(), vec![0; 1000]);
    fs::write(job.join("0"), "rewritten").unwrap();
    home.ok(["gc", "mnt"]);
    assert_eq!(home.batch_objects(), [] as [String; 0]);
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// After most files are removed, the bucket holds at most twice the bytes that are left, whatever happens to the first collection.
#[test]
fn s620_s622_packs_are_rewritten_on_a_mount_that_is_killed_meanwhile() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    let small = |number: usize| body(if number % 50 == 7 { number + 1 } else { number });
    for number in 0..12_000 {
        fs::write(job.join(number.to_string()), small(number)).unwrap();
    }
    home.ok(["batch", "end", "mnt/job"]);
    let stored = || home.batch_objects().iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    let before = stored();
    let is_kept = |number: &usize| number % 5 < 2 && !number.is_multiple_of(3);
    for number in (0..12_000).filter(|number| !is_kept(number)) {
        fs::remove_file(job.join(number.to_string())).unwrap();
    }
    let assert_kept = || {
        for number in (0..12_000).filter(is_kept) {
            assert!(fs::read(job.join(number.to_string())).unwrap() == small(number), "{number}");
        }
    };
    let used: u64 = (0..12_000).filter(is_kept).map(|number| small(number).len() as u64).sum();
    let shown = home.ok(["gc", "mnt", "--dry-run"]);
    assert!(shown.contains("packs would be rewritten"), "{shown}");
    assert_eq!(stored(), before);
    let collecting = RefCell::new(home.command(tenon()).args(["gc", "mnt"]).spawn().unwrap());
    // The copies of the first pack are in the bucket, or the collection is over.
    eventually("the collection has begun", || {
        stored() != before || collecting.borrow_mut().try_wait().unwrap().is_some()
    });
    home.kill_and_remount();
    collecting.borrow_mut().wait().unwrap();
    assert_kept();
    home.ok(["gc", "mnt"]);
    assert_kept();
    eventually("the old packs are deleted", || stored() <= 2 * used);
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
    // A volume that is not mounted is collected likewise.
    home.ok(["mount", "volume", "mnt"]);
    for number in (0..12_000).filter(is_kept).filter(|number| !number.is_multiple_of(7)) {
        fs::remove_file(job.join(number.to_string())).unwrap();
    }
    home.ok(["umount", "mnt"]);
    let collected = home.ok(["gc", "volume", "--json"]);
    assert!(field(&collected, "rewritten_packs")["count"].as_u64().unwrap() > 0, "{collected}");
    let used: u64 = (0..12_000)
        .filter(is_kept)
        .filter(|number| number.is_multiple_of(7))
        .map(|number| small(number).len() as u64)
        .sum();
    assert!(stored() <= 2 * used, "{} {used}", stored());
    home.ok(["fsck", "volume"]);
    home.ok(["mount", "volume", "mnt"]);
    for number in (0..12_000).filter(is_kept).filter(|number| number.is_multiple_of(7)) {
        assert!(fs::read(job.join(number.to_string())).unwrap() == small(number), "{number}");
    }
    home.ok(["umount", "mnt"]);
}

/// A trace of the mount had no operation in a batch, and `tenon trace` did not know the directory of a batch.
#[test]
fn s763_a_trace_shows_the_operations_in_a_batch() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    fs::create_dir(home.mnt().join("other")).unwrap();
    let script = "mkdir mnt/job/d; echo hello > mnt/job/d/f; cat mnt/job/d/f; echo elsewhere > mnt/other/g";
    let trace = |of: &str| {
        let text = home.ok(["trace", of, "--json", "--", "sh", "-c", script]);
        fs::remove_dir_all(job.join("d")).unwrap();
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let calls = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let named = calls.filter(|call| call["operation"].is_string());
        named
            .map(|call| format!("{} {}", text_of(&call["operation"]), text_of(&call["path"])))
            .collect::<Vec<_>>()
    };
    let (all, inside) = (trace("mnt"), trace("mnt/job"));
    for expected in ["MKDIR job/d", "CREATE job/d/f"] {
        let count = |calls: &[String]| calls.iter().filter(|call| *call == expected).count();
        assert_eq!((count(&all), count(&inside)), (1, 1), "{expected}: {all:?} {inside:?}");
    }
    assert!(all.iter().any(|call| call == "CREATE other/g" || call == "OPEN other/g"), "{all:?}");
    assert!(inside.iter().all(|call| call.split(' ').next_back().unwrap().starts_with("job")), "{inside:?}");
    let refused = home.refused(["trace", "mnt/job", "--path", "*.csv", "--", "true"]);
    assert!(refused.contains("leave --path out"), "{refused}");
    home.ok(["umount", "mnt"]);
}

fn text_of(value: &serde_json::Value) -> &str {
    value.as_str().unwrap()
}

/// Returns the value of a field of a JSON text.
pub(crate) fn field(text: &str, name: &str) -> serde_json::Value {
    serde_json::from_str::<serde_json::Value>(text).unwrap()[name].clone()
}

/// Two batches have the same age, and a program has a file open in one of them.
#[test]
fn s614_s615_an_abandoned_batch_expires_unless_a_program_uses_it() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    fs::write(job.join("kept"), "kept").unwrap();
    let used = home.mnt().join("used");
    fs::create_dir(&used).unwrap();
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--batch-expiry", "4s"]);
    let (used_dir, _) = home.begin_in_use("used");
    let mut open = fs::File::create(used.join("open")).unwrap();
    drop(used_dir);
    let (job_dir, id) = home.begin_in_use("job");
    write_all(&job, 0..60);
    fs::write(job.join("kept"), "overwritten").unwrap();
    drop(job_dir);
    // Batches are checked in the order of their beginning.
    eventually("the batch expires", || {
        field(&home.ok(["batch", "show", "mnt", &id, "--json"]), "state") == "expired"
    });
    assert!(is_mounted(&used) && !is_mounted(&job));
    let names: Vec<_> = fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(fs::read_to_string(job.join("kept")).unwrap(), "kept");
    home.ok(["gc", "mnt"]);
    assert_eq!(home.batch_objects(), [] as [String; 0]);
    // The job that comes back gets a message, also after the next mount.
    let told = home.refused(["batch", "end", "mnt/job"]);
    assert!(
        told.contains(&id) && told.contains("expired at") && told.contains("changes were dropped"),
        "{told}"
    );
    assert!(home.ok(["status"]).contains("EXPIRED"));
    open.write_all(b"written at last").unwrap();
    open.sync_all().unwrap();
    // The next mount has the default of 30 days, so that the batch does not expire once its file is closed.
    home.kill_and_remount();
    drop(open);
    home.ok(["batch", "end", "mnt/used"]);
    assert_eq!(fs::read_to_string(used.join("open")).unwrap(), "written at last");
    let told = home.refused(["batch", "end", "mnt/job"]);
    assert!(told.contains(&id) && told.contains("expired at"), "{told}");
    let begun = home.ok(["batch", "begin", "mnt/job"]);
    assert!(begun.contains("has expired") && begun.contains(&id), "{begun}");
    home.ok(["batch", "end", "mnt/job"]);
    home.ok(["batch", "discard", "mnt", &id]);
    assert!(!home.ok(["batch", "list", "mnt"]).contains(&id));
    assert!(home.refused(["batch", "end", "mnt/job"]).contains("not in batch mode"));
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// The quota has no room, so the merge fails. Meanwhile another batch of the same age expires.
#[test]
fn s614_a_submitted_batch_does_not_expire() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    fs::create_dir(home.mnt().join("other")).unwrap();
    home.ok(["quota", "set", "mnt/job", "--files", "5"]);
    let id = home.begin_batch();
    write_all(&job, 0..2);
    home.ok(["quota", "set", "mnt/job", "--files", "1"]);
    let refused = home.refused(["batch", "end", "mnt/job"]);
    assert!(refused.contains("stays open"), "{refused}");
    let shown = || home.ok(["batch", "show", "mnt", &id, "--json"]);
    assert_eq!(field(&shown(), "state"), "suspended");
    // A regression test: a suspended batch was listed with 0 changes.
    assert!(field(&shown(), "ops").as_u64().unwrap() >= 4, "{}", shown());
    // Batches expire soon on the next mount only, so that the merge is attempted before that.
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--batch-expiry", "4s"]);
    home.ok(["batch", "begin", "mnt/other"]);
    eventually("the other batch expires", || home.ok(["batch", "list", "mnt"]).contains("expired"));
    assert_eq!(field(&shown(), "state"), "mounted");
    assert_eq!(field(&shown(), "expires"), serde_json::Value::Null);
    home.ok(["quota", "set", "mnt/job", "--files", "50"]);
    home.ok(["batch", "end", "mnt/job"]);
    assert_all(&job, 0..2);
}

#[test]
fn s615_status_announces_the_expiry() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    fs::write(job.join("a"), "a").unwrap();
    let batch = home.status()["batches"][0].clone();
    let secs = batch["expires_in_secs"].as_u64().unwrap();
    assert!((29 * 86_400..=30 * 86_400).contains(&secs), "{batch}");
    assert!(home.ok(["status", "mnt"]).contains("; expires at "));
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--batch-expiry", "6d"]);
    assert!(home.ok(["status"]).contains("EXPIRES in"));
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "volume", "mnt", "--batch-expiry", "0"]);
    assert_eq!(home.status()["batches"][0]["expires_in_secs"], serde_json::Value::Null);
    home.ok(["batch", "end", "mnt/job"]);
    assert_eq!(home.status()["batches"], serde_json::json!([]));
}

#[test]
fn s616_watch_shows_a_running_batch_and_a_finished_one() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    let id = home.begun_batch();
    let mut watching = home.command(tenon());
    watching.args(["batch", "watch", "mnt", "--json", "--interval", "100ms"]).stdout(Stdio::piped());
    let mut watching = watching.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert_eq!((field(&first, "files"), field(&first, "bytes")), (0.into(), 0.into()));
    write_all(&job, 0..70);
    fs::remove_file(job.join("3/file-3")).unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    // The counts survive the end of the process.
    home.remount();
    let mut watching = home.command(tenon());
    watching.args(["batch", "watch", "mnt", &id, "--json", "--interval", "100ms"]).stdout(Stdio::piped());
    let mut watching = watching.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let resumed = lines.next().unwrap();
    assert_eq!(field(&resumed, "files"), 70);
    write_all(&job, 70..80);
    home.ok(["batch", "end", "mnt/job"]);
    let rest: Vec<String> = lines.collect();
    assert!(watching.wait().unwrap().success());
    let last = rest.last().unwrap();
    let counts: Vec<u64> = rest.iter().map(|line| field(line, "bytes").as_u64().unwrap()).collect();
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(field(&field(last, "batch").to_string(), "state"), "merged");
    let bytes: u64 = (0..80).map(|number| body(number).len() as u64).sum();
    for shown in [last.clone(), home.ok(["batch", "watch", "mnt", &id, "--json"])] {
        assert_eq!((field(&shown, "files"), field(&shown, "removed")), (80.into(), 1.into()));
        assert_eq!((field(&shown, "directories"), field(&shown, "bytes")), (7.into(), bytes.into()));
        let sub = |name: &str| -> serde_json::Value {
            let largest = field(&shown, "largest");
            let found = largest.as_array().unwrap().iter().find(|dir| dir["path"] == name).cloned();
            found.unwrap()
        };
        let in_three = (0..80).filter(|number| number % 7 == 3);
        let expected: u64 = in_three.clone().map(|number| body(number).len() as u64).sum();
        assert_eq!(sub("job/3")["bytes"], expected);
        assert_eq!(
            (sub("job/3")["added"].clone(), sub("job/3")["removed"].clone()),
            (in_three.count().into(), 1.into())
        );
        assert_eq!(sub("job")["added"], 7);
    }
    let text = home.ok(["batch", "watch", "mnt", &id]);
    assert!(text.contains("80 files") && text.contains("/job/3"), "{text}");
    let text = home.ok(["batch", "watch", "mnt", &id, "--directories", "2"]);
    assert!(text.contains("6 other directories"), "{text}");
}

/// A name that was taken, a directory that was not empty and a file that was removed are refused, and free later.
#[test]
fn s617_a_refused_change_is_made_again() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    fs::create_dir(home.path("outside")).unwrap();
    home.ok(["mount", "volume", "mnt", "--also", "outside"]);
    let (job, outside) = (home.mnt().join("job"), home.path("outside/job"));
    fs::create_dir_all(job.join("emptied")).unwrap();
    fs::write(job.join("replaced"), "first").unwrap();
    let id = home.begin_batch();
    fs::write(job.join("same"), "of the batch").unwrap();
    fs::remove_dir(job.join("emptied")).unwrap();
    fs::remove_file(job.join("replaced")).unwrap();
    fs::write(outside.join("same"), "of somebody else").unwrap();
    fs::write(outside.join("emptied/theirs"), "theirs").unwrap();
    fs::remove_file(outside.join("replaced")).unwrap();
    fs::write(outside.join("replaced"), "second").unwrap();
    home.ok(["batch", "end", "mnt/job"]);
    let listed = || home.ok(["batch", "conflicts", "mnt", &id]);
    let index = |op: &str| {
        let listed = listed();
        let line = listed.lines().find(|line| line.contains(op)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{listed}")).split(' ').next().unwrap().to_owned()
    };
    let (create, rmdir, unlink) =
        (index("create job/same"), index("rmdir job/emptied"), index("unlink job/replaced"));
    let retry = |index: &str| home.tenon(["batch", "conflicts", "mnt", &id, "--retry", index]);
    // Nothing has changed, so that all are refused again and stay in the list.
    for refused in [&create, &rmdir, &unlink] {
        assert_eq!(retry(refused).code, 1);
    }
    assert_eq!(listed().lines().count(), 3);
    assert_eq!(fs::read_to_string(job.join("same")).unwrap(), "of somebody else");
    assert_eq!(fs::read_to_string(job.join("replaced")).unwrap(), "second");
    fs::remove_file(outside.join("same")).unwrap();
    fs::remove_file(outside.join("emptied/theirs")).unwrap();
    for accepted in [&create, &rmdir] {
        let again = retry(accepted);
        assert_eq!(again.code, 0, "{again:?}");
    }
    assert_eq!(fs::read_to_string(outside.join("same")).unwrap(), "of the batch");
    assert!(!outside.join("emptied").exists());
    assert!(
        home.refused(["batch", "conflicts", "mnt", &id, "--retry", &create]).contains("no refused change")
    );
    home.ok(["batch", "conflicts", "mnt", &id, "--forget", &unlink]);
    assert!(listed().contains("no refused changes"));
    assert_eq!(fs::read_to_string(job.join("replaced")).unwrap(), "second");
    let names: Vec<_> = fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    home.ok(["umount", "mnt"]);
    home.ok(["umount", "outside"]);
    home.ok(["fsck", "volume"]);
}
