//! Changes made by other clients of the bucket, as programs see them.

use crate::world::{Bucket, MIB, World, errno, pattern};
use vfs::Kind;

#[tokio::test]
async fn s50_objects_appear_change_and_vanish() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        bucket.put("dir/old", "old").await;
        let world = bucket.mount(|_| {}).await;
        assert_eq!(world.names("dir").await.unwrap(), ["old"]);
        bucket.put("dir/new", "new").await;
        bucket.put("dir/old", "changed").await;
        bucket.put("other/deep/file", "x").await;
        world.expire();
        assert_eq!(world.names("dir").await.unwrap(), ["new", "old"]);
        assert_eq!(world.read_file("dir/old").await.unwrap(), b"changed");
        assert_eq!(world.stat("dir/old").await.unwrap().size_bytes, 7);
        assert_eq!(world.read_file("other/deep/file").await.unwrap(), b"x");
        bucket.delete("dir/new").await;
        bucket.delete("other/deep/file").await;
        world.expire();
        assert_eq!(errno(world.stat("dir/new").await), libc::ENOENT);
        assert_eq!(errno(world.stat("other").await), libc::ENOENT);
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s50_a_file_becomes_a_directory_and_the_reverse() {
    let bucket = Bucket::in_memory();
    bucket.put("a", "file").await;
    bucket.put("b/inside", "x").await;
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.names("/").await.unwrap(), ["a", "b"]);
    assert_eq!(world.names("b").await.unwrap(), ["inside"]);
    bucket.delete("a").await;
    bucket.put("a/inside", "y").await;
    bucket.delete("b/inside").await;
    bucket.put("b", "now a file").await;
    world.expire();
    assert_eq!(world.stat("a").await.unwrap().kind, Kind::Directory);
    assert_eq!(world.read_file("a/inside").await.unwrap(), b"y");
    assert_eq!(world.read_file("b").await.unwrap(), b"now a file");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s51_the_first_read_takes_the_new_bytes_and_a_later_one_is_stale() {
    let bucket = Bucket::in_memory();
    bucket.put("file", pattern(3 * MIB)).await;
    let world = bucket.mount(|_| {}).await;
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    bucket.put("file", vec![9; 2 * MIB]).await;
    assert_eq!(world.fs.read(handle, 0, 4).await.unwrap(), [9, 9, 9, 9][..]);
    assert_eq!(world.stat("file").await.unwrap().size_bytes, 2 * MIB as u64);
    bucket.put("file", vec![5; 3 * MIB]).await;
    assert_eq!(errno(world.fs.read(handle, MIB as u64 + 4096, 4096).await), libc::ESTALE);
    assert_eq!(errno(world.fs.read(handle, 0, 4096).await), libc::ESTALE, "earlier ranges are stale too");
    let fresh = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    assert_eq!(world.read_all(fresh).await.unwrap(), vec![5; 3 * MIB]);
}

/// Regression: a program that had read its own unstored writes read on in the bytes that another client stored instead: half a
/// file of each.
#[tokio::test]
async fn s51_a_reader_of_its_own_writes_reads_no_foreign_bytes() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, &[1; 2000]).await.unwrap();
    assert_eq!(world.fs.read(handle, 0, 1000).await.unwrap(), [1; 1000][..]);
    world.fs.fsync(handle).await.unwrap();
    bucket.put("file", vec![2; 2000]).await;
    world.expire();
    world.stat("file").await.unwrap();
    assert_eq!(errno(world.fs.read(handle, 1000, 1000).await), libc::ESTALE);
}

#[tokio::test]
async fn s40_a_descriptor_reads_one_version() {
    let bucket = Bucket::in_memory();
    bucket.put("file", vec![1; 4 * MIB]).await;
    let world = bucket.mount(|_| {}).await;
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    assert_eq!(world.fs.read(handle, 0, 10).await.unwrap(), [1; 10][..]);
    bucket.put("file", vec![2; 4 * MIB]).await;
    world.expire();
    world.stat("file").await.unwrap();
    for at in [0, MIB, 3 * MIB] {
        match world.fs.read(handle, at as u64, 4096).await {
            Ok(bytes) => assert_eq!(bytes, [1; 4096][..]),
            Err(error) => assert_eq!(error.errno(), libc::ESTALE),
        }
    }
}

/// Regression: of two descriptors only one had read. The kernel has one page cache for both, and the second descriptor filled
/// it with new bytes that the first then read.
#[tokio::test]
async fn s431_an_open_of_newer_bytes_bypasses_the_page_cache_while_an_older_descriptor_is_open() {
    let bucket = Bucket::in_memory();
    bucket.put("file", vec![1; 2 * MIB]).await;
    let world = bucket.mount(|_| {}).await;
    let first = world.open("file", libc::O_RDONLY).await.unwrap();
    assert!(!first.keep_cache && !first.is_uncached);
    assert_eq!(world.fs.read(first.handle, 0, 10).await.unwrap(), [1; 10][..]);
    let second = world.open("file", libc::O_RDONLY).await.unwrap();
    assert!(second.keep_cache && !second.is_uncached);
    bucket.put("file", vec![2; MIB]).await;
    world.expire();
    let newer = world.open("file", libc::O_RDONLY).await.unwrap();
    assert!(newer.is_uncached && newer.keep_cache, "the pages belong to the older descriptors");
    assert_eq!(world.fs.read(newer.handle, 0, 10).await.unwrap(), [2; 10][..]);
    let ino = world.ino("file").await.unwrap();
    assert!(world.fs.kernel_caches().has_older_readers(ino));
    assert_eq!(world.fs.getattr_through(newer.handle, ino).await.unwrap().size_bytes, MIB as u64);
    for older in [first, second] {
        assert_eq!(errno(world.fs.getattr_through(older.handle, ino).await), libc::ESTALE);
        assert_eq!(errno(world.fs.seek(older.handle, 0, vfs::Whence::Hole).await), libc::ESTALE);
        assert_eq!(errno(world.fs.copy_range((older.handle, 0), (older.handle, 0), 1).await), libc::ESTALE);
        assert_eq!(errno(world.fs.read(older.handle, MIB as u64, 10).await), libc::ESTALE);
        world.close(older.handle).await.unwrap();
    }
    assert!(!world.fs.kernel_caches().has_older_readers(ino));
    let mixed = world.open("file", libc::O_RDONLY).await.unwrap();
    assert!(!mixed.is_uncached && !mixed.keep_cache, "pages mapped by the bypassing handle are in the cache");
    for handle in [newer.handle, mixed.handle] {
        assert_eq!(world.fs.read(handle, 0, 10).await.unwrap(), [2; 10][..]);
        world.close(handle).await.unwrap();
    }
}

/// Returns a file that is open for write in one of the dirty states, before its object changes.
async fn dirty_file(state: &str) -> (World, vfs::Handle, Vec<u8>) {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    world.mkdir("dir").await.unwrap();
    let old = pattern(3 * MIB);
    world.write_file("dir/file", &old).await.unwrap();
    let flags = if state == "local" { libc::O_RDWR } else { libc::O_RDWR | libc::O_TRUNC };
    let handle = world.open_handle("dir/file", flags).await.unwrap();
    let ours = match state {
        "memory" => b"ours".to_vec(),
        "stream" => vec![7; 3 * MIB + 5],
        _ => [&[7; 100], &old[100..]].concat(),
    };
    let written = if state == "local" { &ours[..100] } else { &ours[..] };
    world.write_all(handle, written).await.unwrap();
    (world, handle, ours)
}

async fn lost_and_found(world: &World) -> Vec<(String, Vec<u8>)> {
    let mut kept = Vec::new();
    for key in world.bucket.keys().await.into_iter().filter(|key| key.starts_with("lost+found/")) {
        kept.push((key.clone(), world.bucket.object(&key).await.unwrap()));
    }
    kept
}

#[tokio::test]
async fn s52_the_bucket_wins_and_the_bytes_are_kept() {
    for state in ["memory", "stream", "local"] {
        let (world, handle, mut ours) = dirty_file(state).await;
        world.bucket.put("dir/file", "theirs").await;
        assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE, "{state}");
        world.fs.release(handle).await.unwrap();
        assert_eq!(world.bucket.object("dir/file").await.unwrap(), b"theirs", "{state}");
        assert_eq!(world.read_file("dir/file").await.unwrap(), b"theirs", "{state}");
        if state == "local" {
            // The unchanged part was lost with the replaced object.
            ours[100..].fill(0);
        }
        let kept = lost_and_found(&world).await;
        let [(key, bytes)] = kept.as_slice() else { panic!("{state}: {kept:?}") };
        let digits = key.strip_prefix("lost+found/dir_file.").unwrap();
        assert!(digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{key}");
        assert!(*bytes == ours, "{state}");
        assert_eq!(world.names("/").await.unwrap(), ["dir", "lost+found"], "{state}");
        assert_eq!(world.bucket.keys().await.len(), 3, "{state}: nothing else is left");
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s52_a_foreign_delete_is_a_change_too() {
    for state in ["memory", "stream", "local"] {
        let (world, handle, mut ours) = dirty_file(state).await;
        world.bucket.delete("dir/file").await;
        assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE, "{state}");
        world.fs.release(handle).await.unwrap();
        if state == "local" {
            ours[100..].fill(0);
        }
        let kept = lost_and_found(&world).await;
        assert!(kept.len() == 1 && kept[0].1 == ours, "{state}");
        assert_eq!(errno(world.stat("dir/file").await), libc::ENOENT, "{state}");
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s53_creating_what_another_client_created_is_no_silent_overwrite() {
    for len in [5, 3 * MIB] {
        let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
        let handle = world.create("file").await.unwrap();
        world.write_all(handle, &pattern(len)).await.unwrap();
        world.bucket.put("file", "theirs").await;
        assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE);
        world.fs.release(handle).await.unwrap();
        assert_eq!(world.read_file("file").await.unwrap(), b"theirs");
        assert_eq!(lost_and_found(&world).await[0].1, pattern(len));
        assert_eq!(errno(world.mknod("file", Kind::File).await), libc::EEXIST);
        world.assert_healthy().await;
    }
}

/// Regression: a new file that lost a conflict had never been stored. Its name led to an empty file until the listing, which
/// did not show the other object, had expired.
#[tokio::test]
async fn s53_the_losing_side_sees_the_other_object_at_once() {
    let world = World::new().await;
    world.mkdir("dir").await.unwrap();
    assert_eq!(world.names("dir").await.unwrap(), [""; 0]);
    let handle = world.create("dir/file").await.unwrap();
    world.bucket.put("dir/file", "theirs").await;
    assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE);
    world.fs.release(handle).await.unwrap();
    assert_eq!(world.read_file("dir/file").await.unwrap(), b"theirs");
    assert_eq!(world.names("dir").await.unwrap(), ["file"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s53_entries_stored_at_creation_do_not_overwrite_either() {
    let world = World::new().await;
    world.names("/").await.unwrap();
    for name in ["node", "link", "dir/"] {
        world.bucket.put(name, "theirs").await;
    }
    assert_eq!(errno(world.mknod("node", Kind::File).await), libc::EEXIST);
    assert_eq!(errno(world.symlink("link", b"target").await), libc::EEXIST);
    assert_eq!(world.bucket.object("link").await.unwrap(), b"theirs");
    assert_eq!(world.read_file("node").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s54_a_foreign_delete_is_stale_at_the_next_read_from_the_store() {
    let bucket = Bucket::in_memory();
    let body = pattern(64 * MIB);
    bucket.put("file", &body).await;
    let world = bucket.mount(|_| {}).await;
    for is_noticed in [false, true] {
        bucket.put("file", &body).await;
        world.expire();
        let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
        assert_eq!(world.fs.read(handle, 0, 100).await.unwrap(), body[..100]);
        bucket.delete("file").await;
        if is_noticed {
            world.expire();
            assert_eq!(errno(world.stat("file").await), libc::ENOENT);
        }
        assert_eq!(errno(world.fs.read(handle, 60 * MIB as u64, 100).await), libc::ESTALE);
        assert_eq!(errno(world.fs.read(handle, 61 * MIB as u64, 100).await), libc::ESTALE);
        world.close(handle).await.unwrap();
        world.assert_healthy().await;
    }
}
