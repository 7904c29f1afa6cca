//! Usual programs on a real server: data that goes in comes out again, also from a mount without any state.

use crate::fixture::{Home, capture, eventually};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const DIRECTORIES: usize = 50;
const FILES_PER_DIRECTORY: usize = 100;

/// Makes 5,000 files, a program, and a symbolic link.
fn make_source(root: &Path) {
    let entropy = store::Entropy::new(5);
    for dir in 0..DIRECTORIES {
        let dir = root.join(format!("dir-{dir:02}/inside"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..FILES_PER_DIRECTORY {
            let words = entropy.below(300);
            let bytes: Vec<u8> = (0..words).flat_map(|_| entropy.next_u64().to_le_bytes()).collect();
            fs::write(dir.join(format!("file-{file:03}")), bytes).unwrap();
        }
    }
    fs::set_permissions(root.join("dir-00/inside/file-000"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("dir-01/inside", root.join("link")).unwrap();
}

impl Home {
    /// Runs a shell line in the home, which must succeed. Returns what it printed.
    pub(crate) fn shell(&self, line: &str) -> String {
        let output = capture(self.command("/bin/sh").args(["-ec", line]));
        assert_eq!(output.code, 0, "{line}: {output:?}");
        output.out
    }

    /// Returns type, mode, link target and SHA-256 of everything below a directory.
    fn sums(&self, dir: &str) -> String {
        self.shell(&format!(
            "cd {dir}; find . -mindepth 1 -printf '%y %m %p %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum"
        ))
    }
}

#[test]
fn tar_rsync_and_git_get_back_what_they_stored() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", crate::s3::new_bucket(server, "programs"));
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::create_dir(home.path("source")).unwrap();
    make_source(&home.path("source"));
    let source = home.sums("source");
    home.ok(["mount", &bucket, "mnt"]);

    home.shell("mkdir mnt/tar; tar -C source -cf - . | tar -C mnt/tar -xf -");
    assert!(home.sums("mnt/tar") == source);
    home.shell("mkdir back; tar -C mnt/tar -cf - . | tar -C back -xf -");
    assert!(home.sums("back") == source);

    home.shell("mkdir mnt/rsync; rsync -a source/dir-00 source/link mnt/rsync/");
    assert_eq!(home.shell("rsync -ani source/dir-00 source/link mnt/rsync/"), "");
    home.shell("mkdir again; rsync -a mnt/rsync/ again/");
    assert_eq!(home.sums("again"), home.sums("mnt/rsync"));

    home.shell("git init -q repo; cp -a source/dir-0* repo/; git -C repo add .");
    home.shell("git -C repo -c user.name=a -c user.email=a@b commit -qm all; git clone -q repo mnt/git");
    assert_eq!(home.shell("git -C mnt/git status --porcelain"), "");

    fs::write(home.path("client.py"), BOTO3).unwrap();
    let files = home.shell("cd source; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum");
    assert_eq!(files.lines().count(), DIRECTORIES * FILES_PER_DIRECTORY);
    let name = bucket.trim_start_matches("s3://");
    assert!(home.shell(&format!("python3 client.py {name} sums tar/")) == files, "the objects are the files");

    home.ok(["umount", "mnt"]);
    home.ok(["mount", &bucket, "mnt", "--state-dir", "fresh"]);
    assert!(home.sums("mnt/tar") == source);
    assert_eq!(home.shell("rsync -ani source/dir-00 source/link mnt/rsync/"), "");
    home.shell("git -C mnt/git fsck --no-dangling; git -C mnt/git status --porcelain");
    home.ok(["umount", "mnt"]);
}

/// A boto3 program that sums objects as `sha256sum` sums files, or stores, replaces and removes objects.
const BOTO3: &str = r#"
import hashlib, os, sys
from concurrent.futures import ThreadPoolExecutor
import boto3
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
bucket, step = sys.argv[1], sys.argv[2]
def sum(key):
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return f"{hashlib.sha256(body).hexdigest()}  ./{key[len(prefix):]}"
if step == "sums":
    prefix = sys.argv[3]
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [entry["Key"] for page in pages for entry in page["Contents"]]
    files = [key for key in keys if not key.endswith("/") and key != prefix + "link"]
    with ThreadPoolExecutor(8) as pool:
        print(*pool.map(sum, files), sep="\n")
if step == "change":
    s3.put_object(Bucket=bucket, Key="dir/new", Body=b"put by boto3")
    s3.put_object(Bucket=bucket, Key="dir/old", Body=b"replaced by boto3")
    s3.delete_object(Bucket=bucket, Key="dir/gone")
"#;

#[test]
fn boto3_and_the_mount_see_the_same() {
    let server = servers::shared_minio();
    let bucket = crate::s3::new_bucket(server, "boto3");
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("client.py"), BOTO3).unwrap();
    home.ok(["mount", &format!("s3://{bucket}"), "mnt", "--metadata-ttl=1s"]);
    home.shell("mkdir mnt/dir; seq 2000000 >mnt/dir/file; echo old >mnt/dir/old; echo gone >mnt/dir/gone");
    let by_file = home.shell("cd mnt/dir; sha256sum ./file ./gone ./old");
    assert_eq!(home.shell(&format!("python3 client.py {bucket} sums dir/")), by_file);

    home.shell(&format!("python3 client.py {bucket} change"));
    let shows = |name: &str, text: &str| {
        fs::read_to_string(home.mnt().join("dir").join(name)).is_ok_and(|t| t == text)
    };
    eventually("the new object is a file", || shows("new", "put by boto3"));
    eventually("the replaced object's bytes show", || shows("old", "replaced by boto3"));
    eventually("the removed object is not a file", || !home.mnt().join("dir/gone").exists());
    home.ok(["umount", "mnt"]);
}

#[test]
fn s110_s112_s113_a_program_that_writes_while_the_server_dies_gets_an_error() {
    let mut server = servers::minio();
    let bucket = format!("s3://{}", crate::s3::new_bucket(&server, "dies"));
    let home = crate::s3::home(&server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt", "--metadata-ttl=0s", "--retry-timeout=1s"]);
    let before = vec![7; 20 << 20];
    fs::write(home.mnt().join("before"), &before).unwrap();

    let mut during = fs::File::create(home.mnt().join("during")).unwrap();
    let piece = vec![8; 12 << 20];
    during.write_all(&piece).unwrap();
    server.stop();
    let outcome = during.write_all(&piece).and_then(|()| during.sync_all());
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(5));
    drop(during);

    server.restart();
    eventually("the mount works again", || {
        fs::read(home.mnt().join("before")).is_ok_and(|read| read == before)
    });
    fs::write(home.mnt().join("during"), &piece).unwrap();
    home.ok(["umount", "mnt"]);
    home.ok(["object", "get", &format!("{bucket}/during"), "copy"]);
    assert!(fs::read(home.path("copy")).unwrap() == piece);
}
