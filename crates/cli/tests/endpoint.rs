//! A volume as files and objects at once: usual S3 clients work while the same names are used through the mount.

use crate::fixture::{Home, capture, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use store::{Entropy, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

pub(crate) const KEY: &str = "tenon-tests";
pub(crate) const SECRET: &str = "not-a-secret-but-long-enough";

/// Returns the buckets of an endpoint, as Tenon's own client sees them.
pub(crate) fn client_of(url: &str) -> S3Buckets {
    let config = S3Config {
        endpoint: Some(url.to_owned()),
        credentials: Credentials::new(KEY, SECRET, None).unwrap().into(),
        ..S3Config::default()
    };
    S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1))).unwrap()
}

impl Home {
    pub(crate) fn with_users(self) -> Self {
        let users = format!("[[user]]\naccess_key = \"{KEY}\"\nsecret_key = \"{SECRET}\"\n");
        fs::write(self.path("users.toml"), users).unwrap();
        fs::set_permissions(self.path("users.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        self
    }

    /// Mounts a volume and serves it at a free port. Returns the endpoint's URL.
    pub(crate) fn mount_and_serve(&self, volume: &str, more: &[&str]) -> String {
        let words = ["mount", volume, "mnt", "--serve", "127.0.0.1:0", "--users", "users.toml"];
        self.ok(words.iter().chain(more));
        self.status()["endpoint"].as_str().unwrap().to_owned()
    }

    /// Returns the command of a client's script, with the endpoint and the mount in its environment.
    fn client(&self, name: &str, url: &str, bucket: &str, root: &Path) -> Command {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name);
        let mut command = self.command(if name.ends_with(".py") { "/usr/bin/python3" } else { "/bin/bash" });
        let built = servers::program("mc");
        let built = built.parent().unwrap().display();
        command
            .arg(script)
            .env("PATH", format!("/usr/bin:/bin:{built}"))
            .env("URL", url)
            .env("BUCKET", bucket)
            .env("ROOT", root)
            .env("KEY", KEY)
            .env("SECRET", SECRET);
        command
    }

    fn run_client(&self, name: &str, url: &str, bucket: &str, root: &Path) {
        let output = capture(&mut self.client(name, url, bucket, root));
        assert_eq!(output.code, 0, "{name}: {output:?}");
    }
}

const CLIENTS: [&str; 5] = ["aws.sh", "rclone.sh", "s3cmd.sh", "mc.sh", "python.py"];

fn every_client_works(format: &[&str]) {
    let home = Home::new().with_users();
    home.ok(["format", "volume"].iter().chain(format));
    let url = home.mount_and_serve("volume", &["--directories-as-buckets", "--domain", "s3.test"]);
    fs::create_dir(home.mnt().join("a-bucket")).unwrap();
    for client in CLIENTS.into_iter().chain(["virtual.py"]) {
        home.run_client(client, &url, "a-bucket", &home.mnt().join("a-bucket"));
    }
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
    assert_eq!(home.ok(["gc", "volume", "--dry-run"]), "0 objects that no file refers to would be deleted\n");
}

#[test]
fn every_client_works_on_a_volume_named_by_inode() {
    every_client_works(&["--naming", "inode"]);
}

#[test]
fn every_client_works_on_a_volume_in_chunks() {
    every_client_works(&["--mapping", "chunked"]);
}

#[test]
fn every_client_works_on_a_volume_named_by_path() {
    every_client_works(&["--naming", "file-path"]);
}

/// A bucket that other clients use too: Tenon's endpoint and the server itself show the same objects.
#[test]
fn every_client_works_on_a_bucket_of_a_server() {
    let server = servers::shared_minio();
    let bucket = crate::s3::new_bucket(server, "both-ways");
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint()).with_users();
    let url = home.mount_and_serve(&format!("s3://{bucket}"), &[]);
    for client in CLIENTS {
        home.run_client(client, &url, &bucket, &home.mnt());
    }
    fs::write(home.mnt().join("file"), "x").unwrap();
    assert_eq!(home.ok(["object", "ls", &format!("s3://{bucket}/file")]).lines().count(), 1);
    home.ok(["umount", "mnt"]);
}

/// Metadata is the same for every endpoint: the server behind Tenon, Tenon's endpoint over it, and endpoints over
/// volumes of other layouts.
#[test]
fn s100_s104_s185_metadata_is_the_same_on_both_sides() {
    let server = servers::shared_minio();
    let bucket = crate::s3::new_bucket(server, "metadata");
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint()).with_users();
    let url = home.mount_and_serve(&format!("s3://{bucket}"), &["--metadata-ttl=1s"]);
    home.run_client("metadata.py", &url, &bucket, &home.mnt());
    let mut client = home.client("metadata.py", &server.endpoint(), &bucket, &home.mnt());
    let output = capture(client.env("KEY", server.access_key()).env("SECRET", server.secret_key()));
    assert_eq!(output.code, 0, "{output:?}");
    home.ok(["umount", "mnt"]);
    for naming in ["inode", "file-path"] {
        let home = Home::new().with_users();
        home.ok(["format", "volume", "--naming", naming]);
        let url = home.mount_and_serve("volume", &["--metadata-ttl=1s"]);
        home.run_client("metadata.py", &url, "volume", &home.mnt());
        home.ok(["umount", "mnt"]);
        home.ok(["fsck", "volume"]);
    }
}

/// A process that is killed when this value is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Without a mount, with the default user that Tenon creates. Objects survive a restart.
#[test]
fn a_volume_is_served_without_a_mount() {
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    for round in 0..2 {
        let mut serving = home.command(crate::fixture::tenon());
        serving.args(["serve", "volume", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut serving = KillOnDrop(serving.spawn().unwrap());
        let mut url = String::new();
        let out = serving.0.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut url).unwrap();
        let users = home.path("volume/state/s3-users.toml");
        assert_eq!(fs::metadata(&users).unwrap().permissions().mode() & 0o777, 0o600);
        let users: toml::Table = fs::read_to_string(users).unwrap().parse().unwrap();
        let user = |field: &str| users["user"][0][field].as_str().unwrap().to_owned();
        let mut script = home.command("/usr/bin/python3");
        let program = r#"
import boto3, os
s3 = boto3.client("s3", endpoint_url=os.environ["URL"], region_name="us-east-1")
assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["volume"]
if os.environ["ROUND"] == "0":
    s3.put_object(Bucket="volume", Key="a/b", Body=b"kept")
assert s3.get_object(Bucket="volume", Key="a/b")["Body"].read() == b"kept"
"#;
        script
            .args(["-c", program])
            .env("URL", url.trim())
            .env("ROUND", round.to_string())
            .env("AWS_ACCESS_KEY_ID", user("access_key"))
            .env("AWS_SECRET_ACCESS_KEY", user("secret_key"));
        let outcome = capture(&mut script);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let listed = home.ok(["status"]);
        assert!(listed.contains(url.trim()), "{listed}");
        home.signal(serving.0.id(), rustix::process::Signal::TERM);
        assert!(serving.0.wait().unwrap().success());
    }
    home.ok(["mount", "volume", "mnt"]);
    assert_eq!(fs::read_to_string(home.mnt().join("a/b")).unwrap(), "kept");
}

/// After a kill -9, an object is complete or absent, and an upload can be continued at the next start.
#[test]
fn an_upload_continues_after_a_kill() {
    let home = Home::new().with_users();
    home.ok(["format", "volume", "--naming", "inode"]);
    let program = r#"
import boto3, os, sys
from botocore.config import Config
s3 = boto3.client("s3", endpoint_url=os.environ["URL"], aws_access_key_id=os.environ["KEY"],
    aws_secret_access_key=os.environ["SECRET"], region_name="us-east-1", config=Config(retries={"max_attempts": 1}))
upload = {"Bucket": "volume", "Key": "big"}
if os.environ["ROUND"] == "0":
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    s3.upload_part(**upload, PartNumber=1, Body=b"1" * (5 << 20))
else:
    upload["UploadId"] = s3.list_multipart_uploads(Bucket="volume")["Uploads"][0]["UploadId"]
    s3.upload_part(**upload, PartNumber=2, Body=b"2")
    parts = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in s3.list_parts(**upload)["Parts"]]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
"#;
    for round in ["0", "1"] {
        let url = home.mount_and_serve("volume", &[]);
        let mut script = home.command("/usr/bin/python3");
        script.args(["-c", program]).envs([
            ("URL", url.as_str()),
            ("ROUND", round),
            ("KEY", KEY),
            ("SECRET", SECRET),
        ]);
        let outcome = capture(&mut script);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        if round == "0" {
            assert!(!home.mnt().join("big").exists());
            home.signal(home.pid(), rustix::process::Signal::KILL);
            home.ok(["umount", "mnt"]);
        }
    }
    let big = fs::read(home.mnt().join("big")).unwrap();
    assert!(big.len() == (5 << 20) + 1 && big.ends_with(b"12"));
}

#[test]
fn unusable_names_and_users_are_refused() {
    let home = Home::new().with_users();
    home.ok(["format", "Volume_1"]);
    let refused = home.refused(["serve", "Volume_1", "--listen", "127.0.0.1:0"]);
    assert!(refused.contains("--bucket"), "{refused}");
    fs::set_permissions(home.path("users.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = home.refused(["serve", "Volume_1", "--bucket", "b-1", "--users", "users.toml"]);
    assert!(refused.contains("chmod 600") && !refused.contains(SECRET), "{refused}");
    fs::write(home.path("broken.toml"), format!("[[user]]\nsecret_key = \"{SECRET}\"\n")).unwrap();
    fs::set_permissions(home.path("broken.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    let refused = home.refused(["serve", "Volume_1", "--bucket", "b-1", "--users", "broken.toml"]);
    assert!(refused.contains("access_key") && !refused.contains(SECRET), "{refused}");
}

const REQUESTS: &str = "
s3.create_bucket(Bucket='photos')
s3.put_object(Bucket='photos', Key='a b', Body=b'four')
s3.get_object(Bucket='photos', Key='a b')['Body'].read()
try:
    s3.get_object(Bucket='photos', Key='none')
except s3.exceptions.NoSuchKey:
    pass
";

/// A log file can be rotated: after SIGHUP, lines go to a new file.
#[test]
fn s476_the_access_log_of_a_server_is_text_or_json() {
    let expected = [
        "CreateBucket photos - 200",
        "PutObject photos a b 200",
        "GetObject photos a b 200",
        "GetObject photos none 404",
    ];
    for format in ["text", "json"] {
        let home = Home::new().with_users();
        home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
        let volume = format!("drive://{}", home.text("drive.img"));
        let flags = ["--access-log", "access.log", "--access-log-format", format];
        let serving = home.serve(&volume, &flags);
        let lines_of = |name: &str| {
            let text = fs::read_to_string(home.path(name)).unwrap_or_default();
            text.lines().map(|line| described(line, format)).collect::<Vec<_>>()
        };
        home.boto3(&serving.1, REQUESTS);
        eventually("all requests are logged", || lines_of("access.log").len() >= expected.len());
        assert_eq!(lines_of("access.log"), expected, "{format}");

        fs::rename(home.path("access.log"), home.path("rotated.log")).unwrap();
        home.signal(serving.0.id(), rustix::process::Signal::HUP);
        eventually("the log is reopened", || home.path("access.log").exists());
        home.boto3(&serving.1, "s3.list_objects_v2(Bucket='photos')");
        eventually("the request is logged", || !lines_of("access.log").is_empty());
        assert_eq!(lines_of("access.log"), ["ListObjectsV2 photos - 200"], "{format}");
        assert_eq!(lines_of("rotated.log"), expected, "{format}");
    }
}

/// Regression: request ids, upload ids and session keys came from SplitMix64, so that one number revealed all later ones.
#[test]
fn a_request_id_does_not_tell_the_next_ones() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
    let serving = home.serve(&format!("drive://{}", home.text("drive.img")), &[]);
    let request_id = || {
        let mut curl = home.command("curl");
        let headers = capture(curl.args(["-s", "-D", "-", "-o", "none", &serving.1])).out.to_lowercase();
        let id = headers.lines().find_map(|line| line.strip_prefix("x-amz-request-id: ")).unwrap().trim();
        u64::from_str_radix(id, 16).unwrap()
    };
    let (first, second) = (request_id(), request_id());
    let guesses = Entropy::new(splitmix64_state(first));
    assert!((0..10_000).all(|_| guesses.next_u64() != second));
    let own = Entropy::new(7);
    assert_eq!(Entropy::new(splitmix64_state(own.next_u64())).next_u64(), own.next_u64(), "the guess works");
}

/// Returns the state of SplitMix64 after it has returned a number.
fn splitmix64_state(number: u64) -> u64 {
    let unshift = |mut z: u64, by: u32| {
        let mixed = z;
        for _ in 0..64 / by {
            z = mixed ^ (z >> by);
        }
        z
    };
    let z = unshift(number, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = unshift(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    unshift(z, 30)
}

/// Returns operation, bucket, key and status of a line, after a check of the rest.
fn described(line: &str, format: &str) -> String {
    if format == "json" {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        assert_eq!((text("user"), text("peer")), (KEY.to_owned(), "127.0.0.1".to_owned()), "{line}");
        return format!("{} {} {} {}", text("operation"), text("bucket"), text("key"), line["status"]);
    }
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words.len(), words[1], words[2]), (12, "127.0.0.1", KEY), "{line}");
    format!("{} {} {} {}", words[4], words[5], words[6].replace("%20", " "), words[7])
}
