//! The rows that Tenon loses: each of its layouts with every package that is faster in a job.

use crate::summary::{Row, Summary};
use harness::Table;
use harness::format::short;

/// Begins the names of Tenon's packages.
const TENON: &str = "tenon";
/// The ceiling, which stores nothing in a bucket.
const CEILING: &str = "local";

/// Makes a table with a row for each job, platform and layout of Tenon whose median is below that of another package.
pub fn losses(summary: &Summary) -> Table {
    let mut rows = Vec::new();
    for platform in summary.platforms() {
        for (column, job) in summary.jobs.iter().enumerate() {
            for own in summary.rows_of(platform).filter(|row| row.target.starts_with(TENON)) {
                let Some(median) = median_of(own, column) else { continue };
                let faster = faster_than(summary, platform, column, median);
                if !faster.is_empty() {
                    let rate = format!("{} {}", short(median), job.unit);
                    rows.push(vec![platform.to_owned(), job.title.clone(), own.title.clone(), rate, faster]);
                }
            }
        }
    }
    let heads = ["platform", "job", "layout", "median", "faster, times"];
    Table { title: "Rows that Tenon loses".to_owned(), heads: heads.map(str::to_owned).to_vec(), rows }
}

/// Returns the packages of others whose median is above `median`, the fastest first, with the ratio.
fn faster_than(summary: &Summary, platform: &str, column: usize, median: f64) -> String {
    let others =
        summary.rows_of(platform).filter(|row| row.target != CEILING && !row.target.starts_with(TENON));
    let mut faster: Vec<(f64, &str)> = others
        .filter_map(|row| Some((median_of(row, column)? / median, row.title.as_str())))
        .filter(|(ratio, _)| *ratio > 1.0)
        .collect();
    faster.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let texts: Vec<String> = faster.iter().map(|(ratio, title)| format!("{title} {ratio:.2}")).collect();
    texts.join(", ")
}

/// Returns the median of a package in a column; `None` if it was not measured.
fn median_of(row: &Row, column: usize) -> Option<f64> {
    Some(row.cells.get(column)?.spread()?.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Clock;
    use crate::results::tests::record;

    #[test]
    fn every_faster_package_is_named_but_not_the_ceiling() {
        let rates = [
            ("local", "job1", 100.0),
            ("raw", "job1", 20.0),
            ("s3fs", "job1", 15.0),
            ("tenon", "job1", 10.0),
            ("tenon-inode", "job1", 18.0),
            ("tenon", "job2", 30.0),
            ("raw", "job2", 20.0),
        ];
        let records: Vec<_> =
            rates.into_iter().map(|(target, job, rate)| record(target, job, 0, rate)).collect();
        let rows = losses(&Summary::of(&records, Clock::Acknowledged)).rows;
        let shown: Vec<(&str, &str)> = rows.iter().map(|row| (row[2].as_str(), row[4].as_str())).collect();
        assert_eq!(shown, [("TENON", "RAW 2.00, S3FS 1.50"), ("TENON-INODE", "RAW 1.11")]);
    }
}
