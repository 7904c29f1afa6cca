//! The event handler's rate and latency (DelveFS, section IV-B): `cargo xtask bench events`.
//!
//! Nine bounded queues, each with threads of its own. A producer fills them while the time is taken; a thread takes what is
//! there, reads the messages, has the handler take the hints, and only then counts them as done.

use events::{Hint, Order, Said, Sink, What};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::memory::MemoryBuckets;
use store::{Buckets, Clock, Entropy, SystemClock, Timestamp};
use tokio::runtime::{Builder, Handle};
use views::{Handler, HandlerConfig, HandlerParts, ViewId, Views};

const USAGE: &str = "\
usage: events [raw|match|db_match|memory] [--events N] [--threads N] [--rulesets N] [--rate N] [--dir DIR]

  --events    into each of nine queues (200000); of memory: objects in all
  --threads   of each queue (1)
  --rulesets  that the objects match (100)
  --rate      events a second in all, with latencies; as many as can be if 0 (0)
  --dir       where the state is kept (db_match: a directory of its own)";

const QUEUES: usize = 9;
const QUEUE_MESSAGES: usize = 1024;
const BATCH: usize = 256;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Debug, Clone)]
struct Task {
    scenario: String,
    events: usize,
    threads: usize,
    rulesets: usize,
    rate: u64,
    dir: Option<String>,
}

fn main() -> Result<(), Failure> {
    let task = Task::read(std::env::args().skip(1).filter(|argument| argument != "--bench"))?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if task.scenario == "memory" {
        return runtime.block_on(memory(&task));
    }
    run(&task, &runtime)
}

impl Task {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let scenario = arguments.next().ok_or(USAGE)?;
        let mut task = Self { scenario, events: 200_000, threads: 1, rulesets: 100, rate: 0, dir: None };
        while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
            match name.as_str() {
                "--events" => task.events = value.parse()?,
                "--threads" => task.threads = value.parse()?,
                "--rulesets" => task.rulesets = value.parse()?,
                "--rate" => task.rate = value.parse()?,
                "--dir" => task.dir = Some(value),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(task)
    }

    fn objects(&self) -> usize {
        if self.scenario == "db_match" { 10_000 } else { 1 }
    }

    fn bucket(&self) -> &'static str {
        if self.scenario == "raw" { "elsewhere" } else { "bench" }
    }
}

/// A queue that holds so many messages at most.
#[derive(Default)]
struct Queue {
    messages: Mutex<(VecDeque<Vec<u8>>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Vec<u8>>, bool)> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, messages: &mut Vec<Vec<u8>>) {
        let mut queue = self.lock();
        while queue.0.len() + messages.len() > QUEUE_MESSAGES {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.0.extend(messages.drain(..));
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().1 = true;
        self.changed.notify_all();
    }

    /// Some messages; none at the end.
    fn pop(&self) -> Vec<Vec<u8>> {
        let mut queue = self.lock();
        while queue.0.is_empty() && !queue.1 {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let some = queue.0.len().min(BATCH);
        let messages = queue.0.drain(..some).collect();
        self.changed.notify_all();
        messages
    }
}

/// An event as MinIO sends it, with what is needed of it.
#[derive(Deserialize)]
struct Envelope<'m> {
    #[serde(rename = "Records", borrow)]
    records: Vec<Record<'m>>,
}

#[derive(Deserialize)]
struct Record<'m> {
    #[serde(borrow)]
    s3: Entity<'m>,
}

#[derive(Deserialize)]
struct Entity<'m> {
    #[serde(borrow)]
    bucket: Bucket<'m>,
    #[serde(borrow)]
    object: Object<'m>,
}

#[derive(Deserialize)]
struct Bucket<'m> {
    name: &'m str,
}

#[derive(Deserialize)]
struct Object<'m> {
    key: &'m str,
    size: u64,
    #[serde(rename = "eTag")]
    etag: &'m str,
    #[serde(rename = "userMetadata", borrow)]
    properties: Properties<'m>,
    sequencer: &'m str,
}

#[derive(Deserialize)]
struct Properties<'m> {
    #[serde(rename = "X-Amz-Meta-Color")]
    color: &'m str,
}

fn read(message: &[u8]) -> Result<Hint<'_>, Failure> {
    let envelope: Envelope<'_> = serde_json::from_slice(message)?;
    let Entity { bucket, object } = envelope.records.into_iter().next().ok_or("no record")?.s3;
    let order = u128::from_str_radix(object.sequencer, 16)?;
    Ok(Hint {
        bucket: Cow::Borrowed(bucket.name),
        key: Cow::Borrowed(object.key.as_bytes()),
        what: What::Stored,
        order: Some(Order(order)),
        time: Some(Timestamp(order as i64)),
        said: Said {
            size_bytes: Some(object.size),
            etag: Some(Cow::Borrowed(object.etag)),
            properties: Some(vec![(Cow::Borrowed("color"), Cow::Borrowed(object.properties.color))]),
            ..Said::default()
        },
    })
}

/// About 1 KB; the etag says which event it is.
fn message(bucket: &str, object: usize, number: usize, now: Timestamp) -> Vec<u8> {
    format!(
        concat!(
            r#"{{"EventName":"s3:ObjectCreated:Put","Key":"{bucket}/data/2026/11/22/part-{object:07}.fastq","Records":[{{"eventVersion":"2.0","#,
            r#""eventSource":"minio:s3","awsRegion":"","eventTime":"2026-11-22T12:00:00.000Z","eventName":"s3:ObjectCreated:Put","#,
            r#""userIdentity":{{"principalId":"minioadmin"}},"requestParameters":{{"principalId":"minioadmin","region":"","#,
            r#""sourceIPAddress":"127.0.0.1"}},"responseElements":{{"x-amz-id-2":"dd9025bab4ad464b049177c95eb6ebf374d3b3fd1af9251148b658df7ac2e3e8","#,
            r#""x-amz-request-id":"17A2B3C4D5E6F708","x-minio-deployment-id":"8b1d3b8e-3b6a-4a57-9f3e-0a3c4f6f8a11","#,
            r#""x-minio-origin-endpoint":"http://127.0.0.1:9000"}},"s3":{{"s3SchemaVersion":"1.0","configurationId":"Config","#,
            r#""bucket":{{"name":"{bucket}","ownerIdentity":{{"principalId":"minioadmin"}},"arn":"arn:aws:s3:::{bucket}"}},"#,
            r#""object":{{"key":"data/2026/11/22/part-{object:07}.fastq","size":{size},"eTag":"{number:032x}","contentType":"text/plain","#,
            r#""userMetadata":{{"X-Amz-Meta-Color":"black","content-type":"text/plain"}},"sequencer":"{order:016X}"}}}},"#,
            r#""source":{{"host":"127.0.0.1","port":"","userAgent":"MinIO (linux; amd64) minio-go/v7.0.90"}}}}]}}"#,
        ),
        bucket = bucket,
        object = object,
        size = 100_000 + number % 1000,
        number = number,
        order = now.0,
    )
    .into_bytes()
}

/// Rulesets that all match, alike in three ways.
fn rulesets(count: usize) -> Vec<views::Ruleset> {
    let text = |number: usize| match number % 3 {
        0 => format!("v{number}:\n  container: bench\n  size: \">{number}\"\n"),
        1 => format!("v{number}:\n  container: bench\n  object: \"data/**\"\n  size: \">{number}\"\n"),
        _ => format!("v{number}:\n  container: bench\n  properties:\n    color: [black, c{number}]\n"),
    };
    let all: String = (0..count).map(text).collect();
    views::read(&all).unwrap_or_default()
}

async fn handler(task: &Task) -> Result<(Arc<Handler>, Vec<ViewId>), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let buckets = MemoryBuckets::new(clock.clone());
    buckets.create("bench").await?;
    let dir = task.dir.clone().map(Into::into);
    let parts = HandlerParts {
        buckets: Arc::new(buckets),
        clock,
        entropy: Entropy::new(1),
        dir,
        config: HandlerConfig::default(),
    };
    let handler = Handler::start(parts).await?;
    let mut views = Vec::new();
    for ruleset in rulesets(task.rulesets) {
        views.push(handler.open(&ruleset).await?);
    }
    Ok((handler, views))
}

fn run(task: &Task, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let own = tempfile::tempdir()?;
    let mut task = task.clone();
    if task.scenario == "db_match" && task.dir.is_none() {
        task.dir = own.path().join("state").to_str().map(str::to_owned);
    }
    let (handler, views) = runtime.block_on(handler(&task))?;
    let queues: Arc<Vec<Queue>> = Arc::new((0..QUEUES).map(|_| Queue::default()).collect());
    let total = task.events * QUEUES;
    let begun: Arc<Vec<AtomicI64>> =
        Arc::new((0..if task.rate > 0 { total } else { 0 }).map(|_| AtomicI64::new(0)).collect());
    let done = Arc::new(AtomicUsize::new(0));
    let (start, cpu) = (SystemClock.now(), cpu_seconds()?);
    let mut workers = Vec::new();
    for number in 0..QUEUES * task.threads {
        let (queues, handler, done) = (Arc::clone(&queues), Arc::clone(&handler), Arc::clone(&done));
        let on = runtime.handle().clone();
        workers.push(std::thread::spawn(move || work(&queues[number % QUEUES], &handler, &on, &done)));
    }
    let client = (task.rate > 0).then(|| {
        let (handler, begun, view, on) =
            (Arc::clone(&handler), Arc::clone(&begun), views[0], runtime.handle().clone());
        std::thread::spawn(move || follow(&handler, view, &begun, &on))
    });
    produce(&task, &queues, &begun);
    for worker in workers {
        worker.join().map_err(|_| "a thread ended early")??;
    }
    let seconds = SystemClock.now().since(start).as_secs_f64();
    let cpu = cpu_seconds()? - cpu;
    if done.load(Ordering::Relaxed) != total {
        return Err("events are missing".into());
    }
    println!(
        "{} {} rulesets, {} threads a queue: {:.0} events/s, {:.2} us of CPU an event (producer and reading included), {total} events",
        task.scenario,
        task.rulesets,
        task.threads,
        total as f64 / seconds,
        cpu * 1e6 / total as f64
    );
    println!("  {:?}, {} sets", handler.stats().hints, handler.stats().sets);
    if let Some(client) = client {
        report(client.join().map_err(|_| "the client ended early")??);
    }
    Ok(())
}

fn work(queue: &Queue, handler: &Handler, on: &Handle, done: &AtomicUsize) -> Result<(), Failure> {
    loop {
        let messages = queue.pop();
        if messages.is_empty() {
            return Ok(());
        }
        let hints = messages.iter().map(|message| read(message)).collect::<Result<Vec<_>, _>>()?;
        on.block_on(handler.take(&hints))?;
        done.fetch_add(messages.len(), Ordering::Relaxed);
    }
}

fn produce(task: &Task, queues: &[Queue], begun: &[AtomicI64]) {
    let total = task.events * QUEUES;
    let per_push = if task.rate > 0 { 1 } else { 32 };
    let start = SystemClock.now();
    let mut number = 0;
    while number < total {
        if let Some(due_ns) = (number as u64 * 1_000_000_000).checked_div(task.rate) {
            let due = start.after(Duration::from_nanos(due_ns));
            let now = SystemClock.now();
            if now < due {
                std::thread::sleep(due.since(now).min(Duration::from_micros(100)));
                continue;
            }
        }
        let mut messages = Vec::new();
        let queue = number / per_push % QUEUES;
        for _ in 0..per_push.min(total - number) {
            let now = SystemClock.now();
            if let Some(begun) = begun.get(number) {
                begun.store(now.0, Ordering::Relaxed);
            }
            messages.push(message(task.bucket(), number % task.objects(), number, now));
            number += 1;
        }
        queues[queue].push(&mut messages);
    }
    queues.iter().for_each(Queue::end);
}

/// Follows a view; the time from when each event, or a later one of its object, was put into its queue until it was seen, in ns.
fn follow(handler: &Handler, view: ViewId, begun: &[AtomicI64], on: &Handle) -> Result<Vec<i64>, Failure> {
    let objects = begun.len().min(if begun.is_empty() { 1 } else { 10_000 });
    let mut latencies = Vec::with_capacity(begun.len());
    let (mut cursor, mut next) = (None, std::collections::HashMap::new());
    let mut stride = 1;
    while latencies.len() < begun.len() {
        let changes = on.block_on(handler.changes(view, cursor.as_ref(), 1 << 20))?;
        let now = SystemClock.now().0;
        for shown in &changes.shown {
            let number = usize::from_str_radix(shown.etag.as_str(), 16)?;
            let object: usize = String::from_utf8_lossy(shown.name.key.as_bytes())[21..28].parse()?;
            if object > 0 {
                stride = objects;
            }
            let from = next.entry(object).or_insert(object);
            while *from <= number {
                latencies.push(now - begun[*from].load(Ordering::Relaxed));
                *from += stride;
            }
        }
        cursor = Some(changes.cursor);
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(latencies)
}

fn report(mut latencies: Vec<i64>) {
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] / 1000;
    let below = latencies.partition_point(|latency| *latency < 400_000) as f64 / latencies.len() as f64;
    println!(
        "  latency: p50 {} us, p90 {}, p99 {}, p99.9 {}, most {}; {:.3}% under 400 us",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
        below * 100.0
    );
}

/// Objects with keys of 60 bytes and no properties.
async fn memory(task: &Task) -> Result<(), Failure> {
    let mut task = task.clone();
    task.rulesets = 1;
    let (handler, _) = handler(&task).await?;
    let time = SystemClock.now().after(Duration::from_secs(1));
    for number in 0..task.events {
        let key = format!("tenant-0042/project-17/2026/11/22/run-03/part-{number:08}.fastq");
        let etag = format!("{number:032x}");
        let said = Said { size_bytes: Some(1), etag: Some(Cow::Borrowed(&etag)), ..Said::default() };
        let hint = Hint {
            bucket: Cow::Borrowed("bench"),
            key: Cow::Borrowed(key.as_bytes()),
            what: What::Stored,
            order: Some(Order(time.0 as u128)),
            time: Some(time),
            said,
        };
        handler.take(&[hint]).await?;
    }
    let stats = handler.stats();
    let resident = std::fs::read_to_string("/proc/self/status")?;
    let resident = resident.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    println!(
        "{} objects: {} bytes each by its own count; {resident}",
        stats.objects,
        stats.memory_bytes / stats.objects.max(1)
    );
    Ok(())
}

/// What this process used (proc(5), stat: fields 14 and 15, in hundredths).
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}
