//! A real MinIO, which posts what happens in a bucket.

use super::hearing::{Fed, body};
use events::{Authorization, Dialect, Hint, Wanted, WebhookSource, What};
use servers::S3Server;
use std::borrow::Cow;
use std::process::Command;

/// MinIO's client.
struct Mc<'a>(&'a S3Server, &'a tempfile::TempDir);

impl Mc<'_> {
    fn run(&self, arguments: &[&str]) {
        let (server, home) = (self.0, self.1.path());
        let login = format!("{}:{}", server.access_key(), server.secret_key());
        let host = server.endpoint().replace("http://", &format!("http://{login}@"));
        let output = Command::new(servers::program("mc"))
            .args(["--quiet", "--config-dir"])
            .arg(home.join("mc"))
            .args(arguments)
            .env("MC_HOST_m", host)
            .output()
            .unwrap();
        assert!(output.status.success(), "mc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn pair(name: &'static str, value: &'static str) -> (Cow<'static, str>, Cow<'static, str>) {
    (name.into(), value.into())
}

/// Everything that MinIO tells is understood: keys, user metadata, tags that changed, copies, uploads in parts, deletions.
#[tokio::test(flavor = "multi_thread")]
async fn s230_s233_what_minio_posts() {
    let dir = tempfile::tempdir().unwrap();
    let secret = Authorization::of("hush").unwrap();
    let source = WebhookSource::listen("127.0.0.1:0".parse().unwrap(), "/minio", Some(secret)).await.unwrap();
    let url = format!("http://{}/minio", source.address());
    let fed = Fed::start(Box::new(source), &dir.path().join("dead"), Wanted::default());
    let told = move || {
        servers::minio_with(&[
            ("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"),
            ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &url),
            ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_TENON", "hush"),
        ])
    };
    let server = tokio::task::spawn_blocking(told).await.unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"hello").unwrap();
    let (file, key) = (file.to_str().unwrap().to_owned(), "m/bucket/2026/a b+c%ü.txt");
    let dir = std::sync::Arc::new(dir);
    let (server, kept) = (std::sync::Arc::new(server), dir.clone());
    let run = |commands: Vec<Vec<String>>| {
        let (server, kept) = (server.clone(), kept.clone());
        tokio::task::spawn_blocking(move || {
            for command in commands {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                Mc(&server, &kept).run(&command);
            }
        })
    };
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    run(vec![
        command(&["mb", "m/bucket"]),
        command(&["event", "add", "m/bucket", "arn:minio:sqs::TENON:webhook", "--event", "put,delete,get"]),
        command(&["cp", "--attr", "Project=apollo", &file, key]),
    ])
    .await
    .unwrap();
    fed.hearing.has(1).await;
    let stored = fed.hearing.heard().remove(0);
    assert_eq!((&*stored.bucket, &*stored.key), ("bucket", "2026/a b+c%ü.txt".as_bytes()));
    assert_eq!((stored.what, stored.said.size_bytes), (What::Stored, Some(5)));
    assert_eq!(stored.said.etag.as_deref(), Some("5d41402abc4b2a76b9719d911017c592"));
    assert_eq!(stored.said.properties, Some(vec![pair("project", "apollo")]));
    assert!(stored.order.is_some() && stored.time.is_some() && stored.said.tags.is_none());

    run(vec![command(&["tag", "set", key, "class=raw"])]).await.unwrap();
    let tagged = after(&fed, 1).await;
    // MinIO repeats the sequencer of the object: a place in the order that is not this event's own is none.
    assert_eq!((tagged.what, tagged.order, tagged.said.tags), (What::Changed, None, None));
    run(vec![command(&["rm", key])]).await.unwrap();
    let removed = after(&fed, 2).await;
    assert_eq!((removed.what, &removed.key), (What::Removed, &stored.key));
    assert!(removed.order > stored.order, "{removed:?} {stored:?}");
    assert_eq!(fed.status.counts().unreadable, 0);
}

/// The last of what was heard that is no reading, once there are more than `count` such.
async fn after(fed: &Fed, count: usize) -> Hint<'static> {
    let changes = || -> Vec<Hint<'static>> {
        fed.hearing.heard().into_iter().filter(|hint| hint.what != What::Read).collect()
    };
    super::hearing::eventually("something changed", || changes().len() > count).await;
    changes().remove(count)
}

/// As MinIO wrote it for a change of tags, field by field.
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
    assert_eq!((hint.what, hint.order, hint.said.tags), (What::Changed, None, None));
    assert_eq!(hint.said.properties, Some(vec![pair("project", "x")]));
}
