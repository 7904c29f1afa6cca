//! Files of a volume named by path that lie beside their path for a while, as the store failed just then, and what
//! crashes and lost answers leave at paths.

use crate::world::{Bucket, MIB, World, errno, pattern};
use store::wrap::{Fault, Operation, Rule};
use vfs::{Changes, Handle};

/// `a` and `b`, exchanged; then `b` (which was `a`, and has `one`) could not be stored at its path, as this happened to
/// the request.
async fn exchanged(fault: Fault) -> World {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"one").await.unwrap();
    world.write_file("b", b"two").await.unwrap();
    let puts = Rule::new(fault).on(Operation::Put);
    world.bucket.faults.add(puts.at(&"b".try_into().unwrap()));
    world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
    world
}

/// What everybody sees in the bucket.
async fn shown(world: &World) -> Vec<String> {
    world.fs.sync().await.unwrap();
    world.bucket.keys().await.into_iter().filter(|key| !key.starts_with(".tenon/")).collect()
}

/// They were those of a new file after it.
#[tokio::test]
async fn s77_an_exchange_keeps_what_others_say_in_headers() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.bucket.put_with("a", "one", &[("project", "apollo")]).await;
    world.bucket.put("b", "two").await;
    world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"one");
    assert_eq!(world.bucket.header("b", "project").await.as_deref(), Some("apollo"));
    assert_eq!(world.bucket.header("a", "project").await, None);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s77_what_could_not_be_shown_is_shown_by_the_next_sync() {
    for fault in [Fault::unavailable(), Fault::lost_reply()] {
        let world = exchanged(fault).await;
        assert_eq!(shown(&world).await, ["a", "b"]);
        assert_eq!(world.bucket.object("b").await.unwrap(), b"one");
        world.assert_healthy().await;
        assert!(world.bucket.keys().await.iter().all(|key| !key.starts_with(".tenon/")));
    }
}

/// The object that had got there unheard stayed when its file was renamed or removed, and came back as a file that
/// nobody had made (worlds of files 20998 and 28651).
#[tokio::test]
async fn s77_what_was_shown_unheard_goes_with_its_name() {
    let world = exchanged(Fault::lost_reply()).await;
    world.rename("b", "c").await.unwrap();
    assert_eq!(shown(&world).await, ["a", "c"]);
    assert_eq!(world.read_file("c").await.unwrap(), b"one");
    world.assert_healthy().await;

    let world = exchanged(Fault::lost_reply()).await;
    world.unlink("b").await.unwrap();
    assert_eq!(shown(&world).await, ["a"]);
    world.assert_healthy().await;
}

/// A listing showed an object where the file should be, and took its name away; what was then written to it was stored
/// nowhere (world of files 90522).
#[tokio::test]
async fn s77_what_was_shown_unheard_is_no_other_file() {
    let world = exchanged(Fault::lost_reply()).await;
    let handle = world.open_handle("b", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 3, b" more").await.unwrap();
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), ["a", "b"]);
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"one more");
    assert_eq!(shown(&world).await, ["a", "b"]);
    world.assert_healthy().await;
}

/// It was kept in `lost+found` again and again, and its name never led to what the bucket has (world of files 85034).
#[tokio::test]
async fn s77_somebody_elses_object_wins_over_what_could_not_be_shown() {
    let world = exchanged(Fault::unavailable()).await;
    world.bucket.put("b", "theirs").await;
    let kept = |keys: Vec<String>| keys.iter().filter(|key| key.starts_with("lost+found/")).count();
    assert_eq!(kept(shown(&world).await), 1);
    assert_eq!(kept(shown(&world).await), 1);
    assert_eq!(world.read_file("b").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

/// What it was when it was looked up decided what was deleted: the object of a file that was stored since stayed, and
/// its replacement was taken for a conflict (world of files 42125).
#[tokio::test]
async fn s77_a_file_that_could_not_be_shown_replaces_another() {
    let world = exchanged(Fault::unavailable()).await;
    let new = world.create("new").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put));
    assert_eq!(errno(world.fs.fsync(new).await), libc::EIO);
    world.rename("b", "new").await.unwrap();
    assert_eq!(shown(&world).await, ["a", "new"]);
    assert_eq!(world.bucket.object("new").await.unwrap(), b"one");
    world.close(new).await.unwrap();
    world.assert_healthy().await;
}

/// Its name came first and then the object of the file it replaced could not be deleted: that was taken for somebody
/// else's, and the file went to `lost+found` (world of files 144934).
#[tokio::test]
async fn s77_a_file_that_could_not_be_shown_replaces_another_at_once() {
    let world = exchanged(Fault::unavailable()).await;
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    world.rename("b", "a").await.unwrap();
    world.bucket.faults.clear();
    assert_eq!(shown(&world).await, ["a"]);
    assert_eq!(world.bucket.object("a").await.unwrap(), b"one");
    world.assert_healthy().await;
}

/// Its object was still at its path, older than its times now, and every sync failed (world of files 20816).
#[tokio::test]
async fn s77_a_symbolic_link_is_known_again_at_its_path() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"one").await.unwrap();
    world.symlink("b", b"target").await.unwrap();
    for operation in [Operation::Delete, Operation::Head] {
        let fault = Rule::new(Fault::unavailable()).on(operation).at(&"b".try_into().unwrap());
        world.bucket.faults.add(fault.always());
    }
    assert_eq!(errno(world.rename_with("b", "a", libc::RENAME_EXCHANGE).await), libc::EIO);
    world.bucket.faults.clear();
    let atime = Some(vfs::Time::Now);
    world.set("b", Changes { atime, ..Changes::default() }).await.unwrap();
    assert_eq!(shown(&world).await, ["a", "b"]);
    world.assert_healthy().await;
}

/// The answer to the copy that carries new headers was lost; the tag it gave the object was taken for somebody else's,
/// and who had the file open could not read on (world of files 47120).
#[tokio::test]
async fn s52_headers_that_were_stored_unheard_are_no_other_file() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let body = pattern(300_000);
    world.write_file("file", &body).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.fs.read(handle, 0, 10).await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head).after(1));
    assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), ["file"]);
    assert_eq!(world.read_all(handle).await.unwrap(), body);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
}

/// `file`, closed, with a copy that carries new headers whose answer was lost.
async fn with_unheard_headers() -> World {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("file", b"one").await.unwrap();
    world.write_file("other", b"two").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head).after(1));
    assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
    world.close(handle).await.unwrap();
    world.bucket.faults.clear();
    world
}

/// The namespace knew the tag from before: a rename found that somebody had changed the object, and later headers were
/// not exported (worlds of files 1402, 53429 and 182972).
#[tokio::test]
async fn s18_s77_headers_that_were_stored_unheard_keep_nothing_from_their_file() {
    let world = with_unheard_headers().await;
    world.rename("file", "moved").await.unwrap();
    assert_eq!(world.bucket.object("moved").await.unwrap(), b"one");
    world.assert_healthy().await;

    let world = with_unheard_headers().await;
    world.rename_with("other", "file", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("other").await.unwrap(), b"one");
    world.assert_healthy().await;

    let world = with_unheard_headers().await;
    world.chmod("file", 0o700).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100700");
}

/// They went with one of its names (world of files 127500).
#[tokio::test]
async fn s18_attributes_reach_the_object_although_a_name_of_its_file_was_replaced() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("file", b"one").await.unwrap();
    world.link("file", "second").await.unwrap();
    world.write_file("other", b"two").await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.rename("other", "second").await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
}

/// A file that had been made and linked, and never stored, was taken for the next one of its name; its other name then
/// showed what nobody had stored there (world of files 154531).
#[tokio::test]
async fn s144_a_file_that_was_never_stored_is_not_the_next_of_its_name() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.create("file").await.unwrap();
    world.link("file", "second").await.unwrap();
    let again = bucket.mount(|_| {}).await;
    bucket.put("file", "theirs").await;
    again.expire();
    assert_eq!(again.read_file("file").await.unwrap(), b"theirs");
    assert_eq!(again.names("/").await.unwrap(), ["file"]);
}

/// A further name of a file was as old as the last look at its own directory (worlds of files 27415 and 70013).
#[tokio::test]
async fn s93_every_name_of_a_file_is_as_fresh_as_its_key() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/first", b"one").await.unwrap();
    world.link("dir/first", "second").await.unwrap();
    world.bucket.put("dir/first", "theirs").await;
    world.expire();
    assert_eq!(world.stat("second").await.unwrap().size_bytes, 6);
    assert_eq!(world.read_file("second").await.unwrap(), b"theirs");
}

/// A rename took an object along that lacked what an `fsync` had stored beside; what a crash then left at the old path
/// was older than what was synced (world of files 35343).
#[tokio::test]
async fn s21_a_file_is_complete_before_it_moves() {
    for (from, to) in [("dir/file", "file"), ("dir", "moved")] {
        let world = Bucket::with_metadata().mount(|_| {}).await;
        world.mkdir("dir").await.unwrap();
        let (handle, body) = with_a_delta(&world).await;
        world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
        world.rename(from, to).await.unwrap();
        world.bucket.faults.clear();
        assert!(world.bucket.object("dir/file").await.unwrap() == body);
        assert!(world.read_all(handle).await.unwrap() == body);
        world.close(handle).await.unwrap();
    }
}

/// The last close failed, and then only the attributes were written to the object, which lacked what the `fsync` had
/// stored for as long as nobody wrote the file again (world of both sides 11520).
#[tokio::test]
async fn s21_what_was_synced_is_shown_though_the_last_close_failed() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    let (handle, body) = with_a_delta(&world).await;
    world.fs.write(handle, 2000, b"lost").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::BeginMultipart).always());
    assert_eq!(errno(world.close(handle).await), libc::EIO);
    world.bucket.faults.clear();
    world.fs.sync().await.unwrap();
    assert!(world.bucket.object("dir/file").await.unwrap() == body);
    assert!(world.read_file("dir/file").await.unwrap() == body);
    world.assert_healthy().await;
}

/// `dir/file`, open, with bytes that are in no whole object.
async fn with_a_delta(world: &World) -> (Handle, Vec<u8>) {
    let mut body = pattern(1 << 20);
    world.write_file("dir/file", &body).await.unwrap();
    let handle = world.open_handle("dir/file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 1000, b"new").await.unwrap();
    body[1000..1003].copy_from_slice(b"new");
    world.fs.fsync(handle).await.unwrap();
    assert!(world.bucket.object("dir/file").await.unwrap() != body);
    (handle, body)
}

/// What an earlier attempt had left under the heir's key, with older headers, kept every later one out: EBUSY (world of
/// files 104471).
#[tokio::test]
async fn s93_a_name_goes_although_an_earlier_attempt_left_its_copy() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("first", b"one").await.unwrap();
    world.link("first", "second").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.unlink("first").await.unwrap();
    world.chmod("second", 0o600).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(shown(&world).await, ["second"]);
    assert_eq!(world.read_file("second").await.unwrap(), b"one");
    world.assert_healthy().await;
}

/// A write that replaced all of it knew only its own times, and took what was there for somebody else's (world of files
/// 22434).
#[tokio::test]
async fn s77_what_was_shown_unheard_is_overwritten_like_any_other() {
    let world = exchanged(Fault::lost_reply()).await;
    let handle = world.open_handle("b", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"something longer").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(shown(&world).await, ["a", "b"]);
    assert_eq!(world.bucket.object("b").await.unwrap(), b"something longer");
    world.assert_healthy().await;
}

/// A file that ends in a hole lost the hole with its name: what was written behind it was read in its place (world of files
/// 3200371).
#[tokio::test]
async fn a_hole_at_the_end_outlives_the_name() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    let mut body = pattern(MIB);
    world.write_file("file", &body).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, MIB as u64, b"more").await.unwrap();
    world.fs.fallocate(handle, 0, 0, 3 * MIB as u64).await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    let ino = world.ino("file").await.unwrap();
    world.unlink("file").await.unwrap();
    assert_eq!(world.fs.getattr(ino).await.unwrap().size_bytes, 3 * MIB as u64);
    world.fs.write(handle, 3 * MIB as u64, b"end").await.unwrap();
    body.extend(b"more");
    body.resize(3 * MIB, 0);
    body.extend(b"end");
    assert_eq!(world.read_all(handle).await.unwrap(), body);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
}

/// A file that was just renamed has another tag once its object has arrived. When the object could not be deleted before an
/// exchange, that tag was taken for somebody else's, and the file that came to its name went to lost and found (world of
/// files 3314686).
#[tokio::test]
async fn an_exchange_that_fails_right_after_a_rename_changes_nothing() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("a", b"one").await.unwrap();
    world.write_file("c", b"two").await.unwrap();
    world.rename_at_once("a", "b", 0).await.unwrap();
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).at(&"b".try_into().unwrap()));
    assert_eq!(errno(world.rename_at_once("b", "c", libc::RENAME_EXCHANGE).await), libc::EIO);
    for (name, body) in [("b", b"one"), ("c", b"two")] {
        assert_eq!(world.read_file(name).await.unwrap(), body);
        assert_eq!(bucket.object(name).await.unwrap(), body);
    }
    world.assert_healthy().await;
}
