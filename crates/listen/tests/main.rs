//! Connections to a listener, over loopback.

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

/// Where requests wait for their answers.
#[derive(Debug, Default)]
struct Gate {
    came: Notify,
    open: Notify,
}

/// Answers with who asked, at once or through a gate.
async fn listener(limits: Limits, gate: Option<Arc<Gate>>) -> Listener {
    let answer = move |_: Request<Incoming>, peer: IpAddr| {
        let gate = gate.clone();
        async move {
            if let Some(gate) = gate {
                gate.came.notify_one();
                gate.open.notified().await;
            }
            Response::new(Full::new(Bytes::from(peer.to_string())))
        }
    };
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Listener::start(address, limits, None, answer).await.unwrap()
}

async fn ask(listener: &Listener) -> TcpStream {
    let mut stream = TcpStream::connect(listener.address()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream
}

/// What comes until the connection ends.
async fn heard(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.ok();
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn a_request_under_way_is_answered_before_the_end() {
    let gate = Arc::new(Gate::default());
    let listener = listener(Limits::default(), Some(gate.clone())).await;
    let asked = ask(&listener).await;
    gate.came.notified().await;
    assert!(!listener.stop(Duration::from_millis(50)).await);
    assert!(TcpStream::connect(listener.address()).await.is_err());
    gate.open.notify_one();
    assert!(listener.stop(Duration::from_secs(30)).await);
    assert!(heard(asked).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn a_dropped_listener_lets_its_address_go_when_it_has_answered() {
    let gate = Arc::new(Gate::default());
    let listener = listener(Limits::default(), Some(gate.clone())).await;
    let address = listener.address();
    let asked = ask(&listener).await;
    gate.came.notified().await;
    drop(listener);
    gate.open.notify_one();
    assert!(heard(asked).await.ends_with("127.0.0.1"));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn more_than_the_limit_wait_and_idle_ones_are_sent_away() {
    let limits = Limits { connections: 1, head_within: Duration::from_millis(200), ..Limits::default() };
    let listener = listener(limits, None).await;
    let idle = TcpStream::connect(listener.address()).await.unwrap();
    let asked = ask(&listener).await;
    assert_eq!(heard(idle).await, "");
    assert!(heard(asked).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn an_address_that_others_have_is_an_error_that_names_it() {
    let first = listener(Limits::default(), None).await;
    let answer = |_, _| async { Response::new(Full::new(Bytes::new())) };
    let error = Listener::start(first.address(), Limits::default(), None, answer).await.unwrap_err();
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}
