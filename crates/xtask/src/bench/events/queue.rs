//! A bounded queue in this process that feeds can use as a source, like a broker's queue.

use events::{Message, Source, SourceError};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Number of queues: one for each node of OpenIO in the paper.
pub(super) const QUEUES: usize = 9;
/// Maximum number of messages in a queue.
const QUEUE_MESSAGES: usize = 1024;

/// A queue of numbered messages.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    not_empty: Notify,
    half_empty: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<(usize, Message)>,
    is_producer_waiting: bool,
}

/// The number of acknowledged events.
#[derive(Debug, Default)]
pub(super) struct Progress {
    count: AtomicUsize,
    total: usize,
    complete: Notify,
}

/// A reader of a queue. Several readers may share one.
pub(super) struct QueueReader {
    queue: Arc<Queue>,
    progress: Arc<Progress>,
    /// Numbers of received messages that are not acknowledged yet.
    unacknowledged: Vec<usize>,
    /// File for the numbers of acknowledged messages.
    journal: Option<File>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends messages; blocks while the queue is full.
    pub(super) fn push(&self, messages: &mut Vec<(usize, Message)>) {
        let mut state = self.lock();
        if state.messages.len() + messages.len() > QUEUE_MESSAGES {
            // Waits until the queue is half empty; otherwise the producer would be woken for every batch.
            while state.messages.len() > QUEUE_MESSAGES / 2 {
                state.is_producer_waiting = true;
                state = self.half_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.messages.extend(messages.drain(..));
        drop(state);
        self.not_empty.notify_one();
    }

    /// Removes up to `max` messages and appends their numbers to `numbers`.
    fn pop(&self, max: usize, numbers: &mut Vec<usize>) -> Vec<Message> {
        let mut state = self.lock();
        let count = state.messages.len().min(max);
        let mut messages = Vec::with_capacity(count);
        for (number, message) in state.messages.drain(..count) {
            numbers.push(number);
            messages.push(message);
        }
        if state.is_producer_waiting && state.messages.len() <= QUEUE_MESSAGES / 2 {
            state.is_producer_waiting = false;
            self.half_empty.notify_one();
        }
        messages
    }
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Waits until all events are acknowledged.
    pub(super) async fn wait(&self) {
        if self.total > 0 {
            self.complete.notified().await;
        }
    }

    /// Adds acknowledged events.
    pub(super) fn add(&self, count: usize) {
        if self.count.fetch_add(count, Ordering::Relaxed) + count == self.total {
            self.complete.notify_one();
        }
    }
}

impl QueueReader {
    pub(super) fn new(queue: &Arc<Queue>, progress: &Arc<Progress>, journal: Option<File>) -> Self {
        Self { queue: Arc::clone(queue), progress: Arc::clone(progress), unacknowledged: Vec::new(), journal }
    }
}

impl fmt::Debug for QueueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a queue of the benchmark")
    }
}

#[async_trait::async_trait]
impl Source for QueueReader {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            let messages = self.queue.pop(max, &mut self.unacknowledged);
            if !messages.is_empty() {
                return Ok(messages);
            }
            self.queue.not_empty.notified().await;
        }
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        if let Some(journal) = &mut self.journal {
            let numbers: Vec<u8> =
                self.unacknowledged.iter().flat_map(|number| (*number as u64).to_le_bytes()).collect();
            journal.write_all(&numbers).map_err(|error| SourceError::Unavailable(error.to_string()))?;
        }
        self.progress.add(self.unacknowledged.len());
        self.unacknowledged.clear();
        Ok(())
    }
}
