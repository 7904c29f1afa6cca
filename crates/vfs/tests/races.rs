//! Many programs in one directory at the same time, while it is listed: names and bytes stay consistent.

use crate::world::{Bucket, CALLER, MIB, World, assert_waits, pattern, program};
use std::sync::Arc;
use store::Entropy;
use store::wrap::{Fault, Operation, Rule};
use vfs::Changes;

/// Performs a random operation on names that all programs share; errors caused by races are expected.
async fn act(world: &World, random: &Entropy) {
    let dirs = ["d1", "d2", "d1/sub"];
    let path = |random: &Entropy| format!("{}/{}", dirs[random.below(3) as usize], random.below(6));
    let (at, to) = (path(random), path(random));
    let outcome = match random.below(12) {
        0..=3 => world.write_file(&at, pattern(random.below(40_000) as usize)).await,
        4 => world.read_file(&at).await.map(drop),
        5 => world.unlink(&at).await,
        6 | 7 => world.rename(&at, &to).await,
        8 => world.names(dirs[random.below(3) as usize]).await.map(drop),
        9 => world.chmod(&at, 0o600 + random.below(64) as u16).await.map(drop),
        10 => world.truncate(&at, random.below(50_000)).await.map(drop),
        _ => world.rename(dirs[random.below(3) as usize], dirs[random.below(3) as usize]).await,
    };
    let expected = [
        libc::ENOENT,
        libc::EEXIST,
        libc::EISDIR,
        libc::ENOTDIR,
        libc::ENOTEMPTY,
        libc::EINVAL,
        libc::ESTALE,
        libc::EBADF,
    ];
    if let Err(error) = outcome {
        assert!(expected.contains(&error.errno()), "{error}: {error:?}");
    }
    if random.below(10) == 0 {
        world.expire();
    }
    for dir in dirs {
        if random.below(20) == 0 {
            world.mkdir(dir).await.ok();
        }
    }
}

async fn run(seed: u64, bucket: Bucket, steps: usize) {
    let world = Arc::new(bucket.mount(|config| config.part_size_bytes = 16 << 10).await);
    for dir in ["d1", "d2", "d1/sub"] {
        world.mkdir(dir).await.unwrap();
    }
    let programs: Vec<_> = (0..4)
        .map(|number| {
            let world = world.clone();
            program(move || async move {
                let random = Entropy::new(seed * 100 + number);
                for _ in 0..steps {
                    act(&world, &random).await;
                }
            })
        })
        .collect();
    for program in programs {
        program.await.unwrap();
    }
    world.fs.sync().await.unwrap();
    assert_eq!(world.fs.check().unwrap(), Vec::<String>::new(), "seed {seed}");
    let status = world.fs.status();
    assert_eq!((status.open_handles, status.dirty_files, status.write_bytes), (0, 0, 0), "seed {seed}");
    world.expire();
    world.assert_healthy().await;
    let keys = bucket.keys().await;
    let is_left_over = |key: &String| key.starts_with(".tenon/orphans") || key.starts_with("lost+found");
    assert!(!keys.iter().any(is_left_over), "seed {seed}: {keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_s80_concurrent_programs() {
    for seed in 0..6 {
        run(seed, Bucket::in_memory(), 150).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_s80_concurrent_programs_over_a_directory_store() {
    run(50, Bucket::in_directory(), 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s79_a_commit_and_a_rename_at_the_same_time() {
    for size in [100, 3 * MIB] {
        for directory in [false, true] {
            let world = Arc::new(World::with(|config| config.part_size_bytes = MIB as u64).await);
            world.mkdir("d").await.unwrap();
            world.mkdir("e").await.unwrap();
            for round in 0..20 {
                let (name, body) = (format!("d/{round}"), pattern(size + round));
                let handle = world.create(&name).await.unwrap();
                world.write_all(handle, &body).await.unwrap();
                let closing = {
                    let world = world.clone();
                    program(move || async move { world.close(handle).await })
                };
                let (from, to) = if directory {
                    ("d".to_owned(), "moved".to_owned())
                } else {
                    (name, format!("e/{round}"))
                };
                world.rename(&from, &to).await.unwrap();
                closing.await.unwrap().unwrap();
                let at = if directory { format!("moved/{round}") } else { to };
                assert!(world.bucket.object(&at).await.unwrap() == body, "{at}");
                if directory {
                    world.rename("moved", "d").await.unwrap();
                }
            }
            world.expire();
            world.assert_healthy().await;
        }
    }
}

/// A `chmod` during an upload: the uploaded headers had the old mode, but the new one counted as exported (world of files
/// 5612).
#[tokio::test]
async fn s18_a_mode_set_during_an_upload_is_exported() {
    let world = Arc::new(World::new().await);
    world.write_file("first", b"").await.unwrap();
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"body").await.unwrap();
    let put = world.bucket.late.hold(Operation::Put);
    let closing = tokio::spawn({
        let world = world.clone();
        async move { world.close(handle).await }
    });
    let answer = put.done().await;
    world.chmod("file", 0o600).await.unwrap();
    answer.send(()).ok();
    closing.await.unwrap().unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
}

/// Another descriptor's `fsync` replaced the object while a read of the bytes below the writes was in flight: the reader got
/// ESTALE although all bytes were this mount's (world of files 20073).
#[tokio::test]
async fn s30_a_read_continues_while_the_base_object_is_replaced() {
    let world = Arc::new(World::new().await);
    let mut body = pattern(300_000);
    world.write_file("file", &body).await.unwrap();
    let world = Arc::new(world.remount().await);
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 10, b"new").await.unwrap();
    body[10..13].copy_from_slice(b"new");
    world.bucket.faults.add(Rule::new(Fault::Stall).on(Operation::Get));
    let mut reading = tokio::spawn({
        let world = world.clone();
        async move { world.read_all(handle).await }
    });
    while world.bucket.faults.struck(Operation::Get) == 0 {
        tokio::task::yield_now().await;
    }
    let put = world.bucket.late.hold(Operation::Put);
    let syncing = tokio::spawn({
        let world = world.clone();
        async move { world.fs.sync().await }
    });
    let answer = put.done().await;
    world.bucket.faults.release();
    assert_waits(std::pin::Pin::new(&mut reading)).await;
    answer.send(()).ok();
    syncing.await.unwrap().unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), body);
}

/// A truncation to the same length left a file in the edited state with nothing to publish: a `chmod` then waited for a commit
/// that never came (world of files 11714).
#[tokio::test]
async fn s18_a_mode_is_exported_without_unpublished_writes() {
    let world = World::new().await;
    world.write_file("file", b"body").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    let ino = world.ino("file").await.unwrap();
    let same = Changes { size_bytes: Some(4), ..Changes::default() };
    world.fs.setattr(CALLER, ino, same, Some(handle)).await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.close(handle).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
    assert_eq!(world.read_file("file").await.unwrap(), b"body");
}

/// The kernel reports a close in the background. An unlink in between succeeded but returned ENOENT, because the last handle
/// had deleted the orphan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s31_a_file_is_removed_while_its_last_handle_is_closed() {
    for bucket in Bucket::by_inode_each().await {
        let world = Arc::new(bucket.mount(|_| {}).await);
        for round in 0..500 {
            world.write_file("file", "x").await.unwrap();
            if round % 2 == 0 {
                world.write_file("other", "y").await.unwrap();
            }
            let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
            let closing = world.clone();
            let closed = tokio::spawn(async move { closing.fs.release(handle).await });
            let removed = match round % 2 {
                0 => world.rename("other", "file").await,
                _ => world.unlink("file").await,
            };
            removed.unwrap();
            closed.await.unwrap().unwrap();
        }
        world.assert_healthy().await;
    }
}
