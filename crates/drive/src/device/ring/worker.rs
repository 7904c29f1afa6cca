//! The thread of a ring: takes requests, keeps them in flight and completes them.
//!
//! Invariants: a request's memory stays in its slot from submission to completion. A slot has at most one entry in the ring, so the
//! ring has room for all slots and the waker.

use super::Waker;
use crate::device::{Buffer, FileDevice};
use bytes::Bytes;
use io_uring::squeue::Entry;
use io_uring::types::Fixed;
use io_uring::{IoUring, Probe, cqueue, opcode, types};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// Requests in flight at once. Devices gain little from more.
const DEPTH: usize = 128;

/// The ring's entries: a power of two greater than the number of slots plus the waker.
const ENTRIES: u32 = 256;

/// The index of the device among the ring's registered files.
const DEVICE: Fixed = Fixed(0);

/// The user data of the waker's entry. Other entries have the number of their slot.
const WAKER: u64 = u64::MAX;

/// The most bytes of one entry: the most pages that the kernel sends to a device in one request. For longer entries it pins the first
/// pages in vain and passes the whole entry to a worker thread (docs/decisions/0054).
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Retries of a request that the kernel interrupts or defers.
const RETRIES: u32 = 32;

/// A request and the channel for its outcome.
#[derive(Debug)]
pub(super) enum Request {
    Read { at: u64, into: Buffer, reply: oneshot::Sender<io::Result<Buffer>> },
    Write { at: u64, from: Bytes, reply: oneshot::Sender<io::Result<()>> },
    Flush { reply: oneshot::Sender<io::Result<()>> },
}

/// Starts the thread. Returns when its ring works, or the error if it does not.
pub(super) fn start(
    device: Arc<FileDevice>,
    requests: mpsc::Receiver<Request>,
    waker: Arc<Waker>,
) -> io::Result<JoinHandle<()>> {
    let (tell, started) = sync_channel(1);
    let thread = std::thread::Builder::new().name("tenon-ring".into()).spawn(move || {
        // io_uring allows submissions only from the thread that created the ring (single issuer).
        let worker = RingWorker::new(device, requests, waker);
        let (worker, outcome) = match worker {
            Ok(worker) => (Some(worker), Ok(())),
            Err(error) => (None, Err(error)),
        };
        if tell.send(outcome).is_ok()
            && let Some(worker) = worker
        {
            worker.run();
        }
    })?;
    started.recv().unwrap_or_else(|_| Err(super::ended()))?;
    Ok(thread)
}

/// The thread's own state: the ring, and the requests in flight.
struct RingWorker {
    ring: IoUring,
    slots: Slots,
    requests: mpsc::Receiver<Request>,
    /// Whether no more requests can come.
    closed: bool,
    waker: Arc<Waker>,
    /// Keeps the file open as long as the ring.
    _device: Arc<FileDevice>,
}

impl RingWorker {
    fn new(
        device: Arc<FileDevice>,
        requests: mpsc::Receiver<Request>,
        waker: Arc<Waker>,
    ) -> io::Result<Self> {
        let ring = ring()?;
        ring.submitter().register_files(&[device.as_fd().as_raw_fd()])?;
        let mut worker =
            Self { ring, slots: Slots::default(), requests, closed: false, waker, _device: device };
        worker.watch_waker();
        Ok(worker)
    }

    /// Carries out requests until the ring is dropped.
    fn run(mut self) {
        while !self.closed || self.slots.in_flight > 0 {
            self.take_requests();
            if let Err(error) = self.submit_and_wait() {
                // Waiting callers, and later ones, get the error that the thread has ended.
                return tracing::error!(
                    "io_uring failed for the device, which cannot be used any more until it is opened again: {error}"
                );
            }
            self.answer();
        }
        // The kernel destroys a closed ring with a delay, and would keep the device locked until then.
        if let Err(error) = self.ring.submitter().unregister_files() {
            tracing::warn!(
                "cannot detach the device from io_uring, so it may stay locked for a moment: {error}"
            );
        }
    }

    /// Takes requests from the channel while there is room.
    fn take_requests(&mut self) {
        while self.has_room() {
            match self.requests.try_recv() {
                Ok(request) => {
                    let entry = self.slots.insert(request);
                    self.push(entry);
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
    }

    /// Returns whether another request may be in flight.
    fn has_room(&self) -> bool {
        !self.closed && self.slots.in_flight < DEPTH
    }

    /// Submits the new entries, and sleeps until a request is completed or, if there is room for one more, queued.
    fn submit_and_wait(&mut self) -> io::Result<()> {
        let mut least = usize::from(!self.closed || self.slots.in_flight > 0);
        if self.has_room() {
            self.waker.announce_sleep();
            if !self.requests.is_empty() {
                least = 0;
            }
        }
        let submitted = self.ring.submit_and_wait(least);
        self.waker.end_sleep();
        match submitted.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::EINTR | libc::EAGAIN | libc::EBUSY), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Answers the requests that the kernel has completed, and repeats those that are incomplete.
    fn answer(&mut self) {
        while let Some(entry) = self.completed() {
            if entry.user_data() == WAKER {
                if !cqueue::more(entry.flags()) {
                    self.watch_waker();
                }
            } else if let Some(again) = self.slots.complete(entry.user_data() as usize, entry.result()) {
                self.push(again);
            }
        }
    }

    /// Returns the next completion of the kernel; `None` if there is none now.
    fn completed(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Makes the kernel report every wake-up, until it announces that it reports no more.
    fn watch_waker(&mut self) {
        let event = types::Fd(self.waker.fd());
        let entry = opcode::PollAdd::new(event, libc::POLLIN as u32).multi(true).build().user_data(WAKER);
        self.push(entry);
    }

    fn push(&mut self, entry: Entry) {
        // SAFETY: an entry points to memory of a request in a slot, where the memory stays until the entry has completed (`Slots`). The
        // files that it names are open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has an entry for every slot and the waker");
    }
}

/// Makes a ring, and checks that the kernel supports the needed operations.
fn ring() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    let ring = builder.setup_single_issuer().setup_defer_taskrun().build(ENTRIES)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::PollAdd::CODE];
    if needed.iter().all(|code| probe.is_supported(*code)) {
        return Ok(ring);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old"))
}

/// The requests in flight.
#[derive(Default)]
struct Slots {
    slots: Vec<Option<InFlight>>,
    /// Indexes of unused slots.
    free: Vec<usize>,
    in_flight: usize,
}

/// A request that the kernel carries out.
struct InFlight {
    request: Request,
    done_bytes: usize,
    retries: u32,
}

impl Slots {
    /// Puts a request into a free slot. Returns the entry to submit.
    fn insert(&mut self, request: Request) -> Entry {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let in_flight = self.slots[slot].insert(InFlight { request, done_bytes: 0, retries: 0 });
        self.in_flight += 1;
        in_flight.entry(slot)
    }

    /// Handles the result of a slot. Completes the request, or returns the entry to submit for the rest of it.
    fn complete(&mut self, slot: usize, result: i32) -> Option<Entry> {
        let mut in_flight = self.slots[slot].take()?;
        match in_flight.progress(result) {
            Some(outcome) => {
                self.free.push(slot);
                self.in_flight -= 1;
                in_flight.request.reply(outcome);
                None
            }
            None => Some(self.slots[slot].insert(in_flight).entry(slot)),
        }
    }
}

impl Drop for Slots {
    /// Requests are in flight only if the ring has failed. Then the kernel may still use their memory, which is leaked.
    fn drop(&mut self) {
        for in_flight in self.slots.drain(..).flatten() {
            match in_flight.request {
                Request::Read { into, .. } => std::mem::forget(into),
                Request::Write { from, .. } => std::mem::forget(from),
                Request::Flush { .. } => {}
            }
        }
    }
}

impl InFlight {
    /// Returns the entry for the rest of the request.
    fn entry(&mut self, slot: usize) -> Entry {
        let done = self.done_bytes;
        let entry = match &mut self.request {
            Request::Read { at, into, .. } => {
                let rest = &mut into[done..];
                let len = rest.len().min(ENTRY_BYTES_MAX) as u32;
                opcode::Read::new(DEVICE, rest.as_mut_ptr(), len).offset(*at + done as u64).build()
            }
            Request::Write { at, from, .. } => {
                let rest = &from[done..];
                let len = rest.len().min(ENTRY_BYTES_MAX) as u32;
                opcode::Write::new(DEVICE, rest.as_ptr(), len).offset(*at + done as u64).build()
            }
            Request::Flush { .. } => opcode::Fsync::new(DEVICE).flags(types::FsyncFlags::DATASYNC).build(),
        };
        entry.user_data(slot as u64)
    }

    /// Takes a result of the kernel. Returns the outcome of the request if it is complete or has failed; `None` if the
    /// rest of it has to be submitted.
    fn progress(&mut self, result: i32) -> Option<io::Result<()>> {
        if result < 0 {
            let may_retry = matches!(-result, libc::EINTR | libc::EAGAIN) && self.retries < RETRIES;
            self.retries += 1;
            return (!may_retry).then(|| Err(io::Error::from_raw_os_error(-result)));
        }
        self.done_bytes += result as usize;
        let (wanted, nothing) = match &self.request {
            Request::Read { into, .. } => (into.len(), io::ErrorKind::UnexpectedEof),
            Request::Write { from, .. } => (from.len(), io::ErrorKind::WriteZero),
            Request::Flush { .. } => return Some(Ok(())),
        };
        if self.done_bytes >= wanted {
            return Some(Ok(()));
        }
        (result == 0).then(|| Err(nothing.into()))
    }
}

impl Request {
    /// Sends the outcome. The receiver is gone if the caller was cancelled.
    fn reply(self, outcome: io::Result<()>) {
        match self {
            Self::Read { into, reply, .. } => drop(reply.send(outcome.map(|()| into))),
            Self::Write { reply, .. } | Self::Flush { reply } => drop(reply.send(outcome)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(blocks: usize) -> (InFlight, oneshot::Receiver<io::Result<Buffer>>) {
        let (reply, answer) = oneshot::channel();
        let request = Request::Read { at: 0, into: Buffer::zeroed(blocks * 4096), reply };
        (InFlight { request, done_bytes: 0, retries: 0 }, answer)
    }

    #[test]
    fn a_partial_read_is_continued() {
        let (mut read, _answer) = read(2);
        assert!(read.progress(4096).is_none());
        assert!(read.progress(512).is_none());
        assert!(matches!(read.progress(3584), Some(Ok(()))));
    }

    #[test]
    fn an_empty_read_is_the_end_of_the_device() {
        let (mut read, _answer) = read(2);
        assert!(read.progress(4096).is_none());
        let outcome = read.progress(0).unwrap();
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn interrupted_requests_are_retried_a_limited_number_of_times() {
        let (mut read, _answer) = read(1);
        for _ in 0..RETRIES {
            assert!(read.progress(-libc::EINTR).is_none());
        }
        let outcome = read.progress(-libc::EAGAIN).unwrap();
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    }

    /// The kernel may still write to the memory of a request without a result.
    #[test]
    fn callers_of_a_failed_ring_get_an_error() {
        let (reply, mut answer) = oneshot::channel();
        let mut slots = Slots::default();
        slots.insert(Request::Read { at: 0, into: Buffer::zeroed(4096), reply });
        drop(slots);
        assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    }
}
