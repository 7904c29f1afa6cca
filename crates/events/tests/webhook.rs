//! Webhooks: order, retries, refusals, outages, shutdown.

use super::receiver::Receiver;
use events::{Authorization, Described, EventKind, Notice, ObjectEvent, Sequence, Webhook, WebhookConfig};
use http::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Entropy, ObjectKey, Timestamp};

pub(crate) fn event(key: &str, number: u64) -> Arc<ObjectEvent> {
    Arc::new(ObjectEvent {
        kind: EventKind::CreatedPut,
        time: Timestamp(1_790_000_000_000_000_000),
        sequence: Sequence(number),
        region: "us-east-1".to_owned(),
        bucket: "bucket".to_owned(),
        owner: "admin".to_owned(),
        key: ObjectKey::try_from(key).unwrap(),
        object: Described::default(),
        principal: "writer".to_owned(),
        source: None,
        request_id: String::new(),
    })
}

fn notice(key: &str, number: u64) -> Notice {
    Notice { event: event(key, number), configuration: "all".into() }
}

fn config(url: &str, dir: &Path) -> WebhookConfig {
    WebhookConfig {
        name: "test".to_owned(),
        url: url.to_owned(),
        authorization: Some(Authorization::of("hush").unwrap()),
        ca_bundle: None,
        retry_for: Duration::from_secs(60),
        dead_letters: dir.join("dead"),
    }
}

fn start(config: WebhookConfig) -> Webhook {
    Webhook::start(config, Arc::new(Entropy::new(1))).unwrap()
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out while waiting until {what}");
}

fn letters(dir: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(dir.join("dead")).unwrap_or_default();
    let read = |line: &str| events::aws::parse(line.as_bytes()).unwrap()[0].sequence.0;
    text.lines().map(read).collect()
}

#[tokio::test]
async fn s196_events_of_a_key_arrive_in_order_with_the_token() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let webhook = start(config(&receiver.url(), dir.path()));
    for number in 0..300 {
        webhook.send(notice(&format!("key-{}", number % 7), number));
    }
    webhook.stop(Duration::from_secs(30)).await;
    let posts = receiver.posts();
    assert_eq!(posts.len(), 300);
    for key in 0..7 {
        let of_key = posts.iter().filter(|post| post.event.key.to_string() == format!("key-{key}"));
        let numbers: Vec<u64> = of_key.map(|post| post.event.sequence.0).collect();
        assert!(numbers.is_sorted(), "key-{key}: {numbers:?}");
    }
    assert!(posts.iter().all(|post| post.authorization.as_deref() == Some("Bearer hush")));
    let counts = webhook.counts();
    assert_eq!((counts.sent, counts.queued, counts.failed, counts.dropped), (300, 0, 0, 0));
    // A stopped webhook sends nothing more.
    webhook.send(notice("late", 1));
    assert_eq!(webhook.counts().dropped, 1);
}

/// If the receiver fails, the event is posted again before the next event of its key.
#[tokio::test]
async fn s196_a_failed_post_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let answers = |number| match number {
        0 | 1 => (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO),
        2 => (StatusCode::TOO_MANY_REQUESTS, Duration::ZERO),
        _ => (StatusCode::NO_CONTENT, Duration::ZERO),
    };
    let receiver = Receiver::start_with_answers("127.0.0.1:0", Box::new(answers)).await;
    let webhook = start(config(&receiver.url(), dir.path()));
    webhook.send(notice("a", 1));
    webhook.send(notice("a", 2));
    webhook.stop(Duration::from_secs(30)).await;
    let numbers: Vec<u64> = receiver.posts().iter().map(|post| post.event.sequence.0).collect();
    assert_eq!(numbers, [1, 1, 1, 1, 2]);
    assert_eq!((webhook.counts().sent, webhook.counts().retried), (2, 3));
}

#[tokio::test]
async fn s196_events_sent_while_the_receiver_is_down_arrive_later() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let (address, url) = (receiver.address().to_string(), receiver.url());
    drop(receiver);
    let webhook = start(config(&url, dir.path()));
    for number in 0..20 {
        webhook.send(notice(&format!("key-{number}"), number));
    }
    eventually("a post was repeated", || webhook.counts().retried > 0).await;
    assert_eq!((webhook.counts().queued, webhook.counts().sent), (20, 0));
    let answers = |_| (StatusCode::OK, Duration::ZERO);
    let receiver = Receiver::start_with_answers(&address, Box::new(answers)).await;
    eventually("all arrived", || webhook.counts().sent == 20).await;
    let mut numbers: Vec<u64> = receiver.posts().iter().map(|post| post.event.sequence.0).collect();
    numbers.sort();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert_eq!(letters(dir.path()), [] as [u64; 0]);
}

/// If the receiver is down for longer than events are retried, they become dead letters, in the order of their key and readable by
/// their owner only.
#[tokio::test]
async fn s196_an_event_retried_for_too_long_becomes_a_dead_letter() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let config =
        WebhookConfig { retry_for: Duration::from_millis(300), ..config("http://127.0.0.1:1/", dir.path()) };
    let webhook = start(config);
    for number in 0..50 {
        webhook.send(notice("a", number));
    }
    eventually("all are dead letters", || webhook.counts().failed == 50).await;
    assert_eq!(letters(dir.path()), (0..50).collect::<Vec<_>>());
    let mode = std::fs::metadata(dir.path().join("dead")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!((webhook.counts().sent, webhook.counts().queued), (0, 0));
}

#[tokio::test]
async fn s196_a_refused_event_becomes_a_dead_letter_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let answers = |number| match number {
        0 => (StatusCode::FORBIDDEN, Duration::ZERO),
        1 => (StatusCode::FOUND, Duration::ZERO),
        _ => (StatusCode::OK, Duration::ZERO),
    };
    let receiver = Receiver::start_with_answers("127.0.0.1:0", Box::new(answers)).await;
    let webhook = start(config(&receiver.url(), dir.path()));
    for number in 0..3 {
        webhook.send(notice("a", number));
    }
    eventually("the third was taken", || webhook.counts().sent == 1).await;
    eventually("two are dead letters", || webhook.counts().failed == 2).await;
    assert_eq!((letters(dir.path()), webhook.counts().retried), (vec![0, 1], 0));
}

/// Sending never waits: events that find the queue full become dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn s193_s196_a_slow_receiver_delays_no_sender() {
    let dir = tempfile::tempdir().unwrap();
    let answers = |_| (StatusCode::OK, Duration::from_secs(3600));
    let receiver = Receiver::start_with_answers("127.0.0.1:0", Box::new(answers)).await;
    let webhook = start(config(&receiver.url(), dir.path()));
    let began = tokio::time::Instant::now();
    for number in 0..1500 {
        webhook.send(notice("a", number));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    eventually("the rest are dead letters", || {
        let counts = webhook.counts();
        counts.failed > 0 && counts.failed + counts.queued == 1500
    })
    .await;
    let began = tokio::time::Instant::now();
    webhook.stop(Duration::from_millis(200)).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((webhook.counts().failed, webhook.counts().dropped), (1500, 0));
    let mut numbers = letters(dir.path());
    numbers.sort();
    assert_eq!(numbers, (0..1500).collect::<Vec<_>>());
}

#[tokio::test]
async fn invalid_receiver_urls_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |url: &str| {
        let config = config(url, dir.path());
        Webhook::start(config, Arc::new(Entropy::new(1))).unwrap_err().to_string()
    };
    assert!(refused("nowhere").contains("https://host/path"));
    assert!(refused("ftp://host/").contains("https://host/path"));
    for url in ["http://user:hush@host/", "http://user:hu sh@host/", "odd://hush@host", "user:hush@host"] {
        let shown = refused(url);
        assert!(shown.contains("token") && !shown.contains("hu"), "{shown}");
    }
    assert!(Authorization::of("a\nb").is_err());
    let shown = format!("{:?}", config("http://host/", dir.path()));
    assert!(!shown.contains("hush"), "{shown}");
}
