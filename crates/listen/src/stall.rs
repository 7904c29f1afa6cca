//! Timeouts for clients that stop sending or reading, so that they cannot hold a connection for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A client whose average rate over the timeout is below this counts as stalled.
const BYTES_PER_SEC_MIN: u64 = 1 << 10;

/// A timer for the time that a client is stalled or nearly so.
///
/// One byte every few seconds must not count as progress, so the timer starts anew only after a minimum number of bytes. Only time
/// spent waiting for the client counts: while nothing waits for the client, it cannot be late.
#[derive(Debug)]
pub struct Stall {
    patience: Duration,
    /// Total time spent waiting for the client since its last progress, without the current wait.
    waited: Duration,
    /// Bytes transferred from or to the client since its last progress.
    bytes: u64,
    /// The current wait, if there is one.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Stall {
    /// Returns a timer that expires after waiting for a client for `patience` in total without progress.
    pub fn new(patience: Duration) -> Self {
        Self { patience, waited: Duration::ZERO, bytes: 0, waiting: None }
    }

    /// Returns the result of the awaited operation once it is there, or `None` once the client has stalled. `awaited`
    /// is the operation's present state. `bytes_of` returns the size of a result in bytes.
    pub fn poll<T>(
        &mut self,
        awaited: Poll<T>,
        bytes_of: impl FnOnce(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<T>> {
        match awaited {
            Poll::Ready(done) => {
                self.record_progress(bytes_of(&done) as u64);
                Poll::Ready(Some(done))
            }
            Poll::Pending => self.wait(context).map(|()| None),
        }
    }

    fn record_progress(&mut self, bytes: u64) {
        if let Some(waiting) = self.waiting.take() {
            self.waited += waiting.since.elapsed();
        }
        self.bytes += bytes;
        if self.bytes >= (self.patience.as_millis() as u64 * BYTES_PER_SEC_MIN / 1000).max(1) {
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let left = self.patience.saturating_sub(self.waited);
        let begin = || Waiting { since: Instant::now(), timer: Box::pin(tokio::time::sleep(left)) };
        self.waiting.get_or_insert_with(begin).timer.as_mut().poll(context)
    }
}

/// A stream whose writes fail with `TimedOut` when the client does not read.
#[derive(Debug)]
pub(crate) struct StallTimeout<S> {
    stream: S,
    stall: Stall,
}

impl<S> StallTimeout<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, stall: Stall::new(patience) }
    }

    /// Returns the result of a write, or the error `TimedOut` if the client has stalled.
    fn with_timeout<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes_of: impl FnOnce(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let stalled =
            || Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the response"));
        let bytes_of = |written: &io::Result<T>| written.as_ref().map_or(0, bytes_of);
        self.stall.poll(written, bytes_of, context).map(|written| written.unwrap_or_else(stalled))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.with_timeout(written, |bytes| *bytes, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.with_timeout(written, |bytes| *bytes, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.with_timeout(flushed, |()| 0, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn poll(stall: &mut Stall, awaited: Poll<usize>) -> Poll<Option<usize>> {
        std::future::poll_fn(|context| Poll::Ready(stall.poll(awaited, |bytes| *bytes, context))).await
    }

    /// One byte now and then kept a connection, and the resources that it held, for as long as the client liked.
    #[tokio::test(start_paused = true)]
    async fn a_trickle_of_bytes_counts_as_a_stall() {
        let (mut slow, mut fair) = (Stall::new(Duration::from_secs(60)), Stall::new(Duration::from_secs(60)));
        for _ in 0..11 {
            for (stall, bytes) in [(&mut slow, 1), (&mut fair, 60 << 10)] {
                assert_eq!(poll(stall, Poll::Pending).await, Poll::Pending);
                tokio::time::advance(Duration::from_millis(2700)).await;
                assert_eq!(poll(stall, Poll::Ready(bytes)).await, Poll::Ready(Some(bytes)));
                // Time in which nothing waits for the client does not count.
                tokio::time::advance(Duration::from_secs(3600)).await;
            }
        }
        for _ in 0..2 {
            assert_eq!(poll(&mut slow, Poll::Pending).await, Poll::Pending);
            assert_eq!(poll(&mut fair, Poll::Pending).await, Poll::Pending);
            tokio::time::advance(Duration::from_millis(16_000)).await;
        }
        assert_eq!(poll(&mut slow, Poll::Pending).await, Poll::Ready(None));
        assert_eq!(poll(&mut fair, Poll::Pending).await, Poll::Pending);
    }
}
