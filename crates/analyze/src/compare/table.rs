//! A comparison for a terminal.

use super::middle::ByTime;
use super::{Comparison, Verdict, cells};
use crate::setup::System;
use crate::workload::Workload;
use std::fmt::Write;

const MIB: f64 = (1 << 20) as f64;

/// The comparison as text: figures by workload and system, what failed, and the goals.
pub fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    let [before, after] = comparison.load_average;
    let _ =
        writeln!(text, "memory: {}; load average {before:.1} before, {after:.1} after", comparison.memory);
    let generator = comparison.generator;
    let _ = writeln!(
        text,
        "the client's own bytes cost it {:.3} s per GiB put and {:.3} s per GiB compared",
        generator.made_secs_per_gib, generator.compared_secs_per_gib
    );
    for workload in Workload::ALL {
        let rows: Vec<_> = System::ALL
            .into_iter()
            .filter_map(|system| Some((system, row(comparison, system, workload)?)))
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{workload}: {}; {}", workload.about(), workload.scale(&comparison.scale));
        let _ = writeln!(text, "  {:<38} {HEAD}", "");
        for (system, row) in rows {
            let _ = writeln!(text, "  {:<38} {row}", system.title());
        }
    }
    for failure in &comparison.failures {
        let _ =
            writeln!(text, "\n{} failed in {}: {}", failure.system.title(), failure.workload, failure.reason);
    }
    fio(comparison, &mut text);
    if !comparison.goals.is_empty() {
        let _ = writeln!(text, "\n  {:<58} {:>9} {:>9} {:>9}", "the drive", "measured", "floor", "target");
        comparison.goals.iter().for_each(|verdict| goal(verdict, &mut text));
    }
    text
}

const HEAD: &str = "   seconds (low to high)    ops/s    MiB/s   p50 ms   p99 ms   max ms  CPU s/GiB  CPU µs/op  flushes/op  settle s";

fn row(comparison: &Comparison, system: System, workload: Workload) -> Option<String> {
    let rounds = ByTime::of(cells(&comparison.cells, system, workload).map(|cell| &cell.measured));
    let (median, (low, high)) = (rounds.middle()?, rounds.range()?);
    let operations = median.done.operations() as f64;
    let latency = median.done.latency();
    let ms = |share: f64| latency.quantile(share).as_secs_f64() * 1e3;
    let errors =
        if median.done.errors > 0 { format!("  {} ERRORS", median.done.errors) } else { String::new() };
    Some(format!(
        "{:>8.2} ({low:>5.2} to {high:>5.2}) {:>8.0} {:>8.1} {:>8.2} {:>8.2} {:>8.1} {:>10} {:>10} {:>11.2} {:>9}{errors}",
        median.done.wall_secs,
        median.rate(),
        median.throughput() / MIB,
        ms(0.5),
        ms(0.99),
        ms(1.0),
        or_dash(median.server_secs_per_gib(), 2),
        or_dash(median.usage.server_secs.map(|secs| secs * 1e6 / operations), 0),
        median.io.flushes as f64 / operations,
        or_dash(median.settle_secs, 2),
    ))
}

fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn fio(comparison: &Comparison, text: &mut String) {
    let points = match &comparison.fio {
        Ok(points) => points,
        Err(why) => {
            let _ = writeln!(text, "\nfio: {why}");
            return;
        }
    };
    let _ = writeln!(text, "\nfio, sequential, MiB/s by threads");
    let mut lines: Vec<(String, String)> = Vec::new();
    for point in points {
        let way = if point.is_write { "write" } else { "read" };
        let line = format!("{way} {} KiB, {}", point.request_bytes >> 10, point.target);
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

fn goal(verdict: &Verdict, text: &mut String) {
    let sign = if verdict.goal.at_most { "≤" } else { "≥" };
    let bound =
        |bound: Option<f64>| bound.map_or_else(|| "-".to_owned(), |bound| format!("{sign} {bound:.2}"));
    let _ = writeln!(
        text,
        "  {:<58} {:>9} {:>9} {:>9}  {}{}",
        verdict.goal.what,
        or_dash(verdict.measured, 2),
        bound(Some(verdict.goal.floor)),
        bound(verdict.goal.target),
        verdict.word(),
        verdict.beside.as_ref().map_or_else(String::new, |beside| format!("; {beside}"))
    );
}
