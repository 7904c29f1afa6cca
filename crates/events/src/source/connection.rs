//! Connections to brokers: TCP, and TLS over it where the URL wants it.

use super::SourceError;
use super::place::Place;
use rustls::pki_types::ServerName;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A broker that has not taken a connection, or answered a request that it answers at once, after this has vanished.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Duplex>, SourceError> {
    let connected = within(place, opened(place)).await?;
    connected.map_err(|error| place.unavailable(format_args!("no connection: {error}")))
}

/// What comes of `work`, which takes no longer than [`PATIENCE`].
pub(super) async fn within<T>(place: &Place, work: impl Future<Output = T>) -> Result<T, SourceError> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.map_err(|_| place.unavailable(format_args!("no answer within {} s", PATIENCE.as_secs())))
}

async fn opened(place: &Place) -> io::Result<Box<dyn Duplex>> {
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &place.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(place.host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
    Ok(Box::new(stream))
}
