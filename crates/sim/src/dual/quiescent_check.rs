//! When everybody has stopped: all see the same, and it is what may be.

use super::key_history::Content;
use super::shared_state::{Stage, told, told_bytes};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use store::{ETag, GetOptions, ListEntry, ListRequest, ObjectKey, ObjectMeta, ObjectStore, Pages, names};
use vfs::{Filesystem, Ino, Kind, LOST_AND_FOUND, Listed};

/// Entries asked for at a time: fewer than a directory may have.
const ENTRIES: usize = 3;
const READ_BYTES: usize = 128 << 10;

/// Keys with their tags and bytes; keys that end in `/` are markers of directories.
pub(super) type Objects = BTreeMap<String, (ETag, Bytes)>;

/// What a walk through the files finds.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, Bytes>,
    /// Their keys end in `/`.
    dirs: BTreeSet<String>,
}

/// An object's description and bytes.
pub(super) async fn content_of(
    store: &dyn ObjectStore,
    key: &ObjectKey,
) -> store::Result<(ObjectMeta, Bytes)> {
    let object = store.get(key, GetOptions::default()).await?;
    let body = object.body.try_collect::<Vec<_>>().await?.concat();
    Ok((object.meta, body.into()))
}

/// Every object that is not Tenon's own.
pub(super) async fn objects(store: &dyn ObjectStore) -> Result<Objects, String> {
    let request = ListRequest { limit: ENTRIES, ..ListRequest::default() };
    let entries = Pages::of(store, request).all().await.map_err(|error| format!("no listing: {error}"))?;
    let mut found = Objects::new();
    for entry in entries {
        let ListEntry::Object { object, size_bytes } = entry else { continue };
        let key = String::from_utf8_lossy(object.key.as_bytes()).into_owned();
        if key.starts_with(".tenon/") {
            continue;
        }
        let got = content_of(store, &object.key).await;
        let (meta, content) = got.map_err(|error| format!("'{key}' is listed and not read: {error}"))?;
        if meta.object.etag != object.etag
            || meta.size_bytes != size_bytes
            || content.len() as u64 != size_bytes
        {
            return Err(format!(
                "'{key}' is listed with {:?} and {size_bytes} bytes, and read with {:?}, {} and {}",
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

/// As `find` and `cat` see it.
pub(super) async fn tree(fs: &Filesystem) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let mut waiting = vec![(String::new(), Ino::ROOT)];
    while let Some((dir, ino)) = waiting.pop() {
        for name in list(fs, ino).await.map_err(|error| format!("'{dir}' cannot be listed: {error}"))? {
            if name == b"." || name == b".." {
                continue;
            }
            let plain = names::plain(&name).unwrap_or(&name);
            let key = format!("{dir}{}", String::from_utf8_lossy(plain));
            see(fs, (ino, &name), key, &mut tree, &mut waiting).await?;
        }
    }
    Ok(tree)
}

async fn see(
    fs: &Filesystem,
    (dir, name): (Ino, &[u8]),
    key: String,
    tree: &mut Tree,
    waiting: &mut Vec<(String, Ino)>,
) -> Result<(), String> {
    let failed = |error: vfs::Error| format!("the file '{key}' is listed and not read: {error}");
    let attr = fs.lookup(dir, name).await.map_err(failed)?;
    if attr.kind == Kind::Directory {
        tree.dirs.insert(format!("{key}/"));
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
            "the file '{key}' has {} bytes and is read as {}",
            attr.size_bytes,
            content.len()
        ));
    }
    match tree.files.insert(key.clone(), content.into()) {
        None => Ok(()),
        Some(_) => Err(format!("'{key}' is two files")),
    }
}

async fn list(fs: &Filesystem, dir: Ino) -> vfs::Result<Vec<Vec<u8>>> {
    let handle = fs.opendir(dir).await?;
    let mut listed = Vec::<Listed>::new();
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

/// A walk shows the objects, and no others.
pub(super) fn agree(tree: &Tree, objects: &Objects) -> Result<(), String> {
    let files = objects.iter().filter(|(key, _)| !key.ends_with('/'));
    let files: BTreeMap<&String, &Bytes> = files.map(|(key, (_, content))| (key, content)).collect();
    for key in files.keys().copied().chain(tree.files.keys()) {
        let (object, file) = (files.get(key).copied(), tree.files.get(key));
        if object != file {
            let (object, file) = (told(&object.cloned()), told(&file.cloned()));
            return Err(format!("'{key}' is {object} as an object, and {file} as a file"));
        }
    }
    let dirs: BTreeSet<String> = objects.keys().flat_map(|key| dirs_of(key)).collect();
    match dirs.symmetric_difference(&tree.dirs).next() {
        None => Ok(()),
        Some(dir) => Err(format!(
            "the directory '{dir}' is listed only {}",
            match tree.dirs.contains(dir) {
                true => "as a file",
                false => "as objects",
            }
        )),
    }
}

/// The directories that a key is in, or is.
fn dirs_of(key: &str) -> impl Iterator<Item = String> {
    key.match_indices('/').map(|(at, _)| key[..=at].to_owned())
}

/// Two stores of the same objects list the same.
pub(super) fn same(what: &str, one: &Objects, other: &Objects, compares_tags: bool) -> Result<(), String> {
    for key in one.keys().chain(other.keys()) {
        let is_same = match (one.get(key), other.get(key)) {
            (Some(one), Some(other)) => one.1 == other.1 && (one.0 == other.0 || !compares_tags),
            _ => false,
        };
        if !is_same {
            let told = |objects: &Objects| {
                objects
                    .get(key)
                    .map_or("nothing".into(), |(tag, content)| format!("{tag:?} {}", told_bytes(content)))
            };
            return Err(format!("{what}: '{key}' is {} and {}", told(one), told(other)));
        }
    }
    Ok(())
}

/// Each key is what a change left that nothing replaced; what lost to the bucket is kept.
pub(super) fn be(stage: &Stage, objects: &Objects) -> Result<BTreeMap<String, Bytes>, String> {
    let inner = stage.inner.borrow();
    stage.conditions.borrow().exclude_each_other(&inner.history)?;
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
        if let Some(may) = inner.history.may_end(key).filter(|may| !may.contains(&seen)) {
            let may: Vec<String> = may.iter().map(told).collect();
            return Err(format!("'{key}' is {} at last, and may be {}", told(&seen), may.join(" or ")));
        }
    }
    for (_, one) in &inner.kept {
        if !one.iter().any(|bytes| kept.iter().any(|seen| is_of(seen, bytes))) {
            let one = one.iter().map(told_bytes).collect::<Vec<_>>().join(" or ");
            return Err(format!("what lost to the bucket is not kept: {one}"));
        }
    }
    let is_torn = |seen: &Bytes| {
        inner.torn.iter().any(|bytes| seen.len() < bytes.len() && is_of(seen, &bytes.slice(..seen.len())))
    };
    let is_written = |seen: &Bytes| inner.written.iter().any(|bytes| is_of(seen, bytes)) || is_torn(seen);
    match kept.iter().find(|seen| !is_written(seen)) {
        Some(seen) => Err(format!("nobody wrote what is kept: {}", told_bytes(seen))),
        None => Ok(found),
    }
}

/// Of what was edited in place zeros stand for what went with the old object.
fn is_of(seen: &Bytes, written: &Bytes) -> bool {
    seen.len() == written.len() && seen.iter().zip(written).all(|(seen, byte)| seen == byte || *seen == 0)
}
