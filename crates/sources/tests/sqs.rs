//! A fake SQS, which checks signatures by code of its own.

use super::beanstalkd::access;
use super::recording_feed::{RunningFeed, eventually, message};
use events::Wanted;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use listen::{Limits, Listener};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sources::{SourceAccess, open};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store_s3::{Credentials, CredentialsSource};

pub(crate) const SECRET: &str = "not-a-secret";
pub(crate) const REGION: &str = "eu-test-1";

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<String>,
    /// Received messages with their receipt handles.
    received: Vec<(String, String)>,
    requests: usize,
    unsigned: usize,
    /// Whether further requests of one `receive` are left without a response.
    holds_further: bool,
}

struct Sqs {
    listener: Listener,
    queue: Arc<Mutex<Queue>>,
}

impl Sqs {
    async fn start(waiting: Vec<String>) -> Self {
        let queue = Arc::new(Mutex::new(Queue { waiting, ..Queue::default() }));
        let shared = queue.clone();
        let answer = move |request, _| answer(request, shared.clone());
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::start(address, Limits::default(), None, answer).await.unwrap();
        Self { listener, queue }
    }

    fn url(&self) -> String {
        format!("sqs+{}/000000000000/events", self.listener.url())
    }

    fn counts(&self) -> (usize, usize) {
        let queue = self.queue.lock().unwrap();
        (queue.waiting.len(), queue.received.len())
    }
}

async fn answer(request: Request<Incoming>, queue: Arc<Mutex<Queue>>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let is_signed = head.uri.path() == "/" && is_signed(&head.headers, &body);
    {
        let mut queue = queue.lock().unwrap();
        queue.requests += 1;
        queue.unsigned += usize::from(!is_signed);
    }
    if !is_signed {
        let mut refusal = Response::new(Full::from(r#"{"__type":"InvalidSignatureException"}"#));
        *refusal.status_mut() = StatusCode::FORBIDDEN;
        return refusal;
    }
    let body_json: Value = serde_json::from_slice(&body).unwrap();
    assert!(body_json["QueueUrl"].as_str().unwrap().ends_with("/000000000000/events"));
    let response = match head.headers["x-amz-target"].to_str().unwrap() {
        "AmazonSQS.ReceiveMessage" => receive(&body_json, &queue).await,
        "AmazonSQS.DeleteMessageBatch" => delete(&body_json, &queue),
        "AmazonSQS.GetQueueAttributes" => {
            assert_eq!(body_json["AttributeNames"], json!(["ApproximateNumberOfMessages"]));
            let waiting = queue.lock().unwrap().waiting.len().to_string();
            json!({"Attributes": {"ApproximateNumberOfMessages": waiting}})
        }
        other => panic!("{other}"),
    };
    Response::new(Full::from(response.to_string()))
}

async fn receive(body_json: &Value, queue: &Mutex<Queue>) -> Value {
    let max = body_json["MaxNumberOfMessages"].as_u64().unwrap() as usize;
    assert!((1..=10).contains(&max));
    if queue.lock().unwrap().waiting.is_empty() && body_json["WaitTimeSeconds"].as_u64().unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while queue.lock().unwrap().holds_further && body_json["WaitTimeSeconds"] == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut queue = queue.lock().unwrap();
    let count = max.min(queue.waiting.len());
    let bodies: Vec<String> = queue.waiting.drain(..count).collect();
    if bodies.is_empty() {
        // Like AWS: without messages there is no list at all.
        return json!({});
    }
    let mut messages = Vec::new();
    for body in bodies {
        let receipt = format!("receipt of {}", hex(&Sha256::digest(&body)));
        messages.push(json!({"MessageId": "1", "ReceiptHandle": receipt, "MD5OfBody": "", "Body": body}));
        queue.received.push((receipt, body));
    }
    json!({"Messages": messages})
}

fn delete(body_json: &Value, queue: &Mutex<Queue>) -> Value {
    let entries = body_json["Entries"].as_array().unwrap();
    assert!((1..=10).contains(&entries.len()));
    let mut queue = queue.lock().unwrap();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        let before = queue.received.len();
        queue.received.retain(|(receipt, _)| entry["ReceiptHandle"] != receipt.as_str());
        let list = if queue.received.len() < before { &mut done } else { &mut failed };
        list.push(json!({"Id": entry["Id"], "Code": "ReceiptHandleIsInvalid", "SenderFault": true}));
    }
    json!({"Successful": done, "Failed": failed})
}

/// Checks a Signature Version 4 after its documentation, for a POST to the root.
fn is_signed(headers: &HeaderMap, body: &[u8]) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
    let Some(authorization) = text("authorization").strip_prefix("AWS4-HMAC-SHA256 ") else { return false };
    let part = |name: &str| {
        let mut parts = authorization.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap()
    };
    let (scope, names) = (part("Credential").split_once('/').unwrap().1, part("SignedHeaders"));
    for needed in ["host", "x-amz-date", "x-amz-target"] {
        assert!(names.split(';').any(|name| name == needed), "{needed} is not signed");
    }
    let canonical: String = names.split(';').map(|name| format!("{name}:{}\n", text(name).trim())).collect();
    let request = format!("POST\n/\n\n{canonical}\n{names}\n{}", hex(&Sha256::digest(body)));
    let date = text("x-amz-date");
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(request)));
    assert_eq!(scope, format!("{}/{REGION}/sqs/aws4_request", &date[..8]));
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for step in scope.split('/') {
        key = hmac(&key, step.as_bytes());
    }
    hex(&hmac(&key, to_sign.as_bytes())) == part("Signature")
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn signed(secret: &str) -> SourceAccess {
    let credentials = Credentials::new("AKIATEST", secret, None).unwrap();
    SourceAccess {
        credentials: CredentialsSource::Fixed(Arc::new(credentials)),
        region: Some(REGION.to_owned()),
        ..access()
    }
}

fn messages(count: u64) -> Vec<String> {
    (0..count).map(|number| message(&format!("key-{number}"), number)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn s235_messages_are_deleted_after_sinks_took_them() {
    let dir = tempfile::tempdir().unwrap();
    let sqs = Sqs::start(messages(501)).await;
    let source = open(&sqs.url(), signed(SECRET)).await.unwrap();
    let running = RunningFeed::start(source, &dir.path().join("dead"), Wanted::default());
    running.sink.wait_for(501).await;
    eventually("all are deleted", || sqs.counts() == (0, 0)).await;
    sqs.queue.lock().unwrap().waiting.extend(messages(1));
    running.sink.wait_for(502).await;
    eventually("the last is deleted", || sqs.counts() == (0, 0)).await;
    let queue = sqs.queue.lock().unwrap();
    assert_eq!((queue.unsigned, running.status.counts().failures), (0, 0));
    assert!(queue.requests < 200, "{}", queue.requests);
}

#[tokio::test]
async fn s235_unacknowledged_messages_are_not_deleted() {
    let sqs = Sqs::start(messages(30)).await;
    let mut source = open(&sqs.url(), signed(SECRET)).await.unwrap();
    let received = source.receive(25).await.unwrap();
    assert!((10..=25).contains(&received.len()), "{}", received.len());
    let (waiting, invisible) = sqs.counts();
    assert_eq!(waiting + invisible, 30);
    source.acknowledge().await.unwrap();
    assert_eq!(sqs.counts(), (waiting, 0));
    source.acknowledge().await.unwrap();
}

/// A feed drops `receive` every few seconds to count waiting messages. If that happened between the two rounds of requests, the
/// messages of the first response were hidden until their visibility timeout, and counted against the queue's `maxReceiveCount`.
#[tokio::test]
async fn s235_a_receive_that_is_dropped_hides_no_message() {
    let sqs = Sqs::start(messages(30)).await;
    let mut source = open(&sqs.url(), signed(SECRET)).await.unwrap();
    sqs.queue.lock().unwrap().holds_further = true;
    tokio::select! {
        received = source.receive(25) => panic!("{received:?}"),
        () = eventually("a first answer", || sqs.counts().1 == 10) => {}
    }
    sqs.queue.lock().unwrap().holds_further = false;
    let received = source.receive(25).await.unwrap();
    assert_eq!((received.len(), sqs.counts()), (25, (5, 25)));
}

#[tokio::test]
async fn a_wrong_secret_is_refused() {
    let sqs = Sqs::start(messages(1)).await;
    let mut source = open(&sqs.url(), signed("another-secret")).await.unwrap();
    let error = source.receive(1).await.unwrap_err().to_string();
    assert!(error.contains("InvalidSignature") && error.contains("/events"), "{error}");
    assert!(!error.contains("another-secret") && !format!("{source:?}").contains("another-secret"));
    let address = sqs.listener.address();
    drop(sqs);
    let mut source = open(&format!("sqs+http://{address}/0/events"), signed(SECRET)).await.unwrap();
    assert!(matches!(source.receive(1).await, Err(events::SourceError::Unavailable(_))));
}
