//! The state of the screen: what is shown of which process, and in which order. Turns it into lines, and changes it by keys.

use super::background;
use super::table::{Cell, Column, Table, TableState, number, text};
use super::tables;
use super::terminal::{Key, bold, fit, reverse};
use crate::command::samples::{Change, Sample};
use crate::command::stats::{bytes, count, millis, percent};
use crate::control::batch_protocol::BatchInfo;
use crate::control::live_messages::Activity;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio::time::Instant;

const PROCESS_LIST_COLUMNS: &[Column] = &[
    text("volume", 0),
    text("at", 24),
    number("ops/s", 8),
    number("ms", 9),
    number("read/s", 11),
    number("written/s", 11),
    number("store/s", 8),
    number("pending", 8),
    number("memory", 11),
    number("cpu", 6),
];

const HELP: &[&str] = &[
    "up, down, Page Up, Page Down, Home, End   select a row",
    "Enter       show the selected mount or server",
    "Esc         go back",
    "Tab, 1-6    operations, files, processes, store requests, background work, batches",
    "s, S        sort by the next or previous column (marked by *)",
    "r           reverse the order (~)",
    "Space       pause and continue",
    "h           show or hide this help",
    "q, Ctrl-C   quit",
    "",
    "Rates and times are those of the last interval. p50 and p99 are bounds of the histogram's buckets.",
    "time: sum of the times of operations, as a part of the interval; several at once may exceed 100%.",
];

/// Aspect of a process that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tab {
    Operations,
    Files,
    Processes,
    Store,
    Background,
    Batches,
}

impl Tab {
    const ALL: [Self; 6] =
        [Self::Operations, Self::Files, Self::Processes, Self::Store, Self::Background, Self::Batches];

    fn title(self) -> &'static str {
        match self {
            Self::Operations => "1 operations",
            Self::Files => "2 files",
            Self::Processes => "3 processes",
            Self::Store => "4 store requests",
            Self::Background => "5 background",
            Self::Batches => "6 batches",
        }
    }

    /// Returns the tab `by` positions further.
    fn next(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// A process, with its last two reports.
struct Process {
    before: Sample,
    now: Sample,
    activity: Activity,
    /// The batches in the report before the last.
    batches_before: Vec<BatchInfo>,
}

impl Process {
    fn change(&self) -> Change<'_> {
        Change { before: &self.before, now: &self.now }
    }

    /// Returns where the volume is mounted or served.
    fn place(&self) -> String {
        let status = &self.activity.status;
        let mut places: Vec<&str> = status.mount_points().collect();
        places.extend(status.endpoint.as_deref());
        places.join(", ")
    }
}

/// The state of the screen.
pub(super) struct Screen {
    /// The processes, by state directory.
    processes: BTreeMap<PathBuf, Process>,
    /// The process that is shown; `None` shows the list.
    shown: Option<PathBuf>,
    /// Whether only one process is followed, so that there is no list.
    is_single: bool,
    tab: Tab,
    /// Order and selection of the list.
    list_order: TableState,
    /// Order and selection of each tab's table.
    tab_orders: [TableState; Tab::ALL.len()],
    /// State directories of the processes in the list, in the order in which they are shown.
    listed: Vec<PathBuf>,
    is_paused: bool,
    shows_help: bool,
}

impl Screen {
    pub(super) fn new(is_single: bool) -> Self {
        let order = |tab| match tab {
            Tab::Processes => TableState::sorted_by(2),
            Tab::Batches => TableState::sorted_by(4),
            _ => TableState::sorted_by(1),
        };
        Self {
            processes: BTreeMap::new(),
            shown: None,
            is_single,
            tab: Tab::Operations,
            list_order: TableState::sorted_by(2),
            tab_orders: Tab::ALL.map(order),
            listed: Vec::new(),
            is_paused: false,
            shows_help: false,
        }
    }

    /// Takes over a report of a process; drops it while the screen is paused.
    pub(super) fn add(&mut self, state: PathBuf, mut activity: Activity) {
        if self.is_paused {
            return;
        }
        let now = Sample { at: Instant::now(), values: std::mem::take(&mut activity.samples) };
        if self.is_single {
            self.shown = Some(state.clone());
        }
        let (before, batches_before) = match self.processes.remove(&state) {
            Some(process) => (process.now, process.activity.status.batches),
            None => (now.clone(), activity.status.batches.clone()),
        };
        self.processes.insert(state, Process { before, now, activity, batches_before });
    }

    /// Removes a process that has ended.
    pub(super) fn remove(&mut self, state: &Path) {
        self.processes.remove(state);
        if self.shown.as_deref() == Some(state) {
            self.shown = None;
        }
    }

    /// Handles a key. Returns false to quit.
    pub(super) fn handle(&mut self, key: Key) -> bool {
        match key {
            Key::Interrupt | Key::Char('q') => return false,
            _ if self.shows_help => self.shows_help = false,
            Key::Char('h' | '?') => self.shows_help = true,
            Key::Char(' ') => self.is_paused = !self.is_paused,
            _ if self.shown.is_some() => self.handle_shown(key),
            Key::Enter | Key::Right => self.shown = self.listed.get(self.list_order.selected()).cloned(),
            _ => self.list_order.handle(key, PROCESS_LIST_COLUMNS.len()),
        }
        true
    }

    /// Handles a key while one process is shown.
    fn handle_shown(&mut self, key: Key) {
        match key {
            Key::Escape | Key::Backspace if !self.is_single => self.shown = None,
            Key::Tab | Key::Right => self.tab = self.tab.next(1),
            Key::BackTab | Key::Left => self.tab = self.tab.next(Tab::ALL.len() - 1),
            Key::Char(digit @ '1'..='6') => self.tab = Tab::ALL[digit as usize - '1' as usize],
            _ => {
                let columns = match self.tab {
                    Tab::Operations => tables::OPERATION_COLUMNS.len(),
                    Tab::Files => tables::FILE_COLUMNS.len(),
                    Tab::Processes => tables::PROCESS_COLUMNS.len(),
                    Tab::Store => tables::STORE_COLUMNS.len(),
                    Tab::Background => 1,
                    Tab::Batches => tables::BATCH_COLUMNS.len(),
                };
                self.tab_orders[self.tab as usize].handle(key, columns);
            }
        }
    }

    /// Returns the lines of the screen.
    pub(super) fn lines(&mut self, width: usize, height: usize) -> Vec<String> {
        let state = if self.is_paused { "paused" } else { "h help, q quit" };
        let title = match self.shown.as_ref().and_then(|shown| self.processes.get(shown)) {
            Some(process) => format!("tenon top: {} at {}", process.activity.status.volume, process.place()),
            None => format!("tenon top: {} mounts and servers", self.processes.len()),
        };
        let used = width.saturating_sub(state.len() + 1);
        let mut lines = vec![reverse(&format!("{} {state}", fit(&title, used, false)))];
        if self.shows_help {
            lines.extend(HELP.iter().map(|line| fit(line, width, false)));
        } else if let Some(shown) = self.shown.clone().filter(|shown| self.processes.contains_key(shown)) {
            self.add_process_lines(&shown, &mut lines, width, height);
        } else {
            self.add_list_lines(&mut lines, width, height);
        }
        lines.truncate(height);
        lines
    }

    fn add_list_lines(&mut self, lines: &mut Vec<String>, width: usize, height: usize) {
        if self.processes.is_empty() {
            let text =
                if self.is_single { "waiting for the process" } else { "nothing is mounted or served" };
            return lines.push(fit(text, width, false));
        }
        let row = |(state, process): (&PathBuf, &Process)| {
            let change = process.change();
            let status = &process.activity.status;
            let operations = change.per_sec("tenon_fuse_operations_total", &[])
                + change.per_sec("tenon_s3_requests_total", &[]);
            let latency = change.mean_ms("tenon_fuse_operation_duration_seconds", &[]);
            let pending =
                status.pending.dirty_files + status.pending.backlog_changes + status.pending.renames;
            let rate = |name: &str| Cell::number(change.per_sec(name, &[]), bytes);
            let row = vec![
                Cell::text(&status.volume),
                Cell::text(process.place()),
                Cell::number(operations, count),
                Cell { text: millis(latency), value: latency.unwrap_or(0.0) },
                rate("tenon_fuse_read_bytes_total"),
                rate("tenon_fuse_written_bytes_total"),
                Cell::number(change.per_sec("tenon_store_requests_total", &[]), count),
                Cell::number(pending as f64, count),
                Cell::number(change.now.sum("process_resident_memory_bytes", &[]), bytes),
                Cell::number(change.per_sec("process_cpu_seconds_total", &[]), |cpu| percent(cpu, 1.0)),
                // A cell without a column, which is not shown: it identifies the row after sorting.
                Cell::text(state.display().to_string()),
            ];
            (row, state.clone())
        };
        let mut table = Table {
            columns: PROCESS_LIST_COLUMNS,
            rows: self.processes.iter().map(|entry| row(entry).0).collect(),
        };
        self.list_order.sort(&mut table);
        let state_of = |row: &Vec<Cell>| row.last().map(|cell| PathBuf::from(&cell.text)).unwrap_or_default();
        self.listed = table.rows.iter().map(state_of).collect();
        lines.extend(self.list_order.lines(&table, width, height.saturating_sub(1)));
    }

    fn add_process_lines(&mut self, shown: &Path, lines: &mut Vec<String>, width: usize, height: usize) {
        let Some(process) = self.processes.get(shown) else { return };
        let (change, activity) = (process.change(), &process.activity);
        lines.extend(summary(&change).iter().map(|line| fit(line, width, false)));
        lines.push(tab_line(self.tab, width));
        let secs = (activity.interval_ms as f64 / 1000.0).max(1e-3);
        let mut table = match self.tab {
            Tab::Operations => tables::operations(&change),
            Tab::Files => tables::files(&activity.files, secs),
            Tab::Processes => tables::processes(&activity.processes, secs),
            Tab::Store => tables::store_requests(&change),
            Tab::Batches => tables::batches(&process.batches_before, &activity.status.batches, secs),
            Tab::Background => {
                let background = background::lines(&activity.status, &change);
                return lines.extend(background.iter().map(|line| fit(line, width, false)));
            }
        };
        let order = &mut self.tab_orders[self.tab as usize];
        order.sort(&mut table);
        lines.extend(order.lines(&table, width, height.saturating_sub(lines.len())));
    }
}

/// Returns the figures of a process as a whole.
fn summary(change: &Change<'_>) -> [String; 2] {
    let rate = |name: &str| count(change.per_sec(name, &[]));
    let byte_rate = |name: &str| bytes(change.per_sec(name, &[]));
    let hits = change.per_sec("tenon_read_cache_hit_bytes_total", &[]);
    let missed = change.per_sec("tenon_read_cache_missed_bytes_total", &[]);
    let operations = format!(
        "operations {}/s  {} ms  in progress {}  errors {}/s   read {}/s  hits {}  written {}/s   S3 {}/s",
        rate("tenon_fuse_operations_total"),
        millis(change.mean_ms("tenon_fuse_operation_duration_seconds", &[])),
        count(change.now.sum("tenon_fuse_operations_in_progress", &[])),
        rate("tenon_fuse_errors_total"),
        byte_rate("tenon_fuse_read_bytes_total"),
        percent(hits, hits + missed),
        byte_rate("tenon_fuse_written_bytes_total"),
        rate("tenon_s3_requests_total"),
    );
    let store = format!(
        "store {}/s  {} ms  retries {}/s  received {}/s  sent {}/s   memory {}  cpu {}",
        rate("tenon_store_requests_total"),
        millis(change.mean_ms("tenon_store_request_duration_seconds", &[])),
        rate("tenon_store_retries_total"),
        byte_rate("tenon_store_received_bytes_total"),
        byte_rate("tenon_store_sent_bytes_total"),
        bytes(change.now.sum("process_resident_memory_bytes", &[])),
        percent(change.per_sec("process_cpu_seconds_total", &[]), 1.0),
    );
    [operations, store]
}

/// Returns the titles of the tabs as a line, as many as fit.
fn tab_line(shown: Tab, width: usize) -> String {
    let (mut line, mut used) = (String::new(), 0);
    for tab in Tab::ALL {
        let title = format!(" {} ", tab.title());
        if used + title.len() > width {
            break;
        }
        used += title.len();
        line.push_str(&if tab == shown { reverse(&title) } else { bold(&title) });
    }
    line
}
