//! Several buckets as one store: a key is a bucket's name, `/`, and a key in it.
//!
//! Owns which buckets there are, and what reaches from one into another, which is read here and stored there. A bucket's own
//! `.tenon/` is left out of listings; a copy to `.tenon/` goes to that of the bucket it comes from, and its key says so.
//!
//! Refuses: to make or remove buckets; to hold an object that lies in none.

mod cross_bucket_copy;

use crate::listing::{PAGE_ENTRIES_MAX, Scan, successor, token_after};
use crate::{
    Attributes, Buckets, CopyOptions, GetOptions, ListEntry, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
    Tags, rename_by_copy,
};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is Tenon's own in a bucket.
const OWN: &[u8] = b".tenon/";

/// Buckets as the directories of one store.
#[derive(Debug)]
pub struct JoinedStore {
    buckets: Arc<dyn Buckets>,
    /// `None`: all there are.
    names: Option<BTreeSet<String>>,
    opened: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

/// A bucket, and the key in it.
struct Place {
    name: String,
    store: Arc<dyn ObjectStore>,
    key: ObjectKey,
}

impl JoinedStore {
    /// Of these buckets, or all that there are.
    pub fn new(buckets: Arc<dyn Buckets>, names: Option<BTreeSet<String>>) -> Self {
        Self { buckets, names, opened: Mutex::default() }
    }

    /// Opens a bucket, once.
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        if let Some(opened) = self.opened().get(name).cloned() {
            return Ok(opened);
        }
        if self.names.as_ref().is_some_and(|names| !names.contains(name)) {
            return Err(StoreError::NoSuchBucket(name.to_owned()));
        }
        let opened = self.buckets.open(name).await?;
        self.opened().insert(name.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn ObjectStore>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a key lies, to be stored there.
    async fn place(&self, key: &ObjectKey) -> Result<Place> {
        let no_place = || StoreError::InvalidKey {
            key: key.to_string(),
            reason: "buckets are not made as directories, and an object lies in one".to_owned(),
        };
        let (name, inside) = split(key.as_bytes()).ok_or_else(no_place)?;
        let inside = ObjectKey::try_from(inside).map_err(|_| no_place())?;
        Ok(Place { store: self.open(name).await?, name: name.to_owned(), key: inside })
    }

    /// The same, to be read: what lies in no bucket is not there.
    async fn existing(&self, key: &ObjectKey) -> Result<Place> {
        match self.place(key).await {
            Err(StoreError::InvalidKey { .. } | StoreError::NoSuchBucket(_)) => {
                Err(StoreError::NotFound(key.clone()))
            }
            // What cannot be a bucket's name.
            Err(StoreError::BucketState { .. }) => Err(StoreError::NotFound(key.clone())),
            place => place,
        }
    }

    async fn names(&self, prefix: &[u8]) -> Result<Vec<String>> {
        let mut names: Vec<String> = match &self.names {
            Some(names) => names.iter().cloned().collect(),
            None => self.buckets.list().await?,
        };
        names.retain(|name| name.as_bytes().starts_with(prefix));
        // As texts that go on with a `/`.
        names.sort_by_key(|name| format!("{name}/"));
        Ok(names)
    }

    /// Buckets as directories.
    async fn list_buckets(&self, scan: &Scan) -> Result<ListPage> {
        let texts = self.names(&scan.prefix).await?.into_iter().map(|name| format!("{name}/"));
        let mut entries: Vec<ListEntry> = texts
            .filter(|text| scan.is_after(text.as_bytes()))
            .take(scan.limit + 1)
            .map(|text| ListEntry::Prefix(Bytes::from(text)))
            .collect();
        let has_more = entries.len() > scan.limit;
        entries.truncate(scan.limit);
        let next = entries.last().filter(|_| has_more).map(|last| token_after(last.text()));
        Ok(ListPage { entries, next })
    }

    /// Everything in all buckets, a page of one of them.
    async fn list_all(&self, scan: &Scan) -> Result<ListPage> {
        for name in self.names(&scan.prefix).await? {
            let root = format!("{name}/");
            let end = successor(root.as_bytes()).unwrap_or_default();
            if scan.after.as_ref().is_some_and(|after| after.as_ref() >= end.as_slice()) {
                continue;
            }
            let after = scan.after.as_ref().and_then(|after| after.strip_prefix(root.as_bytes()));
            let request = ListRequest {
                start_after: after.filter(|after| !after.is_empty()).map(Bytes::copy_from_slice),
                limit: scan.limit,
                ..ListRequest::default()
            };
            let page = self.list_in(&name, request).await?;
            let next = match (&page.next, page.entries.last()) {
                (Some(_), Some(last)) => token_after(last.text()),
                // All of it was left out.
                (Some(_), None) => token_after(&[root.as_bytes(), OWN, b"\xff"].concat()),
                (None, _) => token_after(&end),
            };
            return Ok(ListPage { entries: page.entries, next: Some(next) });
        }
        Ok(ListPage::default())
    }

    /// What one bucket lists.
    async fn list_in(&self, name: &str, request: ListRequest) -> Result<ListPage> {
        let store = match self.open(name).await {
            Err(StoreError::NoSuchBucket(_) | StoreError::BucketState { .. }) => {
                return Ok(ListPage::default());
            }
            store => store?,
        };
        let ListPage { entries, next } = store.list(request).await?;
        let is_shown = |entry: &ListEntry| !entry.text().starts_with(OWN);
        let entries = entries.into_iter().filter(is_shown).map(|entry| outside_entry(name, entry));
        Ok(ListPage { entries: entries.collect::<Result<_>>()?, next })
    }
}

#[async_trait::async_trait]
impl ObjectStore for JoinedStore {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let place = self.existing(key).await?;
        let mut object = place.store.get(&place.key, options).await.map_err(|error| error.about(key))?;
        object.meta.object.key = key.clone();
        Ok(object)
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let place = self.existing(key).await?;
        let mut meta = place.store.head(&place.key).await.map_err(|error| error.about(key))?;
        meta.object.key = key.clone();
        Ok(meta)
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let place = self.place(key).await?;
        let object = place.store.put(&place.key, body, options).await.map_err(|error| error.about(key))?;
        Ok(ObjectRef { key: key.clone(), ..object })
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let Place { name, store, key: inside } = self.place(key).await?;
        let upload = store.multipart(&inside, attributes, tags).await?;
        let opened = self.opened().clone();
        Ok(Arc::new(JoinedUpload { upload, name, key: key.clone(), opened }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let source = self.existing(&from.key).await?;
        // A copy below `.tenon/` stays in the bucket of its source: `.tenon` is not a bucket.
        let beside = to.as_bytes().starts_with(OWN).then(|| outside(&source.name, to.as_bytes()));
        let to = &beside.transpose()?.unwrap_or_else(|| to.clone());
        let target = self.place(to).await?;
        let inside = ObjectRef { key: source.key.clone(), ..from.clone() };
        let about = |error: StoreError| match error {
            StoreError::PreconditionFailed(key) if key == source.key => {
                StoreError::PreconditionFailed(from.key.clone())
            }
            error => error.about(to),
        };
        let copied = match source.name == target.name {
            true => source.store.copy(&inside, &target.key, options).await,
            false => {
                cross_bucket_copy::copy((&*source.store, &inside), (&*target.store, &target.key), options)
                    .await
            }
        };
        Ok(ObjectRef { key: to.clone(), ..copied.map_err(about)? })
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let (source, target) = (self.existing(&from.key).await?, self.place(to).await?);
        if source.name != target.name {
            return rename_by_copy(self, from, to, precondition).await;
        }
        let inside = ObjectRef { key: source.key, ..from.clone() };
        source.store.rename(&inside, &target.key, precondition).await.map_err(|error| error.about(to))
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let place = self.place(key).await?;
        place.store.delete(&place.key, precondition).await.map_err(|error| error.about(key))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        if let Some((name, inside)) = split(&request.prefix) {
            let root = format!("{name}/");
            let start_after = match &request.start_after {
                None => None,
                Some(after) => match after.strip_prefix(root.as_bytes()) {
                    Some(after) => Some(after).filter(|after| !after.is_empty()).map(Bytes::copy_from_slice),
                    None if after.as_ref() < root.as_bytes() => None,
                    None => return Ok(ListPage::default()),
                },
            };
            let request =
                ListRequest { prefix: Bytes::copy_from_slice(inside), start_after, ..request.clone() };
            return self.list_in(name, request).await;
        }
        match request.delimiter {
            Some(b'/') => self.list_buckets(&Scan::new(request, PAGE_ENTRIES_MAX)?).await,
            None => self.list_all(&Scan::new(request, PAGE_ENTRIES_MAX)?).await,
            Some(_) => Err(StoreError::Unsupported(
                "listings of several buckets that fold at anything but '/'".to_owned(),
            )),
        }
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let place = self.existing(key).await?;
        place.store.tags(&place.key).await.map_err(|error| error.about(key))
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let place = self.existing(key).await?;
        place.store.set_tags(&place.key, tags).await.map_err(|error| error.about(key))
    }

    async fn sync(&self) -> Result<()> {
        let opened: Vec<_> = self.opened().values().cloned().collect();
        for store in opened {
            store.sync().await?;
        }
        Ok(())
    }
}

/// An upload into one of the buckets.
#[derive(Debug)]
struct JoinedUpload {
    upload: Arc<dyn Multipart>,
    name: String,
    key: ObjectKey,
    /// Where ranges of objects may be copied from.
    opened: HashMap<String, Arc<dyn ObjectStore>>,
}

#[async_trait::async_trait]
impl Multipart for JoinedUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.upload.put_part(number, body).await.map_err(|error| error.about(&self.key))
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let missing = || StoreError::NotFound(from.key.clone());
        let (name, inside) = split(from.key.as_bytes()).ok_or_else(missing)?;
        let source = ObjectRef { key: ObjectKey::try_from(inside).map_err(|_| missing())?, ..from.clone() };
        let copied = match name == self.name {
            true => self.upload.copy_part(number, &source, range).await,
            false => {
                let store = self.opened.get(name).ok_or_else(missing)?;
                cross_bucket_copy::copy_part(&**store, &source, range, &*self.upload, number).await
            }
        };
        copied.map_err(|error| error.about(&from.key))
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let object = self.upload.complete(precondition).await.map_err(|error| error.about(&self.key))?;
        Ok(ObjectRef { key: self.key.clone(), ..object })
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await.map_err(|error| error.about(&self.key))
    }
}

/// A bucket's name and what follows it; `None` without a `/`, or where no bucket could have what is before it as its name.
fn split(text: &[u8]) -> Option<(&str, &[u8])> {
    let at = text.iter().position(|&byte| byte == b'/')?;
    let name =
        std::str::from_utf8(&text[..at]).ok().filter(|name| !name.is_empty() && !name.starts_with('.'))?;
    Some((name, &text[at + 1..]))
}

/// A key as it is called outside its bucket. One that is too long there is left to those who know the bucket.
fn outside(bucket: &str, key: &[u8]) -> Result<ObjectKey> {
    ObjectKey::new([bucket.as_bytes(), b"/", key].concat()).map_err(|error| StoreError::InvalidKey {
        key: String::from_utf8_lossy(key).into_owned(),
        reason: error.to_string(),
    })
}

fn outside_entry(name: &str, entry: ListEntry) -> Result<ListEntry> {
    Ok(match entry {
        ListEntry::Prefix(prefix) => {
            ListEntry::Prefix(Bytes::from([name.as_bytes(), b"/", &prefix[..]].concat()))
        }
        ListEntry::Object { object, size_bytes } => {
            let key = outside(name, object.key.as_bytes())?;
            ListEntry::Object { object: ObjectRef { key, ..object }, size_bytes }
        }
    })
}
