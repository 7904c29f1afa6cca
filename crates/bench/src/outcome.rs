//! Outcomes of cells: a measurement, or the failure that forbids one.
//!
//! Invariant: a failure has no rate.

use crate::workload::Unit;
use harness::{Histogram, Traffic};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The outcome of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every byte was right.
    Measured(Measurement),
    /// There is no rate.
    Failed(Failure),
}

/// The measurement of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Number of files.
    pub files: u64,
    /// Bytes that the job moved.
    pub bytes: u64,
    /// Number of operations.
    pub operations: u64,
    /// Durations of the operations, as far as they were measured one by one.
    pub latency: Option<Histogram>,
    /// Times.
    pub clocks: Clocks,
    /// CPU time of the package, from the mount to the unmount; `None` without control groups.
    pub cpu_seconds: Option<f64>,
    /// CPU time of the server, if the testbed started it.
    pub server_cpu_seconds: Option<f64>,
    /// Maximum memory of the package, its page cache included; `None` if it was not measured.
    pub memory_peak_bytes: Option<u64>,
    /// Requests and bytes between package and store, from the mount to the unmount; `None` without a proxy.
    pub traffic: Option<Traffic>,
}

/// The times of a job, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Clocks {
    /// Mount.
    pub mount: f64,
    /// From the first open to the last close.
    pub job: f64,
    /// `syncfs` after the last close.
    pub sync: f64,
    /// Unmount, until the last process of the package has ended.
    pub unmount: f64,
    /// From the first open until a second client can have every byte; `None` for a job that reads.
    pub durable: Option<f64>,
}

/// A clock that gives a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The job alone: a write ends when the last file is closed.
    Acknowledged,
    /// The job alone: a write ends when a second client can have every byte.
    Durable,
    /// The paper's: mount, job, sync and unmount.
    Paper,
}

/// Where files were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the mount that ran the job.
    Mount,
    /// In the bucket, by a second client.
    Bucket,
    /// In a second mount.
    SecondMount,
}

/// A phase of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Formatting the bucket.
    Format,
    /// Mount.
    Mount,
    /// Job.
    Job,
    /// `syncfs`.
    Sync,
    /// Unmount.
    Unmount,
    /// Comparison by a second client.
    Comparison,
}

/// The reason why there is no rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Failure {
    /// The package cannot be had on this machine.
    Unavailable {
        /// Why, and how to get it.
        reason: String,
    },
    /// The package, or the way to reach its files, cannot do the job.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// A command of the package failed.
    Command {
        /// Phase.
        phase: Phase,
        /// The last lines of its output, without secrets.
        reason: String,
    },
    /// A phase did not end in time.
    Hung {
        /// Phase.
        phase: Phase,
        /// Time limit.
        seconds: f64,
    },
    /// The package's process ended during a phase.
    Died {
        /// Phase.
        phase: Phase,
    },
    /// A file has wrong bytes.
    WrongBytes {
        /// Where.
        place: Place,
        /// Path of the file.
        file: String,
        /// Offset of the block that differs.
        offset: u64,
    },
    /// A file has another size.
    WrongSize {
        /// Where.
        place: Place,
        /// Path of the file.
        file: String,
        /// Size found.
        found_bytes: u64,
        /// Size written.
        expected_bytes: u64,
    },
    /// Files do not exist.
    Missing {
        /// Where.
        place: Place,
        /// Path of the first.
        file: String,
        /// Number of missing files.
        count: u64,
    },
    /// Files exist that were renamed or removed.
    LeftOver {
        /// Where.
        place: Place,
        /// Path of the first.
        file: String,
        /// Number of such files.
        count: u64,
    },
    /// Files that were acknowledged are not in the bucket after the package was killed.
    Lost {
        /// Number of lost files.
        count: u64,
        /// Number of acknowledged files.
        of: u64,
    },
    /// A cold read got fewer bytes from the store than it read: the rest came from a cache.
    NotCold {
        /// Bytes that came from the store.
        fetched_bytes: u64,
        /// Bytes read.
        read_bytes: u64,
    },
    /// The disk or the store is full.
    NoSpace {
        /// Path of the file.
        file: String,
    },
    /// Another error of a file operation.
    Io {
        /// Path of the file.
        file: String,
        /// Error.
        error: String,
    },
    /// The store or the machine failed.
    Testbed {
        /// Error.
        reason: String,
    },
    /// The files to read were not written.
    NoFiles {
        /// The job that should have written them.
        job: String,
    },
}

impl Measurement {
    /// Returns the rate in a unit.
    pub fn rate(&self, clock: Clock, unit: Unit) -> f64 {
        let amount = match unit {
            Unit::MebibytesPerSecond => self.bytes as f64 / f64::from(1 << 20),
            Unit::OperationsPerSecond => self.operations as f64,
        };
        amount / self.clocks.seconds(clock).max(f64::MIN_POSITIVE)
    }
}

impl Clocks {
    /// Returns the time of a clock.
    pub fn seconds(&self, clock: Clock) -> f64 {
        match clock {
            Clock::Acknowledged => self.job,
            Clock::Durable => self.durable.unwrap_or(self.job),
            Clock::Paper => self.mount + self.job + self.sync + self.unmount,
        }
    }
}

impl Outcome {
    /// Returns the measurement, if there is one.
    pub fn measurement(&self) -> Option<&Measurement> {
        match self {
            Self::Measured(measurement) => Some(measurement),
            Self::Failed(_) => None,
        }
    }

    /// Returns the failure, if it failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Measured(_) => None,
        }
    }
}

impl Failure {
    /// Returns the failure of a cell that the testbed itself could not measure.
    pub(crate) fn testbed(error: impl fmt::Display) -> Self {
        Self::Testbed { reason: error.to_string() }
    }

    /// Returns whether the package returned or kept something wrong, so that none of its rates in this job can be trusted.
    pub fn is_wrong_result(&self) -> bool {
        matches!(
            self,
            Self::WrongBytes { .. }
                | Self::WrongSize { .. }
                | Self::Missing { .. }
                | Self::LeftOver { .. }
                | Self::Lost { .. }
                | Self::NotCold { .. }
        )
    }

    /// Returns a few words for a table.
    pub fn short(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "not available",
            Self::Unsupported { .. } => "not possible",
            Self::Command { .. } => "command failed",
            Self::Hung { .. } => "hung",
            Self::Died { .. } => "died",
            Self::WrongBytes { .. } => "wrong bytes",
            Self::WrongSize { .. } => "wrong size",
            Self::Missing { .. } => "missing files",
            Self::LeftOver { .. } => "old files",
            Self::Lost { .. } => "lost files",
            Self::NotCold { .. } => "not cold",
            Self::NoSpace { .. } => "no space",
            Self::Io { .. } => "I/O error",
            Self::Testbed { .. } => "testbed failed",
            Self::NoFiles { .. } => "no files",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { reason } | Self::Unsupported { reason } | Self::Testbed { reason } => {
                f.write_str(reason)
            }
            Self::Command { phase, reason } => write!(f, "{phase} failed: {reason}"),
            Self::Hung { phase, seconds } => write!(f, "{phase} did not end within {seconds} s"),
            Self::Died { phase } => write!(f, "the package's process ended during {phase}"),
            Self::WrongBytes { place, file, offset } => {
                write!(f, "{file} has wrong bytes at {offset}, read {place}")
            }
            Self::WrongSize { place, file, found_bytes, expected_bytes } => {
                write!(f, "{file} has {found_bytes} bytes instead of {expected_bytes}, read {place}")
            }
            Self::Missing { place, file, count } => {
                write!(f, "{count} files are missing {place}, the first is {file}")
            }
            Self::LeftOver { place, file, count } => {
                write!(f, "{count} files that were renamed or removed exist {place}, the first is {file}")
            }
            Self::Lost { count, of } => {
                write!(f, "{count} of {of} acknowledged files were lost when the package was killed")
            }
            Self::NotCold { fetched_bytes, read_bytes } => write!(
                f,
                "not a cold read: {fetched_bytes} of {read_bytes} bytes came from the store, the rest from a cache"
            ),
            Self::NoSpace { file } => write!(f, "{file}: no space left"),
            Self::Io { file, error } => write!(f, "{file}: {error}"),
            Self::NoFiles { job } => write!(f, "{job} did not write the files"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mount => "in the mount",
            Self::Bucket => "in the bucket",
            Self::SecondMount => "in a second mount",
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "format",
            Self::Mount => "mount",
            Self::Job => "job",
            Self::Sync => "sync",
            Self::Unmount => "unmount",
            Self::Comparison => "comparison",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_differ_by_mount_sync_and_unmount() {
        let clocks = Clocks { mount: 2.0, job: 1.0, sync: 0.5, unmount: 3.0, durable: Some(4.0) };
        assert_eq!(clocks.seconds(Clock::Paper), 6.5);
        assert_eq!(clocks.seconds(Clock::Acknowledged), 1.0);
        assert_eq!(clocks.seconds(Clock::Durable), 4.0);
        assert_eq!(Clocks { durable: None, ..clocks }.seconds(Clock::Durable), 1.0);
    }

    #[test]
    fn outcomes_survive_serialization() {
        let failed = Outcome::Failed(Failure::WrongBytes {
            place: Place::Bucket,
            file: "job1/00007".into(),
            offset: 4096,
        });
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(
            text,
            r#"{"failed":{"kind":"wrong-bytes","place":"bucket","file":"job1/00007","offset":4096}}"#
        );
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), failed);
    }
}
