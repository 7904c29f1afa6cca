//! Results: one JSON object a line, appended after each measurement.
//!
//! Invariant: a line is complete or absent. A last line that an interruption cut is ignored, and the next result begins a new line.

use crate::outcome::Outcome;
use crate::plan::Cell;
use crate::workload::{JobColumn, Scale};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A line of a results file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The target, the platform, the job and the repeat that were measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// Title of the target.
    pub title: String,
    /// The job, as reports need it.
    pub column: JobColumn,
    /// Version that the program prints, its first line.
    pub version: Option<String>,
    /// Parameters of the target's version.
    pub parameters: std::collections::BTreeMap<String, String>,
    /// Conditions that all comparable results share.
    pub conditions: Conditions,
    /// Outcome.
    pub outcome: Outcome,
}

/// Conditions that must be equal for results to be comparable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Processors, memory and kernel.
    pub machine: String,
    /// Numbers and sizes of files.
    pub scale: Scale,
    /// Seed of the order of small files.
    pub seed: u64,
    /// Round-trip time that the proxy adds, in milliseconds.
    pub latency_ms: u64,
    /// Bandwidth that the proxy leaves, in bytes per second.
    pub bandwidth_bytes: Option<u64>,
    /// Whether the kernel's caches were dropped before reads.
    pub drops_caches: bool,
    /// Whether files were copied by `cp`, as the paper's program does.
    pub as_paper: bool,
}

/// Errors of a results file.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A line is not a result.
    #[error("{path}, line {line}: {source}; choose another file")]
    Line {
        /// Path.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// Earlier results were measured under other conditions.
    #[error(
        "{0} has results measured under other conditions (machine, scale, seed, network, caches or --as-paper); choose another file"
    )]
    OtherConditions(PathBuf),
}

/// A file of results.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
}

impl Results {
    /// Reads a file; a missing file has no results.
    ///
    /// # Errors
    /// If the file cannot be read, or a line other than a cut last one is not a result.
    pub fn read(path: &Path) -> Result<Vec<Record>, ResultsError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|source| ResultsError::File { path: path.to_owned(), source })?,
        };
        parse(&text).map_err(|(line, source)| ResultsError::Line { path: path.to_owned(), line, source })
    }

    /// Opens a file to continue it. Rewrites it with the last result of each cell.
    ///
    /// # Errors
    /// As [`Results::read`], and [`ResultsError::OtherConditions`].
    pub fn open(path: &Path, conditions: &Conditions) -> Result<Self, ResultsError> {
        let records = Self::read(path)?;
        if records.iter().any(|record| record.conditions != *conditions) {
            return Err(ResultsError::OtherConditions(path.to_owned()));
        }
        let failed = |source| ResultsError::File { path: path.to_owned(), source };
        let whole: String =
            records.iter().map(to_line).collect::<Result<_, _>>().map_err(|error| failed(error.into()))?;
        // Rewritten without a cut last line.
        let new = path.with_extension("jsonl.new");
        fs::write(&new, whole).and_then(|()| fs::rename(&new, path)).map_err(failed)?;
        let file = File::options().append(true).open(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file, records })
    }

    /// Appends a result, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&mut self, record: Record) -> Result<(), ResultsError> {
        let failed = |source| ResultsError::File { path: self.path.clone(), source };
        let line = to_line(&record).map_err(|error| failed(error.into()))?;
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()).map_err(failed)?;
        self.records.push(record);
        Ok(())
    }

    /// Returns all results.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the cells that need no measurement. Cells that failed are measured again, because their cause may have been removed.
    pub fn done(&self) -> BTreeSet<Cell> {
        let measured = self.records.iter().filter(|record| record.outcome.measurement().is_some());
        measured.map(|record| record.cell.clone()).collect()
    }
}

/// Parses the text of a results file. The last result of a cell counts.
fn parse(text: &str) -> Result<Vec<Record>, (usize, serde_json::Error)> {
    let mut records: Vec<Record> = Vec::new();
    let last = text.lines().count();
    for (at, line) in text.lines().enumerate() {
        match serde_json::from_str::<Record>(line) {
            Ok(record) => {
                records.retain(|earlier| earlier.cell != record.cell);
                records.push(record);
            }
            Err(_) if at + 1 == last && !text.ends_with('\n') => {}
            Err(error) => return Err((at + 1, error)),
        }
    }
    Ok(records)
}

fn to_line(record: &Record) -> serde_json::Result<String> {
    Ok(serde_json::to_string(record)? + "\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::outcome::{Clocks, Failure, Measurement};

    /// Returns a result of job `job` with this rate in MiB/s.
    pub(crate) fn record(target: &str, job: &str, repeat: u32, rate: f64) -> Record {
        let clocks = Clocks { job: 64.0 / rate, durable: Some(64.0 / rate), ..Clocks::default() };
        let measurement = Measurement {
            files: 8,
            bytes: 64 << 20,
            operations: 8,
            latency: None,
            clocks,
            cpu_seconds: Some(0.5),
            server_cpu_seconds: None,
            memory_peak_bytes: None,
            traffic: None,
        };
        Record {
            cell: Cell { repeat, platform: "minio".into(), target: target.into(), job: job.into() },
            title: target.to_uppercase(),
            column: column(job),
            version: None,
            parameters: Default::default(),
            conditions: conditions(1),
            outcome: Outcome::Measured(measurement),
        }
    }

    /// Returns the failure of a cell.
    pub(crate) fn failed(target: &str, job: &str, failure: Failure) -> Record {
        Record { outcome: Outcome::Failed(failure), ..record(target, job, 0, 1.0) }
    }

    fn column(job: &str) -> JobColumn {
        match crate::workload::Workload::paper().unwrap().job(job) {
            Some(job) => job.column(),
            None => JobColumn {
                name: job.into(),
                title: job.into(),
                is_write: false,
                unit: crate::workload::Unit::OperationsPerSecond,
            },
        }
    }

    fn conditions(seed: u64) -> Conditions {
        Conditions {
            machine: "m".into(),
            scale: Scale::TINY,
            seed,
            latency_ms: 0,
            bandwidth_bytes: None,
            drops_caches: false,
            as_paper: false,
        }
    }

    #[test]
    fn a_cut_last_line_is_dropped_and_the_file_continues() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let line = to_line(&record("raw", "job1", 0, 10.0)).unwrap();
        fs::write(&path, format!("{line}{}", &line[..40])).unwrap();
        let mut results = Results::open(&path, &conditions(1)).unwrap();
        assert_eq!(results.done().len(), 1);
        results.append(record("raw", "job2", 0, 20.0)).unwrap();
        assert_eq!(Results::read(&path).unwrap(), results.records());
        assert!(matches!(Results::open(&path, &conditions(2)), Err(ResultsError::OtherConditions(_))));
        fs::write(&path, format!("{{}}\n{line}")).unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn a_failed_cell_is_measured_again_and_its_last_result_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let mut results = Results::open(&path, &conditions(1)).unwrap();
        results.append(failed("raw", "job1", Failure::NoSpace { file: "f".into() })).unwrap();
        assert!(results.done().is_empty());
        results.append(record("raw", "job1", 0, 10.0)).unwrap();
        assert_eq!(Results::read(&path).unwrap(), [record("raw", "job1", 0, 10.0)]);
    }
}
