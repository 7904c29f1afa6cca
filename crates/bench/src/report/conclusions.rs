//! Sentences made from data: the best package for each job and platform.

use crate::statistics::{Conclusion, Ratio, Spread};
use crate::summary::{Row, Summary};
use crate::workload::JobColumn;
use harness::format::short;

/// Seed of the bootstrap.
const SEED: u64 = 24;

/// Returns a sentence for each job and platform that has a rate. The ceiling (the package `local`, a local directory) does not compete.
pub fn conclusions(summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    for platform in summary.platforms() {
        for (column, job) in summary.jobs.iter().enumerate() {
            sentences.extend(sentence(summary, platform, column, job));
        }
    }
    sentences
}

/// Returns the conclusion about one job; `None` if no package was measured.
fn sentence(summary: &Summary, platform: &str, column: usize, job: &JobColumn) -> Option<String> {
    let mut ranked: Vec<(&Row, Spread)> = summary
        .rows_of(platform)
        .filter(|row| row.target != "local")
        .filter_map(|row| Some((row, row.cells.get(column)?.spread()?)))
        .collect();
    ranked.sort_by(|(_, a), (_, b)| b.median.total_cmp(&a.median));
    let (best, spread) = ranked.first()?;
    let lead = format!(
        "{} on {platform}: {} has the highest median, {} {}",
        job.title,
        best.title,
        short(spread.median),
        job.unit
    );
    let Some((second, _)) = ranked.get(1) else { return Some(format!("{lead}.")) };
    let ratio = Ratio::of(&best.cells[column].rates, &second.cells[column].rates, SEED);
    Some(match ratio {
        Some(ratio) if ratio.conclusion() == Conclusion::Faster => format!(
            "{lead}, {:.2} times {} (95 % interval {:.2} to {:.2}).",
            ratio.value, second.title, ratio.low, ratio.high
        ),
        Some(_) => format!("{lead}; noise forbids to say that it is faster than {}.", second.title),
        None => format!("{lead}; {} follows. There are too few repeats for an interval.", second.title),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Clock;
    use crate::results::tests::record;

    #[test]
    fn the_best_package_is_named_with_its_lead() {
        let mut records = Vec::new();
        for repeat in 0..3 {
            let noise = f64::from(repeat) / 10.0;
            records.push(record("local", "job1", repeat, 100.0));
            records.push(record("raw", "job1", repeat, 20.0 + noise));
            records.push(record("s3fs", "job1", repeat, 10.0 + noise));
        }
        let summary = Summary::of(&records, Clock::Durable);
        let sentences = conclusions(&summary);
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].starts_with(
            "1 sequential write, 1 writer on minio: RAW has the highest median, 20.1 MiB/s, 1.99 times S3FS"
        ));
    }
}
