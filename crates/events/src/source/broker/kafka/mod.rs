//! Kafka.
//!
//! The client knows no consumer groups: positions are kept in a file of ours (see [`positions`]), and a partition is read by
//! whoever is told to. Several processes share a topic by naming their partitions; those of one that is gone wait until it is back.
//! A topic with transactions is read without regard to them: what was aborted is read, too.

mod fetch;
mod positions;

use super::broker_url::{BrokerAccess, Form, Place};
use super::connection::within;
use crate::source::{Message, Source, SourceError};
use fetch::{Fetched, follow, watch};
use futures_util::future::try_join_all;
use positions::Positions;
use rskafka::BackoffConfig;
use rskafka::client::error::Error;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::RecordAndOffset;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

const FORM: Form = Form {
    scheme: "kafka",
    tls_scheme: None,
    port: 9092,
    parameters: &["group", "partitions"],
    example: "kafka://HOST:PORT/TOPIC?group=NAME, with &partitions=0,2 where others read the rest",
};

/// How long the client itself tries again before it says what went wrong.
const TRIES: Duration = Duration::from_secs(3);

/// How many answers of brokers may wait here, besides one of each partition.
const WAITING_MAX: usize = 2;

/// The source of a `kafka:` URL. Nothing is asked of the broker yet.
///
/// # Errors
/// If the URL says no source, or there is no place for positions.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let place = Place::read(url, access, &FORM)?;
    let group = place.required("group", &FORM)?;
    let is_name = |name: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.len() <= 100 && name.bytes().all(is_known)
    };
    if !is_name(&place.path) || !is_name(group) {
        return Err(FORM.refuse("a topic and a group have up to 100 letters, digits, and ._-"));
    }
    let Some(dir) = &access.positions else {
        return Err(place.refused("a Kafka source needs a directory for its positions"));
    };
    let positions = Positions::of(dir, &place.path, group);
    let partitions = partitions(&place)?;
    Ok(Box::new(Topic { topic: Named { place, partitions, positions }, share: None, has_lost: false }))
}

fn partitions(place: &Place) -> Result<Option<BTreeSet<i32>>, SourceError> {
    let Some(list) = place.parameter("partitions") else { return Ok(None) };
    let numbers = list.split(',').map(|number| number.parse().ok().filter(|number| *number >= 0));
    let numbers: Option<BTreeSet<i32>> = numbers.collect();
    numbers.map(Some).ok_or_else(|| FORM.refuse("'partitions' are numbers with commas between them"))
}

/// A topic's source.
#[derive(Debug)]
struct Topic {
    topic: Named,
    share: Option<Share>,
    has_lost: bool,
}

#[derive(Debug)]
struct Named {
    place: Place,
    /// Which are read; `None` is all.
    partitions: Option<BTreeSet<i32>>,
    positions: Positions,
}

#[derive(Debug)]
struct Share {
    fetched: mpsc::Receiver<Result<Fetched, Error>>,
    /// What came and was not yet handed out.
    ready: VecDeque<(i32, RecordAndOffset)>,
    /// Of each partition what comes after that which was handed out.
    handed: BTreeMap<i32, i64>,
    /// Of each partition who reads it, and from where on.
    readers: Vec<(Arc<PartitionClient>, i64)>,
    /// End with this.
    _tasks: JoinSet<()>,
}

#[async_trait::async_trait]
impl Source for Topic {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.share.is_none() {
            let (share, has_lost) = self.topic.join().await?;
            self.share = Some(share);
            self.has_lost |= has_lost;
            if has_lost {
                return Ok(Vec::new());
            }
        }
        let Some(share) = &mut self.share else { return Ok(Vec::new()) };
        while share.ready.is_empty() {
            match share.fetched.recv().await {
                Some(Ok((partition, records))) => {
                    share.ready.extend(records.into_iter().map(|record| (partition, record)));
                }
                Some(Err(error)) => {
                    self.share = None;
                    return Err(self.topic.error(&error));
                }
                None => {
                    self.share = None;
                    return Err(self.topic.place.unavailable("the topic has other partitions now"));
                }
            }
        }
        let some = share.ready.len().min(max);
        let mut messages = Vec::with_capacity(some);
        for (partition, record) in share.ready.drain(..some) {
            share.handed.insert(partition, record.offset + 1);
            messages.extend(message(record));
        }
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(share) = &self.share else { return Ok(()) };
        let kept = self.topic.positions.keep(&share.handed).await;
        kept.map_err(|error| {
            self.share = None;
            self.topic.place.unavailable(error)
        })
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(share) = &self.share else { return Ok(None) };
        let ends = share.readers.iter().map(|(reader, _)| reader.get_offset(OffsetAt::Latest));
        let ends = within(&self.topic.place, try_join_all(ends)).await?;
        let ends = ends.map_err(|error| self.topic.error(&error))?;
        let left = share.readers.iter().zip(ends).map(|((reader, from), end)| {
            let next = share.handed.get(&reader.partition()).map_or(*from, |handed| *handed.max(from));
            u64::try_from(end.saturating_sub(next)).unwrap_or(0)
        });
        Ok(Some(left.sum()))
    }

    fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }
}

impl Named {
    /// Begins to read, and says whether something was removed that had not been read.
    async fn join(&self) -> Result<(Share, bool), SourceError> {
        let known = self.positions.read().await.map_err(|error| self.place.refused(error))?;
        let client = within(&self.place, self.connect()).await?.map_err(|error| self.error(&error))?;
        let all = within(&self.place, client.list_topics()).await?.map_err(|error| self.error(&error))?;
        let topic = all.into_iter().find(|topic| topic.name == self.place.path);
        let there = topic.map(|topic| topic.partitions).unwrap_or_default();
        let wanted = self.wanted(&there)?;
        let (sender, fetched) = mpsc::channel(WAITING_MAX);
        let mut tasks = JoinSet::new();
        let (mut has_lost, mut readers) = (false, Vec::new());
        for partition in wanted {
            let opened = self.partition(&client, partition, known.get(&partition).copied());
            let (reader, from, is_gap) =
                within(&self.place, opened).await?.map_err(|error| self.error(&error))?;
            has_lost |= is_gap;
            let reader = Arc::new(reader);
            tasks.spawn(follow(Arc::clone(&reader), from, sender.clone()));
            readers.push((reader, from));
        }
        tasks.spawn(watch(client, self.place.path.clone(), there, sender));
        let share = Share { fetched, ready: VecDeque::new(), handed: known, readers, _tasks: tasks };
        Ok((share, has_lost))
    }

    async fn connect(&self) -> Result<Client, Error> {
        let broker = format!("{}:{}", self.place.host, self.place.port);
        let backoff = BackoffConfig { deadline: Some(TRIES), ..BackoffConfig::default() };
        let mut builder = ClientBuilder::new(vec![broker]).client_id("tenon").backoff_config(backoff);
        if let Some(login) = &self.place.login {
            let credentials = Credentials::new(login.user.clone(), login.password.clone());
            builder = builder.sasl_config(SaslConfig::Plain(credentials));
        }
        builder.build().await
    }

    fn wanted(&self, there: &BTreeSet<i32>) -> Result<BTreeSet<i32>, SourceError> {
        if there.is_empty() {
            let topic = &self.place.path;
            return Err(self
                .place
                .refused(format_args!("there is no topic '{topic}': make it, or name another")));
        }
        let Some(wanted) = &self.partitions else { return Ok(there.clone()) };
        match wanted.difference(there).next() {
            None => Ok(wanted.clone()),
            Some(missing) => {
                let count = there.len();
                Err(self
                    .place
                    .refused(format_args!("there is no partition {missing}; the topic has {count}")))
            }
        }
    }

    /// A partition's reader, and from where; whether that is not where it was to be.
    async fn partition(
        &self,
        client: &Client,
        partition: i32,
        known: Option<i64>,
    ) -> Result<(PartitionClient, i64, bool), Error> {
        let topic = self.place.path.clone();
        let reader = client.partition_client(topic, partition, UnknownTopicHandling::Error).await?;
        let first = reader.get_offset(OffsetAt::Earliest).await?;
        let end = reader.get_offset(OffsetAt::Latest).await?;
        // Old records are removed in time, and a topic that was made anew begins anew.
        match known {
            Some(known) if (first..=end).contains(&known) => Ok((reader, known, false)),
            Some(_) => Ok((reader, first, true)),
            None => Ok((reader, first, false)),
        }
    }

    /// What an error means to who has to do something about it.
    fn error(&self, error: &Error) -> SourceError {
        let text = error.to_string();
        // The client does not say it otherwise.
        if text.contains("Sasl handshake") {
            return self.place.refused("Kafka knows no such user with this password: give the right ones");
        }
        self.place.unavailable(text)
    }
}

/// A record's value; a tombstone has none, and says nothing.
fn message(record: RecordAndOffset) -> Option<Message> {
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let headers = record.record.headers.iter();
    let attributes = headers.map(|(name, value)| (name.to_lowercase(), text(value))).collect();
    Some(Message { attributes, body: record.record.value?.into() })
}
