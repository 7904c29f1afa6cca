//! Multipart uploads.
//!
//! If the response to a completion was lost, the upload itself shows the result: only this client knows its id, so a
//! missing upload was completed, and an existing upload was not. Another client may have replaced the object since. So the
//! object is read back and compared with the checksums of the parts that were sent.

use super::S3Store;
use super::call::Call;
use super::failure::Failure;
use super::headers::{self, value};
use super::put::{Crc64, crc64nvme};
use super::request_counts::RequestKind;
use super::xml::{self, CompletedPart};
use futures_util::TryStreamExt as _;
use http::Method;
use http::header::{ETAG, HeaderName, HeaderValue};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::{
    Attributes, ETag, GetOptions, Multipart, Object, ObjectKey, ObjectRef, Payload, Precondition, Result,
    StoreError, Tags,
};

const CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
const SOURCE_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");

/// The part numbers that S3 allows.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// A multipart upload in progress.
#[derive(Debug)]
pub(super) struct S3Multipart {
    store: S3Store,
    key: ObjectKey,
    /// User metadata of the object.
    user: BTreeMap<String, String>,
    /// The id of the upload.
    id: String,
    /// Whether the upload was begun with a checksum algorithm. The completion must then list the parts' checksums.
    declares_checksums: bool,
    /// Whether the upload was aborted by this process.
    aborted: AtomicBool,
    /// Whether a completion may have taken effect without a response.
    may_be_completed: AtomicBool,
    /// The parts that were uploaded, by number.
    parts: Mutex<BTreeMap<u32, Part>>,
}

#[derive(Debug, Clone)]
struct Part {
    etag: String,
    /// The checksum of the sent bytes; `None` for a part copy.
    sum: Option<String>,
    size_bytes: u64,
}

impl S3Store {
    pub(super) async fn begin_multipart(
        &self,
        key: &ObjectKey,
        attributes: &Attributes,
        tags: &Tags,
    ) -> Result<Arc<S3Multipart>> {
        self.check_distinct(key).await?;
        let call = self.call(RequestKind::Multipart, Method::POST, key)?.query("uploads", "");
        let mut call = self.client.add_description(call, attributes, tags)?;
        // AWS requires the checksum algorithm at the beginning. Other servers would then require checksums of part
        // copies too, although they do not compute them.
        let declares_checksums = self.client.config.checksums && self.client.endpoint.is_aws();
        if declares_checksums {
            call = call
                .header(CHECKSUM_ALGORITHM, HeaderValue::from_static("CRC64NVME"))
                .header(CHECKSUM_TYPE, HeaderValue::from_static("FULL_OBJECT"));
        }
        let mut retry = self.client.retry();
        let id = self.client.fetch_as(&call, &mut retry, |answer| xml::parse_upload_id(&answer.body)).await?;
        Ok(Arc::new(S3Multipart {
            store: self.clone(),
            key: key.clone(),
            user: attributes.user.clone(),
            id,
            declares_checksums,
            aborted: AtomicBool::new(false),
            may_be_completed: AtomicBool::new(false),
            parts: Mutex::default(),
        }))
    }
}

#[async_trait::async_trait]
impl Multipart for S3Multipart {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        let mut call = self.part_call(RequestKind::Part, number)?.body(body);
        let sum = crc64nvme(&call.body);
        call.checksum = self.store.client.config.checksums.then(|| sum.clone());
        let mut retry = self.store.client.retry();
        let etag = self.store.client.fetch_as(&call, &mut retry, |answer| {
            let etag = answer.headers.get(ETAG).and_then(|value| value.to_str().ok());
            etag.map(str::to_owned).ok_or_else(|| Failure::malformed("a part without ETag"))
        });
        let etag = etag.await?;
        self.keep(number, Part { etag, sum: Some(sum), size_bytes: call.body.len() });
        Ok(())
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return self.put_part(number, Payload::default()).await;
        }
        let bytes = format!("bytes={}-{}", range.start, range.end - 1);
        let call =
            self.part_call(RequestKind::PartCopy, number)?.header(SOURCE_RANGE, value("range", &bytes)?);
        let call = self.store.with_source(call, from)?;
        let mut retry = self.store.client.retry();
        let etag = self
            .store
            .client
            .fetch_as(&call, &mut retry, |answer| xml::parse_etag(&answer.body, "CopyPartResult"));
        let etag = etag.await?;
        self.keep(number, Part { etag, sum: None, size_bytes: range.end - range.start });
        Ok(())
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if parts.is_empty() {
            return Err(StoreError::Invalid("the upload has no parts".to_owned()));
        }
        // versitygw would report success for an aborted upload if the key has an object.
        if self.aborted.load(Ordering::Relaxed) {
            return Err(StoreError::Invalid("the upload was aborted".to_owned()));
        }
        let call = self.upload_call(RequestKind::Complete, Method::POST)?.condition(&precondition)?;
        let call = call.body(Payload::from(xml::write_completion(&done(&parts, self.declares_checksums))));
        let mut retry = self.store.client.retry();
        let completed = self.store.client.fetch_as(&call, &mut retry, |answer| {
            let etag = ETag::new(&xml::parse_etag(&answer.body, "CompleteMultipartUploadResult")?);
            let version = headers::version(&answer.headers);
            Ok(ObjectRef { key: self.key.clone(), etag, version, last_modified: None })
        });
        self.store.client.learned.part_copies.note_size(size_of(&parts));
        match completed.await {
            Ok(object) => Ok(object),
            Err(failure) if retry.was_ambiguous() || self.may_be_completed.load(Ordering::Relaxed) => {
                self.may_be_completed.store(true, Ordering::Relaxed);
                self.recognise(failure, &parts, &precondition).await
            }
            Err(failure) => Err(self.refused(failure, &precondition)),
        }
    }

    async fn abort(&self) -> Result<()> {
        self.aborted.store(true, Ordering::Relaxed);
        let call = self.upload_call(RequestKind::Abort, Method::DELETE)?;
        match self.store.client.fetch(&call).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.code == "NoSuchUpload" => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }
}

impl S3Multipart {
    /// Finds out whether a failed completion took effect, and returns its object. `PreconditionFailed`: it did, but the
    /// object was replaced or removed since.
    async fn recognise(
        &self,
        failure: Failure,
        parts: &BTreeMap<u32, Part>,
        precondition: &Precondition,
    ) -> Result<ObjectRef> {
        let definite =
            failure.code == "NoSuchUpload" || matches!(failure.error, StoreError::PreconditionFailed(_));
        if !definite || self.exists().await? {
            return Err(self.refused(failure, precondition));
        }
        match self.store.get_object(&self.key, GetOptions::default()).await {
            Ok(found) => {
                let object = found.meta.object.clone();
                // The upload was completed, but the object may have been replaced since.
                self.is_ours(found, parts).await?.then_some(object)
            }
            Err(StoreError::NotFound(_)) => None,
            Err(error) => return Err(error),
        }
        .ok_or_else(|| StoreError::PreconditionFailed(self.key.clone()))
    }

    /// Returns whether this upload made the object: compares length, user metadata and the checksums of the sent parts.
    async fn is_ours(&self, found: Object, parts: &BTreeMap<u32, Part>) -> Result<bool> {
        if found.meta.size_bytes != size_of(parts) || found.meta.attributes.user != self.user {
            return Ok(false);
        }
        let mut body = found.body;
        let mut bytes = bytes::Bytes::new();
        for part in parts.values() {
            let (mut sum, mut left) = (Crc64::default(), part.size_bytes);
            while left > 0 {
                if bytes.is_empty() {
                    let Some(next) = body.try_next().await? else { return Ok(false) };
                    bytes = next;
                }
                let taken = bytes.split_to(left.min(bytes.len() as u64) as usize);
                sum.add(&taken);
                left -= taken.len() as u64;
            }
            if part.sum.as_ref().is_some_and(|expected| *expected != sum.text()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn exists(&self) -> Result<bool> {
        let call = self.upload_call(RequestKind::ListParts, Method::GET)?.query("max-parts", "1");
        match self.store.client.fetch(&call).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code == "NoSuchUpload" => Ok(false),
            Err(failure) => Err(failure.error),
        }
    }

    /// Returns the error of a completion: `PreconditionFailed` if its condition was refused.
    fn refused(&self, failure: Failure, precondition: &Precondition) -> StoreError {
        if super::put::is_refused_condition(&failure, precondition) {
            return StoreError::PreconditionFailed(self.key.clone());
        }
        failure.error
    }

    fn part_call(&self, kind: RequestKind, number: u32) -> Result<Call> {
        if !NUMBERS.contains(&number) {
            return Err(StoreError::Invalid(format!(
                "invalid part number {number}: use 1 to {}",
                NUMBERS.end()
            )));
        }
        Ok(self.upload_call(kind, Method::PUT)?.query("partNumber", number.to_string()))
    }

    fn upload_call(&self, kind: RequestKind, method: Method) -> Result<Call> {
        Ok(self.store.call(kind, method, &self.key)?.query("uploadId", self.id.clone()))
    }

    /// Notes a part that was uploaded.
    fn keep(&self, number: u32, part: Part) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(number, part);
    }
}

fn size_of(parts: &BTreeMap<u32, Part>) -> u64 {
    parts.values().map(|part| part.size_bytes).sum()
}

/// Returns the parts for the completion, with checksums if the upload was begun with an algorithm.
fn done(parts: &BTreeMap<u32, Part>, declares_checksums: bool) -> Vec<CompletedPart> {
    let done = |(&number, part): (&u32, &Part)| CompletedPart {
        number,
        etag: part.etag.clone(),
        crc64nvme: part.sum.clone().filter(|_| declares_checksums),
    };
    parts.iter().map(done).collect()
}
