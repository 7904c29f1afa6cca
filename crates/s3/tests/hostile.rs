//! Slow, broken and hostile clients: each gets an S3 error or loses its connection, and other clients are served.

use super::test_server::{KEY, TestServer};
use bytes::Bytes;
use s3::Limits;
use std::sync::Arc;
use std::time::Duration;
use store::memory::MemoryBuckets;
use store::{
    Buckets, Clock, Entropy, ObjectKey, ObjectStore, Payload, PutOptions, StoreError, SystemClock, Timestamp,
};
use store_s3::{Credentials, S3Buckets, S3Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starts an endpoint with a bucket `open` that everybody may read and write, so that requests need no signature.
async fn start(limits: Limits) -> (TestServer, Arc<dyn ObjectStore>) {
    let buckets = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
    buckets.create("open").await.unwrap();
    let store = buckets.open("open").await.unwrap();
    let policy = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::open","arn:aws:s3:::open/*"]}]}"#;
    store.settings().unwrap().set("policy", Some(Bytes::from_static(policy.as_bytes()))).await.unwrap();
    (TestServer::with_limits(buckets, limits).await, store)
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::try_from(text).unwrap()
}

impl TestServer {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.inner.address()).await.unwrap()
    }

    /// Sends bytes and returns what arrives until the connection ends.
    async fn send_raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.ok();
        String::from_utf8_lossy(&response).into_owned()
    }

    async fn request(&self, line: &str, headers: &str, body: &[u8]) -> String {
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        self.send_raw(&[head.as_bytes(), body].concat()).await
    }

    /// Checks that the endpoint still serves requests.
    async fn assert_serving(&self) {
        let response = self.request("GET /open?list-type=2", "", b"").await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}

/// The client of versitygw's tests reused a connection that was about to close because its last request's body had been
/// refused unread. It saw only the end of the connection.
#[tokio::test]
async fn a_response_before_the_body_closes_the_connection() {
    let (server, _) = start(Limits::default()).await;
    let says_close = |answer: &str| answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
    let mut stream = server.connect().await;
    let put = |key: &str| format!("PUT /{key} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
    let mut answer = vec![0; 4096];
    for _ in 0..2 {
        stream.write_all(put("open/a").as_bytes()).await.unwrap();
        stream.write_all(b"body").await.unwrap();
        let read = stream.read(&mut answer).await.unwrap();
        let response = String::from_utf8_lossy(&answer[..read]);
        assert!(response.starts_with("HTTP/1.1 200") && !says_close(&response), "{response}");
    }
    stream.write_all(put("nowhere/a").as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 403") && says_close(&response), "{response}");
}

/// A client that kept sending while being refused lost the response: the connection was closed under its last bytes.
#[tokio::test]
async fn a_client_refused_while_sending_gets_the_error() {
    let (server, _) = start(Limits::default()).await;
    for _ in 0..8 {
        let mut stream = server.connect().await;
        let head = "PUT /nowhere/a HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..8 {
            stream.write_all(&vec![0; 1 << 20]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    }
}

#[tokio::test]
async fn s188_nonsense_gets_an_error() {
    let (server, store) = start(Limits::default()).await;
    for nonsense in [
        "\0\0\0\0",
        "GET\r\n\r\n",
        "PUT /open/x HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "\x16\x03\x01\x02\x00",
    ] {
        let response = server.send_raw(nonsense.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{nonsense:?}: {response}");
    }
    let long = format!("GET /open/{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    assert!(server.send_raw(long.as_bytes()).await.starts_with("HTTP/1.1 4"));
    let cases = [
        ("PUT /open/x?append&position=3", "Content-Length: 1\r\n", "NotImplemented"),
        ("PUT /open/x?renameObject", "Content-Length: 0\r\n", "AccessDenied"),
        (
            "PUT /open/x",
            "Content-Length: 1\r\nx-amz-server-side-encryption-customer-algorithm: AES256\r\n",
            "NotImplemented",
        ),
        ("GET /open/%ff", "", "InvalidURI"),
        ("GET /UPPER_case/x", "", "InvalidBucketName"),
        ("GET /open?list-type=2&continuation-token=%21", "", "InvalidArgument"),
        ("GET /open?list-type=2&max-keys=-1", "", "InvalidArgument"),
        ("GET /nobodys/x", "", "AccessDenied"),
        ("GET /", "Authorization: AWS4-HMAC-SHA256 Credential=a\r\n", "AuthorizationHeaderMalformed"),
    ];
    for (line, headers, code) in cases {
        let response = server.request(line, headers, b"x").await;
        assert!(response.contains(&format!("<Code>{code}</Code>")), "{line}: {response}");
    }
    assert!(matches!(store.head(&key("x")).await, Err(StoreError::NotFound(_))));
    server.assert_serving().await;
}

#[tokio::test]
async fn broken_documents_are_malformed() {
    let (server, store) = start(Limits::default()).await;
    store.put(&key("kept"), Payload::from("x"), PutOptions::default()).await.unwrap();
    let bomb = format!(
        "<!DOCTYPE d [<!ENTITY a \"{}\">]><Delete><Object><Key>&a;</Key></Object></Delete>",
        "kept".repeat(1000)
    );
    let documents = [
        "",
        "<",
        "<Delete>",
        "<Delete></Delete>",
        "<Delete><Object><Key>kept</Key>",
        "\u{feff}nothing",
        &bomb,
        "<Tagging/>",
    ];
    for document in documents {
        let headers = format!("Content-Length: {}\r\n", document.len());
        let response = server.request("POST /open?delete", &headers, document.as_bytes()).await;
        assert!(
            response.starts_with("HTTP/1.1 4") && response.contains("<Code>"),
            "{document:?}: {response}"
        );
    }
    let deep = "<a>".repeat(20_000);
    let headers = format!("Content-Length: {}\r\n", deep.len());
    let response = server.request("PUT /open?tagging", &headers, deep.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 4"), "{response}");
    let huge = "x".repeat(5 << 20);
    let headers = format!("Content-Length: {}\r\n", huge.len());
    let mut stream = server.connect().await;
    let head = format!("POST /open?delete HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(huge.as_bytes()).await.ok();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.ok();
    let response = String::from_utf8_lossy(&response).into_owned();
    assert!(response.contains("MaxMessageLengthExceeded"), "{response}");
    store.head(&key("kept")).await.unwrap();
    server.assert_serving().await;
}

#[tokio::test]
async fn s191_a_body_that_breaks_off_stores_nothing() {
    let (server, store) = start(Limits::default()).await;
    store.put(&key("x"), Payload::from("before"), PutOptions::default()).await.unwrap();
    let mut stream = server.connect().await;
    stream
        .write_all(b"PUT /open/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nonly this")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.ok();
    let cases = [
        ("Content-Length: 3\r\nContent-MD5: AAAAAAAAAAAAAAAAAAAAAA==\r\n", "BadDigest"),
        ("Content-Length: 3\r\nContent-MD5: none\r\n", "InvalidDigest"),
        ("Content-Length: 3\r\nx-amz-checksum-crc32c: AAAAAA==\r\n", "BadDigest"),
        ("Content-Length: 3\r\nx-amz-checksum-crc32c: short\r\n", "InvalidRequest"),
        (
            "Content-Length: 3\r\nx-amz-checksum-crc32c: AAAAAA==\r\nx-amz-checksum-crc32: AAAAAA==\r\n",
            "InvalidRequest",
        ),
    ];
    for (headers, code) in cases {
        let response = server.request("PUT /open/x", headers, b"new").await;
        assert!(response.contains(&format!("<Code>{code}</Code>")), "{headers}: {response}");
    }
    // Chunks that are shorter than declared, or declared longer than anything.
    for chunks in [
        "5\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "zz\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc",
    ] {
        let headers = format!(
            "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\nx-amz-trailer: x-amz-checksum-crc32\r\nContent-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 3\r\nContent-Length: {}\r\n",
            chunks.len()
        );
        let response = server.request("PUT /open/x", &headers, chunks.as_bytes()).await;
        assert!(!response.starts_with("HTTP/1.1 200"), "{chunks:?}: {response}");
    }
    assert_eq!(store.head(&key("x")).await.unwrap().size_bytes, 6);
    server.assert_serving().await;
}

#[tokio::test]
async fn s190_slow_clients_lose_their_slot() {
    let short = Duration::from_secs(1);
    let (server, store) = start(Limits {
        connections: listen::Limits {
            head_within: short,
            stall_within: short,
            ..Limits::default().connections
        },
        requests: 1,
        ..Limits::default()
    })
    .await;
    let long: Payload = (0..64).map(|_| Bytes::from(vec![7; 1 << 20])).collect();
    store.put(&key("long"), long, PutOptions::default()).await.unwrap();
    // A request head that never ends.
    let mut head = server.connect().await;
    head.write_all(b"GET /open HTTP/1.1\r\nHost:").await.unwrap();
    let mut response = Vec::new();
    head.read_to_end(&mut response).await.ok();
    // A body that stops.
    let response =
        server.send_raw(b"PUT /open/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nand then").await;
    assert!(response.contains("<Code>RequestTimeout</Code>"), "{response}");
    // A response that nobody reads holds the only slot until it times out.
    let mut unread = server.connect().await;
    unread.write_all(b"GET /open/long HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 1000];
    unread.read_exact(&mut first).await.unwrap();
    let response = server.request("GET /open/x", "", b"").await;
    assert!(response.contains("<Code>SlowDown</Code>"), "{response}");
    while !server.request("GET /open?list-type=2", "", b"").await.starts_with("HTTP/1.1 200") {
        tokio::time::sleep(short / 10).await;
    }
    assert!(matches!(store.head(&key("x")).await, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn idle_connections_do_not_keep_others_out() {
    let (server, _) = start(Limits::default()).await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(server.connect().await);
    }
    server.assert_serving().await;
    drop(idle);
}

/// A clock that is an hour slow.
#[derive(Debug)]
struct SlowClock;

impl Clock for SlowClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 - 3_600_000_000_000)
    }
}

#[tokio::test]
async fn wrong_signatures_are_denied() {
    let (server, _) = start(Limits::default()).await;
    let client = |access_key: &str, secret: &str, clock: Arc<dyn Clock>| {
        let config = S3Config {
            endpoint: Some(server.url()),
            credentials: Credentials::new(access_key, secret, None).unwrap().into(),
            ..S3Config::default()
        };
        S3Buckets::new(config, clock, Arc::new(Entropy::new(7))).unwrap()
    };
    let right = super::test_server::SECRET;
    for (access_key, secret, clock) in [
        (KEY, "another-secret", Arc::new(SystemClock) as Arc<dyn Clock>),
        ("nobody", right, Arc::new(SystemClock)),
        (KEY, right, Arc::new(SlowClock)),
    ] {
        let denied = client(access_key, secret, clock).list().await.unwrap_err();
        assert!(matches!(denied, StoreError::Denied(_)), "{access_key}: {denied}");
        assert!(!denied.to_string().contains(secret));
    }
    client(KEY, right, Arc::new(SystemClock)).list().await.unwrap();
}

#[tokio::test]
async fn roles_limit_their_users() {
    let server = TestServer::start().await;
    let admin = server.fresh_bucket().await.unwrap();
    admin.put(&key("x"), Payload::from("x"), PutOptions::default()).await.unwrap();
    let reader = server.client("reader").open("bucket-0").await.unwrap();
    let writer = server.client("writer").open("bucket-0").await.unwrap();
    reader.head(&key("x")).await.unwrap();
    let denied = |outcome: Result<_, StoreError>| matches!(outcome, Err(StoreError::Denied(_)));
    assert!(denied(reader.put(&key("y"), Payload::from("y"), PutOptions::default()).await.map(drop)));
    writer.put(&key("y"), Payload::from("y"), PutOptions::default()).await.unwrap();
    assert!(denied(server.client("writer").delete("bucket-0").await));
    assert!(denied(server.client("reader").create("another").await));
}
