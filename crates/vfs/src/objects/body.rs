//! A file's bytes as a stream: in order, with read-ahead, never all in memory.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use std::ops::Range;
use std::sync::Arc;
use store::StoreError;

use crate::content::opener::FileUser;
use crate::content::pin::{Cut, Pin};
use crate::content::ranges::zeros;
use crate::content::read::reader::{into_owned_error, is_changed, join};
use crate::content::slab::SLAB_BYTES;
use crate::{Error, Filesystem};

/// Maximum bytes of one item of the stream.
const ITEM_BYTES: u64 = SLAB_BYTES as u64;
/// Bytes to read ahead, memory permitting.
const AHEAD_BYTES: u64 = 8 << 20;
/// Length of a range beyond which returned bytes are dropped from the cache.
const KEPT_BYTES_MAX: u64 = 8 << 20;

/// A file that is read up to the end of a range.
#[derive(Debug)]
struct Body {
    fs: Arc<Filesystem>,
    file: FileUser,
    pin: Arc<Pin>,
    /// The range that is still to be returned.
    rest: Range<u64>,
    /// End of the ranges requested so far.
    requested: u64,
    /// Whether the range is too long to stay in the cache after it is read.
    is_long: bool,
}

/// Streams a range of the pinned bytes of `file`, which is closed at the end. The first bytes are fetched before this returns;
/// `None`: they are no longer what was pinned.
pub(super) async fn body(
    fs: &Arc<Filesystem>,
    file: FileUser,
    pin: Pin,
    range: Range<u64>,
) -> store::Result<Option<BoxStream<'static, store::Result<Bytes>>>> {
    let requested = range.start;
    let is_long = range.end - range.start > KEPT_BYTES_MAX;
    let mut body = Body { fs: fs.clone(), file, pin: Arc::new(pin), rest: range, requested, is_long };
    if body.rest.is_empty() {
        return Ok(Some(stream::empty().boxed()));
    }
    let first = match Box::pin(body.next()).await {
        Ok(first) => first,
        Err(Error::Stale(_)) => return Ok(None),
        Err(error) => return Err(body_error(error)),
    };
    let rest = stream::try_unfold(body, |mut body| async move {
        if body.rest.is_empty() {
            return Ok(None);
        }
        let item = Box::pin(body.next()).await.map_err(body_error)?;
        Ok(Some((item, body)))
    });
    Ok(Some(stream::iter([Ok(first)]).chain(rest).boxed()))
}

impl Body {
    async fn next(&mut self) -> Result<Bytes, Error> {
        let at = self.rest.start;
        let end = ((at / ITEM_BYTES + 1) * ITEM_BYTES).min(self.rest.end);
        self.read_ahead(end)?;
        let mut bytes = Vec::new();
        for cut in self.pin.cut(at..end)? {
            match cut {
                Cut::Hole(hole) => bytes.push(zeros(&hole)),
                Cut::Stored(within, piece) => {
                    let read = self.fs.io.reader.read_piece(self.file.ino, &piece, within, &mut bytes).await;
                    read.map_err(|error| if is_changed(&error) { stale() } else { into_owned_error(error) })?;
                }
            }
        }
        self.rest.start = end;
        self.drop_passed();
        Ok(join(bytes))
    }

    /// Requests half a window at a time instead of single items.
    fn read_ahead(&mut self, must: u64) -> Result<(), Error> {
        let window = AHEAD_BYTES.min(self.fs.content.blocks().window_bytes(self.fs.content.files().len()));
        if self.requested.saturating_sub(self.rest.start) > window / 2 {
            return Ok(());
        }
        let until = (self.rest.start + window).max(must).min(self.rest.end);
        let from = self.requested.max(self.rest.start);
        if from >= until {
            return Ok(());
        }
        for cut in self.pin.cut(from..until)? {
            if let Cut::Stored(within, piece) = cut {
                self.fs.io.reader.fetch(self.file.ino, &piece, within, must);
            }
        }
        self.requested = until;
        Ok(())
    }

    fn drop_passed(&self) {
        if !self.is_long {
            return;
        }
        for piece in self.pin.last_two_before(self.rest.start).unwrap_or_default() {
            let until = piece.within(&(piece.range.start..self.rest.start.min(piece.range.end))).end;
            self.fs.content.blocks().drop_before(self.file.ino, &piece.object.etag, until);
        }
    }
}

/// Returns the error for a file whose bytes are no longer those that were pinned.
fn stale() -> Error {
    Error::Stale("the file was overwritten while it was read; try again".to_owned())
}

/// Maps an error to one about the requested object, because the caller does not know the file's objects.
fn body_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        Error::Stale(what) => StoreError::Unavailable(what),
        error => StoreError::Unavailable(error.to_string()),
    }
}
