//! An object drive on a file: formatted, served, killed, served again, mounted and inspected.

use crate::endpoint::{KEY, SECRET};
use crate::fixture::{Home, capture, eventually, tenon};
use crate::kills::rounds;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

/// A `tenon serve` process and its URL. Dropping it kills the process.
pub(crate) struct ServeProcess(pub(crate) Child, pub(crate) String);

impl Drop for ServeProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Home {
    fn with_drive(self) -> Self {
        self.ok(["drive", "format", "drive.img", "--size", "64MiB"]);
        self
    }

    /// Makes a drive with a bucket, and mounts the drive.
    fn with_mounted_bucket(self, bucket: &str) -> Self {
        let home = self.with_users().with_drive();
        let serving = home.serve_drive();
        home.boto3(&serving.1, &format!("s3.create_bucket(Bucket='{bucket}')"));
        drop(serving);
        home.ok(["mount", &home.drive(), "mnt"]);
        home
    }

    fn drive(&self) -> String {
        format!("drive://{}", self.path("drive.img").display())
    }

    fn serve_drive(&self) -> ServeProcess {
        self.serve(&self.drive(), &[])
    }

    /// Serves a volume until the returned value is dropped.
    pub(crate) fn serve(&self, volume: &str, flags: &[&str]) -> ServeProcess {
        let mut command = self.command(tenon());
        command.args(["serve", volume, "--listen", "127.0.0.1:0", "--users", "users.toml"]).args(flags);
        let mut serving = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(serving.stdout.take().unwrap()).read_line(&mut url).unwrap();
        ServeProcess(serving, url.trim().to_owned())
    }

    /// Changes one byte of the object 'large'.
    fn damage_large(&self) {
        let image = fs::read(self.path("drive.img")).unwrap();
        let at = image.windows(32).position(|window| window == b"0123456789abcdef0123456789abcdef").unwrap();
        let file = OpenOptions::new().write(true).open(self.path("drive.img")).unwrap();
        file.write_all_at(b"!", at as u64 + 5000).unwrap();
    }

    /// Runs a boto3 program with an endpoint.
    pub(crate) fn boto3(&self, url: &str, program: &str) {
        let mut script = self.command("/usr/bin/python3");
        let program = format!(
            "import boto3, os\ns3 = boto3.client('s3', endpoint_url=os.environ['URL'], region_name='us-east-1')\n{program}"
        );
        script.args(["-c", &program]).env("URL", url);
        let outcome = capture(script.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET));
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
}

/// Program that stores objects of every kind.
pub(crate) const STORE: &str = "
s3.create_bucket(Bucket='photos')
s3.put_object(Bucket='photos', Key='small', Body=b'kept', Metadata={'by': 'tests'}, Tagging='a=b')
s3.put_object(Bucket='photos', Key='large', Body=b'0123456789abcdef' * 100_000)
upload = s3.create_multipart_upload(Bucket='photos', Key='joined')['UploadId']
sizes = [5 << 20, 1000]
parts = [s3.upload_part(Bucket='photos', Key='joined', UploadId=upload, PartNumber=n, Body=b'x' * size) for n, size in enumerate(sizes, 1)]
parts = [{'PartNumber': n, 'ETag': part['ETag']} for n, part in enumerate(parts, 1)]
s3.complete_multipart_upload(Bucket='photos', Key='joined', UploadId=upload, MultipartUpload={'Parts': parts})
s3.put_object(Bucket='photos', Key='gone', Body=b'')
s3.delete_object(Bucket='photos', Key='gone')
";

/// Program that asserts that these objects are there.
pub(crate) const COMPARE: &str = "
assert [o['Key'] for o in s3.list_objects_v2(Bucket='photos')['Contents']] == ['joined', 'large', 'small']
small = s3.get_object(Bucket='photos', Key='small')
assert small['Body'].read() == b'kept' and small['Metadata'] == {'by': 'tests'}
assert s3.get_object_tagging(Bucket='photos', Key='small')['TagSet'] == [{'Key': 'a', 'Value': 'b'}]
assert s3.get_object(Bucket='photos', Key='large', Range='bytes=70000-70003')['Body'].read() == b'0123'
assert s3.get_object(Bucket='photos', Key='joined')['Body'].read() == b'x' * ((5 << 20) + 1000)
";

#[test]
fn a_killed_drive_has_what_it_acknowledged() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    home.boto3(&serving.1, COMPARE);
    let refused = home.refused(["drive", "info", "drive.img"]);
    assert!(refused.contains("is locked by another process"), "{refused}");
    drop(serving);
    home.boto3(&home.serve_drive().1, COMPARE);
    let info: serde_json::Value =
        serde_json::from_str(&home.ok(["drive", "info", "drive.img", "--json"])).unwrap();
    assert_eq!(info["len_bytes"], 64 << 20);
    assert!(home.ok(["drive", "map", "drive.img"]).contains('.'));
    assert!(home.ok(["drive", "check", "drive.img"]).ends_with(" 0 problems\n"));
    assert!(home.ok(["drive", "scrub", "drive.img"]).ends_with("0 damaged\n"));
}

/// boto3 sends an MD5 by default; a plain PUT to a presigned URL does not.
const WITH_AND_WITHOUT_MD5: &str = "
import botocore.config, hashlib, urllib.request
config = botocore.config.Config(signature_version='s3v4')
signing = boto3.client('s3', endpoint_url=os.environ['URL'], region_name='us-east-1', config=config)
def md5(body): return hashlib.md5(body).hexdigest()
def etag(key): return s3.head_object(Bucket='photos', Key=key)['ETag'].strip('\"')
def plain(key, body):
    url = signing.generate_presigned_url('put_object', Params={'Bucket': 'photos', 'Key': key})
    return urllib.request.urlopen(urllib.request.Request(url, data=body, method='PUT')).headers['ETag'].strip('\"')
bodies = {'small': b'bytes', 'large': b'0123456789abcdef' * 100_000, 'long': b'0123456789abcdef' * 1_000_000}
";

#[test]
fn s315_an_md5_is_the_etag_if_the_client_sends_it_or_with_the_flag() {
    let home = Home::new().with_users().with_drive();
    let sent = "
import base64
s3.create_bucket(Bucket='photos')
for key, body in bodies.items():
    own = plain(key, body)
    assert len(own) == 34 and own.endswith('-1') and own != plain(key, body), own
    sent = base64.b64encode(hashlib.md5(body).digest()).decode()
    s3.put_object(Bucket='photos', Key=key, Body=body, ContentMD5=sent)
    s3.copy_object(Bucket='photos', Key='copy', CopySource={'Bucket': 'photos', 'Key': key})
    assert etag(key) == etag('copy') == md5(body)
    assert s3.get_object(Bucket='photos', Key='copy', IfMatch=md5(body))['Body'].read() == body
";
    home.boto3(&home.serve_drive().1, &[WITH_AND_WITHOUT_MD5, sent].concat());
    let computed = "
for key, body in bodies.items():
    assert etag(key) == md5(body)
    assert plain('new', body) == md5(body) == etag('new')
";
    let serving = home.serve(&home.drive(), &["--md5", "--memory-limit", "64MiB"]);
    home.boto3(&serving.1, &[WITH_AND_WITHOUT_MD5, computed].concat());
}

/// Sends each part twice. boto3 sends an MD5, a plain PUT to a presigned URL does not.
const UPLOAD_TWICE: &str = "
def upload(key, sends_md5):
    about = {'Bucket': 'photos', 'Key': key}
    about['UploadId'] = s3.create_multipart_upload(**about)['UploadId']
    parts = []
    for number, body in enumerate([b'x' * (5 << 20), b'y' * (6 << 20), b'end'], 1):
        def send():
            named = {**about, 'PartNumber': number}
            if sends_md5:
                sent = base64.b64encode(hashlib.md5(body).digest()).decode()
                return s3.upload_part(Body=body, ContentMD5=sent, **named)['ETag']
            url = signing.generate_presigned_url('upload_part', Params=named)
            return urllib.request.urlopen(urllib.request.Request(url, data=body, method='PUT')).headers['ETag']
        first = send()
        assert send() == first
        parts.append({'PartNumber': number, 'ETag': first})
    listed = s3.list_parts(**about)['Parts']
    assert [part['ETag'] for part in listed] == [part['ETag'] for part in parts], listed
    done = s3.complete_multipart_upload(MultipartUpload={'Parts': parts}, **about)['ETag'].strip('\"')
    assert etag(key) == done and done.endswith('-3'), done
    whole = s3.get_object(Bucket='photos', Key=key, IfMatch=done)['Body'].read()
    assert whole == b'x' * (5 << 20) + b'y' * (6 << 20) + b'end'
    return [part['ETag'].strip('\"') for part in parts], done
md5s = [hashlib.md5(body) for body in [b'x' * (5 << 20), b'y' * (6 << 20), b'end']]
by_md5 = [one.hexdigest() for one in md5s], md5(b''.join(one.digest() for one in md5s)) + '-3'
import base64
";

/// Regression: a part that was sent twice had two etags, and the object's etag ended in `-1` however many parts it
/// had, so clients that compare etags found a difference.
#[test]
fn s554_the_etag_of_an_upload_in_parts_is_as_in_s3() {
    let home = Home::new().with_users().with_drive();
    home.ok(["format", "volume", "--naming", "inode"]);
    let compare = "
assert upload('declared', True) == by_md5
plain = upload('plain', False)
assert (plain == by_md5) == (os.environ['URL'] in computing), plain
assert (upload('again', False)[1] == plain[1]) == (plain == by_md5)
";
    let drive = home.drive();
    let volumes: [(&str, &[&str]); 2] = [(&drive, &[]), ("volume", &["--directories-as-buckets"])];
    for (volume, flags) in volumes {
        for computes in [false, true] {
            let more: &[&str] = if computes { &["--md5"] } else { &[] };
            let serving = home.serve(volume, &[flags, more].concat());
            if !computes {
                home.boto3(&serving.1, "s3.create_bucket(Bucket='photos')");
            }
            let computing = if computes { "computing = [os.environ['URL']]" } else { "computing = []" };
            home.boto3(&serving.1, &[WITH_AND_WITHOUT_MD5, UPLOAD_TWICE, computing, compare].concat());
        }
    }
}

#[test]
fn a_drive_is_mounted_as_directories() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    drop(serving);
    home.ok(["mount", &home.drive(), "mnt"]);
    let photos = home.mnt().join("photos");
    assert_eq!(fs::read(photos.join("small")).unwrap(), b"kept");
    fs::write(photos.join("from-a-program"), "bytes").unwrap();
    home.ok(["umount", "mnt"]);
    home.boto3(
        &home.serve_drive().1,
        "assert s3.get_object(Bucket='photos', Key='from-a-program')['Body'].read() == b'bytes'",
    );
}

/// Regression: the last entry of a bucket could not be removed, because the bucket's directory has no marker object; and after a
/// chmod of that directory, fsync and umount always failed.
#[test]
fn the_last_entry_of_a_mounted_bucket_is_removed() {
    let home = Home::new().with_mounted_bucket("photos");
    let (drive, bucket) = (home.mnt(), home.mnt().join("photos"));
    for _ in 0..2 {
        fs::create_dir(bucket.join("directory")).unwrap();
        fs::write(bucket.join("directory/file"), "content").unwrap();
        fs::remove_file(bucket.join("directory/file")).unwrap();
        fs::remove_dir(bucket.join("directory")).unwrap();
        fs::write(bucket.join("file"), "content").unwrap();
        fs::remove_file(bucket.join("file")).unwrap();
        assert_eq!(fs::read_dir(&bucket).unwrap().count(), 0);
        assert!(bucket.is_dir(), "the bucket stays");
    }
    let refused = fs::create_dir(drive.join("another")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    // Attributes of the bucket's directory have no place in the bucket, and do not keep anything else from being stored.
    fs::set_permissions(&bucket, fs::Permissions::from_mode(0o711)).unwrap();
    let synced = fs::File::create(bucket.join("synced")).unwrap();
    synced.sync_all().unwrap();
    drop(synced);
    assert_eq!(fs::metadata(&bucket).unwrap().permissions().mode() & 0o777, 0o711);
    home.ok(["umount", "mnt"]);
}

/// Regression: in a bucket of a drive, an fsync of a small change and writes to a file without a name failed with EACCES.
#[test]
fn a_database_runs_in_a_bucket_of_a_drive() {
    let home = Home::new().with_mounted_bucket("data");
    let file = home.mnt().join("data/db");
    let script = r#"
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE t (n INTEGER, s TEXT)")
for round in range(20):
    db.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 1000) for n in range(500)])
    db.execute("DELETE FROM t WHERE n % 7 = ?", (round % 7,))
    db.commit()
assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
print(db.execute("SELECT count(*), sum(n) FROM t").fetchone())
db.close()
removed = open(sys.argv[1] + ".removed", "w+b")
os.unlink(removed.name)
removed.write(b"text")
removed.flush()
os.fsync(removed.fileno())
removed.seek(0)
assert removed.read() == b"text"
"#;
    let run = |script: &str| {
        let output = Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let rows = run(script);
    home.ok(["umount", "mnt"]);
    home.ok(["gc", &home.drive()]);
    home.ok(["mount", &home.drive(), "mnt"]);
    let count = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*), sum(n) FROM t').fetchone())";
    assert_eq!(run(count), rows);
    home.ok(["umount", "mnt"]);
    let serving = home.serve_drive();
    home.boto3(
        &serving.1,
        "assert [o['Key'] for o in s3.list_objects_v2(Bucket='data')['Contents']] == ['db']",
    );
}

/// Regression: `--conflict` had no effect in mounts of several buckets, and the other side of a conflict could not be kept.
#[test]
fn s55_the_conflict_policy_of_several_buckets_is_that_of_the_mount() {
    let home = Home::new();
    fs::create_dir_all(home.path("buckets/data")).unwrap();
    let volume = format!("dirs://{}", home.path("buckets").display());
    home.ok(["mount", &volume, "mnt", "--conflict", "file-wins"]);
    let mut file = fs::File::create(home.mnt().join("data/file")).unwrap();
    file.write_all(b"ours").unwrap();
    fs::write(home.path("buckets/data/file"), "theirs").unwrap();
    drop(file);
    eventually("the file is stored", || {
        fs::read(home.path("buckets/data/file")).is_ok_and(|text| text == b"ours")
    });
    // An entry keeps its directory open.
    let lost = fs::read_dir(home.mnt().join("data/lost+found")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read(lost).unwrap(), b"theirs");
    home.ok(["umount", "mnt"]);
}

/// Regression: a drive took half a GiB in addition to the memory limit of the mount.
#[test]
fn s329_a_mount_and_its_drive_stay_within_the_memory_limit() {
    let home = Home::new();
    home.ok(["format", "--drive", "vol", "--size", "512MiB"]);
    let mount = || home.ok(["mount", "--memory-limit", "128MiB", "vol", "mnt"]);
    mount();
    let bytes: Vec<u8> =
        (0..16 << 20).map(|at: u32| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    for number in 0..20 {
        fs::write(home.mnt().join(number.to_string()), &bytes).unwrap();
    }
    home.ok(["umount", "mnt"]);
    mount();
    for number in 0..20 {
        assert!(fs::read(home.mnt().join(number.to_string())).unwrap() == bytes);
    }
    let peak = home.peak_bytes();
    assert!(peak < 200 << 20, "{} MiB", peak >> 20);
    home.ok(["umount", "mnt"]);
}

#[test]
fn foreign_devices_are_refused_and_unchanged() {
    let home = Home::new();
    fs::write(home.path("precious.img"), vec![7; 64 << 20]).unwrap();
    assert!(home.refused(["drive", "info", "precious.img"]).contains("not a drive"));
    assert!(home.refused(["drive", "format", "precious.img"]).contains("--force"));
    assert!(home.refused(["drive", "format", "precious.img", "--size", "1GiB"]).contains("already exists"));
    assert!(home.refused(["drive", "format", "tiny.img", "--size", "1MiB"]).contains("too small"));
    assert_eq!(fs::read(home.path("precious.img")).unwrap(), vec![7; 64 << 20]);
}

#[test]
fn damage_is_found_by_a_scrub() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    drop(serving);
    home.serve_drive();
    home.damage_large();
    let output = home.tenon(["drive", "scrub", "drive.img"]);
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.out.contains("'large'"), "{output:?}");
}

#[test]
fn s328_an_export_makes_directories_of_buckets_and_resumes() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    let refused = home.refused(["drive", "export", "drive.img", "out"]);
    assert!(refused.contains("is locked by another process"), "{refused}");
    drop(serving);
    let output = home.ok(["drive", "export", "drive.img", "out"]);
    assert!(output.contains("3 objects, 6 MiB copied; 0 already exported; 0 left out"), "{output}");
    assert_eq!(fs::read(home.path("out/photos/small")).unwrap(), b"kept");
    home.boto3(&home.serve(&format!("dirs://{}", home.path("out").display()), &[]).1, COMPARE);
    fs::remove_file(home.path("out/photos/large")).unwrap();
    fs::write(home.path("out/photos/small"), "changed there, and longer").unwrap();
    let output = home.ok(["drive", "export", "drive.img", "out", "--bucket", "photos"]);
    assert!(output.contains("2 objects, 1 MiB copied; 1 already exported; 0 left out"), "{output}");
    home.boto3(&home.serve(&format!("dirs://{}", home.path("out").display()), &[]).1, COMPARE);
    assert!(home.refused(["drive", "export", "drive.img", "out", "--bucket", "absent"]).contains("absent"));
}

#[test]
fn s328_damaged_objects_are_reported_and_left_out_of_an_export() {
    let home = Home::new().with_users().with_drive();
    let serving = home.serve_drive();
    home.boto3(&serving.1, STORE);
    drop(serving);
    home.damage_large();
    let output = home.tenon(["drive", "export", "drive.img", "out"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("photos: 'large'") && output.out.contains("1 left out"), "{output:?}");
    assert_eq!(fs::read(home.path("out/photos/small")).unwrap(), b"kept");
    assert!(!home.path("out/photos/large").exists());
}

/// Clients store, copy, join and delete while the server is killed repeatedly; `tests/clients/drive.py` checks what
/// must be there.
#[test]
fn s317_killed_at_any_moment_a_drives_server_has_what_it_acknowledged() {
    let home = Home::new();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/drive.py");
    let mut kills = home.command("/usr/bin/python3");
    kills.arg(script).args(["kills", "drive.img", &rounds().to_string(), "1"]).env("TENON", tenon());
    let outcome = capture(&mut kills);
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

/// Regression: `drive format a b` took files that `drive info a b` called unexpected, and `a,b` had to be absolute
/// paths.
#[test]
fn drive_info_takes_what_drive_format_takes() {
    let home = Home::new();
    home.ok(["drive", "format", "a", "b", "c", "--parity", "1", "--size", "64MiB"]);
    let info = home.ok(["drive", "info", "a", "b", "c", "--json"]);
    for words in [&["a,b,c"][..], &["./c,./a,b"], &["c", "b", "a"]] {
        assert_eq!(home.ok([&["drive", "info", "--json"], words].concat()), info, "{words:?}");
    }
    let hint = home.refused(["format", "volume", "--state-dir", "x"]);
    assert!(hint.contains("--state-dir") && !hint.contains("as a value"), "{hint}");
}
