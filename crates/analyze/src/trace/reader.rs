//! Threads that empty the kernel's buffers while the workload runs.

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

/// The kernel hands out one sub-buffer a read; larger ones mean fewer reads, where the kernel can (since 6.8).
pub(super) const SUB_BUFFER_KIB: usize = 64;

/// Room for a second or so of a busy node on each processor, in KiB: 30 MB hold half a million records.
pub(super) const BUFFER_KIB: usize = 32 << 10;

/// Between two looks at an empty buffer: what comes meanwhile must fit into it, whatever the machine.
const PAUSE: Duration = Duration::from_millis(50);

/// How many events may be kept, and how many were not.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) left: AtomicUsize,
    pub(super) refused: AtomicU64,
}

/// The readers of one instance, one for each processor.
#[derive(Debug)]
pub(super) struct Readers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Event>>>,
}

impl Readers {
    /// Starts to read an instance.
    pub(super) fn start(
        instance: &Instance,
        decoder: Decoder,
        budget: &Arc<Budget>,
    ) -> Result<Self, TraceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for buffer in instance.buffers()? {
            let (decoder, budget, stop) = (decoder.clone(), Arc::clone(budget), Arc::clone(&stop));
            threads.push(std::thread::spawn(move || read_until(buffer, &decoder, &budget, &stop)));
        }
        Ok(Self { stop, threads })
    }

    /// Reads what is left and gives all: a run in the order of time for each processor.
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

fn read_until(mut buffer: File, decoder: &Decoder, budget: &Budget, stop: &AtomicBool) -> Vec<Event> {
    let mut events = Vec::new();
    let mut page = vec![0; SUB_BUFFER_KIB << 10];
    loop {
        let last = stop.load(Ordering::Acquire);
        while let Some(read) = read_page(&mut buffer, &mut page) {
            ring_buffer::records(&page[..read], |at_ns, record| {
                if let Some(event) = decoder.event(at_ns, record) {
                    keep(&mut events, event, budget);
                }
            });
        }
        if last {
            return events;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The length of the next sub-buffer; `None` if there is none now.
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

fn keep(events: &mut Vec<Event>, event: Event, budget: &Budget) {
    let room = budget.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    match room {
        Ok(_) => events.push(event),
        Err(_) => {
            budget.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}
