//! Visibility of changes to readers, other descriptors, other mounts and listings.

use crate::world::{Bucket, CALLER, MIB, World, errno, pattern};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::wrap::Operation;
use vfs::{Changes, Ino};

#[tokio::test]
async fn s30_a_read_sees_every_write_before_it() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    // A file in memory, a stream, and a file over stored bytes.
    for (name, len) in [("memory", 100), ("stream", 5 * MIB + 3), ("stored", 3 * MIB)] {
        let body = pattern(len);
        let writer = world.create(name).await.unwrap();
        world.write_all(writer, &body).await.unwrap();
        if name == "stored" {
            world.fs.fsync(writer).await.unwrap();
        }
        let reader = world.open_handle(name, libc::O_RDONLY).await.unwrap();
        assert_eq!(world.read_all(reader).await.unwrap(), body, "{name}");
        world.fs.write(writer, 10, b"patch").await.unwrap();
        assert_eq!(
            world.fs.read(reader, 8, 9).await.unwrap(),
            [&body[8..10], b"patch", &body[15..17]].concat()
        );
        world.close(writer).await.unwrap();
        assert_eq!(world.fs.read(reader, 10, 5).await.unwrap(), b"patch"[..], "{name}");
        world.close(reader).await.unwrap();
    }
    world.assert_healthy().await;
}

#[tokio::test]
async fn s31_names_come_and_go_with_the_call() {
    for world in [World::new().await, Bucket::in_directory().mount(|_| {}).await] {
        let handle = world.create("file").await.unwrap();
        world.mkdir("dir").await.unwrap();
        world.symlink("link", b"file").await.unwrap();
        assert_eq!(world.names("/").await.unwrap(), ["dir", "file", "link"]);
        world.close(handle).await.unwrap();
        world.rename("file", "dir/file").await.unwrap();
        assert_eq!(errno(world.stat("file").await), libc::ENOENT);
        assert_eq!(world.names("dir").await.unwrap(), ["file"]);
        world.unlink("dir/file").await.unwrap();
        world.unlink("link").await.unwrap();
        world.rmdir("dir").await.unwrap();
        assert_eq!(world.names("/").await.unwrap(), Vec::<String>::new());
        for name in ["file", "dir", "link", "dir/file"] {
            assert_eq!(errno(world.stat(name).await), libc::ENOENT, "{name}");
        }
    }
}

#[tokio::test]
async fn s31_an_old_listing_does_not_undo_newer_changes() {
    let world = Arc::new(World::new().await);
    let gone = world.create("gone").await.unwrap();
    let grown = world.create("grown").await.unwrap();
    world.expire();
    world.close(gone).await.unwrap();
    world.fs.fsync(grown).await.unwrap();
    // The listing shows both files as they are now, but its answer arrives after the following changes.
    let held = world.bucket.late.hold(Operation::List);
    let other = world.clone();
    let listing = tokio::spawn(async move { other.names("/").await.unwrap() });
    let answer = held.done().await;
    world.fs.unlink(Ino::ROOT, b"gone").await.unwrap();
    world.fs.write(grown, 0, b"grown").await.unwrap();
    world.close(grown).await.unwrap();
    drop(answer);
    assert_eq!(listing.await.unwrap(), ["grown"]);
    assert_eq!(world.stat("grown").await.unwrap().size_bytes, 5);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s32_an_open_sees_foreign_closes_after_the_revalidation_time() {
    let here = World::new().await;
    here.write_file("file", b"first").await.unwrap();
    let there = here.remount().await;
    assert_eq!(there.read_file("file").await.unwrap(), b"first");
    here.write_file("file", b"second, longer").await.unwrap();
    here.write_file("new", b"n").await.unwrap();
    here.expire();
    assert_eq!(there.read_file("file").await.unwrap(), b"second, longer");
    assert_eq!(there.stat("file").await.unwrap().size_bytes, 14);
    assert_eq!(there.read_file("new").await.unwrap(), b"n");
    there.write_file("file", b"3").await.unwrap();
    here.expire();
    assert_eq!(here.read_file("file").await.unwrap(), b"3");
}

#[tokio::test(flavor = "multi_thread")]
async fn s34_one_of_several_creators_succeeds() {
    let world = Arc::new(World::new().await);
    for round in 0..20 {
        let name = format!("file-{round}");
        let creators: Vec<_> = (0..8)
            .map(|_| {
                let (world, name) = (world.clone(), name.clone());
                tokio::spawn(async move { world.create(name).await })
            })
            .collect();
        let mut made = Vec::new();
        for creator in creators {
            match creator.await.unwrap() {
                Ok(handle) => made.push(handle),
                Err(error) => assert_eq!(error.errno(), libc::EEXIST),
            }
        }
        assert_eq!(made.len(), 1);
        world.close(made[0]).await.unwrap();
    }
    world.assert_healthy().await;
}

#[tokio::test]
async fn s35_truncation_changes_the_object_at_close_and_growth_is_zeros() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    let body = pattern(3 * MIB);
    world.write_file("file", &body).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR | libc::O_TRUNC).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().size_bytes, 0);
    assert_eq!(world.bucket.object("file").await.unwrap(), body);
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("file").await.unwrap(), b"");

    world.write_file("file", &body).await.unwrap();
    world.truncate("file", 2 * MIB as u64 + 5).await.unwrap();
    assert_eq!(world.bucket.object("file").await.unwrap(), body[..2 * MIB + 5]);
    world.truncate("file", 3 * MIB as u64).await.unwrap();
    let zeros = vec![0; MIB - 5];
    assert_eq!(world.bucket.object("file").await.unwrap(), [&body[..2 * MIB + 5], &zeros].concat());
    world.assert_healthy().await;
}

/// Truncates a file to `size` in a given state, writes beyond the end, and compares with a vector.
async fn truncate_and_write_beyond(world: &World, name: &str, start: &[u8], size: usize, is_stored: bool) {
    let handle = world.create(name).await.unwrap();
    world.write_all(handle, start).await.unwrap();
    if is_stored {
        world.fs.fsync(handle).await.unwrap();
    }
    let changes = Changes { size_bytes: Some(size as u64), ..Changes::default() };
    let ino = world.ino(name).await.unwrap();
    let attr = world.fs.setattr(CALLER, ino, changes, Some(handle)).await.unwrap();
    assert_eq!(attr.size_bytes, size as u64);
    let mut model = start.to_vec();
    model.resize(size, 0);
    assert_eq!(world.read_all(handle).await.unwrap(), model, "{name} after the cut");
    let beyond = size + 1000;
    world.fs.write(handle, beyond as u64, b"beyond").await.unwrap();
    model.resize(beyond, 0);
    model.extend_from_slice(b"beyond");
    assert_eq!(world.read_all(handle).await.unwrap(), model, "{name} with a hole");
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object(name).await.unwrap(), model, "{name} stored");
    assert_eq!(world.stat(name).await.unwrap().size_bytes, model.len() as u64);
}

#[tokio::test]
async fn s35_truncation_in_every_state() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    for (kind, len) in [("empty", 0), ("memory", 1000), ("full", MIB), ("stream", 4 * MIB + 100)] {
        for size in [0, 1, 999, 1000, 1001, MIB, 2 * MIB + 1, 4 * MIB + 100, 6 * MIB] {
            for is_stored in [false, true] {
                let name = format!("{kind}-{size}-{is_stored}");
                truncate_and_write_beyond(&world, &name, &pattern(len), size, is_stored).await;
            }
        }
    }
    world.assert_healthy().await;
}

#[tokio::test]
async fn s36_readdir_shows_permanent_entries_exactly_once() {
    for expires in [false, true] {
        let bucket = Bucket::in_memory();
        for n in 0..2500 {
            bucket.put(format!("stays-{n:04}"), "").await;
            bucket.put(format!("stays-{n:04}.d/inside"), "").await;
        }
        for n in 0..50 {
            bucket.put(format!("goes-{n:02}"), "").await;
            bucket.put(format!("zz-goes-{n:02}"), "").await;
        }
        let world = bucket.mount(|_| {}).await;
        let handle = world.fs.opendir(Ino::ROOT).await.unwrap();
        let (mut cookie, mut seen, mut step) = (0, BTreeMap::<Vec<u8>, u32>::new(), 0);
        loop {
            let batch = world.fs.readdir(handle, cookie, 100, false).await.unwrap();
            let Some(last) = batch.last() else { break };
            cookie = last.cookie;
            batch.iter().for_each(|entry| *seen.entry(entry.name.to_vec()).or_default() += 1);
            if step < 50 {
                world.write_file(format!("added-{step:02}"), b"").await.unwrap();
                world.write_file(format!("zz-added-{step:02}"), b"").await.unwrap();
                world.unlink(format!("goes-{step:02}")).await.unwrap();
                world.unlink(format!("zz-goes-{step:02}")).await.unwrap();
                bucket.put(format!("foreign-{step:02}"), "").await;
            }
            if expires {
                world.expire();
            }
            step += 1;
        }
        let stays = seen.iter().filter(|(name, _)| name.starts_with(b"stays"));
        assert_eq!(stays.clone().count(), 5000, "expires: {expires}");
        assert!(seen.values().all(|count| *count == 1));
    }
}

/// A front end's cached length was outdated because another client had extended the file, and an appended line overwrote the
/// extension.
#[tokio::test]
async fn s33_appends_go_to_the_real_end_of_the_file() {
    let world = World::new().await;
    world.bucket.put("log", "one\ntwo\n").await;
    let handle = world.open_handle("log", libc::O_WRONLY | libc::O_APPEND).await.unwrap();
    assert!(world.fs.append_now(handle, 4, b"three\n").is_none());
    world.fs.append(handle, 4, b"three\n").await.unwrap();
    world.fs.append(handle, 14, b"four\n").await.unwrap();
    assert!(world.fs.append_now(handle, 14, b"five\n").is_none());
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("log").await.unwrap(), b"one\ntwo\nthree\nfour\n");
    world.assert_healthy().await;
}
