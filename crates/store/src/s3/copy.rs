//! Copies inside the store.
//!
//! The condition at the target is checked by a HEAD before and sent along: the newest servers honour it, others
//! ignore it, and to them a change between the two requests goes unnoticed.
//!
//! A copy whose answer was lost may be refused when it is asked for again: it met its own outcome at the target, or, onto
//! itself, in place of its source. It is recognised by what is there then.

use super::S3Store;
use super::call::{Call, etag_value};
use super::counts::RequestKind;
use super::escape;
use super::failure::Failure;
use super::headers::{self, value};
use super::xml;
use crate::{
    CopyOptions, ETag, Multipart, ObjectKey, ObjectMeta, ObjectRef, ObjectStore as _, Precondition, Result,
    StoreError,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use std::ops::Range;

/// The largest object CopyObject copies, in bytes (S3 API reference, CopyObject).
const WHOLE_BYTES_MAX: u64 = 5 << 30;

/// The smallest part of a copy in parts, in bytes.
const PART_BYTES_MIN: u64 = 1 << 30;

/// The most parts an object can have.
const PARTS_MAX: u64 = 10_000;

/// Parts copied at the same time.
const PARALLEL: usize = 8;

const SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const METADATA_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");

impl S3Store {
    pub(super) async fn copy_object(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: CopyOptions,
    ) -> Result<ObjectRef> {
        self.check_distinct(to).await?;
        self.check(to, &options.precondition).await?;
        if from.key == *to && options.attributes.is_none() {
            return self.copy_onto_itself(from).await;
        }
        let options = self.copying_all(from, options).await?;
        match self.copy_whole(from, to, &options).await {
            Err(error @ (StoreError::Invalid(_) | StoreError::Unsupported(_))) => {
                let source = self.head_object(&from.key).await?;
                if source.size_bytes <= WHOLE_BYTES_MAX {
                    return Err(error);
                }
                let part_bytes = source.size_bytes.div_ceil(PARTS_MAX).max(PART_BYTES_MIN);
                self.copy_in_parts(from, to, options, source, part_bytes).await
            }
            copied => copied,
        }
    }

    async fn copy_whole(&self, from: &ObjectRef, to: &ObjectKey, options: &CopyOptions) -> Result<ObjectRef> {
        let mut call = self.call(RequestKind::Copy, Method::PUT, to)?.condition(&options.precondition)?;
        call = match &options.attributes {
            None => self.client.protect(call)?.header(METADATA_DIRECTIVE, HeaderValue::from_static("COPY")),
            Some(attributes) => {
                let replace = HeaderValue::from_static("REPLACE");
                self.client.describe_as(call, attributes)?.header(METADATA_DIRECTIVE, replace)
            }
        };
        call = self.copying(call, from)?;
        let mut retry = self.client.retry();
        let copied = self.client.fetch_as(&call, &mut retry, |answer| {
            let etag = ETag::new(&xml::made(&answer.body, "CopyObjectResult")?);
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

    /// The object at the target, if it is what a copy would have made: it has the headers asked for, or its source's tag,
    /// which means the same bytes.
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

    /// S3 refuses to copy an object onto itself without a change.
    async fn copy_onto_itself(&self, from: &ObjectRef) -> Result<ObjectRef> {
        let meta = self.head_object(&from.key).await?;
        if meta.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        Ok(meta.object)
    }

    /// Copies what is too large for one request; parts keep neither headers nor tags, so both are read first.
    pub(super) async fn copy_in_parts(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: CopyOptions,
        source: ObjectMeta,
        part_bytes: u64,
    ) -> Result<ObjectRef> {
        let tags = self.get_tags(&from.key).await?;
        let attributes = options.attributes.unwrap_or(source.attributes);
        let upload = self.begin_multipart(to, &attributes, &tags).await?;
        let copies =
            parts(source.size_bytes, part_bytes).map(|(number, range)| upload.copy_part(number, from, range));
        match stream::iter(copies).buffer_unordered(PARALLEL).try_collect::<Vec<_>>().await {
            Ok(_) => upload.complete(options.precondition).await,
            Err(error) => {
                // The first error counts; parts that cannot be freed are garbage.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Names the source of a copy; it must still have the ref's tag.
    pub(super) fn copying(&self, call: Call, from: &ObjectRef) -> Result<Call> {
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
        Ok(call.header(SOURCE, source).header(SOURCE_IF_MATCH, etag_value(&from.etag)?).copying(&from.key))
    }

    /// Fails unless the condition holds at the key just now.
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

/// Numbers and ranges of parts of equal size.
fn parts(size_bytes: u64, part_bytes: u64) -> impl Iterator<Item = (u32, Range<u64>)> {
    let starts = (0..size_bytes.div_ceil(part_bytes)).map(move |index| index * part_bytes);
    (1..).zip(starts.map(move |start| start..(start + part_bytes).min(size_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::{Credentials, S3Buckets, S3Config};
    use crate::{Attributes, Buckets, Entropy, GetOptions, ObjectStore, Payload, PutOptions, SystemClock};
    use std::sync::Arc;

    #[test]
    fn parts_cover_the_object() {
        let got: Vec<_> = parts(10, 4).collect();
        assert_eq!(got, [(1, 0..4), (2, 4..8), (3, 8..10)]);
        assert_eq!(parts(8, 4).last(), Some((2, 4..8)));
    }

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

    #[tokio::test]
    async fn a_copy_in_parts_keeps_bytes_headers_and_tags() {
        for server in [servers::minio(), servers::versitygw()] {
            let store = store(&server).await;
            let (from, to) = (ObjectKey::try_from("from").unwrap(), ObjectKey::try_from("dir/to").unwrap());
            let body: Vec<u8> = (0..13_u32 << 20).map(|at| (at / 1000) as u8).collect();
            let attributes = Attributes {
                content_type: Some("text/x-long".to_owned()),
                user: [("mode".to_owned(), "0600".to_owned())].into(),
                ..Attributes::default()
            };
            let tags = [("stage".to_owned(), "raw".to_owned())].into();
            let options = PutOptions { attributes: attributes.clone(), tags, ..PutOptions::default() };
            let object = store.put(&from, Payload::from(body.clone()), options.clone()).await.unwrap();
            let source = store.head(&from).await.unwrap();
            let copied =
                store.copy_in_parts(&object, &to, CopyOptions::default(), source, 5 << 20).await.unwrap();
            let found = store.head(&to).await.unwrap();
            assert_eq!((found.object.etag, found.attributes), (copied.etag, attributes));
            assert_eq!(store.tags(&to).await.unwrap(), options.tags);
            let stored = store.get(&to, GetOptions::default()).await.unwrap().body;
            assert!(stored.try_collect::<Vec<_>>().await.unwrap().concat() == body);
        }
    }

    /// The servers verify the checksum that every PUT and part carries: bytes that changed on the way are refused.
    #[tokio::test]
    async fn bytes_that_changed_on_the_way_are_refused() {
        for server in [servers::minio(), servers::versitygw()] {
            let store = store(&server).await;
            let key = ObjectKey::try_from("k").unwrap();
            let mut call =
                store.call(RequestKind::Put, Method::PUT, &key).unwrap().body(Payload::from("changed"));
            call.checksum = Some(crate::s3::put::crc64nvme(&Payload::from("as it was")));
            let mut retry = store
                .client
                .retry_with(crate::s3::RetryPolicy { attempts_max: 1, ..crate::s3::RetryPolicy::default() });
            let put = store.client.fetch_as(&call, &mut retry, Ok).await;
            assert!(matches!(put.unwrap_err().error, StoreError::Corrupt(_)));
            assert!(matches!(store.head(&key).await, Err(StoreError::NotFound(_))));
        }
    }
}
