//! Files created without a name (`O_TMPFILE`).

use crate::world::{Bucket, CALLER, World, errno};
use std::sync::Arc;
use store::StoreError;
use store::wrap::{Fault, Operation, Rule};
use vfs::{Handle, Ino, Mapping};

const ROOT: Ino = Ino(1);

impl World {
    async fn unnamed(&self, flags: i32) -> (Ino, Handle) {
        let (made, opened) = self.fs.create_unnamed(CALLER, ROOT, 0o600, flags | libc::O_RDWR).await.unwrap();
        assert_eq!((made.nlink, made.mode), (0, 0o600));
        (made.ino, opened.handle)
    }
}

#[tokio::test]
async fn s176_an_unnamed_file_is_linked_or_deleted() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let (ino, handle) = world.unnamed(0).await;
    world.fs.write(handle, 0, b"text").await.unwrap();
    assert!(world.names("").await.unwrap().is_empty());
    let named = world.fs.link(ino, ROOT, b"named").await.unwrap();
    assert_eq!((named.size_bytes, named.nlink), (4, 1), "link returns the stored attributes");
    let again = world.bucket.mount(|_| {}).await;
    assert_eq!(again.read_file("named").await.unwrap(), b"text", "stored when it was named");
    world.close(handle).await.unwrap();
    assert_eq!(world.stat("named").await.unwrap().nlink, 1);

    let (ino, handle) = world.unnamed(0).await;
    world.fs.write(handle, 0, b"nobody will know").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(errno(world.fs.getattr(ino).await), libc::ENOENT);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s176_a_file_that_may_not_be_linked_is_refused() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let (ino, handle) = world.unnamed(libc::O_EXCL).await;
    assert_eq!(errno(world.fs.link(ino, ROOT, b"named").await), libc::ENOENT);
    world.close(handle).await.unwrap();
    let (ino, handle) = world.unnamed(0).await;
    world.fs.link(ino, ROOT, b"once").await.unwrap();
    world.unlink("once").await.unwrap();
    assert_eq!(errno(world.fs.link(ino, ROOT, b"again").await), libc::ENOENT);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
    let by_path = World::new().await;
    let refused = by_path.fs.create_unnamed(CALLER, ROOT, 0o600, libc::O_RDWR).await;
    assert_eq!(errno(refused), libc::EOPNOTSUPP);
}

/// A name must not appear before its content is stored: a failed link can be retried.
#[tokio::test]
async fn s176_a_file_that_cannot_be_stored_gets_no_name() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let (ino, handle) = world.unnamed(0).await;
    world.fs.write(handle, 0, b"text").await.unwrap();
    let denied = Fault::Before(|| StoreError::Denied("no".into()));
    world.bucket.faults.add(Rule::new(denied).on(Operation::Put));
    assert_eq!(errno(world.fs.link(ino, ROOT, b"named").await), libc::EACCES);
    assert!(world.names("").await.unwrap().is_empty());
    world.fs.link(ino, ROOT, b"named").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.remount().await.read_file("named").await.unwrap(), b"text");
}

/// The last close of an unnamed file found it without a name, a link gave it one, and the close discarded its content. The link must
/// fail, or the file must keep its bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s176_a_file_that_is_named_while_it_is_closed_keeps_its_bytes() {
    let world = Arc::new(Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await);
    let mut named = Vec::new();
    for round in 0..2_000 {
        let (ino, handle) = world.unnamed(0).await;
        world.fs.write(handle, 0, b"text").await.unwrap();
        world.fs.fsync(handle).await.unwrap();
        let (linking, name) = (world.clone(), format!("named-{round}"));
        let link = tokio::spawn(async move { linking.fs.link(ino, ROOT, name.as_bytes()).await });
        world.close(handle).await.unwrap();
        if link.await.unwrap().is_ok() {
            named.push(format!("named-{round}"));
        }
    }
    world.fs.sync().await.unwrap();
    let again = world.bucket.mount(|_| {}).await;
    for name in &named {
        assert_eq!(again.read_file(name).await.unwrap(), b"text", "{name}");
    }
    world.assert_healthy().await;
}
