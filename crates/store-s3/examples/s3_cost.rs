//! Measures the S3 client's CPU time per small request and per GiB, against a MinIO of its own.
//!
//! ```text
//! cargo run --release -p store --example s3_cost
//! ```

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Entropy, GetOptions, InvalidKey, ObjectKey, ObjectStore, PutOptions, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

const SMALL_BYTES: usize = 4 << 10;
const SMALL_OPS: usize = 4000;
const SMALL_AT_ONCE: usize = 16;
const BIG_BYTES: usize = 64 << 20;
const BIG_OPS: usize = 24;
const BIG_AT_ONCE: usize = 8;
const ROUNDS: usize = 2;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let server = servers::minio();
    let credentials = Credentials::new(server.access_key(), server.secret_key(), None)?;
    let config = S3Config {
        endpoint: Some(server.endpoint()),
        region: server.region().to_owned(),
        credentials: credentials.into(),
        ..S3Config::default()
    };
    for checksums in [true, false] {
        let config = S3Config { checksums, ..config.clone() };
        let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7)))?;
        let bucket = format!("cost-{checksums}");
        buckets.create(&bucket).await?;
        let store = buckets.open(&bucket).await?;
        println!("checksums: {checksums}");
        for _ in 0..ROUNDS {
            small(&store).await?;
            big(&store).await?;
        }
    }
    Ok(())
}

async fn small(store: &Arc<dyn ObjectStore>) -> Outcome {
    let body = Bytes::from(vec![7; SMALL_BYTES]);
    let puts = cost(SMALL_OPS, SMALL_AT_ONCE, |at| put(store.clone(), at % 500, body.clone())).await?;
    let gets = cost(SMALL_OPS, SMALL_AT_ONCE, |at| get(store.clone(), at % 500, None)).await?;
    let ranges =
        cost(SMALL_OPS, SMALL_AT_ONCE, |at| get(store.clone(), at % 500, Some(0..SMALL_BYTES as u64)))
            .await?;
    for (name, spent) in [("PUT 4 KiB", puts), ("GET 4 KiB", gets), ("GET range 4 KiB", ranges)] {
        println!("  {name}: {:.1} us CPU", spent.as_secs_f64() * 1e6 / SMALL_OPS as f64);
    }
    Ok(())
}

async fn big(store: &Arc<dyn ObjectStore>) -> Outcome {
    let body = Bytes::from(vec![7; BIG_BYTES]);
    let puts = cost(BIG_OPS, BIG_AT_ONCE, |at| put(store.clone(), 1000 + at % 8, body.clone())).await?;
    let gets = cost(BIG_OPS, BIG_AT_ONCE, |at| get(store.clone(), 1000 + at % 8, None)).await?;
    let gib = (BIG_OPS * BIG_BYTES) as f64 / (1_u64 << 30) as f64;
    for (name, spent) in [("PUT 64 MiB", puts), ("GET 64 MiB", gets)] {
        println!("  {name}: {:.3} CPU-s/GiB", spent.as_secs_f64() / gib);
    }
    Ok(())
}

async fn put(store: Arc<dyn ObjectStore>, at: usize, body: Bytes) -> Outcome {
    store.put(&key(at)?, body.into(), PutOptions::default()).await?;
    Ok(())
}

async fn get(store: Arc<dyn ObjectStore>, at: usize, range: Option<std::ops::Range<u64>>) -> Outcome {
    let object = store.get(&key(at)?, GetOptions { range, ..GetOptions::default() }).await?;
    let mut left = object.meta.size_bytes;
    let mut body = object.body;
    while let Some(piece) = body.next().await {
        left -= piece?.len() as u64;
    }
    assert_eq!(left, 0);
    Ok(())
}

fn key(at: usize) -> Result<ObjectKey, InvalidKey> {
    ObjectKey::try_from(format!("dir/object-{at}").as_str())
}

/// Returns the CPU time of this process for `count` operations, which run concurrently in tasks.
async fn cost<F: Future<Output = Outcome> + Send + 'static>(
    count: usize,
    at_once: usize,
    operation: impl Fn(usize) -> F,
) -> Outcome<Duration> {
    let before = cpu_time()?;
    stream::iter(0..count)
        .map(|at| tokio::spawn(operation(at)))
        .buffer_unordered(at_once)
        .map(|done| done.unwrap_or_else(|panic| Err(panic.into())))
        .try_for_each(|()| async { Ok(()) })
        .await?;
    Ok(cpu_time()? - before)
}

/// Returns the user and system time of this process, from `/proc/self/stat` in ticks of 10 ms.
fn cpu_time() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").ok_or("no such process")?.1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
