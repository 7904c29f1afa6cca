//! Kafka.

use super::{Queue, assert_refused, drain, open_url, receive};
use rskafka::BackoffConfig;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use servers::Broker;
use sources::BrokerAccess;
use std::ops::Range;
use std::time::Duration;
use tempfile::TempDir;

pub(super) struct Kafka {
    pub(super) broker: Broker,
    positions: TempDir,
    compression: Compression,
}

/// Starts a broker with a topic of `partitions` partitions.
pub(super) async fn topic(partitions: i32) -> Kafka {
    let positions = TempDir::new().unwrap();
    let kafka = Kafka { broker: servers::kafka(), positions, compression: Compression::NoCompression };
    let controller = kafka.client().await.controller_client().unwrap();
    controller.create_topic("events", partitions, 1, 5_000).await.unwrap();
    kafka
}

impl Kafka {
    async fn client(&self) -> Client {
        let login = Credentials::new(self.broker.user().to_owned(), self.broker.password().to_owned());
        // By default the client retries for ever, after pauses of minutes.
        let (max_backoff, deadline) = (Duration::from_millis(200), Some(Duration::from_secs(60)));
        let backoff = BackoffConfig { max_backoff, deadline, ..BackoffConfig::default() };
        let builder = ClientBuilder::new(vec![self.broker.address().to_string()]).backoff_config(backoff);
        builder.sasl_config(SaslConfig::Plain(login)).build().await.unwrap()
    }

    async fn publish_to(&self, partition: i32, numbers: Range<u32>) {
        let client = self.client().await;
        let handling = UnknownTopicHandling::Retry;
        let partition = client.partition_client("events", partition, handling).await.unwrap();
        let record = |number: u32| Record {
            key: None,
            value: Some(number.to_string().into_bytes()),
            headers: [("Kind".to_owned(), b"x".to_vec())].into(),
            timestamp: Default::default(),
        };
        partition.produce(numbers.map(record).collect(), self.compression).await.unwrap();
    }
}

#[async_trait::async_trait]
impl Queue for Kafka {
    fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    fn url(&self) -> String {
        format!("{}/events?group=views", self.broker.url())
    }

    fn access(&self) -> BrokerAccess {
        BrokerAccess { positions: Some(self.positions.path().to_owned()), ..BrokerAccess::default() }
    }

    async fn publish(&mut self, numbers: Range<u32>) {
        self.publish_to(0, numbers).await;
    }
}

super::every_queue!(super::kafka::topic(1).await);

/// Two sources share the partitions as their URLs say, and compressed records are readable.
#[tokio::test]
async fn sources_share_partitions_as_their_urls_say() {
    let mut queue = topic(3).await;
    let all = [Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd];
    for (index, compression) in (0..).zip(all) {
        queue.compression = compression;
        queue.publish_to(index % 3, index as u32 * 100..index as u32 * 100 + 100).await;
    }
    let access = queue.access();
    let mut one = open_url(&format!("{}&partitions=0,2", queue.url()), &access);
    let mut arrived = drain(&mut *one, 0..100).await;
    while arrived.len() < 300 {
        arrived.extend(super::numbers(&receive(&mut *one, super::PATIENCE).await));
    }
    assert!(arrived.iter().all(|number| !(100..200).contains(number)), "{arrived:?}");
    let mut other = open_url(&queue.url().replace("views", "other"), &access);
    drain(&mut *other, 0..400).await;
}

#[tokio::test]
async fn records_have_attributes() {
    let mut queue = topic(1).await;
    queue.publish(0..1).await;
    let messages = receive(&mut *queue.open(), Duration::from_secs(9)).await;
    assert_eq!(messages[0].attributes, [("kind".to_owned(), "x".to_owned())]);
}

/// Records that the broker removed before they were read are reported as lost.
#[tokio::test]
async fn records_removed_unread_are_reported_as_lost() {
    let mut queue = topic(1).await;
    queue.publish(0..10).await;
    let mut source = queue.open();
    drain(&mut *source, 0..10).await;
    assert!(!source.take_lost());
    drop(source);
    queue.publish(10..20).await;
    let client = queue.client().await;
    let partition = client.partition_client("events", 0, UnknownTopicHandling::Error).await.unwrap();
    partition.delete_records(15, 5_000).await.unwrap();
    let mut source = queue.open();
    assert!(source.receive(1).await.unwrap().is_empty());
    assert!(source.take_lost());
    assert_eq!(drain(&mut *source, 15..20).await, Vec::from_iter(15..20));
}

/// Regression: a topic that was deleted, created again and then longer than before was read on from the old position.
#[tokio::test]
async fn s583_a_topic_that_was_created_again_is_reported_as_lost_and_read_from_its_beginning() {
    let mut queue = topic(1).await;
    queue.publish(0..10).await;
    let mut source = queue.open();
    drain(&mut *source, 0..10).await;
    drop(source);
    queue.publish(10..11).await;
    let mut source = queue.open();
    drain(&mut *source, 10..11).await;
    assert!(!source.take_lost(), "the topic is the same");
    drop(source);

    let controller = queue.client().await.controller_client().unwrap();
    controller.delete_topic("events", 5_000).await.unwrap();
    // The broker refuses the name until it has removed the topic.
    while controller.create_topic("events", 1, 1, 5_000).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    queue.publish(100..120).await;
    let mut source = queue.open();
    assert!(source.receive(1).await.unwrap().is_empty());
    assert!(source.take_lost());
    source.acknowledge().await.unwrap();
    assert_eq!(drain(&mut *source, 100..120).await, Vec::from_iter(100..120));
    drop(source);
    queue.publish(120..121).await;
    let mut source = queue.open();
    drain(&mut *source, 120..121).await;
    assert!(!source.take_lost(), "the loss is reported once");
}

#[tokio::test]
async fn errors_state_the_remedy() {
    let mut queue = topic(1).await;
    let url = queue.url();
    let wrong = url.replace(queue.broker().password(), "secret");
    assert_refused(&wrong, &queue.access(), "rejected the user or the password").await;
    let other = url.replace("/events", "/others");
    assert_refused(&other, &queue.access(), "there is no topic 'others': make it").await;
    let fourth = format!("{url}&partitions=3");
    assert_refused(&fourth, &queue.access(), "there is no partition 3; the topic has 1").await;
    let nowhere = sources::open_broker(&url, &BrokerAccess::default());
    assert!(nowhere.unwrap_err().to_string().contains("needs a directory"));
    std::fs::write(queue.positions.path().join("kafka-events@views.json"), b"{").unwrap();
    assert_refused(&url, &queue.access(), "is damaged: delete it").await;
}
