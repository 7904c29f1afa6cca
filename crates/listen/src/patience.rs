//! Clients that stop sending or reading: they lose their place instead of holding it for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long somebody has done nothing.
#[derive(Debug)]
pub struct Stall {
    patience: Duration,
    /// Runs while something is waited for.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Runs out when something has been waited for as long as `patience`.
    pub fn new(patience: Duration) -> Self {
        Self { patience, waiting: None }
    }

    /// What was waited for, or `None` if that took too long.
    pub fn poll<T>(&mut self, awaited: Poll<T>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(done) = awaited {
            self.waiting = None;
            return Poll::Ready(Some(done));
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waiting.as_mut().poll(context).map(|()| None)
    }
}

/// A stream whose writes fail with `TimedOut` when nobody has taken any byte for so long.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    stall: Stall,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, stall: Stall::new(patience) }
    }

    /// What a write came to, unless it has waited too long.
    fn waited<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let deaf = || Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer"));
        self.stall.poll(written, context).map(|written| written.unwrap_or_else(deaf))
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
        self.waited(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.waited(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.waited(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
