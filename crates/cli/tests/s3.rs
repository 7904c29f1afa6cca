//! The main features on a real server, and errors about servers.

use crate::fixture::{Home, eventually, is_mounted};
use servers::S3Server;
use std::fs;
use std::sync::Arc;
use store::{Buckets, Entropy, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

/// Returns the server's buckets, as Tenon's own client sees them.
pub(crate) fn buckets(server: &S3Server) -> S3Buckets {
    let config = S3Config {
        endpoint: Some(server.endpoint()),
        region: server.region().to_owned(),
        credentials: Credentials::new(server.access_key(), server.secret_key(), None).unwrap().into(),
        ..S3Config::default()
    };
    S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1))).unwrap()
}

/// Makes a bucket for one test. Returns its name.
pub(crate) fn new_bucket(server: &S3Server, name: &str) -> String {
    let name = format!("cli-{name}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(buckets(server).create(&name)).unwrap();
    name
}

/// Returns a home whose environment has the server's credentials.
pub(crate) fn home(server: &S3Server) -> Home {
    Home::new()
        .with("AWS_ACCESS_KEY_ID", server.access_key())
        .with("AWS_SECRET_ACCESS_KEY", server.secret_key())
        .with("AWS_REGION", server.region())
}

#[test]
fn a_bucket_without_preparation_is_mounted() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, "unprepared"));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("source"), "by another client").unwrap();
    home.ok(["object", "put", &format!("{bucket}/a/b/object"), "source"]);
    home.ok(["mount", &bucket, "mnt", "--metadata-ttl=0s"]);
    assert_eq!(fs::read_to_string(home.mnt().join("a/b/object")).unwrap(), "by another client");
    fs::write(home.mnt().join("a/file"), vec![9; 20 << 20]).unwrap();
    home.ok(["object", "get", &format!("{bucket}/a/file"), "copy"]);
    assert!(fs::read(home.path("copy")).unwrap() == vec![9; 20 << 20]);
    home.ok(["object", "rm", &format!("{bucket}/a/b/object")]);
    eventually("the removed object is not a file", || !home.mnt().join("a/b/object").exists());
    home.ok(["umount", "mnt"]);
}

#[test]
fn a_part_of_a_bucket_is_a_volume() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, "prefix"));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &format!("{bucket}/part/one"), "mnt"]);
    fs::write(home.mnt().join("file"), "x").unwrap();
    assert_eq!(home.ok(["object", "get", &format!("{bucket}/part/one/file")]), "x");
    let found = home.ok(["locate", "mnt/file", "--json"]);
    assert!(found.contains(&format!("{bucket}/part/one/file")), "{found}");
}

#[test]
fn s117_a_wrong_server_bucket_or_key_is_one_line() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, "wrong"));
    let endpoint = format!("--endpoint-url={}", server.endpoint());
    let right = home(server);
    let none = right.refused(["mount", "s3://no-such-bucket-here", "mnt", &endpoint]);
    assert!(none.contains("no bucket 'no-such-bucket-here'"), "{none}");
    let silent =
        right.refused(["mount", &bucket, "mnt", "--endpoint-url=http://127.0.0.1:1", "--retry-timeout=2s"]);
    assert!(silent.contains("127.0.0.1:1") && silent.contains("check the endpoint"), "{silent}");
    let nonsense = right.refused(["mount", &bucket, "mnt", "--endpoint-url=localhost"]);
    assert!(nonsense.contains("http://"), "{nonsense}");
    let wrong = Home::new().with("AWS_ACCESS_KEY_ID", "nobody").with("AWS_SECRET_ACCESS_KEY", "wrong-secret");
    let denied = wrong.refused(["mount", &bucket, "mnt", &endpoint]);
    assert!(denied.contains("denied") && denied.contains("credentials"), "{denied}");
    let missing = Home::new().refused(["mount", &bucket, "mnt", &endpoint]);
    assert!(missing.contains("AWS_ACCESS_KEY_ID"), "{missing}");
    let profile = right.refused(["mount", &bucket, "mnt", &endpoint, "--profile=nobody"]);
    assert!(profile.contains("no profile 'nobody'"), "{profile}");
    assert!(!is_mounted(&right.mnt()) && !is_mounted(&wrong.mnt()));
}

#[test]
fn s110_s112_a_mount_survives_a_server_restart() {
    let mut server = servers::minio();
    let bucket = format!("s3://{}", new_bucket(&server, "outlive"));
    let home = home(&server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt", "--metadata-ttl=0s", "--retry-timeout=1s"]);
    fs::write(home.mnt().join("before"), "x").unwrap();
    server.stop();
    assert_eq!(fs::write(home.mnt().join("during"), "x").unwrap_err().raw_os_error(), Some(5));
    server.restart();
    eventually("the mount works again", || fs::read_to_string(home.mnt().join("before")).is_ok());
    fs::write(home.mnt().join("after"), "y").unwrap();
    assert_eq!(home.ok(["object", "get", &format!("{bucket}/after")]), "y");
}

/// The kernel may cache for an hour without asking: only the background lister finds foreign changes.
#[test]
fn s200_foreign_changes_reach_the_kernel_by_the_background_lister() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", new_bucket(server, "lister"));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("source"), "old").unwrap();
    for name in ["dir/changes", "dir/goes"] {
        home.ok(["object", "put", &format!("{bucket}/{name}"), "source"]);
    }
    home.ok(["mount", &bucket, "mnt", "--metadata-ttl=1h", "--list-budget=20/s"]);
    let (changes, goes) = (home.mnt().join("dir/changes"), home.mnt().join("dir/goes"));
    assert_eq!(fs::read_to_string(&changes).unwrap() + &fs::read_to_string(&goes).unwrap(), "oldold");
    fs::write(home.path("source"), "changed").unwrap();
    home.ok(["object", "put", &format!("{bucket}/dir/changes"), "source"]);
    home.ok(["object", "rm", &format!("{bucket}/dir/goes")]);
    eventually("the change is seen", || fs::metadata(&changes).unwrap().len() == 7 && !goes.exists());
    assert_eq!(fs::read_to_string(&changes).unwrap(), "changed");
    assert_eq!(home.status()["lister"]["changes"], 2);
    assert!(home.ok(["status", "mnt"]).contains("2 changes found"));
}
