//! Copies inside the store.
//!
//! The precondition at the target is checked by a HEAD before the copy and is also sent with the copy. Recent servers
//! honour it. Other servers ignore it, so that a change between the two requests goes unnoticed.
//!
//! If the response to a copy was lost, the retry may be refused because the first attempt already changed the target (or
//! the source, for a copy onto itself). Then the object at the target shows whether the first attempt took effect.

use super::S3Store;
use super::call::{Call, etag_value};
use super::description;
use super::escape;
use super::failure::Failure;
use super::headers::{self, value};
use super::request_counts::RequestKind;
use super::xml;
use http::Method;
use http::header::{HeaderName, HeaderValue};
use store::{CopyOptions, ETag, ObjectKey, ObjectRef, ObjectStore as _, Precondition, Result, StoreError};

/// Maximum size of an object for CopyObject, in bytes (S3 API reference, CopyObject).
const WHOLE_BYTES_MAX: u64 = 5 << 30;

const SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const TAGGING_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-tagging-directive");
const METADATA_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");

impl S3Store {
    pub(super) async fn copy_object(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: CopyOptions,
    ) -> Result<ObjectRef> {
        self.check_distinct(to).await?;
        if !options.is_checked {
            self.check(to, &options.precondition).await?;
        }
        if from.key == *to && options.attributes.is_none() && options.tags.is_none() {
            return self.copy_onto_itself(from).await;
        }
        if from.key != *to
            && let Some(source) = self.large(from, options.size_bytes).await?
        {
            match self.copy_in_parts(from, to, &options, source).await {
                // Some servers do not implement part copies, and some users have no permission for them.
                Err(StoreError::Invalid(_) | StoreError::Unsupported(_) | StoreError::Denied(_)) => {}
                copied => return copied,
            }
        }
        let options = match from.key == *to && options.attributes.is_none() {
            // S3 refuses a copy onto itself that changes only the tags: send the attributes too.
            true => self.with_source_attributes(from, options).await?,
            false => self.preserve_uncopied(from, options).await?,
        };
        let copied = match self.copy_whole(from, to, &options).await {
            // Some servers have no copies on a condition. It held a moment ago.
            Err(StoreError::Unsupported(_)) if options.precondition != Precondition::None => {
                let options = CopyOptions { precondition: Precondition::None, ..options.clone() };
                self.copy_whole(from, to, &options).await
            }
            copied => copied,
        };
        match copied {
            Err(error @ (StoreError::Invalid(_) | StoreError::Unsupported(_))) => {
                let source = self.head_object(&from.key).await?;
                if source.size_bytes <= WHOLE_BYTES_MAX {
                    return Err(error);
                }
                self.copy_in_parts(from, to, &options, source).await
            }
            copied => copied,
        }
    }

    /// Returns options with the attributes of the source. Fails if the source has another etag than `from`.
    async fn with_source_attributes(&self, from: &ObjectRef, options: CopyOptions) -> Result<CopyOptions> {
        let source = self.head_object(&from.key).await?;
        if source.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        Ok(CopyOptions { attributes: Some(source.attributes), ..options })
    }

    /// Copies an object by one request.
    async fn copy_whole(&self, from: &ObjectRef, to: &ObjectKey, options: &CopyOptions) -> Result<ObjectRef> {
        let mut call = self.call(RequestKind::Copy, Method::PUT, to)?.condition(&options.precondition)?;
        call = match &options.attributes {
            None => {
                self.client.add_encryption(call)?.header(METADATA_DIRECTIVE, HeaderValue::from_static("COPY"))
            }
            Some(attributes) => {
                let replace = HeaderValue::from_static("REPLACE");
                self.client.add_attributes(call, attributes)?.header(METADATA_DIRECTIVE, replace)
            }
        };
        if let Some(tags) = &options.tags {
            call = description::add_tags(call, tags)?
                .header(TAGGING_DIRECTIVE, HeaderValue::from_static("REPLACE"));
        }
        call = self.with_source(call, from)?;
        let mut retry = self.client.retry();
        let copied = self.client.fetch_as(&call, &mut retry, |answer| {
            let etag = ETag::new(&xml::parse_etag(&answer.body, "CopyObjectResult")?);
            let version = headers::version(&answer.headers);
            Ok(ObjectRef { key: to.clone(), etag, version, last_modified: None })
        });
        match copied.await {
            Err(failure) if retry.was_ambiguous() && is_refused(&failure) => {
                self.recognise_copy(from, to, options).await?.ok_or(failure.error)
            }
            copied => Ok(copied?),
        }
    }

    /// Returns the object at the target if the copy may have made it: it has the requested user metadata or, if the
    /// copy keeps the source's attributes, the source's etag, which means equal bytes. `None` otherwise.
    async fn recognise_copy(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: &CopyOptions,
    ) -> Result<Option<ObjectRef>> {
        let Some(found) = self.find(to).await? else { return Ok(None) };
        let is_ours = match &options.attributes {
            Some(asked) => !asked.user.is_empty() && found.attributes.user == asked.user,
            None => found.object.etag == from.etag,
        };
        Ok(is_ours.then_some(found.object))
    }

    /// Copies an object onto itself without a change, which S3 refuses: only checks that the object has the ref's etag.
    async fn copy_onto_itself(&self, from: &ObjectRef) -> Result<ObjectRef> {
        let meta = self.head_object(&from.key).await?;
        if meta.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        Ok(meta.object)
    }

    /// Adds the source of a copy, under the condition that it still has the ref's etag.
    pub(super) fn with_source(&self, call: Call, from: &ObjectRef) -> Result<Call> {
        let mut source = Vec::with_capacity(128);
        source.push(b'/');
        escape::push_path(&mut source, self.bucket.as_bytes());
        source.push(b'/');
        escape::push_path(&mut source, from.key.as_bytes());
        if let Some(version) = &from.version {
            source.extend_from_slice(b"?versionId=");
            escape::push_query(&mut source, version.as_bytes());
        }
        let source = value("key", &String::from_utf8_lossy(&source))?;
        Ok(call
            .header(SOURCE, source)
            .header(SOURCE_IF_MATCH, etag_value(&from.etag)?)
            .with_source(&from.key))
    }

    /// Fails with `PreconditionFailed` unless the object at the key meets the precondition at present.
    pub(super) async fn check(&self, key: &ObjectKey, precondition: &Precondition) -> Result<()> {
        if *precondition == Precondition::None {
            return Ok(());
        }
        let found = self.find(key).await?.map(|meta| meta.object.etag);
        let holds = match precondition {
            Precondition::None => true,
            Precondition::Absent => found.is_none(),
            Precondition::Matches(etag) => found.as_ref() == Some(etag),
        };
        if holds { Ok(()) } else { Err(StoreError::PreconditionFailed(key.clone())) }
    }
}

fn is_refused(failure: &Failure) -> bool {
    matches!(failure.error, StoreError::PreconditionFailed(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, S3Buckets, S3Config};
    use std::sync::Arc;
    use store::{Buckets, Entropy, ObjectStore, Payload, SystemClock};

    async fn store(server: &servers::S3Server) -> S3Store {
        let credentials = Credentials::new(server.access_key(), server.secret_key(), None).unwrap();
        let config = S3Config {
            endpoint: Some(server.endpoint()),
            credentials: credentials.into(),
            ..S3Config::default()
        };
        let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7))).unwrap();
        buckets.create("bucket").await.unwrap();
        buckets.open_store("bucket").await.unwrap()
    }

    /// The servers verify the checksum of every PUT and part, and refuse bytes that were changed in transit.
    #[tokio::test]
    async fn bytes_changed_in_transit_are_refused() {
        for server in [servers::minio(), servers::versitygw()] {
            let store = store(&server).await;
            let key = ObjectKey::try_from("k").unwrap();
            let mut call =
                store.call(RequestKind::Put, Method::PUT, &key).unwrap().body(Payload::from("changed"));
            call.checksum = Some(crate::put::crc64nvme(&Payload::from("as it was")));
            let mut retry = store
                .client
                .retry_with(crate::RetryPolicy { attempts_max: 1, ..crate::RetryPolicy::default() });
            let put = store.client.fetch_as(&call, &mut retry, Ok).await;
            assert!(matches!(put.unwrap_err().error, StoreError::Corrupt(_)));
            assert!(matches!(store.head(&key).await, Err(StoreError::NotFound(_))));
        }
    }
}
