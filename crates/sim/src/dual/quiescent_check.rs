//! Checks after all clients have stopped: all views show the same objects, and these are possible results of the changes.

use super::key_history::Content;
use super::shared_state::{SharedState, describe, describe_bytes};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use store::{
    ETag, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectMeta, ObjectStore, Pages, names,
};
use vfs::{DirectoryEntry, Filesystem, Ino, Kind, LOST_AND_FOUND};

/// Entries per page: fewer than a directory may have, so that several pages are read.
const ENTRIES: usize = 3;
const READ_BYTES: usize = 128 << 10;

/// Tags and contents by key. Keys that end in `/` are directory markers.
pub(super) type ObjectMap = BTreeMap<String, (ETag, Bytes)>;

/// The result of a walk through the file system.
#[derive(Debug, Default)]
pub(super) struct FileTree {
    files: BTreeMap<String, Bytes>,
    /// Directory keys, which end in `/`.
    dirs: BTreeSet<String>,
}

/// Reads an object and its metadata.
pub(super) async fn content_of(
    store: &dyn ObjectStore,
    key: &ObjectKey,
) -> store::Result<(ObjectMeta, Bytes)> {
    let object = store.get(key, GetOptions::default()).await?;
    let body = object.body.try_collect::<Vec<_>>().await?.concat();
    Ok((object.meta, body.into()))
}

/// Reads all objects outside Tenon's reserved prefix.
pub(super) async fn read_objects(store: &dyn ObjectStore) -> Result<ObjectMap, String> {
    let request = ListRequest { limit: ENTRIES, ..ListRequest::default() };
    let entries =
        Pages::new(store, request).collect().await.map_err(|error| format!("cannot list: {error}"))?;
    let mut found = ObjectMap::new();
    for entry in entries {
        let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else { continue };
        let key = String::from_utf8_lossy(object.key.as_bytes()).into_owned();
        if key.starts_with(".tenon/") {
            continue;
        }
        let got = content_of(store, &object.key).await;
        let (meta, content) =
            got.map_err(|error| format!("'{key}' is listed and cannot be read: {error}"))?;
        if meta.object.etag != object.etag
            || meta.size_bytes != size_bytes
            || content.len() as u64 != size_bytes
        {
            return Err(format!(
                "'{key}' is listed with the tag {:?} and {size_bytes} bytes; a read gives the tag {:?}, size {} and {} bytes",
                object.etag,
                meta.object.etag,
                meta.size_bytes,
                content.len()
            ));
        }
        found.insert(key, (object.etag, content));
    }
    Ok(found)
}

/// Walks the file system, as `find` and `cat` do.
pub(super) async fn walk_files(fs: &Filesystem) -> Result<FileTree, String> {
    let mut file_tree = FileTree::default();
    let mut waiting = vec![(String::new(), Ino::ROOT)];
    while let Some((dir, ino)) = waiting.pop() {
        for name in list(fs, ino).await.map_err(|error| format!("cannot list '{dir}': {error}"))? {
            if name == b"." || name == b".." {
                continue;
            }
            let plain = names::plain(&name).unwrap_or(&name);
            let key = format!("{dir}{}", String::from_utf8_lossy(plain));
            visit(fs, (ino, &name), key, &mut file_tree, &mut waiting).await?;
        }
    }
    Ok(file_tree)
}

async fn visit(
    fs: &Filesystem,
    (dir, name): (Ino, &[u8]),
    key: String,
    file_tree: &mut FileTree,
    waiting: &mut Vec<(String, Ino)>,
) -> Result<(), String> {
    let failed = |error: vfs::Error| format!("the file '{key}' is listed and cannot be read: {error}");
    let attr = fs.lookup(dir, name).await.map_err(failed)?;
    if attr.kind == Kind::Directory {
        file_tree.dirs.insert(format!("{key}/"));
        waiting.push((format!("{key}/"), attr.ino));
        return Ok(());
    }
    let handle = fs.open(attr.ino, libc::O_RDONLY).await.map_err(failed)?.handle;
    let mut content = Vec::new();
    loop {
        let piece = fs.read(handle, content.len() as u64, READ_BYTES).await.map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        content.extend_from_slice(&piece);
    }
    fs.release(handle).await.map_err(failed)?;
    if attr.size_bytes != content.len() as u64 {
        return Err(format!(
            "the file '{key}' has the size {} and a content of {} bytes",
            attr.size_bytes,
            content.len()
        ));
    }
    match file_tree.files.insert(key.clone(), content.into()) {
        None => Ok(()),
        Some(_) => Err(format!("two files have the key '{key}'")),
    }
}

async fn list(fs: &Filesystem, dir: Ino) -> vfs::Result<Vec<Vec<u8>>> {
    let handle = fs.opendir(dir).await?;
    let mut listed = Vec::<DirectoryEntry>::new();
    let outcome = loop {
        let cookie = listed.last().map_or(0, |entry| entry.cookie);
        match fs.readdir(handle, cookie, ENTRIES, true).await {
            Ok(page) if page.is_empty() => break Ok(()),
            Ok(page) => listed.extend(page),
            Err(error) => break Err(error),
        }
    };
    fs.releasedir(handle);
    outcome.map(|()| listed.into_iter().map(|entry| entry.name.to_vec()).collect())
}

/// Checks that the files and directories of a walk correspond to the objects.
pub(super) fn compare_files(file_tree: &FileTree, objects: &ObjectMap) -> Result<(), String> {
    let files = objects.iter().filter(|(key, _)| !key.ends_with('/'));
    let files: BTreeMap<&String, &Bytes> = files.map(|(key, (_, content))| (key, content)).collect();
    for key in files.keys().copied().chain(file_tree.files.keys()) {
        let (object, file) = (files.get(key).copied(), file_tree.files.get(key));
        if object != file {
            let (object, file) = (describe(&object.cloned()), describe(&file.cloned()));
            return Err(format!("'{key}' is {object} as an object and {file} as a file"));
        }
    }
    let dirs: BTreeSet<String> = objects.keys().flat_map(|key| dirs_of(key)).collect();
    match dirs.symmetric_difference(&file_tree.dirs).next() {
        None => Ok(()),
        Some(dir) => Err(format!(
            "the directory '{dir}' exists only {}",
            match file_tree.dirs.contains(dir) {
                true => "in the file system",
                false => "as objects",
            }
        )),
    }
}

/// Returns the directory keys that a key implies.
fn dirs_of(key: &str) -> impl Iterator<Item = String> {
    key.match_indices('/').map(|(at, _)| key[..=at].to_owned())
}

/// Checks that two stores hold the same objects.
pub(super) fn compare_stores(
    what: &str,
    one: &ObjectMap,
    other: &ObjectMap,
    compares_tags: bool,
) -> Result<(), String> {
    for key in one.keys().chain(other.keys()) {
        let is_same = match (one.get(key), other.get(key)) {
            (Some(one), Some(other)) => one.1 == other.1 && (one.0 == other.0 || !compares_tags),
            _ => false,
        };
        if !is_same {
            let describe = |objects: &ObjectMap| {
                objects
                    .get(key)
                    .map_or("nothing".into(), |(tag, content)| format!("{tag:?} {}", describe_bytes(content)))
            };
            return Err(format!("{what}: '{key}' is {} and {}", describe(one), describe(other)));
        }
    }
    Ok(())
}

/// Checks that each key has a possible content, and that content that lost a conflict is kept. Returns the contents found.
pub(super) fn check_final(
    shared: &SharedState,
    objects: &ObjectMap,
) -> Result<BTreeMap<String, Bytes>, String> {
    let inner = shared.inner.borrow();
    shared.conditional_writes.borrow().check_exclusive(&inner.history)?;
    let (lost, mut found) = (format!("{LOST_AND_FOUND}/"), BTreeMap::new());
    let mut kept = Vec::new();
    for (key, (_, content)) in objects.iter().filter(|(key, _)| !key.ends_with('/')) {
        match key.starts_with(&lost) {
            true => kept.push(content),
            false => drop(found.insert(key.clone(), content.clone())),
        }
    }
    let mut keys = inner.history.keys();
    keys.extend(found.keys().cloned());
    for key in &keys {
        let seen: Content = found.get(key).cloned();
        if let Some(may) = inner.history.possible_final_contents(key).filter(|may| !may.contains(&seen)) {
            let may: Vec<String> = may.iter().map(describe).collect();
            return Err(format!("'{key}' is finally {} and must be {}", describe(&seen), may.join(" or ")));
        }
    }
    for (_, one) in &inner.lost_to_bucket {
        // A streamed upload that has lost is completed under its key and copied to `lost+found`. Another client may replace it in between (S52).
        let is_replaced = one.iter().all(|bytes| shared.replaced_in_bucket.borrow().contains(bytes));
        if !is_replaced && !one.iter().any(|bytes| kept.iter().any(|seen| matches_written(seen, bytes))) {
            let one = one.iter().map(describe_bytes).collect::<Vec<_>>().join(" or ");
            return Err(format!("content that lost a conflict is not in lost+found: {one}"));
        }
    }
    let is_partial_write = |seen: &Bytes| {
        inner
            .partial_writes
            .iter()
            .any(|bytes| seen.len() < bytes.len() && matches_written(seen, &bytes.slice(..seen.len())))
    };
    let is_written = |seen: &Bytes| {
        // Zeros stand for bytes that are gone (S52).
        let is_gone = seen.iter().all(|byte| *byte == 0);
        is_gone || inner.written.iter().any(|bytes| matches_written(seen, bytes)) || is_partial_write(seen)
    };
    match kept.iter().find(|seen| !is_written(seen)) {
        Some(seen) => Err(format!("content in lost+found was never written: {}", describe_bytes(seen))),
        None => Ok(found),
    }
}

/// Whether content equals written bytes. Zeros stand for ranges of an edited file that were lost with its old object.
fn matches_written(seen: &Bytes, written: &Bytes) -> bool {
    seen.len() == written.len() && seen.iter().zip(written).all(|(seen, byte)| seen == byte || *seen == 0)
}
