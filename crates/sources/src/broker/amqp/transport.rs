//! The transport of the AMQP client.
//!
//! The client accepts nothing but a TCP connection, and its own TLS support would add fifty dependencies. For TLS, the connection is
//! therefore made here, and the client gets a local connection to this process, which copies the bytes in both directions.

use crate::broker::broker_url::BrokerUrl;
use crate::broker::connection::{connect, connect_tcp};
use async_compat::CompatExt;
use async_rs::TokioRuntime;
use events::SourceError;
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use std::io;
use tokio::net::{TcpListener, TcpStream};

/// Connects to the broker and opens an AMQP connection with the settings of `uri`.
pub(super) async fn connect_client(url: &BrokerUrl, uri: AMQPUri) -> lapin::Result<Connection> {
    let url = url.clone();
    let open = async move |_: AMQPUri, _: TokioRuntime| {
        let stream = connect_transport(&url).await.map_err(io::Error::other)?;
        Ok(AsyncTcpStream::Plain(stream.compat()))
    };
    let properties = ConnectionProperties::default().with_connection_name("tenon".into());
    Connection::connector(uri, TokioRuntime::tokio_current(), open, properties).await
}

async fn connect_transport(url: &BrokerUrl) -> Result<TcpStream, SourceError> {
    if url.tls.is_none() {
        return connect_tcp(url).await;
    }
    let mut far = connect(url).await?;
    let (theirs, mut ours) = local_pair().await.map_err(|error| url.unavailable(error))?;
    // The task ends once both directions have ended, or with the first error.
    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut ours, &mut far).await });
    Ok(theirs)
}

/// Returns both ends of a TCP connection within this process.
async fn local_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (other, from) = listener.accept().await?;
        // Another process on this machine may have connected first.
        if from == one.local_addr()? {
            return Ok((one, other));
        }
    }
}
