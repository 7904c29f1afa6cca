//! A client that asks again and again what changed in a view, and how long events took until it was told.

use super::message_generator;
use super::throughput::Handling;
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;
use store::{Clock, SystemClock};
use tokio::runtime::Runtime;
use views::Views;

/// Between two questions.
const PAUSE: Duration = Duration::from_micros(50);

/// Follows a view; the time from when each event was put into its queue until it, or a later one of its object, was told, in ns.
pub(super) fn follow(
    handling: &Handling,
    begun: &[AtomicI64],
    objects: usize,
    runtime: &Runtime,
) -> Result<Vec<i64>> {
    let mut latencies = Vec::with_capacity(begun.len());
    let mut next: Vec<usize> = (0..objects).collect();
    let mut cursor = None;
    while latencies.len() < begun.len() {
        let changes =
            runtime.block_on(handling.handler.changes(handling.views[0], cursor.as_ref(), 1 << 20))?;
        let now = SystemClock.now().0;
        for shown in &changes.shown {
            let number =
                message_generator::number(shown.etag.as_str()).context("an object that nobody told of")?;
            let next = &mut next[number % objects];
            while *next <= number {
                latencies.push(now - begun[*next].load(Ordering::Relaxed));
                *next += objects;
            }
        }
        cursor = Some(changes.cursor);
        thread::sleep(PAUSE);
    }
    Ok(latencies)
}

/// Upper ends of the buckets of the paper's Figures 4 and 5, in microseconds; what is above the last is in one more.
pub(super) const BUCKETS_US: [i64; 12] =
    [100, 200, 300, 400, 500, 750, 1000, 2000, 5000, 10_000, 20_000, 30_000];

/// Says how they are spread; the same as a record.
pub(super) fn report(mut latencies: Vec<i64>) -> serde_json::Value {
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] / 1000;
    let below = |micros: i64| {
        100.0 * latencies.partition_point(|latency| *latency < micros * 1000) as f64 / latencies.len() as f64
    };
    println!(
        "  from the queue to a client: p50 {} us, p90 {}, p99 {}, p99.9 {}, most {}; {:.3} % under 300 us, {:.3} % under 400 us",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
        below(300),
        below(400),
    );
    let ends = BUCKETS_US.iter().map(|end| below(*end)).chain([100.0]);
    let shares: Vec<f64> = ends.scan(0.0, |before, end| Some(end - std::mem::replace(before, end))).collect();
    serde_json::json!({
        "p50_us": at(0.5),
        "p90_us": at(0.9),
        "p99_us": at(0.99),
        "p99_9_us": at(0.999),
        "max_us": at(1.0),
        "percent_below_300_us": below(300),
        "percent_below_400_us": below(400),
        "bucket_ends_us": BUCKETS_US,
        "percent_in_buckets": shares,
    })
}
