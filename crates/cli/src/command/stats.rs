//! `tenon stats`: shows the activity of a mount, one line for each interval.

use crate::command::output::print_line;
use crate::command::samples::{Change, Sample};
use crate::command::units::{self, human_bytes};
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::state::registry::Registry;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Number of lines after which the header is repeated.
const HEADER_INTERVAL: usize = 20;

/// Seconds beyond one interval for which the daemon continues to measure the times of operations after each request for samples.
const MEASURE_MARGIN_SECS: u64 = 5;

/// Show the activity of a mount, one line a second
///
/// Columns show rates per second, and mean times of the interval in milliseconds; memory, pending and writeback are
/// amounts.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// Mount point or volume
    #[arg(value_name = "DIR|VOLUME")]
    of: String,
    /// Columns to show
    #[arg(
        long,
        value_name = "COLUMN,...",
        value_delimiter = ',',
        default_value = "ops,latency,read,write,hits,get,put,store,received,sent,memory,pending"
    )]
    columns: Vec<Column>,
    /// Time between lines
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// Number of lines; 0 shows lines until Ctrl-C
    #[arg(long, value_name = "COUNT", default_value = "0")]
    count: u64,
    /// Print one JSON object per line, with all changes of metrics in the interval
    #[arg(long)]
    json: bool,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Column {
    /// Requests of the kernel
    Ops,
    /// Their mean time in ms
    Latency,
    /// Bytes that programs read
    Read,
    /// Bytes that programs wrote
    Write,
    /// Bytes of reads that were in memory, in percent
    Hits,
    /// Requests of the kernel without a reply so far
    Busy,
    /// Replies with an error
    Errors,
    /// GET requests to the store
    Get,
    /// PUT requests to the store, and parts
    Put,
    /// LIST and HEAD requests to the store
    List,
    /// Mean time of requests to the store in ms
    Store,
    /// Requests to the store that were retries
    Retries,
    /// Bytes received from the store
    Received,
    /// Bytes sent to the store
    Sent,
    /// Requests to the S3 endpoint (with --metrics)
    S3,
    /// Memory that the process uses
    Memory,
    /// Processor time in percent of one processor
    Cpu,
    /// Open files with changes that are not stored
    Pending,
    /// Bytes in the write-back log
    Writeback,
    /// Renames whose objects have not all moved
    Renames,
}

impl Stats {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.interval < Duration::from_millis(100) {
            bail!("--interval must be at least 100ms");
        }
        let mount = Registry::of_user().find(&self.of)?;
        let mut client = Client::connect(&mount)?;
        let measure_secs = self.interval.as_secs() + MEASURE_MARGIN_SECS;
        let mut before = request_sample(&mut client, measure_secs)?;
        let mut lines = 0;
        loop {
            std::thread::sleep(self.interval.saturating_sub(before.at.elapsed()));
            let now = request_sample(&mut client, measure_secs)?;
            let change = Change { before: &before, now: &now };
            if self.json {
                print_line(&to_json(&change))?;
            } else {
                if lines % HEADER_INTERVAL == 0 {
                    print_line(&self.header())?;
                }
                print_line(&self.line(&change))?;
            }
            lines += 1;
            if lines as u64 == self.count {
                return Ok(ExitCode::SUCCESS);
            }
            before = now;
        }
    }

    fn header(&self) -> String {
        let titles = self.columns.iter().map(|column| {
            let name = column.to_possible_value().map(|value| value.get_name().to_owned());
            format!("{:>width$}", name.unwrap_or_default(), width = column.width())
        });
        titles.collect::<Vec<_>>().join(" ")
    }

    fn line(&self, change: &Change<'_>) -> String {
        let mut line = String::new();
        for column in &self.columns {
            let separator = if line.is_empty() { "" } else { " " };
            let text = column.text(change);
            // Writing to a string cannot fail.
            let _ = write!(line, "{separator}{text:>width$}", width = column.width());
        }
        line
    }
}

impl Column {
    /// Returns the width in characters: the longest text of a size is `1023.99 MiB`.
    fn width(self) -> usize {
        match self {
            Self::Read | Self::Write | Self::Received | Self::Sent | Self::Memory | Self::Writeback => 11,
            _ => 8,
        }
    }

    fn text(self, change: &Change<'_>) -> String {
        let rate = |name: &str| change.per_sec(name, &[]);
        let store = |kinds: &[&str]| {
            let of = |kind: &&str| change.per_sec("tenon_store_requests_total", &[("operation", *kind)]);
            count(kinds.iter().map(of).sum())
        };
        match self {
            Self::Ops => count(rate("tenon_fuse_operations_total")),
            Self::Latency => millis(change.mean_ms("tenon_fuse_operation_duration_seconds", &[])),
            Self::Read => bytes(rate("tenon_fuse_read_bytes_total")),
            Self::Write => bytes(rate("tenon_fuse_written_bytes_total")),
            Self::Hits => {
                let hits = rate("tenon_read_cache_hit_bytes_total");
                percent(hits, hits + rate("tenon_read_cache_missed_bytes_total"))
            }
            Self::Busy => count(change.now.sum("tenon_fuse_operations_in_progress", &[])),
            Self::Errors => count(rate("tenon_fuse_errors_total")),
            Self::Get => store(&["GET"]),
            Self::Put => store(&["PUT", "PART"]),
            Self::List => store(&["LIST", "HEAD"]),
            Self::Store => millis(change.mean_ms("tenon_store_request_duration_seconds", &[])),
            Self::Retries => count(rate("tenon_store_retries_total")),
            Self::Received => bytes(rate("tenon_store_received_bytes_total")),
            Self::Sent => bytes(rate("tenon_store_sent_bytes_total")),
            Self::S3 => count(rate("tenon_s3_requests_total")),
            Self::Memory => bytes(change.now.sum("process_resident_memory_bytes", &[])),
            Self::Cpu => percent(rate("process_cpu_seconds_total"), 1.0),
            Self::Pending => count(change.now.sum("tenon_dirty_files", &[])),
            Self::Writeback => bytes(change.now.sum("tenon_writeback_bytes", &[])),
            Self::Renames => count(change.now.sum("tenon_renames_unfinished", &[])),
        }
    }
}

/// Formats a count or a rate: a small one that is not a whole number with one decimal place.
pub(super) fn count(value: f64) -> String {
    if value > 0.0 && value < 10.0 && value.fract() > 0.05 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Formats a time in milliseconds; `-` if there is none.
pub(super) fn millis(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// Formats a number of bytes with a unit.
pub(super) fn bytes(value: f64) -> String {
    human_bytes(value as u64)
}

/// Formats a part as a percentage of the whole; `-` if the whole is 0.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0}%", 100.0 * part / whole) } else { "-".to_owned() }
}

/// Requests the samples of all metrics.
fn request_sample(client: &mut Client, measure_secs: u64) -> Result<Sample> {
    match client.ask(&Request::Metrics { measure_secs }, |_| {})? {
        Answer::Metrics { samples } => Ok(Sample { at: Instant::now(), values: samples }),
        other => client.unexpected(&other),
    }
}

/// Returns what has changed as JSON: of counters and histograms the difference, of other metrics the new value.
fn to_json(change: &Change<'_>) -> String {
    let only_grows = |name: &str| {
        let name = name.split('{').next().unwrap_or_default();
        ["_total", "_sum", "_count", "_bucket"].iter().any(|end| name.ends_with(end))
    };
    let mut changes = BTreeMap::new();
    for (name, now) in &change.now.values {
        let before = change.before.values.get(name).copied();
        match only_grows(name) {
            true if *now != before.unwrap_or(0.0) => {
                changes.insert(name, now - before.unwrap_or(0.0));
            }
            false if before != Some(*now) => {
                changes.insert(name, *now);
            }
            _ => {}
        }
    }
    serde_json::json!({ "seconds": change.secs(), "changes": changes }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_json_have_what_changed() {
        let sample = |count: f64, size: f64, at| Sample {
            at,
            values: [("t_count".to_owned(), count), ("size".to_owned(), size), ("same".to_owned(), 1.0)]
                .into(),
        };
        let at = Instant::now();
        let (before, now) = (sample(10.0, 5.0, at), sample(20.0, 7.0, at + Duration::from_secs(2)));
        let json: serde_json::Value =
            serde_json::from_str(&to_json(&Change { before: &before, now: &now })).unwrap();
        assert_eq!(json["changes"], serde_json::json!({ "t_count": 10.0, "size": 7.0 }));
        assert_eq!(json["seconds"], 2.0);
    }

    #[test]
    fn small_rates_have_a_fraction() {
        assert_eq!([0.0, 0.5, 2.0, 12.7].map(count), ["0", "0.5", "2", "13"]);
        assert_eq!((percent(1.0, 4.0), percent(0.0, 0.0)), ("25%".to_owned(), "-".to_owned()));
    }
}
