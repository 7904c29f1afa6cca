//! Sequential I/O by `fio` on the raw device and on a file system, by request size and number of threads (Figure 2a).

use super::SetupError;
use super::loop_device::{Backing, FileSystem};
use harness::{CleanupProcess, Error, run_program};
use serde::{Deserialize, Serialize};
use std::process::Stdio;

/// Message if `fio` is not installed.
pub const FIO_MISSING: &str = "not available: install fio";

/// The parameters of the sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sweep {
    /// Request sizes in bytes.
    pub request_bytes: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Duration of each run, in seconds.
    pub seconds: u64,
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioPoint {
    /// `raw`, or the file system's name.
    pub target: String,
    /// Whether the run wrote; otherwise it read.
    pub is_write: bool,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Number of threads.
    pub threads: u32,
    /// Throughput, bytes per second.
    pub bytes_per_second: f64,
    /// Mean latency of a request, in microseconds.
    pub latency_us: f64,
}

impl Default for Sweep {
    /// Returns the paper's sweep: requests of 4 KiB and 128 KiB.
    fn default() -> Self {
        Self { request_bytes: vec![4 << 10, 128 << 10], threads: vec![1, 2, 4, 8, 16, 32, 64], seconds: 2 }
    }
}

impl Sweep {
    /// Measures writes to the raw device, writes to files on XFS, and reads of the raw device, for each request size and number of threads.
    /// Returns `None` if `fio` is not installed.
    ///
    /// # Errors
    /// If the device cannot be set up, or `fio` fails.
    pub async fn run(&self, backing: &Backing) -> Result<Option<Vec<FioPoint>>, SetupError> {
        if matches!(run_program("fio", &["--version"], Stdio::null()), Err(Error::NoProgram { .. })) {
            return Ok(None);
        }
        let mut points = Vec::new();
        for &request_bytes in &self.request_bytes {
            for &threads in &self.threads {
                // Each run blocks for seconds; yield so that the caller can cancel.
                tokio::task::yield_now().await;
                for (target, is_write) in [("raw", true), (FileSystem::Xfs.name(), true), ("raw", false)] {
                    points.push(self.run_one(backing, target, is_write, request_bytes, threads)?);
                }
            }
        }
        Ok(Some(points))
    }

    fn run_one(
        &self,
        backing: &Backing,
        target: &'static str,
        is_write: bool,
        request_bytes: u64,
        threads: u32,
    ) -> Result<FioPoint, SetupError> {
        let mut cleanup = CleanupProcess::new()?;
        let device = backing.attach(1, &mut cleanup)?.remove(0);
        let mount = backing.dir().join("fio");
        // Each thread has its own part of the device.
        let each_bytes = device.size_bytes() / 2 / u64::from(threads) / ALIGNMENT * ALIGNMENT;
        let target_argument = match target {
            "raw" => format!("--filename={}", device.path().display()),
            _ => {
                device.mount(FileSystem::Xfs, &mount, &mut cleanup)?;
                format!("--directory={}", mount.display())
            }
        };
        let arguments =
            self.arguments(&target_argument, target == "raw", is_write, request_bytes, threads, each_bytes);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let job = parse_report(&cleanup.run("fio", &arguments)?.stdout)?;
        let result = job.direction(is_write);
        Ok(FioPoint {
            target: target.to_owned(),
            is_write,
            request_bytes,
            threads,
            bytes_per_second: result.bw_bytes as f64,
            latency_us: result.lat_ns.mean / 1000.0,
        })
    }

    fn arguments(
        &self,
        target_argument: &str,
        is_raw: bool,
        is_write: bool,
        request_bytes: u64,
        threads: u32,
        each_bytes: u64,
    ) -> Vec<String> {
        let mut arguments = vec![
            "--name=sequential".to_owned(),
            target_argument.to_owned(),
            format!("--rw={}", if is_write { "write" } else { "read" }),
            format!("--bs={request_bytes}"),
            format!("--numjobs={threads}"),
            format!("--size={each_bytes}"),
            format!("--runtime={}", self.seconds),
        ];
        if is_raw {
            arguments.push(format!("--offset_increment={each_bytes}"));
        }
        let fixed = ["--time_based", "--direct=1", "--ioengine=psync", "--thread", "--group_reporting"];
        arguments.extend(fixed.map(str::to_owned));
        arguments.push("--output-format=json".to_owned());
        arguments
    }
}

/// Alignment of the threads' parts of the device, in bytes.
const ALIGNMENT: u64 = 1 << 20;

/// The fields of fio's JSON report that are used.
#[derive(Debug, Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    read: Direction,
    write: Direction,
}

#[derive(Debug, Deserialize)]
struct Direction {
    bw_bytes: u64,
    lat_ns: Latency,
}

#[derive(Debug, Deserialize)]
struct Latency {
    mean: f64,
}

impl Job {
    fn direction(self, is_write: bool) -> Direction {
        if is_write { self.write } else { self.read }
    }
}

fn parse_report(report: &[u8]) -> Result<Job, SetupError> {
    let failed = |reason: String| {
        let reason = format!("cannot parse its report: {reason}");
        SetupError::from(Error::Failed { program: "fio".to_owned(), reason })
    };
    // Warnings precede the JSON document on the same stream.
    let begin = report.iter().position(|byte| *byte == b'{').unwrap_or_default();
    let report: Report =
        serde_json::from_slice(&report[begin..]).map_err(|error| failed(error.to_string()))?;
    report.jobs.into_iter().next().ok_or_else(|| failed("it has no job".to_owned()))
}

impl FioPoint {
    /// Returns the point for Figure 2a, or `None` for a read.
    pub fn throughput(&self) -> Option<crate::model::ThroughputPoint> {
        self.is_write.then(|| crate::model::ThroughputPoint {
            target: self.target.to_owned(),
            request_bytes: self.request_bytes,
            threads: self.threads,
            bytes_per_second: self.bytes_per_second,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_after_warnings_is_parsed() {
        let report = br#"note: both iodepth >= 1 and synchronous I/O engine are selected
{"fio version": "fio-3.33", "jobs": [{"jobname": "sequential",
 "read": {"bw_bytes": 0, "lat_ns": {"mean": 0.0}},
 "write": {"bw_bytes": 123456, "lat_ns": {"min": 1, "mean": 31000.5}}}]}"#;
        let written = parse_report(report).unwrap().direction(true);
        assert_eq!(written.bw_bytes, 123_456);
        assert!((written.lat_ns.mean - 31_000.5).abs() < 1e-6);
        assert!(parse_report(b"").unwrap_err().to_string().contains("fio"));
    }
}
