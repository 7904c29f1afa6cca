//! Changes by the endpoint while the mount is listing, or changing something related.

use super::{get, key, objects, put};
use crate::hooked_engine::interleaving_engine;
use crate::world::{Bucket, CHUNKED, MIB, World, assert_waits, errno, pattern};
use std::sync::Arc;
use store::wrap::{Fault, Operation, Rule};
use store::{GetOptions, ObjectStore as _, Precondition, PutOptions};
use tokio::task::JoinSet;
use vfs::{Ino, Mapping};

/// A rename during a put took the new object for a foreign one and had no effect: the target was deleted, and no file had its
/// name (world 1867 of both sides).
#[tokio::test]
async fn s39_a_rename_moves_an_object_put_just_before() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let objects = Arc::new(objects(&world));
    put(&objects, "to", "replaced").await;
    put(&objects, "from", "old").await;
    assert_eq!(world.read_file("from").await.unwrap(), b"old");
    assert_eq!(world.read_file("to").await.unwrap(), b"replaced");
    let looking = world.bucket.late.hold(Operation::Head);
    let put = tokio::spawn({
        let objects = objects.clone();
        async move { objects.put(&key("from"), "newer".into(), PutOptions::default()).await }
    });
    let look_is_done = looking.done().await;
    let fs = world.fs.clone();
    let mut renaming = Box::pin(async move { fs.rename((Ino::ROOT, b"from"), (Ino::ROOT, b"to"), 0).await });
    assert_waits(renaming.as_mut()).await;
    look_is_done.send(()).unwrap();
    put.await.unwrap().unwrap();
    renaming.await.unwrap();
    world.fs.moves().wait_until_complete().await;
    assert_eq!(world.read_file("to").await.unwrap(), b"newer");
    assert_eq!(world.bucket.keys().await, ["to"]);
}

/// A listing was in flight when an object was put: its answer was trusted for the whole revalidation time (world 6471 of both
/// sides).
#[tokio::test]
async fn s39_a_put_is_shown_despite_an_older_listing() {
    let bucket = Bucket::in_memory();
    bucket.put("d/old", "old").await;
    let world = Arc::new(bucket.mount(|_| {}).await);
    let objects = objects(&world);
    let held = bucket.late.hold(Operation::List);
    let other = world.clone();
    let listing = tokio::spawn(async move { other.names("d").await.unwrap() });
    let root_is_listed = held.done().await;
    let held = bucket.late.hold(Operation::List);
    drop(root_is_listed);
    let answer = held.done().await;
    put(&objects, "d/new", "new").await;
    drop(answer);
    assert_eq!(listing.await.unwrap(), ["old"], "a listing that began before the put");
    assert_eq!(world.read_file("d/new").await.unwrap(), b"new");
    assert_eq!(world.names("d").await.unwrap(), ["new", "old"]);
    world.assert_healthy().await;
}

/// While a directory was being created, an object put into it was not found by lookups, which then created a file of that name
/// (world 11648 of both sides).
#[tokio::test]
async fn s39_a_put_into_a_directory_being_created_is_shown() {
    let bucket = Bucket::in_memory();
    let world = Arc::new(bucket.mount(|_| {}).await);
    let objects = objects(&world);
    let marker = bucket.late.hold(Operation::Put);
    let other = world.clone();
    let making = tokio::spawn(async move { other.mkdir("d").await.unwrap() });
    let marker_is_put = marker.done().await;
    put(&objects, "d/new", "new").await;
    drop(marker_is_put);
    making.await.unwrap();
    assert_eq!(world.names("d").await.unwrap(), ["new"]);
    world.assert_healthy().await;
}

/// An object was put into a directory while the directory was being removed. The mount did not know of it afterwards, and renamed another
/// directory to that name, which then had the object (world 79,112,362 of both sides).
#[tokio::test]
async fn s39_a_put_into_a_directory_being_removed_is_shown() {
    let bucket = Bucket::in_memory();
    let world = Arc::new(bucket.mount(|_| {}).await);
    let objects = Arc::new(objects(&world));
    for dir in ["d", "other"] {
        world.mkdir(dir).await.unwrap();
        assert_eq!(world.names(dir).await.unwrap(), [""; 0]);
    }
    let marker = bucket.late.hold(Operation::Delete);
    let other = world.clone();
    let removing = tokio::spawn(async move { other.rmdir("d").await });
    let marker_is_deleted = marker.done().await;
    let mut putting = Box::pin(put(&objects, "d/new", "new"));
    assert_waits(putting.as_mut()).await;
    drop(marker_is_deleted);
    putting.await;
    removing.await.unwrap().unwrap();
    assert_eq!(errno(world.rename("other", "d").await), libc::ENOTEMPTY);
    assert_eq!(world.names("d").await.unwrap(), ["new"]);
    world.assert_healthy().await;
}

/// An object was put into a directory after mkdir had found its name free and before the directory was known. The directory was taken for
/// empty (tests of fsspec, once in about 150 runs).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s39_a_put_into_a_directory_about_to_be_created_is_shown() {
    let world = Arc::new(Bucket::in_memory().mount(|_| {}).await);
    let objects = Arc::new(objects(&world));
    for number in 0..500 {
        let directory = format!("d{number}");
        let making = tokio::spawn({
            let (world, directory) = (world.clone(), directory.clone());
            async move { world.mkdir(directory).await }
        });
        let putting = tokio::spawn({
            let (objects, file) = (objects.clone(), format!("{directory}/new"));
            async move { put(&objects, &file, "new").await }
        });
        putting.await.unwrap();
        making.await.unwrap().map_err(|error| assert_eq!(error.errno(), libc::EEXIST)).ok();
        assert_eq!(world.names(directory).await.unwrap(), ["new"]);
    }
    world.assert_healthy().await;
}

/// Runs programs and S3 clients that create, read and remove files of their own in directories which all of them create and remove.
async fn share_directories(world: Arc<World>) {
    let objects = Arc::new(objects(&world));
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let (world, objects) = (world.clone(), objects.clone());
        workers.spawn(async move {
            for round in 0..100 {
                let (path, body) = (format!("a/b/c/{worker}"), format!("{worker} in round {round}"));
                let is_program = |way: usize| (worker + round * way).is_multiple_of(2);
                match is_program(1) {
                    true => write_in_new_directories(&world, &path, &body).await,
                    false => drop(put(&objects, &path, &body).await),
                }
                assert_eq!(world.read_file(&path).await.unwrap(), body.as_bytes(), "{path} in round {round}");
                let got = get(&objects, &path).await;
                assert_eq!(got.as_deref(), Some(body.as_bytes()), "{path} in round {round}");
                match is_program(3) {
                    true => world.unlink(&path).await.unwrap(),
                    false => objects.delete(&key(&path), Precondition::None).await.unwrap(),
                }
                assert_eq!(errno(world.stat(&path).await), libc::ENOENT, "{path} in round {round}");
                assert_eq!(get(&objects, &path).await, None, "{path} in round {round}");
                for directory in ["a/b/c", "a/b", "a"] {
                    world.rmdir(directory).await.ok();
                }
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    world.assert_healthy().await;
}

/// Writes a file whose directories may be missing, and may be removed meanwhile.
async fn write_in_new_directories(world: &World, path: &str, body: &str) {
    for _ in 0..1000 {
        for directory in ["a", "a/b", "a/b/c"] {
            world.mkdir(directory).await.ok();
        }
        match world.write_file(path, body.as_bytes()).await {
            Err(error) if error.errno() == libc::ENOENT => {}
            written => return written.unwrap(),
        }
    }
    panic!("{path}: its directories never stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn programs_and_s3_clients_that_overtake_each_other_keep_their_files() {
    for bucket in [
        Bucket::by_inode_on(Mapping::Whole, interleaving_engine()).await,
        Bucket::by_inode_on(CHUNKED, interleaving_engine()).await,
        Bucket::with_metadata_on(interleaving_engine()),
    ] {
        share_directories(Arc::new(bucket.mount(|_| {}).await)).await;
    }
}

/// A GET whose client disconnected during a store request left the file open for ever: removing its name then made a copy below
/// `.tenon/orphans`, which stayed until the next mount.
#[tokio::test]
async fn a_cancelled_get_leaves_no_file_open() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let objects = Arc::new(objects(&world));
    world.write_file("file", b"bytes").await.unwrap();
    world.link("file", "other").await.unwrap();
    for _ in 0..3 {
        let head = world.bucket.late.hold(Operation::Head);
        let objects = objects.clone();
        let getting =
            tokio::spawn(async move { objects.get(&key("other"), GetOptions::default()).await.map(drop) });
        let answer = head.done().await;
        getting.abort();
        assert!(getting.await.unwrap_err().is_cancelled());
        drop(answer);
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    world.unlink("other").await.unwrap();
    let (removed, counts) = world.counting(world.unlink("file")).await;
    removed.unwrap();
    assert_eq!(counts.of(Operation::Copy), 0, "the file is not open: {counts}");
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
}

/// A file unknown to the mount was not found while an endpoint's client replaced it (world 7403 of both sides).
#[tokio::test]
async fn s39_an_object_being_replaced_is_still_found() {
    let bucket = Bucket::in_memory();
    bucket.put("d/old", "old").await;
    let world = Arc::new(bucket.mount(|_| {}).await);
    let objects = Arc::new(objects(&world));
    world.stat("d").await.unwrap();
    let held = bucket.late.hold(Operation::Put);
    let other = objects.clone();
    let putting = tokio::spawn(async move { put(&other, "d/old", "newer").await });
    let answer = held.done().await;
    assert!(world.stat("d/old").await.is_ok());
    drop(answer);
    putting.await.unwrap();
    assert_eq!(world.read_file("d/old").await.unwrap(), b"newer");
    world.assert_healthy().await;
}

/// While attributes were being exported, an object put meanwhile was taken for the exported one, and the bucket was not checked
/// again (world 2812 of both sides).
#[tokio::test(start_paused = true)]
async fn s39_a_put_is_shown_despite_a_concurrent_export() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let objects = Arc::new(objects(&world));
    put(&objects, "file", "old").await;
    world.chmod("file", 0o600).await.unwrap();
    let copying = world.bucket.late.hold(Operation::Copy);
    let fs = world.fs.clone();
    let syncing = tokio::spawn(async move { fs.sync().await });
    let copy_is_done = copying.done().await;
    let mut put = tokio::spawn({
        let objects = objects.clone();
        async move { objects.put(&key("file"), "newer".into(), PutOptions::default()).await }
    });
    assert_waits(std::pin::Pin::new(&mut put)).await;
    copy_is_done.send(()).unwrap();
    put.await.unwrap().unwrap();
    syncing.await.unwrap().unwrap();
    assert_eq!(world.read_file("file").await.unwrap(), b"newer");
}

/// While the first write waited for the bucket the file counted as unchanged: a foreign object stored meanwhile became its base
/// and was replaced silently (world 9284 of both sides).
#[tokio::test]
async fn s52_a_foreign_put_during_the_first_write_is_a_conflict() {
    let bucket = Bucket::with_metadata();
    bucket.put("file", "").await;
    let world = Arc::new(bucket.mount(|config| config.part_size_bytes = MIB as u64).await);
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    let begun = bucket.late.hold(Operation::BeginMultipart);
    let fs = world.fs.clone();
    let writing = tokio::spawn(async move { fs.write(handle, 0, &pattern(2 * MIB)).await });
    let upload_is_begun = begun.done().await;
    put(&objects(&world), "file", "theirs").await;
    drop(upload_is_begun);
    writing.await.unwrap().ok();
    assert!(world.close(handle).await.is_err());
    assert_eq!(bucket.object("file").await.unwrap(), b"theirs");
}

/// The target of the rename was not stored yet, and the object that the endpoint had put there counted as foreign: it kept the
/// name, and the renamed file went to `lost+found` (world 9868 of both sides).
#[tokio::test]
async fn s39_s229_a_rename_over_a_file_being_written_replaces_the_put_object() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("from", b"renamed").await.unwrap();
    world.write_file("stored", b"old").await.unwrap();
    for to in ["new", "stored"] {
        let handle = match to {
            "new" => world.create(to).await.unwrap(),
            _ => world.open_handle(to, libc::O_RDWR).await.unwrap(),
        };
        world.fs.write(handle, 0, b"written").await.unwrap();
        put(&objects(&world), to, "put").await;
        world.rename_at_once("from", to, 0).await.unwrap();
        world.fs.moves().wait_until_complete().await;
        assert_eq!(world.read_file(to).await.unwrap(), b"renamed");
        assert_eq!(world.read_all(handle).await.unwrap(), b"written");
        world.close(handle).await.unwrap();
        assert_eq!(bucket.object(to).await.unwrap(), b"renamed");
        world.rename_at_once(to, "from", 0).await.unwrap();
    }
    assert!(world.fs.conflicts().list().is_empty());
    world.fs.moves().wait_until_complete().await;
    world.assert_healthy().await;
}

/// As above, for a removal.
#[tokio::test]
async fn s39_s229_a_removal_of_a_file_being_written_removes_the_put_object() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("stored", b"old").await.unwrap();
    for name in ["new", "stored"] {
        let handle = match name {
            "new" => world.create(name).await.unwrap(),
            _ => world.open_handle(name, libc::O_RDWR).await.unwrap(),
        };
        world.fs.write(handle, 0, b"written").await.unwrap();
        put(&objects(&world), name, "put").await;
        world.unlink(name).await.unwrap();
        world.close(handle).await.unwrap();
        world.expire();
        assert!(world.names("/").await.unwrap().iter().all(|there| there != name), "{name}");
        assert_eq!(bucket.object(name).await, None, "{name}");
    }
    world.assert_healthy().await;
}

/// The bucket could not be asked for the result of a put. A removal of the file that a program was writing under the name left the object
/// that had been put (world 80,500,752 of both sides).
#[tokio::test]
async fn s229_a_removal_removes_a_put_object_that_could_not_be_looked_at() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    let handle = world.create("new").await.unwrap();
    world.fs.write(handle, 0, b"written").await.unwrap();
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head).at(&key("new")));
    put(&objects(&world), "new", "put").await;
    assert_eq!(bucket.faults.struck(Operation::Head), 1);
    world.unlink("new").await.unwrap();
    world.close(handle).await.unwrap();
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), [""; 0]);
    assert_eq!(bucket.object("new").await, None);
    world.assert_healthy().await;
}

/// The directory of a file's name was renamed while the file was deleted through the endpoint. The file got its plain name, and the
/// deletion succeeded without deleting anything (world 1,011,202 of both sides).
#[tokio::test]
async fn s39_a_file_that_gets_another_name_is_deleted_all_the_same() {
    let bucket = Bucket::in_memory();
    bucket.put("d", "file").await;
    bucket.put("d/inside", "object").await;
    let world = bucket.mount(|_| {}).await;
    let handle = world.open_handle("%=d", libc::O_RDONLY).await.unwrap();
    let held = bucket.late.hold(Operation::Copy);
    let objects = objects(&world);
    let deleting = tokio::spawn(async move { objects.delete(&key("d"), Precondition::None).await });
    let copy_is_kept = held.done().await;
    world.rename("d", "e").await.unwrap();
    copy_is_kept.send(()).unwrap();
    deleting.await.unwrap().unwrap();
    world.close(handle).await.unwrap();
    world.fs.moves().wait_until_complete().await;
    assert_eq!(world.names("").await.unwrap(), ["e"]);
    assert_eq!(bucket.object("d").await, None);
}

/// The endpoint served the synced content of an open file after another client had deleted or replaced its object, for as long as the
/// deleted bytes were in the cache (world 62,010,792 of both sides).
#[tokio::test]
async fn a_changed_object_is_served_instead_of_a_synced_file() {
    for newer in [None, Some(&b"newer"[..])] {
        let world = Bucket::with_metadata().mount(|_| {}).await;
        let objects = objects(&world);
        let mut body = pattern(MIB);
        world.write_file("file", &body).await.unwrap();
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        assert!(world.read_all(handle).await.unwrap() == body);
        world.fs.write(handle, 1000, b"new").await.unwrap();
        body[1000..1003].copy_from_slice(b"new");
        world.fs.fsync(handle).await.unwrap();
        assert!(get(&objects, "file").await.unwrap() == body);
        match newer {
            Some(newer) => world.bucket.put("file", newer).await,
            None => world.bucket.delete("file").await,
        }
        assert_eq!(get(&objects, "file").await.as_deref(), newer);
        let meta = objects.head(&key("file")).await;
        assert_eq!(meta.ok().map(|meta| meta.size_bytes), newer.map(|newer| newer.len() as u64));
        drop(world.close(handle).await);
        world.assert_healthy().await;
    }
}
