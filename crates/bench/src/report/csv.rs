//! Results as CSV (RFC 4180), one line for each cell.

use crate::outcome::{Clock, Measurement};
use crate::results::Record;
use crate::workload::Unit;

const HEAD: [&str; 23] = [
    "platform",
    "target",
    "version",
    "job",
    "repeat",
    "files",
    "bytes",
    "operations",
    "p50_us",
    "p99_us",
    "mount_s",
    "job_s",
    "sync_s",
    "unmount_s",
    "durable_s",
    "unit",
    "acknowledged_rate",
    "durable_rate",
    "paper_rate",
    "cpu_s",
    "memory_peak_bytes",
    "requests",
    "failure",
];

/// Formats results as CSV.
pub fn csv(records: &[Record]) -> String {
    let lines = records.iter().map(|record| line(&fields(record)));
    std::iter::once(line(&HEAD.map(str::to_owned))).chain(lines).collect()
}

fn fields(record: &Record) -> Vec<String> {
    let cell = &record.cell;
    let version = record.version.clone().unwrap_or_default();
    let mut fields = vec![
        cell.platform.clone(),
        cell.target.clone(),
        version,
        cell.job.clone(),
        (cell.repeat + 1).to_string(),
    ];
    match record.outcome.measurement() {
        Some(measurement) => fields.extend(numbers(measurement, record.column.unit)),
        None => fields.extend(vec![String::new(); HEAD.len() - fields.len() - 1]),
    }
    fields.push(record.outcome.failure().map(ToString::to_string).unwrap_or_default());
    fields
}

fn numbers(measurement: &Measurement, unit: Unit) -> Vec<String> {
    let quantile = |share| {
        let latency = measurement.latency.as_ref().filter(|latency| latency.count() > 0);
        latency.map(|latency| (latency.quantile(share).as_secs_f64() * 1e6).to_string())
    };
    let (clocks, optional) = (&measurement.clocks, |value: Option<String>| value.unwrap_or_default());
    vec![
        measurement.files.to_string(),
        measurement.bytes.to_string(),
        measurement.operations.to_string(),
        optional(quantile(0.5)),
        optional(quantile(0.99)),
        clocks.mount.to_string(),
        clocks.job.to_string(),
        clocks.sync.to_string(),
        clocks.unmount.to_string(),
        optional(clocks.durable.map(|seconds| seconds.to_string())),
        unit.to_string(),
        measurement.rate(Clock::Acknowledged, unit).to_string(),
        measurement.rate(Clock::Durable, unit).to_string(),
        measurement.rate(Clock::Paper, unit).to_string(),
        optional(measurement.cpu_seconds.map(|seconds| seconds.to_string())),
        optional(measurement.memory_peak_bytes.map(|bytes| bytes.to_string())),
        optional(measurement.traffic.as_ref().map(|traffic| traffic.total().to_string())),
    ]
}

fn line(fields: &[String]) -> String {
    let quote = |field: &String| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.clone(),
    };
    fields.iter().map(quote).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use crate::results::tests::{failed, record};

    #[test]
    fn every_line_has_every_field_and_quotes_where_needed() {
        let reason = "program \"x\" not found, install it".to_owned();
        let text =
            csv(&[record("raw", "job1", 0, 16.0), failed("x", "job1", Failure::Unavailable { reason })]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("minio,raw,,job1,1,8,67108864,8,,,0,4,0,0,4,MiB/s,16,16,16,0.5,,,"));
        assert!(lines[2].ends_with(",\"program \"\"x\"\" not found, install it\""));
        assert_eq!(lines[0].split(',').count(), HEAD.len());
        assert_eq!(lines[1].split(',').count(), HEAD.len());
    }
}
