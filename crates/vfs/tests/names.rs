//! Names and file types that are supported, and those that are refused.

use crate::world::{Bucket, World, errno};
use vfs::{Changes, Kind};

#[tokio::test]
async fn s85_files_directories_and_links() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|_| {}).await;
        world.mkdir("dir").await.unwrap();
        world.write_file("dir/file", b"x").await.unwrap();
        let target = "t".repeat(300);
        let attr = world.symlink("dir/link", target.as_bytes()).await.unwrap();
        assert_eq!((attr.kind, attr.size_bytes, attr.mode), (Kind::Symlink, 300, 0o777));
        assert_eq!(world.fs.readlink(attr.ino).await.unwrap(), target);
        assert_eq!(errno(world.fs.readlink(world.ino("dir/file").await.unwrap()).await), libc::EINVAL);
        assert_eq!(bucket.object("dir/link").await.unwrap(), target.as_bytes());
        let fresh = world.remount().await;
        let attr = fresh.stat("dir/link").await.unwrap();
        assert_eq!((attr.kind, attr.size_bytes), (Kind::Symlink, 300));
        assert_eq!(fresh.fs.readlink(attr.ino).await.unwrap(), target);
        assert_eq!(errno(fresh.symlink("dir/link", b"x").await), libc::EEXIST);
        assert_eq!(errno(fresh.symlink("dir/none", b"").await), libc::ENOENT);
        assert_eq!(errno(fresh.symlink("dir/long", &[b'x'; 5000]).await), libc::ENAMETOOLONG);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s86_an_implicit_directory_outlives_its_last_entry() {
    for how in ["unlink", "rename", "rmdir", "rename a directory"] {
        let bucket = Bucket::in_memory();
        bucket.put("outer/implicit/last", "x").await;
        bucket.put("outer/implicit/last.d/x", "x").await;
        let world = bucket.mount(|_| {}).await;
        world.unlink("outer/implicit/last").await.unwrap();
        match how {
            "unlink" | "rmdir" => {
                world.unlink("outer/implicit/last.d/x").await.unwrap();
                world.rmdir("outer/implicit/last.d").await.unwrap();
            }
            "rename" => {
                world.rename("outer/implicit/last.d/x", "x").await.unwrap();
                world.rmdir("outer/implicit/last.d").await.unwrap();
            }
            _ => world.rename("outer/implicit/last.d", "moved").await.unwrap(),
        }
        world.expire();
        assert_eq!(world.stat("outer/implicit").await.unwrap().kind, Kind::Directory, "{how}");
        assert_eq!(world.names("outer").await.unwrap(), ["implicit"], "{how}");
        assert!(bucket.head("outer/implicit/").await.is_some(), "{how}");
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s87_a_directory_with_entries_stays() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/file", "x").await;
    let world = bucket.mount(|_| {}).await;
    assert_eq!(errno(world.rmdir("dir").await), libc::ENOTEMPTY);
    assert_eq!(errno(world.rmdir("dir/file").await), libc::ENOTDIR);
    assert_eq!(errno(world.unlink("dir").await), libc::EISDIR);
    world.mkdir("mine").await.unwrap();
    bucket.put("mine/theirs", "x").await;
    assert_eq!(
        errno(world.rmdir("mine").await),
        libc::ENOTEMPTY,
        "although the other client's entry is not known here"
    );
    bucket.delete("mine/theirs").await;
    let handle = world.create("mine/unstored").await.unwrap();
    assert_eq!(errno(world.rmdir("mine").await), libc::ENOTEMPTY);
    world.close(handle).await.unwrap();
    bucket.delete("mine/unstored").await;
    world.rmdir("mine").await.unwrap();
    assert_eq!(world.names("/").await.unwrap(), ["dir"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s88_a_name_has_at_most_255_bytes() {
    let world = World::new().await;
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    world.write_file(&fits, b"x").await.unwrap();
    assert_eq!(world.read_file(&fits).await.unwrap(), b"x");
    assert_eq!(errno(world.create(&long).await), libc::ENAMETOOLONG);
    assert_eq!(errno(world.mkdir(&long).await), libc::ENAMETOOLONG);
    assert_eq!(errno(world.stat(&long).await), libc::ENAMETOOLONG);
    assert_eq!(errno(world.unlink(&long).await), libc::ENAMETOOLONG);
    assert_eq!(errno(world.rename(&fits, &long).await), libc::ENAMETOOLONG);
}

#[tokio::test]
async fn s89_special_files_are_kept() {
    let world = World::new().await;
    world.write_file("file", b"x").await.unwrap();
    let special = [Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
    for kind in special {
        world.mknod(&format!("{kind:?}"), kind).await.unwrap();
    }
    let fresh = world.remount().await;
    for kind in special {
        let attr = fresh.stat(format!("{kind:?}")).await.unwrap();
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        assert_eq!((attr.kind, attr.rdev), (kind, if is_device { 0x103 } else { 0 }));
        fresh.unlink(&format!("{kind:?}")).await.unwrap();
    }
    assert_eq!(fresh.names("/").await.unwrap(), ["file"]);
}

#[tokio::test]
async fn s90_a_read_only_mount_changes_nothing() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/file", "x").await;
    let world = bucket.mount(|config| config.read_only = true).await;
    let before = bucket.trace.counts();
    let changes = Changes { mode: Some(0), ..Changes::default() };
    let flags = libc::O_RDONLY | libc::O_TRUNC;
    let outcomes = [
        world.create("new").await.map(drop),
        world.mkdir("new").await.map(drop),
        world.mknod("new", Kind::File).await.map(drop),
        world.symlink("new", b"x").await.map(drop),
        world.unlink("dir/file").await,
        world.rmdir("dir").await,
        world.rename("dir/file", "file").await,
        world.set("dir/file", changes).await.map(drop),
        world.truncate("dir/file", 0).await.map(drop),
        world.open("dir/file", libc::O_RDWR).await.map(drop),
        world.open("dir/file", flags).await.map(drop),
    ];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(errno(outcome), libc::EROFS, "call {index}");
    }
    assert_eq!(world.read_file("dir/file").await.unwrap(), b"x");
    world.fs.sync().await.unwrap();
    let counts = bucket.trace.counts().since(&before);
    let reads: u64 =
        [store::wrap::Operation::Get, store::wrap::Operation::Head, store::wrap::Operation::List]
            .into_iter()
            .map(|operation| counts.of(operation))
            .sum();
    assert_eq!(counts.total(), reads, "{counts}");
    assert_eq!(bucket.keys().await, ["dir/file"]);
}
