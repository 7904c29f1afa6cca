//! The comparison of two results files: ratios with confidence intervals.

use crate::outcome::Clock;
use crate::results::Record;
use crate::statistics::{Conclusion, Ratio, median};
use harness::Table;
use harness::format::short;

/// Seed of the bootstrap: the same files give the same intervals.
const SEED: u64 = 24;

/// Compares the cells that both files have: the rate of `after` as a multiple of that of `before`.
pub fn comparison(before: &[Record], after: &[Record], clock: Clock) -> Table {
    let mut keys: Vec<(&str, &str, &str)> = Vec::new();
    for record in after {
        let key = (record.cell.platform.as_str(), record.cell.target.as_str(), record.cell.job.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let heads = ["platform", "package", "job", "before", "after", "ratio", "95 % interval", "conclusion"];
    Table {
        title: "After as a multiple of before".to_owned(),
        heads: heads.iter().map(|&head| head.to_owned()).collect(),
        rows: keys.into_iter().filter_map(|key| row(before, after, key, clock)).collect(),
    }
}

/// Returns the row of one package and job; `None` if one side was not measured.
fn row(before: &[Record], after: &[Record], key: (&str, &str, &str), clock: Clock) -> Option<Vec<String>> {
    let (old, new) = (rates(before, key, clock), rates(after, key, clock));
    if old.is_empty() || new.is_empty() {
        return None;
    }
    let unit = after.iter().find(|record| record.cell.job == key.2)?.column.unit;
    let ratio = Ratio::of(&new, &old, SEED);
    let conclusion = match ratio.map(|ratio| ratio.conclusion()) {
        Some(Conclusion::Faster) => "faster",
        Some(Conclusion::Slower) => "slower",
        Some(Conclusion::None) => "none: noise",
        None => "none: fewer than 3 repeats",
    };
    let interval =
        ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2} to {:.2}", ratio.low, ratio.high));
    Some(vec![
        key.0.to_owned(),
        key.1.to_owned(),
        key.2.to_owned(),
        format!("{} {unit}", short(median(&old))),
        format!("{} {unit}", short(median(&new))),
        format!("{:.2}", median(&new) / median(&old)),
        interval,
        conclusion.to_owned(),
    ])
}

/// Returns the rates of one package and job.
fn rates(records: &[Record], (platform, target, job): (&str, &str, &str), clock: Clock) -> Vec<f64> {
    let is_own = |record: &&Record| {
        record.cell.platform == platform && record.cell.target == target && record.cell.job == job
    };
    let own = records.iter().filter(is_own);
    own.filter_map(|record| Some(record.outcome.measurement()?.rate(clock, record.column.unit))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::record;

    #[test]
    fn noise_forbids_a_conclusion() {
        let run = |rates: &[f64]| -> Vec<Record> {
            (0..).zip(rates).map(|(repeat, rate)| record("raw", "job1", repeat, *rate)).collect()
        };
        let before = run(&[10.0, 10.1, 9.9]);
        let conclusion = |after: &[f64]| comparison(&before, &run(after), Clock::Durable).rows[0][7].clone();
        assert_eq!(conclusion(&[20.0, 20.4, 19.8]), "faster");
        assert_eq!(conclusion(&[5.0, 30.0, 10.0]), "none: noise");
        assert_eq!(conclusion(&[20.0, 20.4]), "none: fewer than 3 repeats");
    }
}
