//! Scrubs: at a limited rate, by the process that has the drive open, and what is printed of them.

use crate::command::drive::EXIT_DAMAGED;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request, Scrubbed};
use crate::control::server::Replies;
use crate::drives::Drives;
use crate::held;
use crate::progress::Progress;
use anyhow::{Result, bail};
use drive::{Drive, Pace};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes to read per second of a drive that is served, unless the user says.
pub(crate) const SERVED_BYTES_PER_SEC: u64 = 64 << 20;

/// The asker hears of the progress so often. If it has gone, the scrub ends.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// A limit on bytes per second.
pub(crate) struct Rate {
    bytes_per_sec: Option<u64>,
    begun: Instant,
    done_bytes: AtomicU64,
}

impl Rate {
    /// `None` is no limit.
    pub(crate) fn new(bytes_per_sec: Option<u64>) -> Self {
        Self { bytes_per_sec, begun: Instant::now(), done_bytes: AtomicU64::new(0) }
    }

    /// How long so many bytes take at least.
    fn time_of(&self, bytes: u64) -> Duration {
        let bytes_per_sec = self.bytes_per_sec.unwrap_or(u64::MAX).max(1);
        Duration::from_secs_f64(bytes as f64 / bytes_per_sec as f64)
    }
}

#[async_trait::async_trait]
impl Pace for Rate {
    async fn after(&self, bytes: u64) {
        let done_bytes = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        tokio::time::sleep_until(self.begun + self.time_of(done_bytes)).await;
    }
}

/// Has the process scrub that has one of the drives open; `None` if there is none.
pub(crate) fn ask(drives: &Drives, rate: Option<u64>) -> Result<Option<ExitCode>> {
    let Some(mount) = drives.each().find_map(held::holder_of) else { return Ok(None) };
    let progress = Progress::start();
    let tell = |answer: &Answer| tell_objects(answer, &progress);
    let request = Request::Scrub { bytes_per_sec: Some(rate.unwrap_or(SERVED_BYTES_PER_SEC)) };
    let mut client = Client::connect(&mount)?;
    let scrubbed = match client.ask_long(&request, tell)? {
        Answer::Scrubbed { drives } => drives,
        other => return client.unexpected(&other),
    };
    drop(progress);
    let mut code = ExitCode::SUCCESS;
    for of_one in scrubbed {
        if show_told(&of_one) != ExitCode::SUCCESS {
            code = ExitCode::from(EXIT_DAMAGED);
        }
    }
    Ok(Some(code))
}

/// Shows how many objects were read. Returns whether the answer said so.
pub(crate) fn tell_objects(answer: &Answer, progress: &Progress) -> bool {
    let Answer::Scrubbing { objects } = answer else { return false };
    progress.tell(&format!("{objects} objects read"));
    true
}

/// Scrubs drives for somebody who asked by the control socket.
pub(crate) async fn answer(drives: Vec<Drive>, bytes_per_sec: Option<u64>, replies: &mut Replies) -> Answer {
    if drives.is_empty() {
        return Answer::Failed { reason: "the process has no drive open".into() };
    }
    let (rate, mut outcomes) = (Rate::new(bytes_per_sec), Vec::new());
    for drive in drives {
        match scrub_told(&drive, &rate, replies).await {
            Ok(scrubbed) => outcomes.push(scrubbed),
            Err(error) => return Answer::Failed { reason: format!("the scrub ended: {error:#}") },
        }
    }
    Answer::Scrubbed { drives: outcomes }
}

/// Scrubs a drive, and tells the asker of the progress. Ends when the asker has gone.
pub(crate) async fn scrub_told(drive: &Drive, rate: &Rate, replies: &mut Replies) -> Result<Scrubbed> {
    let objects = AtomicU64::new(0);
    let note = |so_far: &drive::Scrubbed| objects.store(so_far.objects, Ordering::Relaxed);
    let scrub = drive.scrub_at(rate, note);
    let scrubbed =
        told_until(scrub, replies, || Answer::Scrubbing { objects: objects.load(Ordering::Relaxed) });
    Ok(told(&scrubbed.await??))
}

/// Awaits work, and tells the asker of its progress again and again. An error when the asker has gone.
pub(crate) async fn told_until<T>(
    work: impl Future<Output = T>,
    replies: &mut Replies,
    progress: impl Fn() -> Answer,
) -> Result<T> {
    let mut work = pin!(work);
    let mut every = tokio::time::interval(TELL_EVERY);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            _ = every.tick() => {
                if !replies.reaches(&progress()).await {
                    bail!("nobody waits for it any more");
                }
            }
        }
    }
}

fn told(scrubbed: &drive::Scrubbed) -> Scrubbed {
    let drive::Scrubbed { objects, bytes, mended, damaged } = scrubbed.clone();
    Scrubbed { objects, bytes, mended, damaged }
}

/// Prints what a scrub found. Returns the exit code.
pub(crate) fn show(scrubbed: &drive::Scrubbed) -> ExitCode {
    show_told(&told(scrubbed))
}

/// Prints what a scrub by another process found. Returns the exit code.
pub(crate) fn show_told(Scrubbed { objects, bytes, mended, damaged }: &Scrubbed) -> ExitCode {
    damaged.iter().for_each(|line| println!("{line}"));
    if *mended > 0 {
        println!("{mended} blocks of a device were damaged, and were written anew from the others");
    }
    println!("{objects} objects, {} MiB read, {} damaged", bytes >> 20, damaged.len());
    if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept_over_all_steps_and_none_is_no_limit() {
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
