//! Memory stays within its shares, whatever the bucket's size and the number of writers.

use crate::world::{Bucket, CALLER, MIB, World, pattern};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use store::wrap::Operation;
use vfs::{Ino, Invalidation, Kind, Mapping};

const LIMIT_BYTES: u64 = 64 << 20;

async fn small(bucket: &Bucket) -> World {
    bucket.mount(|config| config.memory_limit_bytes = LIMIT_BYTES).await
}

/// Asserts that the mount's memory is within its shares of the limit.
fn assert_within_shares(world: &World) {
    let status = world.fs.status();
    // A page may be learned after an eviction.
    assert!(status.metadata_bytes <= LIMIT_BYTES / 100 * 40 + (1 << 20), "{status:?}");
    assert!(status.read_bytes <= LIMIT_BYTES / 100 * 22 + (2 << 20), "{status:?}");
    assert!(status.write_bytes <= LIMIT_BYTES / 100 * 23, "{status:?}");
}

#[tokio::test]
async fn s130_s132_s133_a_directory_larger_than_memory_is_listed() {
    const COUNT: usize = 200_000;
    let bucket = Bucket::in_memory();
    for n in 0..COUNT {
        bucket.put(format!("dir/a-file-with-a-rather-long-name-{n:06}"), "").await;
    }
    let world = small(&bucket).await;
    let dir = world.fs.lookup(Ino::ROOT, b"dir").await.unwrap().ino;
    let handle = world.fs.opendir(dir).await.unwrap();
    let (mut cookie, mut seen) = (0, HashSet::new());
    loop {
        let batch = world.fs.readdir(handle, cookie, 1000, false).await.unwrap();
        let Some(last) = batch.last() else { break };
        cookie = last.cookie;
        batch.iter().for_each(|entry| assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name));
        assert_within_shares(&world);
    }
    assert_eq!(seen.len(), COUNT + 2);
    let first = world.fs.lookup(dir, b"a-file-with-a-rather-long-name-000000").await.unwrap();
    assert_eq!(first.mode, 0o644);
    assert_eq!(world.fs.check().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn s130_s133_a_tree_larger_than_memory_is_walked() {
    let bucket = Bucket::in_memory();
    for dir in 0..3000 {
        for file in 0..20 {
            bucket
                .put(format!("directory-{dir:04}/sub/file-with-a-name-of-some-length-{file:02}"), "x")
                .await;
        }
    }
    let world = small(&bucket).await;
    for dir in 0..3000 {
        let top = world.fs.lookup(Ino::ROOT, format!("directory-{dir:04}").as_bytes()).await.unwrap().ino;
        let sub = world.fs.lookup(top, b"sub").await.unwrap().ino;
        let handle = world.fs.opendir(sub).await.unwrap();
        let listed = world.fs.readdir(handle, 0, 100, true).await.unwrap();
        assert_eq!(listed.len(), 22);
        listed.iter().filter(|entry| entry.attr.is_some()).for_each(|entry| world.fs.forget(entry.ino, 1));
        world.fs.releasedir(handle);
        world.fs.forget(sub, 1);
        world.fs.forget(top, 1);
        assert_within_shares(&world);
    }
    let again = world.stat("directory-0000/sub/file-with-a-name-of-some-length-07").await.unwrap();
    assert_eq!(again.size_bytes, 1);
    assert_eq!(world.fs.check().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn s133_attributes_that_were_evicted_come_back() {
    let bucket = Bucket::in_memory();
    let world = bucket
        .mount(|config| {
            (config.memory_limit_bytes, config.attributes) = (1 << 20, vfs::AttributeSource::Headers);
        })
        .await;
    for n in 0..2000 {
        world.write_file(format!("file-{n:04}"), n.to_string()).await.unwrap();
        let attr = world.chmod(format!("file-{n:04}"), 0o600 + (n % 8)).await.unwrap();
        world.fs.sync().await.unwrap();
        world.fs.forget(attr.ino, u64::MAX);
    }
    for n in 0..2000 {
        let attr = world.stat(format!("file-{n:04}")).await.unwrap();
        assert_eq!((attr.mode, attr.size_bytes), (0o600 + n % 8, n.to_string().len() as u64), "{n}");
    }
    world.assert_healthy().await;
}

/// The kernel drops references when asked to, as it does for names that are not open.
#[tokio::test]
async fn s135_kernel_references_are_bounded_in_a_volume_named_by_inode() {
    const COUNT: usize = 20_000;
    let bucket = Bucket::by_inode(Mapping::Whole).await;
    let world = bucket.mount(|config| config.memory_limit_bytes = 1 << 20).await;
    let mut news = world.fs.kernel_caches().invalidations();
    let (mut held, mut held_at_most) = (HashMap::new(), 0);
    for n in 0..COUNT {
        let name = Bytes::from(format!("file-{n}"));
        let attr = world.fs.mknod(CALLER, Ino::ROOT, &name, Kind::File, 0o600, 0).await.unwrap();
        held.insert(name.clone(), attr.ino);
        // A program that creates a file also looks up others.
        world.fs.lookup(Ino::ROOT, &name).await.unwrap();
        while let Ok(asked) = news.try_recv() {
            let Invalidation::Entry { name, .. } = asked else { continue };
            held.remove(&name).into_iter().for_each(|ino| world.fs.forget(ino, 2));
        }
        held_at_most = held_at_most.max(held.len());
    }
    // A fifth of the limit at about 80 bytes each, and what is added between two eviction passes.
    assert!((2000..5000).contains(&held_at_most), "{held_at_most}");
    world.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s130_s134_many_writers_share_little_memory() {
    let bucket = Bucket::in_memory();
    let world = Arc::new(
        bucket
            .mount(|config| {
                (config.memory_limit_bytes, config.part_size_bytes) = (LIMIT_BYTES, 5 << 20);
            })
            .await,
    );
    let mut open = Vec::new();
    for n in 0..200 {
        let handle = world.create(format!("file-{n}")).await.unwrap();
        world.fs.write(handle, 0, &[n as u8; 100]).await.unwrap();
        open.push(handle);
        assert_within_shares(&world);
    }
    let body = Arc::new(pattern(6 * MIB));
    let mut writers = Vec::new();
    for (n, handle) in open.into_iter().enumerate() {
        let (world, body) = (world.clone(), body.clone());
        writers.push(tokio::spawn(async move {
            if n % 10 == 0 {
                world.write_all(handle, &body).await.unwrap();
            } else {
                world.fs.write(handle, 100, &[1; 5000]).await.unwrap();
            }
            world.fs.flush(handle).await.unwrap();
            world.fs.release(handle).await.unwrap();
        }));
    }
    for writer in writers {
        writer.await.unwrap();
        assert_within_shares(&world);
    }
    assert_eq!(world.fs.status().write_bytes, 0, "all memory is released");
    for n in 0..200 {
        let expected = if n % 10 == 0 { body.to_vec() } else { [&[n as u8; 100][..], &[1; 5000]].concat() };
        assert!(bucket.object(format!("file-{n}")).await.unwrap() == expected, "{n}");
    }
}

#[tokio::test]
async fn s134_a_writer_waits_for_the_store() {
    let world = Arc::new(World::with(|config| config.memory_limit_bytes = 2 * LIMIT_BYTES).await);
    world.write_file("first", b"").await.unwrap();
    let stall = store::wrap::Rule::new(store::wrap::Fault::Stall).on(store::wrap::Operation::PutPart);
    world.bucket.faults.add(stall.always());
    let writer = tokio::spawn({
        let world = world.clone();
        async move {
            let handle = world.create("file").await.unwrap();
            world.write_all(handle, &pattern(100 * MIB)).await.unwrap();
            world.close(handle).await.unwrap();
        }
    });
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!writer.is_finished());
    let status = world.fs.status();
    assert!(status.write_bytes <= status.memory_limit_bytes / 100 * 23, "{status:?}");
    let sent = world.bucket.trace.counts().sent_bytes;
    assert!(sent <= status.write_bytes, "{sent}");
    world.bucket.faults.clear();
    world.bucket.faults.release();
    writer.await.unwrap();
    assert!(world.bucket.object("file").await.unwrap() == pattern(100 * MIB));
}

#[tokio::test]
async fn s134_stalled_uploads_of_small_edited_files_keep_no_other_from_being_stored() {
    const STALLED: u64 = 32;
    let world = Arc::new(World::with(|config| config.memory_limit_bytes = 2 * LIMIT_BYTES).await);
    let edit = |name: String| {
        let world = world.clone();
        async move {
            let handle = world.open_handle(&name, libc::O_RDWR).await.unwrap();
            world.fs.write(handle, 1000, b"edited").await.unwrap();
            world.close(handle).await.unwrap();
        }
    };
    for n in 0..=STALLED {
        world.write_file(format!("file-{n}"), pattern(200 << 10)).await.unwrap();
    }
    let stall = store::wrap::Rule::new(store::wrap::Fault::Stall).on(store::wrap::Operation::Put);
    world.bucket.faults.add(stall.times(STALLED));
    let stalled: Vec<_> = (0..STALLED).map(|n| tokio::spawn(edit(format!("file-{n}")))).collect();
    while world.bucket.faults.struck(store::wrap::Operation::Put) < STALLED {
        tokio::task::yield_now().await;
    }
    edit(format!("file-{STALLED}")).await;
    assert!(stalled.iter().all(|edit| !edit.is_finished()));
    world.bucket.faults.release();
    for edit in stalled {
        edit.await.unwrap();
    }
    world.assert_healthy().await;
}

/// A part of one file took all memory for uploads, so that the close of another file waited for it (world of files 55,152,767).
#[tokio::test(start_paused = true)]
async fn s809_a_file_whose_upload_stalls_leaves_memory_to_others() {
    const LONG: usize = 4 << 20;
    let world = World::with(|config| {
        (config.memory_limit_bytes, config.part_size_bytes) = (8 << 20, 1 << 20);
    })
    .await;
    let edit = async |path: &str, len: usize| {
        world.write_file(path, b"first").await.unwrap();
        let handle = world.open_handle(path, libc::O_RDWR).await.unwrap();
        // From the end to the beginning, so that the file is edited on disk.
        for at in (0..len).step_by(1 << 18).rev() {
            world.fs.write(handle, at as u64, &[7; 1 << 18]).await.unwrap();
        }
        handle
    };
    let (stalling, other) = (edit("stalling", LONG).await, edit("other", 1 << 20).await);
    let held = world.bucket.late.hold(Operation::PutPart);
    let close_other = async {
        let answer = held.done().await;
        tokio::time::timeout(Duration::from_secs(1), world.close(other)).await.unwrap().unwrap();
        drop(answer);
    };
    let (closed, ()) = tokio::join!(world.close(stalling), close_other);
    closed.unwrap();
    assert_eq!(world.read_file("stalling").await.unwrap(), [7; LONG]);
    assert_eq!(world.read_file("other").await.unwrap(), [7; 1 << 20]);
}
