//! Output of the six jobs: a table and JSON.

use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::resource_usage::Measured;
use super::{JOBS, Job, Row, Scale};

/// Formats a table with a line for each job: medians over the rounds.
pub(super) fn table(rows: &[Row], scale: &Scale) -> String {
    let mut text = format!(
        "{} files of {} MiB, {} of {} KiB, {} rounds; MinIO, client and mount on one machine\n\n",
        scale.big_files,
        scale.big_bytes >> 20,
        scale.small_files,
        scale.small_bytes >> 10,
        scale.rounds
    );
    text.push_str("| job | raw | mount | mount/raw | CPU s/GiB raw | CPU s/GiB mount | peak MiB |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for job in JOBS {
        let line = JobSummary::new(&job, rows, scale);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {} |",
            job.name,
            line.rate(&job, line.raw_seconds),
            line.rate(&job, line.mount_seconds),
            line.raw_seconds / line.mount_seconds,
            line.raw_cpu_per_gib,
            line.mount_cpu_per_gib,
            line.peak_bytes >> 20
        );
    }
    text.push_str("\nRequests per file, in the last round\n\n| job | S3 | FUSE |\n|---|---|---|\n");
    for job in JOBS {
        if let Some(row) = rows.iter().rev().find(|row| row.job.name == job.name) {
            let files = job.files(scale) as f64;
            let store = requests_per_file(&row.mount.store_requests, files);
            let _ = writeln!(
                text,
                "| {} | {store} | {} |",
                job.name,
                requests_per_file(&row.mount.fuse_requests, files)
            );
        }
    }
    text
}

/// Formats the same as JSON.
pub(super) fn json(rows: &[Row], scale: &Scale) -> Result<String> {
    let lines: Vec<serde_json::Value> = JOBS
        .iter()
        .map(|job| {
            let line = JobSummary::new(job, rows, scale);
            let last = rows.iter().rev().find(|row| row.job.name == job.name);
            serde_json::json!({
                "job": job.name,
                "raw_s": line.raw_seconds,
                "mount_s": line.mount_seconds,
                "ratio": line.raw_seconds / line.mount_seconds,
                "raw_cpu_s_per_gib": line.raw_cpu_per_gib,
                "mount_cpu_s_per_gib": line.mount_cpu_per_gib,
                "memory_peak_bytes": line.peak_bytes,
                "store_requests": last.map(|row| &row.mount.store_requests),
                "fuse_requests": last.map(|row| &row.mount.fuse_requests),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&lines)? + "\n")
}

/// The medians of a job.
struct JobSummary {
    raw_seconds: f64,
    mount_seconds: f64,
    raw_cpu_per_gib: f64,
    mount_cpu_per_gib: f64,
    peak_bytes: u64,
    bytes: u64,
    files: usize,
}

impl JobSummary {
    fn new(job: &Job, rows: &[Row], scale: &Scale) -> Self {
        let job_rows = || rows.iter().filter(|row| row.job.name == job.name);
        let gib = job.bytes(scale) as f64 / (1u64 << 30) as f64;
        let median_of = |side: fn(&Row) -> &Measured, value: fn(&Measured) -> f64| {
            median(job_rows().map(|row| value(side(row))))
        };
        let wall = |side: &Measured| side.wall.as_secs_f64();
        let cpu = |side: &Measured| side.cpu.as_secs_f64();
        Self {
            raw_seconds: median_of(|row| &row.raw, wall),
            mount_seconds: median_of(|row| &row.mount, wall),
            raw_cpu_per_gib: median_of(|row| &row.raw, cpu) / gib,
            mount_cpu_per_gib: median_of(|row| &row.mount, cpu) / gib,
            peak_bytes: job_rows().map(|row| row.mount.memory_peak_bytes).max().unwrap_or(0),
            bytes: job.bytes(scale),
            files: job.files(scale),
        }
    }

    fn rate(&self, job: &Job, seconds: f64) -> String {
        if job.small {
            format!("{:.0} files/s", self.files as f64 / seconds)
        } else {
            format!("{:.0} MB/s", self.bytes as f64 / 1e6 / seconds)
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn requests_per_file(requests: &BTreeMap<String, u64>, files: f64) -> String {
    let mut counts: Vec<_> = requests.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(a.1));
    counts
        .iter()
        .map(|(name, count)| format!("{:.2} {name}", **count as f64 / files))
        .collect::<Vec<_>>()
        .join(", ")
}
