//! The HTML page: conclusions, bars and box plots for each job, and the tables, that of features included.

use super::box_plot::box_plots;
use super::conclusions::conclusions;
use super::ranking::{Ranking, ranks};
use super::tables::{costs, failures, peaks, rates};
use crate::outcome::Clock;
use crate::probe::{Finding, matrix};
use crate::results::Record;
use crate::summary::Summary;
use harness::format::{escape, short};
use harness::page::page;
use harness::svg::{Bar, bars};
use std::fmt::Write;

/// Renders the results as one self-contained page, with bars by `clock`. `features` has the findings of a probe, by package.
pub fn html(
    records: &[Record],
    clock: Clock,
    ranking: &Ranking,
    features: &[(String, Vec<Finding>)],
) -> String {
    let summary = Summary::of(records, clock);
    let paper = Summary::of(records, Clock::Paper);
    let mut body = String::from("<h1>File systems over object stores, measured the same way</h1>");
    body.push_str(&conditions(records));
    body.push_str("<section><h2>Conclusions</h2><ul>");
    for sentence in conclusions(&summary) {
        let _ = write!(body, "<li>{}</li>", escape(&sentence));
    }
    body.push_str("</ul></section>");
    for platform in summary.platforms() {
        body.push_str(&charts(&summary, platform));
    }
    let name = match clock {
        Clock::Acknowledged => "acknowledged",
        Clock::Durable => "durable",
        Clock::Paper => "paper's clock,",
    };
    let tables = ranks(&summary, ranking).into_iter().chain(rates(&summary, name));
    let tables = tables.chain(rates(&paper, "paper's clock,")).chain(peaks(&paper, "paper's clock,"));
    let matrix = (!features.is_empty()).then(|| matrix(features));
    let tables = tables.chain([costs(records), failures(records)]).chain(matrix);
    for table in tables.filter(|table| !table.rows.is_empty()) {
        body.push_str(&table.to_html());
    }
    page("tenon bench", &body)
}

fn conditions(records: &[Record]) -> String {
    let Some(record) = records.first() else { return String::new() };
    let conditions = &record.conditions;
    let scale = &conditions.scale;
    format!(
        "<p>{}. {} files of {} MiB and {} files of {} KiB. Durable writes end when a second client can have every byte; reads begin with a new mount \
         and empty caches. Every byte is compared.</p>",
        escape(&conditions.machine),
        scale.big_files,
        scale.big_bytes >> 20,
        scale.small_files,
        scale.small_bytes >> 10
    )
}

fn charts(summary: &Summary, platform: &str) -> String {
    let mut section = format!("<section><h2>{}</h2><div class=\"panels\">", escape(platform));
    for (column, job) in summary.jobs.iter().enumerate() {
        let bar = |row: &crate::summary::Row| {
            let cell = &row.cells[column];
            let spread = cell.spread();
            let failure =
                || cell.failures.last().map_or("not measured", |failure| failure.short()).to_owned();
            Bar {
                label: row.title.clone(),
                value: spread.map(|spread| spread.median),
                note: spread.map_or_else(failure, |spread| format!("{} {}", short(spread.median), job.unit)),
                colour: "c0".to_owned(),
            }
        };
        let rows: Vec<Bar> = summary.rows_of(platform).map(bar).collect();
        let spreads: Vec<_> = summary
            .rows_of(platform)
            .filter_map(|row| Some((row.title.clone(), row.cells[column].spread()?)))
            .filter(|(_, spread)| spread.count > 1)
            .collect();
        let _ = write!(section, "<div><h3>{}</h3>{}</div>", escape(&job.title), bars(&rows));
        if !spreads.is_empty() {
            let title = escape(&job.title);
            let _ =
                write!(section, "<div><h3>{title}: spread of the repeats</h3>{}</div>", box_plots(&spreads));
        }
    }
    section + "</div></section>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, Place};
    use crate::results::tests::{failed, record};

    #[test]
    fn the_page_has_bars_box_plots_tables_and_failures() {
        let mut records: Vec<Record> = (0..3).map(|repeat| record("raw", "job1", repeat, 10.0)).collect();
        let wrong = Failure::WrongBytes { place: Place::Bucket, file: "<f>".into(), offset: 0 };
        records.push(failed("bad", "job1", wrong));
        let features = [("raw".to_owned(), vec![Finding::of("locks", Err("<EIO>".into()))])];
        let page = html(&records, Clock::Durable, &Ranking::default(), &features);
        for part in [
            "10 MiB/s",
            "data-value=\"10\"",
            "data-median=\"10\"",
            "RAW has the highest median",
            "&lt;f&gt; has wrong bytes",
            "no: &lt;EIO&gt;",
            "all jobs alike",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<f>") && !page.contains("http://") && !page.contains("<script"));
    }
}
