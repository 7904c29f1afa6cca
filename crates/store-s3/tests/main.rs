//! Tests of the S3 client against real servers, MinIO and versitygw, which the tests start.

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
use store::{Buckets, Entropy, ObjectKey, ObjectStore, Result, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

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

/// MinIO stores an object in a directory of its name, so listings do not show the objects below an object's key. Its pages
/// of a listing with the delimiter `-` are wrong.
const MINIO: Capabilities = Capabilities {
    refuses: minio_refuses,
    object_beside_directory: false,
    any_delimiter: false,
    unicode_tags: false,
    ..Capabilities::ALL
};

/// versitygw stores an object in a file of its name. A PUT next to an object that is being deleted sometimes fails with 404
/// or `ExistingObjectIsDirectory` (also for boto3). versitygw ignores `encoding-type` and replaces characters that XML
/// cannot hold in listings by U+FFFD.
const VERSITYGW: Capabilities = Capabilities {
    refuses: versitygw_refuses,
    lists_wrongly: no_xml,
    object_beside_directory: false,
    steady_neighbours: false,
    lists_attributes: false,
    ..Capabilities::ALL
};

fn minio_refuses(key: &ObjectKey) -> bool {
    no_clean_path(key) || not_utf8(key)
}

/// An object whose key ends with a slash cannot hold bytes, which the suite requires.
fn versitygw_refuses(key: &ObjectKey) -> bool {
    no_clean_path(key) || not_utf8(key) || key.as_bytes().ends_with(b"/")
}

/// Returns whether a key is not a normalised path of a file system.
fn no_clean_path(key: &ObjectKey) -> bool {
    let bytes = key.as_bytes();
    let odd = |part: &[u8]| part == b"." || part == b".." || part.len() > 255;
    let empty = bytes.starts_with(b"/") || bytes.windows(2).any(|pair| pair == b"//");
    empty || bytes.contains(&0) || bytes.split(|byte| *byte == b'/').any(odd)
}

fn not_utf8(key: &ObjectKey) -> bool {
    std::str::from_utf8(key.as_bytes()).is_err()
}

/// Returns whether a key contains a character that XML 1.0 cannot hold.
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

/// Runs the suite with a server for every case, because each case begins without buckets.
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
