//! A client of S3-compatible servers.
//!
//! Owns addressing, signing, the search for credentials, the encoding of S3's operations, timeouts, retries, and the
//! conversion of servers' errors; also signed calls to other AWS services ([`AwsService`]) and the forwarding of
//! other clients' requests ([`Forwarder`]). Counts every request of an [`S3Store`] or [`S3Buckets`]
//! ([`RequestCounts`]).
//!
//! The client never normalises a key (paths are built byte by byte), reads the environment or the time of day by
//! itself, writes a secret to a log or an error, or copies a payload.
//!
//! Invariants: a body that is shorter than announced is an error or is resumed from the same object, never a short
//! stream; a request is repeated only within the limits of [`RetryPolicy`], and a few times more with renewed
//! credentials or after a refusal that may be transient; a repeated conditional write that finds the object of its
//! first attempt succeeds.

mod aws_chunked;
mod aws_service;
mod body;
mod buckets;
mod call;
mod client;
mod config;
mod copy;
mod copy_parts;
mod credentials;
mod delete;
mod description;
mod elements;
mod error_response;
mod escape;
mod failure;
mod forwarder;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod get;
mod headers;
mod key_probes;
mod learned;
mod list;
mod min_throughput;
mod multipart;
mod put;
mod request_counts;
mod retry;
mod sign;
mod tags;
mod uncopied_attributes;
mod upload;
mod xml;

pub use aws_service::{AwsService, AwsServiceError};
pub use buckets::S3Buckets;
pub use config::{Addressing, ConfigError, DEFAULT_REGION, S3Config, Timeouts, UnsignedPayload};
pub use credentials::{Credentials, CredentialsError, CredentialsSource, Found, Provider, Search};
pub use forwarder::{ForwardError, Forwarder};
pub use request_counts::{RequestCounts, RequestKind};
pub use retry::RetryPolicy;

use call::Call;
use client::Client;
use http::Method;
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError, Tags,
};

/// A bucket of an S3-compatible server. Clones are cheap.
#[derive(Debug, Clone)]
pub struct S3Store {
    client: Arc<Client>,
    bucket: Arc<str>,
}

impl S3Store {
    /// Returns the counts of the requests sent through this store's client.
    pub fn requests(&self) -> Arc<RequestCounts> {
        self.client.counts.clone()
    }

    fn call(&self, kind: RequestKind, method: Method, key: &ObjectKey) -> Result<Call> {
        if key.as_bytes().contains(&0) && !self.client.endpoint.is_aws() {
            let reason = "only AWS supports keys with a NUL byte".to_owned();
            return Err(StoreError::InvalidKey { key: key.to_string(), reason });
        }
        Call::object(kind, method, self.bucket.clone(), key)
    }
}

#[async_trait::async_trait]
impl ObjectStore for S3Store {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        self.get_object(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.head_object(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        self.put_object(key, body, options).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let upload: Arc<dyn Multipart> = self.begin_multipart(key, &attributes, &tags).await?;
        Ok(upload)
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        self.copy_object(from, to, options).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.delete_object(key, precondition).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list_page(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.get_tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.put_tags(key, &tags).await
    }
}
