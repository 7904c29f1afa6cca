//! The entries of a tree as they are found.

use super::directory_walk::DirectoryWalk;
use super::entry::{Entry, EntryKind};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use store::{ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Pages};
use tokio::sync::mpsc;

/// Entries that are passed on together.
const BATCH_ENTRIES: usize = 512;
/// Batches that may wait to be read.
const BATCHES_MAX: usize = 4;
const PAGE_ENTRIES: usize = 1000;

/// A step of a walk.
#[derive(Debug)]
pub(crate) enum Item {
    Entry(Entry),
    /// A file or directory that cannot be read, with the reason. The walk continues after it.
    Unreadable(String),
}

/// The entries of a tree, in the order of keys.
#[derive(Debug)]
pub(crate) struct EntryStream {
    batches: mpsc::Receiver<Result<Vec<Item>>>,
    batch: std::vec::IntoIter<Item>,
}

impl EntryStream {
    /// Walks a directory, or returns a single file.
    pub(super) fn of_directory(root: &Path) -> Self {
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        let walk = DirectoryWalk::new(root);
        tokio::task::spawn_blocking(move || {
            let mut batch = Vec::with_capacity(BATCH_ENTRIES);
            for item in walk {
                batch.push(item);
                if batch.len() == BATCH_ENTRIES
                    && sender.blocking_send(Ok(std::mem::take(&mut batch))).is_err()
                {
                    return;
                }
            }
            let _ = sender.blocking_send(Ok(batch));
        });
        Self { batches, batch: Vec::new().into_iter() }
    }

    /// Lists the objects below a directory of keys, or returns the single object with this key.
    pub(super) fn of_objects(store: Arc<dyn ObjectStore>, directory: Vec<u8>) -> Self {
        let (sender, batches) = mpsc::channel(BATCHES_MAX);
        tokio::spawn(async move {
            if let Err(error) = list(&store, &directory, &sender).await {
                let _ = sender.send(Err(error)).await;
            }
        });
        Self { batches, batch: Vec::new().into_iter() }
    }

    /// Returns the next item; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.batch.next() {
                return Ok(Some(item));
            }
            match self.batches.recv().await {
                Some(batch) => self.batch = batch?.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

async fn list(
    store: &Arc<dyn ObjectStore>,
    directory: &[u8],
    sender: &mpsc::Sender<Result<Vec<Item>>>,
) -> Result<()> {
    let prefix = key_prefix(directory);
    let request =
        ListRequest { prefix: Bytes::from(prefix.clone()), limit: PAGE_ENTRIES, ..ListRequest::default() };
    let mut pages = Pages::new(store.as_ref(), request);
    let mut is_empty = true;
    while let Some(entries) = pages.next().await.context("cannot list the bucket")? {
        let objects = entries.into_iter().filter_map(|entry| match entry {
            ListEntry::Object(listed) => entry_of(listed, prefix.len()),
            ListEntry::Prefix(_) => None,
        });
        let batch: Vec<Item> = objects.map(Item::Entry).collect();
        is_empty &= batch.is_empty();
        if sender.send(Ok(batch)).await.is_err() {
            return Ok(());
        }
    }
    if is_empty
        && let Ok(key) = ObjectKey::new(directory.to_vec())
        && let Some(meta) = store.find(&key).await.context("cannot read the object")?
    {
        let entry = entry_of(ListedObject::of(meta, false), directory.len());
        let _ = sender.send(Ok(entry.into_iter().map(Item::Entry).collect())).await;
    }
    Ok(())
}

/// Returns the beginning of all keys below a directory of keys.
pub(super) fn key_prefix(directory: &[u8]) -> Vec<u8> {
    match directory {
        [] => Vec::new(),
        [.., b'/'] => directory.to_vec(),
        _ => [directory, b"/"].concat(),
    }
}

/// Returns the entry of an object whose key has a prefix of this length. Tenon's own objects have none.
fn entry_of(listed: ListedObject, prefix_len: usize) -> Option<Entry> {
    let key = listed.object.key.as_bytes();
    let rest = &key[prefix_len..];
    // The volume may be the bucket, or the part of it below the prefix.
    let is_own =
        |text: &[u8]| text.strip_prefix(vfs::RESERVED.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
    if is_own(key) || is_own(rest) {
        return None;
    }
    let (path, kind) = match rest.strip_suffix(b"/") {
        Some(path) => (path, EntryKind::Directory),
        // The marker of the directory itself.
        None if rest.is_empty() && key.ends_with(b"/") => (rest, EntryKind::Directory),
        None => (rest, EntryKind::File),
    };
    Some(Entry {
        path: path.into(),
        kind,
        size_bytes: if kind == EntryKind::File { listed.size_bytes } else { 0 },
        modified: listed.object.last_modified,
        etag: Some(listed.object.etag),
        shared_inode: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::memory::MemoryStore;
    use store::{ETag, ObjectRef, Payload, PutOptions};

    fn listed(key: &str) -> ListedObject {
        ListedObject::new(ObjectRef::new(ObjectKey::new(key.to_owned()).unwrap(), ETag::new("e")), 7)
    }

    #[test]
    fn keys_are_paths_below_the_prefix() {
        let of =
            |key: &str, prefix_len| entry_of(listed(key), prefix_len).map(|entry| (entry.text(), entry.kind));
        assert_eq!(of("a/b/c", 2), Some(("b/c".to_owned(), EntryKind::File)));
        assert_eq!(of("a/b/", 2), Some(("b".to_owned(), EntryKind::Directory)));
        assert_eq!(of("a/", 2), Some((String::new(), EntryKind::Directory)));
        assert_eq!(of(".tenon/volume", 0), None);
        assert_eq!(of(".tenon-like", 0).unwrap().0, ".tenon-like");
        assert_eq!(key_prefix(b"a"), b"a/");
        assert_eq!(key_prefix(b""), b"");
    }

    #[tokio::test]
    async fn a_directory_and_a_bucket_have_one_order() {
        let names = ["a.txt", "a/x", "a/y/z", "a0", "b-/q", "b"];
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(MemoryStore::new(Arc::new(store::SystemClock)));
        for name in names {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
            let key = ObjectKey::new(format!("p/{name}")).unwrap();
            store.put(&key, Payload::from("x"), PutOptions::default()).await.unwrap();
        }
        let files = async |mut stream: EntryStream| {
            let mut files = Vec::new();
            while let Some(item) = stream.next().await.unwrap() {
                let Item::Entry(entry) = item else { panic!("{item:?}") };
                files.extend((entry.kind == EntryKind::File).then(|| entry.text()));
            }
            files
        };
        let in_directory = files(EntryStream::of_directory(dir.path())).await;
        assert_eq!(in_directory, ["a.txt", "a/x", "a/y/z", "a0", "b", "b-/q"]);
        assert_eq!(files(EntryStream::of_objects(store.clone(), b"p".to_vec())).await, in_directory);
        assert_eq!(files(EntryStream::of_objects(store, b"p/a0".to_vec())).await, [""]);
    }
}
