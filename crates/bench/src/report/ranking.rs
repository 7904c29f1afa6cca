//! The ranking of packages for a stated workload: the shares of time that its jobs take.

use crate::summary::{Row, Summary};
use harness::Table;
use harness::format::short;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The shares of a workload's time that the jobs take with the best package of each. Without any, all jobs have the same share.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking(BTreeMap<String, f64>);

/// Problems of shares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a share; write jobs with numbers, like job1=2,job6=1")]
pub struct RankingError(String);

impl FromStr for Ranking {
    type Err = RankingError;

    fn from_str(text: &str) -> Result<Self, RankingError> {
        let share = |part: &str| {
            let (job, share) = part.split_once('=')?;
            let share: f64 = share.parse().ok().filter(|share: &f64| share.is_finite() && *share > 0.0)?;
            Some((job.to_owned(), share))
        };
        let shares = text.split(',').map(|part| share(part).ok_or_else(|| RankingError(part.to_owned())));
        Ok(Self(shares.collect::<Result<_, _>>()?))
    }
}

impl Ranking {
    /// Returns the share of a job in the ranking; without given shares all jobs count alike.
    fn share(&self, job: &str) -> f64 {
        match self.0.is_empty() {
            true => 1.0,
            false => self.0.get(job).copied().unwrap_or(0.0),
        }
    }

    /// Returns the shares as text.
    fn describe(&self) -> String {
        let parts: Vec<String> =
            self.0.iter().map(|(job, share)| format!("{job} {}", short(*share))).collect();
        if parts.is_empty() { "all jobs alike".to_owned() } else { parts.join(", ") }
    }
}

/// Makes a table for each platform: packages by the time that the workload takes with them, as a multiple of the time that it would take
/// with the best package for each job. A package without a rate in one of the jobs has no rank. A local directory does not compete.
pub fn ranks(summary: &Summary, ranking: &Ranking) -> Vec<Table> {
    summary.platforms().into_iter().map(|platform| table(summary, ranking, platform)).collect()
}

/// Returns the table with the ranking of the packages.
fn table(summary: &Summary, ranking: &Ranking, platform: &str) -> Table {
    let rows: Vec<&Row> = summary.rows_of(platform).filter(|row| row.target != "local").collect();
    let median = |row: &Row, column: usize| Some(row.cells[column].spread()?.median);
    let mut ranked = Vec::new();
    let mut unranked = Vec::new();
    for row in &rows {
        let (mut time, mut shares, mut missing) = (0.0, 0.0, None);
        for (column, job) in summary.jobs.iter().enumerate().filter(|(_, job)| ranking.share(&job.name) > 0.0)
        {
            let best = rows.iter().filter_map(|row| median(row, column)).fold(0.0, f64::max);
            match median(row, column) {
                Some(rate) => {
                    time += ranking.share(&job.name) * best / rate;
                    shares += ranking.share(&job.name);
                }
                None => missing = missing.or(Some(job.name.as_str())),
            }
        }
        match missing {
            Some(job) => unranked.push(vec!["–".to_owned(), row.title.clone(), format!("no rate in {job}")]),
            None if shares > 0.0 => ranked.push((time / shares, row.title.clone())),
            None => {}
        }
    }
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let numbered = (1..).zip(ranked).map(|(rank, (time, title))| vec![rank.to_string(), title, short(time)]);
    Table {
        title: format!("{platform}: ranking for {}", ranking.describe()),
        heads: ["rank", "package", "time, best of each job = 1"].map(str::to_owned).to_vec(),
        rows: numbered.chain(unranked).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Clock, Failure};
    use crate::results::tests::{failed, record};

    #[test]
    fn the_workload_decides_the_rank() {
        let records = [
            record("local", "job1", 0, 1000.0),
            record("raw", "job1", 0, 20.0),
            record("raw", "job6", 0, 20.0),
            record("s3fs", "job1", 0, 10.0),
            record("s3fs", "job6", 0, 40.0),
            record("bad", "job1", 0, 99.0),
            failed("bad", "job6", Failure::NoSpace { file: "f".into() }),
        ];
        let summary = Summary::of(&records, Clock::Durable);
        let order = |text: &str| -> Vec<Vec<String>> {
            ranks(&summary, &text.parse().unwrap())[0].rows.iter().map(|row| row[1..].to_vec()).collect()
        };
        assert_eq!(order("job1=1"), [["BAD", "1"], ["RAW", "4.95"], ["S3FS", "9.9"]]);
        assert_eq!(order("job6=3"), [["S3FS", "1"], ["RAW", "2"], ["BAD", "no rate in job6"]]);
        let all = &ranks(&summary, &Ranking::default())[0];
        assert_eq!(all.rows[0][..2], ["1", "RAW"]);
        assert!(all.title.contains("all jobs alike"));
        assert!("job1=fast".parse::<Ranking>().is_err() && "job1=0".parse::<Ranking>().is_err());
    }
}
