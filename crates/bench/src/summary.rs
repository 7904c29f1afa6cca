//! The summary of results: for each platform and target, the spread of each job's rates.

use crate::outcome::{Clock, Failure};
use crate::results::Record;
use crate::statistics::Spread;
use crate::workload::{JobColumn, Unit};

/// All results of a run, summarized.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The jobs, in the order of their first result.
    pub jobs: Vec<JobColumn>,
    /// Rows, one for each platform and target.
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the platform.
    pub platform: String,
    /// Name of the target.
    pub target: String,
    /// Title of the target.
    pub title: String,
    /// A summary for each job.
    pub cells: Vec<CellSummary>,
}

/// The repeats of a job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CellSummary {
    /// Rates in the job's unit, in the order of the repeats.
    pub rates: Vec<f64>,
    /// Failures, in the order of the repeats.
    pub failures: Vec<Failure>,
}

impl Summary {
    /// Summarizes results by a clock. Platforms, targets and jobs are in the order of their first result.
    pub fn of(records: &[Record], clock: Clock) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for record in records {
            let cell = &record.cell;
            let is_row = |row: &Row| row.platform == cell.platform && row.target == cell.target;
            if !rows.iter().any(is_row) {
                rows.push(Row {
                    platform: cell.platform.clone(),
                    target: cell.target.clone(),
                    title: record.title.clone(),
                    cells: Vec::new(),
                });
            }
        }
        let mut jobs: Vec<JobColumn> = Vec::new();
        for record in records {
            if !jobs.iter().any(|job| job.name == record.column.name) {
                jobs.push(record.column.clone());
            }
        }
        for row in &mut rows {
            row.cells = jobs.iter().map(|job| CellSummary::of(records, row, job, clock)).collect();
        }
        Self { jobs, rows }
    }

    /// Returns the platforms, in the order of their first result.
    pub fn platforms(&self) -> Vec<&str> {
        let mut platforms = Vec::new();
        for row in &self.rows {
            if !platforms.contains(&row.platform.as_str()) {
                platforms.push(row.platform.as_str());
            }
        }
        platforms
    }

    /// Returns the rows of a platform.
    pub fn rows_of<'a>(&'a self, platform: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.platform == platform)
    }
}

impl CellSummary {
    fn of(records: &[Record], row: &Row, job: &JobColumn, clock: Clock) -> Self {
        let is_cell = |record: &&Record| {
            record.cell.platform == row.platform
                && record.cell.target == row.target
                && record.cell.job == job.name
        };
        let mut own: Vec<&Record> = records.iter().filter(is_cell).collect();
        own.sort_by_key(|record| record.cell.repeat);
        Self {
            rates: own.iter().filter_map(|record| rate(record, clock, job.unit)).collect(),
            failures: own.iter().filter_map(|record| record.outcome.failure().cloned()).collect(),
        }
    }

    /// Returns the spread of the rates; `None` without any. A cell with a wrong result has none: its rates say nothing.
    pub fn spread(&self) -> Option<Spread> {
        if self.failures.iter().any(Failure::is_wrong_result) {
            return None;
        }
        Spread::of(&self.rates)
    }
}

/// Returns the rate of a record; `None` for a failure.
fn rate(record: &Record, clock: Clock, unit: Unit) -> Option<f64> {
    Some(record.outcome.measurement()?.rate(clock, unit))
}

impl Row {
    /// Returns why the package could not be had, if no job ran for that reason.
    pub fn unavailable(&self) -> Option<&Failure> {
        let mut failures = self.cells.iter().flat_map(|cell| &cell.failures);
        let has_rates = self.cells.iter().any(|cell| !cell.rates.is_empty());
        failures.find(|failure| matches!(failure, Failure::Unavailable { .. })).filter(|_| !has_rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Place;
    use crate::results::tests::{failed, record};

    #[test]
    fn a_wrong_result_in_one_repeat_hides_the_rates_of_all() {
        let wrong = Failure::WrongBytes { place: Place::Bucket, file: "f".into(), offset: 0 };
        let hung = Failure::Hung { phase: crate::outcome::Phase::Unmount, seconds: 1.0 };
        let records = [
            record("raw", "job1", 0, 10.0),
            record("raw", "job1", 1, 12.0),
            record("bad", "job1", 1, 99.0),
            failed("bad", "job1", wrong),
            record("slow", "job1", 1, 5.0),
            failed("slow", "job1", hung),
        ];
        let summary = Summary::of(&records, Clock::Durable);
        assert_eq!(summary.jobs.len(), 1);
        let spreads: Vec<Option<f64>> =
            summary.rows.iter().map(|row| row.cells[0].spread().map(|spread| spread.median)).collect();
        assert_eq!(spreads, [Some(11.0), None, Some(5.0)]);
    }
}
