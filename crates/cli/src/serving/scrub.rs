//! Scrubs: limited in rate, done by the process that has the drive open, and printed.

use crate::bucket::drive_holder;
use crate::bucket::drives::Drives;
use crate::command::drive::EXIT_DAMAGED;
use crate::command::progress::Progress;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request, Scrubbed};
use crate::control::server::Replies;
use anyhow::{Result, bail};
use drive::{Drive, Pace};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Default rate of reading a drive that is served, in bytes per second.
pub(crate) const SERVED_BYTES_PER_SEC: u64 = 64 << 20;

/// Interval of progress messages to the client. If a message cannot be sent, the scrub ends.
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

    /// Returns the minimum time for this many bytes.
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

/// Asks the process that has one of the drives open to scrub. Returns `None` if there is no such process.
pub(crate) fn request_scrub(drives: &Drives, rate: Option<u64>) -> Result<Option<ExitCode>> {
    let Some(mount) = drives.each().find_map(drive_holder::holder_of_devices) else { return Ok(None) };
    let progress = Progress::start();
    let show = |answer: &Answer| show_objects(answer, &progress);
    let request = Request::Scrub { bytes_per_sec: Some(rate.unwrap_or(SERVED_BYTES_PER_SEC)) };
    let mut client = Client::connect(&mount)?;
    let scrubbed = match client.request_with_progress(&request, show)? {
        Answer::Scrubbed { drives } => drives,
        other => return client.unexpected(&other),
    };
    drop(progress);
    let mut code = ExitCode::SUCCESS;
    for of_one in scrubbed {
        if print_outcome(&of_one) != ExitCode::SUCCESS {
            code = ExitCode::from(EXIT_DAMAGED);
        }
    }
    Ok(Some(code))
}

/// Shows how many objects were read. Returns whether the answer was such a progress message.
pub(crate) fn show_objects(answer: &Answer, progress: &Progress) -> bool {
    let Answer::Scrubbing { objects } = answer else { return false };
    progress.show(&format!("{objects} objects read"));
    true
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
    let (rate, mut outcomes) = (Rate::new(bytes_per_sec), Vec::new());
    for drive in drives {
        match scrub_with_progress(&drive, &rate, replies).await {
            Ok(scrubbed) => outcomes.push(scrubbed),
            Err(error) => return Answer::Failed { reason: format!("the scrub failed: {error:#}") },
        }
    }
    Answer::Scrubbed { drives: outcomes }
}

/// Scrubs a drive, and sends progress to the client. Ends when the client has disconnected.
pub(crate) async fn scrub_with_progress(
    drive: &Drive,
    rate: &Rate,
    replies: &mut Replies,
) -> Result<Scrubbed> {
    let objects = AtomicU64::new(0);
    let note = |so_far: &drive::Scrubbed| objects.store(so_far.objects, Ordering::Relaxed);
    let scrub = drive.scrub_at(rate, note);
    let scrubbed = send_progress_until(scrub, replies, || Answer::Scrubbing {
        objects: objects.load(Ordering::Relaxed),
    });
    Ok(to_protocol(&scrubbed.await??))
}

/// Awaits `work`, and sends its progress to the client at intervals. Returns an error when the client has
/// disconnected.
pub(crate) async fn send_progress_until<T>(
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

fn to_protocol(scrubbed: &drive::Scrubbed) -> Scrubbed {
    let drive::Scrubbed { objects, bytes, mended, damaged } = scrubbed.clone();
    Scrubbed { objects, bytes, mended, damaged }
}

/// Prints the outcome of a scrub of this process. Returns the exit code.
pub(crate) fn print_scrubbed(scrubbed: &drive::Scrubbed) -> ExitCode {
    print_outcome(&to_protocol(scrubbed))
}

/// Prints the outcome of a scrub, perhaps of another process. Returns the exit code.
pub(crate) fn print_outcome(Scrubbed { objects, bytes, mended, damaged }: &Scrubbed) -> ExitCode {
    damaged.iter().for_each(|line| println!("{line}"));
    if *mended > 0 {
        println!("{mended} damaged blocks of a device were rewritten from the other devices");
    }
    println!("{objects} objects, {} MiB read, {} damaged", bytes >> 20, damaged.len());
    if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) }
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
