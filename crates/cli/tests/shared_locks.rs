//! Locks and strict coherence of two mounts of one volume whose metadata is in a database, as two machines would have them.

use crate::databases::{Setup, StartDatabase, database_tests};
use crate::fixture::capture;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::process::Signal;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

database_tests! {
    s663_locks_hold_across_machines
    s664_a_flock_ends_with_the_last_descriptor_on_any_machine
    s665_locks_of_a_machine_that_dies_are_freed
    s666_a_mount_that_lost_its_lease_knows_it
    s667_locks_outlive_a_restart_of_the_database
    s668_programs_work_on_one_directory_by_turns
    s669_a_strict_mount_sees_each_answered_change
    s670_a_strict_mount_that_dies_delays_others_for_the_time_of_its_lease
    s684_gc_and_new_quotas_need_the_only_mount
}

/// Repetitions, so that a test does not pass by luck.
const ROUNDS: usize = 20;

/// Mounts a volume as two machines.
fn mount_twice(setup: &Setup, flags: &[&str]) -> [PathBuf; 2] {
    let (here, there) = (setup.home.mnt(), setup.home.path("there"));
    fs::create_dir_all(&there).unwrap();
    for (at, state) in [("mnt", "one"), ("there", "two")] {
        setup.home.ok([&["mount", &setup.url, at, "--state-dir", state], flags].concat());
    }
    [here, there]
}

fn unmount_both(setup: &Setup) {
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
    setup.home.ok(["umount", "there"]);
}

/// Returns a command that runs one function of `locks.py`.
fn locks(what: &str, paths: &[&Path]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/locks.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(what).args(paths).stdin(Stdio::null());
    command
}

fn run_locks(what: &str, paths: &[&Path]) {
    let output = capture(&mut locks(what, paths));
    assert_eq!(output.code, 0, "{what}: {output:?}");
}

/// Opens the file `file` of a mount.
fn open(mount: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(mount.join("file")).unwrap()
}

fn is_locked_elsewhere(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Counters under locks, ranges that are split and merged, and random locks compared with a model.
fn s663_locks_hold_across_machines(database: StartDatabase) {
    let setup = Setup::new(database, "locks-across", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup, &[]);
    for kind in ["flock", "fcntl"] {
        let count = |path: PathBuf| locks("count", &[Path::new(kind), &path]).spawn().unwrap();
        fs::write(here.join(kind), "0").unwrap();
        let counting: Vec<Child> =
            [&here, &there, &here, &there].into_iter().map(|mount| count(mount.join(kind))).collect();
        assert!(counting.into_iter().all(|mut child| child.wait().unwrap().success()));
        assert_eq!(fs::read_to_string(there.join(kind)).unwrap(), "400", "{kind}");
    }
    run_locks("ranges", &[&here.join("ranges"), &there.join("ranges"), Path::new("remote")]);
    run_locks("torture", &[&setup.home.path("model"), &here.join("torture"), &there.join("torture")]);
    // A deadlock is detected among the processes of one machine.
    run_locks("deadlock", &[&here.join("deadlock"), &here.join("deadlock")]);
    unmount_both(&setup);
}

/// A copy of a descriptor keeps a lock of flock, and the last close releases it before another machine asks.
fn s664_a_flock_ends_with_the_last_descriptor_on_any_machine(database: StartDatabase) {
    let setup = Setup::new(database, "locks-close", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup, &[]);
    for _ in 0..ROUNDS {
        let (holder, other) = (open(&here), open(&there));
        holder.try_lock().unwrap();
        let copy = holder.try_clone().unwrap();
        assert!(is_locked_elsewhere(&other));
        drop(holder);
        assert!(is_locked_elsewhere(&other), "a copy of the descriptor holds it");
        drop(copy);
        other.try_lock().unwrap();
        drop(other);
        let reader = File::open(there.join("file")).unwrap();
        reader.try_lock_shared().unwrap();
        assert!(is_locked_elsewhere(&open(&here)));
        let second = open(&here);
        second.try_lock_shared().unwrap();
        // Neither can upgrade its lock while the other one has one.
        assert!(is_locked_elsewhere(&second) && is_locked_elsewhere(&reader));
        drop(reader);
        second.try_lock().unwrap();
    }
    unmount_both(&setup);
}

/// A waiter gets the lock of a machine that was killed, after the time of its lease.
fn s665_locks_of_a_machine_that_dies_are_freed(database: StartDatabase) {
    let setup = Setup::new(database, "locks-death", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup, &[]);
    let held = open(&here);
    held.try_lock().unwrap();
    let waiting = open(&there);
    assert!(is_locked_elsewhere(&waiting));
    setup.home.signal(setup.home.pid(), Signal::KILL);
    waiting.lock().unwrap();
    drop(held);
    setup.home.ok(["umount", "mnt"]);
    // The machine comes back, and finds the lock of the other one.
    let here = setup.mount("one");
    assert!(is_locked_elsewhere(&open(&here)));
    drop(waiting);
    open(&here).lock().unwrap();
    unmount_both(&setup);
}

/// A mount that was stopped for longer than its lease does not continue to use locks that another machine may have.
fn s666_a_mount_that_lost_its_lease_knows_it(database: StartDatabase) {
    let setup = Setup::new(database, "locks-lapse", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup, &[]);
    let (mut held, pid) = (open(&here), setup.home.pid());
    held.try_lock().unwrap();
    setup.home.signal(pid, Signal::STOP);
    let other = open(&there);
    other.lock().unwrap();
    setup.home.signal(pid, Signal::CONT);
    let errno = |error: std::io::Error| error.raw_os_error();
    assert_eq!(held.unlock().map_err(errno), Err(Some(libc::EIO)));
    assert_eq!(held.lock().map_err(errno), Err(Some(libc::EIO)));
    assert_eq!(held.write_all(b"late").map_err(errno), Err(Some(libc::EIO)));
    drop(held);
    // Another open file has nothing to lose.
    let again = open(&here);
    assert!(is_locked_elsewhere(&again));
    drop(other);
    again.lock().unwrap();
    (&again).write_all(b"in time").unwrap();
    drop(again);
    assert_eq!(fs::read(there.join("file")).unwrap(), b"in time");
    unmount_both(&setup);
}

fn s667_locks_outlive_a_restart_of_the_database(database: StartDatabase) {
    let mut setup = Setup::new(database, "locks-restart", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup, &[]);
    let (held, other) = (open(&here), open(&there));
    held.try_lock().unwrap();
    setup.database.server().stop();
    setup.database.server().restart();
    assert!(is_locked_elsewhere(&other));
    held.unlock().unwrap();
    other.lock().unwrap();
    assert!(is_locked_elsewhere(&held));
    drop((held, other));
    unmount_both(&setup);
}

/// Runs a program, which must succeed. Returns its output.
fn run(dir: &Path, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir).stdin(Stdio::null());
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        command.env(format!("{name}_NAME"), "test").env(format!("{name}_EMAIL"), "test@localhost");
    }
    let output = capture(&mut command);
    assert_eq!(output.code, 0, "{words:?}: {output:?}");
    output.out
}

/// SQLite and git, by turns and at the same time.
fn s668_programs_work_on_one_directory_by_turns(database: StartDatabase) {
    let setup = Setup::new(database, "locks-programs", &["--naming", "inode"]);
    let mounts = mount_twice(&setup, &[]);
    let sqlite = |mount: &Path, statement: &str| {
        run(mount, &["sqlite3", "-cmd", ".timeout 60000", "table.db", statement])
    };
    sqlite(&mounts[0], "CREATE TABLE numbers (number INTEGER PRIMARY KEY, machine INTEGER)");
    for round in 0..ROUNDS {
        let machine = round % 2;
        sqlite(&mounts[machine], &format!("INSERT INTO numbers (machine) VALUES ({machine})"));
        let count = sqlite(&mounts[1 - machine], "SELECT count(*) FROM numbers");
        assert_eq!(count.trim(), (round + 1).to_string());
    }
    std::thread::scope(|scope| {
        for mount in &mounts {
            scope.spawn(|| {
                (0..ROUNDS).for_each(|_| drop(sqlite(mount, "INSERT INTO numbers (machine) VALUES (2)")));
            });
        }
    });
    for mount in &mounts {
        assert_eq!(sqlite(mount, "SELECT count(*) FROM numbers").trim(), (3 * ROUNDS).to_string());
        assert_eq!(sqlite(mount, "PRAGMA integrity_check").trim(), "ok");
    }

    run(&mounts[0], &["git", "init", "--quiet", "work"]);
    for round in 0..6 {
        let work = mounts[round % 2].join("work");
        fs::write(work.join(format!("{round}")), round.to_string()).unwrap();
        run(&work, &["git", "add", "."]);
        run(&work, &["git", "commit", "--quiet", "-m", &format!("round {round}")]);
        let log = run(&mounts[(round + 1) % 2].join("work"), &["git", "log", "--format=%s"]);
        assert_eq!(log.lines().count(), round + 1, "{log}");
    }
    run(&mounts[0].join("work"), &["git", "fsck", "--strict"]);
    unmount_both(&setup);
}

/// Each call sees what the call before has changed on the other machine. The test waits nowhere.
fn s669_a_strict_mount_sees_each_answered_change(database: StartDatabase) {
    let setup = Setup::new(database, "strict", &["--naming", "inode"]);
    let mounts = mount_twice(&setup, &["--coherence", "strict"]);
    for round in 0..3 * ROUNDS {
        let (here, there) = (&mounts[round % 2], &mounts[1 - round % 2]);
        let name = format!("file-{round}");
        let (file, theirs) = (here.join(&name), there.join(&name));
        assert!(!theirs.exists());
        fs::write(&file, "one").unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "one");
        let mode = [0o600, 0o644, 0o755][round % 3];
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&theirs).unwrap().mode() & 0o777, mode);
        let value = round.to_string();
        setxattr(&file, "user.round", value.as_bytes(), XattrFlags::empty()).unwrap();
        let mut found = [0; 8];
        let length = getxattr(&theirs, "user.round", &mut found[..]).unwrap();
        assert_eq!(&found[..length], value.as_bytes());

        // Two open files.
        let (mut ours, held) =
            (File::options().append(true).open(&file).unwrap(), File::open(&theirs).unwrap());
        ours.write_all(b" and more").unwrap();
        ours.sync_all().unwrap();
        let mut bytes = [0; 32];
        let length = held.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..length], b"one and more");
        assert_eq!(held.metadata().unwrap().len(), 12);
        drop((ours, held));

        let moved = format!("moved-{round}");
        fs::rename(&file, here.join(&moved)).unwrap();
        assert!(!theirs.exists() && there.join(&moved).exists());
        fs::create_dir(here.join("dir")).unwrap();
        assert!(there.join("dir").is_dir());
        fs::remove_dir(there.join("dir")).unwrap();
        assert!(!here.join("dir").exists());
        fs::remove_file(there.join(&moved)).unwrap();
        assert!(!here.join(&moved).exists());
        assert_eq!(fs::read_dir(here).unwrap().count(), 0);
    }
    // Both at once: changes of one directory wait for each other's acknowledgements, not for each other.
    std::thread::scope(|scope| {
        for (machine, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                (0..ROUNDS).for_each(|round| {
                    fs::write(mount.join(format!("{machine}-{round}")), "x").unwrap();
                });
            });
        }
    });
    assert!(mounts.iter().all(|mount| fs::read_dir(mount).unwrap().count() == 2 * ROUNDS));
    unmount_both(&setup);
}

/// Changes wait for a strict mount that was killed, until its lease has expired, and then for it no longer.
fn s670_a_strict_mount_that_dies_delays_others_for_the_time_of_its_lease(database: StartDatabase) {
    let setup = Setup::new(database, "strict-death", &["--naming", "inode"]);
    let [here, there] = mount_twice(&setup, &["--coherence", "strict"]);
    fs::write(here.join("before"), "x").unwrap();
    assert!(there.join("before").exists());
    setup.home.signal(setup.home.pid(), Signal::KILL);
    for number in 0..ROUNDS {
        fs::write(there.join(number.to_string()), "x").unwrap();
    }
    setup.home.ok(["umount", "mnt"]);
    let here = setup.mount("one");
    assert_eq!(fs::read_dir(here).unwrap().count(), ROUNDS + 1);
    unmount_both(&setup);
}

/// Another machine may be storing objects that have no name yet, and creates files that a new quota would have to count.
fn s684_gc_and_new_quotas_need_the_only_mount(database: StartDatabase) {
    let setup = Setup::new(database, "only-mount", &["--naming", "inode"]);
    let [here, _] = mount_twice(&setup, &[]);
    fs::create_dir(here.join("dir")).unwrap();
    let gc = ["gc", "mnt"];
    let quota = ["quota", "set", "mnt/dir", "--files", "5"];
    for refused in [setup.home.refused(gc), setup.home.refused(quota)] {
        assert!(refused.contains("machine has the volume mounted"), "{refused}");
    }
    setup.home.ok(["umount", "there"]);
    setup.home.ok(gc);
    setup.home.ok(quota);
    setup.home.ok(["umount", "mnt"]);
}
