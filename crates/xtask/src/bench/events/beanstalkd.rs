//! Nine real beanstalkd as queues: the paper has one for each node of OpenIO.

use super::queue::{Done, QUEUES};
use crate::bench::resource_usage;
use anyhow::{Context, Result, bail};
use events::{Message, Source, SourceAccess, SourceError};
use servers::Broker;
use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use store::{Entropy, SystemClock};
use tokio::runtime::Runtime;

/// OpenIO has beanstalkd sync its log every second.
const SYNC_MS: u32 = 1000;
/// A job that was reserved and not deleted comes again after this many seconds.
const RESERVED_SECS: u32 = 3600;

/// The brokers, with a connection to each for the producer.
pub(super) struct Brokers {
    brokers: Vec<Broker>,
    connections: Vec<TcpStream>,
    stored: Arc<AtomicUsize>,
    readers: Vec<JoinHandle<Result<()>>>,
}

/// A source that counts what it acknowledged.
pub(super) struct Counted {
    source: Box<dyn Source>,
    done: Arc<Done>,
    held: usize,
}

impl Brokers {
    pub(super) fn start() -> Result<Self> {
        let brokers: Vec<Broker> = (0..QUEUES).map(|_| servers::beanstalkd_synced_every(SYNC_MS)).collect();
        let stored = Arc::<AtomicUsize>::default();
        let (mut connections, mut readers) = (Vec::new(), Vec::new());
        for broker in &brokers {
            let connection = TcpStream::connect(broker.address())?;
            let (answers, stored) = (connection.try_clone()?, Arc::clone(&stored));
            readers.push(thread::spawn(move || count_stored(answers, &stored)));
            connections.push(connection);
        }
        Ok(Self { brokers, connections, stored, readers })
    }

    /// Puts messages into the queue of a turn, without waiting for the answers.
    pub(super) fn push(&self, turn: usize, messages: &mut Vec<(usize, Message)>) -> Result<()> {
        let mut commands = Vec::new();
        for (_, message) in messages.drain(..) {
            write!(commands, "put 0 0 {RESERVED_SECS} {}\r\n", message.body.len())?;
            commands.extend_from_slice(&message.body);
            commands.extend_from_slice(b"\r\n");
        }
        (&self.connections[turn % QUEUES]).write_all(&commands).context("a beanstalkd is gone")
    }

    /// Waits until the queues have stored so many messages.
    pub(super) fn have_stored(&self, total: usize) -> Result<()> {
        while self.stored.load(Ordering::Relaxed) < total {
            if self.readers.iter().any(JoinHandle::is_finished) {
                bail!("a beanstalkd refused a message, or is gone");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// A source of the queue with this number.
    pub(super) fn source(&self, queue: usize, done: &Arc<Done>, runtime: &Runtime) -> Result<Counted> {
        let access = SourceAccess::unsigned(Arc::new(SystemClock), Arc::new(Entropy::new(1)));
        let url = format!("{}/default", self.brokers[queue % QUEUES].url_without_user());
        Ok(Counted { source: runtime.block_on(events::open(&url, access))?, done: Arc::clone(done), held: 0 })
    }

    /// CPU time that all of them have used.
    pub(super) fn cpu(&self) -> Result<Duration> {
        self.brokers.iter().filter_map(|broker| broker.pid()).map(resource_usage::cpu).sum()
    }
}

/// Counts the answers to `put`.
fn count_stored(answers: TcpStream, stored: &AtomicUsize) -> Result<()> {
    for answer in BufReader::new(answers).lines() {
        let answer = answer?;
        if !answer.starts_with("INSERTED") {
            bail!("beanstalkd says {answer}");
        }
        stored.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

#[async_trait::async_trait]
impl Source for Counted {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let messages = self.source.receive(max).await?;
        self.held += messages.len();
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        self.source.acknowledge().await?;
        self.done.add(std::mem::take(&mut self.held));
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        self.source.waiting().await
    }

    fn take_lost(&mut self) -> bool {
        self.source.take_lost()
    }
}
