//! Writing whole objects.
//!
//! If the response to a conditional PUT was lost, the retry may be refused because of the object that the first attempt
//! stored. So the object is read back: with equal size, user metadata and bytes, the PUT succeeded. If two clients
//! concurrently store equal bytes and metadata under the same condition and one response is lost, both may
//! report success. A caller that needs a single winner must store unique bytes or metadata.

use super::S3Store;
use super::escape;
use super::failure::Failure;
use super::headers;
use super::request_counts::RequestKind;
use bytes::Buf;
use futures_util::TryStreamExt;
use http::Method;
use store::{
    GetOptions, ObjectKey, ObjectRef, ObjectStore as _, Payload, Precondition, PutOptions, Result, StoreError,
};

impl S3Store {
    pub(super) async fn put_object(
        &self,
        key: &ObjectKey,
        body: Payload,
        options: PutOptions,
    ) -> Result<ObjectRef> {
        self.check_distinct(key).await?;
        let call = self.call(RequestKind::Put, Method::PUT, key)?.condition(&options.precondition)?;
        let mut call = self.client.add_description(call, &options.attributes, &options.tags)?.body(body);
        call.checksum = self.client.config.checksums.then(|| crc64nvme(&call.body));
        self.client.learned.part_copies.note_size(call.body.len());
        let mut retry = self.client.retry();
        let put =
            self.client.fetch_as(&call, &mut retry, |answer| headers::object_ref(key, &answer.headers)).await;
        match put {
            Ok(object) => Ok(object),
            Err(failure) if is_refused_condition(&failure, &options.precondition) => {
                let ours = if retry.was_ambiguous() {
                    self.recognise(key, &call.body, &options).await?
                } else {
                    None
                };
                ours.ok_or_else(|| StoreError::PreconditionFailed(key.clone()))
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// Returns the object at the key if its size, user metadata and bytes are those of this PUT; `None` otherwise.
    async fn recognise(
        &self,
        key: &ObjectKey,
        body: &Payload,
        options: &PutOptions,
    ) -> Result<Option<ObjectRef>> {
        let Some(meta) = self.find(key).await? else { return Ok(None) };
        let same_headers = meta.attributes.user == options.attributes.user;
        if meta.size_bytes != body.len() || !same_headers {
            return Ok(None);
        }
        let get = GetOptions { if_match: Some(meta.object.etag.clone()), ..GetOptions::default() };
        let same = match self.get_object(key, get).await {
            Ok(object) => same_bytes(body, object.body).await?,
            Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_)) => false,
            Err(error) => return Err(error),
        };
        Ok(same.then_some(meta.object))
    }
}

/// Returns whether a failure means that the precondition is not met. If an etag is required but the key is missing, S3
/// reports "not found".
pub(super) fn is_refused_condition(failure: &Failure, precondition: &Precondition) -> bool {
    match failure.error {
        StoreError::PreconditionFailed(_) => true,
        StoreError::NotFound(_) => matches!(precondition, Precondition::Matches(_)),
        _ => false,
    }
}

/// Returns whether a stored object has the bytes of a body.
async fn same_bytes(
    body: &Payload,
    mut stored: futures_util::stream::BoxStream<'static, Result<bytes::Bytes>>,
) -> Result<bool> {
    let mut ours = body.pieces().iter().cloned();
    let mut piece = bytes::Bytes::new();
    while let Some(mut theirs) = stored.try_next().await? {
        while !theirs.is_empty() {
            if piece.is_empty() {
                let Some(next) = ours.next() else { return Ok(false) };
                piece = next;
            }
            let len = piece.len().min(theirs.len());
            if piece[..len] != theirs[..len] {
                return Ok(false);
            }
            piece.advance(len);
            theirs.advance(len);
        }
    }
    Ok(true)
}

/// Computes the checksum that S3 recommends, in base64 as in its header.
pub(super) fn crc64nvme(body: &Payload) -> String {
    let mut sum = Crc64::default();
    body.pieces().iter().for_each(|piece| sum.add(piece));
    sum.text()
}

/// An incremental [`crc64nvme`].
pub(super) struct Crc64(crc_fast::Digest);

impl Default for Crc64 {
    fn default() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }
}

impl Crc64 {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn text(&self) -> String {
        escape::base64(&self.0.finalize().to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_matches_the_catalogue() {
        // CRC-64/NVME of "123456789" is 0xae8b14860a799888 (catalogue of parametrised CRC algorithms).
        let rope: Payload = ["1234", "56789"].into_iter().map(bytes::Bytes::from).collect();
        assert_eq!(crc64nvme(&rope), escape::base64(&0xae8b_1486_0a79_9888_u64.to_be_bytes()));
    }
}
