//! Names that move by `tenon dump`, `tenon load --meta` and `tenon restore --meta`: from a state directory to PostgreSQL or Redis, back, and
//! from one database to the other.

use crate::backups::{XATTR, tree};
use crate::databases::Database;
use crate::fixture::{Home, Output, eventually, tenon};
use crate::s3::{home, new_bucket};
use harness::Stopwatch;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// A volume in a bucket of MinIO, and two databases for its names.
struct Moves {
    postgres: Database,
    redis: Database,
    home: Home,
    url: String,
}

/// A place of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Local,
    Postgres,
    Redis,
}

impl Moves {
    /// Makes a volume whose names are local.
    fn new(name: &str, format: &[&str]) -> Self {
        let (postgres, redis, server) = (Database::postgres(), Database::redis(), servers::shared_minio());
        let url = format!("s3://{}", new_bucket(server, name));
        let mut home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
        for database in [&postgres, &redis] {
            home = home.with(database.password_variable(), database.password());
        }
        home.ok([&["format", &url], format].concat());
        Self { postgres, redis, home, url }
    }

    fn by_inode(name: &str) -> Self {
        Self::new(name, &["--naming", "inode"])
    }

    /// Returns the value of `--meta` for a place.
    fn meta(&self, at: At) -> String {
        match at {
            At::Local => "local".to_owned(),
            At::Postgres => self.postgres.url(),
            At::Redis => self.redis.url(),
        }
    }

    fn mount(&self) {
        self.home.ok(["mount", &self.url, "mnt", "--state-dir", "one", "--metadata-backup", "1s"]);
    }

    fn unmount(&self) {
        self.home.ok(["umount", "mnt"]);
    }

    /// Waits until a pass of the backup that began after this call has ended.
    fn await_backup(&self) {
        std::thread::sleep(Duration::from_millis(2100));
        eventually("the backup is current", || {
            self.home.status()["backup"]["age_secs"].as_u64().is_some_and(|age| age <= 1)
        });
    }

    fn kill_mount(&self) {
        self.home.signal(self.home.pid(), Signal::KILL);
        self.unmount();
    }

    /// Writes a new dump of the volume, which is not mounted, in place of an earlier file. Returns the number of records.
    fn dump(&self, file: &str) -> u64 {
        let _ = fs::remove_file(self.home.path(file));
        let dumped = self.home.ok(["dump", &self.url, file, "--state-dir", "one"]);
        dumped.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn try_load(&self, file: &str, at: At) -> Output {
        self.home.tenon(["load", file, &self.url, "--state-dir", "one", "--meta", &self.meta(at)])
    }

    fn load(&self, file: &str, at: At) -> String {
        let loaded = self.try_load(file, at);
        assert_eq!(loaded.code, 0, "{loaded:?}");
        loaded.out
    }

    fn refused_load(&self, file: &str, meta: &str) -> String {
        self.home.refused(["load", file, &self.url, "--state-dir", "one", "--meta", meta])
    }

    /// Starts a load, and kills it after a time. Returns whether it had not ended before.
    fn kill_load(&self, file: &str, at: At, after: Duration) -> bool {
        self.kill(&["load", file, &self.url, "--state-dir", "one", "--meta", &self.meta(at)], after)
    }

    /// Starts a command, and kills it after a time. Returns whether it had not ended before.
    fn kill(&self, words: &[&str], after: Duration) -> bool {
        let mut command = self.home.command(tenon());
        let mut child = command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap().code().is_none()
    }

    /// Returns the place that the volume's record names.
    fn place(&self) -> At {
        let record = self.home.ok(["object", "get", &format!("{}/.tenon/volume", self.url)]);
        match () {
            () if record.contains("postgres://") => At::Postgres,
            () if record.contains("redis://") => At::Redis,
            () => At::Local,
        }
    }

    fn fsck(&self) {
        let checked = self.home.ok(["fsck", &self.url, "--state-dir", "one"]);
        assert!(checked.contains("is clean"), "{checked}");
    }
}

/// Makes names of all kinds: of `count` names, most are symbolic links, and others are hard links, empty files, and files with content and an
/// extended attribute.
fn make_names(mnt: &Path, count: usize) {
    for dir in 0..count.div_ceil(500) {
        fs::create_dir(mnt.join(format!("dir{dir}"))).unwrap();
    }
    for number in 0..count {
        let dir = mnt.join(format!("dir{}", number / 500));
        let path = dir.join(format!("name {number}"));
        match number % 50 {
            0 => {
                fs::write(&path, number.to_string()).unwrap();
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&path, XATTR, number.to_string().as_bytes(), flags).unwrap();
            }
            1..5 => fs::hard_link(dir.join(format!("name {}", number / 50 * 50)), &path).unwrap(),
            5..10 => drop(File::create(&path).unwrap()),
            _ => symlink(format!("target of {number}"), &path).unwrap(),
        }
    }
}

/// Leaves files without a name that are open, then kills the mount: its session, and the orphans, stay.
fn leave_orphans(moves: &Moves) {
    let mut open = Vec::new();
    for number in 0..10 {
        let path = moves.home.mnt().join(format!("removed {number}"));
        fs::write(&path, vec![number; 5000]).unwrap();
        open.push(File::open(&path).unwrap());
        let mut unfinished = File::create(moves.home.mnt().join(format!("unfinished {number}"))).unwrap();
        unfinished.write_all(b"not published").unwrap();
        open.push(unfinished);
        fs::remove_file(&path).unwrap();
    }
    moves.home.signal(moves.home.pid(), Signal::KILL);
    drop(open);
    moves.unmount();
    // The kill may have come between an upload and its commit.
    moves.home.assert_sound_but_for_garbage_in(&moves.url, &["--state-dir", "one"]);
}

#[test]
fn s672_names_move_between_the_machine_and_databases() {
    let moves = Moves::by_inode("moved-names");
    moves.mount();
    make_names(&moves.home.mnt(), 10_000);
    let files = tree(&moves.home.mnt());
    leave_orphans(&moves);
    let records = moves.dump("first");
    for at in [At::Postgres, At::Redis, At::Local, At::Redis, At::Postgres] {
        let before = moves.place();
        let loaded = moves.load("first", at);
        assert!(loaded.contains(&format!("loaded {records} records")), "{loaded}");
        assert_eq!(loaded.contains("the earlier names are kept in"), before != at, "{loaded}");
        assert_eq!(moves.place(), at);
        assert_eq!(moves.home.path("one/meta").exists(), at == At::Local);
        // Again: the names are the same at the new place.
        assert!(moves.load("first", at).contains(&format!("loaded {records} records")));
        moves.fsck();
        assert_eq!(moves.dump("next"), records);
    }
    moves.mount();
    let mut found = tree(&moves.home.mnt());
    found.retain(|name, _| !name.starts_with(b"unfinished"));
    assert_eq!(found.len(), files.len());
    assert!(found == files);
    leave_orphans(&moves);
    moves.dump("second");
    assert!(moves.refused_load("first", "local").contains("dump it again"));
    moves.load("second", At::Local);
    moves.mount();
    let mut found = tree(&moves.home.mnt());
    found.retain(|name, _| !name.starts_with(b"unfinished"));
    assert!(found == files);
    fs::write(moves.home.mnt().join("new"), "after all moves").unwrap();
    moves.unmount();
    // The first mount after the last move has removed the orphans and their content.
    moves.home.assert_sound_but_for_garbage_in(&moves.url, &["--state-dir", "one"]);
}

/// Kills each kind of load at many moments. Names are then at the old place or at the new one, complete, and the same command succeeds.
#[test]
fn s673_a_load_that_is_killed_leaves_the_names_in_one_place() {
    let moves = Moves::by_inode("killed-loads");
    moves.mount();
    make_names(&moves.home.mnt(), 2_000);
    moves.unmount();
    let records = moves.dump("names");
    let (places, rounds) = ([At::Postgres, At::Redis, At::Local], 48);
    let mut took = [Duration::ZERO; 3];
    let (mut killed, mut moved) = (0, 0);
    for round in 0..rounds {
        let at = places[round % 3];
        let before = moves.place();
        // The end of a load, in which the record changes, gets more kills than the time before.
        let percent = [5, 15, 30, 45, 60, 70, 75, 80, 84, 87, 90, 92, 94, 96, 98, 100][round / 3];
        let full = if took[round % 3].is_zero() { Duration::from_millis(400) } else { took[round % 3] };
        let after = full * percent / 100;
        killed += u32::from(moves.kill_load("names", at, after));
        let place = moves.place();
        assert!(place == before || place == at, "{place:?} after a load from {before:?} to {at:?}");
        moved += u32::from(place == at);
        assert_eq!(moves.dump("check"), records, "{place:?}, round {round}");
        let loading = Stopwatch::start();
        moves.load("names", at);
        if place == before {
            took[round % 3] = loading.elapsed();
        }
        assert_eq!(moves.place(), at);
        assert!(!moves.home.path("one/meta.restoring").exists());
    }
    println!("{killed} of {rounds} loads were killed, {moved} had moved the names");
    assert!(killed >= 20, "{killed}");
    moves.fsck();
    moves.mount();
    assert_eq!(fs::read_dir(moves.home.mnt().join("dir3")).unwrap().count(), 500);
    moves.unmount();
}

/// A dump that does not have exactly the names of the volume is refused, and so is a database that cannot take them. The names stay in use where
/// they are.
#[test]
fn s674_a_load_that_is_refused_changes_nothing() {
    let mut moves = Moves::by_inode("refused-loads");
    moves.mount();
    make_names(&moves.home.mnt(), 1_000);
    moves.unmount();
    moves.dump("old");
    moves.mount();
    fs::write(moves.home.mnt().join("later"), "later").unwrap();
    let in_use = moves.refused_load("old", &moves.meta(At::Postgres));
    assert!(in_use.contains("is in use"), "{in_use}");
    moves.unmount();
    let changed = moves.refused_load("old", &moves.meta(At::Postgres));
    assert!(changed.contains("dump it again"), "{changed}");
    let records = moves.dump("names");
    let (postgres, secret) = (moves.meta(At::Postgres), moves.postgres.password());
    for (meta, reason) in [
        ("postgres".to_owned(), "give the URL of a database"),
        ("http://127.0.0.1/names".to_owned(), "postgres://"),
        ("postgres://tenon@127.0.0.1:1/names".to_owned(), "cannot connect to the database at 127.0.0.1"),
        ("redis://127.0.0.1:1/0".to_owned(), "cannot connect to the database at 127.0.0.1"),
        (format!("{postgres}-missing"), "does not exist"),
        (postgres.replace("tenon@", &format!("tenon:{secret}@")), "contains a password"),
    ] {
        let output = moves.home.tenon(["load", "names", &moves.url, "--state-dir", "one", "--meta", &meta]);
        assert!(matches!(output.code, 1 | 2) && output.err.contains(reason), "{meta}: {output:?}");
        assert!(!output.err.contains(secret), "{output:?}");
    }
    let small = Database::Redis(servers::redis_with("appendfsync always\nmaxmemory 2mb"));
    let full = moves.refused_load("names", &small.url());
    assert!(full.contains("maxmemory"), "{full}");
    assert_eq!((moves.place(), moves.dump("check")), (At::Local, records));

    // Names also stay in use in a database that cannot be reached for a while.
    moves.load("names", At::Postgres);
    moves.postgres.server().stop();
    let lost = moves.refused_load("names", &moves.meta(At::Redis));
    assert!(lost.contains("--database-is-lost"), "{lost}");
    moves.postgres.server().restart();
    let full = moves.refused_load("names", &small.url());
    assert!(full.contains("maxmemory"), "{full}");
    assert_eq!((moves.place(), moves.dump("check")), (At::Postgres, records));
    moves.fsck();
}

/// The bucket of a volume was copied, so that two volumes have one id. The names of one do not replace those of the other, in a database of
/// both.
#[test]
fn s675_names_of_another_volume_are_not_replaced() {
    let moves = Moves::by_inode("copied-bucket");
    moves.mount();
    make_names(&moves.home.mnt(), 100);
    moves.unmount();
    fs::write(
        moves.home.path("record"),
        moves.home.ok(["object", "get", &format!("{}/.tenon/volume", moves.url)]),
    )
    .unwrap();
    let copy = format!("s3://{}", new_bucket(servers::shared_minio(), "copied-bucket-2"));
    moves.home.ok(["object", "put", &format!("{copy}/.tenon/volume"), "record"]);
    let records = moves.dump("names");
    moves.load("names", At::Postgres);
    moves.home.ok(["mount", &copy, "mnt", "--state-dir", "copy"]);
    fs::write(moves.home.mnt().join("other"), "other").unwrap();
    moves.unmount();
    moves.home.ok(["dump", &copy, "other", "--state-dir", "copy"]);
    let meta = moves.meta(At::Postgres);
    let refused = moves.home.refused(["load", "other", &copy, "--state-dir", "copy", "--meta", &meta]);
    assert!(refused.contains("already has names") && refused.contains("schema 'tenon_"), "{refused}");
    assert_eq!(moves.dump("check"), records);
    moves.home.ok(["fsck", &copy, "--state-dir", "copy"]);
    // Another URL of the same database is not another database.
    let alias = meta.replace("127.0.0.1", "localhost");
    assert_ne!(alias, meta);
    let refused = moves.refused_load("names", &alias);
    assert!(refused.contains("already has names"), "{refused}");
    assert_eq!(moves.dump("check"), records);
    moves.fsck();
}

/// The state directory is lost while the mount is killed. The names are restored from the bucket to a database, in every layout.
#[test]
fn s676_a_machine_that_is_lost_is_restored_to_a_database() {
    let layouts: [(&str, &[&str]); 3] = [
        ("path", &["--conflict", "keep-both"]),
        ("inode", &["--naming", "inode"]),
        ("chunked", &["--mapping", "chunked", "--chunk-size", "1MiB"]),
    ];
    for (layout, format) in layouts {
        let moves = Moves::new(&format!("restored-to-database-{layout}"), format);
        moves.mount();
        make_names(&moves.home.mnt(), 200);
        moves.await_backup();
        let files = tree(&moves.home.mnt());
        moves.kill_mount();
        fs::remove_dir_all(moves.home.path("one")).unwrap();
        let at = if layout == "chunked" { At::Redis } else { At::Postgres };
        let meta = moves.meta(at);
        let restore = ["restore", &moves.url, "--state-dir", "one", "--meta", &meta];
        for step in 1..=6 {
            moves.kill(&restore, Duration::from_millis(80 * step));
        }
        let restored = moves.home.ok(restore);
        assert!(restored.contains(&format!("the metadata is in {meta}")), "{restored}");
        assert!(!restored.contains("lost") && !restored.contains("no longer"), "{layout}: {restored}");
        assert_eq!(moves.place(), at);
        // A process that was killed in the end has the names open for 30 s more.
        let is_mounted = (0..60).any(|_| {
            let mounted = moves.home.tenon(["mount", &moves.url, "mnt", "--state-dir", "two"]);
            if mounted.code != 0 {
                assert!(mounted.err.contains("in use"), "{mounted:?}");
                std::thread::sleep(Duration::from_secs(1));
            }
            mounted.code == 0
        });
        assert!(is_mounted, "{layout}: the names stay in use");
        assert!(tree(&moves.home.mnt()) == files, "{layout}");
        fs::write(moves.home.mnt().join("new"), "after").unwrap();
        moves.unmount();
        moves.home.ok(["fsck", &moves.url, "--state-dir", "two"]);
        let refused = moves.home.refused(["restore", &moves.url, "--state-dir", "two"]);
        assert!(refused.contains("already has names"), "{refused}");
        let refused = moves.home.refused(["restore", &moves.url, "--state-dir", "two", "--meta", "local"]);
        assert!(refused.contains("already has names") && refused.contains("tenon load"), "{refused}");
    }
}

/// Regression: a restoration that was killed after the names were in their place was refused when it was repeated, as if the volume had lost
/// nothing. Kills restorations to each place at many moments. The same command then succeeds, until the names are used.
#[test]
fn s681_a_restoration_that_is_killed_can_be_repeated() {
    let moves = Moves::by_inode("killed-restorations");
    moves.mount();
    make_names(&moves.home.mnt(), 2_000);
    moves.await_backup();
    let files = tree(&moves.home.mnt());
    moves.kill_mount();
    let (places, rounds) = ([At::Postgres, At::Redis, At::Local], 48);
    let mut took = Duration::ZERO;
    let (mut killed, mut moved, mut records) = (0, 0, None);
    for round in 0..rounds {
        let at = places[round / 16];
        if round % 16 == 0 {
            // The machine is lost.
            fs::remove_dir_all(moves.home.path("one")).unwrap();
            (took, records) = (Duration::from_millis(600), None);
        }
        let meta = moves.meta(at);
        let restore = ["restore", &moves.url, "--state-dir", "one", "--meta", &meta, "--database-is-lost"];
        // The end of a restoration, in which the names come to their place, gets more kills than the time before.
        let percent = [5, 20, 40, 60, 70, 80, 85, 88, 91, 93, 95, 96, 97, 98, 99, 100][round % 16];
        killed += u32::from(moves.kill(&restore, took * percent / 100));
        moved += u32::from(moves.place() == at);
        let restoring = Stopwatch::start();
        let restored = moves.home.ok(restore);
        took = restoring.elapsed();
        assert!(
            !restored.contains("lost:") && !restored.contains("kept"),
            "{at:?}, round {round}: {restored}"
        );
        assert_eq!(moves.place(), at);
        let found = moves.dump("check");
        assert_eq!(*records.get_or_insert(found), found, "{at:?}, round {round}");
        for left in ["one/meta.restoring", "one/meta.replaced"] {
            assert!(!moves.home.path(left).exists(), "{left}");
        }
        if round % 16 == 15 {
            moves.mount();
            assert!(tree(&moves.home.mnt()) == files, "{at:?}");
            moves.unmount();
            // A mount has used the names.
            let refused = moves.home.refused(restore);
            assert!(refused.contains("already has names"), "{at:?}: {refused}");
            assert!(Some(moves.dump("check")) >= records, "{at:?}");
            moves.fsck();
        }
    }
    println!("{killed} of {rounds} restorations were killed, {moved} after the names were in their place");
    assert!(killed >= 20, "{killed}");
}

/// A database that is lost is replaced: by a dump in a new one, or by the backup.
#[test]
fn s677_names_of_a_lost_database_are_loaded_again() {
    let mut moves = Moves::by_inode("lost-database");
    moves.postgres.server().keep_data();
    moves.mount();
    make_names(&moves.home.mnt(), 3_000);
    moves.unmount();
    let records = moves.dump("names");
    moves.load("names", At::Postgres);
    // The database is created again, without the volume.
    moves.postgres.server().go_back();
    let missing = moves.home.refused(["mount", &moves.url, "mnt", "--state-dir", "one"]);
    assert!(missing.contains("no metadata of this volume"), "{missing}");
    // Regression: a mount of an incomplete database would show a part of the names.
    let mut is_refused = false;
    for after in (0..40).map(|step| Duration::from_millis(200 + 50 * step)) {
        let is_killed = moves.kill_load("names", At::Postgres, after);
        let mounted = moves.home.tenon(["mount", &moves.url, "mnt", "--state-dir", "one"]);
        if mounted.code == 0 {
            assert_eq!(fs::read_dir(moves.home.mnt()).unwrap().count(), 6);
            moves.unmount();
            break;
        }
        assert!(is_killed, "{mounted:?}");
        is_refused |= mounted.err.contains("only a part of the names");
    }
    assert!(is_refused);
    moves.fsck();
    assert!(moves.dump("names") >= records);
    moves.postgres.server().stop();
    let lost = moves.refused_load("names", "local");
    assert!(lost.contains("--database-is-lost"), "{lost}");
    moves.home.ok([
        "load",
        "names",
        &moves.url,
        "--state-dir",
        "one",
        "--meta",
        "local",
        "--database-is-lost",
    ]);
    assert_eq!(moves.place(), At::Local);
    assert!(moves.dump("check") >= records);
    moves.fsck();
}

/// Names have moved to one machine. Another machine, which mounted the volume while a database had the names, does not start with empty names.
#[test]
fn s678_other_machines_do_not_use_names_that_have_moved() {
    let moves = Moves::by_inode("moved-from-others");
    moves.mount();
    make_names(&moves.home.mnt(), 100);
    moves.unmount();
    moves.dump("names");
    moves.load("names", At::Redis);
    moves.home.ok(["mount", &moves.url, "mnt", "--state-dir", "two"]);
    moves.unmount();
    moves.dump("names");
    moves.load("names", At::Local);
    let refused = moves.home.refused(["mount", &moves.url, "mnt", "--state-dir", "two"]);
    assert!(refused.contains("are not in") && refused.contains("two"), "{refused}");
    moves.mount();
    assert_eq!(fs::read_dir(moves.home.mnt().join("dir0")).unwrap().count(), 100);
    moves.unmount();
    // A state directory of another volume is not touched.
    let other = Moves::by_inode("moved-other");
    let (state, meta) = (moves.home.text("one"), moves.meta(At::Postgres));
    other.home.ok(["mount", &other.url, "mnt", "--state-dir", "own"]);
    other.unmount();
    other.home.ok(["dump", &other.url, "names", "--state-dir", "own"]);
    let refused = other.home.refused(["load", "names", &other.url, "--state-dir", &state, "--meta", &meta]);
    assert!(refused.contains("metadata of another volume"), "{refused}");
    moves.mount();
    moves.unmount();
}

/// One of two mounts that share a database exports the metadata, and the other continues when it dies. The database is lost; the names are
/// restored from the bucket to another one, and a mount that still reached the old one ends.
#[test]
fn s679_one_mount_of_a_shared_database_backs_the_names_up() {
    let moves = Moves::by_inode("shared-backup");
    moves.mount();
    make_names(&moves.home.mnt(), 100);
    moves.unmount();
    moves.dump("names");
    moves.load("names", At::Postgres);
    let there = moves.home.path("there");
    fs::create_dir(&there).unwrap();
    let flags = ["--metadata-backup", "1s"];
    moves.mount();
    moves.home.ok([&["mount", &moves.url, "there", "--state-dir", "two", "--log-file", "log"], &flags[..]].concat());
    let report = |mount: &str| -> serde_json::Value {
        serde_json::from_str(&moves.home.ok(["status", mount, "--json"])).unwrap()
    };
    let is_current = |mount: &str| report(mount)["backup"]["age_secs"].as_u64().is_some_and(|age| age <= 2);
    eventually("both mounts know how old the backup is", || is_current("mnt") && is_current("there"));
    let generation = report("there")["backup"]["generation"].as_u64().unwrap();
    assert_eq!(report("mnt")["backup"]["generation"], generation);
    // The first mount exports. What the second one removes is deleted when it is unmounted.
    fs::write(there.join("removed"), "removed").unwrap();
    fs::remove_file(there.join("removed")).unwrap();
    moves.home.ok(["umount", "there"]);
    moves.home.ok([&["mount", &moves.url, "there", "--state-dir", "two", "--log-file", "log"], &flags[..]].concat());
    moves.kill_mount();
    fs::write(there.join("after"), "the other one exports").unwrap();
    std::thread::sleep(Duration::from_secs(12));
    eventually("the other mount exports", || is_current("there"));
    assert!(report("there")["backup"]["generation"].as_u64().unwrap() > generation);
    assert!(moves.home.ok(["status", "there"]).contains("complete as of"));
    let files = tree(&there);
    let checked = moves.home.ok(["fsck", "there", "--backup"]);
    assert!(checked.contains("snapshots"), "{checked}");

    // Another runtime directory stands for another machine.
    let mut restore = moves.home.command(tenon());
    restore.env("XDG_RUNTIME_DIR", moves.home.path("home"));
    let redis = moves.meta(At::Redis);
    restore.args(["restore", &moves.url, "--state-dir", "three", "--meta", &redis, "--database-is-lost"]);
    let restored = crate::fixture::capture(&mut restore);
    assert!(restored.code == 0 && !restored.out.contains("lost"), "{restored:?}");
    eventually("the mount of the old database has ended", || !crate::fixture::is_mounted(&there));
    let log = fs::read_to_string(moves.home.path("log")).unwrap();
    assert!(log.contains("was restored to another place"), "{log}");
    moves.home.ok(["mount", &moves.url, "mnt", "--state-dir", "three"]);
    assert!(tree(&moves.home.mnt()) == files);
    moves.unmount();
    moves.home.ok(["fsck", &moves.url, "--state-dir", "three", "--backup"]);
}

/// The database comes back without changes that the backup has. The backup begins anew, so that a restoration gives the names that were used on.
#[test]
fn s679_the_backup_of_a_database_that_has_lost_changes_begins_anew() {
    let mut moves = Moves::by_inode("backup-after-loss");
    moves.mount();
    make_names(&moves.home.mnt(), 100);
    moves.unmount();
    moves.dump("names");
    moves.load("names", At::Postgres);
    moves.mount();
    let mnt = moves.home.mnt();
    let is_there = |name: &str| mnt.join(name).exists();
    fs::write(mnt.join("kept"), "kept").unwrap();
    moves.await_backup();
    moves.postgres.server().keep_data();
    (0..20).for_each(|number| fs::write(mnt.join(format!("lost {number}")), "lost").unwrap());
    moves.await_backup();
    moves.postgres.server().go_back();
    eventually("the mount shows the state of the database", || is_there("kept") && !is_there("lost 0"));
    (0..30).for_each(|number| fs::write(mnt.join(format!("new {number}")), "new").unwrap());
    moves.await_backup();
    let files = tree(&mnt);
    moves.home.ok(["fsck", "mnt", "--backup"]);
    moves.kill_mount();
    moves.postgres.server().stop();
    fs::remove_dir_all(moves.home.path("one")).unwrap();
    let meta = moves.meta(At::Redis);
    let restore = ["restore", &moves.url, "--state-dir", "one", "--meta", &meta];
    let refused = moves.home.refused(restore);
    assert!(refused.contains("--database-is-lost"), "{refused}");
    moves.home.ok([&restore[..], &["--database-is-lost"]].concat());
    moves.mount();
    let mut found = tree(&moves.home.mnt());
    // Content of the lost files has no names.
    found.retain(|name, _| !name.starts_with(b"lost+found"));
    assert!(found == files);
    moves.unmount();
}

/// Names of a bucket that other programs filled move to both databases in several transactions. `TENON_TEST_OBJECTS=1000000` gives the figures
/// of `docs/databases.md`.
#[test]
#[expect(clippy::disallowed_methods, reason = "its size may be asked for")]
fn s672_more_names_move_than_a_transaction_takes() {
    let objects = std::env::var("TENON_TEST_OBJECTS").map_or(40_000, |count| count.parse().unwrap());
    let (postgres, redis) = (Database::postgres(), Database::redis());
    let mut home = Home::new();
    for database in [&postgres, &redis] {
        home = home.with(database.password_variable(), database.password());
    }
    let dirs = objects / 1000;
    for dir in 0..dirs {
        let path = home.path("bucket").join(format!("dir{dir:04}"));
        fs::create_dir_all(&path).unwrap();
        (0..1000).for_each(|file| drop(File::create(path.join(format!("file{file:04}"))).unwrap()));
    }
    let url = format!("file://{}", home.text("bucket"));
    home.ok(["mount", &url, "mnt", "--state-dir", "one"]);
    home.ok(["umount", "mnt"]);
    home.ok(["rebuild", &url, "--state-dir", "one", "--force"]);
    for (index, meta) in [postgres.url(), redis.url(), "local".to_owned()].iter().enumerate() {
        let file = format!("names{index}");
        let timed = |what: &str, words: &[&str]| {
            let watch = Stopwatch::start();
            let out = home.ok(words);
            println!("{what}: {:.1} s: {}", watch.elapsed().as_secs_f64(), out.lines().next().unwrap());
        };
        timed("dump", &["dump", &url, &file, "--state-dir", "one"]);
        timed("load", &["load", &file, &url, "--state-dir", "one", "--meta", meta]);
    }
    home.ok(["mount", &url, "mnt", "--state-dir", "one"]);
    let last = home.mnt().join(format!("dir{:04}", dirs - 1));
    assert_eq!(fs::read_dir(last).unwrap().count(), 1000);
    home.ok(["umount", "mnt"]);
}
