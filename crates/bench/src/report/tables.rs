//! The tables: rates like Table 2 of the paper, their peaks, costs, and failures.

use crate::outcome::Failure;
use crate::results::Record;
use crate::statistics::median;
use crate::summary::{CellSummary, Row, Summary};
use crate::workload::Unit;
use harness::Table;
use harness::format::{bytes, seconds, short};

/// Makes a table of medians with their spread for each platform.
pub fn rates(summary: &Summary, clock: &str) -> Vec<Table> {
    let title = |platform: &str| format!("{platform}: {clock} rate, median (lowest to highest)");
    tables(summary, title, median_text)
}

/// Makes a table of the highest rates for each platform, as Table 2 of the paper.
pub fn peaks(summary: &Summary, clock: &str) -> Vec<Table> {
    let title = |platform: &str| format!("{platform}: highest {clock} rate");
    tables(summary, title, |cell| cell.spread().map(|spread| short(spread.peak)))
}

/// Returns a table for each platform, with a text for each package and job.
fn tables(
    summary: &Summary,
    title: impl Fn(&str) -> String,
    text: impl Fn(&CellSummary) -> Option<String>,
) -> Vec<Table> {
    let table = |platform: &str| Table {
        title: title(platform),
        heads: heads(summary),
        rows: summary.rows_of(platform).map(|row| rate_row(row, &text)).collect(),
    };
    summary.platforms().into_iter().map(table).collect()
}

/// Returns the heads of the columns.
fn heads(summary: &Summary) -> Vec<String> {
    let jobs = summary.jobs.iter().map(|job| format!("{}, {}", job.name, job.unit));
    std::iter::once("package".to_owned()).chain(jobs).collect()
}

fn rate_row(row: &Row, text: impl Fn(&CellSummary) -> Option<String>) -> Vec<String> {
    let cells = row.cells.iter().map(|cell| {
        let failure =
            || cell.failures.last().map_or_else(|| "–".to_owned(), |failure| failure.short().to_owned());
        text(cell).unwrap_or_else(failure)
    });
    std::iter::once(row.title.clone()).chain(cells).collect()
}

fn median_text(cell: &CellSummary) -> Option<String> {
    let spread = cell.spread()?;
    let mark = if spread.slow > 0 { " !" } else { "" };
    Some(match spread.count {
        1 => short(spread.median),
        _ => format!("{} ({}–{}){mark}", short(spread.median), short(spread.min), short(spread.peak)),
    })
}

/// Makes the table of costs: medians of CPU time, memory, requests and bytes of each cell.
pub fn costs(records: &[Record]) -> Table {
    let mut keys: Vec<(&str, &str, &str)> = Vec::new();
    for record in records {
        let key = (record.cell.platform.as_str(), record.cell.job.as_str(), record.title.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.sort_by_key(|(platform, job, _)| (*platform, *job));
    let heads = [
        "platform",
        "job",
        "package",
        "CPU",
        "server CPU",
        "peak memory",
        "requests/operation",
        "bytes/byte",
        "p50",
        "p99",
        "mount s",
        "unmount s",
    ];
    Table {
        title: "Costs: medians".to_owned(),
        heads: heads.iter().map(|&head| head.to_owned()).collect(),
        rows: keys.into_iter().filter_map(|key| cost_row(records, key)).collect(),
    }
}

fn cost_row(records: &[Record], (platform, job, title): (&str, &str, &str)) -> Option<Vec<String>> {
    let is_own = |record: &&Record| {
        record.cell.platform == platform && record.cell.job == job && record.title == title
    };
    let own: Vec<&Record> = records.iter().filter(is_own).collect();
    let moves_bytes = own.first()?.column.unit == Unit::MebibytesPerSecond;
    let own: Vec<_> = own.into_iter().filter_map(|record| record.outcome.measurement()).collect();
    let first = own.first()?;
    let (gib, operations, total) =
        (first.bytes as f64 / f64::from(1 << 30), first.operations as f64, first.bytes as f64);
    let of = |value: &dyn Fn(&crate::outcome::Measurement) -> Option<f64>| {
        let values: Vec<f64> = own.iter().filter_map(|measurement| value(measurement)).collect();
        (!values.is_empty()).then(|| median(&values))
    };
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
    let wire =
        |traffic: &harness::Traffic| (traffic.uploaded_bytes + traffic.downloaded_bytes) as f64 / total;
    // Jobs that move bytes cost CPU time by bytes, the others by operations.
    let cpu = |value: Option<f64>| match value {
        None => "–".to_owned(),
        Some(seconds) if moves_bytes => format!("{} s/GiB", short(seconds / gib)),
        Some(value) => format!("{} each", seconds(value / operations)),
    };
    let latency = |share: f64| {
        let quantile = |measurement: &crate::outcome::Measurement| {
            Some(
                measurement
                    .latency
                    .as_ref()
                    .filter(|latency| latency.count() > 0)?
                    .quantile(share)
                    .as_secs_f64(),
            )
        };
        of(&quantile).map_or_else(|| "–".to_owned(), seconds)
    };
    Some(vec![
        platform.to_owned(),
        job.to_owned(),
        title.to_owned(),
        cpu(of(&|measurement| measurement.cpu_seconds)),
        cpu(of(&|measurement| measurement.server_cpu_seconds)),
        of(&|measurement| Some(measurement.memory_peak_bytes? as f64)).map_or_else(|| "–".to_owned(), bytes),
        number(of(&|measurement| Some(measurement.traffic.as_ref()?.total() as f64 / operations))),
        number(
            of(&|measurement| Some(wire(measurement.traffic.as_ref()?))).filter(|ratio| ratio.is_finite()),
        ),
        latency(0.5),
        latency(0.99),
        number(of(&|measurement| Some(measurement.clocks.mount))),
        number(of(&|measurement| Some(measurement.clocks.unmount))),
    ])
}

/// Makes the table of failures; a package that cannot be had has one row.
pub fn failures(records: &[Record]) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for record in records {
        let Some(failure) = record.outcome.failure() else { continue };
        let cell = &record.cell;
        let is_missing = matches!(failure, Failure::Unavailable { .. });
        let job = if is_missing { "all".to_owned() } else { cell.job.clone() };
        let repeat = if is_missing { "all".to_owned() } else { (cell.repeat + 1).to_string() };
        let row = vec![cell.platform.clone(), record.title.clone(), job, repeat, failure.to_string()];
        let is_alike = |other: &&mut Vec<String>| other[..3] == row[..3] && other[4] == row[4];
        match rows.iter_mut().find(is_alike) {
            None => rows.push(row),
            Some(_) if is_missing => {}
            Some(other) => {
                let repeats = format!("{}, {}", other[3], row[3]);
                other[3] = repeats;
            }
        }
    }
    let heads = ["platform", "package", "job", "repeats", "failure"];
    Table { title: "Failures".to_owned(), heads: heads.iter().map(|&head| head.to_owned()).collect(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Clock, Place};
    use crate::results::tests::{failed, record};

    #[test]
    fn failures_stand_where_their_rates_would() {
        let missing = Failure::Unavailable { reason: "program 's3fs' not found".into() };
        let wrong = Failure::WrongBytes { place: Place::Bucket, file: "job1/00007".into(), offset: 4096 };
        let mut records = vec![failed("s3fs", "job1", missing.clone()), failed("s3fs", "job2", missing)];
        records.extend((0..3).map(|repeat| record("raw", "job1", repeat, 10.0 + f64::from(repeat))));
        records.push(failed("raw", "job2", wrong));
        let summary = Summary::of(&records, Clock::Durable);
        let table = &rates(&summary, "durable")[0];
        assert_eq!(table.rows[0], ["S3FS", "not available", "not available"]);
        assert_eq!(table.rows[1], ["RAW", "11 (10–12)", "wrong bytes"]);
        assert_eq!(peaks(&summary, "durable")[0].rows[1][1], "12");
        let failures = failures(&records);
        assert_eq!(failures.rows.len(), 2);
        assert!(failures.rows[1][4].contains("job1/00007 has wrong bytes at 4096"));
        assert_eq!(costs(&records).rows[0][3], "8 s/GiB");
    }
}
