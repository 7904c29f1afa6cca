//! NATS.

use super::{Queue, assert_refused, drain, receive};
use async_nats::jetstream;
use servers::Broker;
use std::ops::Range;
use std::time::Duration;

pub(super) struct Nats {
    pub(super) broker: Broker,
    pub(super) tail: &'static str,
}

async fn stream(tail: &'static str) -> Nats {
    let nats = Nats { broker: servers::nats(), tail };
    make_stream(&nats.broker).await;
    nats
}

async fn connect(broker: &Broker) -> async_nats::Client {
    let (user, password) = (broker.user().to_owned(), broker.password().to_owned());
    let options = async_nats::ConnectOptions::with_user_and_password(user, password);
    options.connect(broker.url_without_user()).await.unwrap()
}

/// Creates a stream of everything that is published below `events`.
pub(super) async fn make_stream(broker: &Broker) {
    make_stream_by(connect(broker).await).await;
}

pub(super) async fn make_stream_by(client: async_nats::Client) -> jetstream::Context {
    let config = jetstream::stream::Config {
        name: "EVENTS".to_owned(),
        subjects: vec!["events.>".to_owned()],
        ..Default::default()
    };
    let context = jetstream::new(client);
    context.create_stream(config).await.unwrap();
    context
}

impl Nats {
    async fn publish_to(&self, subject: &'static str, numbers: Range<u32>) {
        let client = connect(&self.broker).await;
        for number in numbers {
            client.publish(subject, number.to_string().into()).await.unwrap();
        }
        client.flush().await.unwrap();
        // The response arrives after all that was published before.
        let _ = client.request("events-nobody", "".into()).await;
    }
}

#[async_trait::async_trait]
impl Queue for Nats {
    fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    fn url(&self) -> String {
        format!("{}/{}", self.broker.url(), self.tail)
    }

    async fn publish(&mut self, numbers: Range<u32>) {
        let context = jetstream::new(connect(&self.broker).await);
        let mut stored = Vec::new();
        for number in numbers {
            stored.push(context.publish("events.x", number.to_string().into()).await.unwrap());
        }
        for one in stored {
            one.await.unwrap();
        }
    }
}

super::every_shared_queue!(super::nats::stream("EVENTS?consumer=views").await);

#[tokio::test]
async fn subjects_are_filtered_by_the_server() {
    let mut queue = stream("EVENTS?consumer=views&subject=events.mine.*").await;
    queue.publish(0..10).await;
    queue.publish_to("events.mine.a", 10..20).await;
    let mut source = queue.open();
    assert_eq!(drain(&mut *source, 10..20).await, Vec::from_iter(10..20));
    // The existing consumer has another filter.
    assert_refused(&queue.url().replace("mine", "yours"), &queue.access(), "has another configuration").await;
}

/// Messages published without a subscriber are lost, and a new subscriber is told that some may be.
#[tokio::test]
async fn a_plain_subject_reports_possible_loss() {
    let mut queue = Nats { broker: servers::nats(), tail: "?subject=plain" };
    let mut source = queue.open();
    assert!(receive(&mut *source, Duration::from_millis(500)).await.is_empty());
    assert!(source.take_lost() && !source.take_lost());
    queue.publish_to("plain", 0..100).await;
    assert_eq!(drain(&mut *source, 0..100).await, Vec::from_iter(0..100));
    assert!(!source.take_lost());
    queue.broker().restart();
    assert!(receive(&mut *source, Duration::from_secs(2)).await.is_empty());
    assert!(source.take_lost());
    queue.publish_to("plain", 100..110).await;
    drain(&mut *source, 100..110).await;
}

#[tokio::test]
async fn errors_state_the_remedy() {
    let mut queue = stream("EVENTS?consumer=views").await;
    let url = queue.url();
    assert_refused(
        &url.replace(queue.broker().password(), "secret"),
        &queue.access(),
        "rejected the user or the password",
    )
    .await;
    assert_refused(&url.replace("EVENTS", "OTHERS"), &queue.access(), "there is no stream 'OTHERS': make it")
        .await;
}
