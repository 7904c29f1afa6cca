//! The context of cases: a store, shorthands of its calls, and checks that report the line of a failure.

use super::Capabilities;
use crate::{
    ETag, GetOptions, ListEntry, ListPage, ListRequest, ObjectKey, ObjectMeta, ObjectRef, ObjectStore,
    Payload, Precondition, PutOptions, Result, StoreError,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

/// The result of a case.
pub type Outcome<T = ()> = std::result::Result<T, Failure>;

/// A failed check: what was found instead of what was expected, and the line of the check.
#[derive(Debug)]
pub struct Failure {
    at: &'static Location<'static>,
    what: String,
}

impl Failure {
    #[track_caller]
    pub(super) fn new(what: String) -> Self {
        Self { at: Location::caller(), what }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.at.file(), self.at.line(), self.what)
    }
}

impl From<StoreError> for Failure {
    #[track_caller]
    fn from(error: StoreError) -> Self {
        Self::new(format!("{error} ({error:?})"))
    }
}

impl From<tokio::task::JoinError> for Failure {
    #[track_caller]
    fn from(error: tokio::task::JoinError) -> Self {
        Self::new(error.to_string())
    }
}

/// Fails unless `found` is `expected`.
#[track_caller]
pub(super) fn same<T: PartialEq<U> + fmt::Debug, U: fmt::Debug>(found: T, expected: U) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(format!("found {found:.300?}, expected {expected:.300?}")))
}

/// Fails with `what` unless the condition holds.
#[track_caller]
pub(super) fn holds(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(Failure::new(what.to_owned())) }
}

/// The kinds of errors that cases expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Precondition,
    InvalidRange,
    InvalidKey,
    Invalid,
    Unsupported,
}

/// Fails unless the call returned this kind of error.
#[track_caller]
pub(super) fn refused<T>(result: Result<T>, expected: Refusal) -> Outcome {
    let error = match result {
        Ok(_) => return Err(Failure::new(format!("it was accepted, expected {expected:?}"))),
        Err(error) => error,
    };
    let found = match &error {
        StoreError::NotFound(_) => Some(Refusal::NotFound),
        StoreError::PreconditionFailed(_) => Some(Refusal::Precondition),
        StoreError::InvalidRange(_) => Some(Refusal::InvalidRange),
        StoreError::InvalidKey { .. } => Some(Refusal::InvalidKey),
        StoreError::Invalid(_) => Some(Refusal::Invalid),
        StoreError::Unsupported(_) => Some(Refusal::Unsupported),
        _ => None,
    };
    if found == Some(expected) {
        return Ok(());
    }
    Err(Failure::new(format!("found {error:?}, expected {expected:?}")))
}

/// Makes a key of a valid text.
pub(super) fn key(text: impl AsRef<[u8]>) -> ObjectKey {
    match ObjectKey::try_from(text.as_ref()) {
        Ok(key) => key,
        Err(error) => panic!("the case's own key: {error}"),
    }
}

/// Returns `len` bytes that depend on `seed` and position.
pub(super) fn pattern(seed: u64, len: usize) -> Bytes {
    let entropy = crate::Entropy::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&entropy.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// Returns the options of a write under a precondition.
pub(super) fn when(precondition: Precondition) -> PutOptions {
    PutOptions { precondition, ..PutOptions::default() }
}

/// Returns an etag that no object ever had.
pub(super) fn foreign_etag() -> ETag {
    ETag::new("\"0123456789abcdef0123456789abcdef\"")
}

/// The store of a case, and its capabilities.
#[derive(Debug, Clone)]
pub struct World {
    /// The store, empty at the beginning.
    pub store: Arc<dyn ObjectStore>,
    /// The store's capabilities.
    pub capabilities: Capabilities,
}

impl World {
    pub(super) async fn put(&self, name: impl AsRef<[u8]>, body: impl Into<Payload>) -> Result<ObjectRef> {
        self.store.put(&key(name), body.into(), PutOptions::default()).await
    }

    /// Stores an object under a precondition.
    pub(super) async fn put_when(
        &self,
        name: &str,
        body: &'static str,
        precondition: Precondition,
    ) -> Result<ObjectRef> {
        self.store.put(&key(name), body.into(), when(precondition)).await
    }

    /// Filters names or listed texts: for a store that cannot hold both `a` and `a/...`, drops the names that have other names
    /// below them.
    pub(super) fn possible<N: AsRef<[u8]> + Copy>(&self, names: impl AsRef<[N]>) -> Vec<N> {
        let names = names.as_ref();
        let below = |upper: &[u8], lower: &[u8]| {
            lower
                .strip_prefix(upper)
                .is_some_and(|rest| upper.ends_with(b"/") && !rest.is_empty() || rest.starts_with(b"/"))
        };
        let covers = |upper: &N| names.iter().any(|lower| below(upper.as_ref(), lower.as_ref()));
        let has_both = self.capabilities.object_beside_directory;
        names.iter().copied().filter(|name| has_both || !covers(name)).collect()
    }

    /// Makes empty objects, several at a time.
    pub(super) async fn fill<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<()> {
        let keys: Vec<ObjectKey> = names.into_iter().map(key).collect();
        let puts = keys.into_iter().map(|key| {
            let store = self.store.clone();
            async move { store.put(&key, Payload::default(), PutOptions::default()).await.map(drop) }
        });
        futures_util::stream::iter(puts).buffer_unordered(16).try_collect().await
    }

    pub(super) async fn head(&self, name: impl AsRef<[u8]>) -> Result<ObjectMeta> {
        self.store.head(&key(name)).await
    }

    pub(super) async fn delete(&self, name: impl AsRef<[u8]>) -> Result<()> {
        self.store.delete(&key(name), Precondition::None).await
    }

    /// Reads the whole body of an object.
    pub(super) async fn read(&self, name: impl AsRef<[u8]>) -> Result<Bytes> {
        self.get(name, GetOptions::default()).await
    }

    pub(super) async fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.get(name, GetOptions { range: Some(range), ..GetOptions::default() }).await
    }

    pub(super) async fn get(&self, name: impl AsRef<[u8]>, options: GetOptions) -> Result<Bytes> {
        let object = self.store.get(&key(name), options).await?;
        let pieces: Vec<Bytes> = object.body.try_collect().await?;
        Ok(pieces.concat().into())
    }

    /// Returns all texts of a listing, page by page.
    pub(super) async fn texts(&self, request: ListRequest) -> Outcome<Vec<String>> {
        let pages = self.pages(request).await?;
        let entries = pages.iter().flat_map(|page| &page.entries);
        Ok(entries.map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect())
    }

    /// Returns all keys.
    pub(super) async fn all_keys(&self) -> Outcome<Vec<ObjectKey>> {
        let pages = self.pages(everything()).await?;
        let entries = pages.into_iter().flat_map(|page| page.entries);
        Ok(entries.filter_map(|entry| Some(entry.into_object()?.0.key)).collect())
    }

    /// Returns all pages of a listing. Fails on a page that is too long, or if the listing does not advance.
    pub(super) async fn pages(&self, request: ListRequest) -> Outcome<Vec<ListPage>> {
        let mut pages: Vec<ListPage> = Vec::new();
        let mut token = request.token.clone();
        loop {
            let page = self.store.list(ListRequest { token, ..request.clone() }).await?;
            holds(page.entries.len() <= request.limit, "a page is longer than the limit")?;
            let last = pages.last().and_then(|page| page.entries.last());
            let texts = last.into_iter().chain(&page.entries).map(ListEntry::text);
            holds(texts.is_sorted_by(|a, b| a < b), "the listing does not ascend")?;
            token = page.next.clone();
            pages.push(page);
            if token.is_none() {
                return Ok(pages);
            }
        }
    }
}

/// Returns a request for all keys.
pub(super) fn everything() -> ListRequest {
    ListRequest { limit: 1000, ..ListRequest::default() }
}

/// Returns a request for one level below `prefix`.
pub(super) fn level(prefix: &str) -> ListRequest {
    ListRequest { prefix: Bytes::copy_from_slice(prefix.as_bytes()), delimiter: Some(b'/'), ..everything() }
}
