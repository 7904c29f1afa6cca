//! Names in a volume named by path that no object key can represent: additional links, and paths longer than a key.

use crate::world::{Bucket, CALLER, MIB, World, errno, pattern};
use store::StoreError;
use store::wrap::{Fault, Operation, Rule};
use vfs::{Changes, Handle, Ino, Kind};

/// Creates nested directories, and returns a path after which a name of maximum length no longer fits into a key.
async fn deep(world: &World) -> String {
    let mut path = String::new();
    for _ in 0..4 {
        path += &"d".repeat(200);
        world.mkdir(&path).await.unwrap();
        path.push('/');
    }
    path
}

/// Returns a path longer than a key.
fn long(deep: &str) -> String {
    format!("{deep}{}", "n".repeat(230))
}

async fn visible_keys(world: &World) -> Vec<String> {
    world.fs.sync().await.unwrap();
    let mut keys = world.bucket.keys().await;
    keys.retain(|key| !key.starts_with(".tenon/"));
    keys
}

/// Returns the number of content keys, which hold files whose path is no key.
async fn count_content_keys(world: &World) -> usize {
    world.fs.sync().await.unwrap();
    world.bucket.keys().await.iter().filter(|key| key.starts_with(".tenon/")).count()
}

#[tokio::test]
async fn s93_the_bucket_shows_a_file_under_one_of_its_names() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("first", b"one").await.unwrap();
    let linked = world.requests(async {
        assert_eq!(world.link("first", "dir/second").await?.nlink, 2);
        Ok(())
    });
    assert_eq!(linked.await, "nothing");
    assert_eq!(errno(world.link("first", "dir/second").await), libc::EEXIST);
    assert_eq!(errno(world.link("dir", "other").await), libc::EPERM);
    world.write_file("dir/second", b"two").await.unwrap();
    assert_eq!(world.bucket.object("first").await.unwrap(), b"two");
    assert_eq!(world.stat("first").await.unwrap().ino, world.stat("dir/second").await.unwrap().ino);
    for world in [&world, &world.remount().await] {
        world.expire();
        assert_eq!(world.names("dir").await.unwrap(), ["second"], "no listing takes it away");
        assert_eq!(world.read_file("dir/second").await.unwrap(), b"two");
        assert_eq!(world.stat("first").await.unwrap().nlink, 2);
    }
    assert_eq!(visible_keys(&world).await, ["dir/", "first"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s93_the_remaining_link_gets_the_key() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("first", b"one").await.unwrap();
    world.link("first", "dir/second").await.unwrap();
    world.link("first", "third").await.unwrap();
    let open = world.open_handle("third", libc::O_RDWR).await.unwrap();
    world.unlink("first").await.unwrap();
    assert_eq!(errno(world.stat("first").await), libc::ENOENT);
    assert_eq!(visible_keys(&world).await.len(), 2, "dir/ and the promoted link");
    assert_eq!(world.read_all(open).await.unwrap(), b"one");
    world.fs.write(open, 3, b" more").await.unwrap();
    world.close(open).await.unwrap();
    let again = world.remount().await;
    again.expire();
    assert_eq!(again.read_file("dir/second").await.unwrap(), b"one more");
    assert_eq!(again.stat("third").await.unwrap().nlink, 2);
    again.unlink("third").await.unwrap();
    assert_eq!(visible_keys(&again).await, ["dir/", "dir/second"]);
    assert_eq!(world.bucket.object("dir/second").await.unwrap(), b"one more");
    again.unlink("dir/second").await.unwrap();
    assert_eq!(visible_keys(&again).await, ["dir/"]);
    again.assert_healthy().await;
}

#[tokio::test]
async fn s93_names_of_one_file_are_renamed_and_replaced_one_by_one() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"linked").await.unwrap();
    world.link("a", "b").await.unwrap();
    world.rename("a", "b").await.unwrap();
    assert_eq!(world.names("/").await.unwrap(), ["a", "b"], "both names lead to one file: nothing happens");
    world.rename("b", "c").await.unwrap();
    assert_eq!(visible_keys(&world).await, ["a"]);
    world.rename("a", "d").await.unwrap();
    assert_eq!(visible_keys(&world).await, ["d"]);
    // The link with the key is replaced, so the key goes to the other link first.
    world.write_file("new", b"new").await.unwrap();
    world.rename("new", "d").await.unwrap();
    assert_eq!(world.bucket.object("c").await.unwrap(), b"linked");
    assert_eq!(world.bucket.object("d").await.unwrap(), b"new");
    // A link without a key replaces one with a key.
    world.link("c", "e").await.unwrap();
    world.rename("e", "d").await.unwrap();
    assert_eq!(visible_keys(&world).await, ["c"]);
    world.expire();
    assert_eq!(world.read_file("d").await.unwrap(), b"linked");
    assert_eq!(world.names("/").await.unwrap(), ["c", "d"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s93_a_renamed_directory_takes_its_links_along() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/owner", b"o").await.unwrap();
    world.write_file("outside", b"x").await.unwrap();
    world.link("outside", "dir/inside").await.unwrap();
    world.link("dir/owner", "other").await.unwrap();
    world.rename("dir", "moved").await.unwrap();
    assert_eq!(visible_keys(&world).await, ["moved/", "moved/owner", "outside"]);
    world.expire();
    assert_eq!(world.names("moved").await.unwrap(), ["inside", "owner"]);
    assert_eq!(world.read_file("moved/inside").await.unwrap(), b"x");
    assert_eq!(world.read_file("other").await.unwrap(), b"o");
    assert_eq!(errno(world.rmdir("moved").await), libc::ENOTEMPTY);
    world.unlink("moved/owner").await.unwrap();
    assert_eq!(errno(world.rmdir("moved").await), libc::ENOTEMPTY, "a link without a key is an entry");
    world.unlink("moved/inside").await.unwrap();
    world.rmdir("moved").await.unwrap();
    assert_eq!(visible_keys(&world).await, ["other", "outside"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s93_a_foreign_object_at_the_key_of_a_link_takes_its_name() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"ours").await.unwrap();
    world.link("a", "b").await.unwrap();
    world.link("a", "c").await.unwrap();
    world.bucket.put("b", "theirs").await;
    world.expire();
    assert_eq!(world.read_file("b").await.unwrap(), b"theirs");
    assert_eq!(world.stat("a").await.unwrap().nlink, 2);
    // Likewise if the foreign object is found only when the key is passed to another link.
    world.bucket.put("c", "theirs too").await;
    world.unlink("a").await.unwrap();
    assert_eq!(world.bucket.object("c").await.unwrap(), b"theirs too");
    world.write_file("d", b"ours").await.unwrap();
    world.link("d", "e").await.unwrap();
    world.bucket.delete("d").await;
    world.expire();
    assert_eq!(errno(world.stat("d").await), libc::ENOENT);
    assert_eq!(errno(world.stat("e").await), libc::ENOENT, "the bytes were lost with the object");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s93_a_key_that_cannot_be_passed_on_now_is_passed_on_later() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"x").await.unwrap();
    world.link("a", "b").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy).always());
    world.unlink("a").await.unwrap();
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), ["b"]);
    assert_eq!(world.read_file("b").await.unwrap(), b"x");
    assert_eq!(visible_keys(&world).await, ["a"]);
    world.bucket.faults.clear();
    world.fs.moves().wait_until_complete().await;
    assert_eq!(visible_keys(&world).await, ["b"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s89_extended_attributes_are_kept_and_prevent_eviction() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("file", b"x").await.unwrap();
    let ino = world.ino("file").await.unwrap();
    world.fs.setxattr(ino, b"user.colour", b"red", 0, |_| true).await.unwrap();
    world.rename("file", "renamed").await.unwrap();
    let again = world.remount().await;
    again.expire();
    let ino = again.ino("renamed").await.unwrap();
    assert_eq!(again.fs.getxattr(ino, b"user.colour").await.unwrap(), "red");
    assert_eq!(again.fs.listxattr(ino).await.unwrap().len(), 1);
}

#[tokio::test]
async fn s71_files_with_paths_longer_than_a_key_are_stored_under_content_keys() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let deep = deep(&world).await;
    let (long, shown) = (long(&deep), visible_keys(&world).await);
    world.mkdir(&long).await.unwrap();
    let file = format!("{long}/file");
    world.write_file(&file, b"bytes").await.unwrap();
    world.write_file(format!("{long}/empty"), b"").await.unwrap();
    world.symlink(format!("{long}/link"), b"target").await.unwrap();
    world.mknod(format!("{long}/fifo"), Kind::Fifo).await.unwrap();
    world.chmod(&file, 0o600).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(visible_keys(&world).await, shown);
    for world in [&world, &world.remount().await] {
        world.expire();
        assert_eq!(world.names(&long).await.unwrap(), ["empty", "fifo", "file", "link"]);
        assert_eq!(world.names(&deep).await.unwrap(), ["n".repeat(230)]);
        assert_eq!(world.read_file(&file).await.unwrap(), b"bytes");
        assert_eq!(world.stat(&file).await.unwrap().mode, 0o600);
        assert_eq!(world.stat(format!("{long}/empty")).await.unwrap().size_bytes, 0);
        let link = world.ino(format!("{long}/link")).await.unwrap();
        assert_eq!(world.fs.readlink(link).await.unwrap(), "target");
    }
    world.write_file(&file, pattern(3 * MIB)).await.unwrap();
    world.truncate(&file, MIB as u64 + 5).await.unwrap();
    let cut = &pattern(3 * MIB)[..MIB + 5];
    assert!(world.remount().await.read_file(&file).await.unwrap() == cut);
    assert_eq!(count_content_keys(&world).await, 1, "the replaced object is gone");
    assert_eq!(errno(world.rmdir(&long).await), libc::ENOTEMPTY);
    for name in ["empty", "fifo", "file", "link"] {
        world.unlink(format!("{long}/{name}")).await.unwrap();
    }
    world.rmdir(&long).await.unwrap();
    assert_eq!((count_content_keys(&world).await, visible_keys(&world).await), (0, shown));
    world.assert_healthy().await;
}

#[tokio::test]
async fn s71_a_file_moves_between_long_and_short_paths() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let deep = deep(&world).await;
    let (long, shown) = (long(&deep), visible_keys(&world).await);
    world.write_file("file", b"x").await.unwrap();
    world.rename("file", &long).await.unwrap();
    assert_eq!((visible_keys(&world).await, count_content_keys(&world).await), (shown.clone(), 1));
    let open = world.open_handle(&long, libc::O_RDWR).await.unwrap();
    world.fs.write(open, 1, b"y").await.unwrap();
    world.rename(&long, "back").await.unwrap();
    assert_eq!(world.bucket.object("back").await.unwrap(), b"x");
    assert_eq!(world.read_all(open).await.unwrap(), b"xy");
    world.close(open).await.unwrap();
    assert_eq!(world.bucket.object("back").await.unwrap(), b"xy");
    assert_eq!(count_content_keys(&world).await, 0);
    world.symlink("link", b"target").await.unwrap();
    world.rename("link", &long).await.unwrap();
    world.rename(&long, "link").await.unwrap();
    assert_eq!(world.bucket.object("link").await.unwrap(), b"target");
    world.link("back", &long).await.unwrap();
    world.unlink("back").await.unwrap();
    assert_eq!(world.remount().await.read_file(&long).await.unwrap(), b"xy");
    world.rename(&long, "back").await.unwrap();
    assert_eq!(world.bucket.object("back").await.unwrap(), b"xy");
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), ["back", "d".repeat(200).as_str(), "link"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s71_a_directory_rename_that_would_make_paths_too_long_is_refused() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let deep = deep(&world).await;
    let fits = format!("{deep}{}", "n".repeat(1024 - deep.len()));
    world.write_file(&fits, b"x").await.unwrap();
    assert_eq!(world.bucket.object(&fits).await.unwrap(), b"x");
    world.mkdir("short").await.unwrap();
    let below = format!("short/{}", "d".repeat(200));
    assert_eq!(errno(world.rename(&deep[..200], &below).await), libc::EXDEV);
    world.write_file(long(&deep), b"beside").await.unwrap();
    assert_eq!(errno(world.rename(&deep[..200], "e").await), libc::EXDEV);
    world.mkdir(format!("{}m", long(&deep))).await.unwrap();
    assert_eq!(errno(world.rename(format!("{}m", long(&deep)), "e").await), libc::EXDEV);
    world.rename(format!("{}m", long(&deep)), format!("{}o", long(&deep))).await.unwrap();
    assert_eq!(world.read_file(&fits).await.unwrap(), b"x");
    assert_eq!(world.read_file(long(&deep)).await.unwrap(), b"beside");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s144_a_file_being_created_when_its_mount_died_is_gone() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.create("unfinished").await.unwrap();
    let open = world.create("unlinked").await.unwrap();
    world.fs.write(open, 0, b"x").await.unwrap();
    world.unlink("unlinked").await.unwrap();
    let again = world.remount().await;
    again.fs.recover().await.unwrap();
    assert_eq!(errno(again.stat("unfinished").await), libc::ENOENT);
    assert_eq!(again.names("/").await.unwrap(), Vec::<String>::new());
    again.assert_healthy().await;
}

#[tokio::test]
async fn s45_known_names_survive_a_remount_and_changed_objects_are_seen() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("kept", b"x").await.unwrap();
    world.write_file("changed", b"x").await.unwrap();
    world.write_file("gone", b"x").await.unwrap();
    let ino = world.ino("kept").await.unwrap();
    let changes = Changes { mode: Some(0o400), ..Changes::default() };
    world.set("kept", changes).await.unwrap();
    world.fs.sync().await.unwrap();
    bucket.put("changed", "longer").await;
    bucket.delete("gone").await;
    let again = world.remount().await;
    again.expire();
    let looked = again.requests(async {
        assert_eq!(again.stat("kept").await?.mode, 0o400);
        Ok(())
    });
    assert_eq!(looked.await, "List 1", "its headers need not be read again");
    assert_eq!(again.ino("kept").await.unwrap(), ino);
    assert_eq!(again.read_file("changed").await.unwrap(), b"longer");
    assert_eq!(errno(again.stat("gone").await), libc::ENOENT);
    assert_eq!(again.names("/").await.unwrap(), ["changed", "kept"]);
    assert_ne!(again.ino("changed").await.unwrap(), Ino::ROOT);
}

/// Returns an open file of 1 MiB with three bytes that only an `fsync` has stored, in a delta.
async fn with_a_delta(world: &World, path: &str) -> (Handle, Vec<u8>) {
    let mut bytes = pattern(MIB);
    world.write_file(path, &bytes).await.unwrap();
    let handle = world.open_handle(path, libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 1000, b"new").await.unwrap();
    bytes[1000..1003].copy_from_slice(b"new");
    world.fs.fsync(handle).await.unwrap();
    (handle, bytes)
}

#[tokio::test]
async fn s12_s21_an_fsync_stores_what_changed_and_the_close_assembles() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let (handle, bytes) = with_a_delta(&world, "file").await;
    assert!(world.bucket.object("file").await.unwrap() == pattern(MIB), "the object is unchanged");
    world.fs.write(handle, 500_000, b"more").await.unwrap();
    let synced = world.requests(world.fs.fsync(handle)).await;
    assert!(synced.starts_with("Put 1"), "{synced}: both changes are in one delta, which replaces the first");
    assert_eq!(count_content_keys(&world).await, 1);
    let again = world.remount().await;
    let mut more = bytes.clone();
    more[500_000..500_004].copy_from_slice(b"more");
    assert!(again.read_file("file").await.unwrap() == more);
    world.fs.flush(handle).await.unwrap();
    assert!(world.bucket.object("file").await.unwrap() == more);
    assert_eq!(count_content_keys(&world).await, 0);
    assert_eq!(world.requests(world.fs.flush(handle)).await, "nothing");
    world.fs.release(handle).await.unwrap();
    world.assert_healthy().await;
}

#[tokio::test]
async fn s12_s21_deltas_are_assembled_by_the_next_mount() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    let (_, bytes) = with_a_delta(&world, "file").await;
    let again = world.remount().await;
    again.fs.recover().await.unwrap();
    assert!(bucket.object("file").await.unwrap() == bytes);
    assert!(again.read_file("file").await.unwrap() == bytes);
    assert_eq!(count_content_keys(&again).await, 0);
    again.assert_healthy().await;
}

#[tokio::test]
async fn s21_a_file_with_deltas_is_moved_changed_and_removed_like_any_other() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    let (handle, bytes) = with_a_delta(&world, "dir/file").await;
    world.rename("dir", "moved").await.unwrap();
    world.chmod("moved/file", 0o600).await.unwrap();
    world.link("moved/file", "link").await.unwrap();
    world.unlink("moved/file").await.unwrap();
    world.rename("link", "file").await.unwrap();
    world.fs.sync().await.unwrap();
    assert!(world.read_all(handle).await.unwrap() == bytes);
    world.expire();
    assert!(world.read_file("file").await.unwrap() == bytes, "a revalidation keeps the deltas");
    assert!(world.remount().await.read_file("file").await.unwrap() == bytes);
    world.unlink("file").await.unwrap();
    assert!(world.read_all(handle).await.unwrap() == bytes);
    world.close(handle).await.unwrap();
    assert_eq!((visible_keys(&world).await, count_content_keys(&world).await), (vec!["moved/".into()], 0));
    world.assert_healthy().await;
}

/// Regression: the object under the key of the other link was older than the data of an `fsync` until the file was closed.
/// After a crash the old data was the file.
#[tokio::test]
async fn s21_a_file_with_deltas_is_assembled_before_its_key_is_passed_on() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let (handle, bytes) = with_a_delta(&world, "file").await;
    world.link("file", "other").await.unwrap();
    world.unlink("file").await.unwrap();
    assert!(world.bucket.object("other").await.unwrap() == bytes);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
}

/// Regression: the copy was compared with the headers of the original and taken for a foreign object, which removed the name
/// from the file (world of files 17457).
#[tokio::test]
async fn s93_a_copy_with_new_headers_and_a_lost_answer_is_recognized() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("file", b"text").await.unwrap();
    world.link("file", "other").await.unwrap();
    let ino = world.ino("other").await.unwrap();
    world.chmod("other", 0o600).await.unwrap();
    // The request was sent twice.
    let refused = Fault::After(|| StoreError::PreconditionFailed("other".try_into().unwrap()));
    world.bucket.faults.add(Rule::new(refused).on(Operation::Copy));
    world.unlink("file").await.unwrap();
    world.fs.sync().await.unwrap();
    world.expire();
    assert_eq!(world.ino("other").await.unwrap(), ino);
    assert_eq!(world.bucket.header("other", "file-permissions").await.unwrap(), "0100600");
    assert_eq!(world.read_file("other").await.unwrap(), b"text");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s21_a_rename_without_a_close_keeps_the_deltas() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    let (_, bytes) = with_a_delta(&world, "dir/file").await;
    // The mount ends abnormally, and the bucket is unreachable when the next mount would assemble the file.
    let again = world.remount().await;
    again.rename("dir", "moved").await.unwrap();
    again.chmod("moved/file", 0o600).await.unwrap();
    again.fs.sync().await.unwrap();
    assert!(again.read_file("moved/file").await.unwrap() == bytes);
    let handle = again.open_handle("moved/file", libc::O_RDWR).await.unwrap();
    again.fs.write(handle, 0, b"x").await.unwrap();
    again.close(handle).await.unwrap();
    assert!(bucket.object("moved/file").await.unwrap()[1..] == bytes[1..]);
    assert_eq!(count_content_keys(&again).await, 0);
    again.assert_healthy().await;
}

/// Regression: the upload of a file with deltas took effect after a truncation, but its answer was lost. The file got the etag of the upload and
/// kept the length of its deltas, and could not be read (world of files 70,050,546).
#[tokio::test]
async fn s21_a_file_with_deltas_gets_the_length_of_an_upload_whose_answer_was_lost() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    let (handle, bytes) = with_a_delta(&world, "file").await;
    let (ino, length) = (world.ino("file").await.unwrap(), 300_000);
    let changes = Changes { size_bytes: Some(length as u64), ..Changes::default() };
    world.fs.setattr(CALLER, ino, changes, Some(handle)).await.unwrap();
    bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put));
    assert_eq!(errno(world.fs.flush(handle).await), libc::EIO);
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put));
    assert_eq!(errno(world.fs.flush(handle).await), libc::EIO);
    world.fs.release(handle).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().size_bytes, length as u64);
    assert!(world.read_file("file").await.unwrap() == bytes[..length]);
    assert!(bucket.object("file").await.unwrap() == bytes[..length]);
    assert!(world.remount().await.read_file("file").await.unwrap() == bytes[..length]);
    assert_eq!(count_content_keys(&world).await, 0);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s52_deltas_of_a_file_that_was_replaced_are_preserved() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let (handle, _) = with_a_delta(&world, "file").await;
    world.bucket.put("file", "theirs").await;
    assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE);
    world.fs.release(handle).await.unwrap();
    assert_eq!(world.read_file("file").await.unwrap(), b"theirs");
    let kept = visible_keys(&world).await.into_iter().find(|key| key.starts_with("lost+found/")).unwrap();
    assert_eq!(&world.bucket.object(&kept).await.unwrap()[1000..1003], b"new");
    assert_eq!(count_content_keys(&world).await, 0);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s77_files_with_and_without_keys_are_exchanged() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let deep = deep(&world).await;
    let long = long(&deep);
    world.write_file("a", b"one").await.unwrap();
    world.chmod("a", 0o600).await.unwrap();
    world.symlink("b", b"target").await.unwrap();
    let open = world.open_handle("a", libc::O_RDONLY).await.unwrap();
    world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"one");
    assert_eq!(world.bucket.object("a").await.unwrap(), b"target");
    assert_eq!(world.bucket.header("b", "file-permissions").await.unwrap(), "0100600");
    assert_eq!(world.read_all(open).await.unwrap(), b"one");
    world.close(open).await.unwrap();
    world.write_file(&long, b"long").await.unwrap();
    world.link("b", "c").await.unwrap();
    world.rename_with(&long, "b", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"long");
    assert_eq!(world.read_file("c").await.unwrap(), b"one");
    world.rename_with("c", &long, libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.stat("c").await.unwrap().ino, world.stat(&long).await.unwrap().ino);
    let missing = world.rename_with("b", "nothing", libc::RENAME_EXCHANGE).await;
    assert_eq!(errno(missing), libc::ENOENT);
    let directory = world.rename_with("b", &deep[..200], libc::RENAME_EXCHANGE).await;
    assert_eq!(errno(directory), libc::EINVAL);
    let again = world.remount().await;
    again.expire();
    again.fs.recover().await.unwrap();
    assert_eq!(again.read_file("b").await.unwrap(), b"long");
    assert_eq!(again.read_file(&long).await.unwrap(), b"one");
    again.assert_healthy().await;
}

/// Regression: the first object had been moved to a content key, and its path was then taken for another client's object (world
/// of files 1455).
#[tokio::test]
async fn s77_an_exchange_that_fails_leaves_both_files_where_they_were() {
    for calls in 0..2 {
        let world = Bucket::with_metadata().mount(|_| {}).await;
        world.write_file("a", b"one").await.unwrap();
        world.write_file("b", b"two").await.unwrap();
        let open = world.open_handle("a", libc::O_RDONLY).await.unwrap();
        let fault = Rule::new(Fault::unavailable()).on(Operation::Delete).after(calls);
        world.bucket.faults.add(fault);
        assert_eq!(errno(world.rename_with("a", "b", libc::RENAME_EXCHANGE).await), libc::EIO);
        world.bucket.faults.clear();
        world.expire();
        assert_eq!(world.names("/").await.unwrap(), ["a", "b"]);
        assert_eq!(world.read_file("a").await.unwrap(), b"one");
        assert_eq!(world.read_file("b").await.unwrap(), b"two");
        assert_eq!(world.read_all(open).await.unwrap(), b"one");
        world.close(open).await.unwrap();
        world.assert_healthy().await;
    }
}
