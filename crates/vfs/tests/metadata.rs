//! Object metadata as extended attributes of files: in both directions, and through every edit.

use crate::world::{Bucket, MIB, World, errno, pattern};
use meta::MemoryEngine;
use std::sync::Arc;
use store::wrap::{Fault, Operation, Rule};
use store::{Attributes, ObjectKey, Payload, PutOptions, StoreError, Tags};
use vfs::{AttributeSource, Kind, Result, Timestamp};

fn key(text: &str) -> ObjectKey {
    ObjectKey::try_from(text).unwrap()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Tags {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

impl World {
    async fn set_xattr(&self, path: &str, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.fs.setxattr(self.ino(path).await?, name.as_bytes(), value.as_ref(), 0, |_| true).await
    }

    async fn xattr(&self, path: &str, name: &str) -> Result<Vec<u8>> {
        Ok(self.fs.getxattr(self.ino(path).await?, name.as_bytes()).await?.to_vec())
    }

    async fn xattrs(&self, path: &str) -> Vec<String> {
        let names = self.fs.listxattr(self.ino(path).await.unwrap()).await.unwrap();
        names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    async fn remove_xattr(&self, path: &str, name: &str) -> Result<()> {
        self.fs.removexattr(self.ino(path).await?, name.as_bytes()).await
    }

    async fn tags_of(&self, path: &str) -> Tags {
        self.bucket.store().tags(&key(path)).await.unwrap()
    }
}

/// Stores an object with headers of every kind, a storage class and tags, as another client.
async fn put_described(bucket: &Bucket, path: &str, body: Vec<u8>) -> PutOptions {
    let system = [
        ("cache-control", "max-age=60"),
        ("content-disposition", "attachment"),
        ("content-encoding", "gzip"),
        ("content-language", "de"),
        ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
        ("x-amz-website-redirect-location", "/there"),
        ("x-amz-server-side-encryption", "aws:kms"),
    ];
    let attributes = Attributes {
        content_type: Some("text/x-strange".into()),
        system: pairs(system),
        user: pairs([("project", "apollo")]),
        storage_class: Some("STANDARD_IA".into()),
    };
    let options = PutOptions { attributes, tags: pairs([("stage", "raw")]), ..PutOptions::default() };
    bucket.store().put(&key(path), Payload::from(body), options.clone()).await.unwrap();
    options
}

/// Returns whether a header is Tenon's own: a POSIX attribute, or an earlier etag.
fn is_tenons(name: &str) -> bool {
    name.starts_with("file-") || ["tenon-copy-of", "tenon-replaces"].contains(&name)
}

async fn assert_described(world: &World, path: &str, options: &PutOptions, after: &str) {
    world.fs.sync().await.unwrap();
    let mut found = world.bucket.head(path).await.unwrap().attributes;
    found.user.retain(|name, _| !is_tenons(name));
    assert_eq!(found, options.attributes, "{after}");
    assert_eq!(world.tags_of(path).await, options.tags, "{after}");
}

#[tokio::test]
async fn s100_no_edit_loses_object_metadata() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let options = put_described(&bucket, "file", pattern(9 * MIB)).await;
        let world = bucket.mount(|config| config.attributes = AttributeSource::Headers).await;
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 100, b"in place").await.unwrap();
        world.fs.fsync(handle).await.unwrap();
        world.fs.write(handle, 9 * MIB as u64, b"appended").await.unwrap();
        world.close(handle).await.unwrap();
        assert_described(&world, "file", &options, "an edit in place").await;
        world.truncate("file", 1000).await.unwrap();
        assert_described(&world, "file", &options, "a truncation").await;
        world.chmod("file", 0o600).await.unwrap();
        assert_described(&world, "file", &options, "a chmod").await;
        world.rename("file", "moved.html").await.unwrap();
        assert_described(&world, "moved.html", &options, "a rename").await;
        world.write_file("moved.html", pattern(20 * MIB)).await.unwrap();
        assert_described(&world, "moved.html", &options, "a rewrite as a stream").await;
        world.write_file("moved.html", b"short").await.unwrap();
        assert_described(&world, "moved.html", &options, "a rewrite").await;
        let handle = world.open_handle("moved.html", libc::O_WRONLY).await.unwrap();
        for at in 0..3 {
            world.fs.write(handle, at, b"x").await.unwrap();
            world.fs.fsync(handle).await.unwrap();
        }
        world.close(handle).await.unwrap();
        assert_described(&world, "moved.html", &options, "several fsyncs").await;

        world.write_file("new.html", b"other").await.unwrap();
        world.rename("new.html", "moved.html").await.unwrap();
        let found = world.bucket.head("moved.html").await.unwrap();
        assert_eq!(found.attributes.content_type.as_deref(), Some("text/html"), "the new file's");
        assert_eq!(found.attributes.user.get("project"), None);
        assert_eq!((found.attributes.storage_class, found.tag_count), (None, Some(0)));
        world.assert_healthy().await;
    }
}

/// Regression: the file lost its tags when it was stored at its path again.
#[tokio::test]
async fn s77_s100_an_exchange_keeps_headers_and_tags() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let options = put_described(&world.bucket, "a", b"one".to_vec()).await;
    world.bucket.put("b", "two").await;
    world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"one");
    assert_described(&world, "b", &options, "an exchange").await;
    assert_eq!(world.tags_of("a").await, Tags::new());
    world.assert_healthy().await;
}

#[tokio::test]
async fn s100_a_directorys_marker_keeps_its_metadata() {
    for body in [&b""[..], b"somebody's"] {
        let bucket = Bucket::in_memory();
        let options = put_described(&bucket, "dir/", body.to_vec()).await;
        let world = bucket.mount(|config| config.attributes = AttributeSource::Headers).await;
        world.chmod("dir", 0o700).await.unwrap();
        assert_described(&world, "dir/", &options, "a chmod").await;
        assert_eq!(bucket.object("dir/").await.unwrap(), body);
        assert_eq!(world.xattr("dir", "user.project").await.unwrap(), b"apollo");
        world.set_xattr("dir", "user.project", "gemini").await.unwrap();
        world.fs.sync().await.unwrap();
        assert_eq!(bucket.header("dir/", "project").await.as_deref(), Some("gemini"));
        assert_eq!(bucket.header("dir/", "file-permissions").await.as_deref(), Some("0040700"));
    }
}

#[tokio::test]
async fn s104_attributes_set_by_a_program_are_stored_with_the_object() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|_| {}).await;
        // For a new file this costs nothing: the PUT includes the attributes.
        world.stat("/").await.unwrap();
        let handle = world.create("new").await.unwrap();
        world.set_xattr("new", "user.project", "apollo").await.unwrap();
        world.set_xattr("new", "user.tag.stage", "raw").await.unwrap();
        world.fs.write(handle, 0, b"x").await.unwrap();
        world.close(handle).await.unwrap();
        assert_eq!(bucket.header("new", "project").await.as_deref(), Some("apollo"));
        assert_eq!(world.tags_of("new").await, pairs([("stage", "raw")]));

        // Later, several changes are one copy and one change of tags.
        let requests = world
            .requests(async {
                for n in 0..9 {
                    world.set_xattr("new", "user.project", format!("apollo {n}")).await?;
                }
                world.set_xattr("new", "user.who", "größe ☃").await?;
                world.set_xattr("new", "user.tag.more", "yes").await?;
                world.remove_xattr("new", "user.tag.stage").await?;
                world.fs.sync().await
            })
            .await;
        assert!(requests.contains("Copy 1") && requests.contains("SetTags 1"), "{requests}");
        assert_eq!(bucket.header("new", "project").await.as_deref(), Some("apollo 8"));
        assert_eq!(bucket.header("new", "who").await.as_deref(), Some("größe ☃"));
        assert_eq!(world.tags_of("new").await, pairs([("more", "yes")]));
        assert_eq!(world.xattrs("new").await, ["user.project", "user.tag.more", "user.who"]);

        world.remove_xattr("new", "user.project").await.unwrap();
        assert_eq!(errno(world.xattr("new", "user.project").await), libc::ENODATA);
        assert_eq!(errno(world.remove_xattr("new", "user.project").await), libc::ENODATA);
        world.fs.sync().await.unwrap();
        assert_eq!(bucket.header("new", "project").await, None);
        assert_eq!(bucket.object("new").await.unwrap(), b"x");

        // Another mount, without any state, finds the same attributes.
        let fresh = world.remount().await;
        assert_eq!(fresh.xattrs("new").await, ["user.tag.more", "user.who"]);
        assert_eq!(fresh.xattr("new", "user.tag.more").await.unwrap(), b"yes");
    }
}

#[tokio::test]
async fn s104_creating_and_replacing_look_at_the_object() {
    let bucket = Bucket::in_memory();
    bucket.put_with("file", "x", &[("project", "apollo")]).await;
    let world = bucket.mount(|_| {}).await;
    let ino = world.ino("file").await.unwrap();
    let set = |name: &'static [u8], flags| world.fs.setxattr(ino, name, b"y", flags, |_| true);
    assert_eq!(errno(set(b"user.project", libc::XATTR_CREATE).await), libc::EEXIST);
    assert_eq!(errno(set(b"user.other", libc::XATTR_REPLACE).await), libc::ENODATA);
    set(b"user.project", libc::XATTR_REPLACE).await.unwrap();
    set(b"user.other", libc::XATTR_CREATE).await.unwrap();
    assert_eq!(errno(set(b"user.other", libc::XATTR_CREATE).await), libc::EEXIST, "not stored yet");
    world.fs.sync().await.unwrap();
    assert_eq!(bucket.header("file", "project").await.as_deref(), Some("y"));
    assert_eq!(bucket.header("file", "other").await.as_deref(), Some("y"));
}

#[tokio::test]
async fn s104_metadata_stored_by_others_is_shown_and_replaces_ours() {
    let bucket = Bucket::in_memory();
    let posix =
        [("file-permissions", "0100600"), ("mode", "33188"), ("mtime", "1"), ("uid", "7"), ("ctime", "2")];
    let more = [("gcsfuse_mtime", "2020-07-17T16:22:00Z"), ("tenon-checksum", "x"), ("project", "apollo")];
    bucket.put_with("file", "one", &[&posix[..], &more[..]].concat()).await;
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.xattrs("file").await, ["user.project"]);
    assert_eq!(world.xattr("file", "user.project").await.unwrap(), b"apollo");
    for name in ["user.mode", "user.file-permissions", "user.tenon-checksum", "user.Project"] {
        assert_eq!(errno(world.xattr("file", name).await), libc::ENODATA, "{name}");
    }

    bucket.put_with("file", "other", &[("owner", "me")]).await;
    world.expire();
    world.stat("file").await.unwrap();
    assert_eq!(world.xattrs("file").await, ["user.owner"]);

    // Metadata changed with the same bytes, and so the same etag; then tags, which do not change the etag either.
    let options = PutOptions { tags: pairs([("stage", "raw")]), ..PutOptions::default() };
    bucket.store().put(&key("file"), "other".into(), options).await.unwrap();
    world.expire();
    assert_eq!(world.xattrs("file").await, ["user.tag.stage"]);
    bucket.store().set_tags(&key("file"), pairs([("stage", "done")])).await.unwrap();
    world.expire();
    assert_eq!(world.xattr("file", "user.tag.stage").await.unwrap(), b"done");
}

/// Another client's object has its own metadata, not the pending changes for the previous object.
#[tokio::test]
async fn s104_pending_changes_are_dropped_with_their_object() {
    let world = World::new().await;
    world.write_file("file", b"ours").await.unwrap();
    world.set_xattr("file", "user.project", "ours").await.unwrap();
    world.bucket.put_with("file", "theirs", &[("owner", "them")]).await;
    world.expire();
    world.stat("file").await.unwrap();
    assert_eq!(world.xattrs("file").await, ["user.owner"]);
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "project").await, None);
    assert_eq!(world.bucket.object("file").await.unwrap(), b"theirs");
}

#[tokio::test]
async fn s104_pending_changes_survive_a_crash_and_are_exported() {
    let engine = Arc::new(MemoryEngine::default());
    let bucket = Bucket::with_metadata_on(engine);
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", b"x").await.unwrap();
    world.set_xattr("file", "user.project", "apollo").await.unwrap();
    world.remove_xattr("file", "user.project").await.unwrap();
    world.set_xattr("file", "user.project", "gemini").await.unwrap();
    drop(world);
    assert_eq!(bucket.header("file", "project").await, None);
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.xattr("file", "user.project").await.unwrap(), b"gemini");
    world.fs.sync().await.unwrap();
    assert_eq!(bucket.header("file", "project").await.as_deref(), Some("gemini"));
    assert_eq!(world.xattrs("file").await, ["user.project"]);
}

#[tokio::test]
async fn s89_s104_attributes_that_no_header_of_their_own_can_hold() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", b"x").await.unwrap();
    let long = vec![b'y'; 3000];
    let all: [(&str, &[u8]); 5] = [
        ("user.Capital", b"x"),
        ("user.binary", b"\xff\x00"),
        ("user.long", &long),
        ("user.mode", b"their own"),
        ("trusted.secret", b"z"),
    ];
    for (name, value) in all {
        world.set_xattr("file", name, value).await.unwrap();
    }
    world.fs.sync().await.unwrap();
    let user = bucket.head("file").await.unwrap().attributes.user;
    let names: Vec<_> = user.keys().filter(|name| !is_tenons(name)).collect();
    assert_eq!(names, ["xattr"], "the header of s3fs; longer values stay on this machine");
    assert!(!user["xattr"].contains("trusted"));
    assert_eq!(user["file-permissions"], "0100640");
    for world in [world, bucket.mount(|_| {}).await] {
        for (name, value) in all {
            assert_eq!(world.xattr("file", name).await.unwrap(), value, "{name}");
        }
        assert_eq!(world.xattrs("file").await.len(), all.len());
    }
    let elsewhere = bucket.elsewhere().mount(|_| {}).await;
    elsewhere.remove_xattr("file", "user.binary").await.unwrap();
    elsewhere.set_xattr("file", "user.Capital", "short").await.unwrap();
    elsewhere.fs.sync().await.unwrap();
    assert_eq!(elsewhere.xattr("file", "user.Capital").await.unwrap(), b"short");
    assert_eq!(errno(elsewhere.xattr("file", "user.binary").await), libc::ENODATA);
}

/// Regression: S3 limits user metadata to 2 KB. An edit of an object with nearly as much must not fail because of our headers.
#[tokio::test]
async fn s100_foreign_metadata_is_kept_if_space_is_short() {
    let bucket = Bucket::in_memory();
    let long = "z".repeat(1_960);
    bucket.put_with("file", "x", &[("long", &long)]).await;
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", b"other").await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.fs.sync().await.unwrap();
    let user = bucket.head("file").await.unwrap().attributes.user;
    assert_eq!(user["long"], long);
    let bytes: usize = user.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(bytes <= 2048 && user.contains_key("file-mtime"), "{:?}", user.keys());
    assert_eq!(world.stat("file").await.unwrap().mode, 0o600);
}

#[tokio::test]
async fn s104_attributes_cost_one_request_per_object() {
    let bucket = Bucket::in_memory();
    for n in 0..3 {
        bucket.put_with(format!("file-{n}"), "x", &[("project", "apollo")]).await;
    }
    let world = bucket.mount(|config| config.attributes = AttributeSource::Listing).await;
    assert_eq!(world.requests(world.list("/", true)).await, "List 1");
    let ino = world.ino("file-1").await.unwrap();
    assert_eq!(world.requests(world.fs.listxattr(ino)).await, "Head 1");
    assert_eq!(world.requests(world.fs.getxattr(ino, b"user.project")).await, "nothing");
    let local = [&b"security.capability"[..], b"system.posix_acl_access", b"trusted.a"];
    for name in local {
        let (found, counts) =
            world.counting(world.fs.getxattr(world.ino("file-2").await.unwrap(), name)).await;
        assert_eq!((errno(found), counts.to_string().as_str()), (libc::ENODATA, "nothing"));
    }
    // Editing an object without tags does not request tags.
    let requests = world.requests(world.write_file("file-1", b"other")).await;
    assert!(!requests.contains("Tags"), "{requests}");
    // Setting an attribute to its present value stores nothing.
    for _ in 0..2 {
        world.fs.sync().await.unwrap();
        world.set_xattr("file-2", "user.project", "gemini").await.unwrap();
    }
    let requests = world.requests(world.fs.sync()).await;
    assert!(!requests.contains("Copy"), "{requests}");
}

#[tokio::test]
async fn s104_a_store_without_tags_refuses_tag_attributes() {
    let world = World::new().await;
    let no_tags = Fault::Before(|| StoreError::Unsupported("tags".into()));
    for operation in [Operation::GetTags, Operation::SetTags] {
        world.bucket.faults.add(Rule::new(no_tags).on(operation).always());
    }
    world.write_file("file", b"x").await.unwrap();
    assert_eq!(errno(world.set_xattr("file", "user.tag.stage", "raw").await), libc::EOPNOTSUPP);
    assert_eq!(errno(world.xattr("file", "user.tag.stage").await), libc::EOPNOTSUPP);
    world.set_xattr("file", "user.project", "apollo").await.unwrap();
    assert_eq!(world.xattrs("file").await, ["user.project"]);
    world.fs.sync().await.unwrap();
}

/// Regression: a server that refused a tag also refused the file's bytes.
#[tokio::test]
async fn s104_refused_attributes_stay_local_and_the_bytes_are_stored() {
    let world = World::new().await;
    for (path, len, operation) in
        [("small", 5, Operation::Put), ("large", 20 * MIB, Operation::BeginMultipart)]
    {
        let handle = world.create(path).await.unwrap();
        world.set_xattr(path, "user.tag.stage", "raw").await.unwrap();
        world.fs.setxattr(world.ino(path).await.unwrap(), b"user.who", b"me", 0, |_| true).await.unwrap();
        let refused = Fault::Before(|| StoreError::Invalid("such a tag".into()));
        world.bucket.faults.add(Rule::new(refused).on(operation).at(&key(path)).times(1));
        world.write_all(handle, &pattern(len)).await.unwrap();
        world.close(handle).await.unwrap();
        assert_eq!(world.bucket.object(path).await.unwrap(), pattern(len));
        assert_eq!(world.xattrs(path).await, ["user.tag.stage", "user.who"]);
        assert_eq!(world.bucket.header(path, "who").await, None);
    }
    let refused = Fault::Before(|| StoreError::Invalid("such a tag".into()));
    world.bucket.faults.add(Rule::new(refused).on(Operation::SetTags).always());
    world.set_xattr("small", "user.tag.odd", "x").await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.xattr("small", "user.tag.odd").await.unwrap(), b"x");
}

#[tokio::test]
async fn s104_s152_with_write_back_too() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|config| config.write_back = true).await;
    let options = put_described(&bucket, "file", pattern(MIB)).await;
    let handle = world.open_handle("file", libc::O_WRONLY).await.unwrap();
    world.fs.write(handle, 5, b"edited").await.unwrap();
    world.close(handle).await.unwrap();
    world.set_xattr("file", "user.tag.more", "yes").await.unwrap();
    world.set_xattr("file", "user.who", "me").await.unwrap();
    world.settle().await;
    let found = bucket.head("file").await.unwrap().attributes;
    assert_eq!((found.user["project"].as_str(), found.user["who"].as_str()), ("apollo", "me"));
    assert_eq!(
        (found.system, found.storage_class),
        (options.attributes.system, options.attributes.storage_class)
    );
    assert_eq!(world.tags_of("file").await, pairs([("more", "yes"), ("stage", "raw")]));
    assert_eq!(world.xattrs("file").await, ["user.project", "user.tag.more", "user.tag.stage", "user.who"]);
}

#[tokio::test]
async fn s104_a_failed_copy_is_retried() {
    let world = World::new().await;
    world.write_file("file", b"x").await.unwrap();
    for fault in [Fault::unavailable(), Fault::lost_reply()] {
        let value = format!("{fault:?}");
        world.bucket.faults.add(Rule::new(fault).on(Operation::Copy).times(1));
        world.set_xattr("file", "user.project", &value).await.unwrap();
        let _ = world.fs.sync().await;
        assert_eq!(world.xattr("file", "user.project").await.unwrap(), value.as_bytes());
        world.fs.sync().await.unwrap();
        assert_eq!(world.bucket.header("file", "project").await, Some(value));
    }
}

#[tokio::test]
async fn s184_s185_by_inode_a_type_follows_the_name() {
    use store::ObjectStore as _;
    let world = Bucket::by_inode(vfs::Mapping::Whole).await.mount(|_| {}).await;
    let objects = vfs::objects(&world.fs, b"");
    world.write_file("page.part", b"x").await.unwrap();
    assert_eq!(objects.head(&key("page.part")).await.unwrap().attributes.content_type, None);
    world.rename("page.part", "page.html").await.unwrap();
    let found = objects.head(&key("page.html")).await.unwrap();
    assert_eq!(found.attributes.content_type.as_deref(), Some("text/html"));
}

#[tokio::test]
async fn s105_a_new_file_has_the_type_of_its_name() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|_| {}).await;
        let kind = async |path: &str| bucket.head(path).await.unwrap().attributes.content_type;
        world.write_file("page.HTML", b"x").await.unwrap();
        world.write_file("long.json", pattern(20 * MIB)).await.unwrap();
        world.write_file("plain", b"x").await.unwrap();
        world.mknod("made.css", Kind::File).await.unwrap();
        assert_eq!(kind("page.HTML").await.as_deref(), Some("text/html"));
        assert_eq!(kind("long.json").await.as_deref(), Some("application/json"));
        assert_eq!(kind("plain").await, None);
        assert_eq!(kind("made.css").await.as_deref(), Some("text/css"));

        // The usual way of programs to replace a file atomically.
        world.write_file("new.html.part", b"x").await.unwrap();
        world.rename("new.html.part", "page.html").await.unwrap();
        world.rename("long.json", "long.txt").await.unwrap();
        world.rename("made.css", "made.unheard-of").await.unwrap();
        world.fs.sync().await.unwrap();
        assert_eq!(kind("page.html").await.as_deref(), Some("text/html"));
        assert_eq!(
            kind("long.txt").await.as_deref(),
            Some("text/plain"),
            "the type was that of the old name"
        );
        assert_eq!(kind("made.unheard-of").await.as_deref(), Some("text/css"));

        // A file that is open and has changed.
        let handle = world.create("draft").await.unwrap();
        world.fs.write(handle, 0, b"x").await.unwrap();
        world.rename("draft", "draft.md").await.unwrap();
        world.close(handle).await.unwrap();
        let handle = world.open_handle("draft.md", libc::O_WRONLY).await.unwrap();
        world.fs.write(handle, 0, b"y").await.unwrap();
        world.rename("draft.md", "draft.txt").await.unwrap();
        world.close(handle).await.unwrap();
        world.fs.sync().await.unwrap();
        assert_eq!(kind("draft.txt").await.as_deref(), Some("text/plain"));

        // An object that another client stored without a type does not get one of ours.
        bucket.put("theirs.html", "x").await;
        world.expire();
        world.write_file("theirs.html", b"edited").await.unwrap();
        assert_eq!(kind("theirs.html").await, None);
    }
}

/// Headers as these programs write them.
#[tokio::test]
async fn s96_s104_the_dialects_of_others() {
    let bucket = Bucket::in_memory();
    let at = Timestamp::from_secs(1_595_002_920, 123_456_789);
    let s3fs = [
        ("mode", "33204"),
        ("uid", "1001"),
        ("gid", "1002"),
        ("mtime", "1595002920.123456789"),
        ("ctime", "1595002920.123456789"),
        ("atime", "1595002920.123456789"),
        ("xattr", "%7B%22user.color%22%3A%22Ymx1ZQ%3D%3D%22%2C%22security.capability%22%3A%22AQ%3D%3D%22%7D"),
    ];
    bucket.put_with("s3fs", "x", &s3fs).await;
    bucket.put_with("s3fs-link", "to/there", &[("mode", "41471"), ("mtime", "1595002920")]).await;
    bucket.put_with("s3fs-fifo", "", &[("mode", "4516")]).await;
    bucket.put_with("s3fs-dir/", "", &[("mode", "16872"), ("uid", "1001"), ("mtime", "1595002920")]).await;
    let rclone = [
        ("mode", "100640"),
        ("uid", "1001"),
        ("gid", "1002"),
        ("mtime", "1595002920.123456789"),
        ("atime", "2020-07-17T16:22:00.123456789Z"),
        ("btime", "2020-07-17T16:22:00Z"),
    ];
    bucket.put_with("rclone", "x", &rclone).await;
    bucket.put_with("rclone-plain", "x", &[("mtime", "1595002920.123456789")]).await;
    bucket.put_with("gcsfuse", "x", &[("gcsfuse_mtime", "2020-07-17T16:22:00.123456789Z")]).await;
    bucket.put_with("gcs-link", "to/there", &[("goog-reserved-file-is-symlink", "true")]).await;
    bucket.put_with("gcsfuse-link", "", &[("gcsfuse_symlink_target", "to/there")]).await;
    bucket.put_with("geesefs-link", "", &[("--symlink-target", "to%2Fthere"), ("mtime", "1595002920")]).await;
    let aws = [("file-permissions", "0100640"), ("file-owner", "1001"), ("file-group", "1002")];
    let aws_times = [("file-mtime", "1595002920123456789ns"), ("file-atime", "1595002920123456789ns")];
    bucket.put_with("aws", "x", &[&aws[..], &aws_times, &[("file-acl", "x")]].concat()).await;

    let world = bucket.mount(|config| config.attributes = AttributeSource::Headers).await;
    for (path, mode) in [("s3fs", 0o664), ("rclone", 0o640), ("aws", 0o640)] {
        let attr = world.stat(path).await.unwrap();
        assert_eq!((attr.mode, attr.uid, attr.gid), (mode, 1001, 1002), "{path}");
        assert_eq!((attr.mtime, attr.atime), (at, at), "{path}");
    }
    for path in ["rclone-plain", "gcsfuse"] {
        assert_eq!(world.stat(path).await.unwrap().mtime, at, "{path}");
    }
    for path in ["s3fs-link", "gcs-link", "gcsfuse-link", "geesefs-link"] {
        let attr = world.stat(path).await.unwrap();
        assert_eq!(attr.kind, Kind::Symlink, "{path}");
        assert_eq!(world.fs.readlink(attr.ino).await.unwrap(), "to/there", "{path}");
    }
    assert_eq!(world.stat("s3fs-fifo").await.unwrap().kind, Kind::Fifo);
    let dir = world.stat("s3fs-dir").await.unwrap();
    assert_eq!((dir.kind, dir.mode, dir.uid), (Kind::Directory, 0o750, 1001));
    // POSIX attributes are not shown as extended attributes, and capabilities are not taken from a header.
    for path in ["rclone", "rclone-plain", "gcsfuse", "aws"] {
        assert_eq!(world.xattrs(path).await, [""; 0], "{path}");
    }
    assert_eq!(world.xattrs("s3fs").await, ["user.color"]);
    assert_eq!(world.xattr("s3fs", "user.color").await.unwrap(), b"blue");
    world.set_xattr("s3fs", "user.color", b"\xff").await.unwrap();
    world.fs.sync().await.unwrap();
    let header = bucket.header("s3fs", "xattr").await.unwrap();
    assert!(header.contains("security.capability%22%3A%22AQ%3D%3D"), "foreign attributes are kept: {header}");
    assert_eq!(world.xattr("s3fs", "user.color").await.unwrap(), b"\xff");
}

/// Regression: setting an attribute made cached data invalid. In this store the copy onto itself has another etag, as it has
/// for multipart objects at AWS.
#[tokio::test]
async fn s286_setting_metadata_keeps_cached_data_valid() {
    let bucket = Bucket::in_memory();
    bucket.put("file", pattern(3 * MIB)).await;
    let world = bucket.mount(|_| {}).await;
    assert!(world.read_file("file").await.unwrap() == pattern(3 * MIB));
    let before = bucket.head("file").await.unwrap().object.etag;
    world.set_xattr("file", "user.color", "green").await.unwrap();
    world.fs.sync().await.unwrap();
    assert_ne!(bucket.head("file").await.unwrap().object.etag, before);
    for _ in 0..3 {
        world.expire();
        let (opened, counts) = world.counting(world.open("file", libc::O_RDONLY)).await;
        let opened = opened.unwrap();
        assert!(opened.keep_cache && !counts.to_string().contains("Get"), "{counts}");
        let (body, counts) = world.counting(world.read_all(opened.handle)).await;
        assert!(body.unwrap() == pattern(3 * MIB) && counts.to_string() == "nothing", "{counts}");
        world.close(opened.handle).await.unwrap();
    }
}

/// Regression: a listing without attributes reported symbolic links as regular files if they had not been looked up, and `find
/// -type l` missed them.
#[tokio::test]
async fn s437_a_listing_reports_the_type_of_each_entry() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    for number in 0..20 {
        world.symlink(format!("dir/link-{number}"), b"target").await.unwrap();
        world.write_file(format!("dir/file-{number}"), b"short").await.unwrap();
    }
    world.write_file("dir/large", pattern(8192)).await.unwrap();
    world.mknod("dir/pipe", vfs::Kind::Fifo).await.unwrap();
    let other = bucket.mount(|config| config.attributes = AttributeSource::Headers).await;
    let listed = other.list("dir", false).await.unwrap();
    assert!(listed.iter().any(|entry| entry.kind.is_none()), "a listing of the bucket has no types");
    let (with_kinds, counts) = other.counting(other.fs.with_kinds(listed)).await;
    for entry in with_kinds.unwrap() {
        let expected = match &entry.name[..] {
            b"pipe" => vfs::Kind::Fifo,
            b"." | b".." => vfs::Kind::Directory,
            name if name.starts_with(b"link") => vfs::Kind::Symlink,
            _ => vfs::Kind::File,
        };
        assert_eq!(entry.kind, Some(expected), "{:?}", entry.name);
    }
    assert_eq!(counts.to_string(), "Get 40, Head 1", "no request for objects too long to be a link");
    let listed = other.list("dir", false).await.unwrap();
    assert!(
        listed.iter().all(|entry| entry.kind.is_some() || entry.name == b"large"[..]),
        "the types are known now"
    );
}
