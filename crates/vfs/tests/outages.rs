//! The matrix of outages: every operation × every failure of a store × every layout × with and without write-back, for outages
//! longer and shorter than the retries of a call.
//!
//! A store call ends within the retry budget of `store_s3` (S120); here that is simulated time. Each case asserts: the
//! operation ends within its number of such budgets, with success or the expected error; a read never returns bytes that were
//! not written; once the store is back the operation succeeds, and the volume is as before or as after it, byte for byte.

use crate::world::{Bucket, World, pattern};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::time::Duration;
use store::StoreError;
use store::wrap::{Fault, Rule};
use tokio::time::Instant;
use vfs::{Changes, Config, Handle, Kind, Mapping, Result, Whence};

/// Duration of a call that gets no answer: retries for 30 s, and a last attempt of 20 s.
const CALL: Duration = Duration::from_secs(50);
/// Extra time that the exporter and the drain of the log may take.
const SLACK: Duration = Duration::from_secs(2);

const PART: usize = 16 << 10;
const CHUNKS: Mapping = Mapping::Chunked { bytes: PART as u64 };
/// Length of a file of several parts or chunks and a remainder.
const LARGE: usize = 3 * PART + 100;

/// A failure of the store.
#[derive(Debug, Clone, Copy)]
struct Outage {
    what: &'static str,
    fault: Fault,
    /// Calls that are answered before the failure: it begins in the middle of an operation.
    answered: u64,
    ends: OutageEnd,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OutageEnd {
    /// The outage outlasts the retries of a call.
    Later,
    /// The outage ends within the retries of a call, so callers do not notice it.
    Soon,
    /// The outage ends by itself after this many calls.
    After(u64),
}

fn outages() -> Vec<Outage> {
    let outage = |what, fault, ends| Outage { what, fault, answered: 0, ends };
    let in_the_middle = [1, 2, 3, 4, 6].into_iter().flat_map(|answered| {
        let silent = outage("stops answering", Fault::InVain(CALL), OutageEnd::Later);
        let loses_one = outage("loses a reply in between", Fault::lost_reply(), OutageEnd::After(1));
        [Outage { answered, ..silent }, Outage { answered, ..loses_one }]
    });
    let from_the_beginning = [
        outage("does not answer", Fault::InVain(CALL), OutageEnd::Later),
        outage("does not answer for a moment", Fault::Stall, OutageEnd::Soon),
        outage("misses one call", Fault::InVain(CALL), OutageEnd::After(1)),
        outage("refuses at once", Fault::unavailable(), OutageEnd::Later),
        outage("is busy", Fault::throttled(), OutageEnd::Later),
        outage(
            "answers nonsense",
            Fault::Before(|| StoreError::Corrupt("nonsense".into())),
            OutageEnd::Later,
        ),
        outage("loses every reply", Fault::lost_reply(), OutageEnd::Later),
        outage("loses one reply", Fault::lost_reply(), OutageEnd::After(1)),
        outage("breaks off at once", Fault::CutBody(0), OutageEnd::Later),
        outage("breaks off later", Fault::CutBody(1000), OutageEnd::Later),
        outage("breaks off once", Fault::CutBody(1000), OutageEnd::After(1)),
        outage("has another tag", Fault::OtherEtag, OutageEnd::Later),
    ];
    from_the_beginning.into_iter().chain(in_the_middle).collect()
}

type Step<T> = for<'w> fn(&'w World, Option<Handle>) -> BoxFuture<'w, Result<T>>;

/// One operation of a program.
struct Operation {
    name: &'static str,
    /// Maximum number of consecutive calls of the operation that each run into their time limit.
    calls_max: u32,
    /// Preparation before the outage.
    prepare: Step<Option<Handle>>,
    run: Step<()>,
    /// Whether the operation closes its handle, so that it cannot be retried.
    is_close: bool,
}

impl Operation {
    fn on(name: &'static str, prepare: Step<Option<Handle>>, run: Step<()>) -> Self {
        Self { name, calls_max: 1, prepare, run, is_close: false }
    }

    fn new(name: &'static str, run: Step<()>) -> Self {
        Self::on(name, |_, _| async { Ok(None) }.boxed(), run)
    }

    fn calls_max(self, calls_max: u32) -> Self {
        Self { calls_max, ..self }
    }

    fn closing(self) -> Self {
        Self { is_close: true, ..self }
    }
}

/// Creates and writes a small file, and leaves it open.
fn written(world: &World, _: Option<Handle>) -> BoxFuture<'_, Result<Option<Handle>>> {
    async {
        let handle = world.create("written").await?;
        world.fs.write(handle, 0, &pattern(5000)).await?;
        Ok(Some(handle))
    }
    .boxed()
}

/// Creates a file that exceeds memory, and leaves it open.
fn streamed(world: &World, _: Option<Handle>) -> BoxFuture<'_, Result<Option<Handle>>> {
    async {
        let handle = world.create("streamed").await?;
        write_pieces(world, handle, 0..LARGE).await?;
        Ok(Some(handle))
    }
    .boxed()
}

/// Edits a file in its middle, and leaves it open.
fn edited(world: &World, _: Option<Handle>) -> BoxFuture<'_, Result<Option<Handle>>> {
    async {
        let handle = world.open_handle("dir/large", libc::O_RDWR).await?;
        world.fs.write(handle, PART as u64 + 7, b"edited").await?;
        Ok(Some(handle))
    }
    .boxed()
}

fn opened(world: &World, _: Option<Handle>) -> BoxFuture<'_, Result<Option<Handle>>> {
    async { world.open_handle("dir/large", libc::O_RDWR).await.map(Some) }.boxed()
}

fn created(world: &World, _: Option<Handle>) -> BoxFuture<'_, Result<Option<Handle>>> {
    async { world.create("streamed").await.map(Some) }.boxed()
}

async fn write_pieces(world: &World, handle: Handle, range: std::ops::Range<usize>) -> Result<()> {
    let body = pattern(range.end);
    for at in range.step_by(PART / 4) {
        let end = body.len().min(at + PART / 4);
        world.fs.write(handle, at as u64, &body[at..end]).await?;
    }
    Ok(())
}

async fn reads_as_written(world: &World, handle: Handle) -> Result<()> {
    assert!(world.read_all(handle).await? == pattern(LARGE), "bytes were read that nobody wrote");
    Ok(())
}

async fn close(world: &World, handle: Handle) -> Result<()> {
    let flushed = world.fs.flush(handle).await;
    world.fs.release(handle).await.ok();
    flushed
}

#[rustfmt::skip]
fn operations() -> Vec<Operation> {
    let (on, new) = (Operation::on, Operation::new);
    vec![
        new("lookup", |w, _| async { w.stat("dir/large").await.map(drop) }.boxed()),
        new("getattr", |w, _| async { w.fs.getattr(vfs::Ino::ROOT).await.map(drop) }.boxed()),
        new("readdir", |w, _| async { w.names("dir").await.map(drop) }.boxed()),
        new("readdirplus", |w, _| async { w.list("dir", true).await.map(drop) }.boxed()),
        new("readlink", |w, _| async { w.fs.readlink(w.ino("link").await?).await.map(drop) }.boxed()),
        new("statfs", |w, _| async { w.fs.statfs(vfs::Ino::ROOT).map(drop) }.boxed()),
        new("open", |w, _| async { close(w, w.open_handle("dir/large", libc::O_RDONLY).await?).await }.boxed()),
        on("read", opened, |w, h| async move { reads_as_written(w, h.unwrap()).await }.boxed()),
        on("seek", opened, |w, h| async move { w.fs.seek(h.unwrap(), 0, Whence::Hole).await.map(drop) }.boxed()),
        // Two calls: the listing, and the empty object for the kernel's first flush.
        new("create and close", |w, _| async { close(w, w.create("made").await?).await }.boxed()).calls_max(2),
        on("write", opened, |w, h| async move { w.fs.write(h.unwrap(), 5, b"written").await }.boxed()),
        on("write a stream", created, |w, h| async move { write_pieces(w, h.unwrap(), 0..LARGE).await }.boxed()),
        on("fsync", written, |w, h| async move { w.fs.fsync(h.unwrap()).await }.boxed()),
        // Two calls: the parts in flight, then the abort.
        on("fsync a stream", streamed, |w, h| async move { w.fs.fsync(h.unwrap()).await }.boxed()).calls_max(2),
        on("fsync an edit", edited, |w, h| async move { w.fs.fsync(h.unwrap()).await }.boxed()),
        // Up to four calls: the flush that fails, the attempt at the last close, then the abort of the upload.
        on("close", written, |w, h| async move { close(w, h.unwrap()).await }.boxed()).calls_max(2).closing(),
        on("close a stream", streamed, |w, h| async move { close(w, h.unwrap()).await }.boxed()).calls_max(4).closing(),
        on("close an edit", edited, |w, h| async move { close(w, h.unwrap()).await }.boxed()).calls_max(2).closing(),
        on("fallocate", opened, |w, h| async move { w.fs.fallocate(h.unwrap(), 0, 0, 2 * LARGE as u64).await }.boxed()),
        new("truncate", |w, _| async { w.truncate("dir/large", 1000).await?; w.fs.sync().await }.boxed()),
        // Two calls, here and below: the second asks whether only the answer was lost.
        new("chmod", |w, _| async { w.chmod("dir/large", 0o604).await?; w.fs.sync().await }.boxed()).calls_max(2),
        new("utimes", |w, _| async {
            let mtime = Some(vfs::Time::At(vfs::Timestamp::from_secs(1, 0)));
            w.set("small", Changes { mtime, ..Changes::default() }).await?;
            w.fs.sync().await
        }.boxed()).calls_max(2),
        new("mkdir", |w, _| async { w.mkdir("made").await.map(drop) }.boxed()),
        new("rmdir", |w, _| async { w.rmdir("empty").await }.boxed()).calls_max(2),
        new("mknod", |w, _| async { w.mknod("made", Kind::Fifo).await.map(drop) }.boxed()),
        new("symlink", |w, _| async { w.symlink("made", b"target").await.map(drop) }.boxed()),
        new("link", |w, _| async {
            w.fs.link(w.ino("small").await?, vfs::Ino::ROOT, b"made").await.map(drop)
        }.boxed()),
        new("unlink", |w, _| async { w.unlink("small").await }.boxed()).calls_max(2),
        on("unlink what is open", opened, |w, _| async { w.unlink("dir/large").await }.boxed()).calls_max(3),
        // The second call deletes the object at its old key in the background.
        new("rename", |w, _| async { w.rename("small", "made").await }.boxed()).calls_max(2),
        new("rename onto a file", |w, _| async { w.rename("small", "dir/large").await }.boxed()),
        new("rename a directory", |w, _| async { w.rename("dir", "made").await }.boxed()).calls_max(2),
        new("setxattr", |w, _| async {
            w.fs.setxattr(w.ino("small").await?, b"user.a", b"value", 0, |_| true).await
        }.boxed()),
        on("sync", written, |w, _| async { w.fs.sync().await }.boxed()),
        on("umount", written, |w, _| async { w.fs.shutdown(Duration::from_secs(600)).await }.boxed()),
        new("mount", |w, _| async { w.mount_beside().await.names("/").await.map(drop) }.boxed()),
    ]
}

/// Layout and mode of a volume.
#[derive(Debug, Clone, Copy)]
struct Volume {
    layout: Layout,
    write_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    ByPath,
    ByInode,
    Chunked,
}

impl Volume {
    async fn mount(self) -> World {
        let bucket = match self.layout {
            Layout::ByPath => Bucket::with_metadata(),
            Layout::ByInode => Bucket::by_inode(Mapping::Whole).await,
            Layout::Chunked => Bucket::by_inode(CHUNKS).await,
        };
        let world = bucket
            .mount(|config| {
                (config.part_size_bytes, config.write_back) = (PART as u64, self.write_back);
                // As `tenon mount` does where Tenon has written before.
                config.attributes = vfs::AttributeSource::Headers;
            })
            .await;
        world.mkdir("dir").await.unwrap();
        world.mkdir("empty").await.unwrap();
        world.write_file("dir/large", pattern(LARGE)).await.unwrap();
        world.write_file("dir/other", b"other").await.unwrap();
        world.write_file("small", b"small").await.unwrap();
        world.symlink("link", b"target").await.unwrap();
        world.settle().await;
        world
    }
}

/// All of a volume that programs can see.
type Contents = BTreeMap<String, (Kind, u16, Vec<u8>)>;

async fn contents(world: &World) -> Contents {
    let mut found = Contents::new();
    for (path, kind, body) in world.tree().await {
        let mode = world.stat(&path).await.unwrap().mode;
        found.insert(path, (kind, mode, body));
    }
    found
}

/// Result of an operation without failures: its errno, or 0, and the contents before and after it.
struct Expected {
    errno: i32,
    before: Contents,
    after: Contents,
}

async fn expected(volume: Volume, operation: &Operation) -> Expected {
    let world = volume.mount().await;
    let before = contents(&world).await;
    let handle = (operation.prepare)(&world, None).await.unwrap();
    let errno = errno((operation.run)(&world, handle).await);
    if let Some(handle) = handle {
        close(&world, handle).await.ok();
    }
    world.settle().await;
    Expected { errno, before, after: contents(&world).await }
}

fn errno(outcome: Result<()>) -> i32 {
    outcome.err().map_or(0, |error| error.errno())
}

/// Runs one case of the matrix; returns what is wrong, and how many call durations it took.
async fn case(
    volume: Volume,
    operation: &Operation,
    outage: Outage,
    expected: &Expected,
) -> (Vec<String>, u32) {
    let mut wrong = Vec::new();
    let world = volume.mount().await;
    let handle = (operation.prepare)(&world, None).await.unwrap();
    // Cached state has expired, so operations begin with a request.
    world.expire();
    let faults = &world.bucket.faults;
    let rule = Rule::new(outage.fault).after(outage.answered);
    faults.add(match outage.ends {
        OutageEnd::After(calls) => rule.times(calls),
        OutageEnd::Later | OutageEnd::Soon => rule.always(),
    });
    if outage.ends == OutageEnd::Soon {
        let faults = faults.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CALL / 2).await;
            faults.clear();
            faults.release();
        });
    }
    let began = Instant::now();
    let limit = operation.calls_max * CALL + SLACK;
    let outcome = tokio::time::timeout(10 * limit, (operation.run)(&world, handle)).await;
    let took = began.elapsed();
    let calls = took.as_secs().div_ceil(CALL.as_secs()) as u32;
    if took > limit {
        wrong.push(format!("took {} s, not {}", took.as_secs(), limit.as_secs()));
    }
    let is_seen = outage.ends != OutageEnd::Soon;
    let failed = match outcome {
        Err(_) => {
            wrong.push("hangs".into());
            return (wrong, calls);
        }
        Ok(outcome) => errno(outcome),
    };
    // An object whose tag changes under an open file counts as foreign.
    let is_stated = failed == expected.errno || is_seen && matches!(failed, libc::EIO | libc::ESTALE);
    if !is_stated {
        wrong.push(format!("errno {failed}, not {} or EIO", expected.errno));
    }
    faults.clear();
    world.expire();
    if failed != expected.errno && !operation.is_close {
        let again = errno((operation.run)(&world, handle).await);
        // The operation had taken effect, at least in part.
        if again != expected.errno && !matches!(again, libc::EEXIST | libc::ENOENT | libc::ENOTEMPTY) {
            wrong.push(format!("errno {again} after the store was back"));
        }
    }
    if let Some(handle) = handle.filter(|_| !operation.is_close)
        && let Err(error) = close(&world, handle).await
    {
        wrong.push(format!("the last close failed after the store was back: {error}"));
    }
    world.settle().await;
    let found = contents(&world).await;
    let is_moving = operation.name == "rename a directory" && is_under_either(&found, expected);
    let is_dropped =
        operation.is_close && failed != expected.errno && without_new(&found, volume) == expected.before;
    if found != expected.after && !is_dropped && !is_moving {
        wrong.push(format!("found {:?}, not {:?}", names(&found), names(&expected.after)));
    }
    if let Err(error) = world.is_healthy().await {
        wrong.push(error);
    }
    (wrong, calls)
}

/// Returns the contents without the file whose close failed: unless names are in the bucket, it stays as an empty file.
fn without_new(contents: &Contents, volume: Volume) -> Contents {
    let is_new = |path: &str, body: &[u8]| {
        volume.layout != Layout::ByPath && ["/written", "/streamed"].contains(&path) && body.is_empty()
    };
    let old = contents.iter().filter(|(path, (_, _, body))| !is_new(path, body));
    old.map(|(path, what)| (path.clone(), what.clone())).collect()
}

/// Returns whether every file of `dir` is at its old or its new path, or at both (S80).
fn is_under_either(found: &Contents, expected: &Expected) -> bool {
    expected.before.iter().filter(|(_, (kind, ..))| *kind == Kind::File).all(|(path, what)| {
        let moved = path.replace("/dir/", "/made/");
        let places = [found.get(path), found.get(&moved)];
        places.iter().any(Option::is_some) && places.into_iter().flatten().all(|there| there == what)
    })
}

fn names(contents: &Contents) -> Vec<String> {
    contents
        .iter()
        .map(|(path, (kind, mode, body))| format!("{path} {kind:?} {mode:o} {}", body.len()))
        .collect()
}

async fn matrix(layout: Layout) {
    let (mut cases, mut wrong) = (0, Vec::new());
    for write_back in [false, true] {
        let volume = Volume { layout, write_back };
        for operation in operations() {
            let expected = expected(volume, &operation).await;
            let mut longest = 0;
            for outage in outages() {
                cases += 1;
                let (found, calls) = case(volume, &operation, outage, &expected).await;
                longest = longest.max(calls);
                wrong.extend(found.into_iter().map(|what| {
                    let Outage { what: outage, answered, .. } = outage;
                    format!(
                        "{volume:?}: {} of a store that {outage} after {answered} calls: {what}",
                        operation.name
                    )
                }));
            }
            println!("{volume:?}: {}: {longest} of {} calls", operation.name, operation.calls_max);
        }
    }
    println!("{layout:?}: {cases} cases");
    assert!(wrong.is_empty(), "{} of {cases} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn s120_s123_every_operation_in_every_outage_by_path() {
    matrix(Layout::ByPath).await;
}

#[tokio::test(start_paused = true)]
async fn s120_s123_every_operation_in_every_outage_by_inode() {
    matrix(Layout::ByInode).await;
}

#[tokio::test(start_paused = true)]
async fn s120_s123_every_operation_in_every_outage_in_chunks() {
    matrix(Layout::Chunked).await;
}

/// Files that wait on disk for a store share the memory for their upload. Each of 200 closes held it for the retries of a call,
/// one after the other: they took 50 minutes to fail.
#[tokio::test(start_paused = true)]
async fn s123_closes_that_wait_for_memory_fail_together() {
    const FILES: usize = 50;
    const BODY: &[u8] = &[7; 300 << 10];
    let bucket = Bucket::in_memory();
    let little_memory = |config: &mut Config| {
        (config.memory_limit_bytes, config.part_size_bytes) = (8 << 20, 1 << 20);
    };
    let world = bucket.mount(little_memory).await;
    world.write_file("first", b"so that the volume is recorded").await.unwrap();
    let mut handles = Vec::new();
    for number in 0..FILES {
        let handle = world.create(format!("{number}")).await.unwrap();
        world.write_all(handle, BODY).await.unwrap();
        handles.push(handle);
    }
    bucket.faults.add(Rule::new(Fault::InVain(CALL)).always());
    let began = Instant::now();
    let closed = futures_util::future::join_all(handles.iter().map(|handle| world.close(*handle))).await;
    assert!(closed.iter().all(Result::is_err), "{closed:?}");
    // A close tries at the flush and at the release, and each attempt may wait for an earlier one.
    assert!(began.elapsed() <= 4 * CALL + SLACK, "{:?}", began.elapsed());
    bucket.faults.clear();
    world.write_file("0", BODY).await.unwrap();
    assert_eq!(world.read_file("0").await.unwrap(), BODY);
}
