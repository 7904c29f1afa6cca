//! What carries events from MinIO to handlers: a broker, behind a line that can be cut, or posts that come as they like.

use super::line::Line;
use super::posts::{Posts, To};
use super::rules::BUCKETS;
use crate::fixture::{Home, said};
use crate::handlers::free_port;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties, ExchangeKind};
use rskafka::client::{ClientBuilder, Credentials, SaslConfig};
use servers::{Broker, S3Server};
use store::{Buckets as _, Entropy};
use tokio::runtime::Runtime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    JetStream,
    RedisList,
    RedisStream,
    Amqp,
    Kafka,
    Beanstalkd,
    Webhook,
}

/// What a post's sender has to know.
const SECRET: &str = "hush";

#[derive(Debug)]
pub(super) struct Carrier {
    kind: Kind,
    handlers: usize,
    broker: Option<Broker>,
    line: Option<Line>,
    posts: Option<Posts>,
    /// Where handlers listen for posts.
    ports: Vec<u16>,
    /// Where MinIO keeps what it cannot send.
    queues: tempfile::TempDir,
}

impl Carrier {
    /// For so many handlers, each of which hears everything.
    pub(super) fn start(kind: Kind, handlers: usize, runtime: &Runtime) -> Self {
        let broker = match kind {
            Kind::JetStream => Some(servers::nats()),
            Kind::RedisList | Kind::RedisStream => Some(servers::redis()),
            Kind::Amqp => Some(servers::rabbitmq()),
            Kind::Kafka => Some(servers::kafka()),
            Kind::Beanstalkd => Some(servers::beanstalkd()),
            Kind::Webhook => None,
        };
        if let Some(broker) = &broker {
            runtime.block_on(prepare(kind, broker, handlers));
        }
        // Kafka tells its clients where it is.
        let has_line = |broker: &&Broker| kind != Kind::Kafka && broker.pid().is_some();
        let line = broker.as_ref().filter(has_line).map(|broker| Line::to(broker.address()));
        let ports: Vec<u16> = (0..handlers).map(|_| free_port()).collect();
        let receivers: Option<Vec<To>> = match (kind, &broker) {
            (Kind::Webhook, _) => Some(ports.iter().map(|port| To::Webhook(*port, SECRET)).collect()),
            (Kind::RedisStream, Some(redis)) => {
                Some(vec![To::Stream(redis.address(), redis.user(), redis.password())])
            }
            (Kind::Beanstalkd, Some(queues)) => {
                Some((0..handlers).map(|at| To::Tube(queues.address(), format!("tube-{at}"))).collect())
            }
            _ => None,
        };
        let queues = tempfile::tempdir().unwrap();
        Self { kind, handlers, broker, line, posts: receivers.map(Posts::to), ports, queues }
    }

    /// A MinIO with the worlds' buckets, which says here what happens in them.
    pub(super) fn minio(&self, home: &Home, runtime: &Runtime) -> S3Server {
        let targets = self.targets();
        let mut environment = Vec::new();
        for (at, (target, settings)) in targets.iter().enumerate() {
            let queue = self.queues.path().join(at.to_string()).display().to_string();
            let common = [("ENABLE", "on".to_owned()), ("QUEUE_DIR", queue)];
            for (name, value) in common.into_iter().chain(settings.clone()) {
                environment.push((format!("MINIO_NOTIFY_{}_{name}_T{at}", target.to_uppercase()), value));
            }
        }
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let server = servers::minio_with(&environment);
        let host = format!("http://{}:{}@{}", server.access_key(), server.secret_key(), server.address());
        for bucket in BUCKETS {
            runtime.block_on(crate::s3::buckets(&server).create(bucket)).unwrap();
            for (at, (target, _)) in targets.iter().enumerate() {
                let target = format!("arn:minio:sqs:{}:T{at}:{target}", server.region());
                let mut mc = home.command(servers::program("mc"));
                mc.env("MC_HOST_m", &host).args(["--quiet", "event", "add", &format!("m/{bucket}"), &target]);
                let added = said(mc.args(["--event", "put,delete"]));
                assert_eq!(added.code, 0, "{added:?}");
            }
        }
        server
    }

    /// Where MinIO sends to: the kind of each target, and what it has to know of it.
    fn targets(&self) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
        if let Some(posts) = &self.posts {
            return vec![("webhook", vec![("ENDPOINT", format!("http://{}/minio", posts.address))])];
        }
        let broker = self.broker.as_ref().unwrap();
        let (address, user) = (broker.address().to_string(), broker.user().to_owned());
        let password = broker.password().to_owned();
        match self.kind {
            Kind::JetStream => {
                let subject = ("SUBJECT", "events.minio".to_owned());
                let login = [("USERNAME", user), ("PASSWORD", password)];
                let place = [("ADDRESS", address), ("JETSTREAM", "on".to_owned()), subject];
                vec![("nats", place.into_iter().chain(login).collect())]
            }
            Kind::RedisList => {
                let list = |at: usize| {
                    let (key, password) = (("KEY", format!("events-{at}")), ("PASSWORD", password.clone()));
                    (
                        "redis",
                        vec![("ADDRESS", address.clone()), ("FORMAT", "access".to_owned()), key, password],
                    )
                };
                (0..self.handlers).map(list).collect()
            }
            Kind::Amqp => {
                let exchange = [("EXCHANGE", "minio"), ("EXCHANGE_TYPE", "fanout"), ("DURABLE", "on")];
                let kept = [("DELIVERY_MODE", "2"), ("PUBLISHING_CONFIRMS", "on"), ("ROUTING_KEY", "any")];
                let all = exchange.into_iter().chain(kept).map(|(name, value)| (name, value.to_owned()));
                vec![("amqp", all.chain([("URL", broker.url())]).collect())]
            }
            _ => {
                let sasl = [("SASL", "on"), ("SASL_MECHANISM", "plain"), ("TOPIC", "events")];
                let sasl = sasl.into_iter().map(|(name, value)| (name, value.to_owned()));
                let login = [("SASL_USERNAME", user), ("SASL_PASSWORD", password), ("BROKERS", address)];
                vec![("kafka", sasl.chain(login).collect())]
            }
        }
    }

    /// The source of one of the handlers.
    pub(super) fn source(&self, handler: usize) -> String {
        let address = self.line.as_ref().map(|line| line.address.to_string()).unwrap_or_default();
        match self.kind {
            Kind::JetStream => format!("nats://{address}/EVENTS?consumer=views-{handler}"),
            Kind::RedisList => format!("redis://{address}/0?list=events-{handler}"),
            Kind::RedisStream => format!("redis://{address}/0?stream=events&group=views-{handler}"),
            Kind::Amqp => format!("amqp://{address}/?queue=events-{handler}"),
            Kind::Beanstalkd => format!("beanstalkd://{address}/tube-{handler}"),
            Kind::Webhook => format!("webhook://127.0.0.1:{}/told", self.ports[handler]),
            Kind::Kafka => {
                let broker = self.broker.as_ref().unwrap().address();
                format!("kafka://{broker}/events?group=views-{handler}")
            }
        }
    }

    /// What handlers have to know.
    pub(super) fn secret(&self) -> Option<String> {
        match &self.broker {
            None => Some(SECRET.to_owned()),
            Some(_) if self.kind == Kind::Beanstalkd => None,
            Some(broker) => Some(format!("{}:{}", broker.user(), broker.password())),
        }
    }

    /// Some of what waits here is sent, and perhaps not for the last time.
    pub(super) fn deliver(&self, most: u64, entropy: &Entropy) {
        if let Some(posts) = &self.posts {
            posts.deliver(most, entropy);
        }
    }

    /// Nothing more comes through, and what is under way is lost.
    pub(super) fn cut(&self) {
        match (&self.line, &self.broker) {
            (Some(line), _) => line.cut(),
            (None, Some(broker)) => broker.freeze(),
            (None, None) => {}
        }
    }

    pub(super) fn mend(&self) {
        match (&self.line, &self.broker) {
            (Some(line), _) => line.mend(),
            (None, Some(broker)) => broker.thaw(),
            (None, None) => {}
        }
    }

    /// What has not come to a broker or a handler, for whoever wonders: posts by receiver, and what MinIO could not send.
    pub(super) fn waiting(&self) -> String {
        let held = self.posts.as_ref().map(Posts::held).unwrap_or_default();
        let queues = std::fs::read_dir(self.queues.path()).into_iter().flatten().flatten();
        let targets = queues.flat_map(|queue| std::fs::read_dir(queue.path())).flatten().flatten();
        let queued = targets.map(|target| std::fs::read_dir(target.path()).map_or(0, Iterator::count));
        format!("posts {held:?}, in MinIO's queues {:?}", queued.collect::<Vec<_>>())
    }

    /// Kills the broker, and starts it again.
    pub(super) fn restart(&mut self) {
        if let Some(broker) = &mut self.broker {
            broker.restart();
        }
    }
}

/// What must be there before MinIO and the handlers are: a stream, queues, a topic.
async fn prepare(kind: Kind, broker: &Broker, handlers: usize) {
    let (user, password) = (broker.user().to_owned(), broker.password().to_owned());
    match kind {
        Kind::JetStream => {
            let options = async_nats::ConnectOptions::with_user_and_password(user, password);
            let client = options.connect(broker.url_without_user()).await.unwrap();
            let stream = async_nats::jetstream::stream::Config {
                name: "EVENTS".to_owned(),
                subjects: vec!["events.>".to_owned()],
                ..Default::default()
            };
            async_nats::jetstream::new(client).create_stream(stream).await.unwrap();
        }
        Kind::Amqp => {
            let connection =
                Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let (durable, none) =
                (ExchangeDeclareOptions { durable: true, ..Default::default() }, FieldTable::default);
            channel.exchange_declare("minio".into(), ExchangeKind::Fanout, durable, none()).await.unwrap();
            for handler in 0..handlers {
                let (queue, durable) = (
                    format!("events-{handler}"),
                    QueueDeclareOptions { durable: true, ..Default::default() },
                );
                channel.queue_declare(queue.as_str().into(), durable, none()).await.unwrap();
                let options = QueueBindOptions::default();
                channel
                    .queue_bind(queue.as_str().into(), "minio".into(), "".into(), options, none())
                    .await
                    .unwrap();
            }
        }
        Kind::Kafka => {
            let sasl = SaslConfig::Plain(Credentials::new(user, password));
            let client = ClientBuilder::new(vec![broker.address().to_string()]).sasl_config(sasl).build();
            let controller = client.await.unwrap().controller_client().unwrap();
            controller.create_topic("events", 1, 1, 5_000).await.unwrap();
        }
        _ => {}
    }
}
