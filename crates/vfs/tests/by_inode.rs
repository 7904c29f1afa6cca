//! Volumes named by inode: the bucket has only bytes, all other state is in the metadata.

use crate::world::{Bucket, MIB, World, errno, pattern};
use store::wrap::{Fault, Operation, Rule};
use vfs::{Changes, Kind, Mapping};

/// Returns the keys after background deletions have completed.
async fn settled_keys(world: &World) -> Vec<String> {
    world.fs.sync().await.unwrap();
    world.bucket.keys().await
}

#[tokio::test]
async fn s82_s140_a_rename_touches_no_object() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        world.mkdir("dir").await.unwrap();
        for name in ["dir/a", "dir/b", "old"] {
            world.write_file(name, name).await.unwrap();
        }
        let renamed = world.requests(async {
            world.rename("dir", "moved").await?;
            world.rename("moved/a", "a").await?;
            world.rename_with("a", "moved/b", libc::RENAME_EXCHANGE).await
        });
        assert_eq!(renamed.await, "nothing");
        let replaced = world.requests(async {
            world.rename("a", "old").await?;
            world.fs.sync().await
        });
        assert_eq!(replaced.await, "Delete 1", "the replaced object is deleted");
        assert_eq!(world.read_file("old").await.unwrap(), b"dir/b");
        assert_eq!(world.read_file("moved/b").await.unwrap(), b"dir/a");
        assert_eq!(world.names("/").await.unwrap(), ["moved", "old"]);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s141_all_names_of_a_file_are_equal() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("first", b"one").await.unwrap();
    let ino = world.ino("first").await.unwrap();
    let dir = world.ino("dir").await.unwrap();
    assert_eq!(world.fs.link(ino, dir, b"second").await.unwrap().nlink, 2);
    assert_eq!(errno(world.fs.link(ino, dir, b"second").await), libc::EEXIST);
    assert_eq!(errno(world.fs.link(dir, dir, b"third").await), libc::EPERM);
    world.write_file("dir/second", b"two").await.unwrap();
    assert_eq!(world.read_file("first").await.unwrap(), b"two");
    world.unlink("first").await.unwrap();
    assert_eq!(world.stat("dir/second").await.unwrap().nlink, 1);
    let again = world.remount().await;
    assert_eq!(again.read_file("dir/second").await.unwrap(), b"two");
    again.unlink("dir/second").await.unwrap();
    assert_eq!(settled_keys(&again).await, Vec::<String>::new());
    world.assert_healthy().await;
}

#[tokio::test]
async fn s43_an_open_file_outlives_its_name_until_its_last_close() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        for (name, size) in [("small", 100), ("big", 3 * MIB), ("empty", 0)] {
            let body = pattern(size);
            world.write_file(name, &body).await.unwrap();
            let handle = world.open_handle(name, libc::O_RDWR).await.unwrap();
            world.unlink(name).await.unwrap();
            assert_eq!(world.read_all(handle).await.unwrap(), body, "{name}");
            world.fs.write(handle, size as u64, b"more").await.unwrap();
            assert_eq!(world.read_all(handle).await.unwrap(), [body, b"more".to_vec()].concat());
            world.close(handle).await.unwrap();
        }
        assert_eq!(settled_keys(&world).await, Vec::<String>::new());
        world.assert_healthy().await;
    }
}

/// For a file unlinked while it was written as a stream, the part already sent read as zeros, and a write to it failed with
/// EIO, because a file without a name was never completed (worlds of files 83, 182 and 287).
#[tokio::test]
async fn s41_a_stream_without_a_name_is_read_and_written() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        for rereads in [true, false] {
            let handle = world.create("file").await.unwrap();
            let mut body = pattern(3 * MIB + 100);
            world.write_all(handle, &body).await.unwrap();
            world.unlink("file").await.unwrap();
            if rereads {
                assert_eq!(world.read_all(handle).await.unwrap(), body);
            }
            world.fs.write(handle, 10, b"changed").await.unwrap();
            body[10..17].copy_from_slice(b"changed");
            assert_eq!(world.read_all(handle).await.unwrap(), body);
            world.close(handle).await.unwrap();
        }
        assert_eq!(settled_keys(&world).await, Vec::<String>::new());
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s142_an_overwritten_file_is_one_object_and_an_empty_one_none() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let requests = world.requests(async {
            world.write_file("empty", b"").await?;
            world.mknod("pipe", Kind::Fifo).await?;
            world.symlink("link", b"target").await?;
            world.mkdir("dir").await
        });
        assert_eq!(requests.await, "nothing");
        for round in 0..3 {
            world.write_file("file", format!("round {round}")).await.unwrap();
        }
        assert_eq!(settled_keys(&world).await.len(), 1);
        world.truncate("file", 0).await.unwrap();
        assert_eq!(settled_keys(&world).await.len(), 0);
        assert_eq!(world.stat("file").await.unwrap().size_bytes, 0);
        world.assert_healthy().await;
    }
}

/// A close after a small change of a long file stored the whole file again.
#[tokio::test]
async fn s142_a_close_costs_the_change_and_not_the_file() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let mut body = pattern(16 * MIB);
    world.write_file("file", &body).await.unwrap();
    let mut objects = Vec::new();
    for round in 0..70 {
        let at = (round * 199) % 128 * (128 << 10);
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, at as u64, &[round as u8; 4096]).await.unwrap();
        body[at..at + 4096].fill(round as u8);
        world.close(handle).await.unwrap();
        objects.push(settled_keys(&world).await.len());
    }
    assert!(objects[..50].windows(2).all(|two| two[1] == two[0] + 1), "{objects:?}");
    assert!(objects.iter().all(|count| *count <= 64) && objects.contains(&1), "{objects:?}");
    assert!(world.read_file("file").await.unwrap() == body);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s143_extended_attributes_are_kept() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.write_file("file", b"x").await.unwrap();
    let ino = world.ino("file").await.unwrap();
    world.fs.setxattr(ino, b"user.color", b"blue", 0, |_| true).await.unwrap();
    world.fs.setxattr(ino, b"user.empty", b"", libc::XATTR_CREATE, |_| true).await.unwrap();
    assert_eq!(
        errno(world.fs.setxattr(ino, b"user.color", b"x", libc::XATTR_CREATE, |_| true).await),
        libc::EEXIST
    );
    assert_eq!(
        errno(world.fs.setxattr(ino, b"user.other", b"x", libc::XATTR_REPLACE, |_| true).await),
        libc::ENODATA
    );
    assert_eq!(errno(world.fs.setxattr(ino, b"nonsense", b"x", 0, |_| true).await), libc::EOPNOTSUPP);
    let again = world.remount().await;
    assert_eq!(again.fs.getxattr(ino, b"user.color").await.unwrap(), b"blue"[..]);
    assert_eq!(
        again.fs.listxattr(ino).await.unwrap(),
        [b"user.color".to_vec().into(), b"user.empty".to_vec().into()]
    );
    again.fs.removexattr(ino, b"user.color").await.unwrap();
    assert_eq!(errno(again.fs.getxattr(ino, b"user.color").await), libc::ENODATA);
    again.assert_healthy().await;
}

/// A mount dies while a file without a name is open: the next mount removes the file.
#[tokio::test]
async fn s144_orphans_left_by_a_crash_are_removed() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        world.write_file("file", b"x").await.unwrap();
        world.open_handle("file", libc::O_RDONLY).await.unwrap();
        world.unlink("file").await.unwrap();
        assert_eq!(world.bucket.keys().await.len(), 1);
        let next = world.remount().await;
        assert_eq!(next.fs.recover().await.unwrap(), 1);
        next.fs.sync().await.unwrap();
        assert_eq!(next.bucket.keys().await, Vec::<String>::new());
        assert_eq!(next.fs.check().unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn s145_a_change_of_owner_removes_the_set_id_bits() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.write_file("program", b"x").await.unwrap();
    world.chmod("program", 0o6755).await.unwrap();
    let changed = world.set("program", Changes { uid: Some(5), ..Changes::default() }).await.unwrap();
    assert_eq!(changed.mode, 0o755);
    world.chmod("program", 0o6745).await.unwrap();
    world.fs.drop_set_id(changed.ino).unwrap();
    assert_eq!(
        world.stat("program").await.unwrap().mode,
        0o2745,
        "set-group-id without group execute means mandatory locking and stays"
    );
}

#[tokio::test]
async fn s158_foreign_objects_are_imported_as_files() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        world.write_file("taken", b"ours").await.unwrap();
        world.write_file("dir", b"a file").await.unwrap();
        bucket.put_with("sub/deep/object", pattern(MIB), &[("file-permissions", "0100640")]).await;
        bucket.put_with("link", "target", &[("file-permissions", "0120777")]).await;
        for key in ["taken", "dir/inside", "empty/", "zero"] {
            bucket.put(key, if key == "zero" || key == "empty/" { "" } else { "theirs" }).await;
        }
        let mut imported = world.fs.admin().import_foreign().await.unwrap();
        imported.sort();
        assert_eq!(imported.len(), 6, "{imported:?}");
        assert!(world.read_file("sub/deep/object").await.unwrap() == pattern(MIB));
        assert_eq!(world.stat("sub/deep/object").await.unwrap().mode, 0o640);
        let link = world.ino("link").await.unwrap();
        assert_eq!(world.fs.readlink(link).await.unwrap(), "target");
        assert_eq!(world.stat("empty").await.unwrap().kind, Kind::Directory);
        assert_eq!(world.stat("zero").await.unwrap().size_bytes, 0);
        assert_eq!(world.read_file("taken").await.unwrap(), b"ours");
        assert_eq!(world.read_file("dir").await.unwrap(), b"a file");
        let beside = |name: &str| imported.iter().find(|path| path.starts_with(name.as_bytes())).unwrap();
        assert_eq!(world.read_file(beside("taken.")).await.unwrap(), b"theirs");
        let inside = beside("dir.");
        assert!(inside.ends_with(b"/inside"));
        assert_eq!(world.read_file(inside).await.unwrap(), b"theirs");
        assert!(world.fs.admin().import_foreign().await.unwrap().is_empty());
        world.write_file("sub/deep/object", b"edited").await.unwrap();
        assert!(settled_keys(&world).await.iter().all(|key| key.starts_with("inodes/")));
        world.assert_healthy().await;
    }
}

/// `gc` took the copy of an object that was being imported for garbage and deleted it; the file still got its name, and the
/// import then deleted the source.
#[tokio::test]
async fn s158_an_object_being_imported_is_not_garbage() {
    let bucket = Bucket::by_inode(Mapping::Whole).await;
    let world = bucket.mount(|_| {}).await;
    bucket.put("object", "theirs").await;
    let copy = bucket.late.hold(Operation::Copy);
    let fs = world.fs.clone();
    let importing = tokio::spawn(async move { fs.admin().import_foreign().await });
    let copy_is_made = copy.done().await;
    assert!(world.fs.admin().collect_garbage(false).await.unwrap().is_empty());
    drop(copy_is_made);
    assert_eq!(importing.await.unwrap().unwrap().len(), 1);
    assert_eq!(world.read_file("object").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

/// An import that could not delete the source object imported it again and again.
#[tokio::test]
async fn s158_an_object_that_could_not_be_deleted_is_not_imported_twice() {
    let bucket = Bucket::by_inode(Mapping::Whole).await;
    let world = bucket.mount(|_| {}).await;
    bucket.put("object", "theirs").await;
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete));
    assert_eq!(errno(world.fs.admin().import_foreign().await), libc::EIO);
    assert!(world.fs.admin().import_foreign().await.unwrap().is_empty());
    assert_eq!(world.names("/").await.unwrap(), ["object"]);
    assert_eq!(world.read_file("object").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s172_a_whiteout_stays_where_a_name_was() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.write_file("upper", b"text").await.unwrap();
    world.write_file("taken", b"").await.unwrap();
    let refused = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    assert_eq!(errno(world.rename_with("upper", "taken", refused).await), libc::EEXIST);
    assert_eq!(errno(world.rename_with("nothing", "new", libc::RENAME_WHITEOUT).await), libc::ENOENT);
    assert_eq!(errno(world.stat("nothing").await), libc::ENOENT, "a failed rename leaves no whiteout");
    let both = libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE;
    assert_eq!(errno(world.rename_with("upper", "taken", both).await), libc::EINVAL);
    world.rename_with("upper", "taken", libc::RENAME_WHITEOUT).await.unwrap();
    assert_eq!(world.read_file("taken").await.unwrap(), b"text");
    let left = world.stat("upper").await.unwrap();
    assert_eq!((left.kind, left.rdev, left.mode), (Kind::CharDevice, 0, 0));
    world.assert_healthy().await;
}
