//! Reads and writes by io_uring: one thread for a device, which keeps many under way at once.
//!
//! Owns the queue to that thread. Whoever waits on a thread of their own asks the device itself, for that is cheaper;
//! the ring is for those who await. Memory that the kernel may still write to belongs to the thread until the kernel
//! has answered: who stops waiting changes nothing of that.

mod engine;

use super::{BlockDevice, Buffer, FileDevice, check_read, check_write};
use bytes::Bytes;
use engine::Request;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// How many requests wait for the thread before those who ask wait themselves.
const QUEUE: usize = 256;

/// A device served by a ring. What was asked for is finished before it goes.
#[derive(Debug)]
pub struct Ring {
    device: Arc<FileDevice>,
    /// Gone when the ring ends.
    requests: Option<mpsc::Sender<Request>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// Starts the thread. Fails where the kernel has no io_uring, has one too old, or permits none.
    pub fn start(device: Arc<FileDevice>) -> io::Result<Self> {
        let (requests, taken) = mpsc::channel(QUEUE);
        let waker = Arc::new(Waker::new()?);
        let thread = engine::start(device.clone(), taken, waker.clone())?;
        Ok(Self { device, requests: Some(requests), waker, thread: Some(thread) })
    }

    /// Fills the buffer from a position on, and gives it back.
    pub async fn read(&self, at: u64, into: Buffer) -> io::Result<Buffer> {
        check_read(self.device.len_bytes(), at, into.len())?;
        self.ask(|reply| Request::Read { at, into, reply }).await
    }

    /// Stores whole blocks from a position on. Memory that the device cannot use as it is, is copied.
    pub async fn write(&self, at: u64, from: Bytes) -> io::Result<()> {
        check_write(self.device.len_bytes(), at, from.len())?;
        let from = if self.device.takes(&from) { from } else { Buffer::gathered([&*from]).into() };
        self.ask(|reply| Request::Write { at, from, reply }).await
    }

    /// Returns when everything that was written before is on the medium.
    pub async fn flush(&self) -> io::Result<()> {
        self.ask(|reply| Request::Flush { reply }).await
    }

    /// The device below.
    pub fn device(&self) -> &Arc<FileDevice> {
        &self.device
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<io::Result<T>>) -> Request) -> io::Result<T> {
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
        self.waker.wake_surely();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported where it was.
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread of the device's ring has ended")
}

/// Wakes the thread when it sleeps in the kernel: it sees an eventfd become readable.
///
/// Who asks queues and then looks whether the thread sleeps; the thread says that it will sleep and then looks into the
/// queue. With a fence between the two on both sides, one of them sees the other.
#[derive(Debug)]
struct Waker {
    event: OwnedFd,
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

    /// Called after a request was queued. A thread that is awake looks into the queue before it sleeps.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::Relaxed) {
            self.wake_surely();
        }
    }

    fn wake_surely(&self) {
        // It fails only when its counter is full, which is 2^64 wakings away.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// From here on a request that is queued wakes the thread.
    fn will_sleep(&self) {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn is_awake(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
