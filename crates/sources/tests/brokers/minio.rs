//! Notifications of MinIO, through real brokers.

use super::{BATCH, Queue as _, open_url};
use events::Source;
use serde_json::Value;
use servers::{Broker, S3Server};
use sources::BrokerAccess;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;

/// Starts a MinIO with a notification target of this kind, and a bucket whose events go there.
fn minio(kind: &str, settings: &[(&str, &str)]) -> S3Server {
    let kind_upper = kind.to_uppercase();
    let named: Vec<_> = settings
        .iter()
        .map(|(name, value)| (format!("MINIO_NOTIFY_{kind_upper}_{name}_TESTS"), *value))
        .collect();
    let environment: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let server = servers::minio_with(&environment);
    mc(&server, &["mb", "it/bucket"], "");
    let target = format!("arn:minio:sqs:{}:TESTS:{kind}", server.region());
    mc(&server, &["event", "add", "it/bucket", &target, "--event", "put,delete"], "");
    server
}

/// Runs MinIO's client. It calls the server `it`.
fn mc(server: &S3Server, arguments: &[&str], input: &str) {
    use std::io::Write;
    let host = format!("http://{}:{}@{}", server.access_key(), server.secret_key(), server.address());
    let mut child = Command::new(servers::program("mc"))
        .args(["--quiet", "--config-dir"])
        .arg(server.data_dir().join("../mc"))
        .args(arguments)
        .env("MC_HOST_it", host)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "mc {arguments:?}");
}

/// Makes a PUT with metadata, a change of tags and a deletion. Returns name, key and user metadata of each event received.
async fn receive_events(server: &S3Server, source: &mut dyn Source) -> Vec<(String, String, Value)> {
    mc(server, &["pipe", "--attr", "project=apollo", "it/bucket/a dir/b.txt"], "hello");
    mc(server, &["tag", "set", "it/bucket/a dir/b.txt", "colour=red"], "");
    mc(server, &["rm", "it/bucket/a dir/b.txt"], "");
    let mut events = Vec::new();
    while events.len() < 3 {
        let received = timeout(super::PATIENCE, source.receive(BATCH)).await.unwrap().unwrap();
        for message in received {
            let message: Value = serde_json::from_slice(&message.body).unwrap();
            events.extend(records(&message).iter().map(summary));
        }
        source.acknowledge().await.unwrap();
    }
    events
}

/// Returns the records of a message, or of an element of the format `access`.
fn records(message: &Value) -> &[Value] {
    message["Records"].as_array().or_else(|| message[0]["Event"].as_array()).unwrap()
}

fn summary(record: &Value) -> (String, String, Value) {
    let object = &record["s3"]["object"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&record["eventName"]), text(&object["key"]), object["userMetadata"]["X-Amz-Meta-Project"].clone())
}

fn assert_events(events: &[(String, String, Value)]) {
    let names: Vec<_> = events.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "s3:ObjectCreated:CompleteMultipartUpload",
            "s3:ObjectCreated:PutTagging",
            "s3:ObjectRemoved:Delete"
        ]
    );
    assert!(events.iter().all(|(_, key, _)| key == "a+dir%2Fb.txt"), "{events:?}");
    assert_eq!(events[0].2, "apollo");
}

#[tokio::test]
async fn events_come_through_jetstream() {
    let broker = servers::nats();
    let server = minio(
        "nats",
        &[
            ("ENABLE", "on"),
            ("ADDRESS", &broker.address().to_string()),
            ("SUBJECT", "events.minio"),
            ("USERNAME", broker.user()),
            ("PASSWORD", broker.password()),
            ("JETSTREAM", "on"),
        ],
    );
    super::nats::make_stream(&broker).await;
    let mut source = open_url(&format!("{}/EVENTS?consumer=views", broker.url()), &BrokerAccess::default());
    assert_events(&receive_events(&server, &mut *source).await);
}

fn through_redis(broker: &Broker, format: &str) -> S3Server {
    minio(
        "redis",
        &[
            ("ENABLE", "on"),
            ("ADDRESS", &broker.address().to_string()),
            ("FORMAT", format),
            ("KEY", "events"),
            ("PASSWORD", broker.password()),
        ],
    )
}

#[tokio::test]
async fn events_come_through_a_list_of_redis() {
    let broker = servers::redis();
    let server = through_redis(&broker, "access");
    let mut source = open_url(&format!("{}/0?list=events", broker.url()), &BrokerAccess::default());
    assert_events(&receive_events(&server, &mut *source).await);
}

/// MinIO's other format stores the last event of each object in a hash. A hash is no queue, so the source refuses it.
#[tokio::test]
async fn a_hash_of_redis_is_no_queue() {
    let broker = servers::redis();
    let server = through_redis(&broker, "namespace");
    mc(&server, &["pipe", "it/bucket/a"], "hello");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let url = format!("{}/0?list=events", broker.url());
    super::assert_refused(&url, &BrokerAccess::default(), "has another type").await;
}

#[tokio::test]
async fn events_come_through_amqp() {
    let broker = servers::rabbitmq();
    super::amqp::bind_to_exchange(&broker, "minio").await;
    let server = minio(
        "amqp",
        &[
            ("ENABLE", "on"),
            ("URL", &broker.url()),
            ("EXCHANGE", "minio"),
            ("EXCHANGE_TYPE", "fanout"),
            ("DURABLE", "on"),
            ("ROUTING_KEY", "any"),
        ],
    );
    let mut source = open_url(&format!("{}/?queue=events", broker.url()), &BrokerAccess::default());
    assert_events(&receive_events(&server, &mut *source).await);
}

#[tokio::test]
async fn events_come_through_kafka() {
    let topic = super::kafka::topic(1).await;
    let server = minio(
        "kafka",
        &[
            ("ENABLE", "on"),
            ("BROKERS", &topic.broker.address().to_string()),
            ("TOPIC", "events"),
            ("SASL", "on"),
            ("SASL_USERNAME", topic.broker.user()),
            ("SASL_PASSWORD", topic.broker.password()),
            ("SASL_MECHANISM", "plain"),
        ],
    );
    let mut source = topic.open();
    assert_events(&receive_events(&server, &mut *source).await);
}
