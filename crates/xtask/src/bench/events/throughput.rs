//! Measurement of the maximum rate of events, or of latencies at a given rate.

use super::beanstalkd::BeanstalkdQueues;
use super::client;
use super::message_generator::MessageGenerator;
use super::queue::{Progress, QUEUES, Queue, QueueReader};
use super::{Queues, RunOptions, Scenario};
use crate::bench::resource_usage::{cpu_time, load_average, timed};
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

/// The container in the rulesets.
pub(super) const BUCKET: &str = "bench";
/// Number of messages put into a queue at a time, if no rate is given.
const PUSH_BATCH: usize = 32;
/// Lead of the events' clock over the real time, so that no event is older than the handler's initial listing.
const CLOCK_LEAD: Duration = Duration::from_millis(5);
/// Delay from the time of the first event to its delivery. Events are one microsecond apart in their own time, but may be delivered faster than
/// that; the delay keeps their times in the past, as the handler does not trust times in the future.
const DELIVERY_DELAY: Duration = Duration::from_secs(3);

/// A running handler with its views.
pub(super) struct RunningHandler {
    pub(super) handler: Arc<Handler>,
    pub(super) views: Vec<ViewId>,
}

/// The feeds from all queues to a handler.
pub(super) struct Feeds {
    pub(super) queues: Vec<Arc<Queue>>,
    progress: Arc<Progress>,
    tasks: Vec<JoinHandle<()>>,
}

/// The measurements of a run.
struct RunResult {
    time: Duration,
    /// CPU time of this process, with that of the producer if it runs during the measurement.
    cpu: Duration,
    /// CPU time of the producer.
    producer: Duration,
    /// CPU time of the brokers.
    brokers: Duration,
    /// Latencies in ns; `None` if no rate is given.
    latencies: Option<Vec<i64>>,
}

/// Measures and prints the results.
pub(super) fn run(options: &RunOptions) -> Result<()> {
    let runtime = runtime()?;
    let folder = tempfile::tempdir()?;
    let dir = (options.scenario == Scenario::DbMatch).then(|| folder.path().join("state"));
    let running = runtime.block_on(RunningHandler::start(dir.as_deref(), &rulesets(options.rulesets)))?;
    let result = match options.queues {
        Queues::InProcess => measure_in_process(options, &running, folder.path(), &runtime)?,
        Queues::Beanstalkd => measure_beanstalkd(options, &running, folder.path(), &runtime)?,
    };
    report(options, &running, result)
}

fn measure_in_process(
    options: &RunOptions,
    running: &RunningHandler,
    dir: &Path,
    runtime: &Runtime,
) -> Result<RunResult> {
    let feeds = Feeds::start(options, &running.handler, dir, runtime, options.total(), |_| Ok(None))?;
    let first = first_event_time();
    thread::sleep(DELIVERY_DELAY);
    let push = |turn: usize, messages: &mut Vec<(usize, Message)>| {
        feeds.queues[turn % QUEUES].push(messages);
        Ok(())
    };
    let result = measure_while_producing(options, running, &feeds, (first, &push), runtime);
    feeds.stop();
    result
}

/// Measures with nine beanstalkd. Without a rate they are filled first, so that the producer takes no CPU during the measurement. With a rate
/// the producer must run during the measurement.
fn measure_beanstalkd(
    options: &RunOptions,
    running: &RunningHandler,
    dir: &Path,
    runtime: &Runtime,
) -> Result<RunResult> {
    let brokers = BeanstalkdQueues::start()?;
    let push = |turn: usize, messages: &mut Vec<(usize, Message)>| brokers.push(turn, messages);
    let progress = Arc::new(Progress::new(options.total()));
    let first = first_event_time();
    let start = || {
        let sources = (0..QUEUES * options.threads)
            .map(|number| Ok(Box::new(brokers.open_source(number, &progress, runtime)?) as Box<dyn Source>));
        Feeds::start_sources(Vec::new(), progress.clone(), &running.handler, dir, runtime, sources)
    };
    if options.rate > 0 {
        thread::sleep(DELIVERY_DELAY);
        let before = brokers.cpu_time()?;
        let feeds = start()?;
        let result = measure_while_producing(options, running, &feeds, (first, &push), runtime)?;
        feeds.stop();
        return Ok(RunResult { brokers: brokers.cpu_time()? - before, ..result });
    }
    produce(options, &push, first, &[])?;
    brokers.wait_until_stored(options.total())?;
    thread::sleep(DELIVERY_DELAY);
    let (brokers_before, own_before) = (brokers.cpu_time()?, cpu_time(std::process::id())?);
    let (feeds, time) = timed(|| {
        let feeds = start()?;
        runtime.block_on(feeds.wait());
        Ok(feeds)
    })?;
    let (brokers, cpu) = (brokers.cpu_time()? - brokers_before, cpu_time(std::process::id())? - own_before);
    feeds.stop();
    Ok(RunResult { time, cpu, producer: Duration::ZERO, brokers, latencies: None })
}

/// A function that puts messages into one of the queues, chosen round-robin by its first argument.
type Push<'a> = &'a (dyn Fn(usize, &mut Vec<(usize, Message)>) -> Result<()> + Sync);

/// Measures while the events are produced, with latencies if a rate is given.
fn measure_while_producing(
    options: &RunOptions,
    running: &RunningHandler,
    feeds: &Feeds,
    (first, push): (Timestamp, Push<'_>),
    runtime: &Runtime,
) -> Result<RunResult> {
    let pushed: Vec<AtomicI64> =
        (0..if options.rate > 0 { options.total() } else { 0 }).map(|_| AtomicI64::new(0)).collect();
    let pid = std::process::id();
    let cpu_before = cpu_time(pid)?;
    let ((producer, latencies), time) = timed(|| {
        thread::scope(|scope| {
            let producer = scope.spawn(|| produce(options, push, first, &pushed));
            let client = (options.rate > 0)
                .then(|| scope.spawn(|| client::follow(running, &pushed, options.objects(), runtime)));
            runtime.block_on(feeds.wait());
            let producer_cpu = producer.join().ok().context("the producer panicked")??;
            let latencies =
                client.map(|client| client.join().ok().context("the client panicked")?).transpose()?;
            anyhow::Ok((producer_cpu, latencies))
        })
    })?;
    Ok(RunResult { time, cpu: cpu_time(pid)? - cpu_before, producer, brokers: Duration::ZERO, latencies })
}

/// Prints the results, and writes them to the record file if one is given.
fn report(options: &RunOptions, running: &RunningHandler, result: RunResult) -> Result<()> {
    let us_per_event = |cpu: Duration| cpu.as_secs_f64() * 1e6 / options.total() as f64;
    let rate = options.total() as f64 / result.time.as_secs_f64();
    let load = load_average()?;
    println!(
        "{:?} {} {:?} queues, {} rulesets, {} threads per queue: {rate:.0} events/s; CPU per event: {:.2} us, of which producer {:.2} us; \
         brokers {:.2} us; {} events, load average {load}",
        options.scenario,
        options.dialect,
        options.queues,
        options.rulesets,
        options.threads,
        us_per_event(result.cpu),
        us_per_event(result.producer),
        us_per_event(result.brokers),
        options.total(),
    );
    let stats = running.handler.stats();
    println!("  {:?}, {} sets of views", stats.hints, stats.sets);
    let latency = result.latencies.map(client::report);
    if let Some(path) = &options.record {
        let record = serde_json::json!({
            "events": options.total(),
            "seconds": result.time.as_secs_f64(),
            "events_per_second": rate,
            "cpu_us": us_per_event(result.cpu),
            "producer_cpu_us": us_per_event(result.producer),
            "broker_cpu_us": us_per_event(result.brokers),
            "load": load,
            "latency": latency,
        });
        std::fs::write(path, record.to_string()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Makes a runtime with one thread per processor, whatever the number of feeds.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// Returns the time of the first event, if it happens now.
pub(super) fn first_event_time() -> Timestamp {
    SystemClock.now().after(CLOCK_LEAD)
}

impl RunningHandler {
    /// Starts a handler with a view for each ruleset. `dir` is its state directory.
    pub(super) async fn start(dir: Option<&Path>, rulesets: &[Ruleset]) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let buckets = MemoryBuckets::new(Arc::clone(&clock));
        // A handler with stored state must not find objects by listing: without a bucket there is nothing to list.
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
    /// Starts `options.threads` feeds for each queue; each may have a journal.
    pub(super) fn start(
        options: &RunOptions,
        handler: &Arc<Handler>,
        dir: &Path,
        runtime: &Runtime,
        total: usize,
        journal: impl Fn(usize) -> Result<Option<File>>,
    ) -> Result<Self> {
        let queues: Vec<Arc<Queue>> = (0..QUEUES).map(|_| Arc::default()).collect();
        let progress = Arc::new(Progress::new(total));
        let readers = (0..QUEUES * options.threads).map(|number| {
            let reader = QueueReader::new(&queues[number % QUEUES], &progress, journal(number)?);
            Ok(Box::new(reader) as Box<dyn Source>)
        });
        let readers: Vec<_> = readers.collect();
        Self::start_sources(queues, progress.clone(), handler, dir, runtime, readers.into_iter())
    }

    /// Starts a feed for each of these sources.
    fn start_sources(
        queues: Vec<Arc<Queue>>,
        progress: Arc<Progress>,
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
        Ok(Self { queues, progress, tasks })
    }

    /// Waits until all events are acknowledged.
    pub(super) async fn wait(&self) {
        self.progress.wait().await;
    }

    pub(super) fn stop(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Makes rulesets that show every object, of three forms.
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

/// Puts the events into the queues, and stores the times of entry into `times`. Returns the CPU time of this thread.
fn produce(options: &RunOptions, push: Push<'_>, first: Timestamp, times: &[AtomicI64]) -> Result<Duration> {
    let bucket = if options.scenario == Scenario::Raw { "elsewhere" } else { BUCKET };
    let mut generator = MessageGenerator::new(options.dialect, bucket, options.objects(), false, first);
    let batch = if options.rate > 0 { 1 } else { PUSH_BATCH };
    let start = SystemClock.now();
    let mut messages = Vec::with_capacity(batch);
    for (turn, number) in (0..options.total()).step_by(batch).enumerate() {
        if let Some(due_ns) = (number as u64 * 1_000_000_000).checked_div(options.rate) {
            wait_until(start.after(Duration::from_nanos(due_ns)));
        }
        for number in number..(number + batch).min(options.total()) {
            if let Some(time) = times.get(number) {
                time.store(SystemClock.now().0, Ordering::Relaxed);
            }
            messages.push((number, generator.message(number)));
        }
        push(turn, &mut messages)?;
    }
    thread_cpu_time()
}

fn wait_until(due: Timestamp) {
    /// Maximum sleep; about the precision of the kernel's timers.
    const MAX_SLEEP: Duration = Duration::from_micros(50);
    loop {
        let left = due.since(SystemClock.now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(MAX_SLEEP));
    }
}

/// Returns the CPU time that this thread has used (proc(5), `schedstat`).
fn thread_cpu_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse()?))
}
