//! Work on many entries at once: its limits, its progress and its totals, for `tenon cp`, `sync` and `rm`.

use crate::command::flags::StoreFlags;
use crate::command::output::{Progress, print_line};
use crate::command::units::human_bytes;
use crate::trees::{Entry, Location, remove_entry};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// Interval of progress on a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Flags of the commands that copy.
#[derive(Debug, Args)]
pub(crate) struct CopyFlags {
    /// Print what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Copies at once
    #[arg(long, value_name = "COUNT", default_value = "16")]
    pub(crate) parallel: usize,
    /// Print totals as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

/// Totals of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Files copied.
    pub(crate) copied: u64,
    /// Length of these files.
    pub(crate) bytes: u64,
    /// Files that were equal already.
    pub(crate) unchanged: u64,
    /// Files and directories removed.
    pub(crate) removed: u64,
    /// Entries that failed.
    pub(crate) failed: u64,
}

/// Tasks in progress, at most `tasks_max` at once, and the totals of those that have ended.
pub(crate) struct TreeWork {
    tasks: JoinSet<Result<Totals>>,
    tasks_max: usize,
    totals: Totals,
    progress: Progress,
    began: Instant,
    /// Time when progress was shown last.
    shown: Instant,
}

impl TreeWork {
    pub(crate) fn new(tasks_max: usize) -> Self {
        Self {
            tasks: JoinSet::new(),
            tasks_max: tasks_max.max(1),
            totals: Totals::default(),
            progress: Progress::start_on_terminal(),
            began: Instant::now(),
            shown: Instant::now(),
        }
    }

    /// Starts a task. Waits for others to end first, if too many are in progress. The outcome goes into the totals, an error to standard
    /// error.
    pub(crate) async fn start(&mut self, task: impl Future<Output = Result<Totals>> + Send + 'static) {
        while let Some(ended) = self.tasks.try_join_next() {
            self.note(ended);
        }
        while self.tasks.len() >= self.tasks_max
            && let Some(ended) = self.tasks.join_next().await
        {
            self.note(ended);
        }
        self.tasks.spawn(task);
        self.show();
    }

    /// Waits until all tasks have ended.
    pub(crate) async fn finish(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            self.note(ended);
            self.show();
        }
    }

    /// Adds the outcome of a task that has ended.
    fn note(&mut self, ended: Result<Result<Totals>, JoinError>) {
        match ended {
            Ok(Ok(done)) => self.add(done),
            Ok(Err(error)) => self.fail(&format!("{error:#}")),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Removes an entry of a tree as one of the tasks, or only prints it.
    pub(crate) async fn remove(&mut self, root: &Location, entry: Entry, is_dry_run: bool) -> Result<()> {
        let removed = Totals { removed: 1, ..Totals::default() };
        if is_dry_run {
            self.add(removed);
            return print_line(&format!("remove {}", root.join(&entry.path)));
        }
        let root = root.clone();
        self.start(async move {
            remove_entry(&root, &entry).await?;
            Ok(removed)
        })
        .await;
        Ok(())
    }

    /// Removes directories that are to be empty, the deepest first, those of one depth at once.
    pub(crate) async fn remove_directories(
        &mut self,
        root: &Location,
        directories: Vec<Entry>,
        is_dry_run: bool,
    ) -> Result<()> {
        self.finish().await;
        for level in levels(directories) {
            for entry in level {
                self.remove(root, entry, is_dry_run).await?;
            }
            self.finish().await;
        }
        Ok(())
    }

    /// Adds an outcome to the totals.
    pub(crate) fn add(&mut self, done: Totals) {
        self.totals.add(done);
    }

    /// Reports a failure on standard error, and counts it.
    pub(crate) fn fail(&mut self, reason: &str) {
        eprintln!("tenon: {reason}");
        self.totals.failed += 1;
    }

    /// Prints the totals. Returns the exit code: 1 if something failed.
    pub(crate) fn report(self, json: bool, is_dry_run: bool) -> Result<ExitCode> {
        let secs = self.began.elapsed().as_secs_f64();
        drop(self.progress);
        let Totals { copied, bytes, unchanged, removed, failed } = self.totals;
        if json {
            let line = serde_json::json!({
                "copied": copied, "bytes": bytes, "unchanged": unchanged, "removed": removed,
                "failed": failed, "dry_run": is_dry_run, "seconds": secs,
            });
            print_line(&line.to_string())?;
        } else {
            let would = if is_dry_run { "would be " } else { "" };
            print_line(&format!(
                "{copied} files {would}copied ({}), {unchanged} unchanged, {removed} {would}removed, {failed} failed, in {secs:.1} s",
                human_bytes(bytes)
            ))?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Shows the totals as progress, unless they were shown a moment ago.
    fn show(&mut self) {
        if self.shown.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.shown = Instant::now();
        let Totals { copied, bytes, unchanged, removed, failed } = self.totals;
        let rate = human_bytes((bytes as f64 / self.began.elapsed().as_secs_f64().max(0.1)) as u64);
        self.progress.show(&format!(
            "{copied} copied ({}, {rate}/s), {unchanged} unchanged, {removed} removed, {failed} failed",
            human_bytes(bytes)
        ));
    }
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.copied += other.copied;
        self.bytes += other.bytes;
        self.unchanged += other.unchanged;
        self.removed += other.removed;
        self.failed += other.failed;
    }
}

/// Groups directories by depth, the deepest first: those of one depth can be removed at once.
fn levels(directories: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut levels: Vec<Vec<Entry>> = Vec::new();
    for entry in directories {
        let depth = entry.depth();
        levels.resize_with(levels.len().max(depth + 1), Vec::new);
        levels[depth].push(entry);
    }
    levels.reverse();
    levels
}
