//! The S3 client against real servers: MinIO and versitygw, started by the tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod budget;
mod credentials;
mod large_copies;
mod misbehaving;
mod real;
mod scripted;

use servers::S3Server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::conformance::{self, Capabilities};
use store::s3::{Credentials, S3Buckets, S3Config};
use store::{Buckets, Entropy, ObjectKey, ObjectStore, Result, SystemClock};

#[tokio::test(flavor = "multi_thread")]
async fn minio_conforms() {
    conforms(servers::shared_minio(), MINIO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versitygw_conforms() {
    conforms(servers::shared_versitygw(), VERSITYGW).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_buckets_conform() {
    buckets_conform(servers::minio).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versitygw_buckets_conform() {
    buckets_conform(servers::versitygw).await;
}

/// MinIO keeps an object in a directory of its name: what lies below an object is there, but listings do not show it.
/// It gets lost when it pages through a listing folded at `-`.
const MINIO: Capabilities = Capabilities {
    refuses: minio_refuses,
    object_beside_directory: false,
    any_delimiter: false,
    unicode_tags: false,
    ..Capabilities::ALL
};

/// versitygw keeps an object in a file of its name, and answers a PUT beside one that is just being deleted with 404 or
/// `ExistingObjectIsDirectory` now and then (boto3 sees it too). It ignores `encoding-type` and puts what XML cannot
/// hold into listings as U+FFFD.
const VERSITYGW: Capabilities = Capabilities {
    refuses: versitygw_refuses,
    lists_wrongly: no_xml,
    object_beside_directory: false,
    steady_neighbours: false,
    ..Capabilities::ALL
};

fn minio_refuses(key: &ObjectKey) -> bool {
    no_clean_path(key) || not_utf8(key)
}

/// An object whose key ends with a slash cannot hold bytes, and the suite gives it some.
fn versitygw_refuses(key: &ObjectKey) -> bool {
    no_clean_path(key) || not_utf8(key) || key.as_bytes().ends_with(b"/")
}

/// Is no path in a file system, or not the shortest one.
fn no_clean_path(key: &ObjectKey) -> bool {
    let bytes = key.as_bytes();
    let odd = |part: &[u8]| part == b"." || part == b".." || part.len() > 255;
    let empty = bytes.starts_with(b"/") || bytes.windows(2).any(|pair| pair == b"//");
    empty || bytes.contains(&0) || bytes.split(|byte| *byte == b'/').any(odd)
}

fn not_utf8(key: &ObjectKey) -> bool {
    std::str::from_utf8(key.as_bytes()).is_err()
}

/// Holds a character that XML 1.0 cannot.
fn no_xml(key: &ObjectKey) -> bool {
    let text = String::from_utf8_lossy(key.as_bytes()).into_owned();
    text.chars()
        .any(|c| (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}'))
}

async fn conforms(server: &'static S3Server, capabilities: Capabilities) {
    let buckets = client_of(config(server));
    let fresh = || async { Ok(fresh_bucket(&buckets).await? as Arc<dyn ObjectStore>) };
    conformance::run(fresh, capabilities).await.unwrap();
}

/// A server for every case: the suite begins without any bucket.
async fn buckets_conform(start: fn() -> S3Server) {
    let running = Mutex::new(Vec::new());
    let fresh = || async {
        let server = start();
        let buckets = client_of(config(&server));
        running.lock().unwrap().push(server);
        Ok(Arc::new(buckets) as Arc<dyn Buckets>)
    };
    conformance::run_buckets(fresh).await.unwrap();
}

pub(crate) fn config(server: &S3Server) -> S3Config {
    let credentials = Credentials::new(server.access_key(), server.secret_key(), None).unwrap();
    S3Config {
        endpoint: Some(server.endpoint()),
        region: server.region().to_owned(),
        credentials: credentials.into(),
        ..S3Config::default()
    }
}

pub(crate) fn client_of(config: S3Config) -> S3Buckets {
    S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7))).unwrap()
}

pub(crate) async fn fresh_bucket(buckets: &S3Buckets) -> Result<Arc<dyn ObjectStore>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("bucket-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    buckets.create(&name).await?;
    buckets.open(&name).await
}
