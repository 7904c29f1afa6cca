//! Sources that read Kafka topics.
//!
//! The client library has no consumer groups. Positions are therefore stored in a local file (see [`positions`]), and a process reads
//! the partitions that it is told to read. Several processes share a topic by naming different partitions. If one of them is gone, its
//! partitions wait for it. Transactions are ignored: records of aborted transactions are read, too.

mod fetch;
mod positions;

use super::broker_url::{BrokerAccess, BrokerUrl, UrlForm};
use super::connection::with_timeout;
use events::{Message, Source, SourceError};
use fetch::{Fetched, fetch_partition, record_before, watch_partitions};
use futures_util::future::try_join_all;
use positions::{PartitionPositions, Position, Positions};
use rskafka::BackoffConfig;
use rskafka::client::error::Error;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::RecordAndOffset;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

const FORM: UrlForm = UrlForm {
    scheme: "kafka",
    tls_scheme: None,
    port: 9092,
    parameters: &["group", "partitions"],
    example: "kafka://HOST:PORT/TOPIC?group=NAME, with &partitions=0,2 where others read the rest",
};

/// Time for which the client library retries before it reports an error.
const CLIENT_RETRY_TIME: Duration = Duration::from_secs(3);

/// Maximum number of fetched batches that are queued, besides one for each partition.
const QUEUE_MAX: usize = 2;

/// Opens the source of a `kafka:` URL. Nothing is sent to the broker yet.
///
/// # Errors
/// If the URL does not describe a source, or no directory for positions is configured.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let url = BrokerUrl::parse(url, access, &FORM)?;
    let group = url.required("group", &FORM)?;
    let is_name = |name: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.len() <= 100 && name.bytes().all(is_known)
    };
    if !is_name(&url.path) || !is_name(group) {
        return Err(FORM.refuse("topic and group must have 1 to 100 letters, digits, or ._-"));
    }
    let Some(dir) = &access.positions else {
        return Err(url.refused("a Kafka source needs a directory for its positions"));
    };
    let positions = Positions::of(dir, &url.path, group);
    let partitions = parse_partitions(&url)?;
    Ok(Box::new(TopicSource {
        topic: TopicConfig { url, partitions, positions },
        session: None,
        has_lost: false,
    }))
}

fn parse_partitions(url: &BrokerUrl) -> Result<Option<BTreeSet<i32>>, SourceError> {
    let Some(list) = url.parameter("partitions") else { return Ok(None) };
    let numbers = list.split(',').map(|number| number.parse().ok().filter(|number| *number >= 0));
    let numbers: Option<BTreeSet<i32>> = numbers.collect();
    numbers.map(Some).ok_or_else(|| FORM.refuse("'partitions' must be numbers separated by commas"))
}

/// The source of a topic.
#[derive(Debug)]
struct TopicSource {
    topic: TopicConfig,
    session: Option<Session>,
    /// Whether the broker has removed records that had not been read, and this was not reported yet.
    has_lost: bool,
}

#[derive(Debug)]
struct TopicConfig {
    url: BrokerUrl,
    /// The partitions to read; `None` means all.
    partitions: Option<BTreeSet<i32>>,
    positions: Positions,
}

#[derive(Debug)]
struct Session {
    fetched: mpsc::Receiver<Result<Fetched, Error>>,
    /// Records that arrived and were not delivered yet.
    ready: VecDeque<(i32, RecordAndOffset)>,
    /// For each partition, the position after the last record delivered.
    delivered: PartitionPositions,
    /// The client of each partition, with the offset at which it began.
    readers: Vec<(Arc<PartitionClient>, i64)>,
    /// The reading tasks, which end when this is dropped.
    _tasks: JoinSet<()>,
}

#[async_trait::async_trait]
impl Source for TopicSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.session.is_none() {
            let (session, has_lost) = self.topic.open_session().await?;
            self.session = Some(session);
            self.has_lost |= has_lost;
            if has_lost {
                return Ok(Vec::new());
            }
        }
        let Some(session) = &mut self.session else { return Ok(Vec::new()) };
        while session.ready.is_empty() {
            match session.fetched.recv().await {
                Some(Ok((partition, records))) => {
                    session.ready.extend(records.into_iter().map(|record| (partition, record)));
                }
                Some(Err(error)) => {
                    self.session = None;
                    return Err(self.topic.error(&error));
                }
                None => {
                    self.session = None;
                    return Err(self.topic.url.unavailable("the partitions of the topic have changed"));
                }
            }
        }
        let some = session.ready.len().min(max);
        let mut messages = Vec::with_capacity(some);
        for (partition, record) in session.ready.drain(..some) {
            session.delivered.insert(partition, Position::after(&record));
            messages.extend(to_message(record));
        }
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(session) = &self.session else { return Ok(()) };
        let kept = self.topic.positions.write(&session.delivered).await;
        kept.map_err(|error| {
            self.session = None;
            self.topic.url.unavailable(error)
        })
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(session) = &self.session else { return Ok(None) };
        let ends = session.readers.iter().map(|(reader, _)| reader.get_offset(OffsetAt::Latest));
        let ends = with_timeout(&self.topic.url, try_join_all(ends)).await?;
        let ends = ends.map_err(|error| self.topic.error(&error))?;
        let left = session.readers.iter().zip(ends).map(|((reader, from), end)| {
            let next = session
                .delivered
                .get(&reader.partition())
                .map_or(*from, |delivered| delivered.next.max(*from));
            u64::try_from(end.saturating_sub(next)).unwrap_or(0)
        });
        Ok(Some(left.sum()))
    }

    fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }
}

impl TopicConfig {
    /// Begins to read. Also returns whether records may have been lost: the broker has removed some that had not been read, or the topic was
    /// deleted and created again.
    async fn open_session(&self) -> Result<(Session, bool), SourceError> {
        let mut delivered = self.positions.read().await.map_err(|error| self.url.refused(error))?;
        let client = with_timeout(&self.url, self.connect()).await?.map_err(|error| self.error(&error))?;
        let all = with_timeout(&self.url, client.list_topics()).await?.map_err(|error| self.error(&error))?;
        let topic = all.into_iter().find(|topic| topic.name == self.url.path);
        let existing = topic.map(|topic| topic.partitions).unwrap_or_default();
        let wanted = self.partitions_to_read(&existing)?;
        let (sender, fetched) = mpsc::channel(QUEUE_MAX);
        let mut tasks = JoinSet::new();
        let (mut has_lost, mut readers) = (false, Vec::new());
        for partition in wanted {
            let opened = self.open_partition(&client, partition, delivered.get(&partition).copied());
            let (reader, from, is_gap) =
                with_timeout(&self.url, opened).await?.map_err(|error| self.error(&error))?;
            if is_gap {
                has_lost = true;
                delivered.insert(partition, Position { next: from, last: None });
            }
            let reader = Arc::new(reader);
            tasks.spawn(fetch_partition(Arc::clone(&reader), from, sender.clone()));
            readers.push((reader, from));
        }
        tasks.spawn(watch_partitions(client, self.url.path.clone(), existing, sender));
        let session = Session { fetched, ready: VecDeque::new(), delivered, readers, _tasks: tasks };
        Ok((session, has_lost))
    }

    async fn connect(&self) -> Result<Client, Error> {
        let broker = format!("{}:{}", self.url.host, self.url.port);
        let backoff = BackoffConfig { deadline: Some(CLIENT_RETRY_TIME), ..BackoffConfig::default() };
        let mut builder = ClientBuilder::new(vec![broker]).client_id("tenon").backoff_config(backoff);
        if let Some(login) = &self.url.login {
            let credentials = Credentials::new(login.user.clone(), login.password.clone());
            builder = builder.sasl_config(SaslConfig::Plain(credentials));
        }
        builder.build().await
    }

    fn partitions_to_read(&self, existing: &BTreeSet<i32>) -> Result<BTreeSet<i32>, SourceError> {
        if existing.is_empty() {
            let topic = &self.url.path;
            return Err(self
                .url
                .refused(format_args!("there is no topic '{topic}': make it, or name another")));
        }
        let Some(wanted) = &self.partitions else { return Ok(existing.clone()) };
        match wanted.difference(existing).next() {
            None => Ok(wanted.clone()),
            Some(missing) => {
                let count = existing.len();
                Err(self.url.refused(format_args!("there is no partition {missing}; the topic has {count}")))
            }
        }
    }

    /// Returns the client of a partition, the offset at which to begin, and whether that differs from the stored position.
    async fn open_partition(
        &self,
        client: &Client,
        partition: i32,
        known: Option<Position>,
    ) -> Result<(PartitionClient, i64, bool), Error> {
        let topic = self.url.path.clone();
        let reader = client.partition_client(topic, partition, UnknownTopicHandling::Error).await?;
        let first = reader.get_offset(OffsetAt::Earliest).await?;
        let end = reader.get_offset(OffsetAt::Latest).await?;
        let Some(known) = known else { return Ok((reader, first, false)) };
        // The broker removes old records after a time, and a topic that was created anew begins at offset 0 again.
        if !(first..=end).contains(&known.next) {
            return Ok((reader, first, true));
        }
        // A topic that was created anew may have grown beyond the position. The protocol of the client library has no ids of topics.
        let before = if first < known.next { record_before(&reader, known.next).await? } else { None };
        let is_other_topic = before.is_some_and(|record| known.contradicts(&record));
        Ok((reader, if is_other_topic { first } else { known.next }, is_other_topic))
    }

    /// Converts an error. Those that somebody must fix become [`SourceError::Refused`].
    fn error(&self, error: &Error) -> SourceError {
        let text = error.to_string();
        // The client library has no error code for this case.
        if text.contains("Sasl handshake") {
            return self.url.refused("Kafka rejected the user or the password: correct them");
        }
        self.url.unavailable(text)
    }
}

/// Converts a record. A tombstone has no value and yields no message.
fn to_message(record: RecordAndOffset) -> Option<Message> {
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let headers = record.record.headers.iter();
    let attributes = headers.map(|(name, value)| (name.to_lowercase(), text(value))).collect();
    Some(Message { attributes, body: record.record.value?.into() })
}
