//! NATS: streams of JetStream, and plain subjects.

mod jetstream;
mod subject;

use super::broker_url::{BrokerAccess, Form, Place};
use super::connection::within;
use crate::source::{Message, Source, SourceError};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use url::Url;

const FORM: Form = Form {
    scheme: "nats",
    tls_scheme: Some("tls"),
    port: 4222,
    parameters: &["consumer", "subject", "queue"],
    example: "nats://HOST:PORT/STREAM?consumer=NAME, or nats://HOST:PORT/?subject=SUBJECT",
};

/// The source of a `nats:` URL. Nothing is asked of the server yet.
///
/// # Errors
/// If the URL says no source.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let place = Place::read(url, access, &FORM)?;
    let given = |name| place.parameter(name).map(str::to_owned);
    let (consumer, subject, queue) = (given("consumer"), given("subject"), given("queue"));
    match (place.path.is_empty(), consumer, queue) {
        (false, Some(consumer), None) => Ok(Box::new(jetstream::Durable::new(consumer, subject, place))),
        (false, None, _) => Err(FORM.refuse("it has no 'consumer'")),
        (true, None, queue) => {
            let subject = subject.ok_or_else(|| FORM.refuse("it has neither a stream nor a 'subject'"))?;
            Ok(Box::new(subject::Subscribed::new(subject, queue, place)))
        }
        _ => Err(FORM.refuse("'consumer' is for streams, 'queue' for plain subjects")),
    }
}

/// How long the client waits before it connects again by itself. A connection that ended is given up long before; if it came
/// back at once, it would ask for messages that nobody takes from it.
const RECONNECT_DELAY: Duration = Duration::from_secs(60);

/// A connection that is not made anew by itself.
#[derive(Debug)]
struct Link {
    client: Client,
    ended: watch::Receiver<bool>,
    /// Set when messages came faster than they were read.
    has_overflown: Arc<AtomicBool>,
}

impl Link {
    async fn connect(place: &Place) -> Result<Self, SourceError> {
        let (end, ended) = watch::channel(false);
        let has_overflown = Arc::new(AtomicBool::new(false));
        let overflown = has_overflown.clone();
        let told = move |event| {
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
        options = options.event_callback(told).reconnect_delay_callback(delay);
        if let Some(login) = &place.login {
            options = options.user_and_password(login.user.clone(), login.password.clone());
        }
        if let Some(tls) = &place.tls {
            options = options.tls_client_config((**tls).clone()).require_tls(true);
        }
        let address = format!("{}:{}", bracketed(&place.host), place.port);
        let client = within(place, options.connect(address)).await?;
        let client = client.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                place.refused("NATS knows no such user with this password: give the right ones")
            }
            _ => place.unavailable(format_args!("no connection: {error}")),
        })?;
        is_connected.store(true, Ordering::Relaxed);
        Ok(Self { client, ended, has_overflown })
    }

    /// What comes of `work`, unless the connection ends before.
    async fn until_it_ends<T>(
        &mut self,
        place: &Place,
        work: impl Future<Output = T>,
    ) -> Result<T, SourceError> {
        tokio::select! {
            done = work => Ok(done),
            _ = self.ended.wait_for(|ended| *ended) => Err(place.unavailable("the connection ended")),
        }
    }
}

/// As it stands before a port.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn message(message: async_nats::Message) -> Message {
    let headers = message.headers.iter().flat_map(|headers| headers.iter());
    let pairs = headers.flat_map(|(name, values)| {
        let name = AsRef::<str>::as_ref(name).to_lowercase();
        values.iter().map(move |value| (name.clone(), value.as_str().to_owned()))
    });
    Message { attributes: pairs.collect(), body: message.payload }
}
