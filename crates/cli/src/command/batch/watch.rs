//! `tenon batch watch`: shows the progress of a batch until it has ended.
//!
//! On a terminal, a frame replaces the one before. Elsewhere, each interval with a change is one line, of text or of JSON.

use super::target::{Access, Target};
use super::unexpected;
use crate::command::output::print_line;
use crate::command::units::human_bytes;
use crate::control::batch_protocol::{BatchAnswer, BatchDirectory, BatchProgress, BatchRequest, path_text};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use tokio::time::Instant;

/// Bounds of the interval between two frames.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// A volume, its mount point, or the URL of a batch server
    #[arg(value_name = "VOLUME|DIR|URL")]
    of: String,
    /// Id of the batch, as `list` shows it; may be left out if one batch is open
    id: Option<String>,
    /// Time between two updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::command::units::duration)]
    interval: Duration,
    /// Number of directories to show, those with the most bytes first
    #[arg(long, value_name = "N", default_value_t = 10)]
    directories: usize,
    /// Print one JSON object per update
    #[arg(long)]
    json: bool,
}

/// A progress, and when it was received.
struct Sample {
    progress: BatchProgress,
    at: Instant,
}

impl Watch {
    pub(super) fn run(self, access: &Access) -> Result<()> {
        if !INTERVALS.contains(&self.interval) {
            bail!("--interval must be between 100ms and 1h");
        }
        let target = Target::find(&self.of, access)?;
        let redraws = !self.json && io::stdout().is_terminal();
        let mut last = Sample::take(&target, self.id.as_deref(), self.directories)?;
        let id = last.progress.batch.id.clone();
        let mut lines = self.show(&last, None, redraws, 0)?;
        while !has_ended(&last.progress) {
            std::thread::sleep(self.interval);
            let next = Sample::take(&target, Some(&id), self.directories)?;
            if redraws || next.progress != last.progress {
                lines = self.show(&next, Some(&last), redraws, lines)?;
            }
            last = next;
        }
        Ok(())
    }

    /// Shows a sample. On a terminal, replaces the last frame, which had a number of lines. Returns that of the new one.
    fn show(&self, sample: &Sample, before: Option<&Sample>, redraws: bool, lines: usize) -> Result<usize> {
        if self.json {
            print_line(&serde_json::to_string(&sample.progress)?)?;
            return Ok(0);
        }
        let totals = sample.totals(before);
        if !redraws {
            print_line(&totals)?;
            if has_ended(&sample.progress) {
                directory_lines(&sample.progress).iter().try_for_each(|line| print_line(line))?;
            }
            return Ok(0);
        }
        let frame: Vec<String> = [heading(&sample.progress), totals]
            .into_iter()
            .chain(directory_lines(&sample.progress))
            .collect();
        let mut out = io::stdout().lock();
        // To the beginning of the last frame, and clear what is below.
        let back = if lines > 0 { format!("\x1b[{lines}F\x1b[J") } else { String::new() };
        writeln!(out, "{back}{}", frame.join("\n"))
            .and_then(|()| out.flush())
            .context("cannot write the output")?;
        Ok(frame.len())
    }
}

impl Sample {
    fn take(target: &Target, id: Option<&str>, directories: usize) -> Result<Self> {
        match target.ask(BatchRequest::Progress { id: id.map(str::to_owned), directories })? {
            BatchAnswer::Progress { progress } => Ok(Self { progress: *progress, at: Instant::now() }),
            other => unexpected(&other),
        }
    }

    /// Returns the totals as a line, with the rates since an earlier sample.
    fn totals(&self, before: Option<&Self>) -> String {
        let now = &self.progress;
        let secs = before.map(|before| (self.at - before.at).as_secs_f64()).filter(|secs| *secs > 0.0);
        let rate = |count: fn(&BatchProgress) -> u64| {
            let (secs, before) = (secs?, before?);
            Some(count(now).saturating_sub(count(&before.progress)) as f64 / secs)
        };
        let files = rate(|progress| progress.files).map(|rate| format!(" ({rate:.0}/s)")).unwrap_or_default();
        let bytes = rate(|progress| progress.bytes).map(|rate| format!(" ({}/s)", human_bytes(rate as u64)));
        let refused = match now.batch.refused {
            0 => String::new(),
            refused => format!(", {refused} refused"),
        };
        format!(
            "{}: {} changes{refused}; {} files{files}, {} directories, {} removed, {} renames; {} stored{}",
            now.batch.state,
            now.batch.ops,
            now.files,
            now.directories,
            now.removed,
            now.renames,
            human_bytes(now.bytes),
            bytes.unwrap_or_default(),
        )
    }
}

/// Returns whether nothing changes in a batch any more.
fn has_ended(progress: &BatchProgress) -> bool {
    matches!(progress.batch.state.as_str(), "merged" | "expired" | "lost")
}

fn heading(progress: &BatchProgress) -> String {
    let batch = &progress.batch;
    format!("batch {} {}, began {}", batch.id, path_text(batch.path.as_deref()), batch.began)
}

/// Returns one line per directory, and one about those that are not shown.
fn directory_lines(progress: &BatchProgress) -> Vec<String> {
    let line = |dir: &BatchDirectory| {
        let path = path_text(dir.path.as_deref());
        let removed = if dir.removed > 0 { format!("-{}", dir.removed) } else { String::new() };
        format!("{:>12}  {:>9} {removed:<9} {path}", human_bytes(dir.bytes), format!("+{}", dir.added))
    };
    let others = progress.other_directories;
    let others = (others > 0).then(|| format!("{others} other directories"));
    progress.largest.iter().map(line).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::batch_protocol::BatchInfo;

    fn sample(files: u64, bytes: u64, at: Instant) -> Sample {
        let info = r#"{"id":"1","path":"job","began":"","state":"mounted","ops":7}"#;
        let batch: BatchInfo = serde_json::from_str(info).unwrap();
        let dir = BatchDirectory { path: Some("job/out".to_owned()), added: files, removed: 2, bytes };
        let unknown = BatchProgress::unknown(batch);
        let progress = BatchProgress { files, bytes, largest: vec![dir], other_directories: 3, ..unknown };
        Sample { progress, at }
    }

    #[test]
    fn rates_are_those_since_the_last_sample() {
        let begin = Instant::now();
        let (first, second) = (sample(10, 0, begin), sample(30, 4096, begin + Duration::from_secs(2)));
        assert_eq!(
            second.totals(Some(&first)),
            "mounted: 7 changes; 30 files (10/s), 0 directories, 0 removed, 0 renames; 4.00 KiB stored (2.00 KiB/s)"
        );
        assert!(!first.totals(None).contains("/s"));
    }

    #[test]
    fn directories_have_counts_and_sizes() {
        let lines = directory_lines(&sample(30, 4096, Instant::now()).progress);
        assert_eq!(lines, ["    4.00 KiB        +30 -2        /job/out", "3 other directories"]);
    }
}
