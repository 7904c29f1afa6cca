//! `tenon profile`: shows which programs use a mount, with which operations, and how long these take.

use crate::command::flame_graph::Frame;
use crate::command::output::print_line;
use crate::command::units;
use crate::control::client::Client;
use crate::control::profile_row::ProfileRow;
use crate::control::protocol::{Answer, Request};
use crate::state::registry::Registry;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Show the operations of each process on a mount, and their times
///
/// Records for a while, then prints a table: the process with the longest total time first. Times are from the
/// arrival of the kernel's request to its reply; what the kernel answers from its caches is not in the table.
#[derive(Debug, Args)]
pub(crate) struct Profile {
    /// Mount point or volume
    #[arg(value_name = "DIR|VOLUME")]
    of: String,
    /// How long to record
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// Meaning of a row of the table
    #[arg(long, value_name = "WHAT", default_value = "process")]
    by: By,
    /// Number of rows; 0 shows all
    #[arg(long, value_name = "COUNT", default_value = "20")]
    top: usize,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Also write a flame graph: programs, their processes, and the operations of these
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
}

/// Meaning of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// An operation of a process
    Process,
    /// An operation of all processes
    Operation,
    /// All operations of the processes of one program
    Program,
}

/// A row of the table.
#[derive(Debug, Default, Clone, PartialEq)]
struct Row {
    name: String,
    operation: String,
    count: u64,
    total_us: u64,
    longest_us: u64,
}

impl Profile {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let secs = self.duration.as_secs();
        if secs == 0 || secs > 3600 {
            bail!("--duration must be between 1s and 1h");
        }
        let mount = Registry::of_user().find(&self.of)?;
        let mut client = Client::connect(&mount)?;
        let rows = match client.ask(&Request::Profile { secs }, |_| {})? {
            Answer::Profile { rows } => rows,
            other => return client.unexpected(&other),
        };
        if let Some(file) = &self.flame {
            let title = format!("{}: operations in {secs} s", mount.holder.volume);
            let svg = flame_graph(&rows).to_svg(&title, "all programs");
            std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            for row in &rows {
                print_line(&serde_json::to_string(row)?)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let rows = grouped(&rows, self.by);
        let shown = if self.top == 0 { rows.len() } else { self.top.min(rows.len()) };
        print_line(&table(&rows, shown, secs))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the rows as a flame graph.
fn flame_graph(rows: &[ProfileRow]) -> Frame {
    let mut all = Frame::default();
    for row in rows {
        let process = format!("{} {}", row.pid, row.program);
        all.add(&[&row.program, &process, &row.operation], row.count, row.total_us);
    }
    all
}

/// Sums the rows of a group, the longest total time first.
fn grouped(rows: &[ProfileRow], by: By) -> Vec<Row> {
    let mut groups: BTreeMap<(String, String), Row> = BTreeMap::new();
    for row in rows {
        let (name, operation) = match by {
            By::Process => (format!("{} {}", row.pid, row.program), row.operation.clone()),
            By::Operation => (String::new(), row.operation.clone()),
            By::Program => (row.program.clone(), String::new()),
        };
        let group = groups.entry((name.clone(), operation.clone())).or_default();
        (group.name, group.operation) = (name, operation);
        group.count += row.count;
        group.total_us += row.total_us;
        group.longest_us = group.longest_us.max(row.longest_us);
    }
    let mut groups: Vec<Row> = groups.into_values().collect();
    groups.sort_by_key(|row| std::cmp::Reverse(row.total_us));
    groups
}

/// Formats the first `shown` rows. Shares are of all rows.
fn table(rows: &[Row], shown: usize, secs: u64) -> String {
    if rows.is_empty() {
        return format!("no requests reached the file system in {secs} s");
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("process".len());
    let title = format!(
        "{:<width$}  {:<16}{:>10}{:>12}{:>12}{:>12}{:>8}",
        "process", "operation", "count", "total ms", "mean ms", "longest ms", "share"
    );
    let whole: u64 = rows.iter().map(|row| row.total_us).sum();
    let ms = |us: u64| us as f64 / 1000.0;
    let line = |row: &Row| {
        let mean = ms(row.total_us) / row.count.max(1) as f64;
        let share = 100.0 * row.total_us as f64 / whole.max(1) as f64;
        format!(
            "{:<width$}  {:<16}{:>10}{:>12.1}{mean:>12.3}{:>12.1}{share:>7.1}%",
            row.name,
            row.operation,
            row.count,
            ms(row.total_us),
            ms(row.longest_us)
        )
    };
    let rest = rows.len() - shown;
    let more = (rest > 0).then(|| format!("and {rest} more rows; --top 0 shows all"));
    [title].into_iter().chain(rows[..shown].iter().map(line)).chain(more).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, program: &str, operation: &str, total_us: u64) -> ProfileRow {
        let (program, operation) = (program.to_owned(), operation.to_owned());
        ProfileRow { pid, program, operation, count: 2, total_us, longest_us: total_us / 2 }
    }

    #[test]
    fn rows_are_grouped() {
        let rows = [row(1, "cat", "READ", 10), row(2, "cat", "READ", 30), row(2, "cat", "OPEN", 4)];
        let names = |by| {
            let groups = grouped(&rows, by).into_iter();
            groups.map(|row| (row.name, row.operation, row.count, row.total_us)).collect::<Vec<_>>()
        };
        let named =
            |name: &str, operation: &str, count, total| (name.to_owned(), operation.to_owned(), count, total);
        assert_eq!(names(By::Program), [named("cat", "", 6, 44)]);
        assert_eq!(names(By::Operation), [named("", "READ", 4, 40), named("", "OPEN", 2, 4)]);
        assert_eq!(names(By::Process)[0], named("2 cat", "READ", 2, 30));
        assert_eq!(table(&grouped(&rows, By::Process), 3, 1).lines().count(), 4);
        assert!(table(&grouped(&rows, By::Process), 1, 1).ends_with("and 2 more rows; --top 0 shows all"));
    }
}
