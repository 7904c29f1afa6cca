//! Sequential I/O by `fio`: the raw device against a file system on it, by size and threads (Figure 2a).

use super::cleanup::Undertaker;
use super::loop_device::{Backing, FileSystem};
use super::{SetupError, run};
use serde::{Deserialize, Serialize};
use std::process::Stdio;

/// What is said where it is not installed.
pub const FIO_MISSING: &str = "not available: install fio";

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sweep {
    /// Bytes of each request.
    pub request_bytes: Vec<u64>,
    /// Threads at a time.
    pub threads: Vec<u32>,
    /// How long each cell runs, in seconds.
    pub seconds: u64,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioPoint {
    /// `raw`, or the file system's name.
    pub target: String,
    /// Whether it wrote; else it read.
    pub is_write: bool,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Mean latency of a request, in microseconds.
    pub latency_us: f64,
}

impl Default for Sweep {
    /// As the paper has it: 4 KiB and 128 KiB.
    fn default() -> Self {
        Self { request_bytes: vec![4 << 10, 128 << 10], threads: vec![1, 2, 4, 8, 16, 32, 64], seconds: 2 }
    }
}

impl Sweep {
    /// Writes the raw device and a file on XFS, cell by cell in turn, and reads the raw device: what a device gives, and
    /// what of it is left above a file system. `None` where there is no `fio`.
    ///
    /// # Errors
    /// What making the device or running `fio` meets.
    pub async fn run(&self, backing: &Backing) -> Result<Option<Vec<FioPoint>>, SetupError> {
        if matches!(run("fio", &["--version"], Stdio::null()), Err(SetupError::NoProgram { .. })) {
            return Ok(None);
        }
        let mut points = Vec::new();
        for &request_bytes in &self.request_bytes {
            for &threads in &self.threads {
                // Each takes seconds; who waits for this may want to end it.
                tokio::task::yield_now().await;
                for (target, is_write) in [("raw", true), (FileSystem::Xfs.name(), true), ("raw", false)] {
                    points.push(self.cell(backing, target, is_write, request_bytes, threads)?);
                }
            }
        }
        Ok(Some(points))
    }

    fn cell(
        &self,
        backing: &Backing,
        target: &'static str,
        is_write: bool,
        request_bytes: u64,
        threads: u32,
    ) -> Result<FioPoint, SetupError> {
        let mut undertaker = Undertaker::new()?;
        let device = backing.attach(1, &mut undertaker)?.remove(0);
        let mount = backing.dir().join("fio");
        // Each thread has a part of its own.
        let each_bytes = device.size_bytes() / 2 / u64::from(threads) / ALIGNMENT * ALIGNMENT;
        let place = match target {
            "raw" => format!("--filename={}", device.path().display()),
            _ => {
                device.mount(FileSystem::Xfs, &mount, &mut undertaker)?;
                format!("--directory={}", mount.display())
            }
        };
        let arguments = self.arguments(&place, target == "raw", is_write, request_bytes, threads, each_bytes);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = parse(&undertaker.run("fio", &arguments)?.stdout)?;
        let said = said.direction(is_write);
        Ok(FioPoint {
            target: target.to_owned(),
            is_write,
            request_bytes,
            threads,
            bytes_per_second: said.bw_bytes as f64,
            latency_us: said.lat_ns.mean / 1000.0,
        })
    }

    fn arguments(
        &self,
        place: &str,
        is_raw: bool,
        is_write: bool,
        request_bytes: u64,
        threads: u32,
        each_bytes: u64,
    ) -> Vec<String> {
        let mut arguments = vec![
            "--name=sequential".to_owned(),
            place.to_owned(),
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

const ALIGNMENT: u64 = 1 << 20;

/// What is read of fio's report.
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

fn parse(report: &[u8]) -> Result<Job, SetupError> {
    let failed = |reason: String| SetupError::Failed {
        program: "fio".to_owned(),
        reason: format!("its report: {reason}"),
    };
    // Warnings come before the document, on the same stream.
    let begin = report.iter().position(|byte| *byte == b'{').unwrap_or_default();
    let report: Report =
        serde_json::from_slice(&report[begin..]).map_err(|error| failed(error.to_string()))?;
    report.jobs.into_iter().next().ok_or_else(|| failed("no job in it".to_owned()))
}

impl FioPoint {
    /// The cell as reports draw it, of writes.
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
    fn a_report_is_read_behind_warnings() {
        let report = br#"note: both iodepth >= 1 and synchronous I/O engine are selected
{"fio version": "fio-3.33", "jobs": [{"jobname": "sequential",
 "read": {"bw_bytes": 0, "lat_ns": {"mean": 0.0}},
 "write": {"bw_bytes": 123456, "lat_ns": {"min": 1, "mean": 31000.5}}}]}"#;
        let written = parse(report).unwrap().direction(true);
        assert_eq!(written.bw_bytes, 123_456);
        assert!((written.lat_ns.mean - 31_000.5).abs() < 1e-6);
        assert!(parse(b"").unwrap_err().to_string().contains("fio"));
    }
}
