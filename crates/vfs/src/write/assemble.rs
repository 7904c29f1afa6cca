//! Assembly: an edited file becomes an object; what did not change is copied inside the store.

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::ops::Range;
use std::sync::Arc;
use store::{
    Attributes, GetOptions, Multipart, ObjectKey, ObjectRef, Payload, Precondition, PutOptions, StoreError,
    Tags,
};

use super::Local;
use super::local::Source;
use crate::Filesystem;
use crate::open_file::Pin;

/// S3 allows this many parts.
const PARTS_MAX: u64 = 10_000;
/// S3's smallest part but the last; also the smallest worth a copy.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Parts of one file under way at the same time.
const IN_FLIGHT_MAX: usize = 4;

impl Filesystem {
    pub(crate) async fn assemble(
        &self,
        local: &Local,
        key: &ObjectKey,
        attributes: Attributes,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        let size = local.size_bytes();
        let part_bytes = part_bytes(size, self.config.part_size_bytes);
        if size <= part_bytes {
            let body = self.merged(local, 0..size).await?;
            return self
                .store
                .put(key, body, PutOptions { precondition, attributes, tags: Tags::new() })
                .await;
        }
        let upload = self.store.multipart(key, attributes, Tags::new()).await?;
        let outcome = match self.send_parts(local, upload.as_ref(), part_bytes).await {
            Ok(()) => upload.complete(precondition).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            upload.abort().await.ok();
        }
        outcome
    }

    async fn send_parts(
        &self,
        local: &Local,
        upload: &dyn Multipart,
        part_bytes: u64,
    ) -> Result<(), StoreError> {
        let size = local.size_bytes();
        let parts = (0..size.div_ceil(part_bytes)).map(|index| {
            let range = index * part_bytes..((index + 1) * part_bytes).min(size);
            self.send_part(local, upload, index as u32 + 1, range)
        });
        futures_util::stream::iter(parts).buffer_unordered(IN_FLIGHT_MAX).try_collect().await
    }

    async fn send_part(
        &self,
        local: &Local,
        upload: &dyn Multipart,
        number: u32,
        range: Range<u64>,
    ) -> Result<(), StoreError> {
        if let ([Source::Base(clean)], Some(base)) = (local.sources(range.clone()).as_slice(), &local.base)
            && (clean.end - clean.start >= PART_BYTES_MIN || clean.end == local.size_bytes())
        {
            return upload.copy_part(number, &base.object(), clean.clone()).await;
        }
        let _permit = self.assembling.acquire().await;
        upload.put_part(number, self.merged(local, range).await?).await
    }

    /// A range of an edited file, from wherever its bytes are.
    pub(crate) async fn merged(&self, local: &Local, range: Range<u64>) -> Result<Payload, StoreError> {
        let mut payload = Payload::default();
        for source in local.sources(range) {
            match (source, &local.base) {
                (Source::Local(range), _) => payload.push(local.read_local(range).map_err(local_failure)?),
                (Source::Base(range), Some(base)) => self.read_base(base, range, &mut payload).await?,
                (Source::Zeros(range) | Source::Base(range), _) => {
                    payload.push(Bytes::from(vec![0; (range.end - range.start) as usize]));
                }
            }
        }
        Ok(payload)
    }

    async fn read_base(
        &self,
        base: &Arc<Pin>,
        range: Range<u64>,
        into: &mut Payload,
    ) -> Result<(), StoreError> {
        let options = GetOptions {
            range: Some(range),
            if_match: Some(base.etag.clone()),
            version: base.version.clone(),
        };
        let mut body = self.store.get(&base.key, options).await?.body;
        while let Some(piece) = body.try_next().await? {
            into.push(piece);
        }
        Ok(())
    }
}

fn local_failure(error: std::io::Error) -> StoreError {
    StoreError::Corrupt(format!("the local cache file cannot be read back: {error}"))
}

/// Parts of the configured size, or as large as [`PARTS_MAX`] asks.
fn part_bytes(size: u64, configured: u64) -> u64 {
    configured.max(size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::part_bytes;

    #[test]
    fn the_largest_object_fits_its_parts() {
        assert_eq!(part_bytes(100, 8 << 20), 8 << 20);
        assert!((5u64 << 40).div_ceil(part_bytes(5 << 40, 8 << 20)) <= 10_000);
    }
}
