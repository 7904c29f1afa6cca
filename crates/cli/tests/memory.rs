//! The memory limit, compared with the resident memory of the shipped process as the kernel counts it.

use crate::drives::ServeProcess;
use crate::fixture::{Home, capture, peak_bytes_without_program, tenon};
use crate::s3::{home, new_bucket};
use meta::{
    Content, Dentry, EngineError, Ino, Inode, KeyRange, Kind, Moment, Name, Reader, Rows, Seqno, Versioned,
    codec, schema,
};
use servers::Mode;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Bound;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use store::Timestamp;

const LIMIT_MIB: u64 = 128;
const LIMIT: &str = "--memory-limit=128MiB";

/// Limit of a load in the test, whose names would take more if all of them were in memory.
const LOAD_LIMIT_MIB: u64 = 160;

/// Program that uploads by 100 connections at the same time: objects of 5 MiB, then objects in two parts of that
/// size.
const UPLOADS: &str = "
import io
from botocore.config import Config
from concurrent.futures import ThreadPoolExecutor
config = Config(max_pool_connections=120, retries={'max_attempts': 20, 'mode': 'adaptive'})
s3 = boto3.client('s3', endpoint_url=os.environ['URL'], region_name='us-east-1', config=config)
bucket = ([each['Name'] for each in s3.list_buckets()['Buckets']] or ['uploads'])[0]
if bucket == 'uploads':
    s3.create_bucket(Bucket=bucket)
body = os.urandom(1 << 20) * 5
def put(n):
    s3.put_object(Bucket=bucket, Key=str(n), Body=io.BytesIO(body))
def put_parts(n):
    names = {'Bucket': bucket, 'Key': f'parts-{n}'}
    upload = {'UploadId': s3.create_multipart_upload(**names)['UploadId'], **names}
    tags = [s3.upload_part(**upload, PartNumber=k, Body=io.BytesIO(body))['ETag'] for k in (1, 2)]
    parts = [{'PartNumber': k, 'ETag': tag} for k, tag in enumerate(tags, 1)]
    s3.complete_multipart_upload(**upload, MultipartUpload={'Parts': parts})
with ThreadPoolExecutor(100) as pool:
    list(pool.map(put, range(100)))
    list(pool.map(put_parts, range(12)))
got = s3.get_object(Bucket=bucket, Key='7')['Body'].read()
assert got == body
";

fn assert_within_limit(what: &str, pid: u32) {
    assert_peak(what, pid, LIMIT_MIB);
}

fn assert_peak(what: &str, pid: u32, peak_max_mib: u64) {
    let peak_mib = peak_bytes_without_program(pid) >> 20;
    println!("{what}: peak {peak_mib} MiB of {peak_max_mib}");
    assert!(peak_mib <= peak_max_mib, "{what}: {peak_mib} MiB");
}

/// Regression: outside tests found 1,052 MiB at a limit of 128 MiB with parallel uploads.
#[test]
fn s575_parallel_uploads_stay_within_the_memory_limit() {
    let over_drive = Home::new().with_users();
    over_drive.ok(["drive", "format", "drive.img", "--size", "2GiB"]);
    let ServeProcess(serving, url) =
        &over_drive.serve(&format!("drive://{}", over_drive.text("drive.img")), &[LIMIT]);
    over_drive.boto3(url, UPLOADS);
    assert_within_limit("over a drive", serving.id());

    let server = servers::shared_minio();
    for (what, naming) in [("over S3", "file-path"), ("over S3, by inode", "inode")] {
        let over_s3 = home(server).with_users().with("AWS_ENDPOINT_URL", &server.endpoint());
        let volume = format!("s3://{}", new_bucket(server, &format!("memory-uploads-{naming}")));
        if naming == "inode" {
            over_s3.ok(["format", &volume, "--naming", "inode"]);
        }
        let ServeProcess(serving, url) = &over_s3.serve(&volume, &[LIMIT]);
        over_s3.boto3(url, UPLOADS);
        assert_within_limit(what, serving.id());
    }
}

/// Each writer that waits for a store holds a MiB of its own in the daemon.
#[test]
fn s575_writers_that_wait_for_a_store_stay_within_the_memory_limit() {
    let server = servers::shared_minio();
    let volume = format!("s3://{}", new_bucket(server, "memory-writers"));
    let proxy = servers::proxy(&server.endpoint());
    let home = home(server).with("AWS_ENDPOINT_URL", &proxy.endpoint());
    home.ok(["mount", &volume, "mnt", "--retry-timeout=2s", LIMIT]);
    let (pid, mnt) = (home.pid(), home.mnt());
    let files: Vec<File> =
        (0..200).map(|number| File::create(mnt.join(number.to_string())).unwrap()).collect();
    proxy.set(Mode::BlackHole);
    thread::scope(|scope| {
        for mut file in files {
            // An outage makes writes fail, which is not tested here.
            scope.spawn(move || (0..4).try_for_each(|_| file.write_all(&[7; 1 << 20])));
        }
    });
    proxy.set(Mode::Pass);
    assert_within_limit("200 writers", pid);
    capture(home.command("/bin/sh").args(["-c", "sync mnt"]));
    home.ok(["umount", "--lazy", "mnt"]);
}

const OBJECTS: usize = 200_000;

/// Memory that does not depend on the limit: the program's own data, stacks, a window of the directory store's names, and what the
/// allocator has free.
const BASE_MIB: u64 = 24;

/// Regression: malloc counted 900 bytes in use for each listed object, and 240 were accounted for. Most of the rest were records of the
/// event handler's log, and buffers that kept their capacity.
#[test]
fn s130_s540_a_mount_with_full_views_stays_within_the_memory_limit() {
    let home = Home::new();
    let flat = home.path("bucket/flat");
    fs::create_dir_all(&flat).unwrap();
    (0..OBJECTS).for_each(|number| drop(File::create(flat.join(format!("{number:055}"))).unwrap()));
    fs::write(home.path("rules.yaml"), "all:\n  container: bucket\n").unwrap();
    let volume = format!("file://{}", home.text("bucket"));
    home.ok(["mount", "--views", "rules.yaml", &volume, "mnt", LIMIT]);
    let shell = |line: &str| {
        let done = capture(home.command("/bin/sh").args(["-ec", line]));
        assert_eq!(done.code, 0, "{line}: {done:?}");
        done.out.trim().to_owned()
    };
    assert_eq!(shell("ls -f mnt/.views/all | wc -l"), (OBJECTS + 2).to_string());
    let views_bytes = home.status()["views_bytes"].as_u64().unwrap();
    assert!(views_bytes > LIMIT_MIB * (1 << 20) / 4, "{views_bytes} bytes");
    assert_eq!(shell("find mnt/flat -type f -size 0 | wc -l"), OBJECTS.to_string());
    shell("head -c 150M /dev/zero > mnt/large; cp mnt/large mnt/copy; cat mnt/copy > /dev/null");
    assert_eq!(shell("find mnt/flat -type f -size 0 | wc -l"), OBJECTS.to_string());
    assert_peak("views and files", home.pid(), LIMIT_MIB + BASE_MIB);
    home.ok(["umount", "mnt"]);
}

/// The records of a volume with empty files in directories of 1,000, made while they are read once in order.
struct ManyNames {
    files: u64,
    next: AtomicU64,
}

impl ManyNames {
    fn dirs(&self) -> u64 {
        self.files / 1000
    }

    /// Returns a record; `None` after the last one.
    fn row(&self, index: u64) -> Option<(Vec<u8>, Vec<u8>)> {
        let (files, dirs) = (self.files, self.dirs());
        let name = |text: String| Name::new(text.as_bytes()).unwrap();
        let (dir_name, file_name) =
            (|dir| name(format!("dir {dir:06}")), |file| name(format!("file of a test {file:08}")));
        let (dir_ino, file_ino) = (|dir| Ino(2 + dir), |file| Ino(2 + dirs + file));
        let dentry = |dir, name: &Name, ino, kind| {
            Some((schema::dentry(dir, name), codec::encode_dentry(Dentry { ino, kind })))
        };
        let inode = |ino, kind, nlink, home| {
            Some((schema::inode(ino), codec::encode_inode(&empty_inode(ino, kind, nlink, home))))
        };
        let counts = [dirs, files, 1, dirs, files, 1];
        let (mut family, mut at) = (0, index);
        while at >= *counts.get(family)? {
            at -= counts[family];
            family += 1;
        }
        match family {
            0 => dentry(Ino::ROOT, &dir_name(at), dir_ino(at), Kind::Directory),
            1 => dentry(dir_ino(at / 1000), &file_name(at), file_ino(at), Kind::File),
            2 => inode(Ino::ROOT, Kind::Directory, 2 + dirs as u32, None),
            3 => inode(dir_ino(at), Kind::Directory, 2, Some((Ino::ROOT, dir_name(at)))),
            4 => inode(file_ino(at), Kind::File, 1, Some((dir_ino(at / 1000), file_name(at)))),
            _ => Some((schema::next_ino(), codec::encode_number(1 << 40))),
        }
    }
}

fn empty_inode(ino: Ino, kind: Kind, nlink: u32, home: Option<(Ino, Name)>) -> Inode {
    let time = Timestamp(7);
    Inode {
        ino,
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink,
        rdev: 0,
        size_bytes: 0,
        mtime: time,
        ctime: time,
        atime: time,
        btime: time,
        observed_at: Moment::default(),
        exact: true,
        home,
        target: None,
        content: Content::Inline(Vec::new()),
    }
}

impl Reader for ManyNames {
    fn get(&self, _key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        unreachable!("a dump scans")
    }

    fn multi_get(&self, _keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        unreachable!("a dump scans")
    }

    fn scan(&self, _from: Bound<&[u8]>, _to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let first = self.next.fetch_add(limit as u64, Ordering::Relaxed);
        let rows = (first..).map_while(|index| self.row(index)).take(limit);
        Ok(rows.map(|(key, value)| (key, Versioned { value: value.into(), version: Seqno(1) })).collect())
    }

    fn last(&self, _range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        unreachable!("a dump scans")
    }
}

/// Runs a command to its end. Returns the peak of its resident memory without its program, in MiB.
fn peak_of_command(home: &Home, words: &[&str]) -> u64 {
    let mut command = home.command(tenon());
    let mut child = command.args(words).stdout(Stdio::null()).spawn().unwrap();
    let (status_file, mut peak) = (format!("/proc/{}/status", child.id()), 0);
    loop {
        let status = fs::read_to_string(&status_file).unwrap_or_default();
        let value = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        if let (Some(anonymous), Some(files)) = (value("RssAnon:"), value("RssShmem:")) {
            peak = peak.max((anonymous + files) >> 10);
        }
        match child.try_wait().unwrap() {
            Some(ended) => {
                assert!(ended.success(), "{ended}");
                return peak;
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Regression: a load had all names in memory, 1,139 MiB for 1,000,000 files. `TENON_TEST_NAMES=1000000` asks for as many.
#[test]
#[expect(clippy::disallowed_methods, reason = "its size may be asked for")]
fn s683_a_load_does_not_have_all_names_in_memory() {
    let files = std::env::var("TENON_TEST_NAMES").map_or(150_000, |count| count.parse().unwrap());
    let home = Home::new();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt"]);
    home.ok(["umount", "mnt"]);
    home.ok(["dump", "volume", "empty"]);
    let about = backup::dump::DumpReader::open(File::open(home.path("empty")).unwrap()).unwrap();
    let about = about.header().about.clone();
    fs::remove_dir_all(home.path("volume/state")).unwrap();
    let names = ManyNames { files, next: AtomicU64::new(0) };
    let sink = File::create(home.path("names")).unwrap();
    let records = backup::dump::write(&names, about, Timestamp(7), sink, |_| {}).unwrap();
    assert_eq!(records, 2 * (files + names.dirs()) + 2);
    let peak = peak_of_command(&home, &["load", "names", "volume"]);
    println!("load of {files} files: peak {peak} MiB");
    assert!(peak < LOAD_LIMIT_MIB, "{peak} MiB");
    assert!(home.ok(["fsck", "volume"]).contains("is clean"));
}
