//! Observes a bucket completely, in each way that the interface offers.

use super::bucket_model::{BucketModel, PartModel, UploadModel, VersionModel};
use super::target::StorageTarget;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::{
    Buckets, ETag, Entropy, GetOptions, ListEntry, ListRequest, ListVersions, NULL_VERSION, Object,
    ObjectKey, ObjectStore, StoreError, Tags, Version, VersionEntry,
};

/// A failed observation: a store error, or two views that contradict each other.
pub(super) enum ObserveError {
    Store(StoreError),
    Inconsistent(String),
}

impl From<StoreError> for ObserveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

type Observed<T> = Result<T, ObserveError>;

/// Bytes by etag, known from earlier in the session. Most observations read only some of them again.
pub(super) type KnownBytes = HashMap<ETag, Bytes>;

/// One known object in this many is read again.
const READ_AGAIN_ONE_IN: u64 = 8;

pub(super) fn object_key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap_or_else(|_| panic!("invalid key {text}"))
}

pub(super) fn key_text(key: &ObjectKey) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

pub(super) async fn read_body(object: Object) -> store::Result<Bytes> {
    let mut pieces: Vec<Bytes> = object.body.try_collect().await?;
    match pieces.as_mut_slice() {
        [whole] => Ok(std::mem::take(whole)),
        pieces => Ok(pieces.concat().into()),
    }
}

/// Observes a bucket, with the settings of these names.
pub(super) async fn observe_bucket(
    drive: &impl StorageTarget,
    bucket: &str,
    settings: &[&str],
    entropy: &Entropy,
    known: &KnownBytes,
) -> Observed<BucketModel> {
    let store = match Buckets::open(drive, bucket).await {
        Err(StoreError::NoSuchBucket(_)) => return Ok(BucketModel::default()),
        opened => opened?,
    };
    let mut seen = BucketModel { exists: true, ..BucketModel::default() };
    let versions = store.versions().ok_or_else(|| inconsistent("the store has no versions"))?;
    seen.versioning = versions.state().await?;
    for version in all_versions(&*store, entropy).await? {
        let known = version.stored.as_ref().and_then(|stored| known.get(&stored.object.etag));
        let known = known.filter(|_| entropy.below(READ_AGAIN_ONE_IN) > 0);
        let observed = observe_version(&*store, &version, known).await?;
        let of_key = seen.keys.entry(key_text(&version.key).into()).or_default();
        if version.is_newest != of_key.is_empty() {
            return Err(inconsistent(format!(
                "the wrong version of {} is marked as the newest",
                key_text(&version.key)
            )));
        }
        Arc::make_mut(of_key).push(observed);
    }
    compare_listings(&*store, &seen, entropy).await?;
    seen.uploads = observe_uploads(&*store).await?;
    for name in settings {
        let value =
            store.settings().ok_or_else(|| inconsistent("the store has no settings"))?.get(name).await?;
        value.into_iter().for_each(|value| drop(seen.settings.insert((*name).into(), value)));
    }
    Ok(seen)
}

fn inconsistent(what: impl Into<String>) -> ObserveError {
    ObserveError::Inconsistent(what.into())
}

async fn all_versions(store: &dyn ObjectStore, entropy: &Entropy) -> Observed<Vec<Version>> {
    let versions = store.versions().ok_or_else(|| inconsistent("the store has no versions"))?;
    let mut limit = 1 + entropy.below(6) as usize;
    let mut found: Vec<Version> = Vec::new();
    loop {
        let last = found.last();
        let request = ListVersions {
            after: last.map(|last| Bytes::copy_from_slice(last.key.as_bytes())),
            after_version: last.map(|last| last.id.clone()),
            limit,
            ..ListVersions::default()
        };
        let page = versions.list(request).await?;
        let is_last = page.len() < limit;
        for entry in page {
            match entry {
                VersionEntry::Version(version) => found.push(*version),
                VersionEntry::Prefix(_) => {
                    return Err(inconsistent("a common prefix in a listing without a delimiter"));
                }
            }
        }
        if is_last {
            return Ok(found);
        }
        limit += found.len() / 4;
    }
}

/// Observes a version by listing and reading it.
async fn observe_version(
    store: &dyn ObjectStore,
    version: &Version,
    known: Option<&Bytes>,
) -> Observed<VersionModel> {
    let (is_named, id) = (*version.id != *NULL_VERSION, Some(version.id.clone()));
    let Some(listed) = &version.stored else {
        let (etag, bytes) = (None, None);
        return Ok(VersionModel { is_named, id, etag, bytes, user: BTreeMap::new(), tags: Tags::new() });
    };
    let tags = match store.versions() {
        Some(versions) => versions.tags(&version.key, &version.id).await?,
        None => Tags::new(),
    };
    let (etag, user) = (listed.object.etag.clone(), listed.attributes.user.clone());
    let bytes = match known {
        Some(known) => known.clone(),
        None => {
            let options = GetOptions { version: Some(version.id.clone()), ..GetOptions::default() };
            let object = store.get(&version.key, options).await?;
            let same = (&object.meta.object.etag, object.meta.size_bytes, &object.meta.attributes);
            if same != (&listed.object.etag, listed.size_bytes, &listed.attributes) {
                return Err(inconsistent(format!("listed {listed:?}, read {:?}", object.meta)));
            }
            read_body(object).await?
        }
    };
    if bytes.len() as u64 != listed.size_bytes {
        return Err(inconsistent(format!("{} bytes of {listed:?}", bytes.len())));
    }
    Ok(VersionModel { is_named, id, etag: Some(etag), bytes: Some(bytes), user, tags })
}

/// Checks that listings of keys, with and without a delimiter, agree with the versions.
async fn compare_listings(store: &dyn ObjectStore, seen: &BucketModel, entropy: &Entropy) -> Observed<()> {
    let current = || seen.keys.keys().filter_map(|key| Some((key.to_string(), seen.current(key)?)));
    let objects: Vec<(String, Option<ETag>, u64)> = current()
        .map(|(key, kept)| (key, kept.etag.clone(), kept.bytes.as_ref().map_or(0, Bytes::len) as u64))
        .collect();
    let listed = list_all(store, None, entropy).await?;
    let listed: Vec<_> = listed
        .into_iter()
        .filter_map(ListEntry::into_object)
        .map(|(object, size)| (key_text(&object.key), Some(object.etag), size))
        .collect();
    if listed != objects {
        return Err(inconsistent(format!("the listing has {listed:?}, the versions {objects:?}")));
    }
    let mut folded: Vec<String> =
        current().map(|(key, _)| key.find('/').map_or(key.clone(), |at| key[..=at].to_owned())).collect();
    folded.dedup();
    let listed = list_all(store, Some(b'/'), entropy).await?;
    let listed: Vec<String> =
        listed.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect();
    if listed != folded {
        return Err(inconsistent(format!(
            "the listing with a delimiter has {listed:?}, the versions {folded:?}"
        )));
    }
    Ok(())
}

async fn list_all(
    store: &dyn ObjectStore,
    delimiter: Option<u8>,
    entropy: &Entropy,
) -> Observed<Vec<ListEntry>> {
    let mut limit = 1 + entropy.below(6) as usize;
    let (mut entries, mut token) = (Vec::new(), None);
    loop {
        let page = store.list(ListRequest { delimiter, token, limit, ..ListRequest::default() }).await?;
        entries.extend(page.entries);
        token = page.next;
        if token.is_none() {
            return Ok(entries);
        }
        limit += entries.len() / 4;
    }
}

async fn observe_uploads(store: &dyn ObjectStore) -> Observed<BTreeMap<Option<String>, UploadModel>> {
    let uploads = store.uploads().ok_or_else(|| inconsistent("the store has no uploads"))?;
    let mut found = BTreeMap::new();
    for upload in uploads.list(b"").await? {
        let parts = uploads.parts(&upload.key, &upload.id).await?;
        let parts = parts.iter().map(|part| (part.number, PartModel::Listed(part.size_bytes as usize)));
        let model = UploadModel {
            key: key_text(&upload.key),
            user: upload.attributes.user,
            tags: Tags::new(),
            parts: parts.collect(),
        };
        found.insert(Some(upload.id), model);
    }
    Ok(found)
}
