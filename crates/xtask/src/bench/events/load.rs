//! As many events as can be, or so many a second.

use super::client;
use super::queue::{Done, QUEUES, Queue, Reader};
use super::stream::Stream;
use super::{Scenario, Task};
use crate::bench::measure::{cpu, load_average, timed};
use anyhow::{Context, Result};
use events::{Dialect, Feed};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;
use store::memory::MemoryBuckets;
use store::{Buckets, Clock, Entropy, SystemClock, Timestamp};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use views::{Handler, HandlerConfig, HandlerParts, Ruleset, ViewId, Views};

/// The container that rulesets name.
pub(super) const BUCKET: &str = "bench";
/// Messages that are put into a queue at once, unless there is a rate.
const PUSHED: usize = 32;
/// By how much the events' clock is ahead: none of them may be older than the listing of what was there before.
const AHEAD: Duration = Duration::from_millis(5);
/// From then until the first event: OpenIO's microseconds tell no more than a million events a second apart, and the handler does not
/// believe what is of after now.
const LATE: Duration = Duration::from_secs(3);

/// A handler with its views.
pub(super) struct Handling {
    pub(super) handler: Arc<Handler>,
    pub(super) views: Vec<ViewId>,
}

/// Feeds of all queues into a handler.
pub(super) struct Feeds {
    pub(super) queues: Vec<Arc<Queue>>,
    done: Arc<Done>,
    tasks: Vec<JoinHandle<()>>,
}

/// Measures, and says so on standard output.
pub(super) fn run(task: &Task) -> Result<()> {
    let runtime = runtime()?;
    let own = tempfile::tempdir()?;
    let dir = (task.scenario == Scenario::DbMatch).then(|| own.path().join("state"));
    let handling = runtime.block_on(Handling::start(dir.as_deref(), &rulesets(task.rulesets)))?;
    let pushed: Vec<AtomicI64> =
        (0..if task.rate > 0 { task.total() } else { 0 }).map(|_| AtomicI64::new(0)).collect();
    let feeds = Feeds::start(task, &handling.handler, own.path(), &runtime, task.total(), |_| Ok(None))?;
    let first = begun();
    thread::sleep(LATE);
    let pid = std::process::id();
    let used = cpu(pid)?;
    let ((producing, latencies), time) = timed(|| {
        thread::scope(|scope| {
            let producer = scope.spawn(|| produce(task, &feeds.queues, first, &pushed));
            let client = (task.rate > 0)
                .then(|| scope.spawn(|| client::follow(&handling, &pushed, task.objects(), &runtime)));
            runtime.block_on(feeds.done());
            let producing = producer.join().ok().context("the producer ended early")??;
            let latencies =
                client.map(|client| client.join().ok().context("the client ended early")?).transpose()?;
            anyhow::Ok((producing, latencies))
        })
    })?;
    let used = cpu(pid)? - used;
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / task.total() as f64;
    println!(
        "{:?} {} {} rulesets, {} threads a queue: {:.0} events/s, {:.2} us of CPU an event, of which {:.2} the producer's; {} events, load {}",
        task.scenario,
        task.dialect,
        task.rulesets,
        task.threads,
        task.total() as f64 / time.as_secs_f64(),
        micros(used),
        micros(producing),
        task.total(),
        load_average()?,
    );
    let stats = handling.handler.stats();
    println!("  {:?}, {} sets", stats.hints, stats.sets);
    if let Some(latencies) = latencies {
        client::report(latencies);
    }
    feeds.end();
    Ok(())
}

/// As many threads as the machine has processors, whatever the number of feeds.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// When the first event happened, if it happens now.
pub(super) fn begun() -> Timestamp {
    SystemClock.now().after(AHEAD)
}

impl Handling {
    pub(super) async fn start(dir: Option<&Path>, rulesets: &[Ruleset]) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let buckets = MemoryBuckets::new(Arc::clone(&clock));
        // A handler that goes on has to know everything from what it kept: it finds nothing to list.
        if dir.is_none_or(|dir| !dir.exists()) {
            buckets.create(BUCKET).await?;
        }
        let parts = HandlerParts {
            buckets: Arc::new(buckets),
            clock,
            entropy: Entropy::new(1),
            dir: dir.map(Path::to_owned),
            config: HandlerConfig::default(),
        };
        let handler = Handler::start(parts).await?;
        let mut views = Vec::new();
        for ruleset in rulesets {
            views.push(handler.open(ruleset).await?);
        }
        Ok(Self { handler, views })
    }
}

impl Feeds {
    /// Starts `task.threads` feeds of each queue; each may have a journal.
    pub(super) fn start(
        task: &Task,
        handler: &Arc<Handler>,
        dir: &Path,
        runtime: &Runtime,
        total: usize,
        journal: impl Fn(usize) -> Result<Option<File>>,
    ) -> Result<Self> {
        let queues: Vec<Arc<Queue>> = (0..QUEUES).map(|_| Arc::default()).collect();
        let done = Arc::new(Done::new(total));
        let mut tasks = Vec::new();
        for number in 0..QUEUES * task.threads {
            let reader = Reader::new(&queues[number % QUEUES], &done, journal(number)?);
            let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(1)));
            let feed = Feed::new("bench", Dialect::Detected, dir.join("dead-letters"), clock, entropy);
            tasks.push(runtime.spawn(feed.into_sink(handler.clone()).run(Box::new(reader))));
        }
        Ok(Self { queues, done, tasks })
    }

    /// Waits until everything is acknowledged.
    pub(super) async fn done(&self) {
        self.done.all().await;
    }

    pub(super) fn end(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Rulesets that show every object, alike in three ways.
fn rulesets(count: usize) -> Vec<Ruleset> {
    let text = |number: usize| match number % 3 {
        0 => format!("v{number}:\n  container: {BUCKET}\n  size: \">{number}\"\n"),
        1 => format!("v{number}:\n  container: {BUCKET}\n  object: \"data/**\"\n  size: \">{number}\"\n"),
        _ => format!(
            "v{number}:\n  container: {BUCKET}\n  properties:\n    color: [black, green, white, c{number}]\n"
        ),
    };
    views::read(&(0..count).map(text).collect::<String>()).unwrap_or_default()
}

/// Puts the events into the queues; returns what that took of the processor.
fn produce(task: &Task, queues: &[Arc<Queue>], first: Timestamp, times: &[AtomicI64]) -> Result<Duration> {
    let bucket = if task.scenario == Scenario::Raw { "elsewhere" } else { BUCKET };
    let mut stream = Stream::new(task.dialect, bucket, task.objects(), false, first);
    let pushed = if task.rate > 0 { 1 } else { PUSHED };
    let start = SystemClock.now();
    let mut messages = Vec::with_capacity(pushed);
    for (turn, number) in (0..task.total()).step_by(pushed).enumerate() {
        if let Some(due_ns) = (number as u64 * 1_000_000_000).checked_div(task.rate) {
            wait_for(start.after(Duration::from_nanos(due_ns)));
        }
        for number in number..(number + pushed).min(task.total()) {
            if let Some(time) = times.get(number) {
                time.store(SystemClock.now().0, Ordering::Relaxed);
            }
            messages.push((number, stream.message(number)));
        }
        queues[turn % QUEUES].push(&mut messages);
    }
    own_cpu()
}

fn wait_for(due: Timestamp) {
    /// As precise as the kernel's timers are.
    const NAP: Duration = Duration::from_micros(50);
    loop {
        let left = due.since(SystemClock.now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(NAP));
    }
}

/// What this thread has used (proc(5), `schedstat`).
fn own_cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse()?))
}
