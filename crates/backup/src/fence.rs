//! The fence: an object per lineage that names the state directory which continues it.
//!
//! Every opening of a lineage replaces the object under the condition that it is still the one that was read, and counts up the
//! generation. An exporter whose generation is no longer the newest stops. So of two machines that restored the same lineage only the
//! later one continues it, and an earlier one notices at its next pass.

use crate::keys::{Keys, Lineage, Part};
use crate::{Error, Result, document};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use store::{
    ETag, GetOptions, ObjectKey, ObjectStore, Payload, Precondition, PutOptions, StoreError, Timestamp,
};

const VERSION: u32 = 1;

/// Attempts to replace the object while others replace it too.
const ATTEMPTS: usize = 8;

/// The content of the fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u32,
    generation: u32,
    /// Random number of the state directory, in hexadecimal.
    holder: String,
    /// When the generation began, in nanoseconds since 1970, by the clock of its machine.
    taken_at: i64,
}

/// A generation that this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The number, from 1.
    pub number: u32,
    key: ObjectKey,
    etag: ETag,
}

/// Begins a generation of a lineage for the state directory `holder`.
///
/// # Errors
/// [`Error::Superseded`] if another state directory has the newest generation.
pub(crate) async fn begin(
    store: &dyn ObjectStore,
    keys: &Keys,
    lineage: Lineage,
    holder: u64,
    now: Timestamp,
) -> Result<Generation> {
    replace(store, keys, lineage, holder, now, false).await
}

/// Checks that a state directory still has the newest generation of a lineage, or that the lineage has none. Changes nothing.
///
/// # Errors
/// [`Error::Superseded`] if another state directory has it.
pub async fn check(store: &dyn ObjectStore, keys: &Keys, lineage: Lineage, holder: u64) -> Result<()> {
    match read(store, &keys.part(lineage, Part::Generation)?).await? {
        Some((record, _)) if record.holder != holder_text(holder) => Err(superseded_by(&record)),
        _ => Ok(()),
    }
}

/// Takes a lineage over from the state directory that has it: the first step after a restoration.
pub async fn take_over(
    store: &dyn ObjectStore,
    keys: &Keys,
    lineage: Lineage,
    holder: u64,
    now: Timestamp,
) -> Result<Generation> {
    replace(store, keys, lineage, holder, now, true).await
}

async fn replace(
    store: &dyn ObjectStore,
    keys: &Keys,
    lineage: Lineage,
    holder: u64,
    now: Timestamp,
    takes_over: bool,
) -> Result<Generation> {
    let key = keys.part(lineage, Part::Generation)?;
    let holder = holder_text(holder);
    for _ in 0..ATTEMPTS {
        let found = read(store, &key).await?;
        if let Some((record, _)) = &found
            && record.holder != holder
            && !takes_over
        {
            return Err(superseded_by(record));
        }
        let (generation, condition) = match found {
            Some((record, etag)) => (record.generation + 1, Precondition::Matches(etag)),
            None => (1, Precondition::Absent),
        };
        let record = Record { version: VERSION, generation, holder: holder.clone(), taken_at: now.0 };
        match write(store, &key, &record, condition).await {
            Ok(etag) => return Ok(Generation { number: generation, key, etag }),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StoreError::Unavailable(format!("'{key}' keeps changing")).into())
}

/// Replaces the fence. A store without conditional writes is written to unconditionally: there the fence only notices machines that
/// do not start at the same moment.
async fn write(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    record: &Record,
    precondition: Precondition,
) -> Result<ETag, StoreError> {
    let text = document::encode(record).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let body: Payload = [Bytes::from(text)].into_iter().collect();
    let options = PutOptions { precondition, ..PutOptions::default() };
    match store.put(key, body.clone(), options).await {
        Err(StoreError::Unsupported(_)) => Ok(store.put(key, body, PutOptions::default()).await?.etag),
        put => Ok(put?.etag),
    }
}

async fn read(store: &dyn ObjectStore, key: &ObjectKey) -> Result<Option<(Record, ETag)>> {
    let object = match store.get(key, GetOptions::default()).await {
        Ok(object) => object,
        Err(StoreError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let etag = object.meta.object.etag.clone();
    let body = object.body.try_collect::<Vec<Bytes>>().await?.concat();
    let record = document::decode(&body, VERSION).map_err(|what| Error::damaged(key, what))?;
    Ok(Some((record, etag)))
}

fn holder_text(holder: u64) -> String {
    format!("{holder:016x}")
}

fn superseded_by(record: &Record) -> Error {
    Error::Superseded { number: record.generation, taken_at: Timestamp(record.taken_at) }
}

impl Generation {
    /// Checks that no later generation has begun. Returns false if the fence is missing, for example because someone has
    /// emptied the bucket.
    ///
    /// # Errors
    /// [`Error::Superseded`] if a later generation has begun.
    pub(crate) async fn is_newest(&self, store: &dyn ObjectStore) -> Result<bool> {
        if store.find(&self.key).await?.is_some_and(|found| found.object.etag == self.etag) {
            return Ok(true);
        }
        match read(store, &self.key).await? {
            None => Ok(false),
            Some((_, etag)) if etag == self.etag => Ok(true),
            Some((record, _)) => Err(superseded_by(&record)),
        }
    }
}
