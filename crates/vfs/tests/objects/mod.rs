//! The volume as an object store, as Tenon's own S3 endpoint serves it, and what the mount shows of it.

mod concurrent_changes;
mod conform;
mod renames;
mod settings;
mod uploads;

use crate::world::{Bucket, CALLER, MIB, World, errno, pattern};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use store::wrap::Operation;
use store::{
    Attributes, CopyOptions, GetOptions, ListRequest, ObjectKey, ObjectRef, ObjectStore, Pages, Payload,
    Precondition, PutOptions, StoreError, Tags,
};
use vfs::{AttributeSource, Caller, Ino, Invalidation, Kind, Mapping, directory_buckets};

/// A volume as a bucket.
pub(crate) type Objects = Arc<dyn ObjectStore>;

/// Serves the whole volume as objects.
pub(crate) fn objects(world: &World) -> Objects {
    vfs::objects(&world.fs, b"")
}

pub(crate) fn key(text: impl AsRef<[u8]>) -> ObjectKey {
    ObjectKey::try_from(text.as_ref()).unwrap()
}

pub(crate) async fn put(objects: &Objects, name: &str, body: impl AsRef<[u8]>) -> ObjectRef {
    let body = Payload::from(Bytes::copy_from_slice(body.as_ref()));
    objects.put(&key(name), body, PutOptions::default()).await.unwrap()
}

async fn get(objects: &Objects, name: &str) -> Option<Vec<u8>> {
    match objects.get(&key(name), GetOptions::default()).await {
        Ok(object) => Some(object.body.try_collect::<Vec<_>>().await.unwrap().concat()),
        Err(StoreError::NotFound(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn delete(objects: &Objects, name: &str) {
    objects.delete(&key(name), Precondition::None).await.unwrap();
}

async fn listed(objects: &Objects, request: ListRequest) -> Vec<String> {
    let entries = Pages::new(objects, request).collect().await.unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect()
}

pub(crate) async fn keys(objects: &Objects) -> Vec<String> {
    listed(objects, ListRequest { limit: 1000, ..ListRequest::default() }).await
}

fn text_map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn described(user: BTreeMap<String, String>) -> PutOptions {
    PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() }
}

/// Returns mounts of every kind of volume.
async fn each() -> Vec<World> {
    let mut worlds = Vec::new();
    for bucket in Bucket::by_inode_each().await {
        worlds.push(bucket.mount(|_| {}).await);
    }
    worlds.push(Bucket::with_metadata().mount(|_| {}).await);
    worlds.push(Bucket::by_inode(Mapping::Whole).await.mount(|config| config.write_back = true).await);
    worlds
}

/// Asserts that the tables are consistent and that no content without a file is left.
async fn assert_sound(world: &World) {
    world.settle().await;
    assert_eq!(world.fs.check().unwrap(), [""; 0]);
    assert_eq!(world.fs.admin().collect_garbage(true).await.unwrap(), []);
}

#[tokio::test]
async fn s39_the_mount_shows_a_put_at_once() {
    for world in each().await {
        let objects = objects(&world);
        // The mount has looked the name up and caches the answer.
        assert_eq!(errno(world.stat("dir").await), libc::ENOENT);
        put(&objects, "dir/file", "one").await;
        assert_eq!(world.read_file("dir/file").await.unwrap(), b"one");
        assert_eq!(world.names("dir").await.unwrap(), ["file"]);
        put(&objects, "dir/other", "x").await;
        assert_eq!(world.names("dir").await.unwrap(), ["file", "other"]);
        put(&objects, "dir/file", "second").await;
        assert_eq!(world.read_file("dir/file").await.unwrap(), b"second");
        assert_eq!(world.stat("dir/file").await.unwrap().size_bytes, 6);
        delete(&objects, "dir/other").await;
        assert_eq!(errno(world.stat("dir/other").await), libc::ENOENT);
        let source = objects.head(&key("dir/file")).await.unwrap().object;
        objects.copy(&source, &key("dir/copy"), CopyOptions::default()).await.unwrap();
        assert_eq!(world.read_file("dir/copy").await.unwrap(), b"second");
        put(&objects, "dir/file/below", "z").await;
        assert_eq!(world.read_file("dir/file/below").await.unwrap(), b"z");
        assert_eq!(get(&objects, "dir/file").await.unwrap(), b"second");
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn s181_a_written_file_is_an_object_after_its_close() {
    for world in each().await {
        let objects = objects(&world);
        let handle = world.create("file").await.unwrap();
        world.fs.write(handle, 0, b"one").await.unwrap();
        assert_eq!(get(&objects, "file").await, None);
        assert_eq!(keys(&objects).await, [""; 0]);
        world.close(handle).await.unwrap();
        assert_eq!(get(&objects, "file").await.unwrap(), b"one");
        let before = objects.head(&key("file")).await.unwrap();
        assert_eq!(before.attributes.user.get("file-permissions").map(String::as_str), Some("0100640"));
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 0, b"TWO").await.unwrap();
        assert_eq!(get(&objects, "file").await.unwrap(), b"one");
        world.close(handle).await.unwrap();
        assert_eq!(get(&objects, "file").await.unwrap(), b"TWO");
        assert_ne!(objects.head(&key("file")).await.unwrap().object.etag, before.object.etag);
        // A created file without writes was no object after an `fsync`.
        let handle = world.create("empty").await.unwrap();
        assert_eq!(get(&objects, "empty").await, None);
        world.fs.fsync(handle).await.unwrap();
        assert_eq!(get(&objects, "empty").await.unwrap(), b"");
        world.close(handle).await.unwrap();
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn s182_readers_of_a_replaced_inode_continue() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        let old = pattern(3 * MIB);
        put(&objects, "file", &old).await;
        let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
        let reading = objects.get(&key("file"), GetOptions::default()).await.unwrap();
        put(&objects, "file", "new").await;
        assert!(world.read_all(handle).await.unwrap() == old);
        let read = reading.body.try_collect::<Vec<_>>().await.unwrap().concat();
        assert!(read == old);
        delete(&objects, "file").await;
        assert!(world.read_all(handle).await.unwrap() == old);
        world.close(handle).await.unwrap();
        tokio::task::yield_now().await;
        assert_sound(&world).await;
        assert_eq!(world.bucket.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_hard_link_keeps_the_old_bytes() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let objects = objects(&world);
    world.write_file("a", b"old").await.unwrap();
    world.chmod("a", 0o4755).await.unwrap();
    world.link("a", "b").await.unwrap();
    put(&objects, "a", "new").await;
    assert_eq!(get(&objects, "b").await.unwrap(), b"old");
    assert_eq!(world.stat("b").await.unwrap().mode, 0o4755);
    let attr = world.stat("a").await.unwrap();
    assert_eq!(
        (attr.mode, attr.uid, attr.nlink),
        (0o755, CALLER.uid, 1),
        "the set-user-id bit is not inherited by other bytes"
    );
    assert_sound(&world).await;
}

#[tokio::test]
async fn s186_implicit_directories_end_with_their_last_object() {
    for world in each().await {
        let objects = objects(&world);
        world.mkdir("made").await.unwrap();
        put(&objects, "made/x", "x").await;
        put(&objects, "a/b/c", "x").await;
        assert_eq!(world.names("a/b").await.unwrap(), ["c"]);
        assert_eq!(keys(&objects).await, ["a/b/c", "made/", "made/x"]);
        delete(&objects, "a/b/c").await;
        delete(&objects, "made/x").await;
        assert_eq!(errno(world.stat("a/b").await), libc::ENOENT);
        assert_eq!(errno(world.stat("a").await), libc::ENOENT);
        assert_eq!(world.names("made").await.unwrap(), [""; 0]);
        assert_eq!(keys(&objects).await, ["made/"]);
        delete(&objects, "made/").await;
        assert_eq!(errno(world.stat("made").await), libc::ENOENT);
        assert_sound(&world).await;
    }
}

/// A program saw an empty directory that no listing showed and no client could remove.
#[tokio::test]
async fn s186_an_emptied_directory_is_an_object_until_its_deletion() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        put(&objects, "dir/deep/file", "x").await;
        assert_eq!(keys(&objects).await, ["dir/deep/file"]);
        world.unlink("dir/deep/file").await.unwrap();
        assert_eq!(keys(&objects).await, ["dir/deep/"]);
        assert_eq!(get(&objects, "dir/deep/").await.unwrap(), b"");
        put(&objects, "dir/deep/file", "x").await;
        assert_eq!(keys(&objects).await, ["dir/deep/file"]);
        world.unlink("dir/deep/file").await.unwrap();
        delete(&objects, "dir/deep/").await;
        assert_eq!(errno(world.stat("dir").await), libc::ENOENT);
        assert_sound(&world).await;
    }
}

/// An object beside a directory of the same name must get its plain name back when the directory is removed.
#[tokio::test]
async fn a_shadowed_object_gets_its_name_back() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let objects = objects(&world);
    put(&objects, "a", "object").await;
    put(&objects, "a/b", "inside").await;
    assert_eq!(world.names("/").await.unwrap(), ["%=a", "a"]);
    delete(&objects, "a/b").await;
    assert_eq!(world.names("/").await.unwrap(), ["a"]);
    assert_eq!(world.read_file("a").await.unwrap(), b"object");
    world.unlink("a").await.unwrap();
    world.mkdir("a").await.unwrap();
    put(&objects, "a", "again").await;
    world.rmdir("a").await.unwrap();
    assert_eq!(get(&objects, "a").await.unwrap(), b"again");
    put(&objects, "a", "more").await;
    assert_eq!(get(&objects, "a").await.unwrap(), b"more");
    assert_eq!(keys(&objects).await, ["a"]);
    assert_sound(&world).await;
}

/// After a program removed or renamed the directory, the object kept its shadowed name and another file got the plain one: two
/// files had one key (worlds 1574 and 2694 of both sides).
#[tokio::test]
async fn s62_a_shadowed_object_gets_its_name_back_when_a_program_removes_the_directory() {
    for world in each().await {
        let objects = objects(&world);
        for is_renamed in [false, true] {
            world.mkdir("a").await.unwrap();
            put(&objects, "a", "object").await;
            assert_eq!(world.names("/").await.unwrap(), ["%=a", "a"]);
            match is_renamed {
                true => world.rename("a", "other").await.unwrap(),
                false => world.rmdir("a").await.unwrap(),
            }
            assert_eq!(errno(world.create("a").await), libc::EEXIST);
            assert_eq!(world.read_file("a").await.unwrap(), b"object");
            assert_eq!(get(&objects, "a").await.unwrap(), b"object");
            world.write_file("b", "another").await.unwrap();
            world.rename("b", "a").await.unwrap();
            assert_eq!(get(&objects, "a").await.unwrap(), b"another");
            world.unlink("a").await.unwrap();
        }
        assert_eq!(world.names("/").await.unwrap(), ["other"]);
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn s185_user_metadata_and_tags_are_extended_attributes_both_ways() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        let given = [("project", "apollo"), ("tenon-sum", "abc"), ("mtime", "1.5")];
        let options = PutOptions { tags: text_map([("stage", "raw")]), ..described(text_map(given)) };
        objects.put(&key("file"), "x".into(), options).await.unwrap();
        let ino = world.ino("file").await.unwrap();
        let names = |names: Vec<Box<[u8]>>| {
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(world.fs.listxattr(ino).await.unwrap()), ["user.project", "user.tag.stage"]);
        assert_eq!(world.stat("file").await.unwrap().mtime.0, 1_500_000_000);
        assert_eq!(objects.head(&key("file")).await.unwrap().attributes.user, text_map(given));
        assert_eq!(errno(world.fs.getxattr(ino, b"tenon.object").await), libc::EOPNOTSUPP);
        world.fs.setxattr(ino, b"user.project", b"gemini", 0, |_| true).await.unwrap();
        world.fs.setxattr(ino, b"user.tag.more", b"yes", 0, |_| true).await.unwrap();
        world.fs.setxattr(ino, b"user.binary", b"\xff\x00", 0, |_| true).await.unwrap();
        world.fs.removexattr(ino, b"user.tag.stage").await.unwrap();
        let seen = [("project", "gemini"), ("tenon-sum", "abc"), ("mtime", "1.5")];
        assert_eq!(objects.head(&key("file")).await.unwrap().attributes.user, text_map(seen));
        assert_eq!(objects.tags(&key("file")).await.unwrap(), text_map([("more", "yes")]));
        objects.set_tags(&key("file"), text_map([("a", "b")])).await.unwrap();
        assert_eq!(
            names(world.fs.listxattr(ino).await.unwrap()),
            ["user.binary", "user.project", "user.tag.a"],
            "attributes that are not tags stay"
        );
        // The headers that described the old bytes are dropped.
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 0, b"y").await.unwrap();
        world.close(handle).await.unwrap();
        let user = objects.head(&key("file")).await.unwrap().attributes.user;
        assert!(!user.contains_key("tenon-sum") && user.contains_key("file-mtime"), "{user:?}");
        assert_eq!(user.get("project").map(String::as_str), Some("gemini"));
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn posix_attributes_are_headers_both_ways() {
    let mut worlds = each().await;
    // Attributes are taken from headers only where the volume is known to have them.
    worlds.push(Bucket::with_metadata().mount(|config| config.attributes = AttributeSource::Headers).await);
    worlds.remove(2);
    for world in worlds {
        let objects = objects(&world);
        let user = [("file-permissions", "0100600"), ("file-owner", "77"), ("file-mtime", "1000000000ns")];
        objects.put(&key("file"), "x".into(), described(text_map(user))).await.unwrap();
        let attr = world.stat("file").await.unwrap();
        assert_eq!((attr.mode, attr.uid, attr.mtime.0), (0o600, 77, 1_000_000_000));
        world.chmod("file", 0o640).await.unwrap();
        world.fs.sync().await.unwrap();
        let user = objects.head(&key("file")).await.unwrap().attributes.user;
        assert_eq!(user.get("file-permissions").map(String::as_str), Some("0100640"));
        world.symlink("link", b"file").await.unwrap();
        assert_eq!(get(&objects, "link").await.unwrap(), b"file");
        let link = objects.head(&key("link")).await.unwrap();
        objects.copy(&link.object, &key("again"), CopyOptions::default()).await.unwrap();
        assert_eq!(world.stat("again").await.unwrap().kind, Kind::Symlink);
        world.mknod("pipe", Kind::Fifo).await.unwrap();
        assert_sound(&world).await;
    }
}

/// Only a name changes: RenameObject of gigabytes costs nothing.
#[tokio::test]
async fn s192_by_inode_an_object_is_moved_without_a_request() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        let source = put(&objects, "a/from", "bytes").await;
        put(&objects, "to", "old").await;
        let before = world.stat("a/from").await.unwrap();
        let reader = world.open_handle("a/from", libc::O_RDONLY).await.unwrap();
        let (moved, counts) = world.counting(objects.rename(&source, &key("to"), Precondition::None)).await;
        moved.unwrap();
        world.settle().await;
        assert_eq!((counts.of(Operation::Copy), counts.of(Operation::Put)), (0, 0), "{counts}");
        assert_eq!(world.stat("to").await.unwrap().ino, before.ino);
        assert_eq!(world.fs.read(reader, 0, 10).await.unwrap(), "bytes");
        world.close(reader).await.unwrap();
        assert!(world.stat("a").await.is_err(), "the implicit directory is gone");
        let source = objects.head(&key("to")).await.unwrap().object;
        let below = objects.rename(&source, &key("to/below"), Precondition::None).await;
        assert!(matches!(below, Err(StoreError::Unsupported(_))), "{below:?}");
        assert_sound(&world).await;
    }
}

/// The truncated file had the etag of the longer object.
#[tokio::test]
async fn s183_a_file_that_was_cut_has_another_tag() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        let before = put(&objects, "file", "0123456789").await;
        world.truncate("file", 5).await.unwrap();
        let after = objects.head(&key("file")).await.unwrap();
        assert_eq!((after.size_bytes, get(&objects, "file").await.unwrap()), (5, b"01234".to_vec()));
        assert_ne!(after.object.etag, before.etag);
        world.truncate("file", 3 * MIB as u64).await.unwrap();
        let mut expected = b"01234".to_vec();
        expected.resize(3 * MIB, 0);
        assert!(get(&objects, "file").await.unwrap() == expected);
        let tag = objects.head(&key("file")).await.unwrap().object.etag;
        let again = world.remount().await;
        let again = vfs::objects(&again.fs, b"");
        assert_eq!(again.head(&key("file")).await.unwrap().object.etag, tag);
    }
}

#[tokio::test]
async fn s187_reserved_objects_are_neither_shown_nor_changed() {
    for world in each().await {
        let objects = objects(&world);
        put(&objects, "a", "x").await;
        put(&objects, ".tenon-mine", "x").await;
        world.write_file("b", b"x").await.unwrap();
        world.fs.sync().await.unwrap();
        assert!(world.bucket.store().head(&key(".tenon/volume")).await.is_ok());
        assert_eq!(keys(&objects).await, [".tenon-mine", "a", "b"]);
        let level = ListRequest { delimiter: Some(b'/'), limit: 1, ..ListRequest::default() };
        assert_eq!(listed(&objects, level).await, [".tenon-mine", "a", "b"]);
        for own in [".tenon", ".tenon/volume", ".tenon/x/y"] {
            let own = key(own);
            let refused = objects.put(&own, "x".into(), PutOptions::default()).await;
            assert!(matches!(refused, Err(StoreError::InvalidKey { .. })), "{refused:?}");
            let refused = objects.delete(&own, Precondition::None).await;
            assert!(matches!(refused, Err(StoreError::InvalidKey { .. })), "{refused:?}");
            let begun = objects.uploads().unwrap().begin(&own, Attributes::default(), Tags::new()).await;
            assert!(matches!(begun, Err(StoreError::InvalidKey { .. })), "{begun:?}");
            let missing = objects.get(&own, GetOptions::default()).await;
            assert!(matches!(missing, Err(StoreError::NotFound(_))), "{missing:?}");
        }
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn s189_by_path_a_file_is_an_object_by_all_its_names() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let objects = objects(&world);
    world.write_file("a", b"shared").await.unwrap();
    world.link("a", "b").await.unwrap();
    assert_eq!(get(&objects, "a").await.unwrap(), b"shared");
    assert_eq!(get(&objects, "b").await.unwrap(), b"shared");
    let meta = objects.head(&key("b")).await.unwrap();
    assert_eq!((meta.object.key.clone(), meta.size_bytes), (key("b"), 6));
    objects.copy(&meta.object, &key("c"), CopyOptions::default()).await.unwrap();
    assert_eq!(world.read_file("c").await.unwrap(), b"shared");
    let handle = world.open_handle("b", libc::O_RDONLY).await.unwrap();
    delete(&objects, "a").await;
    assert_eq!(world.read_all(handle).await.unwrap(), b"shared");
    world.fs.moves().wait_until_complete().await;
    assert_eq!(world.bucket.object("b").await.unwrap(), b"shared");
    assert_eq!(errno(world.stat("a").await), libc::ENOENT);
    delete(&objects, "b").await;
    assert_eq!(world.read_all(handle).await.unwrap(), b"shared");
    world.close(handle).await.unwrap();
    assert_eq!(keys(&objects).await, ["c"]);
    world.assert_healthy().await;
    assert_sound(&world).await;
}

#[tokio::test]
async fn a_full_volume_refuses_and_keeps_nothing() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        put(&objects, "a", "x").await;
        let limits = vfs::Limits { bytes: Some(1000), files: None };
        world.fs.admin().set_quota(b"", Some(limits)).await.unwrap();
        let refused = objects.put(&key("b"), pattern(2000).into(), PutOptions::default()).await;
        assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
        assert_eq!(keys(&objects).await, ["a"]);
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn settings_are_not_objects() {
    for world in each().await {
        let buckets = directory_buckets(&world.fs);
        buckets.create("a-bucket").await.unwrap();
        let whole = objects(&world);
        let one = vfs::objects(&world.fs, b"a-bucket/");
        assert_eq!(one.settings().unwrap().get("policy").await.unwrap(), None);
        one.settings().unwrap().set("policy", Some(Bytes::from_static(b"{}"))).await.unwrap();
        assert_eq!(one.settings().unwrap().get("policy").await.unwrap().unwrap(), "{}");
        assert_eq!(whole.settings().unwrap().get("policy").await.unwrap(), None);
        world.settle().await;
        let again = world.remount().await;
        let again = vfs::objects(&again.fs, b"a-bucket/");
        assert_eq!(again.settings().unwrap().get("policy").await.unwrap().unwrap(), "{}");
        assert_eq!(keys(&whole).await, ["a-bucket/"]);
        buckets.delete("a-bucket").await.unwrap();
        assert_eq!(one.settings().unwrap().get("policy").await.unwrap(), None);
        world.settle().await;
        for key in world.bucket.keys().await.iter().filter(|key| key.contains("buckets/")) {
            assert_eq!(world.bucket.object(key).await.unwrap(), b"", "{key}");
        }
    }
}

#[tokio::test]
async fn a_change_waits_for_the_front_end_to_invalidate() {
    for world in each().await {
        let mut news = world.fs.kernel_caches().invalidations();
        let heard: Arc<Mutex<Vec<Invalidation>>> = Arc::default();
        let told = heard.clone();
        let listening = tokio::spawn(async move {
            while let Some(one) = news.recv().await {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                match one {
                    Invalidation::Reached(mark) => mark.reached(),
                    one => told.lock().unwrap().push(one),
                }
            }
        });
        let objects = objects(&world);
        put(&objects, "new", "x").await;
        let name = Bytes::from_static(b"new");
        let entry = Invalidation::Entry { parent: Ino::ROOT, name };
        assert!(heard.lock().unwrap().contains(&entry));
        assert!(heard.lock().unwrap().contains(&Invalidation::Inode(Ino::ROOT)));
        listening.abort();
        listening.await.unwrap_err();
        put(&objects, "newer", "x").await;
    }
}

/// A put below an unknown directory must not cost a lookup.
#[tokio::test]
async fn by_path_a_put_into_an_unknown_directory_is_one_request() {
    let world = World::new().await;
    let objects = objects(&world);
    let (_, counts) = world.counting(put(&objects, "dir/file", "x")).await;
    assert_eq!(counts.to_string(), "Put 1");
    let (_, counts) = world.counting(delete(&objects, "dir/file")).await;
    assert_eq!(counts.to_string(), "Delete 1");
}

#[tokio::test]
async fn a_read_only_volume_refuses_changes() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|config| config.read_only = true).await;
        let refused = objects(&world).put(&key("a"), "x".into(), PutOptions::default()).await;
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn listings_page_through_a_large_directory() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    let objects = objects(&world);
    let caller = Caller { umask: 0, ..CALLER };
    let dir = world.mkdir("dir").await.unwrap().ino;
    let mut expected = vec!["dir/".to_owned()];
    for number in 0..3000 {
        let name = format!("{number:04}");
        world.fs.mknod(caller, dir, name.as_bytes(), Kind::File, 0o644, 0).await.unwrap();
        expected.push(format!("dir/{name}"));
    }
    assert_eq!(keys(&objects).await, expected);
    let from = ListRequest { start_after: Some("dir/2990".into()), limit: 4, ..ListRequest::default() };
    assert_eq!(listed(&objects, from).await, expected[2992..]);
    let level = ListRequest { delimiter: Some(b'/'), limit: 10, ..ListRequest::default() };
    assert_eq!(listed(&objects, level).await, ["dir/"]);
    let some = ListRequest { prefix: "dir/150".into(), limit: 7, ..ListRequest::default() };
    assert_eq!(listed(&objects, some).await, expected[1501..1511]);
}

/// An event reported the change, so the mount shows it before its cached state expires.
#[tokio::test]
async fn foreign_changes_are_shown_on_a_hint() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    bucket.put("dir/a", "one").await;
    assert_eq!(world.names("dir").await.unwrap(), ["a"]);
    let said = async |name: &str| {
        let seen = bucket.head(name).await;
        world.fs.reconcile(&key(name), seen.as_ref(), world.fs.moment()).await.unwrap();
    };
    bucket.put("dir/a", "other").await;
    bucket.put("dir/b", "two").await;
    bucket.put("dir/sub/deep/c", "three").await;
    for name in ["dir/a", "dir/b", "dir/sub/deep/c"] {
        said(name).await;
    }
    assert_eq!(world.names("dir").await.unwrap(), ["a", "b", "sub"]);
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"other");
    assert_eq!(world.read_file("dir/sub/deep/c").await.unwrap(), b"three");
    bucket.delete("dir/sub/deep/c").await;
    bucket.delete("dir/b").await;
    bucket.put("dir/a/inside", "x").await;
    for name in ["dir/sub/deep/c", "dir/b", "dir/a/inside", ".tenon/volume"] {
        said(name).await;
    }
    assert_eq!(world.names("dir").await.unwrap(), ["%=a", "a"]);
    assert_eq!(world.read_file("dir/a/inside").await.unwrap(), b"x");
    bucket.delete("dir/a").await;
    bucket.delete("dir/a/inside").await;
    // Hints that are late, repeated and out of order.
    for name in ["dir/a", "dir/a/inside", "dir/a"] {
        said(name).await;
    }
    assert_eq!(errno(world.stat("dir").await), libc::ENOENT);
    world.assert_healthy().await;
}

#[tokio::test]
async fn by_path_a_further_name_of_a_file_becomes_an_object_of_its_own() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let objects = objects(&world);
    world.write_file("a", b"shared").await.unwrap();
    world.link("a", "b").await.unwrap();
    put(&objects, "b", "mine").await;
    assert_eq!(world.read_file("a").await.unwrap(), b"shared");
    assert_eq!(world.read_file("b").await.unwrap(), b"mine");
    assert_eq!(world.stat("a").await.unwrap().nlink, 1);
    world.assert_healthy().await;
}

/// The file was missing from the endpoint while it was written to.
#[tokio::test]
async fn an_empty_file_is_an_object_while_it_is_written_to() {
    for world in each().await {
        let objects = objects(&world);
        world.write_file("file", b"").await.unwrap();
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 0, b"x").await.unwrap();
        assert_eq!(get(&objects, "file").await.unwrap(), b"");
        world.close(handle).await.unwrap();
        assert_eq!(get(&objects, "file").await.unwrap(), b"x");
    }
}
