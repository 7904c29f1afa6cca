//! Conflicts on a real server: a program writes in the mount while boto3 puts the same object.

use crate::fixture::{Home, capture};
use crate::s3::{home, new_bucket};
use std::fs;

/// A program that has a file open while another client puts the same object. Prints the error numbers of its fsync,
/// its close and the next open for writing. It runs in a process of its own: forks of the test would close copies of
/// its descriptors, and a close stores.
const RACE: &str = r#"
import boto3, os, sys
bucket, mnt, key = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
def outcome(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0
file = os.open(f"{mnt}/{key}", os.O_WRONLY | os.O_CREAT)
os.write(file, b"ours")
s3.put_object(Bucket=bucket, Key=key, Body=b"theirs")
path = f"{mnt}/{key}"
print(outcome(os.fsync, file), outcome(os.close, file), outcome(lambda: os.close(os.open(path, os.O_WRONLY))))
"#;

impl Home {
    pub(crate) fn race(&self, bucket: &str, key: &str) -> String {
        let output =
            capture(self.command("/usr/bin/python3").args(["-c", RACE, bucket, &self.text("mnt"), key]));
        assert_eq!(output.code, 0, "{output:?}");
        output.out.trim_end().to_owned()
    }

    /// Returns the only conflict of a volume or a mount.
    fn conflict(&self, of: &str) -> serde_json::Value {
        let listed = self.ok(["conflicts", "list", "--json", of]);
        assert_eq!(listed.lines().count(), 1, "{listed}");
        serde_json::from_str(&listed).unwrap()
    }
}

#[test]
fn s52_s55_the_policy_decides_which_side_has_the_name() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "conflicts");
    let url = format!("s3://{bucket}");
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    for (policy, outcome) in
        [("bucket-wins", "116 0 0"), ("file-wins", "0 0 0"), ("keep-both", "0 0 0"), ("fail", "116 116 116")]
    {
        home.ok(["mount", &url, "mnt", "--metadata-ttl=0s", "--conflict", policy]);
        assert_eq!(home.status()["conflict_policy"], policy);
        let path = home.mnt().join(format!("{policy}.txt"));
        assert_eq!(home.race(&bucket, &format!("{policy}.txt")), outcome, "{policy}");
        let has_name = if policy == "file-wins" { "ours" } else { "theirs" };
        assert_eq!(fs::read_to_string(&path).unwrap(), has_name, "{policy}");
        let conflict = home.conflict("mnt");
        assert_eq!(conflict["path"], format!("{policy}.txt"));
        assert_eq!(conflict["policy"], policy);
        assert_eq!(home.status()["conflicts"], 1);
        let id = conflict["id"].as_str().unwrap();
        let shown = home.ok(["conflicts", "show", id]);
        assert!(shown.contains("bucket's bytes") && shown.contains(policy), "{shown}");
        assert!(home.refused(["conflicts", "show", "nonsense"]).contains("no mount has a conflict"));
        let output = home.ok(["conflicts", "resolve", id, "--keep", "both"]);
        assert_eq!(output, format!("resolved the conflict of {policy}.txt\n"));
        assert_eq!(home.ok(["conflicts", "list", "mnt"]), "mnt has no conflicts\n");
        let copies = fs::read_dir(home.mnt()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
            name.starts_with(&format!("{policy}.conflict-")) && name.ends_with(".txt")
        });
        assert_eq!(copies.count(), 1, "{policy}");
        home.ok(["umount", "mnt"]);
    }
    home.ok(["mount", &url, "mnt"]);
    assert_eq!(home.status()["conflict_policy"], "fail", "the volume remembers");
}

#[test]
fn s55_conflicts_are_resolved_without_a_mount() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "unmounted-conflicts");
    let url = format!("s3://{bucket}");
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    assert!(home.ok(["format", &url, "--conflict", "fail"]).starts_with("made the volume"));
    assert_eq!(home.ok(["conflicts", "list", &url]), format!("{url} has no conflicts\n"));
    home.ok(["mount", &url, "mnt", "--metadata-ttl=0s"]);
    assert_eq!(home.race(&bucket, "file"), "116 116 116");
    home.ok(["umount", "mnt"]);
    let id = home.conflict(&url)["id"].as_str().unwrap().to_owned();
    home.ok(["conflicts", "resolve", &id, "--keep", "file", "--of", &url]);
    assert_eq!(home.ok(["object", "get", &format!("{url}/file")]), "ours");
    home.ok(["mount", &url, "mnt"]);
    assert_eq!(fs::read_to_string(home.mnt().join("file")).unwrap(), "ours");
    fs::write(home.mnt().join("file"), "it is free again").unwrap();
    assert_eq!(home.ok(["conflicts", "list", "mnt"]), "mnt has no conflicts\n");
}

#[test]
fn s55_volumes_named_by_inode_have_no_conflicts() {
    let home = Home::new();
    let refused = home.refused(["format", "volume", "--naming", "inode", "--conflict", "fail"]);
    assert!(refused.contains("has no conflicts"), "{refused}");
    home.ok(["format", "volume", "--naming", "inode"]);
    assert!(home.refused(["mount", "volume", "mnt", "--conflict", "file-wins"]).contains("has no conflicts"));
}
