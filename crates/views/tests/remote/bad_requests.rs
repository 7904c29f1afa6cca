//! Clients without the token, malformed requests, and servers that are not handlers.

use super::{ANY, client, serve};
use crate::fake_handler::FakeHandler;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use views::part::Part;
use views::remote::{RemoteConfig, RemoteViews, Token};
use views::{Ruleset, ViewError, Views as _};

fn ruleset() -> Ruleset {
    views::read("set: {container: bucket}").unwrap().remove(0)
}

#[tokio::test]
async fn s278_a_client_without_the_token_is_refused() {
    let handler = Arc::new(FakeHandler::default());
    let server = serve(&handler, Some("secret"), ANY).await;
    for token in [None, Some("secre"), Some("secrets"), Some("Secret")] {
        let refused = client(&[server.url()], token).open(&ruleset()).await;
        assert!(matches!(&refused, Err(ViewError::Refused(says)) if says.contains("token")), "{refused:?}");
    }
    assert!(client(&[server.url()], Some(" secret\n")).open(&ruleset()).await.is_ok());
    assert!(Token::new(" ").is_err() && Token::new("a b").is_err() && Token::new("ü").is_err());
    assert_eq!(format!("{:?}", Token::new("secret").unwrap()), "Token");
}

#[tokio::test]
async fn s278_malformed_requests_are_refused_and_others_served() {
    let handler = Arc::new(FakeHandler::default());
    let server = serve(&handler, None, ANY).await;
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let long = "x".repeat(2 << 20);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), "404"),
        ("GET /v1/views/x/changes HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), "404"),
        ("GET /v1/views/0/changes?since=zz HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), "400"),
        ("GET /v1/views/0/changes?limit=-1 HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), "400"),
        ("GET /v1/views/0/changes?what HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(), "400"),
        ("POST /v1/views HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\na: ".to_owned(), "400"),
        ("POST /v1/views HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n\u{80}".to_owned(), "400"),
        (
            format!("POST /v1/views HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{long}", long.len()),
            "413",
        ),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        // The server may answer and close the connection before all of a long body is sent.
        stream.write_all(request.as_bytes()).await.ok();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        let shown = &request[..request.len().min(60)];
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"), "{shown}");
    }
    assert!(client(&[server.url()], None).open(&ruleset()).await.is_ok());
}

#[tokio::test]
async fn addresses_without_a_handler_are_reported() {
    for address in ["", "host:1", "ftp://host", "http://", "http://host/?a"] {
        let config = RemoteConfig {
            addresses: vec![address.to_owned()],
            part: Part::ALL,
            token: None,
            ca_bundle: None,
        };
        let error = RemoteViews::new(&config).unwrap_err().to_string();
        assert!(error.contains("is not the address of a handler"), "{error}");
    }
    let listener = tokio::net::TcpListener::bind(ANY).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 64];
            stream.read_exact(&mut head).await.ok();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await.ok();
        }
    });
    let opened = tokio::time::timeout(Duration::from_secs(10), client(&[url], None).open(&ruleset())).await;
    assert!(
        matches!(&opened, Ok(Err(ViewError::Refused(says))) if says.contains("is malformed")),
        "{opened:?}"
    );
}
