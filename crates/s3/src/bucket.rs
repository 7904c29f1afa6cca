//! A bucket as requests see it: its store and its settings.

use bytes::Bytes;
use s3s::{S3Result, s3_error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use store::{ObjectKey, ObjectStore, Settings, Uploads};

use crate::error::{from_store, not_implemented};

/// The bucket of a request.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn ObjectStore>,
}

impl Bucket {
    /// Returns the bucket's multipart uploads. Fails with `NotImplemented` if its store has none.
    pub(crate) fn uploads(&self) -> S3Result<&dyn Uploads> {
        self.store.uploads().ok_or_else(|| not_implemented("A multipart upload"))
    }

    fn settings(&self) -> S3Result<&dyn Settings> {
        self.store.settings().ok_or_else(|| not_implemented("A setting of this bucket"))
    }

    /// Returns a setting of the bucket as it is stored; `None` if it is not set, or if the store has no settings.
    pub(crate) async fn text(&self, name: &str) -> S3Result<Option<Bytes>> {
        match self.store.settings() {
            Some(settings) => settings.get(name).await.map_err(from_store),
            None => Ok(None),
        }
    }

    pub(crate) async fn set_text(&self, name: &str, value: Option<Bytes>) -> S3Result<()> {
        self.settings()?.set(name, value).await.map_err(from_store)
    }

    /// Returns a setting of the bucket, parsed from JSON; `None` if it is not set. Fails with `InternalError` if it
    /// cannot be parsed.
    pub(crate) async fn setting<T: DeserializeOwned>(&self, name: &str) -> S3Result<Option<T>> {
        let Some(text) = self.text(name).await? else { return Ok(None) };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| {
            tracing::error!(bucket = %self.name, name, %error, "a bucket setting cannot be parsed; set it again");
            s3_error!(InternalError, "the bucket's {name} is damaged; set it again")
        })
    }

    pub(crate) async fn set<T: Serialize>(&self, name: &str, value: Option<&T>) -> S3Result<()> {
        let text = value.map(serde_json::to_vec).transpose();
        let text = text.map_err(|error| s3_error!(InternalError, "{name}: {error}"))?;
        self.set_text(name, text.map(Bytes::from)).await
    }
}

/// Parses the key of a request. Errors: `KeyTooLongError`, `InvalidArgument` for an empty key.
pub(crate) fn key(text: &str) -> S3Result<ObjectKey> {
    ObjectKey::try_from(text).map_err(|error| match error {
        store::InvalidKey::TooLong(_) => s3_error!(KeyTooLongError, "Your key is too long"),
        store::InvalidKey::Empty => s3_error!(InvalidArgument, "{error}"),
    })
}
