//! Several drives served as one pool: joined, killed, with a missing drive, and with an additional drive.

use crate::drives::{COMPARE, STORE};
use crate::fixture::{Home, capture, tenon};
use crate::kills::rounds;
use std::fs;

impl Home {
    fn pool(&self, names: &[&str]) -> String {
        let paths: Vec<String> = names.iter().map(|name| self.text(name)).collect();
        format!("drive://{}", paths.join("+"))
    }

    /// Makes a pool of three drives of different lengths.
    fn with_pool(self) -> Self {
        for (name, size) in [("a", "32MiB"), ("b", "48MiB"), ("c", "96MiB")] {
            self.ok(["drive", "format", name, "--size", size]);
        }
        let joined = self.ok(["drive", "join", &self.pool(&["a", "b", "c"])]);
        assert!(joined.starts_with("joined 3 drives into the pool ") && joined.contains("+/"), "{joined}");
        self
    }

    fn with_served_pool(&self, names: &[&str], flags: &[&str], program: &str) {
        let serving = self.serve(&self.pool(names), flags);
        self.boto3(&serving.1, program);
    }
}

const STORE_MANY: &str = "
for n in range(60):
    s3.put_object(Bucket='photos', Key=f'many/{n:02}', Body=b'%d' % n)
";

const COMPARE_MANY: &str = "
pages = s3.get_paginator('list_objects_v2').paginate(Bucket='photos', Prefix='many/', PaginationConfig={'PageSize': 7})
keys = [entry['Key'] for page in pages for entry in page['Contents']]
assert keys == [f'many/{n:02}' for n in range(60)], keys
for n in range(60):
    assert s3.get_object(Bucket='photos', Key=f'many/{n:02}')['Body'].read() == b'%d' % n
";

/// Asserts that every answer is the object, or that it cannot be known, as its drive may be missing.
const COMPARE_DEGRADED: &str = "
from botocore.config import Config
from botocore.exceptions import ClientError
s3 = boto3.client('s3', endpoint_url=os.environ['URL'], region_name='us-east-1', config=Config(retries={'total_max_attempts': 1}))
def answer(call, **arguments):
    try:
        call(Bucket='photos', **arguments)
        return 200
    except ClientError as error:
        return error.response['ResponseMetadata']['HTTPStatusCode']
codes = [answer(s3.get_object, Key=f'many/{n:02}') for n in range(60)]
assert set(codes) == {200, 503}, codes
assert answer(s3.get_object, Key='not stored') == 503
assert answer(s3.put_object, Key='not stored', Body=b'') == 503
assert answer(s3.list_objects_v2) == 503
for n, code in enumerate(codes):
    assert answer(s3.put_object, Key=f'many/{n:02}', Body=b'%d' % n) == code
";

#[test]
fn s344_a_pool_of_unequal_drives_is_served_and_survives_kills() {
    let home = Home::new().with_users().with_pool();
    home.with_served_pool(&["a", "b", "c"], &[], STORE);
    // The drives may be named in any order.
    home.with_served_pool(&["c", "a", "b"], &[], COMPARE);
    home.with_served_pool(&["a", "b", "c"], &[], STORE_MANY);
    home.with_served_pool(&["b", "c", "a"], &[], COMPARE_MANY);
    let pool = home.pool(&["a", "b", "c"]);
    let info: serde_json::Value = serde_json::from_str(&home.ok(["drive", "info", &pool, "--json"])).unwrap();
    assert_eq!(info["len_bytes"], 176 << 20);
    assert_eq!(info["drives"][1]["pool"]["drives"], 3);
    let shown = home.ok(["drive", "info", &pool]);
    assert!(shown.contains(", drive 2 of 3\n") && shown.contains("3 drives     176 MiB"), "{shown}");
    assert!(home.ok(["drive", "info", "a"]).contains(" of 3\n"));

    home.ok(["mount", &pool, "mnt"]);
    assert_eq!(fs::read(home.mnt().join("photos/many/31")).unwrap(), b"31");
    fs::write(home.mnt().join("photos/from-a-program"), "bytes").unwrap();
    home.ok(["umount", "mnt"]);
    let exported = home.ok(["drive", "export", &pool, "out"]);
    assert!(exported.contains("64 objects") && exported.contains(" 0 left out"), "{exported}");
    assert_eq!(fs::read(home.path("out/photos/from-a-program")).unwrap(), b"bytes");
}

#[test]
fn s344_a_missing_drive_is_refused_or_reported() {
    let home = Home::new().with_users().with_pool();
    home.with_served_pool(&["a", "b", "c"], &[], &format!("{STORE}{STORE_MANY}"));
    let refused = home.refused(["serve", &home.pool(&["a", "c"])]);
    assert!(refused.contains("some of the 3 drives of the pool are missing: "), "{refused}");
    assert!(refused.contains("--degraded"), "{refused}");
    home.refused(["serve", &home.pool(&["b"])]);
    fs::rename(home.path("c"), home.path("away")).unwrap();
    let refused = home.refused(["serve", &home.pool(&["a", "b", "c"])]);
    assert!(refused.contains("/c: No such file"), "{refused}");
    home.with_served_pool(&["a", "b", "c"], &["--degraded"], COMPARE_DEGRADED);
    home.with_served_pool(&["a", "b"], &["--degraded"], COMPARE_DEGRADED);
    // Regression: an export of a degraded pool failed, as a pool with a missing drive cannot be listed.
    let exported = home.ok(["drive", "export", &home.pool(&["a", "b", "c"]), "part", "--degraded"]);
    assert!(!exported.starts_with("0 objects") && exported.contains(" 0 left out"), "{exported}");
    assert!(fs::read_dir(home.path("part/photos/many")).unwrap().count() > 0);
    fs::rename(home.path("away"), home.path("c")).unwrap();
    home.with_served_pool(
        &["a", "b", "c"],
        &[],
        &format!("{COMPARE_MANY}s3.delete_object(Bucket='photos', Key='many/00')"),
    );
}

#[test]
fn s346_a_pool_grows_by_an_empty_drive() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "a", "--size", "32MiB"]);
    home.with_served_pool(&["a"], &[], STORE);
    home.ok(["drive", "format", "b", "--size", "96MiB"]);
    let refused = home.refused(["serve", &home.pool(&["a", "b"])]);
    assert!(refused.contains("tenon drive join"), "{refused}");
    home.ok(["drive", "join", &home.pool(&["b", "a"])]);
    home.with_served_pool(&["a", "b"], &[], &format!("{COMPARE}{STORE_MANY}"));
    assert!(home.ok(["drive", "check", "b"]).contains("objects"));
    home.ok(["drive", "format", "x", "--size", "32MiB"]);
    let refused = home.refused(["serve", &home.pool(&["a", "b", "x"])]);
    assert!(refused.contains("does not belong to the pool"), "{refused}");
    let refused = home.refused(["drive", "join", &home.pool(&["b", "x"])]);
    assert!(refused.contains("name all drives of the pool"), "{refused}");
    assert!(home.refused(["drive", "info", &home.pool(&["a", "a"])]).contains("named twice"));
    home.with_served_pool(&["b", "a"], &[], COMPARE_MANY);
}

/// Like the test of one drive, with three drives of different lengths.
#[test]
fn s317_killed_at_any_moment_a_pools_server_has_what_it_acknowledged() {
    let home = Home::new();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/drive.py");
    let mut kills = home.command("/usr/bin/python3");
    let arguments = ["kills", "one.img+two.img+three.img", &rounds().to_string(), "2"];
    kills.arg(script).args(arguments).env("TENON", tenon());
    let outcome = capture(&mut kills);
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

/// Regression: `map`, `check` and `scrub` took only one drive of a pool, and `join` only one word.
#[test]
fn s533_every_command_takes_all_drives_of_a_pool() {
    let home = Home::new().with_users();
    for (name, size) in [("a", "32MiB"), ("b", "48MiB")] {
        home.ok(["drive", "format", name, "--size", size]);
    }
    assert!(home.ok(["drive", "join", "a", "b"]).starts_with("joined 2 drives into the pool "));
    home.with_served_pool(&["a", "b"], &[], STORE);
    let pool = home.pool(&["a", "b"]);
    for named in ["a+b", pool.as_str()] {
        let lines = |command: &str, end: &str| {
            let output = home.ok(["drive", command, named]);
            output.lines().filter(|line| line.ends_with(end)).count()
        };
        assert_eq!(lines("info", " available"), 1);
        assert_eq!(lines("check", " 0 problems"), 2);
        assert_eq!(lines("scrub", " 0 damaged"), 2);
        assert_eq!(lines("map", "/a") + lines("map", "/b"), 2);
    }
    // A pool that is served is scrubbed by its server.
    let serving = home.serve(&pool, &[]);
    let output = home.ok(["drive", "scrub", "a+b"]);
    assert_eq!(output.lines().filter(|line| line.ends_with(" 0 damaged")).count(), 2, "{output}");
    home.boto3(&serving.1, COMPARE);
}
