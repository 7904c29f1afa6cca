//! AMQP 0.9.1: queues of RabbitMQ and similar brokers.
//!
//! A queue distributes its messages among its consumers. When a consumer's connection ends, its unacknowledged messages go to another
//! consumer. Acknowledgements have no response: messages acknowledged on a connection that then ended may be delivered again.

mod transport;

use super::broker_url::{BrokerAccess, BrokerUrl, UrlForm};
use super::connection::{take_ready, with_timeout};
use events::{Message, Source, SourceError};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, Consumer, ErrorKind};
use url::Url;

const FORM: UrlForm = UrlForm {
    scheme: "amqp",
    tls_scheme: Some("amqps"),
    port: 5672,
    parameters: &["queue"],
    example: "amqp://HOST:PORT/VHOST?queue=NAME",
};

/// Maximum number of unacknowledged messages that the broker sends ahead.
const PREFETCH_MAX: u16 = 2048;

/// Heartbeat interval. A peer that is silent for twice this time counts as gone.
const HEARTBEAT_SECS: u16 = 5;

/// Reply codes of AMQP (specification 0.9.1, section 1.2).
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const RESOURCE_LOCKED: u16 = 405;
const NOT_ALLOWED: u16 = 530;

/// The ends of RabbitMQ's NOT_FOUND texts for a queue that exists but is not available yet after a restart of its node or process.
const UNAVAILABLE_TEXTS: [&str; 3] =
    ["is down or inaccessible", "is stopped by supervisor", "due to timeout"];

/// Opens the source of an `amqp:` URL. Nothing is sent to the broker yet.
///
/// # Errors
/// If the URL does not describe a source.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let url = BrokerUrl::parse(url, access, &FORM)?;
    let queue = url.required("queue", &FORM)?.to_owned();
    Ok(Box::new(Queue { address: QueueAddress { url, queue }, connecting: None, session: None }))
}

/// The source of a queue.
struct Queue {
    address: QueueAddress,
    /// A connection attempt in progress. It survives a dropped call: if the attempt were dropped too, the broker might send messages to
    /// the abandoned connection, and they would not be delivered to the source until that connection has ended.
    connecting: Option<BoxFuture<'static, Result<Session, SourceError>>>,
    session: Option<Session>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("address", &self.address)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// A queue of a broker.
#[derive(Clone, Debug)]
struct QueueAddress {
    url: BrokerUrl,
    queue: String,
}

struct Session {
    messages: Consumer,
    /// The last delivery tag that was delivered and not acknowledged yet.
    last: Option<u64>,
    channel: Channel,
    /// The connection, which is closed when this is dropped.
    _connection: Connection,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("last", &self.last).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Source for Queue {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let session = self.session().await?;
        let first = match session.messages.next().await {
            Some(Ok(first)) => first,
            Some(Err(error)) => {
                self.session = None;
                return Err(self.address.error(&error));
            }
            None => {
                self.session = None;
                return Err(self.address.url.unavailable(
                    "the broker cancelled the consumer, for example because the queue was deleted",
                ));
            }
        };
        let deliveries = take_ready(first, &mut session.messages, max);
        session.last = deliveries.last().map(|last| last.delivery_tag);
        Ok(deliveries.into_iter().map(to_message).collect())
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let Some(last) = session.last.take() else { return Ok(()) };
        let reply = with_timeout(
            &self.address.url,
            session.channel.basic_ack(last, BasicAckOptions { multiple: true }),
        )
        .await;
        match reply {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.session = None;
                Err(self.address.error(&error))
            }
            Err(error) => {
                self.session = None;
                Err(error)
            }
        }
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(session) = &self.session else { return Ok(None) };
        let queue = with_timeout(&self.address.url, self.address.check_queue(&session.channel)).await?;
        let queue = queue.map_err(|error| self.address.error(&error))?;
        Ok(Some(u64::from(queue.message_count())))
    }
}

impl Queue {
    /// Returns the session, and opens one if there is none.
    async fn session(&mut self) -> Result<&mut Session, SourceError> {
        if self.session.is_none() {
            let connecting = self
                .connecting
                .get_or_insert_with(|| Box::pin(self.address.clone().open_session_with_timeout()));
            let session = connecting.await;
            self.connecting = None;
            self.session = Some(session?);
        }
        self.session.as_mut().ok_or_else(|| self.address.url.unavailable("there is no connection"))
    }
}

impl QueueAddress {
    async fn open_session_with_timeout(self) -> Result<Session, SourceError> {
        with_timeout(&self.url, self.open_session()).await?.map_err(|error| self.error(&error))
    }

    async fn open_session(&self) -> lapin::Result<Session> {
        let connection = transport::connect_client(&self.url, self.uri()).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(PREFETCH_MAX, BasicQosOptions::default()).await?;
        self.check_queue(&channel).await?;
        let queue = self.queue.as_str();
        let options = BasicConsumeOptions::default();
        let messages = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        Ok(Session { messages, last: None, channel, _connection: connection })
    }

    /// Checks that the queue exists. It is not created here, because whoever creates it also decides which exchange it is bound to.
    async fn check_queue(&self, channel: &Channel) -> lapin::Result<lapin::Queue> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(self.queue.as_str().into(), passive, FieldTable::default()).await
    }

    fn uri(&self) -> AMQPUri {
        let url = &self.url;
        let login = url.login.clone();
        let (username, password) = login.map_or_else(guest_login, |login| (login.user, login.password));
        AMQPUri {
            // The transport below the client library handles TLS.
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username, password },
                host: url.host.clone(),
                port: url.port,
            },
            vhost: if url.path.is_empty() { "/".to_owned() } else { url.path.clone() },
            query: AMQPQueryString { heartbeat: Some(HEARTBEAT_SECS), ..AMQPQueryString::default() },
        }
    }

    /// Converts an error. Those that somebody must fix become [`SourceError::Refused`].
    fn error(&self, error: &lapin::Error) -> SourceError {
        let ErrorKind::ProtocolError(reply) = error.kind() else { return self.url.unavailable(error) };
        let text = reply.get_message();
        match reply.get_id() {
            NOT_FOUND if is_unavailable(text.as_str()) => self.url.unavailable(error),
            NOT_FOUND => {
                let make = "make it and bind it to the exchange of the events, or name another";
                self.url.refused(format_args!("there is no queue '{}': {make}", self.queue))
            }
            ACCESS_REFUSED | NOT_ALLOWED => {
                self.url.refused(format_args!("the broker denies this user access: {text}"))
            }
            RESOURCE_LOCKED => self.url.refused(format_args!(
                "the queue '{}' belongs exclusively to another connection: {text}",
                self.queue
            )),
            _ => self.url.unavailable(error),
        }
    }
}

fn is_unavailable(reply: &str) -> bool {
    UNAVAILABLE_TEXTS.iter().any(|end| reply.ends_with(end))
}

/// Returns RabbitMQ's default login, which is allowed only from the same machine.
fn guest_login() -> (String, String) {
    ("guest".to_owned(), "guest".to_owned())
}

fn to_message(delivery: Delivery) -> Message {
    let headers = delivery.properties.headers().iter().flat_map(|headers| headers.inner());
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    };
    let pairs = headers.filter_map(|(name, value)| Some((name.as_str().to_lowercase(), text(value)?)));
    Message { attributes: pairs.collect(), body: delivery.data.into() }
}

#[cfg(test)]
mod tests {
    use super::is_unavailable;

    /// Right after a restart of the broker, its durable queue was reported as missing.
    #[test]
    fn a_queue_that_is_not_up_yet_is_not_one_that_is_missing() {
        for reply in [
            "NOT_FOUND - home node 'rabbit@host' of durable queue 'q' in vhost '/' is down or inaccessible",
            "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
            "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout",
        ] {
            assert!(is_unavailable(reply), "{reply}");
        }
        assert!(!is_unavailable("NOT_FOUND - no queue 'is down or inaccessible' in vhost '/'"));
    }
}
