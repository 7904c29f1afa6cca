//! `tenon du`, `find`, `info`, `cp`, `sync` and `rm` on mounts, directories and buckets.

use crate::fixture::{Home, capture, tenon};
use crate::s3;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

impl Home {
    /// Makes a tree of some files in a directory of the home.
    fn make_tree(&self, name: &str) {
        let root = self.path(name);
        for dir in ["a/b", "a-", "empty", "z"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for (number, file) in ["a.txt", "a/one", "a/b/two", "a-/three", "z/four", "z/five"].iter().enumerate()
        {
            fs::write(root.join(file), vec![number as u8; 100 * (number + 1)]).unwrap();
        }
        fs::write(root.join("z/large"), vec![7; 9 << 20]).unwrap();
    }

    fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(self.ok(words).lines().last().unwrap()).unwrap()
    }

    /// Asserts that two directories have the same files with the same bytes.
    fn assert_same(&self, one: &str, other: &str) {
        let diff = capture(self.command("/usr/bin/diff").args(["-r", one, other]));
        assert_eq!((diff.code, diff.out.as_str()), (0, ""), "{diff:?}");
    }
}

/// Returns relative paths and lengths of all files below a directory.
fn files(root: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                let path = entry.path().strip_prefix(root).unwrap().display().to_string();
                found.insert(path, entry.metadata().unwrap().len());
            }
        }
    }
    found
}

#[test]
fn s709_du_counts_what_a_walk_counts() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", s3::new_bucket(server, "du"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt"]);
    home.make_tree("mnt");
    let walked = files(&home.mnt());
    let bytes: u64 = walked.values().sum();
    let in_mount = home.json(&["du", "mnt", "--json", "--depth=0"]);
    assert_eq!(in_mount["bytes"], bytes);
    assert_eq!(in_mount["files"], walked.len());
    assert_eq!(in_mount["directories"], 5);
    home.ok(["umount", "mnt"]);
    let in_bucket = home.json(&["du", &bucket, "--json", "--depth=0"]);
    assert_eq!((&in_bucket["bytes"], &in_bucket["files"]), (&in_mount["bytes"], &in_mount["files"]));
    let shown = home.ok(["du", &bucket, "--bytes"]);
    assert!(
        shown.lines().any(|line| line.trim_start().starts_with("500 ") && line.ends_with("/a")),
        "{shown}"
    );
    assert_eq!(shown.lines().count(), 5, "{shown}");
    fs::create_dir(home.path("links")).unwrap();
    fs::write(home.path("links/file"), [1; 10]).unwrap();
    fs::hard_link(home.path("links/file"), home.path("links/second")).unwrap();
    assert_eq!(home.json(&["du", "links", "--json", "--depth=0"])["files"], 1);
    let missing = home.tenon(["du", "missing"]);
    assert!(missing.code == 1 && missing.err.contains("missing"), "{missing:?}");
}

#[test]
fn s710_find_lists_what_matches() {
    let home = Home::new();
    let mnt = home.mount_volume();
    home.make_tree("mnt");
    let found = |words: &[&str]| {
        let found = home.ok([&["find", "mnt"], words].concat());
        found.lines().map(|line| line.trim_start_matches("mnt/").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        found(&["--type=file"]),
        ["a-/three", "a.txt", "a/b/two", "a/one", "z/five", "z/four", "z/large"]
    );
    assert_eq!(found(&["--type=d", "--max-depth=1"]), ["mnt", "a-", "a", "empty", "z"]);
    assert_eq!(found(&["--name=f*"]), ["z/five", "z/four"]);
    assert_eq!(found(&["--path=a/**", "--type=f"]), ["a/b/two", "a/one"]);
    assert_eq!(found(&["--larger=1MiB"]), ["z/large"]);
    assert_eq!(found(&["--smaller=200", "--type=f"]), ["a.txt", "a/one"]);
    assert_eq!(found(&["--older=1h"]), Vec::<String>::new());
    assert_eq!(found(&["--newer=1h", "--name=one"]), ["a/one"]);
    let nul = home.ok(["find", "mnt", "--name=f*", "-0"]);
    assert_eq!(nul.matches('\0').count(), 2);
    let json = home.ok(["find", "mnt", "--name=large", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["size_bytes"], &json["type"]), (&(9 << 20).into(), &"file".into()));
    drop(mnt);
}

#[test]
fn s711_info_shows_a_file_and_its_object() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", s3::new_bucket(server, "info"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt"]);
    fs::create_dir(home.mnt().join("d")).unwrap();
    fs::write(home.mnt().join("d/file"), "twelve bytes").unwrap();
    let json = home.json(&["info", "mnt/d/file", "--json"]);
    assert_eq!(json["file"]["size_bytes"], 12);
    assert_eq!(json["file"]["kind"], "file");
    assert_eq!(json["volume"]["url"], bucket.as_str());
    assert_eq!(json["stored"]["key"], "d/file");
    let etag = json["stored"]["etag"].as_str().unwrap().to_owned();
    let text = home.ok(["info", "mnt/d/file", "mnt/d"]);
    assert!(
        text.contains("object    ") && text.contains(&etag) && text.contains("kind      directory"),
        "{text}"
    );
    let object = home.json(&["info", &format!("{bucket}/d/file"), "--json"]);
    assert_eq!((&object["object"]["etag"], &object["object"]["size_bytes"]), (&etag.into(), &12.into()));
    assert!(home.refused(["info", "home"]).contains("is not in a Tenon mount"));
    assert!(home.refused(["info", "mnt/none"]).contains("none"));
}

#[test]
fn s712_sync_makes_trees_equal() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}/part", s3::new_bucket(server, "sync"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.make_tree("source");
    let sync = |from: &str, to: &str, more: &[&str]| {
        let json = home.json(&[&["sync", from, to, "--json"], more].concat());
        assert_eq!(json["failed"], 0, "{json}");
        (
            json["copied"].as_u64().unwrap(),
            json["unchanged"].as_u64().unwrap(),
            json["removed"].as_u64().unwrap(),
        )
    };
    assert_eq!(sync("source", &bucket, &["--dry-run"]), (7, 0, 0));
    assert_eq!(home.ok(["object", "ls", "-r", &bucket]), "");
    assert_eq!(sync("source", &bucket, &[]), (7, 0, 0));
    assert_eq!(sync("source", &bucket, &[]), (0, 7, 0));
    assert_eq!(sync(&bucket, "back", &[]), (7, 0, 0));
    assert_eq!(sync(&bucket, "back", &[]), (0, 7, 0));
    fs::create_dir(home.path("back/empty")).unwrap();
    home.assert_same("source", "back");
    // A directory to a mount, and the other way round.
    home.mount_volume();
    assert_eq!(sync("source", "mnt/copy", &[]), (7, 0, 0));
    assert_eq!(sync("source", "mnt/copy", &[]), (0, 7, 0));
    home.assert_same("source", "mnt/copy");
    fs::write(home.path("source/a.txt"), "changed, another length").unwrap();
    fs::remove_dir_all(home.path("source/z")).unwrap();
    assert_eq!(sync("source", "mnt/copy", &["--delete", "--dry-run"]), (1, 3, 4));
    assert_eq!(
        sync("source", "mnt/copy", &["--exclude=a/**", "--exclude=z", "--exclude=z/**", "--delete"]),
        (1, 1, 0)
    );
    assert_eq!(sync("source", "mnt/copy", &["--delete"]), (0, 4, 4));
    home.assert_same("source", "mnt/copy");
    assert_eq!(sync("source", &bucket, &["--delete"]), (1, 3, 3));
    assert_eq!(sync(&bucket, "back", &["--delete"]).0, 1);
    assert!(home.refused(["sync", "source/a.txt", "other"]).contains("is not a directory"));
}

#[test]
fn s713_a_killed_sync_leaves_no_part_of_a_file_and_continues() {
    let home = Home::new();
    home.mount_volume();
    let source = home.path("source");
    fs::create_dir(&source).unwrap();
    fs::create_dir(home.mnt().join("copy")).unwrap();
    for number in 0..60_u8 {
        fs::write(source.join(format!("file{number:02}")), vec![number; 1 << 20]).unwrap();
    }
    let mut is_whole = 0;
    for round in 0..20 {
        let mut sync = home.command(tenon());
        let mut sync = sync
            .args(["sync", "source", "mnt/copy", "--parallel=2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + 15 * round));
        let _ = sync.kill();
        sync.wait().unwrap();
        is_whole = 0;
        for (name, len) in
            files(&home.path("mnt/copy")).into_iter().filter(|(name, _)| !name.starts_with(".tenon-copy-"))
        {
            assert_eq!(len, 1 << 20, "{name} has only a part of its bytes");
            is_whole += 1;
        }
    }
    assert!(is_whole > 0);
    let last = home.json(&["sync", "source", "mnt/copy", "--json"]);
    assert_eq!(last["copied"].as_u64().unwrap() + last["unchanged"].as_u64().unwrap(), 60, "{last}");
    home.assert_same("source", "mnt/copy");
}

/// A regression test: a dry run removed what a killed copy had left in the target.
#[test]
fn a_dry_run_of_sync_removes_nothing() {
    let home = Home::new();
    home.make_tree("source");
    home.ok(["sync", "source", "copy"]);
    // The file of a copy on another machine, which is removed when it is old.
    let abandoned = home.path("copy/.tenon-copy-elsewhere-7-1");
    fs::write(&abandoned, "half").unwrap();
    home.ok(["sync", "source", "copy", "--delete"]);
    assert!(abandoned.exists());
    fs::File::open(&abandoned).unwrap().set_modified(UNIX_EPOCH).unwrap();
    home.ok(["sync", "source", "copy", "--dry-run", "--delete"]);
    assert!(abandoned.exists());
    home.ok(["sync", "source", "copy"]);
    assert!(!abandoned.exists());
}

#[test]
fn s714_sync_compares_bytes_on_request() {
    let home = Home::new();
    home.mount_volume();
    home.make_tree("source");
    home.ok(["sync", "source", "mnt/copy"]);
    let target = home.mnt().join("copy/a/one");
    let modified = fs::metadata(&target).unwrap().modified().unwrap();
    fs::write(&target, vec![9; 200]).unwrap();
    fs::File::options().write(true).open(&target).unwrap().set_modified(modified).unwrap();
    assert_eq!(home.json(&["sync", "source", "mnt/copy", "--json"])["copied"], 0);
    let compared = home.json(&["sync", "source", "mnt/copy", "--json", "--checksum"]);
    assert_eq!((&compared["copied"], &compared["unchanged"]), (&1.into(), &6.into()));
    home.assert_same("source", "mnt/copy");
}

#[test]
fn s715_s716_cp_copies_in_the_store_and_rm_removes_trees() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", s3::new_bucket(server, "cp"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.make_tree("source");
    assert!(home.refused(["cp", "source", &format!("{bucket}/x")]).contains("with -r"));
    assert_eq!(home.json(&["cp", "-r", "source", &format!("{bucket}/x"), "--json"])["copied"], 7);
    assert_eq!(
        home.json(&["cp", "-r", &format!("{bucket}/x"), &format!("{bucket}/y"), "--json"])["copied"],
        7
    );
    assert_eq!(home.json(&["cp", "-r", &format!("{bucket}/y/z"), "back", "--json"])["copied"], 3);
    home.assert_same("source/z", "back");
    home.ok(["cp", &format!("{bucket}/y/a.txt"), "home/"]);
    assert_eq!(fs::read(home.path("home/a.txt")).unwrap(), vec![0; 100]);
    fs::set_permissions(home.path("source/a.txt"), fs::Permissions::from_mode(0o4750)).unwrap();
    home.ok(["cp", "source/a.txt", &format!("{bucket}/program")]);
    home.ok(["cp", &format!("{bucket}/program"), "program"]);
    assert_eq!(fs::metadata(home.path("program")).unwrap().permissions().mode() & 0o7777, 0o750);
    home.ok(["rm", &format!("{bucket}/program")]);
    // The copy kept the headers that the upload wrote.
    let object = home.json(&["info", &format!("{bucket}/y/z/large"), "--json"]);
    assert!(object["object"]["metadata"]["file-mtime"].is_string(), "{object}");
    assert!(home.refused(["rm", &format!("{bucket}/x")]).contains("with -r"));
    assert_eq!(home.json(&["rm", "-r", &format!("{bucket}/x"), "--json", "--dry-run"])["removed"], 7);
    assert_eq!(home.json(&["rm", "-r", &format!("{bucket}/x"), "--json"])["removed"], 7);
    assert_eq!(home.json(&["du", &bucket, "--json", "--depth=0"])["files"], 7);
    home.ok(["mount", &bucket, "mnt", "--metadata-ttl=0s"]);
    assert_eq!(home.json(&["rm", "-r", "mnt/y", "--json"])["removed"], 7 + 5);
    assert_eq!(fs::read_dir(home.mnt()).unwrap().count(), 0);
    assert!(home.refused(["rm", "-r", "/"]).contains("root directory"));
    std::os::unix::fs::symlink(home.path("source"), home.path("link")).unwrap();
    assert_eq!(home.json(&["rm", "-r", "link", "--json"])["removed"], 1);
    assert!(!home.path("link").is_symlink() && home.path("source/a.txt").exists());
    for overlapping in [["cp", "-r", "source", "source/a/copy"], ["cp", "-r", "source", "source/"]] {
        assert!(home.refused(overlapping).contains("cannot be in itself"));
    }
    assert!(home.refused(["sync", "source", "source/new/copy"]).contains("do not overlap"));
    assert!(home.refused(["sync", "source/a", "source", "--delete"]).contains("do not overlap"));
    assert_eq!(home.tenon(["rm", "missing"]).code, 1);
}

#[test]
fn s717_doctor_checks_a_server_and_writes_a_support_file() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", s3::new_bucket(server, "doctor"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt"]);
    // Other tests may have left dead mounts on this machine, which `doctor` rightly reports with status 1.
    let printed = home.tenon(["doctor", &bucket, "--json", "--bundle", "support.tar.zst"]).out;
    let findings: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let level = |check: &str| {
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {printed}"))["level"].as_str().unwrap().to_owned()
    };
    let is_failed =
        |finding: &&serde_json::Value| finding["level"] == "failed" && finding["check"] != "mount";
    assert_eq!(findings.iter().find(is_failed), None, "{printed}");
    for check in [
        "/dev/fuse",
        "credentials",
        "put",
        "get",
        "conditional writes",
        "copies in the store",
        "multipart uploads",
        "clock",
    ] {
        assert_eq!(level(check), "ok", "{check}: {printed}");
    }
    assert_eq!(home.ok(["object", "ls", "-r", &format!("{bucket}/.tenon/doctor/")]), "");
    let unpacked = capture(home.command("/bin/sh").args([
        "-euc",
        "tar --zstd -xf support.tar.zst && ls tenon-support/mounts/0 && cat tenon-support/environment-names && grep -r SECRET_VALUE tenon-support || true",
    ]));
    assert!(
        unpacked.out.contains("status.json") && unpacked.out.contains("AWS_SECRET_ACCESS_KEY"),
        "{unpacked:?}"
    );
    let secret = server.secret_key();
    let found = capture(home.command("/bin/sh").args(["-c", &format!("grep -rl {secret} tenon-support")]));
    assert_eq!(found.out, "", "the support file contains a secret");
    let wrong = home.tenon(["doctor", "s3://no-such-bucket-of-tenon"]);
    assert!(wrong.code == 1 && wrong.out.contains("FAILED"), "{wrong:?}");
}

#[test]
fn s706_flags_come_from_environment_and_file() {
    let home = Home::new().with("TENON_CONFLICT", "keep-both");
    home.ok(["format", "volume"]);
    fs::write(home.path("tenon.toml"), "[mount]\nmemory-limit = \"64MiB\"\nconflict = \"fail\"\n").unwrap();
    home.ok(["mount", "volume", "mnt", "--config", "tenon.toml"]);
    let status = home.status();
    assert_eq!(status["memory_limit_bytes"], 64 << 20);
    assert_eq!(status["conflict_policy"], "keep-both");
    let refused = home.refused(["status", "--config", "missing.toml"]);
    assert!(refused.contains("missing.toml"), "{refused}");
    fs::write(home.path("tenon.toml"), "[mount]\nmemory-limit = \"many\"\n").unwrap();
    fs::create_dir(home.path("other")).unwrap();
    assert!(home.refused(["mount", "volume", "other", "--config", "tenon.toml"]).contains("'many'"));
}
