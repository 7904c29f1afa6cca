//! The tables of a mount: operations, files, processes and store requests of the last interval, and open batches.

use super::table::{Cell, Column, Table, number, text};
use crate::command::samples::Change;
use crate::command::stats::{bytes, count, millis, percent};
use crate::command::units::human_duration;
use crate::control::batch_protocol::{BatchInfo, path_text};
use crate::control::live_messages::FileActivity;
use crate::control::profile_row::ProfileRow;
use std::collections::BTreeMap;

/// Names of the histograms from which rates and times are taken.
const OPERATIONS: &str = "tenon_fuse_operation_duration_seconds";
const REQUESTS: &str = "tenon_store_request_duration_seconds";
const S3_REQUESTS: &str = "tenon_s3_request_duration_seconds";

pub(super) const OPERATION_COLUMNS: &[Column] = &[
    text("operation", 24),
    number("per s", 9),
    number("total", 10),
    number("mean ms", 10),
    number("p50 ms", 9),
    number("p99 ms", 9),
    number("time", 7),
];
pub(super) const FILE_COLUMNS: &[Column] = &[
    text("file", 0),
    number("ops/s", 8),
    number("read/s", 12),
    number("written/s", 12),
    number("mean ms", 9),
    number("time", 7),
];
pub(super) const PROCESS_COLUMNS: &[Column] = &[
    number("pid", 9),
    text("program", 20),
    number("ops/s", 8),
    number("mean ms", 9),
    number("max ms", 9),
    number("time", 7),
    text("most time in", 0),
];
pub(super) const STORE_COLUMNS: &[Column] = &[
    text("request", 16),
    number("per s", 9),
    number("total", 10),
    number("mean ms", 10),
    number("p50 ms", 9),
    number("p99 ms", 9),
    number("failed/s", 9),
];
pub(super) const BATCH_COLUMNS: &[Column] = &[
    text("batch", 16),
    text("directory", 0),
    text("state", 10),
    number("changes", 10),
    number("per s", 9),
    number("expires in", 12),
];

/// Returns the table of the kernel's operations, and of those of the S3 endpoint.
pub(super) fn operations(change: &Change<'_>) -> Table {
    let row = |histogram: &str, operation: &str, shown: String| {
        let labels = [("operation", operation)];
        let sum = change.difference(&format!("{histogram}_sum"), &labels);
        let mut row = timed_row(change, histogram, &labels, shown);
        row.push(Cell::number(sum / change.secs(), |busy| percent(busy, 1.0)));
        row
    };
    let kernel = change.now.label_values("tenon_fuse_operations_total", "operation").into_iter();
    let kernel = kernel.map(|operation| row(OPERATIONS, operation, operation.to_owned()));
    let endpoint = change.now.label_values(&format!("{S3_REQUESTS}_count"), "operation").into_iter();
    let endpoint = endpoint.map(|operation| row(S3_REQUESTS, operation, format!("S3 {operation}")));
    Table { columns: OPERATION_COLUMNS, rows: kernel.chain(endpoint).collect() }
}

/// Returns the table of requests to the store, by kind.
pub(super) fn store_requests(change: &Change<'_>) -> Table {
    let kinds = change.now.label_values("tenon_store_requests_total", "operation").into_iter();
    let rows = kinds.map(|kind| {
        let labels = [("operation", kind)];
        let failed = ["throttled", "unavailable", "denied", "other"].iter().map(|outcome| {
            change.per_sec("tenon_store_requests_total", &[("operation", kind), ("outcome", outcome)])
        });
        let mut row = timed_row(change, REQUESTS, &labels, kind.to_owned());
        row.push(Cell::number(failed.sum(), count));
        row
    });
    Table { columns: STORE_COLUMNS, rows: rows.collect() }
}

/// Returns the cells for name, rate, total since the start of the process, and times of what a histogram counts.
fn timed_row(change: &Change<'_>, histogram: &str, labels: &[(&str, &str)], shown: String) -> Vec<Cell> {
    let total = change.now.sum(&format!("{histogram}_count"), labels);
    let time = |value: Option<f64>| Cell { text: millis(value), value: value.unwrap_or(0.0) };
    vec![
        Cell::text(shown),
        Cell::number(change.per_sec(&format!("{histogram}_count"), labels), count),
        Cell::number(total, |total| format!("{total:.0}")),
        time(change.mean_ms(histogram, labels)),
        time(change.quantile_ms(histogram, labels, 0.5)),
        time(change.quantile_ms(histogram, labels, 0.99)),
    ]
}

/// Returns the table of the files and directories that were used in an interval of `secs` seconds.
pub(super) fn files(files: &[FileActivity], secs: f64) -> Table {
    let row = |file: &FileActivity| {
        let path = if file.path.is_empty() { "/" } else { &file.path };
        vec![
            Cell::text(path),
            Cell::number(file.count as f64 / secs, count),
            Cell::number(file.read_bytes as f64 / secs, bytes),
            Cell::number(file.written_bytes as f64 / secs, bytes),
            Cell::number(file.total_us as f64 / 1e3 / file.count.max(1) as f64, |mean| millis(Some(mean))),
            Cell::number(file.total_us as f64 / 1e6 / secs, |busy| percent(busy, 1.0)),
        ]
    };
    Table { columns: FILE_COLUMNS, rows: files.iter().map(row).collect() }
}

/// Returns the table of the processes that used the mount in an interval of `secs` seconds.
pub(super) fn processes(rows: &[ProfileRow], secs: f64) -> Table {
    let mut processes: BTreeMap<u32, Vec<&ProfileRow>> = BTreeMap::new();
    rows.iter().for_each(|row| processes.entry(row.pid).or_default().push(row));
    let row = |(pid, rows): (u32, Vec<&ProfileRow>)| {
        let (calls, total_us) =
            rows.iter().fold((0, 0), |(calls, total), row| (calls + row.count, total + row.total_us));
        let slowest = rows.iter().max_by_key(|row| row.total_us);
        let longest_us = rows.iter().map(|row| row.longest_us).max().unwrap_or(0);
        vec![
            Cell::number(f64::from(pid), |pid| format!("{pid:.0}")),
            Cell::text(slowest.map_or("", |row| row.program.as_str())),
            Cell::number(calls as f64 / secs, count),
            Cell::number(total_us as f64 / 1e3 / calls.max(1) as f64, |mean| millis(Some(mean))),
            Cell::number(longest_us as f64 / 1e3, |longest| millis(Some(longest))),
            Cell::number(total_us as f64 / 1e6 / secs, |busy| percent(busy, 1.0)),
            Cell::text(slowest.map_or("", |row| row.operation.as_str())),
        ]
    };
    Table { columns: PROCESS_COLUMNS, rows: processes.into_iter().map(row).collect() }
}

/// Returns the table of the batches that are open or have expired, with their changes in an interval of `secs` seconds.
pub(super) fn batches(before: &[BatchInfo], now: &[BatchInfo], secs: f64) -> Table {
    let row = |batch: &BatchInfo| {
        let ops =
            before.iter().find(|earlier| earlier.id == batch.id).map_or(batch.ops, |earlier| earlier.ops);
        let expires = batch.expires_in_secs;
        vec![
            Cell::text(&batch.id),
            Cell::text(path_text(batch.path.as_deref())),
            Cell::text(&batch.state),
            Cell::number(batch.ops as f64, |ops| format!("{ops:.0}")),
            Cell::number(batch.ops.saturating_sub(ops) as f64 / secs, count),
            Cell {
                text: expires.map_or("-".to_owned(), human_duration),
                value: expires.map_or(f64::MAX, |secs| secs as f64),
            },
        ]
    };
    Table { columns: BATCH_COLUMNS, rows: now.iter().map(row).collect() }
}
