//! Streams of bytes to a host, encrypted or not.

use crate::address::Host;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time for which sent bytes may stay unacknowledged before a connection counts as lost, in milliseconds.
const UNACKED_MS_MAX: u32 = 20_000;

/// Idle time before a probe of TCP tests whether the server still answers.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A stream of bytes.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Bytes for S {}

/// Connects to a host. With `tls` the stream is encrypted, and the host's certificate must be valid for its name.
pub(crate) async fn open(host: &Host, tls: Option<&TlsConnector>) -> io::Result<Box<dyn Bytes>> {
    let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
    sockopt::set_tcp_user_timeout(&stream, UNACKED_MS_MAX)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
    Ok(Box::new(tls.connect(name, stream).await?))
}
