//! Real servers that post events of their buckets: MinIO and versitygw.

use super::recording_sink::{RunningFeed, body, eventually};
use events::{Authorization, ChangeKind, Dialect, Hint, Wanted, WebhookSource};
use servers::{self, S3Server};
use std::borrow::Cow;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const KEY: &str = "2026/a b+c%ü.txt";
const ETAG: &str = "5d41402abc4b2a76b9719d911017c592";

/// A feed from a webhook, and a directory for it.
struct WebhookFeed {
    running: RunningFeed,
    url: String,
    dir: TempDir,
}

impl WebhookFeed {
    async fn start(secret: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let secret = secret.map(|secret| Authorization::of(secret).unwrap());
        let source = WebhookSource::listen("127.0.0.1:0".parse().unwrap(), "/s3", secret).await.unwrap();
        let url = format!("http://{}/s3", source.address());
        Self {
            running: RunningFeed::start(Box::new(source), &dir.path().join("dead"), Wanted::default()),
            url,
            dir,
        }
    }

    /// Writes a file with these bytes, to be stored.
    fn file(&self, bytes: &[u8]) -> PathBuf {
        let file = self.dir.path().join("file");
        std::fs::write(&file, bytes).unwrap();
        file
    }

    /// Runs MinIO's client while the feed continues.
    async fn mc(&self, server: &S3Server, arguments: &[&str]) {
        let login = format!("{}:{}", server.access_key(), server.secret_key());
        let mut command = Command::new(servers::program("mc"));
        command
            .args(["--quiet", "--config-dir"])
            .arg(self.dir.path().join("mc"))
            .args(arguments)
            .env("MC_HOST_s", server.endpoint().replace("http://", &format!("http://{login}@")));
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "mc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits for the hint with this number, not counting hints of reads.
    async fn change_hint(&self, number: usize) -> Hint<'static> {
        let changes = || -> Vec<Hint<'static>> {
            self.running.sink.hints().into_iter().filter(|hint| hint.kind != ChangeKind::Read).collect()
        };
        eventually("an object changed", || changes().len() > number).await;
        changes().remove(number)
    }
}

fn pair(name: &'static str, value: &'static str) -> (Cow<'static, str>, Cow<'static, str>) {
    (name.into(), value.into())
}

/// Every event of MinIO is understood: keys, user metadata, changed tags, copies, multipart uploads, deletions.
#[tokio::test(flavor = "multi_thread")]
async fn s230_s233_what_minio_posts() {
    let feed = WebhookFeed::start(Some("hush")).await;
    let url = feed.url.clone();
    let start = move || {
        servers::minio_with(&[
            ("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"),
            ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &url),
            ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_TENON", "hush"),
        ])
    };
    let server = tokio::task::spawn_blocking(start).await.unwrap();
    let file = feed.file(b"hello");
    let (file, key) = (file.to_str().unwrap(), format!("s/bucket/{KEY}"));
    feed.mc(&server, &["mb", "s/bucket"]).await;
    let target = "arn:minio:sqs::TENON:webhook";
    feed.mc(&server, &["event", "add", "s/bucket", target, "--event", "put,delete,get"]).await;
    feed.mc(&server, &["cp", "--attr", "Project=apollo", file, &key]).await;
    let stored = feed.change_hint(0).await;
    assert_eq!((&*stored.bucket, &*stored.key), ("bucket", KEY.as_bytes()));
    assert_eq!((stored.kind, stored.object.size_bytes), (ChangeKind::Stored, Some(5)));
    assert_eq!(
        (stored.object.etag.as_deref(), stored.object.content_type.as_deref()),
        (Some(ETAG), Some("application/octet-stream"))
    );
    assert_eq!(stored.object.properties, Some(vec![pair("project", "apollo")]));
    assert!(stored.order.is_some() && stored.time.is_some() && stored.object.tags.is_none());

    feed.mc(&server, &["tag", "set", &key, "class=raw"]).await;
    let tagged = feed.change_hint(1).await;
    // MinIO repeats the object's sequencer. That is not the order of this event, so the hint has none.
    assert_eq!((tagged.kind, tagged.order, tagged.object.tags), (ChangeKind::Changed, None, None));

    feed.mc(&server, &["cp", &key, "s/bucket/copy"]).await;
    let copied = feed.change_hint(2).await;
    assert_eq!(
        (copied.kind, &*copied.key, copied.object.etag.as_deref()),
        (ChangeKind::Stored, b"copy".as_slice(), Some(ETAG))
    );

    feed.mc(&server, &["rm", &key]).await;
    let removed = feed.change_hint(3).await;
    assert_eq!((removed.kind, &removed.key), (ChangeKind::Removed, &stored.key));
    assert!(removed.order > stored.order, "{removed:?} {stored:?}");

    let file = feed.file(&vec![7; 6 << 20]);
    feed.mc(&server, &["put", "--part-size", "5MiB", file.to_str().unwrap(), "s/bucket/parts"]).await;
    let parts = feed.change_hint(4).await;
    assert_eq!((parts.kind, parts.object.size_bytes), (ChangeKind::Stored, Some(6 << 20)));
    assert!(parts.object.etag.unwrap().ends_with("-2"));
    assert_eq!(feed.running.status.counts().unreadable, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s230_what_versitygw_posts() {
    let feed = WebhookFeed::start(None).await;
    let url = feed.url.clone();
    let start = move || servers::versitygw_with(&[("VGW_EVENT_WEBHOOK_URL", &url)]);
    let server = tokio::task::spawn_blocking(start).await.unwrap();
    let file = feed.file(b"hello");
    let (file, key) = (file.to_str().unwrap(), format!("s/bucket/{KEY}"));
    feed.mc(&server, &["mb", "s/bucket"]).await;
    feed.mc(&server, &["cp", file, &key]).await;
    let stored = feed.change_hint(0).await;
    assert_eq!((&*stored.bucket, &*stored.key), ("bucket", KEY.as_bytes()));
    assert_eq!((stored.kind, stored.object.size_bytes), (ChangeKind::Stored, Some(5)));
    assert_eq!((stored.object.etag.as_deref(), &stored.object.properties), (Some(ETAG), &None));
    feed.mc(&server, &["tag", "set", &key, "class=raw"]).await;
    assert_eq!(feed.change_hint(1).await.kind, ChangeKind::Changed);
    feed.mc(&server, &["rm", &key]).await;
    let removed = feed.change_hint(2).await;
    assert_eq!((removed.kind, &removed.key), (ChangeKind::Removed, &stored.key));
    // The sequencer of versitygw begins anew whenever it starts.
    assert_eq!((stored.order, removed.order), (None, None));
    assert_eq!(feed.running.status.counts().unreadable, 0);
}

/// An event of MinIO for a change of tags, with all its fields.
#[test]
fn s230_a_tag_event_of_minio_leads_to_a_look() {
    let text = r#"{"EventName":"s3:ObjectCreated:PutTagging","Key":"b/a","Records":[{"eventVersion":"2.0",
        "eventSource":"minio:s3","awsRegion":"","eventTime":"2026-09-21T14:13:20.1Z","eventName":"s3:ObjectCreated:PutTagging",
        "userIdentity":{"principalId":"minio"},"s3":{"s3SchemaVersion":"1.0","configurationId":"Config","bucket":{"name":"b",
        "ownerIdentity":{"principalId":"minio"},"arn":"arn:aws:s3:::b"},"object":{"key":"a","size":1,"eTag":"e",
        "contentType":"text/plain","userMetadata":{"X-Amz-Meta-Project":"x","content-type":"text/plain"},
        "sequencer":"18D7"}},"source":{"host":"127.0.0.1"}}]}"#;
    let mut hints = Vec::new();
    let message = body(text);
    Dialect::S3.read(&message, &mut |hint| hints.push(hint)).unwrap();
    let [hint] = hints.try_into().unwrap();
    assert_eq!((hint.kind, hint.order, hint.object.tags), (ChangeKind::Changed, None, None));
    assert_eq!(hint.object.properties, Some(vec![pair("project", "x")]));
}
