//! `tenon upgrade-check`: on volumes of an earlier build, of this build, and with data of builds to come.

use crate::databases::{Database, Setup, StartDatabase, database_tests};
use crate::fixture::{Home, capture};
use crate::formats::unpack;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

impl Home {
    /// Returns the exit code and, by format, the version and the verdict.
    fn upgrade_check(&self, words: &[&str]) -> (i32, BTreeMap<String, (u64, String)>) {
        let output = self.tenon([&["upgrade-check", "--json"], words].concat());
        let report: Value = serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(report["exit_code"], output.code, "{output:?}");
        let formats = report["formats"].as_array().unwrap().iter().map(|found| {
            let text = |field: &str| found[field].as_str().unwrap().to_owned();
            (text("format"), (found["found"].as_u64().unwrap_or(0), text("verdict")))
        });
        (output.code, formats.collect())
    }
}

/// Returns each file below a directory, with its length, its time of modification and its inode number.
fn files(dir: &Path) -> BTreeMap<String, (u64, i64, u64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        if about.is_dir() {
            found.extend(files(&path));
        } else {
            let changed = about.mtime() * 1_000_000_000 + about.mtime_nsec();
            found.insert(path.display().to_string(), (about.len(), changed, about.ino()));
        }
    }
    found
}

#[test]
fn s764_volumes_of_an_earlier_build_are_examined_without_a_change() {
    for (volume, expected) in [
        ("by-path", &["embedded volume", "metadata engine", "volume record"][..]),
        ("by-inode", &["embedded volume", "metadata engine", "volume record"]),
        ("waiting", &["embedded volume", "volume record"]),
        ("on-drive", &["drive", "embedded volume", "metadata engine"]),
    ] {
        let home = Home::new();
        unpack(&home, "77752b7", volume);
        let before = files(&home.path(volume));
        let (code, formats) = home.upgrade_check(&[volume]);
        for format in expected {
            assert_eq!(
                formats.get(*format).map(|found| &*found.1),
                Some("unchanged"),
                "{volume}: {formats:?}"
            );
        }
        // The log has frames of version 1, and a mount writes frames of version 2.
        let waits = volume == "waiting";
        assert_eq!(formats.get("write-back log").cloned(), waits.then(|| (1, "upgraded".into())), "{volume}");
        assert_eq!((code, files(&home.path(volume))), (if waits { 3 } else { 0 }, before), "{volume}");
        let flags: &[&str] = if waits { &["--writeback"] } else { &[] };
        home.ok(["mount", volume, "mnt"].iter().chain(flags).copied());
        home.ok(["umount", "mnt"]);
        assert_eq!(home.upgrade_check(&[volume]).0, 0, "{volume}");
    }
}

#[test]
fn s764_a_mounted_volume_and_its_state_directory_are_examined() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt"]);
    fs::create_dir(home.mnt().join("job")).unwrap();
    home.ok(["batch", "begin", "mnt/job"]);
    fs::write(home.mnt().join("job/file"), "bytes").unwrap();
    let (code, formats) = home.upgrade_check(&["volume"]);
    let of_state = ["batch", "metadata engine"];
    for format in [&of_state[..], &["embedded volume", "volume record"]].concat() {
        assert!(formats.contains_key(format), "{format} in {formats:?}");
    }
    assert_eq!(code, 0, "{formats:?}");
    let (code, formats) = home.upgrade_check(&["volume/state"]);
    assert_eq!((code, formats.keys().map(String::as_str).collect::<Vec<_>>()), (0, of_state.to_vec()));
    home.ok(["batch", "end", "mnt/job"]);
    home.ok(["umount", "mnt"]);
    let shown = home.ok(["upgrade-check", "volume"]);
    assert!(shown.starts_with("format ") && shown.contains("\nmetadata backup "), "{shown}");
    assert!(shown.ends_with("\nthis build uses everything as it is\n"), "{shown}");
}

#[test]
fn s764_data_of_a_newer_build_is_named_with_its_version() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    home.ok(["mount", "volume", "mnt"]);
    home.ok(["umount", "mnt"]);
    let record = home.path("volume/objects/.tenon/volume");
    fs::write(&record, r#"{"version": 7, "what": "nobody knows"}"#).unwrap();
    let (code, formats) = home.upgrade_check(&["volume"]);
    assert_eq!((code, &formats["volume record"]), (4, &(7, "refused".to_owned())), "{formats:?}");
    let shown = home.tenon(["upgrade-check", "volume"]);
    assert_eq!(shown.code, 4);
    assert!(shown.out.contains("use a build that reads version 7"), "{shown:?}");
    fs::write(&record, "no record").unwrap();
    let (code, formats) = home.upgrade_check(&["volume"]);
    assert_eq!((code, &formats["volume record"].1), (1, &"unknown".to_owned()), "{formats:?}");

    home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
    let drive = format!("drive://{}", home.text("drive.img"));
    assert_eq!(home.upgrade_check(&[&drive]).0, 0);
    let device = OpenOptions::new().write(true).open(home.path("drive.img")).unwrap();
    device.write_all_at(&[9], 7).unwrap();
    let (code, formats) = home.upgrade_check(&[&drive]);
    assert_eq!((code, &formats["drive"]), (4, &(9, "refused".to_owned())), "{formats:?}");
}

database_tests! { s764_the_next_mount_upgrades_a_database }

fn s764_the_next_mount_upgrades_a_database(database: StartDatabase) {
    let setup = Setup::new(database, "upgrade-check", &["--naming", "inode"]);
    let home = &setup.home;
    let check = || home.upgrade_check(&[&setup.url, "--state-dir", "one"]);
    let (code, formats) = check();
    let (newest, verdict) = formats["database"].clone();
    assert_eq!((code, &*verdict, formats["volume record"].0), (0, "unchanged", 2), "{formats:?}");
    setup.set_version(newest - 1);
    assert_eq!(
        check(),
        (
            3,
            [formats.clone(), [("database".into(), (newest - 1, "upgraded".into()))].into()]
                .into_iter()
                .flatten()
                .collect()
        )
    );
    // Nothing was changed.
    assert_eq!(check().0, 3);
    setup.set_version(99);
    assert_eq!(check().1["database"], (99, "refused".into()));
    assert_eq!(check().0, 4);
    setup.set_version(newest - 1);
    setup.mount("one");
    assert_eq!(check().1["database"], (newest, "unchanged".into()));
    home.ok(["umount", "mnt"]);
}

impl Setup {
    /// Changes the version of the volume's tables or keys.
    fn set_version(&self, version: u64) {
        let record = self.home.ok(["object", "get", &format!("{}/.tenon/volume", self.url)]);
        let record: Value = serde_json::from_str(&record).unwrap();
        let id = record["id"].as_str().unwrap();
        let mut command = match &self.database {
            Database::Postgres(server) => {
                let mut command = self.home.command("psql");
                let statement = format!("UPDATE tenon_{id}.version SET number = {version}");
                command.args(["--no-psqlrc", "--quiet", &server.url(), "--command", &statement]);
                command
            }
            Database::Redis(server) => {
                let mut command = self.home.command("redis-cli");
                let port = server.address().port().to_string();
                let head = format!("tenon:{{{id}}}:head");
                command.args(["--no-auth-warning", "--user", server.user(), "-p", &port]);
                command.args(["HSET", &head, "version", &version.to_string()]);
                command
            }
        };
        let outcome = capture(&mut command);
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
}
