//! What the S3 client costs: CPU per small request and per GiB, against a MinIO of its own.
//!
//! ```text
//! cargo run --release -p store --example s3_cost
//! ```

#![expect(clippy::unwrap_used, reason = "an experiment fails by panicking")]

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use store::s3::{Credentials, S3Buckets, S3Config};
use store::{Buckets, Entropy, GetOptions, ObjectKey, ObjectStore, PutOptions, SystemClock};

const SMALL_BYTES: usize = 4 << 10;
const SMALL_OPS: usize = 4000;
const SMALL_AT_ONCE: usize = 16;
const BIG_BYTES: usize = 64 << 20;
const BIG_OPS: usize = 24;
const BIG_AT_ONCE: usize = 8;
const ROUNDS: usize = 2;

#[tokio::main]
async fn main() {
    let server = servers::minio();
    let credentials = Credentials::new(server.access_key(), server.secret_key(), None).unwrap();
    let config = S3Config {
        endpoint: Some(server.endpoint()),
        region: server.region().to_owned(),
        credentials: credentials.into(),
        ..S3Config::default()
    };
    for checksums in [true, false] {
        let config = S3Config { checksums, ..config.clone() };
        let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7))).unwrap();
        let bucket = format!("cost-{checksums}");
        buckets.create(&bucket).await.unwrap();
        let store = buckets.open(&bucket).await.unwrap();
        println!("checksums: {checksums}");
        for _ in 0..ROUNDS {
            small(&store).await;
            big(&store).await;
        }
    }
}

async fn small(store: &Arc<dyn ObjectStore>) {
    let body = Bytes::from(vec![7; SMALL_BYTES]);
    let puts = cost(SMALL_OPS, SMALL_AT_ONCE, |at| put(store.clone(), at % 500, body.clone())).await;
    let gets = cost(SMALL_OPS, SMALL_AT_ONCE, |at| get(store.clone(), at % 500, None)).await;
    let ranges =
        cost(SMALL_OPS, SMALL_AT_ONCE, |at| get(store.clone(), at % 500, Some(0..SMALL_BYTES as u64))).await;
    for (name, spent) in [("PUT 4 KiB", puts), ("GET 4 KiB", gets), ("GET range 4 KiB", ranges)] {
        println!("  {name}: {:.1} us CPU", spent.as_secs_f64() * 1e6 / SMALL_OPS as f64);
    }
}

async fn big(store: &Arc<dyn ObjectStore>) {
    let body = Bytes::from(vec![7; BIG_BYTES]);
    let puts = cost(BIG_OPS, BIG_AT_ONCE, |at| put(store.clone(), 1000 + at % 8, body.clone())).await;
    let gets = cost(BIG_OPS, BIG_AT_ONCE, |at| get(store.clone(), 1000 + at % 8, None)).await;
    let gib = (BIG_OPS * BIG_BYTES) as f64 / (1_u64 << 30) as f64;
    for (name, spent) in [("PUT 64 MiB", puts), ("GET 64 MiB", gets)] {
        println!("  {name}: {:.3} CPU-s/GiB", spent.as_secs_f64() / gib);
    }
}

async fn put(store: Arc<dyn ObjectStore>, at: usize, body: Bytes) {
    store.put(&key(at), body.into(), PutOptions::default()).await.unwrap();
}

async fn get(store: Arc<dyn ObjectStore>, at: usize, range: Option<std::ops::Range<u64>>) {
    let object = store.get(&key(at), GetOptions { range, ..GetOptions::default() }).await.unwrap();
    let mut left = object.meta.size_bytes;
    let mut body = object.body;
    while let Some(piece) = body.next().await {
        left -= piece.unwrap().len() as u64;
    }
    assert_eq!(left, 0);
}

fn key(at: usize) -> ObjectKey {
    ObjectKey::try_from(format!("dir/object-{at}").as_str()).unwrap()
}

/// CPU time of this process for `count` operations, some of them at once, each a task of its own.
async fn cost<F: Future<Output = ()> + Send + 'static>(
    count: usize,
    at_once: usize,
    operation: impl Fn(usize) -> F,
) -> Duration {
    let before = cpu_time();
    stream::iter(0..count)
        .map(|at| tokio::spawn(operation(at)))
        .buffer_unordered(at_once)
        .for_each(|done| async { done.unwrap() })
        .await;
    cpu_time() - before
}

/// User and system time of this process so far, from `/proc/self/stat` in ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
