//! Access to every key: keys that are no valid names, and the keys that Tenon reserves.

use crate::world::{Bucket, CALLER, World, errno};
use vfs::{Ino, Kind};

/// Keys and the paths that show them.
const ODD: [(&str, &str); 13] = [
    ("a//b", "a/%!/b"),
    ("/lead", "%!/lead"),
    ("up/../x", "up/%!../x"),
    ("dots/.", "dots/%!."),
    ("dots/..", "dots/%!.."),
    ("nul\0nul", "%!nul%00nul"),
    ("%=x", "%!%25=x"),
    ("%+x", "%!%25+x"),
    ("%!..", "%!%25!.."),
    ("tab\tnewline\n\u{1}\u{7f}", "tab\tnewline\n\u{1}\u{7f}"),
    ("trail//", "trail/%!/"),
    ("ümlaut/ß", "ümlaut/ß"),
    ("100%/%41", "100%/%41"),
];

async fn both() -> [Bucket; 2] {
    [Bucket::in_memory(), Bucket::in_directory()]
}

#[tokio::test]
async fn s60_an_unprepared_bucket_is_a_tree_of_files() {
    for bucket in both().await {
        for key in ["top", "d/one", "d/two", "d/e/three"] {
            bucket.put(key, key).await;
        }
        let world = bucket.mount(|_| {}).await;
        assert_eq!(world.names("/").await.unwrap(), ["d", "top"]);
        assert_eq!(world.names("d").await.unwrap(), ["e", "one", "two"]);
        for key in ["top", "d/one", "d/two", "d/e/three"] {
            assert_eq!(world.read_file(key).await.unwrap(), key.as_bytes());
        }
        assert!(bucket.head(".tenon/volume").await.is_none(), "reading does not create the volume record");
    }
}

#[tokio::test]
async fn s61_s64_s66_odd_keys_are_read_replaced_and_removed() {
    for bucket in both().await {
        for (key, _) in ODD {
            bucket.put(key, key).await;
        }
        let world = bucket.mount(|_| {}).await;
        for (key, path) in ODD {
            assert_eq!(
                world.fs.admin().path_of(&store::ObjectKey::try_from(key).unwrap()).unwrap(),
                path,
                "{key:?}"
            );
            if key.ends_with('/') {
                assert_eq!(world.stat(path).await.unwrap().kind, Kind::Directory, "{key:?}");
                continue;
            }
            let located = world.fs.admin().locate(path.as_bytes()).await.unwrap();
            assert_eq!(located.key.expect(key).as_bytes(), key.as_bytes());
            assert_eq!(world.read_file(path).await.unwrap(), key.as_bytes(), "{key:?}");
            world.write_file(path, b"replaced").await.unwrap();
            assert_eq!(bucket.object(key).await.unwrap(), b"replaced", "{key:?}");
        }
        world.assert_healthy().await;
        for (key, path) in ODD {
            if !key.ends_with('/') {
                world.unlink(path).await.unwrap();
                assert!(bucket.object(key).await.is_none(), "{key:?}");
            }
        }
        for dir in ["a/%!", "a", "%!", "up/%!..", "up", "dots", "trail/%!", "trail", "ümlaut", "100%"] {
            world.rmdir(dir).await.unwrap();
        }
        assert_eq!(bucket.keys().await, Vec::<String>::new());
        assert_eq!(world.names("/").await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn s61_odd_names_can_be_made() {
    for bucket in both().await {
        let world = bucket.mount(|_| {}).await;
        world.mkdir("%!").await.unwrap();
        world.write_file("%!/%!..", b"x").await.unwrap();
        assert_eq!(bucket.object("/..").await.unwrap(), b"x");
        world.rename("%!/%!..", "%!/%!.").await.unwrap();
        assert_eq!(bucket.keys().await, ["/", "/."]);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s62_an_object_with_the_name_of_a_directory() {
    for bucket in both().await {
        bucket.put("a", "object").await;
        bucket.put("a/b", "inside").await;
        bucket.put("a-c", "").await;
        let world = bucket.mount(|_| {}).await;
        assert_eq!(world.stat("a").await.unwrap().kind, Kind::Directory);
        assert_eq!(world.read_file("%=a").await.unwrap(), b"object");
        assert_eq!(world.read_file("a/b").await.unwrap(), b"inside");
        let mut names = world.names("/").await.unwrap();
        names.sort();
        assert_eq!(names, ["%=a", "a", "a-c"]);
        world.write_file("%=a", b"replaced").await.unwrap();
        assert_eq!(bucket.object("a").await.unwrap(), b"replaced");
        world.assert_healthy().await;
        world.unlink("%=a").await.unwrap();
        assert_eq!(bucket.keys().await, ["a-c", "a/b"]);
        world.expire();
        assert_eq!(world.names("/").await.unwrap(), ["a-c", "a"]);

        bucket.put("a", "object").await;
        world.expire();
        assert_eq!(world.read_file("%=a").await.unwrap(), b"object");
        world.unlink("a/b").await.unwrap();
        world.rmdir("a").await.unwrap();
        assert_eq!(
            bucket.object("a").await.unwrap(),
            b"object",
            "the object with the same name is another file"
        );
        world.expire();
        assert_eq!(world.read_file("a").await.unwrap(), b"object");
        assert_eq!(world.names("/").await.unwrap(), ["a", "a-c"]);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s62_a_lookup_before_any_listing_finds_both() {
    let bucket = Bucket::in_memory();
    bucket.put("a", "object").await;
    bucket.put("a/b", "inside").await;
    assert_eq!(bucket.mount(|_| {}).await.read_file("%=a").await.unwrap(), b"object");
    assert_eq!(bucket.mount(|_| {}).await.read_file("a/b").await.unwrap(), b"inside");
}

#[tokio::test]
async fn s62_an_object_and_a_directory_of_one_name_on_different_pages() {
    let bucket = Bucket::in_memory();
    bucket.put("a", "object").await;
    bucket.put("a/b", "inside").await;
    for n in 0..2000 {
        bucket.put(format!("a-{n:04}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    let listed = world.names("/").await.unwrap();
    assert_eq!(listed.len(), 2002);
    assert!(listed.contains(&"%=a".to_owned()) && listed.contains(&"a".to_owned()));
    assert_eq!(world.read_file("%=a").await.unwrap(), b"object");
    assert_eq!(world.read_file("a/b").await.unwrap(), b"inside");
    world.expire();
    let mut names = world.names("/").await.unwrap();
    assert_eq!(names.len(), 2002);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 2002);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s63_s64_long_components_continue_in_directories() {
    for bucket in both().await {
        let keys = [
            "x".repeat(256),
            "x".repeat(600),
            format!("{}/{}", "y".repeat(300), "z".repeat(500)),
            "w".repeat(1024),
            format!("deep/{}", "v".repeat(1019)),
        ];
        for key in &keys {
            bucket.put(key, key).await;
        }
        let world = bucket.mount(|_| {}).await;
        let tree = world.tree().await;
        for key in &keys {
            let path = world.fs.admin().path_of(&store::ObjectKey::try_from(key.as_str()).unwrap()).unwrap();
            assert!(path.starts_with(b"%+") || path.starts_with(b"deep/%+"));
            assert!(
                tree.iter().any(|(shown, _, body)| shown.as_bytes()[1..] == path && body == key.as_bytes())
            );
            assert_eq!(world.read_file(&path).await.unwrap(), key.as_bytes());
            world.unlink(&path).await.unwrap();
            assert!(bucket.object(key).await.is_none());
        }
        assert_eq!(world.fs.check().unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn s65_markers_and_implicit_directories_are_directories() {
    for bucket in both().await {
        bucket.put("marked/", "").await;
        bucket.put("implicit/file", "x").await;
        bucket.put("both/", "").await;
        bucket.put("both/file", "x").await;
        let world = bucket.mount(|_| {}).await;
        assert_eq!(world.names("/").await.unwrap(), ["both", "implicit", "marked"]);
        assert_eq!(world.names("marked").await.unwrap(), Vec::<String>::new());
        assert_eq!(world.names("implicit").await.unwrap(), ["file"]);
        assert_eq!(world.names("both").await.unwrap(), ["file"]);
        world.rmdir("marked").await.unwrap();
        assert!(bucket.head("marked/").await.is_none());
    }
}

#[tokio::test]
async fn s67_names_of_the_escape_cannot_be_made() {
    let world = World::new().await;
    world.write_file("file", b"x").await.unwrap();
    assert_eq!(errno(world.create("%!").await), libc::EINVAL, "the name would be the directory's marker");
    for name in ["%+abc", "%=abc"] {
        assert_eq!(errno(world.create(name).await), libc::EINVAL, "{name}");
        assert_eq!(errno(world.mkdir(name).await), libc::EINVAL, "{name}");
        assert_eq!(errno(world.mknod(name, Kind::File).await), libc::EINVAL, "{name}");
        assert_eq!(errno(world.symlink(name, b"x").await), libc::EINVAL, "{name}");
        assert_eq!(errno(world.rename("file", name).await), libc::EINVAL, "{name}");
    }
    assert_eq!(world.names("/").await.unwrap(), ["file"]);
    assert_eq!(world.bucket.keys().await, ["file"]);
}

#[tokio::test]
async fn s68_a_name_the_server_cannot_hold_is_an_illegal_sequence() {
    let world = World::new().await;
    world.write_file("first", b"").await.unwrap();
    let refused = || store::StoreError::InvalidKey { key: "?".into(), reason: "not UTF-8".into() };
    let fault = store::wrap::Fault::Before(refused);
    world.bucket.faults.add(store::wrap::Rule::new(fault).on(store::wrap::Operation::Put).always());
    let name = b"not utf-8 \xff";
    assert_eq!(errno(world.mkdir(name).await), libc::EILSEQ);
    assert_eq!(errno(world.write_file(name, b"x").await), libc::EILSEQ);
    world.bucket.faults.clear();
    let there = Bucket::in_directory();
    let world = there.mount(|_| {}).await;
    world.write_file(name, b"x").await.unwrap();
    assert_eq!(there.object(name).await.unwrap(), b"x", "a directory holds any name");
}

#[tokio::test]
async fn s70_the_reserved_prefix_is_hidden_and_refused() {
    for prefix in ["", "some/where/"] {
        let bucket = Bucket::in_memory();
        bucket.put(format!("{prefix}.tenon/secret"), "x").await;
        bucket.put(format!("{prefix}dir/.tenon/shown"), "x").await;
        bucket.put("some/beside", "not of this volume").await;
        let world = bucket.mount(|config| config.prefix = prefix.into()).await;
        assert!(!world.names("/").await.unwrap().contains(&".tenon".to_owned()));
        assert_eq!(world.names("dir").await.unwrap(), [".tenon"]);
        assert_eq!(errno(world.stat(".tenon").await), libc::ENOENT);
        world.write_file("file", b"x").await.unwrap();
        for outcome in [
            world.mkdir(".tenon").await.map(drop),
            world.create(".tenon").await.map(drop),
            world.symlink(".tenon", b"x").await.map(drop),
            world.mknod(".tenon", Kind::File).await.map(drop),
            world.rename("file", ".tenon").await,
            world.rename("dir", ".tenon").await,
        ] {
            assert_eq!(errno(outcome), libc::EPERM);
        }
        assert_eq!(errno(world.fs.unlink(Ino::ROOT, b".tenon").await), libc::ENOENT);
        assert!(bucket.head(format!("{prefix}.tenon/volume")).await.is_some());
    }
}

#[tokio::test]
async fn s60_a_volume_is_its_prefix_and_nothing_else() {
    let bucket = Bucket::in_memory();
    bucket.put("some/where/file", "mine").await;
    bucket.put("some/whereabouts", "not mine").await;
    let world = bucket.mount(|config| config.prefix = b"some/where/".to_vec()).await;
    assert_eq!(world.names("/").await.unwrap(), ["file"]);
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/new", b"x").await.unwrap();
    world.rename("dir", "moved").await.unwrap();
    let handle = world.open_handle("moved/new", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"ours").await.unwrap();
    bucket.put("some/where/moved/new", "theirs").await;
    assert_eq!(errno(world.close(handle).await), libc::ESTALE);
    let keys = bucket.keys().await;
    assert_eq!(keys[..2], ["some/where/file", &keys[1]]);
    assert!(keys[1].starts_with("some/where/lost+found/moved_new."));
    assert_eq!(keys[2..], ["some/where/moved/", "some/where/moved/new", "some/whereabouts"]);
    let located = world.fs.admin().locate(b"moved/new").await.unwrap().key.unwrap();
    assert_eq!(located.as_bytes(), b"some/where/moved/new");
    assert_eq!(world.fs.admin().path_of(&located).unwrap(), "moved/new");
    world.assert_healthy().await;
}

/// Regression: keys below a file stored by another client were found when a program looked up a name inside it, and the file
/// became a directory with the same inode number (world 1137 of both sides).
#[tokio::test]
async fn a_file_is_no_directory_although_keys_lie_below_it() {
    let bucket = Bucket::in_memory();
    bucket.put("file", "one").await;
    let world = bucket.mount(|_| {}).await;
    let file = world.ino("file").await.unwrap();
    bucket.put("file/", "").await;
    bucket.put("file/x", "two").await;
    assert_eq!(errno(world.fs.mkdir(CALLER, file, b"dir", 0o755).await), libc::ENOTDIR);
    assert_eq!(errno(world.fs.lookup(file, b"x").await), libc::ENOTDIR);
    assert_eq!(world.read_file("file").await.unwrap(), b"one");
    world.expire();
    assert_eq!(world.read_file("file/x").await.unwrap(), b"two");
}
