//! Volumes whose metadata is in a database, PostgreSQL or Redis. [`database_tests`] makes a test for each.

use crate::fixture::{Home, eventually};
use crate::s3::{home, new_bucket};
use harness::Stopwatch;
use servers::{Broker, Postgres, Server};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A server of a database.
pub(crate) enum Database {
    Postgres(Postgres),
    Redis(Broker),
}

impl Database {
    pub(crate) fn postgres() -> Self {
        Self::Postgres(servers::postgres())
    }

    /// Starts a Redis that syncs each change.
    pub(crate) fn redis() -> Self {
        Self::Redis(servers::redis())
    }

    /// Returns the URL, without a password.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Redis(server) => format!("redis://{}@{}", server.user(), server.address()),
        }
    }

    pub(crate) fn password(&self) -> &'static str {
        match self {
            Self::Postgres(server) => server.password(),
            Self::Redis(server) => server.password(),
        }
    }

    /// Returns the variable from which Tenon takes the password.
    pub(crate) fn password_variable(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "PGPASSWORD",
            Self::Redis(_) => "REDISCLI_AUTH",
        }
    }

    pub(crate) fn server(&mut self) -> &mut Server {
        match self {
            Self::Postgres(server) => server,
            Self::Redis(server) => server,
        }
    }
}

/// Starts a server of a database.
pub(crate) type StartDatabase = fn() -> Database;

/// Makes a test of each function for each database.
macro_rules! database_tests {
    ($($test:ident)*) => {
        mod on_postgres {
            $(#[test]
            fn $test() {
                super::$test(crate::databases::Database::postgres);
            })*
        }

        mod on_redis {
            $(#[test]
            fn $test() {
                super::$test(crate::databases::Database::redis);
            })*
        }
    };
}
pub(crate) use database_tests;

database_tests! {
    s659_names_outlive_the_state_directory objects_named_by_path_have_their_metadata_in_a_database_too a_mount_survives_restarts_of_its_database
    s658_calls_fail_while_the_database_is_lost_and_then_succeed one_machine_at_a_time_mounts_a_volume_named_by_path
    passwords_are_not_stored_and_mistakes_are_one_line s660_a_database_that_has_lost_changes_is_used_on
}

/// A volume in a bucket of MinIO, with its metadata in a database of its own.
pub(crate) struct Setup {
    pub(crate) database: Database,
    pub(crate) home: Home,
    pub(crate) url: String,
}

impl Setup {
    /// Formats a volume with these flags.
    pub(crate) fn new(database: StartDatabase, name: &str, flags: &[&str]) -> Self {
        Self::with(database(), name, flags)
    }

    /// Formats a volume with these flags, whose names are in a database that runs.
    pub(crate) fn with(database: Database, name: &str, flags: &[&str]) -> Self {
        let server = servers::shared_minio();
        let name = format!(
            "{name}-{}",
            database.password_variable().chars().take(2).collect::<String>().to_lowercase()
        );
        let url = format!("s3://{}", new_bucket(server, &name));
        let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
        let home = home.with(database.password_variable(), database.password());
        let setup = Self { database, home, url };
        let meta = setup.database.url();
        setup.home.ok([&["format", &setup.url, "--meta", &meta], flags].concat());
        setup
    }

    /// Mounts the volume as a machine with this state directory.
    pub(crate) fn mount(&self, state: &str) -> PathBuf {
        self.home.ok(["mount", &self.url, "mnt", "--state-dir", state]);
        self.home.mnt()
    }
}

fn s659_names_outlive_the_state_directory(database: StartDatabase) {
    let setup = Setup::new(database, "outlive-state", &["--mapping", "chunked", "--chunk-size", "1MiB"]);
    let mnt = setup.mount("one");
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "text").unwrap();
    fs::set_permissions(mnt.join("dir/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(mnt.join("dir/file"), mnt.join("other")).unwrap();
    symlink("moved/file", mnt.join("link")).unwrap();
    fs::rename(mnt.join("dir"), mnt.join("moved")).unwrap();
    (0..30).for_each(|number| fs::write(mnt.join(format!("moved/{number}")), number.to_string()).unwrap());
    // More extents than fit into an inode.
    let long: Vec<u8> = (0..(9 << 20) + 5).map(|at: u32| (at / 1000) as u8).collect();
    fs::write(mnt.join("long"), &long).unwrap();
    setup.home.ok(["umount", "mnt"]);
    fs::remove_dir_all(setup.home.path("one")).unwrap();
    let mnt = setup.mount("two");
    let file = fs::metadata(mnt.join("moved/file")).unwrap();
    assert_eq!((file.nlink(), file.mode() & 0o7777, file.len()), (2, 0o640, 4));
    assert_eq!(file.ino(), fs::metadata(mnt.join("other")).unwrap().ino());
    assert_eq!(fs::read_to_string(mnt.join("link")).unwrap(), "text");
    assert_eq!(fs::read_dir(mnt.join("moved")).unwrap().count(), 31);
    assert_eq!(fs::read_to_string(mnt.join("moved/29")).unwrap(), "29");
    assert!(fs::read(mnt.join("long")).unwrap() == long);
    setup.home.ok(["dump", "mnt", "names"]);
    assert!(fs::metadata(setup.home.path("names")).unwrap().len() > 1000);
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
    setup.home.ok(["fsck", &setup.url, "--state-dir", "two"]);
    // Regression: the metadata was not checked by a machine that had never mounted the volume.
    fs::write(setup.home.path("object"), "x").unwrap();
    let unused = format!("{}/inodes/0000000000abcdef-0000000000000001", setup.url);
    setup.home.ok(["object", "put", &unused, "object"]);
    let found = setup.home.tenon(["fsck", &setup.url, "--state-dir", "never used", "--dry-run"]);
    assert!(found.out.contains("content that no file refers to"), "{found:?}");
    setup.home.ok(["object", "rm", &unused]);
    let refused = setup.home.refused(["restore", &setup.url, "--state-dir", "three"]);
    assert!(refused.contains("already has names of"), "{refused}");
}

fn objects_named_by_path_have_their_metadata_in_a_database_too(database: StartDatabase) {
    let setup = Setup::new(database, "database-by-path", &[]);
    let mnt = setup.mount("one");
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "text").unwrap();
    fs::hard_link(mnt.join("dir/file"), mnt.join("dir/other")).unwrap();
    assert_eq!(setup.home.ok(["object", "get", &format!("{}/dir/file", setup.url)]), "text");
    let mut both = File::create(mnt.join("dir/both")).unwrap();
    fs::write(setup.home.path("object"), "theirs").unwrap();
    setup.home.ok(["object", "put", &format!("{}/dir/both", setup.url), "object"]);
    // Not before: a process that is started closes a copy of the descriptor, which stores what was written.
    both.write_all(b"ours").unwrap();
    drop(both);
    let listed = setup.home.ok(["conflicts", "list", "mnt"]);
    assert!(listed.contains("dir/both"), "{listed}");
    setup.home.ok(["umount", "mnt"]);
    // Regression: a machine that had never mounted the volume listed no conflicts.
    let listed = setup.home.ok(["conflicts", "list", &setup.url, "--state-dir", "never used"]);
    assert!(listed.contains("dir/both"), "{listed}");
    let mnt = setup.mount("two");
    assert_eq!(fs::metadata(mnt.join("dir/other")).unwrap().nlink(), 2);
    setup.home.ok(["umount", "mnt"]);
}

/// Calls wait while the database restarts, and no file that was closed is lost. A restart that takes almost as long as calls wait, on a busy
/// machine, shows nothing and is done again.
fn a_mount_survives_restarts_of_its_database(database: StartDatabase) {
    let mut setup = Setup::new(database, "database-restarts", &["--naming", "inode"]);
    let mnt = setup.mount("one");
    let log = setup.home.path("one/log");
    let write = |round: usize| -> io::Result<()> {
        (0..10).try_for_each(|file| fs::write(mnt.join(format!("{round}-{file}")), "text"))
    };
    let mut survived = 0;
    for round in 0..20 {
        let restarting = Stopwatch::start();
        let written = thread::scope(|scope| {
            let writing = scope.spawn(|| write(round));
            thread::sleep(Duration::from_millis(50));
            setup.database.server().stop();
            setup.database.server().restart();
            writing.join().unwrap()
        });
        match written {
            Ok(()) => survived += 1,
            Err(_) if restarting.elapsed() > Duration::from_secs(25) => continue,
            Err(error) => panic!("{error}, log: {}", fs::read_to_string(&log).unwrap_or_default()),
        }
        let found = (0..10).filter(|file| mnt.join(format!("{round}-{file}")).exists()).count();
        assert_eq!(found, 10);
        if survived == 3 {
            break;
        }
    }
    assert_eq!(survived, 3);
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
}

/// While the database is lost for longer than calls wait, they fail with EIO. Then they succeed again without a remount, and nothing that was
/// answered is lost.
fn s658_calls_fail_while_the_database_is_lost_and_then_succeed(database: StartDatabase) {
    let mut setup = Setup::new(database, "database-lost", &["--naming", "inode"]);
    let mnt = setup.mount("one");
    let (written, is_failing, is_done) =
        (Mutex::new(Vec::new()), AtomicUsize::new(0), AtomicBool::new(false));
    let work = |thread: usize| {
        for number in 0.. {
            let name = format!("{thread}-{number}");
            // Unlike `fs::write`, this reports whether the content was stored.
            let stored = File::create(mnt.join(&name))
                .and_then(|mut file| file.write_all(name.as_bytes()).and_then(|()| file.sync_all()));
            match stored {
                Ok(()) => written.lock().unwrap().push(name),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                    is_failing.fetch_add(1, Ordering::SeqCst);
                }
            }
            if is_done.load(Ordering::SeqCst) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        eventually("files are written", || written.lock().unwrap().len() > 20);
        setup.database.server().stop();
        while is_failing.load(Ordering::SeqCst) < 4 {
            thread::sleep(Duration::from_millis(100));
        }
        setup.database.server().restart();
        let before = written.lock().unwrap().len();
        eventually("files are written again", || written.lock().unwrap().len() > before + 20);
        is_done.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    for name in written.into_inner().unwrap() {
        assert_eq!(fs::read_to_string(mnt.join(&name)).unwrap(), name);
    }
    setup.home.ok(["fsck", "mnt"]);
    setup.home.ok(["umount", "mnt"]);
}

fn one_machine_at_a_time_mounts_a_volume_named_by_path(database: StartDatabase) {
    let setup = Setup::new(database, "database-exclusive", &[]);
    setup.mount("one");
    fs::create_dir(setup.home.path("there")).unwrap();
    let refused = setup.home.refused(["mount", &setup.url, "there", "--state-dir", "two"]);
    assert!(refused.contains("the volume is in use by"), "{refused}");
    // This machine, after a crash of its mount, need not wait.
    setup.home.signal(setup.home.pid(), rustix::process::Signal::KILL);
    setup.home.ok(["umount", "mnt"]);
    setup.mount("one");
    setup.home.ok(["umount", "mnt"]);
    setup.mount("two");
    setup.home.ok(["umount", "mnt"]);
}

/// The database comes back without what was done in the meantime, as after a failover to a replica that lagged. The mount shows its state, without a
/// remount.
fn s660_a_database_that_has_lost_changes_is_used_on(database: StartDatabase) {
    let mut setup = Setup::new(database, "database-lost-changes", &["--naming", "inode"]);
    let mnt = setup.mount("one");
    fs::write(mnt.join("kept"), "text").unwrap();
    fs::create_dir(mnt.join("dir")).unwrap();
    setup.database.server().keep_data();
    fs::write(mnt.join("lost"), "text").unwrap();
    fs::rename(mnt.join("kept"), mnt.join("dir/moved")).unwrap();
    setup.database.server().go_back();
    eventually("the mount shows the state of the database", || {
        !mnt.join("lost").exists() && fs::read_to_string(mnt.join("kept")).is_ok_and(|text| text == "text")
    });
    let names = |dir: &PathBuf| {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mnt.join("dir")).len(), 0);
    fs::write(mnt.join("dir/new"), "new").unwrap();
    fs::rename(mnt.join("kept"), mnt.join("dir/again")).unwrap();
    setup.home.ok(["umount", "mnt"]);
    let mnt = setup.mount("two");
    assert_eq!((names(&mnt).len(), names(&mnt.join("dir")).len()), (1, 2));
    assert_eq!(fs::read_to_string(mnt.join("dir/again")).unwrap(), "text");
    assert_eq!(fs::read_to_string(mnt.join("dir/new")).unwrap(), "new");
    setup.home.ok(["umount", "mnt"]);
}

fn passwords_are_not_stored_and_mistakes_are_one_line(database: StartDatabase) {
    let setup = Setup::new(database, "database-secrets", &["--naming", "inode"]);
    let (home, secret, meta) = (&setup.home, setup.database.password(), setup.database.url());
    let with_password = meta.replace("tenon@", &format!("tenon:{secret}@"));
    let refused = home.refused(["format", &format!("{}/other", setup.url), "--meta", &with_password]);
    assert!(refused.contains(setup.database.password_variable()) && !refused.contains(secret), "{refused}");
    let record = home.ok(["object", "get", &format!("{}/.tenon/volume", setup.url)]);
    assert!(record.contains(&meta) && !record.contains(secret), "{record}");
    let writeback = home.refused(["mount", &setup.url, "mnt", "--writeback"]);
    assert!(writeback.contains("--writeback"), "{writeback}");
    let again = home.refused(["format", &setup.url, "--naming", "inode", "--meta", &meta]);
    assert!(again.contains("is a Tenon volume already"), "{again}");
    let mut stopped = database();
    stopped.server().stop();
    let down = home.refused(["format", &format!("{}/other", setup.url), "--meta", &stopped.url()]);
    assert!(down.contains("cannot connect to the database at 127.0.0.1"), "{down}");
}
