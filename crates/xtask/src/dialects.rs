//! `cargo xtask dialects`: measures the time to parse an event message, and the time of a strict JSON parser that keeps nothing of it.
//!
//! The best of many short rounds counts; on a busy machine the ratio is more reliable than the times. Run a release build
//! (`cargo run --release -p xtask -- dialects`).

use anyhow::{Context, Result};
use events::{Dialect, Message};
use std::hint::black_box;
use std::time::Duration;
use store::{Clock, SystemClock};

const ROUNDS: usize = 2000;
const READS: u32 = 500;

const MESSAGES: [(&str, &str); 3] = [
    (
        "AWS",
        r#"{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"eu-central-1","eventTime":"2026-09-21T14:13:20.123Z","eventName":"ObjectCreated:Put","userIdentity":{"principalId":"AWS:AIDA"},"requestParameters":{"sourceIPAddress":"192.0.2.7"},"responseElements":{"x-amz-request-id":"C3D","x-amz-id-2":"FM/"},"s3":{"s3SchemaVersion":"1.0","configurationId":"all","bucket":{"name":"photos","ownerIdentity":{"principalId":"A3"},"arn":"arn:aws:s3:::photos"},"object":{"key":"2026/some-directory/of-a-project/file-000123.jpg","size":1024,"eTag":"d41d8cd98f00b204e9800998ecf8427e","versionId":"096fKKXTRTtl3on89fVO.nfljtsv6qko","sequencer":"0055AED6DCD90281E5"}}}]}"#,
    ),
    (
        "MinIO",
        r#"{"EventName":"s3:ObjectCreated:Put","Key":"photos/2026/dir/file-000123.jpg","Records":[{"eventVersion":"2.0","eventSource":"minio:s3","awsRegion":"us-east-1","eventTime":"2026-09-21T14:13:20.123Z","eventName":"s3:ObjectCreated:Put","userIdentity":{"principalId":"tests"},"requestParameters":{"principalId":"tests","region":"us-east-1","sourceIPAddress":"127.0.0.1"},"responseElements":{"x-amz-id-2":"dd9025bab4ad464b049177c95eb6ebf374d3b3fd1af9251148b658df7ac2e3e8","x-amz-request-id":"18D7A5B1C2D3E4F5","x-minio-deployment-id":"0170a4cc-dca6-4e72-86f1-c0cc760dff7f","x-minio-origin-endpoint":"http://127.0.0.1:9000"},"s3":{"s3SchemaVersion":"1.0","configurationId":"Config","bucket":{"name":"photos","ownerIdentity":{"principalId":"tests"},"arn":"arn:aws:s3:::photos"},"object":{"key":"2026%2Fdir%2Ffile-000123.jpg","size":1024,"eTag":"d41d8cd98f00b204e9800998ecf8427e","contentType":"image/jpeg","userMetadata":{"X-Amz-Meta-Project":"apollo","content-type":"image/jpeg"},"sequencer":"18D7A5B1C2D3E4F5"}},"source":{"host":"127.0.0.1","port":"","userAgent":"MinIO (linux; amd64) minio-go/v7.0.83"}}]}"#,
    ),
    (
        "OpenIO",
        r#"{"event":"storage.content.new","when":1790000000123456,"url":{"ns":"OPENIO","account":"AUTH_demo","user":"images","id":"9006CE70","path":"2026/cat.jpg","content":"2DF24F0A","version":"1790000000000001"},"request_id":"tx1","origin":"proxy","data":[{"type":"chunks","id":"http://127.0.0.1:6010/A","hash":"00","size":11,"pos":"0"},{"type":"aliases","name":"2026/cat.jpg","version":1790000000000001,"ctime":1790000000,"deleted":false,"header":"2DF2"},{"type":"contents_headers","id":"2DF2","policy":"THREECOPIES","mime-type":"image/jpeg","hash":"5EB63BBBE01EEED0","size":11},{"type":"properties","alias":"2026/cat.jpg","version":1,"key":"Project","value":"apollo"}]}"#,
    ),
];

/// Measures all messages and prints the results.
pub(crate) fn run() -> Result<()> {
    for (name, text) in MESSAGES {
        let message = Message { body: text.into(), attributes: Vec::new() };
        let mut hints = 0;
        Dialect::Detected.read(&message, &mut |_| hints += 1).context("cannot parse the message")?;
        let strict = best(|| drop(black_box(serde_json::from_str::<serde::de::IgnoredAny>(text))));
        let ours = best(|| {
            drop(Dialect::Detected.read(&message, &mut |hint| drop(black_box(hint))));
        });
        println!(
            "{name:<8} {:>5} bytes  {hints} hint  strict {:>6} ns  ours {:>6} ns  ratio {:.2}",
            text.len(),
            strict.as_nanos(),
            ours.as_nanos(),
            ours.as_secs_f64() / strict.as_secs_f64().max(f64::MIN_POSITIVE),
        );
    }
    Ok(())
}

/// Returns the time of one call in the best round.
fn best(call: impl Fn()) -> Duration {
    let round = |_| {
        let began = SystemClock.now();
        (0..READS).for_each(|_| call());
        SystemClock.now().since(began) / READS
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}
