//! The transport of events from MinIO to handlers: a broker behind a proxy that can be cut, or a relay that delays
//! and repeats posts.

use super::post_relay::{PostRelay, PostTarget};
use super::rules::BUCKETS;
use super::tcp_proxy::TcpProxy;
use crate::fixture::{Home, capture};
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

/// The bearer token that a post must carry.
const SECRET: &str = "hush";

#[derive(Debug)]
pub(super) struct Transport {
    kind: Kind,
    handlers: usize,
    broker: Option<Broker>,
    proxy: Option<TcpProxy>,
    relay: Option<PostRelay>,
    /// The ports at which handlers listen for posts.
    ports: Vec<u16>,
    /// The directory in which MinIO queues notifications that it cannot send.
    queues: tempfile::TempDir,
}

impl Transport {
    /// Starts the transport for a number of handlers, each of which receives all events.
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
        // Kafka tells its clients its own address, so they would bypass a proxy.
        let has_proxy = |broker: &&Broker| kind != Kind::Kafka && broker.pid().is_some();
        let proxy = broker.as_ref().filter(has_proxy).map(|broker| TcpProxy::to(broker.address()));
        let ports: Vec<u16> = (0..handlers).map(|_| free_port()).collect();
        let receivers: Option<Vec<PostTarget>> = match (kind, &broker) {
            (Kind::Webhook, _) => Some(ports.iter().map(|port| PostTarget::Webhook(*port, SECRET)).collect()),
            (Kind::RedisStream, Some(redis)) => {
                Some(vec![PostTarget::Stream(redis.address(), redis.user(), redis.password())])
            }
            (Kind::Beanstalkd, Some(queues)) => Some(
                (0..handlers).map(|at| PostTarget::Tube(queues.address(), format!("tube-{at}"))).collect(),
            ),
            _ => None,
        };
        let queues = tempfile::tempdir().unwrap();
        Self { kind, handlers, broker, proxy, relay: receivers.map(PostRelay::to), ports, queues }
    }

    /// Starts a MinIO with the test buckets, which sends its notifications through this transport.
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
                let added = capture(mc.args(["--event", "put,delete"]));
                assert_eq!(added.code, 0, "{added:?}");
            }
        }
        server
    }

    /// Returns MinIO's notification targets: the kind of each and its settings.
    fn targets(&self) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
        if let Some(relay) = &self.relay {
            return vec![("webhook", vec![("ENDPOINT", format!("http://{}/minio", relay.address))])];
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

    /// Returns the event source URL of one handler.
    pub(super) fn source(&self, handler: usize) -> String {
        let address = self.proxy.as_ref().map(|proxy| proxy.address.to_string()).unwrap_or_default();
        match self.kind {
            Kind::JetStream => format!("nats://{address}/EVENTS?consumer=views-{handler}"),
            Kind::RedisList => format!("redis://{address}/0?list=events-{handler}"),
            Kind::RedisStream => format!("redis://{address}/0?stream=events&group=views-{handler}"),
            Kind::Amqp => format!("amqp://{address}/?queue=events-{handler}"),
            Kind::Beanstalkd => format!("beanstalkd://{address}/tube-{handler}"),
            Kind::Webhook => format!("webhook://127.0.0.1:{}/events", self.ports[handler]),
            Kind::Kafka => {
                let broker = self.broker.as_ref().unwrap().address();
                format!("kafka://{broker}/events?group=views-{handler}")
            }
        }
    }

    /// Returns the secret of the handlers' event source.
    pub(super) fn secret(&self) -> Option<String> {
        match &self.broker {
            None => Some(SECRET.to_owned()),
            Some(_) if self.kind == Kind::Beanstalkd => None,
            Some(broker) => Some(format!("{}:{}", broker.user(), broker.password())),
        }
    }

    /// Delivers some of the posts that wait in the relay. Some of them stay there and are delivered again later.
    pub(super) fn deliver(&self, most: u64, entropy: &Entropy) {
        if let Some(relay) = &self.relay {
            relay.deliver(most, entropy);
        }
    }

    /// Interrupts the connections to the broker; data on the way is lost.
    pub(super) fn cut(&self) {
        match (&self.proxy, &self.broker) {
            (Some(proxy), _) => proxy.cut(),
            (None, Some(broker)) => broker.freeze(),
            (None, None) => {}
        }
    }

    pub(super) fn restore(&self) {
        match (&self.proxy, &self.broker) {
            (Some(proxy), _) => proxy.restore(),
            (None, Some(broker)) => broker.thaw(),
            (None, None) => {}
        }
    }

    /// Describes what has not reached a broker or a handler, for failure reports: posts by receiver, and
    /// notifications in MinIO's queues.
    pub(super) fn waiting(&self) -> String {
        let held = self.relay.as_ref().map(PostRelay::held).unwrap_or_default();
        let queues = std::fs::read_dir(self.queues.path()).into_iter().flatten().flatten();
        let targets = queues.flat_map(|queue| std::fs::read_dir(queue.path())).flatten().flatten();
        let queued = targets.map(|target| std::fs::read_dir(target.path()).map_or(0, Iterator::count));
        format!("waiting posts {held:?}, in MinIO's queues {:?}", queued.collect::<Vec<_>>())
    }

    /// Kills the broker and starts it again.
    pub(super) fn restart(&mut self) {
        if let Some(broker) = &mut self.broker {
            broker.restart();
        }
    }
}

/// Creates what must exist before MinIO and the handlers start: a stream, queues, a topic.
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
