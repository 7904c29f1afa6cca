//! Connections to brokers: TCP, and TLS over it where the URL wants it.

use super::broker_url::Place;
use crate::source::SourceError;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A broker that has not taken a connection, or answered a request that it answers at once, after this has vanished.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The first of a stream and what follows it without a wait, `max` in all. What ended is told when it is asked again.
pub(super) fn with_ready<T, E>(
    first: T,
    stream: &mut (impl Stream<Item = Result<T, E>> + Unpin),
    max: usize,
) -> Vec<T> {
    let next = || stream.next().now_or_never().flatten().and_then(Result::ok);
    std::iter::once(first).chain(std::iter::from_fn(next)).take(max.max(1)).collect()
}

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection to the broker itself, in the clear or not.
pub(super) async fn connect(place: &Place) -> Result<Box<dyn Duplex>, SourceError> {
    let stream = connect_tcp(place).await?;
    let Some(tls) = &place.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(place.host.clone()).map_err(|error| place.refused(error))?;
    let stream = within(place, TlsConnector::from(tls.clone()).connect(name, stream)).await?;
    Ok(Box::new(stream.map_err(|error| place.unavailable(format_args!("no TLS: {error}")))?))
}

/// A connection to the broker's address.
pub(super) async fn connect_tcp(place: &Place) -> Result<TcpStream, SourceError> {
    let connected = within(place, TcpStream::connect((place.host.as_str(), place.port))).await?;
    let connected = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    connected.map_err(|error| place.unavailable(format_args!("no connection: {error}")))
}

/// What comes of `work`, which takes no longer than [`PATIENCE`].
pub(super) async fn within<T>(place: &Place, work: impl Future<Output = T>) -> Result<T, SourceError> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.map_err(|_| place.unavailable(format_args!("no answer within {} s", PATIENCE.as_secs())))
}
