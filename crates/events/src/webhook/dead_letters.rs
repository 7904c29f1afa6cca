//! The dead letters of a webhook: undeliverable events in a file, one line for each message, so that they can be posted by hand.

use super::counters::{Counters, count};
use super::notice::Notice;
use crate::{aws, dead_letter};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Maximum number of letters that wait to be written.
const QUEUE_MAX: usize = 1024;

/// The queue of letters that a task writes to the file.
#[derive(Debug, Clone)]
pub(super) struct DeadLetterQueue {
    letters: mpsc::Sender<Notice>,
    closing: Arc<watch::Sender<bool>>,
    counters: Arc<Counters>,
}

impl DeadLetterQueue {
    /// Starts the task that writes the file. The file is created on first use, readable by its owner only.
    pub(super) fn open(path: PathBuf, counters: Arc<Counters>) -> (Self, JoinHandle<()>) {
        let (letters, waiting) = mpsc::channel(QUEUE_MAX);
        let (closing, closing_receiver) = watch::channel(false);
        let writing = tokio::spawn(write_all(path, waiting, closing_receiver, Arc::clone(&counters)));
        (Self { letters, closing: Arc::new(closing), counters }, writing)
    }

    /// Queues a letter. If the queue is full, the letter is dropped and counted.
    pub(super) fn try_append(&self, notice: Notice) {
        if self.letters.try_send(notice).is_err() {
            count(&self.counters.dropped);
        }
    }

    /// Like [`DeadLetterQueue::try_append`], but waits while the queue is full.
    pub(super) async fn append(&self, notice: Notice) {
        if self.letters.send(notice).await.is_err() {
            count(&self.counters.dropped);
        }
    }

    /// Closes the queue. The task ends after the letters that are queued.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}

async fn write_all(
    path: PathBuf,
    mut waiting: mpsc::Receiver<Notice>,
    mut closing_receiver: watch::Receiver<bool>,
    counters: Arc<Counters>,
) {
    loop {
        let notice = tokio::select! {
            biased;
            notice = waiting.recv() => notice,
            _ = closing_receiver.wait_for(|is_closing| *is_closing), if !waiting.is_closed() => {
                waiting.close();
                continue;
            }
        };
        let Some(notice) = notice else { return };
        match append(&path, &notice).await {
            Ok(()) => count(&counters.failed),
            Err(error) => {
                tracing::error!(
                    "an event is lost, because the dead-letter file cannot be written: {}: {error}",
                    path.display()
                );
                count(&counters.dropped);
            }
        }
    }
}

async fn append(path: &Path, notice: &Notice) -> io::Result<()> {
    let mut line = aws::message(&notice.event, &notice.configuration);
    line.push(b'\n');
    dead_letter::append(path, &line).await
}
