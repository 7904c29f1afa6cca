//! Threads that drain the kernel's trace buffers while the workload runs.

use super::event::{Decoder, Event};
use super::ring_buffer;
use super::tracefs::Instance;
use crate::model::TraceError;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Size of a sub-buffer. Each read returns one sub-buffer, so larger ones need fewer reads (kernel 6.8 or newer).
pub(super) const SUB_BUFFER_KIB: usize = 64;

/// Size of each processor's buffer, in KiB. 32 MiB hold half a million records, about a second of a busy node.
pub(super) const BUFFER_KIB: usize = 32 << 10;

/// Pause before an empty buffer is read again. The events of this time must fit into the buffer.
const PAUSE: Duration = Duration::from_millis(50);

/// The remaining number of events that may be kept, and the number dropped.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) remaining: AtomicUsize,
    pub(super) dropped: AtomicU64,
}

/// The reader threads of one tracing instance, one for each processor.
#[derive(Debug)]
pub(super) struct Readers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Event>>>,
}

impl Readers {
    /// Starts a reader thread for each buffer of an instance.
    pub(super) fn start(
        instance: &Instance,
        decoder: Decoder,
        budget: &Arc<Budget>,
    ) -> Result<Self, TraceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for buffer in instance.buffers()? {
            let (decoder, budget, stop) = (decoder.clone(), Arc::clone(budget), Arc::clone(&stop));
            threads.push(std::thread::spawn(move || read_until_stopped(buffer, &decoder, &budget, &stop)));
        }
        Ok(Self { stop, threads })
    }

    /// Reads the rest of the buffers and appends all events: for each processor a run in time order.
    pub(super) fn finish(mut self, into: &mut Vec<Event>) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            into.append(&mut thread.join().unwrap_or_default());
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn read_until_stopped(mut buffer: File, decoder: &Decoder, budget: &Budget, stop: &AtomicBool) -> Vec<Event> {
    let mut events = Vec::new();
    let mut page = vec![0; SUB_BUFFER_KIB << 10];
    loop {
        let is_last_pass = stop.load(Ordering::Acquire);
        while let Some(read) = read_page(&mut buffer, &mut page) {
            ring_buffer::for_each_record(&page[..read], |at_ns, record| {
                if let Some(event) = decoder.decode(at_ns, record) {
                    push_within_budget(&mut events, event, budget);
                }
            });
        }
        if is_last_pass {
            return events;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reads the next sub-buffer and returns its length, or `None` if the buffer is empty now.
fn read_page(buffer: &mut File, page: &mut [u8]) -> Option<usize> {
    loop {
        match buffer.read(page) {
            Ok(0) => return None,
            Ok(read) => return Some(read),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(_) => return None,
        }
    }
}

fn push_within_budget(events: &mut Vec<Event>, event: Event, budget: &Budget) {
    let taken = budget.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    match taken {
        Ok(_) => events.push(event),
        Err(_) => {
            budget.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
