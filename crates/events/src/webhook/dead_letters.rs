//! What could not be delivered, in a file: a line for each message, so that it can be posted by hand.

use super::{Counters, Notice, count};
use crate::{aws, letter};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Letters that may wait to be written.
const WAITING_MAX: usize = 1024;

/// Where letters are handed in.
#[derive(Debug, Clone)]
pub(super) struct DeadLetters {
    letters: mpsc::Sender<Notice>,
    closing: Arc<watch::Sender<bool>>,
    counters: Arc<Counters>,
}

impl DeadLetters {
    /// The file is made when there is something to write; who owns it alone can read it.
    pub(super) fn open(path: PathBuf, counters: Arc<Counters>) -> (Self, JoinHandle<()>) {
        let (letters, waiting) = mpsc::channel(WAITING_MAX);
        let (closing, closes) = watch::channel(false);
        let writing = tokio::spawn(write_all(path, waiting, closes, Arc::clone(&counters)));
        (Self { letters, closing: Arc::new(closing), counters }, writing)
    }

    /// Hands in a letter. Where there is no place it is dropped, and counted.
    pub(super) fn put(&self, notice: Notice) {
        if self.letters.try_send(notice).is_err() {
            count(&self.counters.dropped);
        }
    }

    /// As [`DeadLetters::put`], for who may wait for a place.
    pub(super) async fn put_waiting(&self, notice: Notice) {
        if self.letters.send(notice).await.is_err() {
            count(&self.counters.dropped);
        }
    }

    /// Takes no more.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}

async fn write_all(
    path: PathBuf,
    mut waiting: mpsc::Receiver<Notice>,
    mut closes: watch::Receiver<bool>,
    counters: Arc<Counters>,
) {
    loop {
        let notice = tokio::select! {
            biased;
            notice = waiting.recv() => notice,
            _ = closes.wait_for(|is_closing| *is_closing), if !waiting.is_closed() => {
                waiting.close();
                continue;
            }
        };
        let Some(notice) = notice else { return };
        match append(&path, &notice).await {
            Ok(()) => count(&counters.failed),
            Err(error) => {
                tracing::error!("an event is lost: {}: {error}", path.display());
                count(&counters.dropped);
            }
        }
    }
}

async fn append(path: &Path, notice: &Notice) -> io::Result<()> {
    let mut line = aws::message(&notice.event, &notice.configuration);
    line.push(b'\n');
    letter::append(path, &line).await
}
