//! Several buckets as one store: a key is a bucket's name, `/`, and a key in that bucket.
//!
//! Owns the set of buckets, and operations from one bucket into another, which read from the one and store in the
//! other. A bucket's own `.tenon/` prefix is left out of listings that do not ask for it.
//!
//! Refuses: to create or remove buckets; to store an object outside a bucket.

mod cross_bucket_copy;

use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::listing::{PAGE_ENTRIES_MAX, Scan, successor, token_after};
use store::{
    Attributes, Buckets, CopyOptions, GetOptions, ListEntry, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
    Tags, rename_by_copy,
};

/// Prefix of Tenon's own objects in a bucket.
const RESERVED_PREFIX: &[u8] = b".tenon/";

/// A store whose top-level directories are buckets.
#[derive(Debug)]
pub struct JoinedStore {
    buckets: Arc<dyn Buckets>,
    /// Names of the buckets to show; `None`: all.
    names: Option<BTreeSet<String>>,
    opened: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

/// An object's bucket, and its key there.
struct Location {
    /// The name of the bucket.
    name: String,
    store: Arc<dyn ObjectStore>,
    key: ObjectKey,
}

impl JoinedStore {
    /// Joins the buckets with these names, or all buckets for `None`.
    pub fn new(buckets: Arc<dyn Buckets>, names: Option<BTreeSet<String>>) -> Self {
        Self { buckets, names, opened: Mutex::default() }
    }

    /// Opens a bucket, or returns it if it is open already.
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

    /// Returns the stores of the buckets that were opened so far, by name.
    fn opened(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn ObjectStore>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the location of a key to store. Fails with `Denied` if the key is outside any bucket, and with `InvalidKey` if it is that of a
    /// bucket itself, which has no marker object.
    async fn locate(&self, key: &ObjectKey) -> Result<Location> {
        let Some((name, inside)) = split_key(key) else { return Err(self.no_location(key).await) };
        Ok(Location { store: self.open(name).await?, name: name.to_owned(), key: inside })
    }

    /// Returns the error for a key that is in no bucket.
    async fn no_location(&self, key: &ObjectKey) -> StoreError {
        if let Some((name, b"")) = split_bucket(key.as_bytes())
            && self.open(name).await.is_ok()
        {
            let reason = "the directory of a bucket has no object".to_owned();
            return StoreError::InvalidKey { key: key.to_string(), reason };
        }
        StoreError::Denied(format!(
            "'{key}' is in no bucket, and buckets are not created as directories: create one through S3"
        ))
    }

    /// Finds the location of a key to read. A key outside any bucket is not found.
    async fn locate_existing(&self, key: &ObjectKey) -> Result<Location> {
        if split_key(key).is_none() {
            return Err(StoreError::NotFound(key.clone()));
        }
        match self.locate(key).await {
            // `BucketState`: the key begins with an invalid bucket name.
            Err(StoreError::NoSuchBucket(_) | StoreError::BucketState { .. }) => {
                Err(StoreError::NotFound(key.clone()))
            }
            location => location,
        }
    }

    /// Returns the names of the joined buckets that begin with `prefix`, in the order of their listed prefixes.
    async fn bucket_names(&self, prefix: &[u8]) -> Result<Vec<String>> {
        let mut names: Vec<String> = match &self.names {
            Some(names) => names.iter().cloned().collect(),
            None => self.buckets.list().await?,
        };
        names.retain(|name| name.as_bytes().starts_with(prefix));
        // In the order of listed prefixes, which end in `/`.
        names.sort_by_key(|name| format!("{name}/"));
        Ok(names)
    }

    /// Returns a page of the buckets as common prefixes, `NAME/`.
    async fn list_buckets(&self, scan: &Scan) -> Result<ListPage> {
        let texts = self.bucket_names(&scan.prefix).await?.into_iter().map(|name| format!("{name}/"));
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

    /// Lists all objects of all buckets. A page has objects of one bucket only, possibly none although more pages
    /// follow.
    async fn list_all(&self, scan: &Scan) -> Result<ListPage> {
        for name in self.bucket_names(&scan.prefix).await? {
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
                // All entries of the page were left out.
                (Some(_), None) => token_after(&[root.as_bytes(), RESERVED_PREFIX, b"\xff"].concat()),
                (None, _) => token_after(&end),
            };
            return Ok(ListPage { entries: page.entries, next: Some(next) });
        }
        Ok(ListPage::default())
    }

    /// Lists one bucket. A missing bucket is an empty page.
    async fn list_in(&self, name: &str, request: ListRequest) -> Result<ListPage> {
        let store = match self.open(name).await {
            Err(StoreError::NoSuchBucket(_) | StoreError::BucketState { .. }) => {
                return Ok(ListPage::default());
            }
            store => store?,
        };
        let shows_own = request.prefix.starts_with(RESERVED_PREFIX);
        let ListPage { entries, next } = store.list(request).await?;
        let is_shown = |entry: &ListEntry| shows_own || !entry.text().starts_with(RESERVED_PREFIX);
        let entries = entries.into_iter().filter(is_shown).map(|entry| joined_entry(name, entry));
        Ok(ListPage { entries: entries.collect::<Result<_>>()?, next })
    }
}

#[async_trait::async_trait]
impl ObjectStore for JoinedStore {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let location = self.locate_existing(key).await?;
        let mut object =
            location.store.get(&location.key, options).await.map_err(|error| error.about(key))?;
        object.meta.object.key = key.clone();
        Ok(object)
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let location = self.locate_existing(key).await?;
        let mut meta = location.store.head(&location.key).await.map_err(|error| error.about(key))?;
        meta.object.key = key.clone();
        Ok(meta)
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let location = self.locate(key).await?;
        let object =
            location.store.put(&location.key, body, options).await.map_err(|error| error.about(key))?;
        Ok(ObjectRef { key: key.clone(), ..object })
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let Location { name, store, key: inside } = self.locate(key).await?;
        let upload = store.multipart(&inside, attributes, tags).await?;
        let opened = self.opened().clone();
        Ok(Arc::new(JoinedUpload { upload, name, key: key.clone(), opened }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let source = self.locate_existing(&from.key).await?;
        let target = self.locate(to).await?;
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
        let (source, target) = (self.locate_existing(&from.key).await?, self.locate(to).await?);
        if source.name != target.name {
            return rename_by_copy(self, from, to, precondition).await;
        }
        let inside = ObjectRef { key: source.key, ..from.clone() };
        source.store.rename(&inside, &target.key, precondition).await.map_err(|error| error.about(to))
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let location = self.locate(key).await?;
        location.store.delete(&location.key, precondition).await.map_err(|error| error.about(key))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        if let Some((name, inside)) = split_bucket(&request.prefix) {
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
                "listings of several buckets with a delimiter other than '/'".to_owned(),
            )),
        }
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let location = self.locate_existing(key).await?;
        location.store.tags(&location.key).await.map_err(|error| error.about(key))
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let location = self.locate_existing(key).await?;
        location.store.set_tags(&location.key, tags).await.map_err(|error| error.about(key))
    }

    async fn sync(&self) -> Result<()> {
        let opened: Vec<_> = self.opened().values().cloned().collect();
        for store in opened {
            store.sync().await?;
        }
        Ok(())
    }
}

/// A multipart upload into one of the buckets.
#[derive(Debug)]
struct JoinedUpload {
    upload: Arc<dyn Multipart>,
    name: String,
    key: ObjectKey,
    /// The buckets that were open when the upload began. Ranges of objects in other buckets are not found.
    opened: HashMap<String, Arc<dyn ObjectStore>>,
}

#[async_trait::async_trait]
impl Multipart for JoinedUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.upload.put_part(number, body).await.map_err(|error| error.about(&self.key))
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let missing = || StoreError::NotFound(from.key.clone());
        let (name, inside) = split_bucket(from.key.as_bytes()).ok_or_else(missing)?;
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

/// Splits a text into a bucket's name and the rest; `None` without a `/`, or if the first part cannot be a bucket's
/// name.
fn split_bucket(text: &[u8]) -> Option<(&str, &[u8])> {
    let at = text.iter().position(|&byte| byte == b'/')?;
    let name =
        std::str::from_utf8(&text[..at]).ok().filter(|name| !name.is_empty() && !name.starts_with('.'))?;
    Some((name, &text[at + 1..]))
}

/// Splits the key of an object into the name of its bucket and its key there; `None` if it is outside any bucket.
fn split_key(key: &ObjectKey) -> Option<(&str, ObjectKey)> {
    let (name, inside) = split_bucket(key.as_bytes())?;
    Some((name, ObjectKey::try_from(inside).ok()?))
}

/// Returns the joined key of an object. A key that would be too long is an error; the object is accessible through
/// its bucket alone.
fn joined_key(bucket: &str, key: &[u8]) -> Result<ObjectKey> {
    ObjectKey::new([bucket.as_bytes(), b"/", key].concat()).map_err(|error| StoreError::InvalidKey {
        key: String::from_utf8_lossy(key).into_owned(),
        reason: error.to_string(),
    })
}

/// Returns an entry of a bucket's listing with the bucket's name before its key.
fn joined_entry(name: &str, entry: ListEntry) -> Result<ListEntry> {
    Ok(match entry {
        ListEntry::Prefix(prefix) => {
            ListEntry::Prefix(Bytes::from([name.as_bytes(), b"/", &prefix[..]].concat()))
        }
        ListEntry::Object(listed) => {
            let key = joined_key(name, listed.object.key.as_bytes())?;
            ListEntry::Object(listed.with_key(key))
        }
    })
}
