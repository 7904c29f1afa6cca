//! A front end that drops from its cache only what it is told has no stale entries, however far it is behind.

use crate::world::{Bucket, CALLER, World, errno};
use bytes::Bytes;
use meta::{LogCap, MemoryEngine};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{ObjectKey, PutOptions};
use vfs::{Attr, Ino, Invalidation, InvalidationQueue, Kind, Mapping};

/// A front end that keeps what it looked up until it is told to drop it.
struct FrontEnd {
    queue: InvalidationQueue,
    entries: HashMap<(Ino, Bytes), Ino>,
    attributes: HashMap<Ino, Attr>,
    told: Told,
}

/// Numbers of invalidations by their extent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    single: usize,
    directories: usize,
    everything: usize,
}

impl FrontEnd {
    fn new(world: &World) -> Self {
        let queue = world.fs.kernel_caches().invalidations();
        Self { queue, entries: HashMap::new(), attributes: HashMap::new(), told: Told::default() }
    }

    async fn look_up(&mut self, world: &World, parent: Ino, name: &str) -> Ino {
        let attr = world.fs.lookup(parent, name.as_bytes()).await.unwrap();
        self.entries.insert((parent, Bytes::copy_from_slice(name.as_bytes())), attr.ino);
        self.attributes.insert(attr.ino, attr.clone());
        attr.ino
    }

    /// Processes all that it has been told.
    fn catch_up(&mut self, world: &World) {
        let caches = world.fs.kernel_caches();
        while let Ok(told) = self.queue.try_recv() {
            let mut after = None;
            let mut held = Vec::new();
            match &told {
                Invalidation::Directory(dir) => {
                    self.told.directories += 1;
                    while let Some((last, some)) = caches.held_in(*dir, after) {
                        (after, held) = (Some(last), [held, some].concat());
                    }
                }
                Invalidation::Everything => {
                    self.told.everything += 1;
                    while let Some((last, some)) = caches.everything_held(after) {
                        (after, held) = (Some(last), [held, some].concat());
                    }
                }
                _ => {
                    self.told.single += 1;
                    held.push(told);
                }
            }
            held.iter().for_each(|one| self.drop(one));
        }
    }

    fn drop(&mut self, told: &Invalidation) {
        match told {
            Invalidation::Inode(ino) | Invalidation::Attributes(ino) | Invalidation::Bytes(ino, _) => {
                self.attributes.remove(ino);
            }
            Invalidation::Entry { parent, name } => {
                self.entries.remove(&(*parent, name.clone()));
            }
            Invalidation::Reached(mark) => mark.reached(),
            Invalidation::Directory(_) | Invalidation::Everything => panic!("{told:?} in {told:?}"),
        }
    }

    /// Asserts that all it still holds is what the file system answers.
    async fn assert_not_stale(&self, world: &World) {
        for ((parent, name), ino) in &self.entries {
            // A program that has the name asks for the attributes, unless they are cached.
            match (world.fs.lookup(*parent, name).await, self.attributes.get(ino)) {
                (Ok(now), None) => assert_eq!(now.ino, *ino, "{name:?} in {parent}"),
                (Ok(now), Some(cached)) => {
                    assert_eq!(without_access(&now), without_access(cached), "{name:?}")
                }
                (Err(error), _) => panic!("{name:?} in {parent}: {error}"),
            }
        }
    }
}

fn without_access(attr: &Attr) -> Attr {
    Attr { atime: attr.btime, ..attr.clone() }
}

/// The changes that a front end makes itself cost it no invalidation. Another front end is told of each.
#[tokio::test]
async fn a_front_ends_own_changes_are_told_to_others_only() {
    for bucket in [Bucket::in_memory(), Bucket::by_inode(Mapping::Whole).await] {
        let world = bucket.mount(|_| {}).await;
        let mut own = FrontEnd::new(&world);
        let change_all = async |prefix: &str| {
            let path = |name: &str| format!("{prefix}{name}");
            let dir = world.mkdir(path("dir")).await.unwrap();
            world.write_file(path("dir/a"), b"bytes").await.unwrap();
            world.chmod(path("dir/a"), 0o600).await.unwrap();
            world.truncate(path("dir/a"), 3).await.unwrap();
            world.rename(path("dir/a"), path("dir/b")).await.unwrap();
            world.symlink(path("link"), b"dir/b").await.unwrap();
            world.fs.sync().await.unwrap();
            world.settle().await;
            dir.ino
        };
        change_all("1").await;
        own.catch_up(&world);
        assert_eq!(own.told, Told::default(), "one front end");
        let mut other = FrontEnd::new(&world);
        let dir = change_all("2").await;
        let mut heard = Vec::new();
        while let Ok(one) = other.queue.try_recv() {
            heard.push(one);
        }
        let entry = |parent, name: &'static str| Invalidation::Entry { parent, name: name.into() };
        for expected in [entry(Ino::ROOT, "2dir"), entry(dir, "a"), entry(dir, "b"), Invalidation::Inode(dir)]
        {
            assert!(heard.contains(&expected), "{expected:?}: {heard:?}");
        }
        drop((own, other));
        // The next change finds that nobody listens.
        world.unlink("2link").await.unwrap();
    }
}

/// Regression: each commit of which another front end had to be notified started a task of its own.
#[tokio::test]
async fn one_task_reads_the_log_of_many_commits() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let mut front_ends = [FrontEnd::new(&world), FrontEnd::new(&world)];
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut most = before;
    for number in 0..200 {
        world.mkdir(format!("dir{number}")).await.unwrap();
        most = most.max(tasks());
    }
    assert!(most <= before + 1, "{before} tasks, then up to {most}");
    world.settle().await;
    front_ends.iter_mut().for_each(|front_end| front_end.catch_up(&world));
    assert!(front_ends.iter().any(|front_end| front_end.told != Told::default()));
}

/// A hundred thousand foreign changes in three hundred directories while the front end is stalled.
#[tokio::test]
async fn a_burst_of_foreign_changes_leaves_no_stale_entry_in_a_stalled_front_end() {
    const DIRS: usize = 300;
    const FILES: usize = 334;
    let bucket = Bucket::in_memory();
    for dir in 0..DIRS {
        for file in 0..FILES {
            bucket.put(format!("dir{dir}/{file}"), "x").await;
        }
    }
    let world = bucket.mount(|config| config.metadata_ttl = Duration::from_secs(3600)).await;
    let mut kernel = FrontEnd::new(&world);
    for dir in 0..DIRS {
        let ino = kernel.look_up(&world, Ino::ROOT, &format!("dir{dir}")).await;
        world.names(format!("dir{dir}")).await.unwrap();
        for file in 0..20 {
            kernel.look_up(&world, ino, &file.to_string()).await;
        }
    }
    kernel.catch_up(&world);
    for dir in 0..DIRS {
        for file in 0..FILES {
            match (dir + file) % 3 {
                0 => bucket.put(format!("dir{dir}/{file}"), "changed").await,
                _ => bucket.delete(format!("dir{dir}/{file}")).await,
            }
        }
    }
    world.bucket.clock.advance(Duration::from_secs(4000));
    for dir in 0..DIRS {
        world.names(format!("dir{dir}")).await.unwrap();
    }
    // Names that are there again lead to other inodes.
    for dir in 0..DIRS {
        bucket.put(format!("dir{dir}/1"), "again").await;
    }
    world.bucket.clock.advance(Duration::from_secs(4000));
    for dir in 0..DIRS {
        world.names(format!("dir{dir}")).await.unwrap();
    }
    assert!(kernel.entries.len() > 6000);
    kernel.catch_up(&world);
    assert!(kernel.told.everything > 0, "{:?}", kernel.told);
    kernel.assert_not_stale(&world).await;
    world.assert_healthy().await;
}

/// If one directory changes, a stalled front end that holds much else drops only that directory.
#[tokio::test]
async fn a_stalled_front_end_drops_a_directory_before_everything() {
    let bucket = Bucket::in_memory();
    for file in 0..5000 {
        bucket.put(format!("changing/{file}"), "x").await;
        bucket.put(format!("quiet/{file}"), "x").await;
    }
    let world = bucket.mount(|config| config.metadata_ttl = Duration::from_secs(3600)).await;
    let mut kernel = FrontEnd::new(&world);
    for dir in ["changing", "quiet"] {
        let ino = kernel.look_up(&world, Ino::ROOT, dir).await;
        world.names(dir).await.unwrap();
        for file in 0..5000 {
            kernel.look_up(&world, ino, &file.to_string()).await;
        }
    }
    kernel.catch_up(&world);
    for file in 0..4999 {
        bucket.delete(format!("changing/{file}")).await;
    }
    world.bucket.clock.advance(Duration::from_secs(4000));
    world.names("changing").await.unwrap();
    kernel.catch_up(&world);
    assert_eq!((kernel.told.directories, kernel.told.everything), (1, 0), "{:?}", kernel.told);
    assert!(kernel.entries.len() > 5000, "the other directory stays: {}", kernel.entries.len());
    kernel.assert_not_stale(&world).await;
}

/// Renames and removals through the endpoint leave inodes alive whose old names only the op tells.
#[tokio::test(start_paused = true)]
async fn a_stalled_front_end_drops_names_that_the_endpoint_took_from_living_files() {
    const COUNT: usize = 6000;
    let bucket = Bucket::by_inode(Mapping::Whole).await;
    let world = bucket.mount(|_| {}).await;
    for file in 0..COUNT {
        world.fs.mknod(CALLER, Ino::ROOT, file.to_string().as_bytes(), Kind::File, 0o644, 0).await.unwrap();
    }
    world.link("0", "link").await.unwrap();
    let mut kernel = FrontEnd::new(&world);
    for file in 0..COUNT {
        kernel.look_up(&world, Ino::ROOT, &file.to_string()).await;
    }
    kernel.look_up(&world, Ino::ROOT, "link").await;
    let objects = vfs::objects(&world.fs, b"");
    let key = |text: String| ObjectKey::try_from(text.as_str()).unwrap();
    objects.delete(&key("link".into()), store::Precondition::None).await.unwrap();
    for file in 0..COUNT {
        let from = objects.head(&key(file.to_string())).await.unwrap().object;
        match file % 3 {
            0 => {
                objects.rename(&from, &key(format!("moved{file}")), store::Precondition::None).await.unwrap()
            }
            1 => objects.delete(&from.key, store::Precondition::None).await.unwrap(),
            _ => drop(objects.put(&from.key, "new".into(), PutOptions::default()).await.unwrap()),
        }
    }
    kernel.catch_up(&world);
    assert!(kernel.told.directories + kernel.told.everything > 0, "{:?}", kernel.told);
    kernel.assert_not_stale(&world).await;
    assert_eq!(errno(world.stat("0").await), libc::ENOENT);
}

/// The log keeps only its tail. A front end that is told too late drops everything.
#[tokio::test]
async fn a_follower_that_lags_behind_the_log_ends_in_everything() {
    let cap = LogCap { bytes_max: 1 << 20, tail_ops: 4, ..LogCap::default() };
    let bucket = Bucket::with_metadata_on(Arc::new(MemoryEngine::new(cap)));
    for file in 0..20 {
        bucket.put(format!("dir/{file}"), "x").await;
    }
    let world = bucket.mount(|_| {}).await;
    let dir = world.ino("dir").await.unwrap();
    assert_eq!(world.names("dir").await.unwrap().len(), 20);
    let mut kernel = FrontEnd::new(&world);
    for file in 0..20 {
        kernel.look_up(&world, dir, &file.to_string()).await;
    }
    kernel.catch_up(&world);
    kernel.told = Told::default();
    for file in 0..19 {
        bucket.delete(format!("dir/{file}")).await;
    }
    bucket.put("dir/19", "changed").await;
    world.expire();
    assert_eq!(world.names("dir").await.unwrap(), ["19"]);
    kernel.catch_up(&world);
    assert_eq!(kernel.told.everything, 1, "{:?}", kernel.told);
    kernel.assert_not_stale(&world).await;
    // Later changes are told one by one.
    bucket.put("dir/19", "changed again").await;
    let file = kernel.look_up(&world, dir, "19").await;
    kernel.catch_up(&world);
    kernel.told = Told::default();
    world.expire();
    bucket.put("dir/19", "changed once more").await;
    world.stat("dir/19").await.unwrap();
    kernel.catch_up(&world);
    assert_eq!(
        (kernel.told.everything, kernel.attributes.contains_key(&file)),
        (0, false),
        "{:?}",
        kernel.told
    );
    world.assert_healthy().await;
}

/// Counts how often a task is woken.
#[derive(Debug, Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The first read of a file makes attributes known that the listing did not have. Front ends are woken only if one of them changes: a wake costs two
/// changes of threads for each file.
#[tokio::test]
async fn a_read_that_confirms_what_is_known_wakes_no_front_end() {
    let bucket = Bucket::in_memory();
    bucket.put("plain", "text").await;
    bucket.put_with("executable", "text", &[("mode", "33261")]).await;
    let world = bucket.mount(|_| {}).await;
    let mut queue = world.fs.kernel_caches().invalidations();
    world.names("").await.unwrap();
    let wakes = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&wakes));
    for (file, is_woken) in [("plain", false), ("executable", true)] {
        while queue.try_recv().is_ok() {}
        let mut received = pin!(queue.recv());
        assert!(received.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let before = wakes.0.load(Ordering::SeqCst);
        assert_eq!(world.read_file(file).await.unwrap(), b"text");
        tokio::task::yield_now().await;
        assert_eq!(wakes.0.load(Ordering::SeqCst) > before, is_woken, "{file}");
    }
}

/// A truncation failed after the file had its new length, and the last close restored the old length. Front ends were notified of neither
/// change (world 1,042,821 of both sides).
#[tokio::test]
async fn front_ends_are_told_of_a_failed_truncation_and_of_its_loss() {
    let world = World::new().await;
    world.write_file("file", b"before").await.unwrap();
    let reader = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    let mut front_end = FrontEnd::new(&world);
    front_end.look_up(&world, Ino::ROOT, "file").await;
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    assert_eq!(errno(world.truncate("file", 3).await), libc::EIO);
    front_end.catch_up(&world);
    front_end.assert_not_stale(&world).await;
    front_end.look_up(&world, Ino::ROOT, "file").await;
    world.close(reader).await.unwrap();
    front_end.catch_up(&world);
    front_end.assert_not_stale(&world).await;
    assert_eq!(world.stat("file").await.unwrap().size_bytes, 6);
}
