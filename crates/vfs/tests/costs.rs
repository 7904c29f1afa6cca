//! Costs that must not grow with the file, the directory or time, counted in records of the metadata, requests and bytes.
//!
//! `TENON_COSTS=full` runs them at full size, which takes minutes: up to 256,000 chunks, a million
//! entries, 100,000 deletions by another client, and 64,000 escaped names. With `--nocapture` the figures are printed.

use crate::disk::Disk;
use crate::objects::{key, keys, objects};
use crate::world::{Bucket, CALLER, CHUNKED, MIB, World, errno};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use meta::{Engine as _, Extent, LogCap, MemoryEngine, Moment, Namespace, Op, OpContext, Origin, Stored};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Attributes, ETag, Timestamp};
use vfs::{Ino, Kind};

/// Records that an operation may read or write more for a file with rows of extents than for one whose few extents are in its inode: the
/// extent before the change, the use count of its object, and the inode once more, with the rows that belong to it.
const ROWS_MORE: u64 = 3;

#[expect(clippy::disallowed_methods, reason = "the reader is a person at a shell")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn scale(small: usize, full: usize) -> usize {
    if variable("TENON_COSTS").is_some_and(|value| value == "full") { full } else { small }
}

/// The cost of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cost {
    what: &'static str,
    read: u64,
    written: u64,
    requests: u64,
    micros: u128,
}

impl Cost {
    async fn of<T>(
        what: &'static str,
        disk: &Disk,
        world: &World,
        work: impl Future<Output = vfs::Result<T>>,
    ) -> Self {
        let (before, begun) = (disk.records(), tokio::time::Instant::now());
        let (done, requests) = world.counting(work).await;
        done.unwrap();
        let (after, micros) = (disk.records(), begun.elapsed().as_micros());
        Self {
            what,
            read: after.0 - before.0,
            written: after.1 - before.1,
            requests: requests.total(),
            micros,
        }
    }

    /// Asserts that the cost is the same as that for another file, except for `records_more` records and for fewer requests.
    fn assert_within(&self, small: &Self, records_more: u64) {
        let has_few_records =
            self.read <= small.read + records_more && self.written <= small.written + records_more;
        assert!(has_few_records && self.requests <= small.requests, "{self:?}, {small:?} for a smaller file");
    }
}

fn print(title: &str, costs: &[Cost]) {
    for Cost { what, read, written, requests, micros } in costs {
        println!("{title}: {what}: {read} records read, {written} written, {requests} requests, {micros} µs");
    }
}

#[tokio::test]
async fn s576_costs_of_a_file_do_not_grow_with_its_chunks() {
    let one = file_costs(1).await;
    print("1 chunk", &one);
    let few = file_costs(16).await;
    print("16 chunks", &few);
    few.iter().zip(&one).for_each(|(few, one)| few.assert_within(one, ROWS_MORE));
    for chunks in [scale(256, 16_000), scale(5_000, 256_000)] {
        let many = file_costs(chunks).await;
        print(&format!("{chunks} chunks"), &many);
        many.iter().zip(&few).for_each(|(many, few)| many.assert_within(few, 0));
    }
}

/// Chunks that are written. The store in memory keeps a MiB for each; further ones are only named.
const WRITTEN_MAX: usize = 256;

/// Names `chunks` objects that do not exist as the content of a file, with one byte in each chunk.
fn name_chunks(engine: Arc<Disk>, ino: Ino, chunks: usize) {
    let at = Moment { mount: u64::MAX, nanos: 0 };
    let context = OpContext { now: Timestamp(0), at, uid: 0, gid: 0, origin: Origin::Bookkeeping };
    let tables = Namespace::new(engine, &context).unwrap();
    let object = |chunk: usize| Stored {
        key: Some(key(format!("inodes/{:016x}-{chunk}", ino.0))),
        etag: ETag::new(&chunk.to_string()),
        version: None,
        last_modified: None,
    };
    let extent = |chunk: usize| Extent {
        offset: (chunk * MIB) as u64,
        len: 1,
        object: object(chunk),
        object_offset: 0,
    };
    let base = tables.inode(ino).unwrap().object().map(|object| object.etag.clone());
    let (content, size_bytes) = ((0..chunks).map(extent).collect(), (chunks * MIB) as u64);
    tables.commit(&context, &Op::Publish { ino, base, content, size_bytes, mtime: None }).unwrap();
}

/// Returns the costs of operations on a file with this many chunks of one byte.
async fn file_costs(chunks: usize) -> Vec<Cost> {
    let disk = Arc::new(Disk::default());
    let world = Bucket::by_inode_on(CHUNKED, disk.clone()).await.mount(|_| {}).await;
    let handle = world.create("file").await.unwrap();
    for chunk in 0..chunks.min(WRITTEN_MAX) {
        world.fs.write(handle, (chunk * MIB) as u64, b"x").await.unwrap();
    }
    world.close(handle).await.unwrap();
    if chunks > WRITTEN_MAX {
        name_chunks(disk.clone(), world.ino("file").await.unwrap(), chunks);
    }
    let ino = world.ino("file").await.unwrap();
    let mut costs = vec![
        Cost::of("stat", &disk, &world, world.stat("file")).await,
        Cost::of("chmod", &disk, &world, world.chmod("file", 0o600)).await,
        Cost::of("setxattr", &disk, &world, world.fs.setxattr(ino, b"user.a", b"value", 0, |_| true)).await,
    ];
    let opened = async {
        let handle = world.open_handle("file", libc::O_RDWR).await?;
        world.close(handle).await
    };
    costs.push(Cost::of("open and close", &disk, &world, opened).await);
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    let at = (chunks / 2 * MIB + 4096) as u64;
    let synced = async {
        world.fs.write(handle, at, &[7; 4096]).await?;
        world.fs.fsync(handle).await
    };
    costs.push(Cost::of("fsync of 4 KiB", &disk, &world, synced).await);
    if chunks <= WRITTEN_MAX {
        world.close(handle).await.unwrap();
        world.assert_healthy().await;
    }
    costs
}

fn body(bytes: &'static [u8]) -> BoxStream<'static, store::Result<Bytes>> {
    stream::iter([Ok(Bytes::from_static(bytes))]).boxed()
}

/// An upload of 10,000 parts, the maximum of S3, as one of two.
#[tokio::test]
async fn s576_the_cost_of_a_part_does_not_grow_with_the_upload() {
    let disk = Arc::new(Disk::default());
    let world = Bucket::by_inode_on(CHUNKED, disk.clone()).await.mount(|_| {}).await;
    let objects = objects(&world);
    let uploads = objects.uploads().unwrap();
    let id = uploads.begin(&key("big"), Attributes::default(), Default::default()).await.unwrap();
    let last = scale(300, 10_000) as u32;
    let mut costs = Vec::new();
    for number in 1..=last {
        let sent = async {
            uploads.put_part(&key("big"), &id, number, body(b"x"), Box::new(|| Ok(None))).await.unwrap();
            Ok(())
        };
        costs.push(Cost::of("a part", &disk, &world, sent).await);
    }
    for number in [2, 16, costs.len()] {
        print(&format!("part {number}"), &costs[number - 1..number]);
    }
    let (second, sixteenth, last) = (&costs[1], &costs[15], &costs[costs.len() - 1]);
    sixteenth.assert_within(second, ROWS_MORE);
    last.assert_within(sixteenth, 0);
}

#[tokio::test]
async fn s132_the_cost_of_a_name_does_not_grow_with_the_directory() {
    let (few, many) =
        (listing_cost(scale(2_000, 10_000)).await, listing_cost(scale(20_000, 1_000_000)).await);
    assert!(many.0 <= few.0 + few.0 / 2, "{} records per 1000 names, {} in a large directory", few.0, many.0);
    assert!(many.1 <= few.1 + few.1 / 2, "{} requests per 1,000,000 names, {}", few.1, many.1);
    many.2.iter().zip(&few.2).for_each(|(many, few)| many.assert_within(few, 0));
}

/// Lists a directory of `count` objects. Returns the records read per 1000 names, the requests per million, and the costs of
/// operations on one name.
async fn listing_cost(count: usize) -> (u64, u64, Vec<Cost>) {
    let disk = Arc::new(Disk::default());
    let bucket = Bucket::with_metadata_on(disk.clone());
    for number in 0..count {
        bucket.put(format!("dir/{number:07}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    let before = disk.records().0;
    let (listed, requests) = world.counting(count_entries(&world, "dir", false)).await;
    assert_eq!(listed, count);
    let read = disk.records().0 - before;
    println!("a directory of {count}: {read} records read, {} requests, {}", requests.total(), memory_line());
    let middle = format!("dir/{:07}", count / 2);
    let costs = vec![
        Cost::of("stat", &disk, &world, world.stat(&middle)).await,
        Cost::of("create", &disk, &world, world.mknod("dir/new", Kind::Fifo)).await,
        Cost::of("unlink", &disk, &world, world.unlink("dir/new")).await,
    ];
    print(&format!("a directory of {count}"), &costs);
    (read * 1000 / count as u64, requests.total() * 1_000_000 / count as u64, costs)
}

/// A listing with attributes read each inode twice.
#[tokio::test]
async fn s132_a_listing_with_attributes_reads_each_inode_once() {
    const NAMES: usize = 2000;
    let disk = Arc::new(Disk::default());
    let bucket = Bucket::with_metadata_on(disk.clone());
    for number in 0..NAMES {
        bucket.put(format!("dir/{number:07}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    assert_eq!(count_entries(&world, "dir", false).await, NAMES);
    let mut records = [0; 2];
    for (plus, read) in [false, true].into_iter().zip(&mut records) {
        let before = disk.records().0;
        assert_eq!(count_entries(&world, "dir", plus).await, NAMES);
        *read = disk.records().0 - before;
    }
    let [names, with_attributes] = records;
    assert!(
        with_attributes <= names + NAMES as u64 + 20,
        "{names} records, {with_attributes} with attributes"
    );
}

/// Returns the number of entries that a program reads from a directory, besides `.` and `..`; `plus`: with their attributes.
async fn count_entries(world: &World, dir: &str, plus: bool) -> usize {
    let ino = world.ino(dir).await.unwrap();
    let handle = world.fs.opendir(ino).await.unwrap();
    let (mut cookie, mut listed) = (0, 0);
    loop {
        let batch = world.fs.readdir(handle, cookie, 1000, plus).await.unwrap();
        let Some(last) = batch.last() else { break };
        (cookie, listed) = (last.cookie, listed + batch.len());
    }
    world.fs.releasedir(handle);
    listed - 2
}

/// Ops in one commit of a mass change by another client: no other change of a name can begin meanwhile.
const OPS_MAX: u64 = 128;

/// Programs create files in another directory while `ls` finds that another client has deleted all files of a large one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s417_foreign_deletions_stall_no_unrelated_create() {
    let count = scale(10_000, 100_000);
    let engine = Arc::new(Disk::default());
    let bucket = Bucket::with_metadata_on(engine.clone());
    for number in 0..count {
        bucket.put(format!("dir/sub/{number:06}"), "x").await;
    }
    bucket.put("dir/stays", "y").await;
    let world = Arc::new(bucket.mount(|_| {}).await);
    world.mkdir("other").await.unwrap();
    assert_eq!(count_entries(&world, "dir/sub", false).await, count);
    for number in 0..count {
        bucket.delete(format!("dir/sub/{number:06}")).await;
    }
    world.expire();
    let is_over = Arc::new(AtomicBool::new(false));
    let creates = tokio::spawn({
        let (world, engine, is_over) = (world.clone(), engine.clone(), is_over.clone());
        async move {
            let (mut others, mut millis) = (Vec::new(), Vec::new());
            while !is_over.load(Ordering::Acquire) {
                let (before, begun) = (engine.head().0, tokio::time::Instant::now());
                world.mknod(format!("other/{}", others.len()), Kind::Fifo).await.unwrap();
                millis.push(begun.elapsed().as_secs_f64() * 1000.0);
                others.push(engine.head().0 - before);
            }
            (others, millis)
        }
    });
    let begun = engine.head().0;
    assert_eq!(world.names("dir").await.unwrap(), ["stays"]);
    is_over.store(true, Ordering::Release);
    let (mut commits, mut millis) = creates.await.unwrap();
    let removed_by = engine.head().0 - begun - commits.len() as u64;
    commits.sort_unstable();
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| ((millis.len() - 1) as f64 * share) as usize;
    println!(
        "{count} deletions in {removed_by} commits, meanwhile {} creates: median {:.2} ms, p99.9 {:.2} ms, maximum {:.2} ms, at most {} commits in one",
        millis.len(),
        millis[at(0.5)],
        millis[at(0.999)],
        millis[millis.len() - 1],
        commits[commits.len() - 1]
    );
    assert!(millis.len() > 20, "{} creates during the removal", millis.len());
    // Its own commit, and the batches that were committed between two steps of the create.
    assert!(commits[at(0.999)] <= 16, "{commits:?}");
    assert!(engine.largest_commit() <= OPS_MAX, "{} ops in one commit", engine.largest_commit());
    assert_eq!(errno(world.stat("dir/sub").await), libc::ENOENT);
}

/// Directories to make and remove, unless `TENON_DIRECTORIES` says otherwise.
const DIRECTORIES: &str = "20000";

/// Regression: each directory in the root began a task, which waited for all earlier ones: 3.5 KB for each directory. Runs in a process of
/// its own, whose memory no other test changes.
#[test]
fn s130_directories_that_are_gone_take_no_memory() {
    let name = "costs::directories_that_come_and_go";
    let directories = variable("TENON_DIRECTORIES").unwrap_or(DIRECTORIES.to_owned());
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let done =
        command.args(["--exact", name, "--nocapture"]).env("TENON_ALONE", directories).output().unwrap();
    println!("{}", String::from_utf8_lossy(&done.stdout));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Does nothing except as the process of the test above.
#[tokio::test]
async fn directories_that_come_and_go() {
    let Some(count) = variable("TENON_ALONE") else { return };
    let count: usize = count.parse().unwrap();
    // The engine in memory keeps the op log in memory. The engine on disk does not.
    let log_cap = LogCap { bytes_max: 1 << 20, ..LogCap::default() };
    let engine = Arc::new(MemoryEngine::new(log_cap));
    let world = Bucket::with_metadata_on(engine.clone()).mount(|_| {}).await;
    let (mut resident, mut tables) = (Vec::new(), Vec::new());
    for number in 0..count {
        let name = format!("dir-{number}");
        let made = world.fs.mkdir(CALLER, Ino::ROOT, name.as_bytes(), 0o755).await.unwrap();
        world.fs.rmdir(Ino::ROOT, name.as_bytes()).await.unwrap();
        world.fs.forget(made.ino, 1);
        // Each call of a kernel is a task of its own.
        tokio::task::yield_now().await;
        if (number + 1) % (count / 10) == 0 {
            resident.push(resident_bytes());
            tables.push(engine.memory_bytes());
            println!("{} made and removed: {}, tables {}", number + 1, memory_line(), engine.memory_bytes());
        }
    }
    let grown = |bytes: &[u64]| bytes[9].saturating_sub(bytes[4]);
    assert!(grown(&tables) <= 64 << 10, "{tables:?}");
    // The names of the last changes are kept in a table of bounded length.
    assert!(grown(&resident) / (count as u64 / 2) <= 512, "{resident:?}");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn memory_line() -> String {
    format!("{} MiB resident", resident_bytes() >> 20)
}

/// Keys that are no paths, of which each page read all: 64,000 took O(n²) steps.
#[tokio::test]
async fn escaped_names_are_listed_in_order_at_a_constant_cost() {
    let costs = async |count: usize| {
        let disk = Arc::new(Disk::default());
        let world = Bucket::by_inode_on(CHUNKED, disk.clone()).await.mount(|_| {}).await;
        let objects = objects(&world);
        for number in 0..count {
            // An object beside a directory of its name.
            crate::objects::put(&objects, &format!("{number:05}/inside"), "").await;
            crate::objects::put(&objects, &format!("{number:05}"), "").await;
        }
        let before = disk.records().0;
        let listed = keys(&objects).await;
        let read = disk.records().0 - before;
        assert_eq!(listed.len(), 2 * count);
        assert!(listed.is_sorted(), "keys are listed in order");
        println!("{count} escaped names: {read} records read");
        read / count as u64
    };
    let (few, many) = (costs(200).await, costs(scale(2_000, 64_000)).await);
    assert!(many <= few + few / 4, "{few} records per name of 200 names, {many} per name of many");
}
