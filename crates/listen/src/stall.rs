//! Clients that stop sending or reading: they lose their place instead of holding it for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A client that is slower than this, over the whole time in which it may be silent, counts as silent.
const BYTES_PER_SEC_MIN: u64 = 1 << 10;

/// How long a client has been silent, or all but silent.
///
/// One byte every few seconds never looks like silence, so that only a minimum of bytes begins the time anew. Only
/// waiting counts: time in which nobody waits for the client says nothing about it.
#[derive(Debug)]
pub struct Stall {
    patience: Duration,
    /// How long the client was waited for since it last made progress, up to now.
    waited: Duration,
    /// What it sent or took meanwhile.
    bytes: u64,
    /// Runs while the client is waited for.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    end: Pin<Box<Sleep>>,
}

impl Stall {
    /// Runs out when a client has been waited for as long as `patience`, and made no progress in that time.
    pub fn new(patience: Duration) -> Self {
        Self { patience, waited: Duration::ZERO, bytes: 0, waiting: None }
    }

    /// Returns what was waited for, or `None` if the client is too slow. `bytes_of`: how many bytes it is.
    pub fn poll<T>(
        &mut self,
        awaited: Poll<T>,
        bytes_of: impl FnOnce(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<T>> {
        match awaited {
            Poll::Ready(done) => {
                self.came(bytes_of(&done) as u64);
                Poll::Ready(Some(done))
            }
            Poll::Pending => self.wait(context).map(|()| None),
        }
    }

    fn came(&mut self, bytes: u64) {
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
        let begin = || Waiting { since: Instant::now(), end: Box::pin(tokio::time::sleep(left)) };
        self.waiting.get_or_insert_with(begin).end.as_mut().poll(context)
    }
}

/// A stream whose writes fail with `TimedOut` when its client takes too little for too long.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    stall: Stall,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, stall: Stall::new(patience) }
    }

    /// What a write came to, unless the client is too slow.
    fn waited<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes_of: impl FnOnce(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let deaf = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer"));
        let bytes_of = |written: &io::Result<T>| written.as_ref().map_or(0, bytes_of);
        self.stall.poll(written, bytes_of, context).map(|written| written.unwrap_or_else(deaf))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.waited(written, |bytes| *bytes, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.waited(written, |bytes| *bytes, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.waited(flushed, |()| 0, context)
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

    /// One byte now and then kept a connection, and what it held, for as long as the client liked.
    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_as_good_as_nothing() {
        let (mut slow, mut fair) = (Stall::new(Duration::from_secs(60)), Stall::new(Duration::from_secs(60)));
        for _ in 0..11 {
            for (stall, bytes) in [(&mut slow, 1), (&mut fair, 60 << 10)] {
                assert_eq!(poll(stall, Poll::Pending).await, Poll::Pending);
                tokio::time::advance(Duration::from_millis(2700)).await;
                assert_eq!(poll(stall, Poll::Ready(bytes)).await, Poll::Ready(Some(bytes)));
                // Time in which nobody waits for the client does not count.
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
