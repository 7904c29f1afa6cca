//! As many events as can be, or so many a second.

use super::beanstalkd::Brokers;
use super::client;
use super::message_generator::Stream;
use super::queue::{Done, QUEUES, Queue, Reader};
use super::{Queues, Scenario, Task};
use crate::bench::resource_usage::{cpu, load_average, timed};
use anyhow::{Context, Result};
use events::{Dialect, Feed, Message, Source};
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

/// Costs of a run besides its latencies.
struct Took {
    time: Duration,
    /// Of this process, the producer's included where that runs meanwhile.
    cpu: Duration,
    producer: Duration,
    /// CPU time of the brokers.
    brokers: Duration,
    latencies: Option<Vec<i64>>,
}

/// Measures, and says so on standard output.
pub(super) fn run(task: &Task) -> Result<()> {
    let runtime = runtime()?;
    let own = tempfile::tempdir()?;
    let dir = (task.scenario == Scenario::DbMatch).then(|| own.path().join("state"));
    let handling = runtime.block_on(Handling::start(dir.as_deref(), &rulesets(task.rulesets)))?;
    let took = match task.queues {
        Queues::Own => by_own_queues(task, &handling, own.path(), &runtime)?,
        Queues::Beanstalkd => by_beanstalkd(task, &handling, own.path(), &runtime)?,
    };
    report(task, &handling, took)
}

fn by_own_queues(task: &Task, handling: &Handling, dir: &Path, runtime: &Runtime) -> Result<Took> {
    let feeds = Feeds::start(task, &handling.handler, dir, runtime, task.total(), |_| Ok(None))?;
    let first = begun();
    thread::sleep(LATE);
    let push = |turn: usize, messages: &mut Vec<(usize, Message)>| {
        feeds.queues[turn % QUEUES].push(messages);
        Ok(())
    };
    let took = meanwhile(task, handling, &feeds, (first, &push), runtime);
    feeds.end();
    took
}

/// Fills nine beanstalkd first, so that no producer wants the processors while the time is taken; with a rate it has to.
fn by_beanstalkd(task: &Task, handling: &Handling, dir: &Path, runtime: &Runtime) -> Result<Took> {
    let brokers = Brokers::start()?;
    let push = |turn: usize, messages: &mut Vec<(usize, Message)>| brokers.push(turn, messages);
    let done = Arc::new(Done::new(task.total()));
    let first = begun();
    let start = || {
        let sources = (0..QUEUES * task.threads)
            .map(|number| Ok(Box::new(brokers.source(number, &done, runtime)?) as Box<dyn Source>));
        Feeds::over(Vec::new(), done.clone(), &handling.handler, dir, runtime, sources)
    };
    if task.rate > 0 {
        thread::sleep(LATE);
        let before = brokers.cpu()?;
        let feeds = start()?;
        let took = meanwhile(task, handling, &feeds, (first, &push), runtime)?;
        feeds.end();
        return Ok(Took { brokers: brokers.cpu()? - before, ..took });
    }
    produce(task, &push, first, &[])?;
    brokers.have_stored(task.total())?;
    thread::sleep(LATE);
    let (before, used) = (brokers.cpu()?, cpu(std::process::id())?);
    let (feeds, time) = timed(|| {
        let feeds = start()?;
        runtime.block_on(feeds.done());
        Ok(feeds)
    })?;
    let (brokers, cpu) = (brokers.cpu()? - before, cpu(std::process::id())? - used);
    feeds.end();
    Ok(Took { time, cpu, producer: Duration::ZERO, brokers, latencies: None })
}

/// Puts messages into the queue of a turn.
type Push<'a> = &'a (dyn Fn(usize, &mut Vec<(usize, Message)>) -> Result<()> + Sync);

/// Takes the time while the events are produced.
fn meanwhile(
    task: &Task,
    handling: &Handling,
    feeds: &Feeds,
    (first, push): (Timestamp, Push<'_>),
    runtime: &Runtime,
) -> Result<Took> {
    let pushed: Vec<AtomicI64> =
        (0..if task.rate > 0 { task.total() } else { 0 }).map(|_| AtomicI64::new(0)).collect();
    let pid = std::process::id();
    let used = cpu(pid)?;
    let ((producer, latencies), time) = timed(|| {
        thread::scope(|scope| {
            let producer = scope.spawn(|| produce(task, push, first, &pushed));
            let client = (task.rate > 0)
                .then(|| scope.spawn(|| client::follow(handling, &pushed, task.objects(), runtime)));
            runtime.block_on(feeds.done());
            let producing = producer.join().ok().context("the producer ended early")??;
            let latencies =
                client.map(|client| client.join().ok().context("the client ended early")?).transpose()?;
            anyhow::Ok((producing, latencies))
        })
    })?;
    Ok(Took { time, cpu: cpu(pid)? - used, producer, brokers: Duration::ZERO, latencies })
}

fn report(task: &Task, handling: &Handling, took: Took) -> Result<()> {
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / task.total() as f64;
    let rate = task.total() as f64 / took.time.as_secs_f64();
    let load = load_average()?;
    println!(
        "{:?} {} {:?} queues, {} rulesets, {} threads a queue: {rate:.0} events/s, {:.2} us of CPU an event, of which {:.2} the producer's, and \
         {:.2} of brokers; {} events, load {load}",
        task.scenario,
        task.dialect,
        task.queues,
        task.rulesets,
        task.threads,
        micros(took.cpu),
        micros(took.producer),
        micros(took.brokers),
        task.total(),
    );
    let stats = handling.handler.stats();
    println!("  {:?}, {} sets", stats.hints, stats.sets);
    let latency = took.latencies.map(client::report);
    if let Some(path) = &task.record {
        let record = serde_json::json!({
            "events": task.total(),
            "seconds": took.time.as_secs_f64(),
            "events_per_second": rate,
            "cpu_us": micros(took.cpu),
            "producer_cpu_us": micros(took.producer),
            "broker_cpu_us": micros(took.brokers),
            "load": load,
            "latency": latency,
        });
        std::fs::write(path, record.to_string()).with_context(|| path.display().to_string())?;
    }
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
        let readers = (0..QUEUES * task.threads).map(|number| {
            let reader = Reader::new(&queues[number % QUEUES], &done, journal(number)?);
            Ok(Box::new(reader) as Box<dyn Source>)
        });
        let readers: Vec<_> = readers.collect();
        Self::over(queues, done.clone(), handler, dir, runtime, readers.into_iter())
    }

    /// Starts a feed of each of these sources.
    fn over(
        queues: Vec<Arc<Queue>>,
        done: Arc<Done>,
        handler: &Arc<Handler>,
        dir: &Path,
        runtime: &Runtime,
        sources: impl Iterator<Item = Result<Box<dyn Source>>>,
    ) -> Result<Self> {
        let mut tasks = Vec::new();
        for source in sources {
            let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(1)));
            let feed = Feed::new("bench", Dialect::Detected, dir.join("dead-letters"), clock, entropy);
            tasks.push(runtime.spawn(feed.into_sink(handler.clone()).run(source?)));
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
fn produce(task: &Task, push: Push<'_>, first: Timestamp, times: &[AtomicI64]) -> Result<Duration> {
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
        push(turn, &mut messages)?;
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
