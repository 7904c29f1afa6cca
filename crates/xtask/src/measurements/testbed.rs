//! Blocks of `docs/performance.md`, from results of `tenon bench run`.

use anyhow::Result;
use bench::report::{compared_with_paper, failures, losses, peaks, rates};
use bench::{Clock, Record, Results, Summary};
use harness::Table;
use std::path::Path;

pub(super) const DOCUMENT: &str = "docs/performance.md";
/// The results, as `tenon bench run --results` writes them.
const RESULTS: &str = "testbed.jsonl";

/// Returns the blocks with their names; none without results.
pub(super) fn blocks(dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let path = dir.join(RESULTS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let records = Results::read(&path)?;
    let durable = Summary::of(&records, Clock::Durable);
    let acknowledged = Summary::of(&records, Clock::Acknowledged);
    let paper = compared_with_paper(&Summary::of(&records, Clock::Paper));
    Ok(vec![
        ("testbed-conditions", conditions(&records)),
        ("testbed-durable", sections(&rates(&durable, "durable"))),
        ("testbed-acknowledged", sections(&peaks(&acknowledged, "acknowledged"))),
        ("testbed-losses", losses(&durable).to_markdown()),
        ("testbed-paper", paper.to_markdown()),
        ("testbed-costs", bench::report::costs(&records).to_markdown()),
        ("testbed-failures", failures(&records).to_markdown()),
    ])
}

/// Returns the machine, the sizes and the versions of the programs.
fn conditions(records: &[Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let scale = &first.conditions.scale;
    let mut versions: Vec<String> = records
        .iter()
        .filter_map(|record| Some(format!("{}: {}", record.title, record.version.as_ref()?)))
        .collect();
    versions.sort();
    versions.dedup();
    let repeats = records.iter().map(|record| record.cell.repeat + 1).max().unwrap_or(0);
    format!(
        "{}. {} × {} MiB, {} × {} KiB, {} empty files; repeats: {}. {}.",
        first.conditions.machine,
        scale.big_files,
        scale.big_bytes >> 20,
        scale.small_files,
        scale.small_bytes >> 10,
        scale.empty_files,
        repeats,
        versions.join("; ")
    )
}

fn sections(tables: &[Table]) -> String {
    let texts: Vec<String> =
        tables.iter().map(|table| format!("{}:\n\n{}", table.title, table.to_markdown())).collect();
    texts.join("\n")
}
