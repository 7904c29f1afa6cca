//! A client that polls the changes of a view, and the latencies of events until the client receives them.

use super::message_generator;
use super::throughput::RunningHandler;
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;
use store::{Clock, SystemClock};
use tokio::runtime::Runtime;
use views::Views;

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Follows a view until all events are seen. Returns for each event the time in ns from its entry into the queue until the client received it or
/// a later event of the same object.
pub(super) fn follow(
    running: &RunningHandler,
    pushed: &[AtomicI64],
    objects: usize,
    runtime: &Runtime,
) -> Result<Vec<i64>> {
    let mut latencies = Vec::with_capacity(pushed.len());
    // For each object the number of its next event.
    let mut next: Vec<usize> = (0..objects).collect();
    let mut cursor = None;
    while latencies.len() < pushed.len() {
        let changes =
            runtime.block_on(running.handler.changes(running.views[0], cursor.as_ref(), 1 << 20))?;
        let now = SystemClock.now().0;
        for shown in &changes.shown {
            let number = message_generator::event_number(shown.unpack().etag.as_str())
                .context("a view shows an object without event")?;
            let next = &mut next[number % objects];
            while *next <= number {
                latencies.push(now - pushed[*next].load(Ordering::Relaxed));
                *next += objects;
            }
        }
        cursor = Some(changes.cursor);
        thread::sleep(POLL_INTERVAL);
    }
    Ok(latencies)
}

/// Upper ends of the buckets of the paper's Figures 4 and 5, in microseconds. Another bucket holds longer latencies.
pub(super) const BUCKETS_US: [i64; 12] =
    [100, 200, 300, 400, 500, 750, 1000, 2000, 5000, 10_000, 20_000, 30_000];

/// Prints the distribution of latencies and returns it as JSON.
pub(super) fn report(mut latencies: Vec<i64>) -> serde_json::Value {
    latencies.sort_unstable();
    let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] / 1000;
    let percent_below = |micros: i64| {
        100.0 * latencies.partition_point(|latency| *latency < micros * 1000) as f64 / latencies.len() as f64
    };
    println!(
        "  from the queue to a client: p50 {} us, p90 {}, p99 {}, p99.9 {}, max {}; {:.3} % under 300 us, {:.3} % under 400 us",
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0),
        percent_below(300),
        percent_below(400),
    );
    let ends = BUCKETS_US.iter().map(|end| percent_below(*end)).chain([100.0]);
    let shares: Vec<f64> = ends.scan(0.0, |before, end| Some(end - std::mem::replace(before, end))).collect();
    serde_json::json!({
        "p50_us": quantile(0.5),
        "p90_us": quantile(0.9),
        "p99_us": quantile(0.99),
        "p99_9_us": quantile(0.999),
        "max_us": quantile(1.0),
        "percent_below_300_us": percent_below(300),
        "percent_below_400_us": percent_below(400),
        "bucket_ends_us": BUCKETS_US,
        "percent_in_buckets": shares,
    })
}
