//! Connections to brokers: TCP, with TLS over it if the URL asks for it.

use super::broker_url::BrokerUrl;
use events::SourceError;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Timeout for connecting, and for responses that a broker sends at once. A broker that exceeds it counts as gone.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns `first` and the items of a stream that are ready without waiting, at most `max` in all. An error or the end
/// of the stream ends the items and is not reported here: the next call reports what the stream yields then, usually
/// that it has ended.
pub(super) fn take_ready<T, E>(
    first: T,
    stream: &mut (impl Stream<Item = Result<T, E>> + Unpin),
    max: usize,
) -> Vec<T> {
    let next = || stream.next().now_or_never().flatten().and_then(Result::ok);
    std::iter::once(first).chain(std::iter::from_fn(next)).take(max.max(1)).collect()
}

/// A stream of bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connects to the broker, with or without TLS.
pub(super) async fn connect(url: &BrokerUrl) -> Result<Box<dyn Duplex>, SourceError> {
    let stream = connect_tcp(url).await?;
    let Some(tls) = &url.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(url.host.clone()).map_err(|error| url.refused(error))?;
    let stream = with_timeout(url, TlsConnector::from(tls.clone()).connect(name, stream)).await?;
    Ok(Box::new(stream.map_err(|error| url.unavailable(format_args!("TLS failed: {error}")))?))
}

/// Opens a TCP connection to the broker's address.
pub(super) async fn connect_tcp(url: &BrokerUrl) -> Result<TcpStream, SourceError> {
    let connected = with_timeout(url, TcpStream::connect((url.host.as_str(), url.port))).await?;
    let connected = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    connected.map_err(|error| url.unavailable(format_args!("connecting failed: {error}")))
}

/// Runs `work` with the timeout [`TIMEOUT`].
pub(super) async fn with_timeout<T>(
    url: &BrokerUrl,
    work: impl Future<Output = T>,
) -> Result<T, SourceError> {
    let done = tokio::time::timeout(TIMEOUT, work).await;
    done.map_err(|_| url.unavailable(format_args!("no response within {} s", TIMEOUT.as_secs())))
}
