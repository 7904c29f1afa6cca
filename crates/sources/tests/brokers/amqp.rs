//! AMQP, with RabbitMQ.

use super::{Queue, assert_refused, drain, open_url, receive};
use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use servers::Broker;
use std::ops::Range;
use std::time::Duration;

pub(super) struct Rabbitmq {
    broker: Broker,
}

/// Starts a broker with a queue that survives restarts.
pub(super) async fn queue() -> Rabbitmq {
    let queue = Rabbitmq { broker: servers::rabbitmq() };
    make_queue(&queue.broker).await;
    queue
}

async fn connect(broker: &Broker) -> (Connection, Channel) {
    let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

async fn make_queue(broker: &Broker) {
    let (_connection, channel) = connect(broker).await;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare("events".into(), durable, FieldTable::default()).await.unwrap();
}

/// Creates the queue and binds it to everything that is sent to an exchange.
pub(super) async fn bind_to_exchange(broker: &Broker, exchange: &str) {
    make_queue(broker).await;
    let (_connection, channel) = connect(broker).await;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let made =
        channel.exchange_declare(exchange.into(), ExchangeKind::Fanout, durable, FieldTable::default());
    made.await.unwrap();
    let options = QueueBindOptions::default();
    let bound =
        channel.queue_bind("events".into(), exchange.into(), "".into(), options, FieldTable::default());
    bound.await.unwrap();
}

impl Rabbitmq {
    async fn send(&self, bodies: Vec<String>, properties: BasicProperties) {
        let (connection, channel) = connect(&self.broker).await;
        channel.confirm_select(Default::default()).await.unwrap();
        let mut confirmed = Vec::new();
        for body in bodies {
            let options = BasicPublishOptions::default();
            let sent = channel.basic_publish(
                "".into(),
                "events".into(),
                options,
                body.as_bytes(),
                properties.clone(),
            );
            confirmed.push(sent.await.unwrap());
        }
        for one in confirmed {
            one.await.unwrap();
        }
        connection.close(200, "".into()).await.unwrap();
    }
}

#[async_trait::async_trait]
impl Queue for Rabbitmq {
    fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    fn url(&self) -> String {
        format!("{}/?queue=events", self.broker.url())
    }

    async fn publish(&mut self, numbers: Range<u32>) {
        let persistent = BasicProperties::default().with_delivery_mode(2);
        self.send(numbers.map(|number| number.to_string()).collect(), persistent).await;
    }
}

super::every_shared_queue!(super::amqp::queue().await);

#[tokio::test]
async fn headers_are_attributes() {
    let queue = queue().await;
    let mut headers = FieldTable::default();
    headers.insert("Kind".into(), AMQPValue::LongString("x".into()));
    queue.send(vec!["one".to_owned()], BasicProperties::default().with_headers(headers)).await;
    let mut source = queue.open();
    let messages = receive(&mut *source, Duration::from_secs(9)).await;
    assert_eq!(messages[0].attributes, [("kind".to_owned(), "x".to_owned())]);
    assert_eq!(messages[0].body, "one");
}

#[tokio::test]
async fn errors_state_the_remedy() {
    let mut queue = queue().await;
    let url = queue.url();
    assert_refused(
        &url.replace(queue.broker().password(), "secret"),
        &queue.access(),
        "denies this user access",
    )
    .await;
    assert_refused(&url.replace("/?", "/nowhere?"), &queue.access(), "denies this user access").await;
    assert_refused(&url.replace("events", "others"), &queue.access(), "there is no queue 'others': make it")
        .await;
    queue.publish(0..3).await;
    drain(&mut *open_url(&url.replace("/?", "/%2f?"), &queue.access()), 0..3).await;
}
