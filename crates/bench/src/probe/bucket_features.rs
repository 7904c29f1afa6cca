//! Features that need a second client of the bucket: what other programs see, and what a rename costs.

use super::Finding;
use crate::raw_client::{Bucket, Call};
use harness::{RequestKind, Stopwatch, Traffic};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Interval at which a change of the other side is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Tries what the two sides of a bucket see of each other. `traffic` reads the counters of the proxy.
pub(crate) fn probe_bucket(
    root: &Path,
    bucket: &Bucket,
    traffic: &dyn Fn() -> Option<Traffic>,
    limit: Duration,
    runtime: &Runtime,
) -> Vec<Finding> {
    vec![
        Finding::of("object visible after close", visible_after_close(root, bucket, limit, runtime)),
        Finding::of("foreign object visible", foreign_visible(root, bucket, limit, runtime)),
        Finding::of("rename copies no object", rename_without_copy(root, traffic)),
        Finding::of("metadata of others survives an edit", metadata_survives(root, bucket, limit, runtime)),
    ]
}

fn visible_after_close(
    root: &Path,
    bucket: &Bucket,
    limit: Duration,
    runtime: &Runtime,
) -> Result<String, String> {
    fs::write(root.join("visible"), "hello").map_err(|error| error.to_string())?;
    wait_for(limit, || {
        let sizes = runtime.block_on(bucket.sizes("visible")).unwrap_or_default();
        sizes.get("visible") == Some(&5)
    })
}

fn foreign_visible(
    root: &Path,
    bucket: &Bucket,
    limit: Duration,
    runtime: &Runtime,
) -> Result<String, String> {
    // The directory is listed before, so that a cache of names has something to be wrong about.
    let is_listed = || {
        let listed =
            fs::read_dir(root).map(|entries| entries.flatten().any(|entry| entry.file_name() == "foreign"));
        listed.unwrap_or(false)
    };
    is_listed();
    runtime.block_on(bucket.call_one(Call::Put, "foreign")).map_err(|error| error.to_string())?;
    wait_for(limit, is_listed)
}

fn rename_without_copy(root: &Path, traffic: &dyn Fn() -> Option<Traffic>) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    fs::write(root.join("before"), vec![b'a'; 1 << 20]).map_err(text)?;
    let Some(start) = traffic() else { return Err("no proxy counts requests".to_owned()) };
    fs::rename(root.join("before"), root.join("after")).map_err(text)?;
    let Some(end) = traffic() else { return Err("no proxy counts requests".to_owned()) };
    let requests = end.since(&start).requests;
    let copies: u64 = [RequestKind::Copy, RequestKind::Put, RequestKind::Part]
        .into_iter()
        .filter_map(|kind| requests.get(&kind))
        .sum();
    match copies {
        0 => Ok(String::new()),
        count => Err(format!("{count} requests that store or copy an object")),
    }
}

/// Another client's object is appended to as a file: its user metadata must be on the new object.
fn metadata_survives(
    root: &Path,
    bucket: &Bucket,
    limit: Duration,
    runtime: &Runtime,
) -> Result<String, String> {
    const NAME: &str = "described";
    let metadata = [("colour".to_owned(), "green".to_owned())];
    let put = bucket.put_described(NAME, b"one", metadata.clone().into());
    runtime.block_on(put).map_err(|error| error.to_string())?;
    wait_for(limit, || root.join(NAME).exists())?;
    let opened = fs::OpenOptions::new().append(true).open(root.join(NAME));
    let edited = opened.and_then(|mut file| file.write_all(b"two"));
    edited.map_err(|error| error.to_string())?;
    let described = || runtime.block_on(bucket.described(NAME)).ok();
    wait_for(limit, || described().is_some_and(|(size_bytes, _)| size_bytes == 6))?;
    match described() {
        Some((_, found)) if found.get("colour") == Some(&metadata[0].1) => Ok(String::new()),
        _ => Err("it is lost".to_owned()),
    }
}

fn wait_for(limit: Duration, mut is_true: impl FnMut() -> bool) -> Result<String, String> {
    let waiting = Stopwatch::start();
    while !is_true() {
        if waiting.elapsed() >= limit {
            return Err(format!("not within {} s", limit.as_secs()));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(format!("after {:.2} s", waiting.elapsed().as_secs_f64()))
}
