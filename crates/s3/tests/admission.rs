//! Admission control and the access log.

use super::raw::{send, signed};
use super::test_server::{KEY, SECRET, TestServer, initial_users};
use s3::{AccessLog, Endpoint, EndpointOptions, Limits, Server, Users};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::memory::MemoryBuckets;
use store::{Buckets, Entropy, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn with_requests(requests: usize) -> TestServer {
    let buckets: Arc<dyn Buckets> = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
    buckets.create("bucket").await.unwrap();
    TestServer::with_limits(buckets, Limits { requests, ..Limits::default() }).await
}

/// Sends the beginning of a request and nothing more.
async fn stall(server: &TestServer, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.inner.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// 256 unsigned forms or documents took all slots before anybody checked their senders: every request got 503.
#[tokio::test]
async fn s475_stalled_unsigned_bodies_lock_nobody_out() {
    let server = with_requests(4).await;
    let form = "POST /bucket HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 9999\r\n\r\n--b\r\n";
    let sts = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8000\r\n\r\nAction=";
    let document = "PUT /bucket?tagging HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n<";
    let maker = "PUT /another HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n<";
    for request in [form, sts, document, maker] {
        let mut stalled = Vec::new();
        for _ in 0..300 {
            stalled.push(stall(&server, request).await);
        }
        send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
        send(&server, Some(KEY), ("GET", "/bucket/a", ""), &[], "").await.is(200);
        drop(stalled);
    }
}

/// An unsigned document was read to its end and then refused.
#[tokio::test]
async fn s475_documents_are_refused_unread() {
    let server = with_requests(4).await;
    let mut stream =
        stall(&server, "PUT /bucket?policy HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n{").await;
    let mut answer = vec![0; 4096];
    let read =
        tokio::time::timeout(Duration::from_secs(60), stream.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

/// One user's slow uploads took all slots, and all other tenants got SlowDown.
#[tokio::test]
async fn s190_a_user_leaves_slots_to_others() {
    let server = with_requests(16).await;
    let what = ("PUT", "/bucket/slow", "");
    let body = [("x-amz-content-sha256", "UNSIGNED-PAYLOAD")];
    let headers = signed(&server, Some(("writer", SECRET)), what, &body, "");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("PUT /bucket/slow HTTP/1.1\r\n{headers}Content-Length: 9999\r\n\r\nx");
    let mut slow = Vec::new();
    for _ in 0..40 {
        slow.push(stall(&server, &request).await);
    }
    for _ in 0..5 {
        send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
    }
    // Once all slow requests have arrived, further requests of the same user get SlowDown.
    for _ in 0..100 {
        let response = send(&server, Some("writer"), ("GET", "/bucket/a", ""), &[], "").await;
        if response.status == 503 {
            response.errs(503, "SlowDown");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} slow requests of one user hold no slots", slow.len());
}

/// Each refused request wrote two lines at level ERROR, and the log contained malformed bodies.
#[tokio::test]
async fn s476_the_access_log_has_a_line_for_each_request() {
    let buckets = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
    buckets.create("bucket").await.unwrap();
    let options = EndpointOptions {
        users: Users::new(initial_users()).unwrap(),
        region: "us-east-1".to_owned(),
        domains: Vec::new(),
        webhooks: BTreeMap::new(),
        md5: false,
        encrypted: false,
    };
    let endpoint = Endpoint::new(buckets, options, Arc::new(SystemClock), Arc::new(Entropy::new(1))).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let log = AccessLog::new(move |record| log.lock().unwrap().push(record.clone()));
    let address = "127.0.0.1:0".parse().unwrap();
    let server =
        Server::start(endpoint.with_access_log(log), address, Limits::default(), None).await.unwrap();
    let server = TestServer::wrapping(server);
    let put = send(&server, Some(KEY), ("PUT", "/bucket/a%20b", ""), &[], "four").await.is(200);
    send(&server, Some(KEY), ("GET", "/bucket/a%20b", ""), &[], "").await.is(200);
    send(&server, None, ("GET", "/bucket/secret", ""), &[], "").await.is(403);
    send(&server, Some(KEY), ("PUT", "/bucket", "tagging"), &[], "<not-xml private").await.is(400);
    server.inner.stop(Duration::from_secs(10)).await;
    let lines = lines.lock().unwrap().clone();
    let said: Vec<String> = lines
        .iter()
        .map(|line| {
            let user = line.user.as_deref().unwrap_or("-");
            let operation = line.operation.as_deref().unwrap_or("-");
            let key = line.key.as_deref().unwrap_or("-");
            let (received, sent) =
                (line.received_bytes, if line.status == 200 { line.sent_bytes } else { 0 });
            format!("{user} {} {operation} bucket {key} {} {received} {sent}", line.method, line.status)
        })
        .collect();
    assert_eq!(
        said,
        [
            "tests-admin PUT PutObject bucket a%20b 200 4 0",
            "tests-admin GET GetObject bucket a%20b 200 0 4",
            "- GET GetObject bucket secret 403 0 0",
            "tests-admin PUT PutBucketTagging bucket - 400 16 0",
        ]
    );
    assert_eq!(lines[0].id, put.header("x-amz-request-id").unwrap());
    assert!(lines.iter().all(|line| line.peer.is_loopback() && line.bucket.as_deref() == Some("bucket")));
    assert!(lines.iter().all(|line| !line.to_json().contains("private")));
}
