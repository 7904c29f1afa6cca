//! Open files keep their bytes and their inode numbers.

use crate::world::{Bucket, MIB, World, errno, pattern};
use std::sync::Arc;
use store::wrap::Operation;
use vfs::Ino;

/// Opens files in every write state, and returns them with their content.
async fn open_in_every_state(world: &World) -> Vec<(&'static str, vfs::Handle, Vec<u8>)> {
    let big = pattern(3 * MIB + 1);
    for name in ["clean", "edited", "emptied"] {
        world.write_file(name, &big).await.unwrap();
    }
    let clean = world.open_handle("clean", libc::O_RDWR).await.unwrap();
    let edited = world.open_handle("edited", libc::O_RDWR).await.unwrap();
    world.fs.write(edited, 100, b"edit").await.unwrap();
    let emptied = world.open_handle("emptied", libc::O_RDWR | libc::O_TRUNC).await.unwrap();
    world.fs.write(emptied, 0, b"anew").await.unwrap();
    let memory = world.create("memory").await.unwrap();
    world.fs.write(memory, 0, b"in memory").await.unwrap();
    let stream = world.create("stream").await.unwrap();
    world.write_all(stream, &big).await.unwrap();
    let with_edit = [&big[..100], b"edit", &big[104..]].concat();
    vec![
        ("clean", clean, big.clone()),
        ("edited", edited, with_edit),
        ("emptied", emptied, b"anew".to_vec()),
        ("memory", memory, b"in memory".to_vec()),
        ("stream", stream, big),
    ]
}

async fn assert_still_usable(world: &World, name: &str, handle: vfs::Handle, mut body: Vec<u8>) -> Vec<u8> {
    assert!(world.read_all(handle).await.unwrap() == body, "{name} reads on");
    let at = body.len() + MIB;
    world.fs.write(handle, 3, b"!").await.unwrap();
    world.fs.write(handle, at as u64, b"end").await.unwrap();
    world.fs.flush(handle).await.unwrap();
    body.resize(at, 0);
    body[3] = b'!';
    body.extend_from_slice(b"end");
    assert!(world.read_all(handle).await.unwrap() == body, "{name} writes on");
    body
}

#[tokio::test]
async fn s41_s43_an_unlinked_file_lives_until_its_last_close() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        for (name, handle, body) in open_in_every_state(&world).await {
            world.unlink(name).await.unwrap();
            assert!(!world.names("/").await.unwrap().contains(&name.to_owned()));
            assert_eq!(errno(world.stat(name).await), libc::ENOENT);
            assert!(bucket.object(name).await.is_none(), "{name}");
            assert_still_usable(&world, name, handle, body).await;
            assert!(bucket.object(name).await.is_none(), "{name} does not come back");
            world.close(handle).await.unwrap();
            assert!(bucket.object(name).await.is_none(), "{name} does not come back at its close");
        }
        assert_eq!(bucket.keys().await, Vec::<String>::new());
        assert_eq!(world.fs.status().open_handles, 0);
        assert_eq!(world.fs.status().write_bytes, 0);
        world.assert_healthy().await;
    }
}

/// The object is deleted before the name: a reader in between reads the preserved copy.
#[tokio::test]
async fn s41_a_file_is_read_while_it_is_unlinked() {
    let bucket = Bucket::in_memory();
    bucket.put("file", pattern(3 * MIB)).await;
    let world = Arc::new(bucket.mount(|_| {}).await);
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    assert_eq!(world.fs.read(handle, 0, 10).await.unwrap(), pattern(3 * MIB)[..10]);
    let held = bucket.late.hold(Operation::Delete);
    let other = world.clone();
    let unlinking = tokio::spawn(async move { other.unlink("file").await });
    let answer = held.done().await;
    let far = 2 * MIB..2 * MIB + 4096;
    let read = world.fs.read(handle, far.start as u64, far.len()).await.unwrap();
    assert_eq!(read, pattern(3 * MIB)[far]);
    drop(answer);
    unlinking.await.unwrap().unwrap();
    assert_eq!(world.read_all(handle).await.unwrap(), pattern(3 * MIB));
    world.close(handle).await.unwrap();
    assert_eq!(bucket.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn s42_a_replaced_file_stays_readable() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        for (name, handle, body) in open_in_every_state(&world).await {
            world.write_file("new", name).await.unwrap();
            world.rename("new", name).await.unwrap();
            assert_eq!(world.read_file(name).await.unwrap(), name.as_bytes());
            assert_still_usable(&world, name, handle, body).await;
            world.close(handle).await.unwrap();
            assert_eq!(bucket.object(name).await.unwrap(), name.as_bytes());
        }
        assert!(bucket.keys().await.iter().all(|key| !key.contains(".tenon")));
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s43_preserved_copies_are_below_orphans() {
    let world = World::new().await;
    world.write_file("file", b"kept").await.unwrap();
    let first = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    let second = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.unlink("file").await.unwrap();
    let keys = world.bucket.keys().await;
    assert!(keys.len() == 1 && keys[0].starts_with(".tenon/orphans/"), "{keys:?}");
    world.close(first).await.unwrap();
    assert_eq!(world.fs.read(second, 0, 10).await.unwrap(), b"kept"[..]);
    world.close(second).await.unwrap();
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn s43_a_file_that_is_not_open_is_deleted_in_one_request() {
    let world = World::new().await;
    world.write_file("file", b"x").await.unwrap();
    assert_eq!(world.requests(world.unlink("file")).await, "Delete 1");
}

#[tokio::test]
async fn s44_inode_numbers_are_stable_and_unique() {
    let bucket = Bucket::in_memory();
    for key in ["a", "b", "dir/c", "dir/d"] {
        bucket.put(key, key).await;
    }
    let world = bucket.mount(|_| {}).await;
    let mut inos = Vec::new();
    for path in ["a", "b", "dir", "dir/c", "dir/d"] {
        inos.push(world.ino(path).await.unwrap());
    }
    bucket.put("a", "changed").await;
    world.expire();
    world.chmod("b", 0o600).await.unwrap();
    world.rename("dir/c", "c").await.unwrap();
    for (path, ino) in ["a", "b", "dir", "c", "dir/d"].iter().zip(&inos) {
        assert_eq!(world.ino(path).await.unwrap(), *ino, "{path}");
    }
    inos.push(world.mkdir("new").await.unwrap().ino);
    inos.push(Ino::ROOT);
    inos.sort();
    inos.dedup();
    assert_eq!(inos.len(), 7);
}
