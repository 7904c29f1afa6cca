//! Durability: what is stored when a call returns, and the requests for it.

use crate::world::{Bucket, MIB, World, pattern};
use std::sync::Arc;
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use vfs::{Kind, Mapping};

#[tokio::test]
async fn s11_close_stores_the_file_under_its_key() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|_| {}).await;
        world.mkdir("dir").await.unwrap();
        world.write_file("dir/file", b"hello").await.unwrap();
        assert_eq!(bucket.object("dir/file").await.unwrap(), b"hello");
        world.write_file("dir/empty", b"").await.unwrap();
        assert_eq!(bucket.object("dir/empty").await.unwrap(), b"");
        let big = pattern(20 * MIB + 7);
        world.write_file("big", &big).await.unwrap();
        assert_eq!(bucket.object("big").await.unwrap(), big);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s12_fsync_stores_all_writes_so_far() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"first").await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    assert_eq!(world.remount().await.read_file("file").await.unwrap(), b"first");
    world.fs.write(handle, 5, b", second").await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    assert_eq!(world.remount().await.read_file("file").await.unwrap(), b"first, second");
    world.close(handle).await.unwrap();
}

#[tokio::test]
async fn s13_a_new_small_file_is_one_put() {
    let world = World::new().await;
    world.write_file("first", b"").await.unwrap();
    assert_eq!(world.requests(world.write_file("small", b"x")).await, "Put 1");
    assert_eq!(world.requests(world.write_file("full", pattern(8 * MIB))).await, "Put 1");
    assert_eq!(world.bucket.header("small", "file-permissions").await.unwrap(), "0100640");
    assert_eq!(world.bucket.header("small", "file-owner").await.unwrap(), "1000");
}

/// `echo x > file`: bash closes a duplicate of the descriptor before it writes, which publishes the empty file. The second
/// commit used to request the headers that the first had just stored.
#[tokio::test]
async fn headers_that_we_stored_are_not_requested() {
    let world = World::new().await;
    world.write_file("first", b"").await.unwrap();
    let redirection = async {
        let handle = world.create("file").await?;
        world.fs.flush(handle).await?;
        world.fs.write(handle, 0, b"x\n").await?;
        world.close(handle).await
    };
    assert_eq!(world.requests(redirection).await, "Put 2");
    assert_eq!(world.bucket.object("file").await.unwrap(), b"x\n");
}

#[tokio::test]
async fn s14_a_stream_goes_out_in_parts_and_nothing_to_the_disk() {
    let world = World::new().await;
    world.write_file("first", b"").await.unwrap();
    world.remove_cache_dir();
    let body = pattern(64 * MIB);
    let requests = world.requests(world.write_file("stream", &body)).await;
    assert_eq!(requests, "BeginMultipart 1, PutPart 8, Complete 1");
    assert_eq!(world.bucket.object("stream").await.unwrap(), body);
}

#[tokio::test]
async fn s15_a_new_file_is_not_visible_before_close() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    let small = world.create("small").await.unwrap();
    world.fs.write(small, 0, b"abc").await.unwrap();
    let stream = world.create("stream").await.unwrap();
    world.write_all(stream, &pattern(3 * MIB)).await.unwrap();
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
    assert_eq!(world.fs.read(stream, 5, 5).await.unwrap(), pattern(3 * MIB)[5..10]);
    assert_eq!(
        world.bucket.object("stream").await.unwrap(),
        pattern(3 * MIB),
        "a read of sent parts completes the stream"
    );
    world.fs.write(stream, 3 * MIB as u64, b"more").await.unwrap();
    world.close(stream).await.unwrap();
    world.close(small).await.unwrap();
    assert_eq!(world.bucket.object("stream").await.unwrap(), [&pattern(3 * MIB)[..], b"more"].concat());
    world.assert_healthy().await;
}

#[tokio::test]
async fn s16_an_overwrite_sends_what_changed_and_copies_the_rest() {
    let world = World::new().await;
    let mut body = pattern(40 * MIB);
    world.write_file("big", &body).await.unwrap();
    let handle = world.open_handle("big", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 17 * MIB as u64, b"changed").await.unwrap();
    body[17 * MIB..17 * MIB + 7].copy_from_slice(b"changed");
    let (closed, counts) = world.counting(world.close(handle)).await;
    closed.unwrap();
    assert_eq!(counts.to_string(), "Get 2, Head 1, BeginMultipart 1, PutPart 1, CopyPart 4, Complete 1");
    assert_eq!(counts.sent_bytes, 8 * MIB as u64);
    assert_eq!(world.bucket.object("big").await.unwrap(), body);
}

#[tokio::test]
async fn s17_names_have_changed_the_bucket_when_the_call_returns() {
    let world = World::new().await;
    world.mkdir("dir").await.unwrap();
    world.symlink("dir/link", b"../target").await.unwrap();
    world.mknod("dir/node", Kind::File).await.unwrap();
    assert_eq!(world.bucket.keys().await, ["dir/", "dir/link", "dir/node"]);
    assert_eq!(world.bucket.object("dir/link").await.unwrap(), b"../target");
    world.unlink("dir/link").await.unwrap();
    world.unlink("dir/node").await.unwrap();
    assert_eq!(world.bucket.keys().await, ["dir/"]);
    world.rmdir("dir").await.unwrap();
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s18_attributes_reach_the_object_within_a_second() {
    let world = World::new().await;
    world.write_file("file", b"x").await.unwrap();
    let ((), counts) = world
        .counting(async {
            for mode in [0o600, 0o604, 0o644] {
                world.chmod("file", mode).await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        })
        .await;
    assert_eq!(counts.to_string(), "Head 1, Copy 1", "three changes are one copy");
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100644");
}

#[tokio::test]
async fn s18_attributes_reach_the_object_at_fsync_and_sync() {
    let world = World::new().await;
    world.write_file("file", b"x").await.unwrap();
    world.mkdir("dir").await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
    world.chmod("file", 0o666).await.unwrap();
    world.chmod("dir", 0o700).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100666");
    assert_eq!(world.bucket.header("dir/", "file-permissions").await.unwrap(), "0040700");
    assert_eq!(world.fs.status().exports_waiting, 0);
}

/// Attributes that waited for their export were in memory only: `kill -9` lost them permanently, while this machine showed them
/// and `sync` reported success.
#[tokio::test]
async fn s403_pending_attributes_outlive_a_crash() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    for number in 0..40 {
        world.write_file(format!("dir/{number}"), b"x").await.unwrap();
    }
    let permissions = async |path: &str| bucket.header(path, "file-permissions").await.unwrap();
    let chmod_all = async |world: &World, mode: u16| {
        for number in 0..40 {
            world.chmod(format!("dir/{number}"), mode).await.unwrap();
        }
        world.chmod("dir", mode | 0o100).await.unwrap();
    };
    chmod_all(&world, 0o600).await;
    assert_eq!(world.fs.status().exports_waiting, 41);
    drop(world);
    assert_eq!(permissions("dir/7").await, "0100640", "nothing was exported before the crash");
    // A sync of the next mount waits for the exports.
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.fs.status().exports_waiting, 41);
    world.fs.sync().await.unwrap();
    for number in 0..40 {
        assert_eq!(permissions(&format!("dir/{number}")).await, "0100600");
    }
    assert_eq!(permissions("dir/").await, "0040700");
    assert_eq!(world.fs.status().exports_waiting, 0);
    let (synced, counts) = world.counting(world.fs.sync()).await;
    synced.unwrap();
    assert_eq!(counts.to_string(), "nothing", "no export is left");
    world.assert_healthy().await;
}

/// Exports resume without a sync.
#[tokio::test(start_paused = true)]
async fn s403_pending_exports_resume_at_the_next_mount() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", b"x").await.unwrap();
    world.write_file("removed", b"x").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"y").await.unwrap();
    // The crash loses the open file's unpublished write, but not its attributes.
    world.chmod("file", 0o600).await.unwrap();
    world.chmod("removed", 0o600).await.unwrap();
    world.unlink("removed").await.unwrap();
    drop(world);
    let world = bucket.mount(|_| {}).await;
    world.fs.recover().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bucket.header("file", "file-permissions").await.unwrap(), "0100600");
    assert_eq!(bucket.object("file").await.unwrap(), b"x");
    assert_eq!(world.fs.status().exports_waiting, 0);
    world.assert_healthy().await;
}

/// With write-back, an object that was uploaded before the crash has an etag that the names did not know. It was taken for another
/// client's, whose headers replaced the mode (world of files 2224).
#[tokio::test]
async fn s403_pending_attributes_of_an_uploaded_file_outlive_crashes_with_write_back() {
    let (bucket, dir) = (Bucket::with_metadata(), tempfile::TempDir::new().unwrap());
    let mount = || {
        bucket.mount(|config| {
            (config.write_back, config.cache_dir) = (true, dir.path().join("cache"));
            config.moves_path = dir.path().join("moves");
        })
    };
    let crash = async |world: World| {
        let log = Arc::downgrade(world.log.as_ref().unwrap());
        drop(world);
        while log.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let world = mount().await;
    world.write_file("file", b"x").await.unwrap();
    world.log.as_ref().unwrap().drained().await;
    world.chmod("file", 0o600).await.unwrap();
    crash(world).await;
    for (before, after) in [(0o600, 0o604), (0o604, 0o644), (0o644, 0o755)] {
        let world = mount().await;
        world.fs.recover().await.unwrap();
        world.expire();
        assert_eq!(world.stat("file").await.unwrap().mode, before);
        world.chmod("file", after).await.unwrap();
        crash(world).await;
    }
    let world = mount().await;
    world.fs.sync().await.unwrap();
    world.log.as_ref().unwrap().drained().await;
    assert_eq!(bucket.header("file", "file-permissions").await.unwrap(), "0100755");
    assert_eq!(bucket.object("file").await.unwrap(), b"x");
    world.assert_healthy().await;
}

/// `sync` stored one file after another: 10,000 small files took 10,000 times the store's latency.
#[tokio::test]
async fn s404_a_sync_stores_files_at_the_same_time() {
    let world = World::new().await;
    let mut handles = Vec::new();
    for number in 0..4 {
        let handle = world.create(format!("file{number}")).await.unwrap();
        world.fs.write(handle, 0, b"x").await.unwrap();
        handles.push(handle);
    }
    world.write_file("first", b"the volume has its record").await.unwrap();
    let held: Vec<_> = (0..4).map(|_| world.bucket.late.hold(Operation::Put)).collect();
    let fs = world.fs.clone();
    let syncing = tokio::spawn(async move { fs.sync().await });
    let mut answers = Vec::new();
    for held in held {
        // A sequential sync would never send the second request.
        answers.push(tokio::time::timeout(Duration::from_secs(60), held.done()).await.unwrap());
    }
    drop(answers);
    syncing.await.unwrap().unwrap();
    for handle in handles {
        world.close(handle).await.unwrap();
    }
    world.assert_healthy().await;
}

#[tokio::test]
async fn s19_a_shutdown_stores_dirty_files() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"kept").await.unwrap();
    world.fs.shutdown(Duration::from_secs(5)).await.unwrap();
    assert_eq!(world.bucket.object("file").await.unwrap(), b"kept");
}

#[tokio::test(start_paused = true)]
async fn s19_a_shutdown_ends_when_the_store_does_not_answer() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"kept").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::Stall).always());
    assert!(world.fs.shutdown(Duration::from_secs(5)).await.is_err());
}

/// A shutdown that timed out cancelled the upload of a file and lost its writes: the mount stayed, the next close reported
/// success, and nothing was stored.
#[tokio::test(start_paused = true)]
async fn s19_s124_a_shutdown_that_times_out_drops_nothing() {
    for len in [4, 3 * MIB] {
        let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
        let handle = world.create("file").await.unwrap();
        world.write_all(handle, &pattern(len)).await.unwrap();
        world.bucket.faults.add(Rule::new(Fault::Stall).always());
        assert!(world.fs.shutdown(Duration::from_secs(5)).await.is_err());
        assert_eq!(world.fs.status().dirty_files, 1);
        world.bucket.faults.clear();
        world.bucket.faults.release();
        world.close(handle).await.unwrap();
        assert!(world.bucket.object("file").await.unwrap() == pattern(len));
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s20_a_name_in_the_bucket_always_has_its_bytes() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    let before = pattern(3 * MIB);
    world.write_file("file", &before).await.unwrap();
    // The process dies here, in the middle of an overwrite.
    let handle = world.open_handle("file", libc::O_WRONLY | libc::O_TRUNC).await.unwrap();
    world.write_all(handle, &[1; 2 * MIB]).await.unwrap();
    let lost = world.create("new").await.unwrap();
    world.write_all(lost, &[2; 4 * MIB]).await.unwrap();
    let after = world.remount().await;
    assert_eq!(after.names("/").await.unwrap(), ["file"]);
    assert_eq!(after.read_file("file").await.unwrap(), before);
}

#[tokio::test]
async fn s24_without_a_cache_a_write_is_stored_when_it_returns() {
    for bucket in [Bucket::with_metadata(), Bucket::by_inode(Mapping::Whole).await] {
        let world = bucket.mount(|config| config.is_uncached = true).await;
        let handle = world.create("file").await.unwrap();
        let mut bytes = pattern(MIB);
        world.fs.write(handle, 0, &bytes).await.unwrap();
        assert!(world.remount().await.read_file("file").await.unwrap() == bytes);
        world.fs.write(handle, 1000, b"new").await.unwrap();
        bytes[1000..1003].copy_from_slice(b"new");
        let again = world.remount().await;
        assert!(again.read_file("file").await.unwrap() == bytes);
        world.fs.fallocate(handle, libc::FALLOC_FL_ZERO_RANGE, 0, 10).await.unwrap();
        bytes[..10].fill(0);
        assert!(world.remount().await.read_file("file").await.unwrap() == bytes);
        assert_eq!(again.fs.status().read_bytes, 0, "what was read is not kept");
        world.close(handle).await.unwrap();
        world.assert_healthy().await;
    }
}
