//! The caches below memory: on the local disk, and in a bucket that machines share.

use crate::fixture::{Home, eventually};
use crate::s3::{home, new_bucket};
use rustix::process::Signal;
use servers::S3Server;
use std::fs;
use std::os::unix::fs::FileExt;

/// Returns bytes that repeat nowhere.
fn body(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 23) as u8).collect()
}

/// Stores an object as another client would.
fn put(home: &Home, bucket: &str, key: &str, body: &[u8]) {
    fs::write(home.path("source"), body).unwrap();
    home.ok(["object", "put", &format!("{bucket}/{key}"), "source"]);
}

/// Returns a figure of the mount's status, like `/disk_cache/hit_bytes`.
fn figure(home: &Home, name: &str) -> u64 {
    let status = home.status();
    status.pointer(name).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{name} in {status}"))
}

/// Returns the number of GET requests of the mount to the volume's bucket.
fn gets(home: &Home) -> u64 {
    figure(home, "/store_requests/GET")
}

#[test]
fn s804_a_mount_reads_from_disk_what_an_earlier_mount_has_read() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, "disk-cache"));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let (small, big) = (body(1000), body(20 << 20));
    put(&home, &bucket, "dir/small", &small);
    put(&home, &bucket, "dir/big", &big);
    let mount = |state: &str| {
        home.ok(["mount", &bucket, "mnt", "--state-dir", state, "--cache-dir", "cache"]);
        (home.mnt().join("dir/small"), home.mnt().join("dir/big"))
    };
    let (small_path, big_path) = mount("first");
    assert!(fs::read(&small_path).unwrap() == small && fs::read(&big_path).unwrap() == big);
    assert!(gets(&home) > 0);
    let all = small.len() as u64 + big.len() as u64;
    eventually("all bytes are stored", || figure(&home, "/disk_cache/stored_bytes") >= all);
    // Killed: nothing of the cache needs an orderly end.
    home.signal(home.pid(), Signal::KILL);
    eventually("the mount is gone", || fs::metadata(&small_path).is_err());
    home.ok(["umount", "mnt"]);

    let (small_path, big_path) = mount("second");
    let before = gets(&home);
    assert!(fs::read(&small_path).unwrap() == small && fs::read(&big_path).unwrap() == big);
    let file = fs::File::open(&big_path).unwrap();
    let mut part = [0; 4096];
    file.read_exact_at(&mut part, 9_000_001).unwrap();
    drop(file);
    assert!(part[..] == big[9_000_001..9_000_001 + 4096]);
    assert_eq!(gets(&home), before, "{}", home.status());
    assert!(figure(&home, "/disk_cache/hit_bytes") >= all);
    let shown = home.ok(["status", "mnt"]);
    // How much was read depends on what memory still had: not compared.
    assert!(shown.contains("disk cache") && shown.contains("of 10.00 GiB; 2"), "{shown}");

    put(&home, &bucket, "dir/small", b"replaced by another client");
    eventually("the new bytes are read", || fs::read(&small_path).unwrap() == b"replaced by another client");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s806_warmup_reads_a_tree_into_the_cache() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, "warmup"));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let bodies: Vec<_> = (0..40).map(|number| body(number * 100_000 + 1)).collect();
    for (number, body) in bodies.iter().enumerate() {
        put(&home, &bucket, &format!("tree/{}/{number}", number % 3), body);
    }
    home.ok(["mount", &bucket, "mnt", "--cache-dir", "cache", "--cache-size", "1GiB"]);
    let done: serde_json::Value =
        serde_json::from_str(&home.ok(["warmup", "mnt/tree", "mnt/tree/0/0", "--json"])).unwrap();
    let bytes: usize = bodies.iter().map(Vec::len).sum();
    assert_eq!(done["files"], 41);
    assert_eq!(done["bytes"], bytes + 1);
    assert_eq!(done["read_bytes"], bytes);
    let again = home.ok(["warmup", "mnt"]);
    assert!(again.contains("40 files with") && again.contains("0 B of it read now"), "{again}");
    let before = gets(&home);
    for (number, body) in bodies.iter().enumerate() {
        assert!(fs::read(home.mnt().join(format!("tree/{}/{number}", number % 3))).unwrap() == *body);
    }
    assert_eq!(gets(&home), before);
    let missing = home.refused(["warmup", "mnt/nothing"]);
    assert!(missing.contains("nothing"), "{missing}");
    home.ok(["umount", "mnt"]);
    home.ok(["mount", &bucket, "mnt"]);
    let refused = home.refused(["warmup", "mnt/tree/0/0"]);
    assert!(refused.contains("--cache-dir"), "{refused}");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s808_settings_that_have_no_use_are_refused() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let local = home.refused(["mount", "volume", "mnt", "--cache-dir", "cache"]);
    assert!(local.contains("on a disk of this machine"), "{local}");
    let small = home.refused(["mount", "s3://bucket", "mnt", "--cache-dir", "cache", "--cache-size", "1MiB"]);
    assert!(small.contains("at least 256MiB"), "{small}");
    let alone = home.refused(["mount", "s3://bucket", "mnt", "--shared-cache", "s3://near"]);
    assert!(alone.contains("--cache-dir"), "{alone}");
    let uncached = home.refused(["mount", "s3://bucket", "mnt", "--cache-dir", "cache", "--cache", "none"]);
    assert!(uncached.contains("--cache none"), "{uncached}");
    let no_bucket =
        home.refused(["mount", "s3://bucket", "mnt", "--cache-dir", "c", "--shared-cache", "/directory"]);
    assert!(no_bucket.contains("s3://bucket"), "{no_bucket}");
}

/// Writes the AWS files of a machine, whose profile `near` has the server of the shared cache.
fn with_near(home: Home, near: &S3Server) -> Home {
    let profile = format!(
        "[near]\naws_access_key_id = {}\naws_secret_access_key = {}\nendpoint_url = {}\nregion = {}\n",
        near.access_key(),
        near.secret_key(),
        near.endpoint(),
        near.region()
    );
    fs::write(home.path("aws"), profile).unwrap();
    let path = home.path("aws").display().to_string();
    home.with("AWS_SHARED_CREDENTIALS_FILE", &path).with("AWS_CONFIG_FILE", &path)
}

#[test]
fn s807_what_one_machine_has_read_another_reads_from_the_shared_cache() {
    let (server, mut near) = (servers::shared_minio(), servers::minio());
    let bucket = format!("s3://{}", new_bucket(server, "shared-cache"));
    let cache = format!("s3://{}/segments", new_bucket(&near, "near"));
    let machine = || with_near(home(server).with("AWS_ENDPOINT_URL", &server.endpoint()), &near);
    let machines = [machine(), machine(), machine()];
    let mount = |home: &Home| {
        home.ok([
            "mount",
            &bucket,
            "mnt",
            "--cache-dir",
            "cache",
            "--shared-cache",
            &cache,
            "--shared-cache-profile",
            "near",
        ]);
    };
    let (small, big) = (body(1000), body(20 << 20));
    put(&machines[0], &bucket, "small", &small);
    put(&machines[0], &bucket, "big", &big);
    let is_right = |home: &Home| {
        fs::read(home.mnt().join("small")).unwrap() == small
            && fs::read(home.mnt().join("big")).unwrap() == big
    };
    let all = small.len() as u64 + big.len() as u64;
    mount(&machines[0]);
    machines[0].ok(["warmup", "mnt"]);
    assert_eq!(figure(&machines[0], "/shared_cache/stored_bytes"), all);

    mount(&machines[1]);
    let before = gets(&machines[1]);
    assert!(is_right(&machines[1]));
    assert_eq!(gets(&machines[1]), before, "{}", machines[1].status());
    assert_eq!(figure(&machines[1], "/shared_cache/hit_bytes"), all);

    near.stop();
    mount(&machines[2]);
    assert!(is_right(&machines[2]), "the bucket has all that a dead cache has");
    assert!(figure(&machines[2], "/shared_cache/failures") > 0);
    assert!(is_right(&machines[1]));
    for home in &machines {
        home.ok(["umount", "mnt"]);
    }
}
