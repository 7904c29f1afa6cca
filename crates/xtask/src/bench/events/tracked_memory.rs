//! Memory of the handler for tracked objects.

use super::throughput::{BUCKET, RunningHandler, first_event_time, runtime};
use crate::bench::resource_usage::{resident_bytes, timed};
use anyhow::{Result, ensure};
use events::{ChangeKind, Hint, ObjectDescription, Order, Sink as _};
use std::borrow::Cow;
use store::Timestamp;

/// Number of hints that a feed passes on at a time.
const BATCH: usize = 512;

/// Feeds events of objects with keys of 60 bytes and no properties to a handler, and prints its memory.
pub(super) fn run(objects: usize) -> Result<()> {
    let runtime = runtime()?;
    let ruleset = views::read(&format!("all:\n  container: {BUCKET}\n")).unwrap_or_default();
    let running = runtime.block_on(RunningHandler::start(None, &ruleset))?;
    let (before, first) = (resident_bytes(std::process::id())?, first_event_time());
    let ((), time) = timed(|| {
        (0..objects).step_by(BATCH).try_for_each(|from| {
            let names: Vec<_> = (from..(from + BATCH).min(objects)).map(key_and_etag).collect();
            let hints: Vec<_> =
                (from as u64..).zip(&names).map(|(number, name)| hint(name, first, number)).collect();
            Ok(runtime.block_on(running.handler.take(&hints))?)
        })
    })?;
    let stats = running.handler.stats();
    ensure!(stats.objects == objects, "the handler tracks {} objects instead of {objects}", stats.objects);
    let resident = resident_bytes(std::process::id())? - before;
    println!(
        "{objects} objects: {:.2} GiB resident, {} bytes per object, {} by the handler's own count; {:.0} s",
        resident as f64 / f64::from(1 << 30),
        resident / objects as u64,
        stats.memory_bytes / objects,
        time.as_secs_f64(),
    );
    Ok(())
}

/// Returns key and etag of an object.
fn key_and_etag(number: usize) -> (String, String) {
    (format!("tenant-0042/project-17/2026/11/22/run-03/part-{number:08}.fastq"), format!("{number:032x}"))
}

fn hint((key, etag): &(String, String), begun: Timestamp, number: u64) -> Hint<'_> {
    Hint {
        bucket: Cow::Borrowed(BUCKET),
        key: Cow::Borrowed(key.as_bytes()),
        kind: ChangeKind::Stored,
        order: Some(Order(begun.0 as u128 + u128::from(number))),
        time: Some(begun),
        object: ObjectDescription {
            size_bytes: Some(1),
            etag: Some(Cow::Borrowed(etag)),
            ..ObjectDescription::default()
        },
    }
}
