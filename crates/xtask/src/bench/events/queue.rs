//! A bounded queue in this process, which is a source of feeds as a broker's queue is.

use events::{Message, Source, SourceError};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// As many as the paper has nodes of OpenIO.
pub(super) const QUEUES: usize = 9;
/// Messages that a queue holds at most.
const QUEUE_MESSAGES: usize = 1024;

/// A queue of events by number.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    came: Notify,
    room: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<(usize, Message)>,
    is_producer_waiting: bool,
}

/// How many events are done.
#[derive(Debug, Default)]
pub(super) struct Done {
    count: AtomicUsize,
    total: usize,
    all: Notify,
}

/// A reader of a queue; several may share it.
pub(super) struct Reader {
    queue: Arc<Queue>,
    done: Arc<Done>,
    held: Vec<usize>,
    /// Where the numbers of what was acknowledged are written down.
    journal: Option<File>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends messages when there is room for them.
    pub(super) fn push(&self, messages: &mut Vec<(usize, Message)>) {
        let mut waiting = self.waiting();
        if waiting.messages.len() + messages.len() > QUEUE_MESSAGES {
            // Not for a few: the producer would be woken for every batch.
            while waiting.messages.len() > QUEUE_MESSAGES / 2 {
                waiting.is_producer_waiting = true;
                waiting = self.room.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
        }
        waiting.messages.extend(messages.drain(..));
        drop(waiting);
        self.came.notify_one();
    }

    fn pop(&self, max: usize, numbers: &mut Vec<usize>) -> Vec<Message> {
        let mut waiting = self.waiting();
        let some = waiting.messages.len().min(max);
        let mut messages = Vec::with_capacity(some);
        for (number, message) in waiting.messages.drain(..some) {
            numbers.push(number);
            messages.push(message);
        }
        if waiting.is_producer_waiting && waiting.messages.len() <= QUEUE_MESSAGES / 2 {
            waiting.is_producer_waiting = false;
            self.room.notify_one();
        }
        messages
    }
}

impl Done {
    pub(super) fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Waits for all of them.
    pub(super) async fn all(&self) {
        if self.total > 0 {
            self.all.notified().await;
        }
    }

    /// Counts events that were acknowledged.
    pub(super) fn add(&self, count: usize) {
        if self.count.fetch_add(count, Ordering::Relaxed) + count == self.total {
            self.all.notify_one();
        }
    }
}

impl Reader {
    pub(super) fn new(queue: &Arc<Queue>, done: &Arc<Done>, journal: Option<File>) -> Self {
        Self { queue: Arc::clone(queue), done: Arc::clone(done), held: Vec::new(), journal }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a queue of the benchmark")
    }
}

#[async_trait::async_trait]
impl Source for Reader {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            let messages = self.queue.pop(max, &mut self.held);
            if !messages.is_empty() {
                return Ok(messages);
            }
            self.queue.came.notified().await;
        }
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        if let Some(journal) = &mut self.journal {
            let numbers: Vec<u8> =
                self.held.iter().flat_map(|number| (*number as u64).to_le_bytes()).collect();
            journal.write_all(&numbers).map_err(|error| SourceError::Unavailable(error.to_string()))?;
        }
        self.done.add(self.held.len());
        self.held.clear();
        Ok(())
    }
}
