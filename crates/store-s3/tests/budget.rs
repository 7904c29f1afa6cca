//! Every call to every kind of faulty server returns the expected error within the time budget.

use super::misbehaving::{begun, part};
use super::scripted::{Scripted, Step, answer, error, no_response};
use futures_util::TryStreamExt;
use std::time::Duration;
use store::{
    Attributes, CopyOptions, ETag, GetOptions, ListRequest, Multipart, ObjectKey, ObjectRef, ObjectStore,
    Payload, Precondition, PutOptions, Result, StoreError, Tags,
};
use store_s3::{RetryPolicy, S3Config, S3Store, Timeouts};
use tokio::time::Instant;

/// The time budget of calls, and the timeout of an attempt for a response or for bytes of a body.
const BUDGET: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_millis(200);
/// Maximum duration of a call: the last attempt begins when the budget ends, and a slow operation adds one HEAD request.
const LONGEST: Duration = Duration::from_millis(500 + 2 * 200);
/// Allowance for a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, Copy)]
enum Call {
    Head,
    Get,
    GetRange,
    Put,
    PutIfAbsent,
    Copy,
    Delete,
    DeleteIfMatch,
    List,
    Tags,
    SetTags,
    Begin,
    PutPart,
    CopyPart,
    Complete,
    Abort,
}

const CALLS: [Call; 16] = [
    Call::Head,
    Call::Get,
    Call::GetRange,
    Call::Put,
    Call::PutIfAbsent,
    Call::Copy,
    Call::Delete,
    Call::DeleteIfMatch,
    Call::List,
    Call::Tags,
    Call::SetTags,
    Call::Begin,
    Call::PutPart,
    Call::CopyPart,
    Call::Complete,
    Call::Abort,
];

/// A description of a server, its response, and a predicate for the calls that must fail.
type BadServer = (&'static str, Step, fn(Call) -> bool);

/// Returns the faulty servers. A fault in the body does not affect calls whose response has no body. Regression: a trickling
/// body kept its reader waiting for ever, because each byte restarted the timeout.
fn servers() -> Vec<BadServer> {
    let some = || answer("200 OK", &[("etag", "\"e\""), ("content-length", "100000")], "");
    let every: fn(Call) -> bool = |_| true;
    let with_body: fn(Call) -> bool = |call| !matches!(call, Call::Head);
    vec![
        ("ends the connection", no_response(), every),
        ("breaks the connection", no_response().then_reset(), every),
        ("says nothing", no_response().then_stall(), every),
        ("stops in the middle of its head", half_a_head().then_stall(), every),
        ("lets its head trickle", half_a_head().then_trickle(), every),
        ("stops before the body", some().then_stall(), with_body),
        ("lets the body trickle", some().then_trickle(), with_body),
        ("ends before the body", some(), with_body),
        ("is busy", error("503 Slow Down", "SlowDown"), every),
        ("is broken", error("500 Internal Server Error", "InternalError"), every),
        ("is broken without a word", answer("500 Internal Server Error", &[], ""), every),
        ("has a gateway in front that gave up", answer("504 Gateway Timeout", &[], "<html>"), every),
    ]
}

fn half_a_head() -> Step {
    Step::raw("HTTP/1.1 200 OK\r\ncontent-le")
}

fn config(server: &Scripted) -> S3Config {
    let pause = Duration::from_millis(1);
    S3Config {
        // An operation that moves data may be slow, but only if the server responds to other requests.
        timeouts: Timeouts {
            answer: ANSWER,
            stall: ANSWER,
            slow_answer: 100 * ANSWER,
            ..Timeouts::default()
        },
        retry: RetryPolicy {
            budget: BUDGET,
            pause_first: pause,
            pause_max: ANSWER / 4,
            ..RetryPolicy::default()
        },
        ..server.config()
    }
}

fn key() -> ObjectKey {
    ObjectKey::try_from("k").unwrap()
}

async fn make(call: Call, store: &S3Store, upload: Option<&dyn Multipart>) -> Result<()> {
    let object = ObjectRef::new(ObjectKey::try_from("from").unwrap(), ETag::new("e"));
    let if_absent = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
    let body = Payload::from(vec![7; 300_000]);
    let read = async |options| {
        let object = store.get(&key(), options).await?;
        object.body.try_for_each(|_| std::future::ready(Ok(()))).await
    };
    let upload = || upload.unwrap();
    match call {
        Call::Head => store.head(&key()).await.map(drop),
        Call::Get => read(GetOptions::default()).await,
        Call::GetRange => read(GetOptions { range: Some(10..20), ..GetOptions::default() }).await,
        Call::Put => store.put(&key(), body, PutOptions::default()).await.map(drop),
        Call::PutIfAbsent => store.put(&key(), body, if_absent).await.map(drop),
        Call::Copy => store.copy(&object, &key(), CopyOptions::default()).await.map(drop),
        Call::Delete => store.delete(&key(), Precondition::None).await,
        Call::DeleteIfMatch => store.delete(&key(), Precondition::Matches(ETag::new("e"))).await,
        Call::List => store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.map(drop),
        Call::Tags => store.tags(&key()).await.map(drop),
        Call::SetTags => store.set_tags(&key(), Tags::new()).await,
        Call::Begin => store.multipart(&key(), Attributes::default(), Tags::new()).await.map(drop),
        Call::PutPart => upload().put_part(1, body).await,
        Call::CopyPart => upload().copy_part(1, &object, 0..10).await,
        Call::Complete => upload().complete(Precondition::Absent).await.map(drop),
        Call::Abort => upload().abort().await,
    }
}

/// Runs a call and returns its result and duration.
async fn outcome(call: Call, step: Step) -> (Result<()>, Duration) {
    let needs_upload = matches!(call, Call::PutPart | Call::CopyPart | Call::Complete | Call::Abort);
    let before = if needs_upload { vec![begun(), part()] } else { vec![] };
    let server = Scripted::start(before.into_iter().chain([step])).await;
    let store = super::client_of(config(&server)).store("bucket").unwrap();
    let mut upload = None;
    if needs_upload {
        let begun = store.multipart(&key(), Attributes::default(), Tags::new()).await.unwrap();
        begun.put_part(1, Payload::from("x")).await.unwrap();
        upload = Some(begun);
    }
    let began = Instant::now();
    let done = make(call, &store, upload.as_deref()).await;
    (done, began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn s120_every_call_to_a_faulty_server_ends_in_time() {
    for (what, step, is_error) in servers() {
        // Running the cases of all servers concurrently would slow down the preparations and distort the durations.
        let cases = CALLS.map(|call| (call, tokio::spawn(outcome(call, step.clone()))));
        for (call, case) in cases {
            let (done, took) = case.await.unwrap();
            // After a lost response, a completion sends two more requests to find out the result, a deletion one.
            let calls = match call {
                Call::Complete => 2,
                _ => 1,
            };
            assert!(took <= calls * LONGEST + SLACK, "{call:?} of a server that {what}: {took:?}");
            match done {
                Ok(()) => assert!(!is_error(call), "{call:?} of a server that {what}: success"),
                Err(error) => assert!(error.is_retryable(), "{call:?} of a server that {what}: {error}"),
            }
        }
    }
}

/// A frozen server (SIGSTOP, a hung disk): its kernel accepts connections and bytes, but there is no response.
#[tokio::test(flavor = "multi_thread")]
async fn s120_a_frozen_server_times_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    let scripted = Scripted::start([no_response()]).await;
    for call in [Call::Head, Call::Get, Call::Put, Call::Copy, Call::Delete, Call::List] {
        let config = S3Config { endpoint: endpoint.clone(), ..config(&scripted) };
        let store = super::client_of(config).store("bucket").unwrap();
        let began = Instant::now();
        let done = make(call, &store, None).await;
        assert!(matches!(done, Err(StoreError::Unavailable(_))), "{call:?}: {done:?}");
        assert!(began.elapsed() <= LONGEST + SLACK, "{call:?}: {:?}", began.elapsed());
    }
}

/// A copy may take minutes: the client waits as long as the server responds to other requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_operation_is_awaited_while_the_server_responds_to_others() {
    let copied = "<CopyObjectResult><ETag>\"e\"</ETag></CopyObjectResult>";
    let slow = answer("200 OK", &[], copied).after(5 * ANSWER);
    let there = answer("200 OK", &[("content-length", "0")], "");
    let server = Scripted::start([slow, there]).await;
    let store = super::client_of(config(&server)).store("bucket").unwrap();
    make(Call::Copy, &store, None).await.unwrap();
    assert_eq!(server.lines()[..2], ["put /bucket/k", "head /bucket"]);
    assert!(!server.lines()[1..].contains(&"put /bucket/k".to_owned()), "it was asked for once");
}

fn with_sum(body: &str) -> Step {
    // The CRC-64/NVME of "123456789", from the catalogue of parametrised CRC algorithms.
    answer("200 OK", &[("etag", "\"e\""), ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")], body)
}

/// Regression: the client did not request the server's checksum, so that readers got bytes that were changed in transit.
#[tokio::test]
async fn s115_s121_bytes_changed_in_transit_are_requested_again() {
    let server = Scripted::start([with_sum("123456780"), with_sum("123456789")]).await;
    let store = server.store();
    let object = store.get(&key(), GetOptions::default()).await.unwrap();
    assert_eq!(object.body.try_collect::<Vec<_>>().await.unwrap().concat(), b"123456789");
    assert!(server.seen()[0].head.contains("x-amz-checksum-mode: enabled"));
    let always_wrong = Scripted::start([with_sum("123456780")]).await;
    let got = always_wrong.store().get(&key(), GetOptions::default()).await;
    assert!(matches!(got, Err(StoreError::Corrupt(_))));
}
