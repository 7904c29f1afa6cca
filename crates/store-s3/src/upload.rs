//! The body of a request that sends a payload.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use store::Payload;

/// Maximum length of a frame, in bytes. The transport takes the next frame when it has room, which shows that the server
/// still reads.
const FRAME_BYTES_MAX: usize = 256 << 10;

/// The number of bytes that the transport has taken, shared with the caller.
pub(super) type Progress = Arc<AtomicU64>;

/// A request body of a payload's pieces, without copying.
#[derive(Debug)]
pub(super) struct Upload {
    pieces: VecDeque<Bytes>,
    /// Number of bytes that were not sent yet.
    left: u64,
    /// Counts the bytes that the connection has taken; `None` for an empty body.
    taken: Option<Progress>,
}

impl Upload {
    pub(super) fn empty() -> Self {
        Self { pieces: VecDeque::new(), left: 0, taken: None }
    }

    pub(super) fn of(payload: &Payload, taken: Progress) -> Self {
        Self { pieces: payload.pieces().iter().cloned().collect(), left: payload.len(), taken: Some(taken) }
    }

    /// Takes the next frame off the body; `None` at its end.
    fn next_frame(&mut self) -> Option<Bytes> {
        let piece = self.pieces.front_mut()?;
        if piece.len() > FRAME_BYTES_MAX {
            Some(piece.split_to(FRAME_BYTES_MAX))
        } else {
            self.pieces.pop_front()
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let upload = self.get_mut();
        let frame = upload.next_frame();
        if let (Some(frame), Some(taken)) = (&frame, &upload.taken) {
            upload.left -= frame.len() as u64;
            taken.fetch_add(frame.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn long_pieces_go_in_frames_and_nothing_is_lost() {
        let pieces = [vec![1; FRAME_BYTES_MAX * 2 + 1], vec![2; 3]];
        let payload: Payload = pieces.iter().cloned().map(Bytes::from).collect();
        let taken = Progress::default();
        let mut upload = Upload::of(&payload, taken.clone());
        let mut got = Vec::new();
        while let Some(frame) = upload.frame().await {
            let frame = frame.unwrap().into_data().unwrap();
            assert!(frame.len() <= FRAME_BYTES_MAX);
            got.extend_from_slice(&frame);
        }
        assert_eq!(got, pieces.concat());
        assert_eq!((taken.load(Ordering::Relaxed), upload.is_end_stream()), (payload.len(), true));
    }
}
