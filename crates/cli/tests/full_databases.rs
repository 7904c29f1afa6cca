//! Mounts whose database has no room for more.

use crate::databases::{Database, Setup};
use crate::fixture::eventually;
use harness::Stopwatch;
use servers::SmallDisk;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The part of the log line of a mount whose database makes no changes.
const FAILING: &str = "changes of names and attributes fail";

/// Programs that make files, and what became of their calls.
#[derive(Debug, Default)]
struct Load {
    /// Names of files whose content was stored.
    written: Mutex<Vec<String>>,
    /// Numbers of the errors of the others.
    errors: Mutex<Vec<i32>>,
    failures: AtomicUsize,
    is_done: AtomicBool,
}

impl Load {
    fn run(&self, mnt: &Path, thread: usize) {
        for number in 0.. {
            if self.is_done.load(Ordering::SeqCst) {
                return;
            }
            let name = format!("{thread}-{number}");
            match store(&mnt.join(&name)) {
                Ok(()) => self.written.lock().unwrap().push(name),
                Err(error) => {
                    self.errors.lock().unwrap().push(error.raw_os_error().unwrap());
                    self.failures.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.written.lock().unwrap().len()
    }
}

/// Makes a file with its name as content. Returns after the content is stored.
fn store(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(path.file_name().unwrap().as_encoded_bytes())?;
    file.sync_all()
}

/// Fills a database under load and makes room again. No file that was stored is lost, the mount continues, and its log says once that changes fail.
fn fill_under_load(setup: &mut Setup, fill: impl FnOnce(&Database), make_room: impl FnOnce(&Database)) {
    let (mnt, log) = (setup.mount("one"), setup.home.path("one/log"));
    let failing_lines = || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| line.contains(FAILING)).map(str::to_owned).collect::<Vec<_>>()
    };
    let load = Load::default();
    thread::scope(|scope| {
        let (load, mnt) = (&load, &mnt);
        (0..4).for_each(|thread| drop(scope.spawn(move || load.run(mnt, thread))));
        let _end = EndAtDrop(&load.is_done);
        eventually("files are written", || load.count() > 20);
        fill(&setup.database);
        // Longer than calls wait for a database that does not answer.
        let waiting = Stopwatch::start();
        while load.failures.load(Ordering::SeqCst) < 8 {
            assert!(waiting.elapsed() < Duration::from_secs(150), "no calls fail");
            thread::sleep(Duration::from_millis(100));
        }
        let first = load.written.lock().unwrap()[0].clone();
        assert!(mnt.join(&first).exists());
        assert_eq!(failing_lines().len(), 1, "{}", fs::read_to_string(&log).unwrap());
        make_room(&setup.database);
        let (before, waiting) = (load.count(), Stopwatch::start());
        while load.count() <= before && waiting.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(100));
        }
        if load.count() <= before {
            println!("the server has ended, and is started again");
            setup.database.server().restart();
        }
        eventually("files are written again", || load.count() > before + 20);
    });
    let (errors, written) = (load.errors.into_inner().unwrap(), load.written.into_inner().unwrap());
    assert!(errors.iter().all(|error| matches!(*error, libc::ENOSPC | libc::EIO)), "{errors:?}");
    let full = errors.iter().filter(|error| **error == libc::ENOSPC).count();
    println!(
        "{} files were stored; calls that failed: {full} ENOSPC, {} EIO",
        written.len(),
        errors.len() - full
    );
    println!("{}", failing_lines().join("\n"));
    setup.home.ok(["umount", "mnt"]);
    // Another machine has all of them.
    let mnt = setup.mount("two");
    for name in &written {
        assert_eq!(fs::read_to_string(mnt.join(name)).unwrap(), *name);
    }
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
}

/// Ends the load when a test ends, also when it fails.
struct EndAtDrop<'l>(&'l AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A PostgreSQL whose disk is full refuses changes, or ends because it cannot write its log, and is started again once there is room.
#[test]
fn s682_a_full_disk_of_postgresql_loses_nothing() {
    let disk = SmallDisk::with_room_for(120 << 20);
    let database = Database::Postgres(servers::postgres_on(&disk));
    let mut setup = Setup::with(database, "full-disk", &["--naming", "inode"]);
    fill_under_load(&mut setup, |_| disk.fill(), |_| disk.free());
}

/// Redis at its `maxmemory` refuses changes until the limit is raised.
#[test]
fn s682_a_full_memory_of_redis_loses_nothing() {
    let mut setup = Setup::with(Database::redis(), "full-memory", &["--naming", "inode"]);
    let limit = |database: &Database, bytes: &str| {
        let Database::Redis(server) = database else { unreachable!("it was started above") };
        let set = Command::new("redis-cli")
            .args(["-p", &server.address().port().to_string(), "--user", server.user()])
            .args(["CONFIG", "SET", "maxmemory", bytes])
            .env("REDISCLI_AUTH", server.password())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&set.stdout).trim(), "OK", "{set:?}");
    };
    fill_under_load(&mut setup, |database| limit(database, "1mb"), |database| limit(database, "100mb"));
}
