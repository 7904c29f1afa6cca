//! A Linux root tree from a flat bucket: objects have numbers as names, and their metadata says in which directory
//! they are.

use crate::s3::{buckets, home, new_bucket};
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use store::{Attributes, Buckets, Entropy, ObjectKey, ObjectStore, Payload, PutOptions};

/// Parts of this machine's own tree. Of each part, the first files in the order of their paths are used, up to this
/// number and length.
const PARTS: [&str; 6] = ["etc", "usr/bin", "usr/lib", "usr/libexec", "usr/sbin", "usr/share"];
const FILES_MAX: usize = 400;
const FILE_BYTES_MAX: u64 = 64 << 10;

const PUTS_AT_ONCE: usize = 16;

/// A file or a symbolic link, as programs see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Type and permissions.
    mode: u32,
    mtime_ns: i64,
    /// Content, or the target of the link.
    bytes: Vec<u8>,
}

impl Entry {
    fn read(path: &Path) -> std::io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let bytes = match meta.is_symlink() {
            true => fs::read_link(path)?.into_os_string().into_encoded_bytes(),
            false => fs::read(path)?,
        };
        Ok(Self { mode: meta.mode(), mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), bytes })
    }
}

/// Files by their paths below a root.
type Files = BTreeMap<String, Entry>;

/// Adds the files and links below a directory, until there are `max` of them.
fn walk(root: &Path, dir: &str, is_wanted: &dyn Fn(&fs::Metadata) -> bool, max: usize, into: &mut Files) {
    let Ok(entries) = fs::read_dir(root.join(dir)) else { return };
    let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        let Ok(meta) = fs::symlink_metadata(root.join(&path)) else { continue };
        if into.len() >= max {
            return;
        }
        if meta.is_dir() {
            walk(root, &path, is_wanted, max, into);
        } else if is_wanted(&meta)
            && let Ok(entry) = Entry::read(&root.join(&path))
        {
            into.insert(path, entry);
        }
    }
}

/// Returns the files of this system to put.
fn system_files() -> Files {
    let is_small = |meta: &fs::Metadata| meta.is_symlink() || meta.is_file() && meta.len() <= FILE_BYTES_MAX;
    let mut all = Files::new();
    for part in PARTS {
        let mut files = Files::new();
        walk(Path::new("/"), part, &is_small, FILES_MAX, &mut files);
        all.extend(files);
    }
    all
}

/// Puts a file as an object outside of any directory: its key is a number and its name.
async fn put(store: &dyn ObjectStore, number: u64, path: &str, entry: &Entry) {
    let (dir, name) = path.rsplit_once('/').unwrap();
    let user = [
        ("tenon-directory", percent_encoded(dir)),
        ("file-permissions", format!("{:07o}", entry.mode)),
        ("file-mtime", format!("{}ns", entry.mtime_ns)),
    ];
    let user = user.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let key = ObjectKey::try_from(format!("{number:016x}/{name}").as_str()).unwrap();
    let options =
        PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() };
    store.put(&key, Payload::from(entry.bytes.clone()), options).await.unwrap();
}

fn percent_encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'!'..=b'$' | b'&'..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

#[test]
fn s271_a_linux_root_tree_is_rebuilt_from_a_flat_bucket() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "root-tree");
    let system = system_files();
    assert!(system.len() > 1000, "{}", system.len());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (store, entropy) = (buckets(server).open(&bucket).await.unwrap(), Entropy::new(7));
        let puts = system.iter().map(|(path, entry)| put(&*store, entropy.next_u64(), path, entry));
        futures_util::stream::iter(puts).buffer_unordered(PUTS_AT_ONCE).collect::<Vec<()>>().await;
    });
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("rules.yaml"), format!("root: {{container: {bucket}, directories: on}}\n")).unwrap();
    home.ok(["mount", "--views=rules.yaml", "mnt"]);
    let mut shown = Files::new();
    walk(&home.mnt().join("root"), "", &|_| true, usize::MAX, &mut shown);
    for (path, entry) in &system {
        assert_eq!(shown.get(path), Some(entry), "{path}");
    }
    assert_eq!(shown.len(), system.len());
    home.ok(["umount", "mnt"]);
}
