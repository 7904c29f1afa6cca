//! Tests of a listener over the loopback interface.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use listen::{Limits, Listener};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Holds requests back until the test lets them be answered.
#[derive(Debug, Default)]
struct Gate {
    arrived: Notify,
    open: Notify,
}

/// Starts a listener that answers with the client's address, at once or when the gate opens.
async fn listener(limits: Limits, gate: Option<Arc<Gate>>) -> Listener {
    let answer = move |_: Request<Incoming>, peer: IpAddr| {
        let gate = gate.clone();
        async move {
            if let Some(gate) = gate {
                gate.arrived.notify_one();
                gate.open.notified().await;
            }
            Response::new(Full::new(Bytes::from(peer.to_string())))
        }
    };
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Listener::start(address, limits, None, answer).await.unwrap()
}

async fn send_request(listener: &Listener) -> TcpStream {
    let mut stream = TcpStream::connect(listener.address()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream
}

/// Returns all bytes that arrive until the connection ends.
async fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.ok();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_end() {
    let gate = Arc::new(Gate::default());
    let listener = listener(Limits::default(), Some(gate.clone())).await;
    let client = send_request(&listener).await;
    gate.arrived.notified().await;
    assert!(!listener.stop(Duration::from_millis(50)).await);
    assert!(TcpStream::connect(listener.address()).await.is_err());
    gate.open.notify_one();
    assert!(listener.stop(Duration::from_secs(30)).await);
    assert!(read_to_end(client).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn a_dropped_listener_frees_its_address_after_the_last_response() {
    let gate = Arc::new(Gate::default());
    let listener = listener(Limits::default(), Some(gate.clone())).await;
    let address = listener.address();
    let client = send_request(&listener).await;
    gate.arrived.notified().await;
    drop(listener);
    gate.open.notify_one();
    assert!(read_to_end(client).await.ends_with("127.0.0.1"));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_and_idle_ones_are_closed() {
    let limits = Limits { connections: 1, head_within: Duration::from_millis(200), ..Limits::default() };
    let listener = listener(limits, None).await;
    let idle = TcpStream::connect(listener.address()).await.unwrap();
    let client = send_request(&listener).await;
    assert_eq!(read_to_end(idle).await, "");
    assert!(read_to_end(client).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn an_address_in_use_is_an_error_with_that_address() {
    let first = listener(Limits::default(), None).await;
    let answer = |_, _| async { Response::new(Full::new(Bytes::new())) };
    let error = Listener::start(first.address(), Limits::default(), None, answer).await.unwrap_err();
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}
