//! The bytes of a file as a stream: in order, some of them asked for ahead, never all in memory.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use std::ops::Range;
use std::sync::Arc;
use store::StoreError;

use crate::content::open_file::FileUser;
use crate::content::pin::{Cut, Pin};
use crate::content::ranges::zeros;
use crate::content::slab::SLAB_BYTES;
use crate::ops::{is_changed, join, owned};
use crate::{Error, Filesystem};

/// One item of the stream at most.
const ITEM_BYTES: u64 = SLAB_BYTES as u64;
/// So much is asked for ahead, memory permitting.
const AHEAD_BYTES: u64 = 8 << 20;
/// Of a longer range nothing is kept that was handed out.
const KEPT_BYTES_MAX: u64 = 8 << 20;

/// An open file being read to the end of a range.
#[derive(Debug)]
struct Body {
    fs: Arc<Filesystem>,
    file: FileUser,
    pin: Arc<Pin>,
    /// What is still to be handed out.
    rest: Range<u64>,
    /// How far it was asked for.
    asked: u64,
    is_long: bool,
}

/// Streams a range of the immutable bytes of `file`, which is open and is closed at the end. The first of them are
/// there when this returns; `None`: they are not what was pinned any more.
pub(super) async fn body(
    fs: &Arc<Filesystem>,
    file: FileUser,
    pin: Pin,
    range: Range<u64>,
) -> store::Result<Option<BoxStream<'static, store::Result<Bytes>>>> {
    let asked = range.start;
    let is_long = range.end - range.start > KEPT_BYTES_MAX;
    let mut body = Body { fs: fs.clone(), file, pin: Arc::new(pin), rest: range, asked, is_long };
    if body.rest.is_empty() {
        return Ok(Some(stream::empty().boxed()));
    }
    let first = match Box::pin(body.next()).await {
        Ok(first) => first,
        Err(Error::Stale(_)) => return Ok(None),
        Err(error) => return Err(cut_off(error)),
    };
    let rest = stream::try_unfold(body, |mut body| async move {
        if body.rest.is_empty() {
            return Ok(None);
        }
        let item = Box::pin(body.next()).await.map_err(cut_off)?;
        Ok(Some((item, body)))
    });
    Ok(Some(stream::iter([Ok(first)]).chain(rest).boxed()))
}

impl Body {
    async fn next(&mut self) -> Result<Bytes, Error> {
        let at = self.rest.start;
        let end = ((at / ITEM_BYTES + 1) * ITEM_BYTES).min(self.rest.end);
        self.ask_ahead(end)?;
        let mut bytes = Vec::new();
        for cut in self.pin.cut(at..end)? {
            match cut {
                Cut::Hole(hole) => bytes.push(zeros(&hole)),
                Cut::Stored(within, piece) => {
                    let read = self.fs.read_piece(self.file.ino, &piece, within, &mut bytes).await;
                    read.map_err(|error| if is_changed(&error) { stale() } else { owned(error) })?;
                }
            }
        }
        self.rest.start = end;
        self.forget_read();
        Ok(join(bytes))
    }

    /// In requests of half the window, not of one item each.
    fn ask_ahead(&mut self, must: u64) -> Result<(), Error> {
        let window = AHEAD_BYTES.min(self.fs.blocks.window_bytes(self.fs.files.len()));
        if self.asked.saturating_sub(self.rest.start) > window / 2 {
            return Ok(());
        }
        let until = (self.rest.start + window).max(must).min(self.rest.end);
        let from = self.asked.max(self.rest.start);
        if from >= until {
            return Ok(());
        }
        for cut in self.pin.cut(from..until)? {
            if let Cut::Stored(within, piece) = cut {
                self.fs.fetch(self.file.ino, &piece, within, must);
            }
        }
        self.asked = until;
        Ok(())
    }

    fn forget_read(&self) {
        if !self.is_long {
            return;
        }
        for piece in self.pin.last_two_before(self.rest.start).unwrap_or_default() {
            let until = piece.within(&(piece.range.start..self.rest.start.min(piece.range.end))).end;
            self.fs.blocks.passed(self.file.ino, &piece.object.etag, until);
        }
    }
}

fn stale() -> Error {
    Error::Stale("the file was overwritten while it was read".to_owned())
}

/// The caller knows no object but the one asked for.
fn cut_off(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        Error::Stale(what) => StoreError::Unavailable(what),
        error => StoreError::Unavailable(error.to_string()),
    }
}
