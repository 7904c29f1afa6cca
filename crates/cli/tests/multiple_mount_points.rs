//! One volume mounted at several directories by one process.

use crate::fixture::{Home, capture, eventually, is_mounted};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Layouts of the volumes of these tests.
const LAYOUTS: [&[&str]; 3] = [
    &["format", "volume"],
    &["format", "volume", "--naming", "inode"],
    &["format", "volume", "--naming", "inode", "--mapping", "chunked", "--chunk-size", "1MiB"],
];

impl Home {
    /// Mounts a volume at `mnt` and `mnt2`.
    fn mount_twice(&self, format: &[&str]) -> [PathBuf; 2] {
        self.ok(format);
        fs::create_dir(self.path("mnt2")).unwrap();
        self.ok(["mount", "volume", "mnt", "--also", "mnt2"]);
        [self.mnt(), self.path("mnt2")]
    }

    /// Returns a command that runs one function of `locks.py` on one file in several mounts.
    fn locks(&self, what: &str, paths: &[&Path]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/locks.py");
        let mut command = self.command("/usr/bin/python3");
        command.arg(script).arg(what).args(paths);
        command
    }

    fn run_locks(&self, what: &str, paths: &[&Path]) {
        let output = capture(&mut self.locks(what, paths));
        assert_eq!(output.code, 0, "{what}: {output:?}");
    }

    /// Starts such a process, and waits for its first line.
    fn start_locks(&self, what: &str, paths: &[&Path]) -> (Child, BufReader<impl Read + use<>>) {
        let mut child = self.locks(what, paths).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (child, out)
    }
}

/// Repetitions, so that a test does not pass by luck.
const ROUNDS: usize = 20;

#[test]
fn s205_all_directories_show_the_same_at_once() {
    for format in LAYOUTS {
        let home = Home::new();
        let mounts = home.mount_twice(format);
        for round in 0..ROUNDS {
            let (here, there) = (&mounts[round % 2], &mounts[1 - round % 2]);
            let bytes = vec![round as u8; [0, 1, 4096, 70_000][round % 4]];
            assert!(!there.join(format!("new{round}")).exists());
            fs::write(here.join(format!("new{round}")), &bytes).unwrap();
            assert_eq!(fs::read(there.join(format!("new{round}"))).unwrap(), bytes);
            fs::write(here.join("same"), &bytes).unwrap();
            assert_eq!(fs::metadata(there.join("same")).unwrap().len(), bytes.len() as u64);
            assert_eq!(fs::read(there.join("same")).unwrap(), bytes);
            fs::rename(here.join(format!("new{round}")), here.join("renamed")).unwrap();
            assert_eq!(fs::read(there.join("renamed")).unwrap(), bytes);
            assert!(!there.join(format!("new{round}")).exists());
            fs::create_dir(here.join("dir")).unwrap();
            assert_eq!(fs::read_dir(there.join("dir")).unwrap().count(), 0);
            fs::remove_dir(there.join("dir")).unwrap();
            assert!(!here.join("dir").exists());
        }
        assert_eq!(fs::read_dir(&mounts[0]).unwrap().count(), fs::read_dir(&mounts[1]).unwrap().count());
    }
}

/// Nothing is closed and opened again in between: reads from a descriptor must return the present data.
#[test]
fn s205_open_files_show_the_present_data() {
    for format in LAYOUTS {
        let home = Home::new();
        let [here, there] = home.mount_twice(format);
        let open = |path: &Path| {
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        };
        let (writer, reader) = (open(&here.join("file")), open(&there.join("file")));
        let mut length = 0;
        for round in 0..ROUNDS as u8 {
            use std::os::unix::fs::FileExt;
            writer.write_all_at(&[round; 5000], length).unwrap();
            length += 5000;
            assert_eq!(reader.metadata().unwrap().len(), length);
            let mut read = [255];
            reader.read_exact_at(&mut read, length - 1).unwrap();
            assert_eq!(read, [round]);
            writer.write_all_at(&[round], 0).unwrap();
            reader.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, [round]);
        }
        fs::remove_file(there.join("file")).unwrap();
        assert_eq!(writer.metadata().unwrap().len(), length);
        drop((writer, reader));
        home.run_locks("mapped", &[&here.join("mapped"), &there.join("mapped")]);
    }
}

/// Returns how many attempts succeeded, of `count` attempts by each of two threads per mount.
fn wins(mounts: &[PathBuf], count: usize, attempt: impl Fn(&Path, usize) -> bool + Sync) -> usize {
    let attempt = &attempt;
    std::thread::scope(|scope| {
        let race = |mount: &PathBuf| {
            let mount = mount.clone();
            scope.spawn(move || (0..count).filter(|number| attempt(&mount, *number)).count())
        };
        let racers: Vec<_> = mounts.iter().chain(mounts).map(race).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    })
}

#[test]
fn s206_races_between_directories_have_one_winner() {
    for format in LAYOUTS {
        let home = Home::new();
        let mounts = home.mount_twice(format);
        let made = wins(&mounts, 50, |mount, number| {
            match OpenOptions::new().write(true).create_new(true).open(mount.join(format!("file{number}"))) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
                    false
                }
            }
        });
        assert_eq!(made, 50);
        let moved = wins(&mounts, 50, |mount, number| {
            let thread = std::thread::current().id();
            let to = mount.join(format!("won{number}-{thread:?}"));
            match fs::rename(mount.join(format!("file{number}")), to) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    false
                }
            }
        });
        assert_eq!((moved, fs::read_dir(&mounts[1]).unwrap().count()), (50, 50));
        home.ok(["umount", "mnt"]);
        home.ok(["umount", "mnt2"]);
        assert!(home.ok(["fsck", "volume"]).contains("is clean"));
    }
}

#[test]
fn s206_appends_at_several_directories_do_not_overlap() {
    for format in LAYOUTS {
        let home = Home::new();
        let [here, there] = home.mount_twice(format);
        home.run_locks("append", &[&here.join("log"), &there.join("log")]);
        // The kernel of the second mount has not asked for the file since it was opened.
        let append = |path: PathBuf| OpenOptions::new().create(true).append(true).open(path).unwrap();
        let (mut one, mut other) = (append(here.join("two")), append(there.join("two")));
        for _ in 0..3 {
            one.write_all(b"one.").unwrap();
            other.write_all(b"other.").unwrap();
        }
        assert_eq!(fs::read(here.join("two")).unwrap(), b"one.other.".repeat(3));
    }
}

#[test]
fn s207_locks_hold_across_directories() {
    let home = Home::new();
    let [here, there] = home.mount_twice(LAYOUTS[1]);
    for kind in ["flock", "fcntl"] {
        let count = |path: PathBuf| home.locks("count", &[Path::new(kind), &path]).spawn().unwrap();
        fs::write(here.join(kind), "0").unwrap();
        let counting: Vec<Child> =
            [&here, &there, &here, &there].into_iter().map(|mount| count(mount.join(kind))).collect();
        assert!(counting.into_iter().all(|mut child| child.wait().unwrap().success()));
        assert_eq!(fs::read_to_string(there.join(kind)).unwrap(), "400");
    }
    home.run_locks("ranges", &[&here.join("ranges"), &there.join("ranges")]);
    home.run_locks("deadlock", &[&here.join("deadlock"), &there.join("deadlock")]);
    let asked = home.status();
    assert!(asked["fuse_requests"]["SETLKW"].as_u64().unwrap() > 800, "{asked}");
}

#[test]
fn s207_a_lock_of_an_open_file_ends_with_its_last_descriptor() {
    let home = Home::new();
    let [here, there] = home.mount_twice(LAYOUTS[1]);
    let open = |mount: &Path| {
        File::options().read(true).write(true).create(true).truncate(false).open(mount.join("file")).unwrap()
    };
    for _ in 0..ROUNDS {
        let (holder, other) = (open(&here), open(&there));
        holder.try_lock().unwrap();
        let copy = holder.try_clone().unwrap();
        assert!(other.try_lock().is_err());
        drop(holder);
        assert!(other.try_lock().is_err(), "a copy of the descriptor holds it");
        drop(copy);
        other.try_lock().unwrap();
        // A descriptor that cannot write must release its locks too.
        drop(other);
        let reader = File::open(there.join("file")).unwrap();
        reader.try_lock_shared().unwrap();
        assert!(open(&here).try_lock().is_err());
        open(&here).try_lock_shared().unwrap();
        drop(reader);
    }
}

#[test]
fn s207_a_killed_process_neither_waits_for_nor_holds_a_lock() {
    let home = Home::new();
    let [here, there] = home.mount_twice(LAYOUTS[1]);
    let (mut holder, _held) = home.start_locks("hold", &[&here.join("file")]);
    let (mut waiter, mut output) = home.start_locks("wait", &[&there.join("file")]);
    home.run_locks("alarm", &[&there.join("file")]);
    waiter.kill().unwrap();
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        waiter.try_wait().unwrap().is_some()
    });
    assert!(is_gone, "a killed process goes at once");
    let mut word = String::new();
    output.read_line(&mut word).unwrap();
    assert_eq!(word, "", "the killed process never had the lock");
    let (mut next, mut output) = home.start_locks("wait", &[&there.join("file")]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    output.read_line(&mut word).unwrap();
    assert_eq!(word, "held\n");
    next.kill().unwrap();
    next.wait().unwrap();
    File::open(here.join("file")).unwrap().try_lock_shared().unwrap();
}

#[test]
fn s208_directories_are_unmounted_one_by_one() {
    let home = Home::new();
    let [here, there] = home.mount_twice(LAYOUTS[0]);
    // Dead mounts of other tests are listed too.
    let listed = || {
        let all = home.ok(["status"]);
        let own = all.lines().filter(|line| line.contains(home.path("").to_str().unwrap()));
        own.map(|line| format!("{line}\n")).collect::<String>()
    };
    let both = format!("{} and {}", here.display(), there.display());
    assert!(listed().starts_with(&both) && listed().lines().count() == 1, "{}", listed());
    assert!(home.ok(["status", "mnt2"]).contains(&both));
    fs::create_dir(here.join("dir")).unwrap();
    (0..100).for_each(|number| fs::write(here.join(format!("dir/{number}")), "x").unwrap());
    let located = home.ok(["locate", "mnt2/dir/7"]);
    assert!(located.contains("dir/7"), "{located}");
    let inodes = |home: &Home| home.status()["kernel_inodes"].as_u64().unwrap();
    let open = File::open(there.join("dir/7")).unwrap();
    assert!(home.refused(["umount", "mnt2"]).contains("mnt2 is busy"));
    drop(open);
    // The first directory is not special.
    home.ok(["umount", "mnt"]);
    assert!(!is_mounted(&here) && is_mounted(&there));
    assert!(home.refused(["umount", "mnt"]).contains("no Tenon volume is mounted"));
    assert_eq!(fs::read_to_string(there.join("dir/7")).unwrap(), "x");
    assert!(listed().starts_with(&format!("{}  ", there.display())), "{}", listed());
    assert!(home.refused(["status", "mnt"]).contains("is not mounted"));
    assert!(home.refused(["mount", "volume", "mnt"]).contains("is in use"));
    // Another volume is mounted at the same path, and the two are not confused.
    home.ok(["format", "another"]);
    home.ok(["mount", "another", "mnt"]);
    assert!(home.ok(["status", "mnt"]).contains("another"));
    home.ok(["umount", "mnt"]);
    fs::write(there.join("last"), "stored").unwrap();
    home.ok(["umount", "mnt2"]);
    assert_eq!(home.ok(["object", "get", "volume/last"]), "stored");
    home.ok(["mount", "volume", "mnt", "-o", "also=mnt2"]);
    assert_eq!(fs::read_to_string(there.join("last")).unwrap(), "stored");
    // Inodes that a kernel mount remembers are forgotten with it.
    let before = inodes(&home);
    assert_eq!(
        fs::read_dir(there.join("dir"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().metadata().is_ok())
            .count(),
        100
    );
    assert!(inodes(&home) >= before + 100);
    home.ok(["umount", "mnt2"]);
    eventually("its inodes are forgotten", || inodes(&home) <= before);
}

#[test]
fn s208_a_signal_unmounts_all() {
    let home = Home::new();
    let mounts = home.mount_twice(LAYOUTS[1]);
    let mut open = File::create(mounts[1].join("open")).unwrap();
    open.write_all(b"not closed yet").unwrap();
    home.signal(home.pid(), Signal::TERM);
    eventually("all are gone", || mounts.iter().all(|mount| !is_mounted(mount)));
    drop(open);
    eventually("the state is free", || home.tenon(["mount", "volume", "mnt"]).code == 0);
    assert_eq!(fs::read_to_string(mounts[0].join("open")).unwrap(), "not closed yet");
}

#[test]
fn s208_dead_mounts_are_cleaned_one_by_one() {
    let home = Home::new();
    let [here, there] = home.mount_twice(LAYOUTS[1]);
    fs::write(here.join("file"), "stored").unwrap();
    let (mut holder, _held) = home.start_locks("hold", &[&here.join("file")]);
    home.signal(home.pid(), Signal::KILL);
    eventually("the process is gone", || fs::metadata(&here).is_err() && fs::metadata(&there).is_err());
    holder.kill().unwrap();
    holder.wait().unwrap();
    // One dead mount is cleaned up by `umount`, the other is replaced by the next mount.
    home.ok(["umount", "mnt2"]);
    let mounted = home.tenon(["mount", "volume", "mnt", "--also", "mnt2"]);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    let says_so = |place: &str| mounted.err.contains(&format!("{} was dead", home.path(place).display()));
    assert!(says_so("mnt") && !says_so("mnt2"), "{mounted:?}");
    let file = File::open(there.join("file")).unwrap();
    file.try_lock_shared().unwrap();
    assert_eq!(std::io::read_to_string(file).unwrap(), "stored");
}

#[test]
fn s208_unusable_directories_are_refused() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    fs::create_dir(home.path("mnt/inner")).unwrap();
    for also in ["mnt", "mnt/inner", "mnt/../mnt"] {
        let refused = home.refused(["mount", "volume", "mnt", "--nonempty", "--also", also]);
        assert!(refused.contains("overlap"), "{refused}");
    }
    let refused = home.refused(["mount", "volume", "mnt", "--nonempty", "--also", "none"]);
    assert!(refused.contains("does not exist"), "{refused}");
    assert!(!is_mounted(&home.mnt()));
}

/// Objects stored by S3 are visible in all directories when the request is answered, and files are visible as
/// objects.
#[test]
fn s205_s3_clients_and_all_directories_see_each_other() {
    let home = Home::new().with_users();
    home.ok(LAYOUTS[1]);
    fs::create_dir(home.path("mnt2")).unwrap();
    let url = home.mount_and_serve("volume", &["--also", "mnt2"]);
    let program = r#"
import boto3, os
s3 = boto3.client("s3", endpoint_url=os.environ["URL"], aws_access_key_id=os.environ["KEY"],
    aws_secret_access_key=os.environ["SECRET"], region_name="us-east-1")
for number in range(20):
    mounts = ["mnt", "mnt2"]
    for mount in mounts:
        assert not os.path.exists(f"{mount}/dir/{number}")
    s3.put_object(Bucket="volume", Key=f"dir/{number}", Body=b"x" * number)
    s3.put_object(Bucket="volume", Key="same", Body=b"x" * number)
    for mount in mounts:
        assert os.stat(f"{mount}/dir/{number}").st_size == number
        assert open(f"{mount}/same", "rb").read() == b"x" * number
    with open(f"{mounts[number % 2]}/same", "wb") as file:
        file.write(b"back")
    assert s3.get_object(Bucket="volume", Key="same")["Body"].read() == b"back"
"#;
    let mut script = home.command("/usr/bin/python3");
    script.args(["-c", program]).envs([
        ("URL", url.as_str()),
        ("KEY", crate::endpoint::KEY),
        ("SECRET", crate::endpoint::SECRET),
    ]);
    let outcome = capture(&mut script);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let status = home.status();
    assert!(status["mount_point"].as_str().unwrap().ends_with("/mnt"), "{status}");
    assert!(
        status["also"][0].as_str().unwrap().ends_with("/mnt2") && status["endpoint"].is_string(),
        "{status}"
    );
}

/// With one directory the kernel keeps its caches and handles locks.
#[test]
fn s209_one_directory_keeps_the_kernels_caches() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt"]);
    let file = File::create(home.mnt().join("file")).unwrap();
    file.lock().unwrap();
    drop(file);
    let before = home.status();
    for _ in 0..50 {
        fs::metadata(home.mnt().join("file")).unwrap();
        fs::read(home.mnt().join("file")).unwrap();
    }
    let after = home.status();
    for operation in ["LOOKUP", "GETATTR", "FLUSH", "SETLK", "SETLKW"] {
        let count = |status: &serde_json::Value| status["fuse_requests"][operation].as_u64().unwrap_or(0);
        assert!(count(&after) <= count(&before) + 5, "{operation}: {before} {after}");
    }
}
