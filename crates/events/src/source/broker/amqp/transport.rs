//! The client's way to the network.
//!
//! The client takes nothing but a TCP connection, and its own TLS would bring fifty dependencies. So a connection with TLS is made
//! here, and the client has one to this process, from which the bytes are carried over.

use crate::source::SourceError;
use crate::source::broker::broker_url::Place;
use crate::source::broker::connection::{connect, connect_tcp};
use async_compat::CompatExt;
use async_rs::TokioRuntime;
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use std::io;
use tokio::net::{TcpListener, TcpStream};

/// Connects to `place` and greets as `uri` says.
pub(super) async fn greet(place: &Place, uri: AMQPUri) -> lapin::Result<Connection> {
    let place = place.clone();
    let open = async move |_: AMQPUri, _: TokioRuntime| {
        let stream = reach(&place).await.map_err(io::Error::other)?;
        Ok(AsyncTcpStream::Plain(stream.compat()))
    };
    let properties = ConnectionProperties::default().with_connection_name("tenon".into());
    Connection::connector(uri, TokioRuntime::tokio_current(), open, properties).await
}

async fn reach(place: &Place) -> Result<TcpStream, SourceError> {
    if place.tls.is_none() {
        return connect_tcp(place).await;
    }
    let mut far = connect(place).await?;
    let (theirs, mut ours) = pair().await.map_err(|error| place.unavailable(error))?;
    // It ends with either of them.
    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut ours, &mut far).await });
    Ok(theirs)
}

/// Both ends of a connection within this process.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (other, from) = listener.accept().await?;
        // Anybody on this machine may have come first.
        if from == one.local_addr()? {
            return Ok((one, other));
        }
    }
}
