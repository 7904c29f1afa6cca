//! Reading objects. The file stays open as long as the body, so that a reader gets the bytes of one version or an error.

use super::record::{modified, size_bytes};
use super::{Shared, blocking, errno};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{Stat, fstat};
use rustix::io::{Errno, pread};
use std::ops::Range;
use store::{GetOptions, Object, ObjectKey, Result, StoreError, byte_range};

/// Size of a read: small enough for the processor's cache, large enough to make the hand-over between threads cheap.
const CHUNK_BYTES: u64 = 512 * 1024;

impl Shared {
    /// Opens the object and reads its first chunk. Fails with `NotFound` for any version id, as the store has no
    /// versions.
    pub(super) fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let found = self.find(key)?;
        if options.version.is_some() {
            return Err(StoreError::NotFound(key.clone()));
        }
        if options.if_match.is_some_and(|etag| etag != found.etag()) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let range = match options.range {
            Some(range) => byte_range::clamp(key, range, found.size_bytes())?,
            None => 0..found.size_bytes(),
        };
        let meta = found.meta(key);
        let mut body = Body { key: key.clone(), file: found.file, stat: found.stat, range };
        let first = body.next()?;
        Ok(Object { meta, body: stream_of(first, body) })
    }
}

/// The remaining range of an open file.
struct Body {
    key: ObjectKey,
    file: OwnedFd,
    stat: Stat,
    range: Range<u64>,
}

impl Body {
    /// Reads the next chunk; empty if no range is left. Fails with `Corrupt` if the file was changed in place.
    fn next(&mut self) -> Result<Bytes> {
        let wanted = CHUNK_BYTES.min(self.range.end - self.range.start) as usize;
        let mut chunk = Vec::with_capacity(wanted);
        while chunk.len() < wanted {
            let at = self.range.start + chunk.len() as u64;
            match pread(&self.file, spare_capacity(&mut chunk), at) {
                Ok(0) => return Err(self.changed()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(errno::failed(&self.key, error)),
            }
        }
        chunk.truncate(wanted);
        self.range.start += wanted as u64;
        if self.range.is_empty() {
            self.check_unchanged()?;
        }
        Ok(chunk.into())
    }

    /// Fails with `Corrupt` if the file was changed in place since it was opened, because the bytes read may be a
    /// mixture.
    fn check_unchanged(&self) -> Result<()> {
        let now = fstat(&self.file).map_err(|error| errno::failed(&self.key, error))?;
        let same = size_bytes(&now) == size_bytes(&self.stat) && modified(&now) == modified(&self.stat);
        if same { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> StoreError {
        StoreError::Corrupt(format!("'{}' was changed in place while it was read", self.key))
    }
}

/// Streams the first chunk and then the remaining chunks, each of which is read when it is requested.
fn stream_of(first: Bytes, body: Body) -> BoxStream<'static, Result<Bytes>> {
    let first = stream::iter((!first.is_empty()).then_some(Ok(first)));
    if body.range.is_empty() {
        return first.boxed();
    }
    let rest = stream::unfold(Some(body), |body| async {
        let mut body = body.filter(|body| !body.range.is_empty())?;
        let read = blocking(move || {
            let chunk = body.next()?;
            Ok((chunk, body))
        });
        match read.await {
            Ok((chunk, body)) => Some((Ok(chunk), Some(body))),
            Err(error) => Some((Err(error), None)),
        }
    });
    first.chain(rest).boxed()
}
