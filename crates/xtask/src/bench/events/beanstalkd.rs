//! Nine real beanstalkd as queues, as in the paper, which has one for each node of OpenIO.

use super::queue::{Progress, QUEUES};
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

/// Sync interval of beanstalkd's log; OpenIO uses one second.
const SYNC_MS: u32 = 1000;
/// Time after which a reserved job that was not deleted is delivered again.
const RESERVED_SECS: u32 = 3600;

/// The brokers, each with a connection for the producer.
pub(super) struct BeanstalkdQueues {
    brokers: Vec<Broker>,
    connections: Vec<TcpStream>,
    /// Number of messages that the brokers have confirmed.
    stored: Arc<AtomicUsize>,
    /// Threads that read the brokers' responses.
    readers: Vec<JoinHandle<Result<()>>>,
}

/// A source that counts acknowledged messages.
pub(super) struct CountingSource {
    source: Box<dyn Source>,
    progress: Arc<Progress>,
    /// Received messages that are not acknowledged yet.
    unacknowledged: usize,
}

impl BeanstalkdQueues {
    pub(super) fn start() -> Result<Self> {
        let brokers: Vec<Broker> = (0..QUEUES).map(|_| servers::beanstalkd_synced_every(SYNC_MS)).collect();
        let stored = Arc::<AtomicUsize>::default();
        let (mut connections, mut readers) = (Vec::new(), Vec::new());
        for broker in &brokers {
            let connection = TcpStream::connect(broker.address())?;
            let (responses, stored) = (connection.try_clone()?, Arc::clone(&stored));
            readers.push(thread::spawn(move || count_stored(responses, &stored)));
            connections.push(connection);
        }
        Ok(Self { brokers, connections, stored, readers })
    }

    /// Puts messages into one of the queues, chosen round-robin by `turn`, without waiting for responses.
    pub(super) fn push(&self, turn: usize, messages: &mut Vec<(usize, Message)>) -> Result<()> {
        let mut commands = Vec::new();
        for (_, message) in messages.drain(..) {
            write!(commands, "put 0 0 {RESERVED_SECS} {}\r\n", message.body.len())?;
            commands.extend_from_slice(&message.body);
            commands.extend_from_slice(b"\r\n");
        }
        (&self.connections[turn % QUEUES]).write_all(&commands).context("a beanstalkd closed the connection")
    }

    /// Waits until the queues have confirmed `total` messages.
    pub(super) fn wait_until_stored(&self, total: usize) -> Result<()> {
        while self.stored.load(Ordering::Relaxed) < total {
            if self.readers.iter().any(JoinHandle::is_finished) {
                bail!("a beanstalkd refused a message or closed the connection");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Opens a source of the queue with this number.
    pub(super) fn open_source(
        &self,
        queue: usize,
        progress: &Arc<Progress>,
        runtime: &Runtime,
    ) -> Result<CountingSource> {
        let access = SourceAccess::unsigned(Arc::new(SystemClock), Arc::new(Entropy::new(1)));
        let url = format!("{}/default", self.brokers[queue % QUEUES].url_without_user());
        let source = runtime.block_on(events::open(&url, access))?;
        Ok(CountingSource { source, progress: Arc::clone(progress), unacknowledged: 0 })
    }

    /// Returns the CPU time that all brokers have used.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        let pids = self.brokers.iter().filter_map(|broker| broker.pid());
        Ok(pids.map(resource_usage::cpu_time).sum::<std::io::Result<Duration>>()?)
    }
}

/// Counts the responses to `put`.
fn count_stored(responses: TcpStream, stored: &AtomicUsize) -> Result<()> {
    for response in BufReader::new(responses).lines() {
        let response = response?;
        if !response.starts_with("INSERTED") {
            bail!("beanstalkd refused a message: {response}");
        }
        stored.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

impl fmt::Debug for CountingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

#[async_trait::async_trait]
impl Source for CountingSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let messages = self.source.receive(max).await?;
        self.unacknowledged += messages.len();
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        self.source.acknowledge().await?;
        self.progress.add(std::mem::take(&mut self.unacknowledged));
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        self.source.waiting().await
    }

    fn take_lost(&mut self) -> bool {
        self.source.take_lost()
    }
}
