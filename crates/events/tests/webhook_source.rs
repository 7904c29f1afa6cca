//! Webhooks as a source: who may post what, and when a post is answered.

use super::recording_sink::{Fed, Hearing, eventually, message};
use super::webhook::event;
use bytes::Bytes;
use events::{Authorization, Notice, Source as _, Wanted, Webhook, WebhookConfig, WebhookSource};
use http::{Request, StatusCode};
use http_body_util::Full;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Entropy;
use store::s3::http_client;

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
async fn s233_a_post_is_answered_when_its_hints_were_taken() {
    let dir = tempfile::tempdir().unwrap();
    let source = listen(Some("hush")).await;
    let address = source.address();
    let hearing = Arc::new(Hearing::default());
    hearing.fails.store(usize::MAX, Ordering::Relaxed);
    let fed = Fed::into(hearing.clone(), Box::new(source), &dir.path().join("dead"), Wanted::default());
    let posted =
        tokio::spawn(async move { post(address, "POST", "/events", "Bearer hush", &message("a", 1)).await });
    eventually("a sink was asked in vain", || fed.status.counts().repeated > 0).await;
    assert!(!posted.is_finished());
    hearing.fails.store(0, Ordering::Relaxed);
    assert_eq!((posted.await.unwrap(), hearing.keys()), (StatusCode::OK, vec!["a".to_owned()]));
    // What nobody can read would be no better the next time.
    assert_eq!(post(address, "POST", "/events", "Bearer hush", "nonsense").await, StatusCode::OK);
    assert_eq!(fed.status.counts().unreadable, 1);
}

#[tokio::test]
async fn s233_who_does_not_know_the_secret_is_turned_away() {
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
async fn a_post_that_is_too_long_or_one_too_many_is_refused() {
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
    // Nobody receives: what has found room waits, the rest is told to come again.
    for _ in 0..80 - 63 {
        assert_eq!(posts.join_next().await.unwrap().unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    drop(source);
    while let Some(status) = posts.join_next().await {
        assert_eq!(status.unwrap(), StatusCode::SERVICE_UNAVAILABLE, "who waited is told to come again");
    }
}

#[tokio::test]
async fn what_was_received_and_given_up_is_not_answered_with_success() {
    let mut source = listen(None).await;
    let address = source.address();
    let posted = tokio::spawn(async move { post(address, "POST", "/events", "", "{}").await });
    assert_eq!(source.receive(10).await.unwrap().len(), 1);
    drop(source);
    assert_eq!(posted.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
}

/// What one Tenon's endpoint sends another's source understands, with its secret.
#[tokio::test]
async fn s233_tenon_hears_tenon() {
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
    let fed = Fed::start(Box::new(source), &dir.path().join("dead"), Wanted::default());
    let webhook = Webhook::start(config, Arc::new(Entropy::new(1))).unwrap();
    for number in 0..100 {
        webhook.send(Notice { event: event("a b+ü", number), configuration: "all".into() });
    }
    fed.hearing.has(100).await;
    let heard = fed.hearing.heard();
    let expected: Vec<_> =
        (0..100).map(|number| events::Hint::from(&*event("a b+ü", number)).into_owned()).collect();
    assert_eq!(heard, expected);
    webhook.stop(Duration::from_secs(5)).await;
    assert_eq!(webhook.counts().sent, 100);
}
