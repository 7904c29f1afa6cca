//! Answers requests about the drives that this process has open: scrubs, and rebuilds of devices. The process continues to serve the drives.

use crate::bucket::devices;
use crate::control::protocol::{Answer, Rebuild, Scrubbed};
use crate::control::server::Replies;
use crate::process::context::ProcessContext;
use anyhow::{Context, Result, bail};
use drive::device::{FileDevice, Io};
use drive::{Drive, Pace};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of progress messages to the client. If a message cannot be sent, the work ends.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A limit on bytes per second.
pub(crate) struct Rate {
    bytes_per_sec: Option<u64>,
    begun: Instant,
    done_bytes: AtomicU64,
}

impl Rate {
    /// Returns a rate limit; `None` is no limit.
    pub(crate) fn new(bytes_per_sec: Option<u64>) -> Self {
        Self { bytes_per_sec, begun: Instant::now(), done_bytes: AtomicU64::new(0) }
    }

    /// Returns the minimum time for this many bytes; next to none without a limit.
    fn min_time(&self, bytes: u64) -> Duration {
        let bytes_per_sec = self.bytes_per_sec.unwrap_or(u64::MAX).max(1);
        Duration::from_secs_f64(bytes as f64 / bytes_per_sec as f64)
    }
}

#[async_trait::async_trait]
impl Pace for Rate {
    async fn after(&self, bytes: u64) {
        let done_bytes = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        tokio::time::sleep_until(self.begun + self.min_time(done_bytes)).await;
    }
}

/// Scrubs drives for a client of the control socket.
pub(crate) async fn serve_scrub(
    drives: Vec<Drive>,
    bytes_per_sec: Option<u64>,
    replies: &mut Replies,
) -> Answer {
    if drives.is_empty() {
        return Answer::Failed { reason: "the process has no drive open".into() };
    }
    let rate = Rate::new(bytes_per_sec);
    match scrub_with_progress(&drives, &rate, replies).await {
        Ok(drives) => Answer::Scrubbed { drives },
        Err(error) => Answer::Failed { reason: format!("the scrub failed: {error:#}") },
    }
}

/// Scrubs drives, and sends progress to the client. Ends when the client has disconnected.
async fn scrub_with_progress(drives: &[Drive], rate: &Rate, replies: &mut Replies) -> Result<Vec<Scrubbed>> {
    let objects = AtomicU64::new(0);
    let progress = || Answer::Scrubbing { objects: objects.load(Ordering::Relaxed) };
    send_progress_until(scrub(drives, rate, &objects), replies, progress).await?
}

/// Scrubs drives, one after another, and counts the objects that were read so far.
pub(crate) async fn scrub(drives: &[Drive], rate: &Rate, objects: &AtomicU64) -> Result<Vec<Scrubbed>> {
    let mut outcomes = Vec::new();
    for drive in drives {
        let before = objects.load(Ordering::Relaxed);
        let note = |so_far: &drive::Scrubbed| objects.store(before + so_far.objects, Ordering::Relaxed);
        outcomes.push(Scrubbed::from(drive.scrub_at(rate, note).await?));
    }
    Ok(outcomes)
}

/// Awaits `work`, and sends its progress to the client at intervals. Returns an error when the client has
/// disconnected.
async fn send_progress_until<T>(
    work: impl Future<Output = T>,
    replies: &mut Replies,
    progress: impl Fn() -> Answer,
) -> Result<T> {
    let mut work = pin!(work);
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            _ = ticks.tick() => {
                if !replies.try_send(&progress()).await {
                    bail!("the client has disconnected");
                }
            }
        }
    }
}

/// Rebuilds a device for a client of the control socket.
pub(crate) async fn serve_rebuild(drives: Vec<Drive>, wanted: Rebuild, replies: &mut Replies) -> Answer {
    match rebuild(&drives, wanted, replies).await {
        Ok(answer) => answer,
        Err(error) => Answer::Failed { reason: format!("{error:#}") },
    }
}

/// Rebuilds a device of the array to which the named devices belong, after a scrub if the array can lose another device.
async fn rebuild(drives: &[Drive], wanted: Rebuild, replies: &mut Replies) -> Result<Answer> {
    let arrays = drives.iter().filter_map(|drive| Some((drive, drive.array()?)));
    let mut arrays = arrays.filter(|(_, array)| wanted.devices.iter().any(|name| array.has_member(name)));
    let (drive, array) = arrays.next().context(
        "the process serves no drive on an array of these devices; `tenon status` shows what it serves",
    )?;
    let path =
        store::unhex(&wanted.device_hex).context("the device's path in the request is not hexadecimal")?;
    let path = PathBuf::from(OsString::from_vec(path));
    let name = path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string();
    if array.has_member(&name) {
        bail!("{name} is in sync: there is nothing to rebuild");
    }
    let (device, is_blank) = tokio::task::spawn_blocking(move || {
        let device = FileDevice::open(&path)?;
        let is_blank = devices::is_blank(&device)?;
        anyhow::Ok((Io::open(device), is_blank))
    })
    .await??;
    if !wanted.force && !is_blank && !array.was_member(&device) {
        bail!("{name} is not empty; --force rebuilds the drive on it, and its contents are lost");
    }
    let rate = Rate::new(wanted.bytes_per_sec);
    let scrubbed = match array.losses_left() > 0 && !wanted.no_scrub {
        true => scrub_with_progress(std::slice::from_ref(drive), &rate, replies).await?.pop(),
        false => None,
    };
    let (percent, entropy) = (AtomicU64::new(0), ProcessContext::system()?.entropy);
    let note = |done: u64, all: u64| percent.store(done * 100 / all, Ordering::Relaxed);
    let work = array.rebuild_in_use(name, &device, &entropy, &rate, note);
    let progress = || Answer::Rebuilding { percent: percent.load(Ordering::Relaxed) };
    let rebuilt = send_progress_until(work, replies, progress).await??;
    Ok(Answer::Rebuilt { scrubbed, member: rebuilt.member, rows_lost: rebuilt.rows_lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_holds_over_all_steps_and_none_is_no_limit() {
        let rate = Rate::new(Some(1000));
        let begun = Instant::now();
        for _ in 0..10 {
            rate.after(500).await;
        }
        assert_eq!(begun.elapsed().as_secs(), 5);
        Rate::new(None).after(u64::MAX / 4).await;
        assert_eq!(begun.elapsed().as_secs(), 5);
    }
}
