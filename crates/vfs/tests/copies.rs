//! `copy_file_range`: ranges are copied inside the store, or not at all.

use crate::world::{Bucket, MIB, World, errno, pattern};
use store::wrap::Operation;
use vfs::{Handle, Mapping};

const LEN: u64 = 12 * MIB as u64;

impl World {
    async fn copy(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> vfs::Result<u64> {
        self.fs.copy_range(from, to, len).await
    }
}

#[tokio::test]
async fn s173_a_copied_range_never_leaves_the_store() {
    for mapping in [Mapping::Whole, Mapping::Chunked { bytes: 4 * MIB as u64 }] {
        let world = Bucket::by_inode(mapping).await.mount(|_| {}).await;
        let body = pattern(LEN as usize);
        world.write_file("source", &body).await.unwrap();
        let source = world.open_handle("source", libc::O_RDONLY).await.unwrap();
        let target = world.create("target").await.unwrap();
        let (copied, counts) = world.counting(world.copy((source, 0), (target, 0), u64::MAX >> 1)).await;
        assert_eq!(copied.unwrap(), LEN);
        assert_eq!((counts.of(Operation::Get), counts.of(Operation::PutPart)), (0, 0), "{counts:?}");
        assert_eq!(world.copy((source, LEN), (target, LEN), 9).await.unwrap(), 0, "the source ends here");
        world.close(target).await.unwrap();
        assert!(world.read_file("target").await.unwrap() == body);
        world.unlink("source").await.unwrap();
        world.close(source).await.unwrap();
        let again = world.remount().await;
        assert!(again.read_file("target").await.unwrap() == body, "the objects are the target's own");
        again.assert_healthy().await;
    }
}

#[tokio::test]
async fn s173_ranges_land_where_they_are_asked_for() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let (body, below) = (pattern(LEN as usize), vec![7; 9 * MIB]);
        world.write_file("source", &body).await.unwrap();
        world.write_file("target", &below).await.unwrap();
        let source = world.open_handle("source", libc::O_RDONLY).await.unwrap();
        let target = world.open_handle("target", libc::O_RDWR).await.unwrap();
        world.fs.write(target, 10, b"written before").await.unwrap();
        let len = 6 * MIB as u64;
        assert_eq!(world.copy((source, 12_345), (target, 5_000_001), len).await.unwrap(), len);
        world.fs.write(target, 20, b"and after").await.unwrap();
        let mut expected = below;
        expected[10..24].copy_from_slice(b"written before");
        expected[20..29].copy_from_slice(b"and after");
        expected.resize(5_000_001 + len as usize, 0);
        expected[5_000_001..].copy_from_slice(&body[12_345..12_345 + len as usize]);
        assert!(world.read_all(target).await.unwrap() == expected);
        world.close(target).await.unwrap();
        assert!(world.read_file("target").await.unwrap() == expected);
        // A copy within one file.
        let target = world.open_handle("target", libc::O_RDWR).await.unwrap();
        assert_eq!(world.copy((target, 0), (target, 20 * MIB as u64), len).await.unwrap(), len);
        world.close(target).await.unwrap();
        let found = world.read_file("target").await.unwrap();
        assert!(found[20 * MIB..] == expected[..6 * MIB] && found[..expected.len()] == expected);
        assert!(found[expected.len()..20 * MIB].iter().all(|byte| *byte == 0));
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s173_a_copy_outside_the_store_is_refused_entirely() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.write_file("source", pattern(LEN as usize)).await.unwrap();
    let source = world.open_handle("source", libc::O_RDWR).await.unwrap();
    let target = world.create("target").await.unwrap();
    assert_eq!(errno(world.copy((source, 0), (target, 0), 4096).await), libc::EOPNOTSUPP, "too little");
    world.fs.write(source, 0, b"not stored").await.unwrap();
    assert_eq!(errno(world.copy((source, 0), (target, 0), LEN).await), libc::EOPNOTSUPP);
    assert_eq!(world.stat("target").await.unwrap().size_bytes, 0);
    let reading = world.open_handle("target", libc::O_RDONLY).await.unwrap();
    assert_eq!(errno(world.copy((source, 0), (reading, 0), LEN).await), libc::EBADF);
}

/// Returns the keys that other clients see in the bucket.
async fn shown(world: &World) -> Vec<String> {
    world.bucket.keys().await.into_iter().filter(|key| !key.starts_with(".tenon/")).collect()
}

#[tokio::test]
async fn s91_a_copy_by_path_never_leaves_the_store() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    // The upload has two parts: a range across parts would be read.
    let (body, half) = (pattern(16 * MIB), 8 * MIB as u64);
    world.write_file("source", &body).await.unwrap();
    let source = world.open_handle("source", libc::O_RDONLY).await.unwrap();
    let target = world.create("target").await.unwrap();
    let copying = async {
        assert_eq!(world.copy((source, 0), (target, 0), half).await.unwrap(), half);
        assert_eq!(world.copy((source, half), (target, half), u64::MAX >> 1).await.unwrap(), half);
        assert!(
            !shown(&world).await.contains(&"target".to_owned()),
            "an incomplete target must not be visible"
        );
        world.close(target).await.unwrap();
    };
    let ((), counts) = world.counting(copying).await;
    assert_eq!((counts.of(Operation::Get), counts.of(Operation::PutPart)), (0, 0), "{counts:?}");
    assert!(world.bucket.object("target").await.unwrap() == body);
    world.unlink("source").await.unwrap();
    world.close(source).await.unwrap();
    let again = world.remount().await;
    assert!(again.read_file("target").await.unwrap() == body);
    again.assert_healthy().await;
    assert!(
        again.bucket.keys().await.iter().all(|key| !key.contains("/inodes/")),
        "no temporary object is left"
    );
}

#[tokio::test]
async fn s91_a_range_copied_by_path_lands_in_what_is_there() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let body = pattern(LEN as usize);
    world.write_file("source", &body).await.unwrap();
    world.write_file("target", vec![7; LEN as usize]).await.unwrap();
    let source = world.open_handle("source", libc::O_RDONLY).await.unwrap();
    let target = world.open_handle("target", libc::O_RDWR).await.unwrap();
    let (at, len) = (MIB as u64, 6 * MIB as u64);
    assert_eq!(world.copy((source, 12_345), (target, at), len).await.unwrap(), len);
    world.fs.write(target, 0, b"and after").await.unwrap();
    let mut expected = vec![7; LEN as usize];
    expected[..9].copy_from_slice(b"and after");
    expected[at as usize..(at + len) as usize].copy_from_slice(&body[12_345..12_345 + len as usize]);
    assert!(world.read_all(target).await.unwrap() == expected);
    world.close(target).await.unwrap();
    assert!(world.bucket.object("target").await.unwrap() == expected);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s91_a_copy_that_would_hide_the_target_is_refused_by_path() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("source", pattern(LEN as usize)).await.unwrap();
    world.write_file("target", b"short").await.unwrap();
    let source = world.open_handle("source", libc::O_RDONLY).await.unwrap();
    for flags in [libc::O_RDWR, libc::O_RDWR | libc::O_TRUNC] {
        let target = world.open_handle("target", flags).await.unwrap();
        assert_eq!(errno(world.copy((source, 0), (target, 0), LEN).await), libc::EOPNOTSUPP);
        assert_eq!(
            world.bucket.object("target").await.unwrap(),
            b"short",
            "only a close replaces the object"
        );
        world.close(target).await.unwrap();
    }
    assert_eq!(world.bucket.object("target").await.unwrap(), b"");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s91_an_interrupted_copy_is_shown_by_the_next_mount() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let body = pattern(LEN as usize);
    world.write_file("source", &body).await.unwrap();
    let source = world.open_handle("source", libc::O_RDONLY).await.unwrap();
    let target = world.create("target").await.unwrap();
    assert_eq!(world.copy((source, 0), (target, 0), LEN).await.unwrap(), LEN);
    let again = world.remount().await;
    again.fs.recover().await.unwrap();
    assert!(again.bucket.object("target").await.unwrap() == body);
    again.assert_healthy().await;
}
