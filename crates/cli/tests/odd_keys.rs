//! Every key can be reached through a mount: objects whose keys are not file names are found, read, replaced and
//! removed.

use crate::fixture::Home;
use crate::s3::buckets;
use futures_util::TryStreamExt;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{
    Entropy, GetOptions, KEY_BYTES_MAX, ListRequest, ObjectKey, ObjectStore, Pages, PutOptions, SystemClock,
};
use store_dir::{DirOptions, DirStore};
use tokio::runtime::Runtime;

/// Returns keys that MinIO also stores and lists: clean paths of characters, with components of at most 255 bytes,
/// and no object below another.
fn ordinary_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        " ",
        "a b",
        "100%",
        "%41",
        "%",
        "%=x",
        "%+x",
        "%!x",
        "in/%=x/y",
        "a?b=c&d",
        "a#b",
        "a\\b",
        "a<b>|c",
        "*",
        "-rf",
        "...",
        ".hidden",
        "line\nend",
        "tab\tbed",
        "\u{1}\u{1f}\u{7f}",
        "ü",
        "u\u{308}",
        "日本/語",
        "\u{feff}a",
        "😀",
    ]
    .map(|key| key.as_bytes().to_vec())
    .into();
    // Regression: the last file could not be removed, as MinIO refuses a directory marker with so long a name.
    let parts = [255, 255, 255, 250, 5].map(|len| vec![b'p'; len]).join(&b'/');
    assert_eq!(parts.len(), KEY_BYTES_MAX);
    keys.push(parts);
    keys.push(["d"; 100].join("/").into_bytes());
    keys
}

/// Returns keys that only a byte-exact store can keep.
fn unusual_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        &b"a"[..],
        b"a/b",
        b"a/b/c",
        b"x//y",
        b"x///y",
        b"/lead",
        b"//",
        b".",
        b"..",
        b"./a",
        b"../a",
        b"up/../a",
        b"n\0ul",
        b"\0",
        b"\xff\xfe",
        b"a\x80/b",
        b"%!",
        b"%=",
        b"%+",
        b".tenon-store",
        b"end//",
    ]
    .map(<[u8]>::to_vec)
    .into();
    keys.push(vec![b'l'; KEY_BYTES_MAX]);
    keys.push([&[b'l'; 300][..], b"/inside"].concat());
    keys.push("☃".repeat(KEY_BYTES_MAX / 3).into_bytes());
    keys
}

/// The objects of a bucket, as an S3 client sees them.
struct Objects {
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

impl Objects {
    fn put(&self, key: &[u8], body: Vec<u8>) {
        let object = object_key(key);
        let put = self.store.put(&object, body.into(), PutOptions::default());
        self.runtime.block_on(put).unwrap_or_else(|error| panic!("{}: {error}", key.escape_ascii()));
    }

    /// Returns every object with its bytes, except Tenon's own.
    fn all(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let keys = self.keys().into_iter().filter(|key| !key.starts_with(b".tenon/"));
        keys.map(|key| (key.clone(), self.read(&key))).collect()
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let request = ListRequest { limit: 1000, ..ListRequest::default() };
        let entries = self.runtime.block_on(Pages::new(self.store.as_ref(), request).collect()).unwrap();
        entries.iter().map(|entry| entry.text().to_vec()).collect()
    }

    fn read(&self, key: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let object = self.store.get(&object_key(key), GetOptions::default()).await.unwrap();
            object.body.try_collect::<Vec<_>>().await.unwrap().concat()
        })
    }
}

fn object_key(key: &[u8]) -> ObjectKey {
    ObjectKey::try_from(key).unwrap()
}

/// Returns bytes that identify a key.
fn body(key: &[u8]) -> Vec<u8> {
    [b"of ", key].concat()
}

/// Returns all regular files below a directory.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path())
            } else {
                files.push(entry.path())
            }
        }
    }
    files
}

/// Puts the keys, then finds, reads, replaces and removes each through the mount. The objects show the results.
fn assert_every_key_is_reachable(objects: &Objects, mnt: &Path, keys: &[Vec<u8>]) {
    keys.iter().for_each(|key| objects.put(key, body(key)));
    let markers = keys.iter().filter(|key| key.ends_with(b"/")).count();

    let files = files_below(mnt);
    let mut found: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let mut expected: Vec<Vec<u8>> =
        keys.iter().filter(|key| !key.ends_with(b"/")).map(|key| body(key)).collect();
    found.sort();
    expected.sort();
    assert!(found == expected, "{} of {} files have the bytes of the keys", found.len(), expected.len());

    for file in &files {
        let old = fs::read(file).unwrap();
        fs::write(file, [b"replaced, ", old.as_slice()].concat()).unwrap();
    }
    let replaced =
        |key: &Vec<u8>| if key.ends_with(b"/") { body(key) } else { [b"replaced, ", &*body(key)].concat() };
    let expected: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), replaced(key))).collect();
    assert!(objects.all() == expected, "each replacement has gone to the key of its file");

    for file in &files {
        fs::remove_file(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    let left = objects.all();
    assert!(left.keys().all(|key| key.ends_with(b"/")) && left.len() >= markers, "{:?}", left.keys());
    for entry in fs::read_dir(mnt).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    assert_eq!(objects.all(), BTreeMap::new());
}

#[test]
fn s60_s61_s62_s63_s64_s65_every_key_of_a_directory_store_is_reachable() {
    let home = Home::new();
    fs::create_dir(home.path("bucket")).unwrap();
    let entropy = Arc::new(Entropy::new(3));
    let store =
        DirStore::open(&home.path("bucket"), DirOptions::default(), Arc::new(SystemClock), entropy).unwrap();
    let objects = Objects { store: Arc::new(store), runtime: Runtime::new().unwrap() };
    home.ok(["mount", &format!("file://{}", home.text("bucket")), "mnt", "--metadata-ttl=0s"]);
    assert_every_key_is_reachable(&objects, &home.mnt(), &[ordinary_keys(), unusual_keys()].concat());
    home.ok(["umount", "mnt"]);
}

#[test]
fn s60_s64_every_key_that_minio_holds_is_reachable() {
    let server = servers::shared_minio();
    let bucket = crate::s3::new_bucket(server, "odd-keys");
    let objects = Objects {
        store: Arc::new(buckets(server).store(&bucket).unwrap()),
        runtime: Runtime::new().unwrap(),
    };
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &format!("s3://{bucket}"), "mnt", "--metadata-ttl=0s"]);
    assert_every_key_is_reachable(&objects, &home.mnt(), &ordinary_keys());
    home.ok(["umount", "mnt"]);
}
