//! Webhooks as a source: authentication of senders, limits, and the time of the response.

use super::recording_sink::{RecordingSink, RunningFeed, eventually, message};
use super::webhook::event;
use bytes::Bytes;
use connect::http_client;
use events::{Authorization, Notice, Source as _, Wanted, Webhook, WebhookConfig, WebhookSource};
use http::{Request, StatusCode};
use http_body_util::Full;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Entropy;

const LOOPBACK: &str = "127.0.0.1:0";

async fn listen(secret: Option<&str>) -> WebhookSource {
    let secret = secret.map(|secret| Authorization::of(secret).unwrap());
    WebhookSource::listen(LOOPBACK.parse().unwrap(), "/events", secret).await.unwrap()
}

async fn post(address: SocketAddr, method: &str, path: &str, secret: &str, body: &str) -> StatusCode {
    let client = http_client::<Full<Bytes>>(Duration::from_secs(5), None, false).unwrap();
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.header("authorization", secret).body(Full::from(body.to_owned())).unwrap();
    client.request(request).await.unwrap().status()
}

#[tokio::test]
async fn s233_a_post_is_answered_after_sinks_took_its_hints() {
    let dir = tempfile::tempdir().unwrap();
    let source = listen(Some("hush")).await;
    let address = source.address();
    let sink = Arc::new(RecordingSink::default());
    sink.fails.store(usize::MAX, Ordering::Relaxed);
    let running = RunningFeed::start_with_sink(
        sink.clone(),
        Box::new(source),
        &dir.path().join("dead"),
        Wanted::default(),
    );
    let posted =
        tokio::spawn(async move { post(address, "POST", "/events", "Bearer hush", &message("a", 1)).await });
    eventually("a sink failed", || running.status.counts().repeated > 0).await;
    assert!(!posted.is_finished());
    sink.fails.store(0, Ordering::Relaxed);
    assert_eq!((posted.await.unwrap(), sink.keys()), (StatusCode::OK, vec!["a".to_owned()]));
    // An unreadable message would be no better the next time, so it is accepted.
    assert_eq!(post(address, "POST", "/events", "Bearer hush", "nonsense").await, StatusCode::OK);
    assert_eq!(running.status.counts().unreadable, 1);
}

#[tokio::test]
async fn s233_a_post_without_the_secret_is_refused() {
    let source = listen(Some("hush")).await;
    let address = source.address();
    for secret in ["", "Bearer", "Bearer hus", "hush", "Bearer hush2"] {
        let status = post(address, "POST", "/events", secret, "{}").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{secret}");
    }
    assert_eq!(post(address, "POST", "/other", "Bearer hush", "{}").await, StatusCode::NOT_FOUND);
    assert_eq!(post(address, "GET", "/events", "Bearer hush", "").await, StatusCode::METHOD_NOT_ALLOWED);
    let everybody = WebhookSource::listen("0.0.0.0:0".parse().unwrap(), "/", None).await;
    assert!(everybody.unwrap_err().to_string().contains("secret"));
    let taken = WebhookSource::listen(address, "/", None).await;
    assert!(taken.unwrap_err().to_string().contains("cannot listen"));
}

#[tokio::test]
async fn a_post_that_is_too_long_or_exceeds_the_limit_is_refused() {
    let source = listen(None).await;
    let address = source.address();
    let long = "x".repeat((1 << 20) + 1);
    assert_eq!(post(address, "POST", "/events", "", &long).await, StatusCode::PAYLOAD_TOO_LARGE);
    let full = "x".repeat(1 << 20);
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..80 {
        let full = full.clone();
        posts.spawn(async move { post(address, "POST", "/events", "", &full).await });
    }
    // Nothing receives the posts: those within the limit wait, the others get 503.
    for _ in 0..80 - 63 {
        assert_eq!(posts.join_next().await.unwrap().unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    drop(source);
    while let Some(status) = posts.join_next().await {
        assert_eq!(
            status.unwrap(),
            StatusCode::SERVICE_UNAVAILABLE,
            "a waiting sender must be told to post again"
        );
    }
}

#[tokio::test]
async fn an_unacknowledged_post_is_not_answered_with_success() {
    let mut source = listen(None).await;
    let address = source.address();
    let posted = tokio::spawn(async move { post(address, "POST", "/events", "", "{}").await });
    assert_eq!(source.receive(10).await.unwrap().len(), 1);
    drop(source);
    assert_eq!(posted.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
}

/// A Tenon source understands what another Tenon's endpoint posts, with its secret.
#[tokio::test]
async fn s233_a_tenon_source_reads_a_tenon_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    let source = listen(Some("hush")).await;
    let config = WebhookConfig {
        name: "tenon".to_owned(),
        url: format!("http://{}/events", source.address()),
        authorization: Some(Authorization::of("hush").unwrap()),
        ca_bundle: None,
        retry_for: Duration::from_secs(60),
        dead_letters: dir.path().join("undelivered"),
    };
    let running = RunningFeed::start(Box::new(source), &dir.path().join("dead"), Wanted::default());
    let webhook = Webhook::start(config, Arc::new(Entropy::new(1))).unwrap();
    for number in 0..100 {
        webhook.send(Notice { event: event("a b+ü", number), configuration: "all".into() });
    }
    running.sink.wait_for(100).await;
    let hints = running.sink.hints();
    let expected: Vec<_> =
        (0..100).map(|number| events::Hint::from(&*event("a b+ü", number)).into_owned()).collect();
    assert_eq!(hints, expected);
    webhook.stop(Duration::from_secs(5)).await;
    assert_eq!(webhook.counts().sent, 100);
}
