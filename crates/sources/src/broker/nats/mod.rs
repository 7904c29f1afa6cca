//! NATS: sources for JetStream streams and for plain subjects.

mod jetstream;
mod subject;

use super::broker_url::{BrokerAccess, BrokerUrl, UrlForm};
use super::connection::with_timeout;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use events::{Message, Source, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use url::Url;

const FORM: UrlForm = UrlForm {
    scheme: "nats",
    tls_scheme: Some("tls"),
    port: 4222,
    parameters: &["consumer", "subject", "queue"],
    example: "nats://HOST:PORT/STREAM?consumer=NAME, or nats://HOST:PORT/?subject=SUBJECT",
};

/// Opens the source of a `nats:` URL. Nothing is sent to the server yet.
///
/// # Errors
/// If the URL does not describe a source.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let url = BrokerUrl::parse(url, access, &FORM)?;
    let given = |name| url.parameter(name).map(str::to_owned);
    let (consumer, subject, queue) = (given("consumer"), given("subject"), given("queue"));
    match (url.path.is_empty(), consumer, queue) {
        (false, Some(consumer), None) => {
            Ok(Box::new(jetstream::JetStreamSource::new(consumer, subject, url)))
        }
        (false, None, _) => Err(FORM.refuse("the parameter 'consumer' is missing")),
        (true, None, queue) => {
            let subject = subject.ok_or_else(|| FORM.refuse("it has neither a stream nor a 'subject'"))?;
            Ok(Box::new(subject::SubjectSource::new(subject, queue, url)))
        }
        _ => Err(FORM.refuse("'consumer' is for streams, 'queue' for plain subjects")),
    }
}

/// Delay before the client reconnects by itself. A source gives up an ended connection long before. If the client reconnected at
/// once, it would request messages that nobody receives.
const RECONNECT_DELAY: Duration = Duration::from_secs(60);

/// A connection to a server. Its source gives it up once it has ended, before the client would reconnect by itself.
#[derive(Debug)]
struct Link {
    client: Client,
    ended: watch::Receiver<bool>,
    /// Set when messages arrived faster than they were read, so that some were lost.
    has_overflown: Arc<AtomicBool>,
}

impl Link {
    async fn connect(url: &BrokerUrl) -> Result<Self, SourceError> {
        let (end, ended) = watch::channel(false);
        let has_overflown = Arc::new(AtomicBool::new(false));
        let overflown = has_overflown.clone();
        let on_event = move |event| {
            match event {
                Event::Disconnected | Event::Closed => drop(end.send(true)),
                Event::SlowConsumer(_) => overflown.store(true, Ordering::Relaxed),
                _ => {}
            }
            std::future::ready(())
        };
        let is_connected = Arc::new(AtomicBool::new(false));
        let was_connected = is_connected.clone();
        let delay = move |_| match was_connected.load(Ordering::Relaxed) {
            true => RECONNECT_DELAY,
            false => Duration::ZERO,
        };
        let mut options = ConnectOptions::new().name("tenon").max_reconnects(1);
        options = options.event_callback(on_event).reconnect_delay_callback(delay);
        if let Some(login) = &url.login {
            options = options.user_and_password(login.user.clone(), login.password.clone());
        }
        if let Some(tls) = &url.tls {
            options = options.tls_client_config((**tls).clone()).require_tls(true);
        }
        let address = format!("{}:{}", host_for_port(&url.host), url.port);
        let client = with_timeout(url, options.connect(address)).await?;
        let client = client.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                url.refused("NATS rejected the user or the password: correct them")
            }
            _ => url.unavailable(format_args!("connecting failed: {error}")),
        })?;
        is_connected.store(true, Ordering::Relaxed);
        Ok(Self { client, ended, has_overflown })
    }

    /// Returns the result of `work`, or an error if the connection ends first.
    async fn while_connected<T>(
        &mut self,
        url: &BrokerUrl,
        work: impl Future<Output = T>,
    ) -> Result<T, SourceError> {
        tokio::select! {
            done = work => Ok(done),
            _ = self.ended.wait_for(|ended| *ended) => Err(url.unavailable("the connection ended")),
        }
    }
}

/// Returns the host as it is written before a port: an IPv6 address in brackets.
fn host_for_port(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn to_message(message: async_nats::Message) -> Message {
    let headers = message.headers.iter().flat_map(|headers| headers.iter());
    let pairs = headers.flat_map(|(name, values)| {
        let name = AsRef::<str>::as_ref(name).to_lowercase();
        values.iter().map(move |value| (name.clone(), value.as_str().to_owned()))
    });
    Message { attributes: pairs.collect(), body: message.payload }
}
