//! Measures the cost of the write-back log: throughput until the bucket has everything, and CPU time per GiB, alternately
//! with and without the log, against a MinIO of its own.
//!
//! ```text
//! cargo run --release -p store --example writeback_cost [ROUNDS]
//! ```

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use staging::writeback::{Writeback, WritebackOptions};
use std::sync::Arc;
use std::time::Duration;
use store::{
    Attributes, Buckets, Entropy, InvalidKey, ObjectKey, ObjectStore, Precondition, PutOptions, SystemClock,
    Tags,
};
use store_s3::{Credentials, S3Buckets, S3Config};
use tokio::time::Instant;

const PART_BYTES: usize = 8 << 20;
const PARTS: usize = 32;
/// Parts of an object that a writer has in flight, like a stream of `vfs`.
const PARTS_AT_ONCE: usize = 3;
const BIG_OBJECTS: usize = 8;
const SMALL_BYTES: usize = 64 << 10;
const SMALL_OBJECTS: usize = 4096;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Copy)]
enum Job {
    Big { writers: usize },
    Small { writers: usize },
}

#[tokio::main]
async fn main() -> Outcome {
    let rounds = std::env::args().nth(1).map_or(Ok(2), |rounds| rounds.parse::<usize>())?;
    let server = servers::minio();
    let credentials = Credentials::new(server.access_key(), server.secret_key(), None)?;
    let config = S3Config {
        endpoint: Some(server.endpoint()),
        region: server.region().to_owned(),
        credentials: credentials.into(),
        ..S3Config::default()
    };
    let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7)))?;
    buckets.create("cost").await?;
    let bucket = buckets.open("cost").await?;
    let jobs = [
        ("1: large, 1 writer", Job::Big { writers: 1 }),
        ("3: large, 8 writers", Job::Big { writers: 8 }),
        ("5: small, 16 writers", Job::Small { writers: 16 }),
    ];
    for round in 0..rounds {
        for (number, (name, job)) in jobs.into_iter().enumerate() {
            let plain = measure(&bucket, None, job, &format!("{round}/{number}/plain")).await?;
            let dir = tempfile::tempdir()?;
            let logged = measure(&bucket, Some(dir.path()), job, &format!("{round}/{number}/log")).await?;
            let ratio = plain.0.as_secs_f64() / logged.0.as_secs_f64();
            println!(
                "{name}: plain {:.2} s, {:.2} CPU s/GiB; log {:.2} s, {:.2} CPU s/GiB; ratio {ratio:.2}",
                plain.0.as_secs_f64(),
                plain.1,
                logged.0.as_secs_f64(),
                logged.1,
            );
        }
    }
    Ok(())
}

/// Returns the time until the bucket has everything, and the CPU seconds per GiB.
async fn measure(
    bucket: &Arc<dyn ObjectStore>,
    log: Option<&std::path::Path>,
    job: Job,
    folder: &str,
) -> Outcome<(Duration, f64)> {
    let writeback = match log {
        Some(dir) => {
            let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(7)));
            Some(Writeback::open(dir, bucket.clone(), options(), clock, entropy)?)
        }
        None => None,
    };
    let store: Arc<dyn ObjectStore> = match &writeback {
        Some(writeback) => writeback.clone(),
        None => bucket.clone(),
    };
    let (began, cpu) = (Instant::now(), cpu_time()?);
    let (writers, objects) = match job {
        Job::Big { writers } => (writers, BIG_OBJECTS),
        Job::Small { writers } => (writers, SMALL_OBJECTS),
    };
    let keys: Vec<ObjectKey> =
        (0..objects).map(|at| key(&format!("{folder}/{at}"))).collect::<Result<_, _>>()?;
    let writes = stream::iter(keys).map(|key| tokio::spawn(write(store.clone(), key, job)));
    writes.buffer_unordered(writers).map(|done| done?).try_collect::<()>().await?;
    let acknowledged = began.elapsed();
    if let Some(writeback) = &writeback {
        writeback.drained().await;
        println!("    acknowledged after {:.2} s", acknowledged.as_secs_f64());
    }
    let (wall, cpu) = (began.elapsed(), cpu_time()? - cpu);
    let bytes = match job {
        Job::Big { .. } => BIG_OBJECTS * PARTS * PART_BYTES,
        Job::Small { .. } => SMALL_OBJECTS * SMALL_BYTES,
    };
    Ok((wall, cpu / (bytes as f64 / (1_u64 << 30) as f64)))
}

async fn write(store: Arc<dyn ObjectStore>, key: ObjectKey, job: Job) -> Outcome {
    if let Job::Small { .. } = job {
        let options = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
        store.put(&key, vec![7; SMALL_BYTES].into(), options).await?;
        return Ok(());
    }
    let upload = store.multipart(&key, Attributes::default(), Tags::new()).await?;
    let parts = stream::iter(1..=PARTS as u32).map(|number| {
        let (upload, body) = (upload.clone(), Bytes::from(vec![number as u8; PART_BYTES]));
        tokio::spawn(async move { upload.put_part(number, body.into()).await })
    });
    parts
        .buffer_unordered(PARTS_AT_ONCE)
        .map(|done| Ok::<_, Box<dyn std::error::Error + Send + Sync>>(done??))
        .try_collect::<()>()
        .await?;
    upload.complete(Precondition::Absent).await?;
    Ok(())
}

fn options() -> WritebackOptions {
    WritebackOptions {
        limit_bytes: 10 << 30,
        limit_changes: 1 << 20,
        patience: Duration::from_secs(60),
        delay: Duration::from_secs(1),
        checks_at_once: false,
        shared: Arc::new(|_| false),
        keys_are_used_once: false,
        lost: Arc::new(|key, _| key.clone()),
        early_bytes: 32 << 20,
        memory_bytes: 128 << 20,
    }
}

fn key(text: &str) -> Result<ObjectKey, InvalidKey> {
    ObjectKey::try_from(text)
}

fn cpu_time() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}
