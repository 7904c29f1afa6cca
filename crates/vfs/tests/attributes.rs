//! Attributes: where they are stored, their defaults, and what a change of them must keep.

use crate::world::{Bucket, CALLER, World};
use std::time::Duration;
use store::wrap::Operation;
use store::{Attributes, ObjectKey, ObjectMeta, Payload, PutOptions};
use vfs::{AttributeSource, Changes, Kind, Time, Timestamp};

const AT: Timestamp = Timestamp(1_595_002_920_123_456_789);

#[tokio::test]
async fn s95_attributes_are_read_by_another_mount() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|_| {}).await;
        world.mkdir("dir").await.unwrap();
        world.write_file("dir/file", b"x").await.unwrap();
        world.symlink("dir/link", b"file").await.unwrap();
        let changes = Changes {
            mode: Some(0o2751),
            uid: Some(11),
            gid: Some(12),
            atime: Some(Time::At(Timestamp(AT.0 + 1))),
            mtime: Some(Time::At(AT)),
            ..Changes::default()
        };
        for path in ["dir", "dir/file"] {
            world.set(path, changes).await.unwrap();
        }
        world.fs.sync().await.unwrap();
        let fresh = world.remount().await;
        for path in ["dir", "dir/file"] {
            let attr = fresh.stat(path).await.unwrap();
            assert_eq!((attr.mode, attr.uid, attr.gid), (0o2751, 11, 12), "{path}");
            assert_eq!((attr.mtime, attr.atime), (AT, Timestamp(AT.0 + 1)), "{path}");
        }
        let link = fresh.stat("dir/link").await.unwrap();
        assert_eq!((link.kind, link.uid, link.gid), (Kind::Symlink, CALLER.uid, CALLER.gid));
        let listed = fresh.list("dir", true).await.unwrap();
        assert!(listed.iter().all(|entry| entry.attr.as_ref().unwrap().uid != 7), "listings are exact too");
    }
}

#[tokio::test]
async fn s96_headers_of_other_tools_are_read() {
    let bucket = Bucket::in_memory();
    bucket
        .put_with("s3fs", "", &[("mode", "33184"), ("uid", "5"), ("gid", "6"), ("mtime", "1595002920")])
        .await;
    bucket.put_with("rclone", "", &[("mtime", "1595002920.5")]).await;
    bucket.put_with("gcsfuse", "", &[("gcsfuse_mtime", "2020-07-17T16:22:00Z")]).await;
    bucket.put_with("both", "", &[("mode", "33184"), ("file-permissions", "0100600")]).await;
    bucket.put_with("link", "target", &[("mode", "41471")]).await;
    let world = bucket.mount(|config| config.attributes = AttributeSource::Headers).await;
    let s3fs = world.stat("s3fs").await.unwrap();
    assert_eq!(
        (s3fs.mode, s3fs.uid, s3fs.gid, s3fs.mtime),
        (0o640, 5, 6, Timestamp::from_secs(1_595_002_920, 0))
    );
    let rclone = world.stat("rclone").await.unwrap();
    assert_eq!((rclone.mode, rclone.mtime), (0o644, Timestamp::from_secs(1_595_002_920, 500_000_000)));
    assert_eq!(world.stat("gcsfuse").await.unwrap().mtime, Timestamp::from_secs(1_595_002_920, 0));
    assert_eq!(world.stat("both").await.unwrap().mode, 0o600);
    let link = world.stat("link").await.unwrap();
    assert_eq!(link.kind, Kind::Symlink);
    assert_eq!(world.fs.readlink(link.ino).await.unwrap(), "target");
}

#[tokio::test]
async fn s97_objects_without_attributes_have_the_mounts_defaults() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/file", "x").await;
    for attributes in [AttributeSource::Listing, AttributeSource::Headers] {
        let world = bucket
            .mount(|config| {
                (config.file_mode, config.dir_mode, config.attributes) = (0o604, 0o705, attributes);
            })
            .await;
        let (file, dir) = (world.stat("dir/file").await.unwrap(), world.stat("dir").await.unwrap());
        assert_eq!((file.mode, file.uid, file.gid), (0o604, 7, 8));
        assert_eq!((dir.mode, dir.uid, dir.gid), (0o705, 7, 8));
        let stored_at = bucket.head("dir/file").await.unwrap().object.last_modified.unwrap();
        assert_eq!(file.mtime, stored_at);
    }
}

#[tokio::test]
async fn s98_attributes_from_a_listing_cost_no_request_and_a_get_makes_them_exact() {
    let bucket = Bucket::in_memory();
    for n in 0..20 {
        bucket.put_with(format!("file-{n:02}"), "x", &[("file-permissions", "0100600")]).await;
    }
    let world = bucket.mount(|config| config.attributes = AttributeSource::Listing).await;
    let requests = world
        .requests(async {
            for n in 0..20 {
                assert_eq!(world.stat(format!("file-{n:02}")).await?.mode, 0o644);
            }
            world.list("/", true).await
        })
        .await;
    assert_eq!(requests, "List 1");
    world.read_file("file-03").await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(world.stat("file-03").await.unwrap().mode, 0o600);
}

#[tokio::test]
async fn s578_attributes_in_listings_are_exact_and_cost_no_request() {
    let bucket = Bucket::listing_attributes();
    for n in 0..20 {
        bucket.put_with(format!("dir/file-{n:02}"), "x", &[("file-permissions", "0100600")]).await;
    }
    bucket.put("dir/plain", "x").await;
    bucket.put_with("dir/link", "target", &[("file-permissions", "0120777")]).await;
    let world = bucket.mount(|config| config.attributes = AttributeSource::Headers).await;
    world.stat("dir").await.unwrap();
    let requests = world
        .requests(async {
            for n in 0..20 {
                assert_eq!(world.stat(format!("dir/file-{n:02}")).await?.mode, 0o600);
            }
            assert_eq!(world.stat("dir/plain").await?.mode, 0o644);
            world.list("dir", true).await
        })
        .await;
    assert_eq!(requests, "Get 1, List 1", "the target of the symbolic link is in the object's body");
    assert_eq!(world.stat("dir/link").await.unwrap().kind, Kind::Symlink);
    assert_eq!(world.requests(world.read_file("dir/file-07")).await, "Get 1");
    // Another client replaces an object, and its attributes with it.
    bucket.put_with("dir/file-03", "other bytes", &[("file-permissions", "0100640")]).await;
    world.expire();
    let attr = world.stat("dir/file-03").await.unwrap();
    assert_eq!((attr.mode, attr.size_bytes), (0o640, 11));
}

#[tokio::test]
async fn s99_the_size_of_clean_and_dirty_files() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().size_bytes, 0);
    world.fs.write(handle, 9, b"x").await.unwrap();
    let attr = world.stat("file").await.unwrap();
    assert_eq!((attr.size_bytes, attr.blocks), (10, 1));
    assert_eq!(world.list("/", true).await.unwrap()[0].attr.as_ref().unwrap().size_bytes, 10);
    world.close(handle).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().size_bytes, 10);
    assert_eq!(world.remount().await.stat("file").await.unwrap().size_bytes, 10);
}

#[tokio::test]
async fn s100_changing_attributes_keeps_all_other_metadata() {
    let world = World::new().await;
    let key = ObjectKey::try_from("file").unwrap();
    let attributes = Attributes {
        content_type: Some("text/x-strange".into()),
        system: [("cache-control".to_owned(), "no-store".to_owned())].into(),
        user: [("owner-of-this".to_owned(), "me".to_owned())].into(),
        storage_class: None,
    };
    let tags: store::Tags = [("tag".to_owned(), "kept".to_owned())].into();
    let options = PutOptions { attributes, tags: tags.clone(), ..PutOptions::default() };
    world.bucket.store().put(&key, Payload::from("body"), options).await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.fs.sync().await.unwrap();
    for step in ["chmod", "rename", "overwrite"] {
        let key = if step == "chmod" { "file" } else { "moved" };
        let found = world.bucket.head(key).await.unwrap().attributes;
        assert_eq!(found.content_type.as_deref(), Some("text/x-strange"), "{step}");
        assert_eq!(found.system["cache-control"], "no-store", "{step}");
        assert_eq!(found.user["owner-of-this"], "me", "{step}");
        assert_eq!(found.user["file-permissions"], "0100600", "{step}");
        let key = ObjectKey::try_from(key).unwrap();
        match step {
            "chmod" => {
                assert_eq!(world.bucket.store().tags(&key).await.unwrap(), tags);
                world.rename("file", "moved").await.unwrap();
            }
            "rename" => {
                assert_eq!(world.bucket.store().tags(&key).await.unwrap(), tags);
                world.write_file("moved", b"other").await.unwrap();
            }
            _ => assert_eq!(world.bucket.object("moved").await.unwrap(), b"other"),
        }
    }
}

#[tokio::test]
async fn s101_times_follow_writes_and_changes() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    let made = world.stat("file").await.unwrap();
    world.bucket.clock.advance(Duration::from_secs(1));
    world.fs.write(handle, 0, b"x").await.unwrap();
    let written = world.stat("file").await.unwrap();
    assert!(written.mtime > made.mtime && written.ctime >= written.mtime);
    world.bucket.clock.advance(Duration::from_secs(1));
    world.close(handle).await.unwrap();
    let closed = world.stat("file").await.unwrap();
    assert_eq!(closed.mtime, written.mtime, "closing is not writing");
    world.bucket.clock.advance(Duration::from_secs(1));
    let changed = world.chmod("file", 0o600).await.unwrap();
    assert!(changed.mtime == written.mtime && changed.ctime > closed.ctime);

    // A time set on an open file is kept, despite earlier writes.
    let handle = world.open_handle("file", libc::O_WRONLY).await.unwrap();
    world.fs.write(handle, 0, b"y").await.unwrap();
    world.set("file", Changes { mtime: Some(Time::At(AT)), ..Changes::default() }).await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().mtime, AT);
    world.fs.sync().await.unwrap();
    assert_eq!(world.remount().await.stat("file").await.unwrap().mtime, AT);

    world.bucket.clock.advance(Duration::from_secs(1));
    let now = world.set("file", Changes { mtime: Some(Time::Now), ..Changes::default() }).await.unwrap();
    assert!(now.mtime > closed.mtime);
    let shorter = world.truncate("file", 0).await.unwrap();
    assert!(shorter.mtime > now.mtime);
    // Nothing was written, so nothing changes.
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().mtime, shorter.mtime);
    world.write_file("stream", vec![1; 20 << 20]).await.unwrap();
    let here = world.stat("stream").await.unwrap().mtime;
    world.fs.sync().await.unwrap();
    let there = world.remount().await.stat("stream").await.unwrap().mtime;
    assert!(there.since(here) < Duration::from_secs(1) && here.since(there) < Duration::from_secs(1));
}

#[tokio::test]
async fn s102_statfs_answers() {
    let statfs = World::new().await.fs.statfs(vfs::Ino(1)).unwrap();
    assert_eq!(statfs.name_bytes_max, 255);
    assert!(statfs.blocks_free > 0 && statfs.files_free > 0);
}

/// Regression: a server left an object out of a listing while the object was copied onto itself with new headers. The file lost its name, and a
/// program that had just opened it got ESTALE.
#[tokio::test]
async fn s585_an_object_that_a_look_misses_during_an_export_keeps_its_file() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|config| config.metadata_ttl = Duration::ZERO).await;
    world.write_file("file", b"text").await.unwrap();
    let ino = world.ino("file").await.unwrap();
    for is_page in [true, false] {
        world.chmod("file", if is_page { 0o600 } else { 0o640 }).await.unwrap();
        let copied = bucket.late.hold(Operation::Copy);
        let fs = world.fs.clone();
        let syncing = tokio::spawn(async move { fs.sync().await });
        let answer = copied.done().await;
        bucket.delete("file").await;
        match is_page {
            true => assert_eq!(world.names("").await.unwrap(), ["file"]),
            false => assert_eq!(world.fs.getattr(ino).await.unwrap().ino, ino),
        }
        bucket.put("file", "text").await;
        drop(answer);
        syncing.await.unwrap().unwrap();
        assert_eq!(world.ino("file").await.unwrap(), ino);
        assert_eq!(world.read_file("file").await.unwrap(), b"text");
    }
    bucket.delete("file").await;
    assert!(world.names("").await.unwrap().is_empty(), "a removal by another client is seen afterwards");
}

/// Stores `file` anew with the headers of its object and one more, which names that object's etag.
async fn put_naming(bucket: &Bucket, before: ObjectMeta, header: &str, body: &str) {
    let mut user = before.attributes.user;
    user.insert(header.to_owned(), before.object.etag.as_str().to_owned());
    let user: Vec<_> = user.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    bucket.put_with("file", body, &user).await;
}

/// Reports the present object of `file` to a mount, as an event does.
async fn report_file(world: &World) {
    let (key, now) = (ObjectKey::try_from("file").unwrap(), world.bucket.head("file").await);
    world.fs.reconcile(&key, now.as_ref(), world.fs.moment()).await.unwrap();
}

/// Regression: a kill took the commit of an export that had copied the object onto itself, and a later change of the mode waited to be
/// exported. It was lost when the copy was seen (world of files 64,073,750).
#[tokio::test]
async fn s95_a_copy_of_an_export_whose_commit_was_lost_does_not_replace_later_attributes() {
    for bucket in [Bucket::in_memory(), Bucket::listing_attributes()] {
        for way in ["listing", "event", "read"] {
            let world = bucket.mount(|config| config.metadata_ttl = Duration::ZERO).await;
            world.write_file("file", b"text").await.unwrap();
            world.chmod("file", 0o600).await.unwrap();
            world.fs.sync().await.unwrap();
            let file = world.open_handle("file", libc::O_RDONLY).await.unwrap();
            assert_eq!(world.fs.read(file, 0, 2).await.unwrap(), b"te".as_slice());
            world.chmod("file", 0o640).await.unwrap();
            let before = bucket.head("file").await.unwrap();
            put_naming(&bucket, before, "tenon-copy-of", "text").await;
            match way {
                "listing" => assert_eq!(world.names("").await.unwrap(), ["file"]),
                "event" => report_file(&world).await,
                _ => world.remove_cache_dir(),
            }
            assert_eq!(world.fs.read(file, 2, 2).await.unwrap(), b"xt".as_slice(), "{way}");
            assert_eq!(world.stat("file").await.unwrap().mode & 0o7777, 0o640, "{way}");
            world.close(file).await.unwrap();
            world.fs.sync().await.unwrap();
            let fresh = world.remount().await;
            assert_eq!(fresh.stat("file").await.unwrap().mode & 0o7777, 0o640, "{way}");
            // An object with other bytes brings its own attributes.
            fresh.chmod("file", 0o600).await.unwrap();
            bucket.put("file", "other").await;
            assert_eq!(fresh.read_file("file").await.unwrap(), b"other", "{way}");
            assert_eq!(fresh.stat("file").await.unwrap().mode & 0o7777, 0o644, "{way}");
            fresh.unlink("file").await.unwrap();
        }
    }
}

/// Regression: a kill took the commit of an upload, and the mode had been changed after the upload began. The change was lost when the new object
/// was seen (world of files 66,012,911).
#[tokio::test]
async fn s403_a_write_whose_commit_was_lost_does_not_replace_later_attributes() {
    for bucket in [Bucket::in_memory(), Bucket::listing_attributes()] {
        for way in ["listing", "event", "read", "sync"] {
            let world = bucket.mount(|config| config.metadata_ttl = Duration::ZERO).await;
            world.write_file("file", b"first").await.unwrap();
            let first = bucket.head("file").await.unwrap().object.etag;
            world.write_file("file", b"second").await.unwrap();
            let second = bucket.head("file").await.unwrap();
            assert_eq!(second.attributes.user["tenon-replaces"], first.as_str());
            world.chmod("file", 0o640).await.unwrap();
            let ino = world.ino("file").await.unwrap();
            world.fs.setxattr(ino, b"user.project", b"apollo", 0, |_| true).await.unwrap();
            put_naming(&bucket, second, "tenon-replaces", "third").await;
            match way {
                "listing" => assert_eq!(world.names("").await.unwrap(), ["file"]),
                "event" => report_file(&world).await,
                "read" => {}
                _ => world.fs.sync().await.unwrap(),
            }
            assert_eq!(world.read_file("file").await.unwrap(), b"third", "{way}");
            world.fs.sync().await.unwrap();
            let fresh = world.remount().await;
            let found = fresh.stat("file").await.unwrap();
            assert_eq!((found.mode & 0o7777, found.size_bytes), (0o640, 5), "{way}");
            assert_eq!(bucket.header("file", "project").await.as_deref(), Some("apollo"), "{way}");
            fresh.assert_healthy().await;
            fresh.unlink("file").await.unwrap();
        }
    }
}

/// The look is at an object that replaced one with the present bytes, before these bytes were stored again: with MD5s as etags, the header names
/// the present object.
#[tokio::test]
async fn s403_a_late_look_at_an_earlier_object_changes_nothing() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", b"text").await.unwrap();
    world.write_file("file", b"other").await.unwrap();
    let (mut earlier, looked_at) = (bucket.head("file").await.unwrap(), world.fs.moment());
    world.write_file("file", b"text").await.unwrap();
    let etag = bucket.head("file").await.unwrap().object.etag;
    earlier.attributes.user.insert("tenon-replaces".to_owned(), etag.as_str().to_owned());
    world.chmod("file", 0o640).await.unwrap();
    let file = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    assert_eq!(world.fs.read(file, 0, 2).await.unwrap(), b"te".as_slice());
    let key = ObjectKey::try_from("file").unwrap();
    world.fs.reconcile(&key, Some(&earlier), looked_at).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().size_bytes, 4);
    assert_eq!(world.fs.read(file, 2, 2).await.unwrap(), b"xt".as_slice());
    world.close(file).await.unwrap();
    world.assert_healthy().await;
}

/// The export of an earlier mode of a directory waited for the store, and ended after that of a later one (world of files 59,000,878).
#[tokio::test]
async fn s95_the_later_of_two_exports_of_a_directory_wins() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.chmod("dir", 0o700).await.unwrap();
    let looked = bucket.late.hold(Operation::Head);
    let later = async {
        let answer = looked.done().await;
        world.chmod("dir", 0o750).await.unwrap();
        world.fs.sync().await.unwrap();
        drop(answer);
    };
    let (earlier, ()) = tokio::join!(world.fs.sync(), later);
    earlier.unwrap();
    assert_eq!(world.remount().await.stat("dir").await.unwrap().mode & 0o7777, 0o750);
}
