//! A comparison as text for a terminal.

use super::Comparison;
use super::rows::{Row, three_digits};
use crate::workload::Workload;
use std::fmt::Write;

const MIB: f64 = (1 << 20) as f64;

/// Formats a comparison as text: figures by workload and system, and failures.
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (name, value) in comparison.about() {
        let _ = writeln!(text, "{name}: {value}");
    }
    for workload in comparison.workloads() {
        write_workload(comparison, workload, &mut text);
    }
    for failure in &comparison.failures {
        let _ =
            writeln!(text, "\n{} failed in {}: {}", failure.system.title(), failure.workload, failure.reason);
    }
    write_fio(comparison, &mut text);
    text
}

fn write_workload(comparison: &Comparison, workload: Workload, text: &mut String) {
    let rows = comparison.rows(workload);
    let Some(first) = rows.first() else { return };
    let unit = first.unit.name();
    let scale = workload.scale(&comparison.conditions.scale);
    let _ = writeln!(text, "\n{workload}: {}; {scale}", workload.about());
    let _ = writeln!(
        text,
        "  {:<42} {:>20} {:>18} {:>28} {:>12} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>14}",
        "",
        "caches",
        "rate",
        format!("time per {unit} (range)"),
        "server CPU",
        "p50 ms",
        "p99 ms",
        "flushes/op",
        "dev. read",
        "dev. write",
        "settle s",
        "run"
    );
    rows.iter().for_each(|row| write_row(row, text));
}

fn write_row(row: &Row<'_>, text: &mut String) {
    let measured = row.measured;
    let latency = measured.done.latency();
    let ms = |share: f64| three_digits(latency.quantile(share).as_secs_f64() * 1e3);
    let (low, high) = row.range;
    let times =
        format!("{} ({} to {})", row.unit.format(row.secs()), row.unit.format(low), row.unit.format(high));
    let errors =
        if measured.done.errors > 0 { format!("  {} ERRORS", measured.done.errors) } else { String::new() };
    let _ = writeln!(
        text,
        "  {:<42} {:>20} {:>18} {times:>28} {:>12} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>14}{errors}",
        row.system.title(),
        row.caches_text(),
        row.rate(),
        or_dash(row.server_secs(), |secs| row.unit.format(secs)),
        ms(0.5),
        ms(0.99),
        three_digits(measured.io.flushes as f64 / measured.done.operations().max(1) as f64),
        or_dash(row.read_amplification(), three_digits),
        or_dash(row.write_amplification(), three_digits),
        or_dash(measured.settle_secs, three_digits),
        row.duration(),
    );
}

/// Formats a value, or returns `-` if there is none.
pub(super) fn or_dash(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

fn write_fio(comparison: &Comparison, text: &mut String) {
    let points = match &comparison.fio {
        Ok(points) => points,
        Err(why) => {
            let _ = writeln!(text, "\nfio: {why}");
            return;
        }
    };
    let _ = writeln!(text, "\nfio, sequential: MiB/s by number of threads");
    let mut lines: Vec<(String, String)> = Vec::new();
    for point in points {
        let direction = if point.is_write { "write" } else { "read" };
        let line = format!("{direction} {} KiB, {}", point.request_bytes >> 10, point.target);
        let cell = format!(" {:>3}: {:>6.0}", point.threads, point.bytes_per_second / MIB);
        match lines.iter_mut().find(|(name, _)| *name == line) {
            Some((_, cells)) => cells.push_str(&cell),
            None => lines.push((line, cell)),
        }
    }
    for (line, cells) in lines {
        let _ = writeln!(text, "  {line:<24}{cells}");
    }
}
