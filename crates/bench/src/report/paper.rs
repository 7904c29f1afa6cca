//! Table 2 of the NSDF-FUSE paper, compared with the same jobs here.

use crate::summary::{Row, Summary};
use harness::Table;
use harness::format::short;

/// Jobs of the paper, in the order of its columns.
const JOBS: [&str; 6] = ["job1", "job2", "job3", "job4", "job5", "job6"];

/// Peaks of a package in the paper, in MiB/s, by job, on its clouds A and B.
struct PaperRow {
    package: &'static str,
    cloud_a: [u16; 6],
    cloud_b: [u16; 6],
}

/// Table 2 of the paper.
const TABLE_2: [PaperRow; 8] = [
    PaperRow {
        package: "goofys",
        cloud_a: [248, 546, 481, 1638, 9, 28],
        cloud_b: [136, 431, 356, 910, 15, 78],
    },
    PaperRow {
        package: "geesefs",
        cloud_a: [248, 455, 910, 585, 19, 34],
        cloud_b: [136, 409, 356, 146, 28, 51],
    },
    PaperRow {
        package: "juicefs",
        cloud_a: [455, 327, 744, 431, 13, 25],
        cloud_b: [148, 47, 327, 43, 11, 15],
    },
    PaperRow {
        package: "objectivefs",
        cloud_a: [195, 315, 273, 327, 41, 39],
        cloud_b: [117, 240, 282, 356, 62, 40],
    },
    PaperRow { package: "rclone", cloud_a: [107, 85, 372, 682, 8, 16], cloud_b: [89, 95, 372, 630, 32, 47] },
    PaperRow { package: "s3backer", cloud_a: [84, 81, 102, 91, 62, 51], cloud_b: [39, 130, 42, 126, 29, 34] },
    PaperRow { package: "s3fs", cloud_a: [74, 117, 91, 136, 1, 3], cloud_b: [34, 512, 41, 585, 4, 12] },
    PaperRow { package: "s3ql", cloud_a: [44, 64, 56, 117, 32, 9], cloud_b: [13, 46, 6, 31, 12, 9] },
];

/// Makes a table of peaks: a row for each platform and target, followed by two rows of the paper if it has the package.
pub fn compared_with_paper(summary: &Summary) -> Table {
    let heads = ["package", "where"].into_iter().chain(JOBS);
    let mut rows = Vec::new();
    for row in &summary.rows {
        rows.push(text_row(&row.title, &row.platform, JOBS.map(|job| peak(summary, row, job))));
        let package = row.target.split('.').next();
        for paper in TABLE_2.iter().filter(|paper| Some(paper.package) == package) {
            rows.push(paper_row(row, "paper, cloud A", paper.cloud_a));
            rows.push(paper_row(row, "paper, cloud B", paper.cloud_b));
        }
    }
    Table {
        title: "Highest rates, MiB/s, mount and unmount included, compared with Table 2 of the paper"
            .to_owned(),
        heads: heads.map(str::to_owned).collect(),
        rows,
    }
}

fn paper_row(row: &Row, place: &str, peaks: [u16; 6]) -> Vec<String> {
    text_row(&row.title, place, peaks.map(|peak| peak.to_string()))
}

fn text_row(title: &str, place: &str, peaks: [String; 6]) -> Vec<String> {
    [title.to_owned(), place.to_owned()].into_iter().chain(peaks).collect()
}

/// Returns the highest rate of a package in a job, as text.
fn peak(summary: &Summary, row: &Row, job: &str) -> String {
    let column = summary.jobs.iter().position(|column| column.name == job);
    let spread = column.and_then(|column| row.cells.get(column)?.spread());
    spread.map_or_else(|| "–".to_owned(), |spread| short(spread.peak))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Clock;
    use crate::results::tests::record;

    #[test]
    fn packages_of_the_paper_have_its_rows() {
        let records = [record("s3fs", "job1", 0, 20.0), record("raw", "job1", 0, 40.0)];
        let table = compared_with_paper(&Summary::of(&records, Clock::Acknowledged));
        assert_eq!(table.rows.len(), 4);
        assert_eq!(table.rows[0], ["S3FS", "minio", "20", "–", "–", "–", "–", "–"]);
        assert_eq!(table.rows[2], ["S3FS", "paper, cloud B", "34", "512", "41", "585", "4", "12"]);
        assert_eq!(table.rows[3][0], "RAW");
    }
}
