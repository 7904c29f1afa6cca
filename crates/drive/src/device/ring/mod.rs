//! Reads and writes by io_uring: one thread per device keeps many requests in flight.
//!
//! Owns the queue to that thread. The ring is for async callers. Callers that may block their own thread use the device directly, which
//! is cheaper. Memory that the kernel may still write to belongs to the thread until the request has completed, even if the caller is
//! cancelled.

mod worker;

use super::{BlockDevice, Buffer, FileDevice, check_read, check_write};
use bytes::Bytes;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use worker::Request;

/// Requests queued for the thread before callers have to wait.
const QUEUE: usize = 256;

/// A device served by a ring. Dropping it waits until all requests are completed.
#[derive(Debug)]
pub struct Ring {
    device: Arc<FileDevice>,
    /// `None` once the ring is shutting down.
    requests: Option<mpsc::Sender<Request>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// Starts the thread. Fails if the kernel lacks io_uring, has too old a version, or forbids its use.
    pub fn start(device: Arc<FileDevice>) -> io::Result<Self> {
        let (requests, taken) = mpsc::channel(QUEUE);
        let waker = Arc::new(Waker::new()?);
        let thread = worker::start(device.clone(), taken, waker.clone())?;
        Ok(Self { device, requests: Some(requests), waker, thread: Some(thread) })
    }

    /// Fills the buffer from a position on, and returns it.
    pub async fn read(&self, at: u64, into: Buffer) -> io::Result<Buffer> {
        check_read(self.device.len_bytes(), at, into.len())?;
        self.submit(|reply| Request::Read { at, into, reply }).await
    }

    /// Writes whole blocks from a position on. Memory that the device cannot use directly is copied.
    pub async fn write(&self, at: u64, from: Bytes) -> io::Result<()> {
        check_write(self.device.len_bytes(), at, from.len())?;
        let from = if self.device.accepts(&from) { from } else { Buffer::gathered([&*from]).into() };
        self.submit(|reply| Request::Write { at, from, reply }).await
    }

    /// Makes all earlier writes durable.
    pub async fn flush(&self) -> io::Result<()> {
        self.submit(|reply| Request::Flush { reply }).await
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<FileDevice> {
        &self.device
    }

    /// Sends a request to the thread of the ring, and waits for the answer.
    async fn submit<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<io::Result<T>>) -> Request,
    ) -> io::Result<T> {
        let (reply, answer) = oneshot::channel();
        let Some(requests) = &self.requests else { return Err(ended()) };
        requests.send(request(reply)).await.map_err(|_| ended())?;
        self.waker.wake();
        answer.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.requests = None;
        self.waker.signal();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it occurred.
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the device's io_uring has failed or was closed: open the device again")
}

/// Wakes the thread while it sleeps in the kernel, by an eventfd that becomes readable.
///
/// A caller queues its request and then checks whether the thread sleeps. The thread announces its sleep and then checks the queue. Both
/// have a fence between the two steps, so at least one of them sees the other.
#[derive(Debug)]
struct Waker {
    event: OwnedFd,
    /// Whether the thread sleeps or is about to.
    sleeps: AtomicBool,
}

impl Waker {
    fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { event, sleeps: AtomicBool::new(false) })
    }

    fn fd(&self) -> RawFd {
        self.event.as_fd().as_raw_fd()
    }

    /// Wakes the thread if it sleeps. Must be called after a request was queued. A thread that is awake checks the
    /// queue before it sleeps.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::Relaxed) {
            self.signal();
        }
    }

    fn signal(&self) {
        // Fails only if the counter is full, after 2^64 calls.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Announces that the thread is about to sleep: requests queued from here on wake it.
    fn announce_sleep(&self) {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn end_sleep(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
