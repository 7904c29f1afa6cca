//! The background work of a mount, one line each.

use crate::command::samples::Change;
use crate::command::stats::{bytes, count};
use crate::command::units::human_bytes;
use crate::control::protocol::Status;

/// Width of the names.
const NAME_WIDTH: usize = 16;

/// Returns a line for each kind of background work, and for each event source, webhook, view and drive.
pub(super) fn lines(status: &Status, change: &Change<'_>) -> Vec<String> {
    let mut lines = Lines::default();
    if !status.is_buckets {
        lines.add_changes(status, change);
    }
    lines.add_backup(status);
    lines.add_lister(status, change);
    lines.add_events(status);
    if !status.is_buckets {
        lines.add("memory", memory(status));
    }
    if let Some((total, free)) = status.room_bytes {
        lines.add("space", format!("{} free of {}", human_bytes(free), human_bytes(total)));
    }
    lines.add_drives(change);
    if let Some(failure) = &status.metadata_failure {
        lines.add("metadata", failure.clone());
    }
    lines.0
}

/// Lines, each a name and a text.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add(&mut self, name: &str, text: String) {
        self.0.push(format!("{name:<NAME_WIDTH$} {text}"));
    }

    /// Adds the changes of a volume that are not in the bucket yet, and its conflicts.
    fn add_changes(&mut self, status: &Status, change: &Change<'_>) {
        let pending = &status.pending;
        let written = human_bytes(pending.write_bytes);
        self.add(
            "pending",
            format!(
                "{} dirty files, {written} in memory, {} attribute exports",
                pending.dirty_files, pending.exports
            ),
        );
        self.add(
            "write-back log",
            format!(
                "{} changes, {}, {} refused, {} damaged",
                pending.backlog_changes,
                human_bytes(pending.backlog_bytes),
                pending.refused_changes,
                pending.damaged
            ),
        );
        let moved = count(change.per_sec("tenon_renamed_objects_total", &[]));
        let failure = ending(status.move_failure.as_ref());
        self.add("renames", format!("{} to finish, {moved} objects moved/s{failure}", pending.renames));
        let discards = count(change.now.sum("tenon_discards_waiting", &[]));
        self.add("deletions", format!("{discards} unused objects wait"));
        self.add("conflicts", format!("{} to resolve; policy {}", status.conflicts, status.conflict_policy));
    }

    fn add_backup(&mut self, status: &Status) {
        let Some(backup) = &status.backup else { return };
        let age = backup.age_secs.map_or("none so far".to_owned(), |age| format!("{age} s old"));
        let failure = ending(backup.failure.as_ref());
        self.add("backup", format!("{age}, every {} s{failure}", backup.interval_secs));
    }

    fn add_lister(&mut self, status: &Status, change: &Change<'_>) {
        let Some(lister) = &status.lister else { return };
        let state = if lister.idle { "idle" } else { "active" };
        let requests = count(change.per_sec("tenon_lister_requests_total", &[]));
        self.add(
            "listing",
            format!("{state} at /{}; {requests} requests/s, {} changes found", lister.dir, lister.changes),
        );
    }

    /// Adds event sources, webhooks and views.
    fn add_events(&mut self, status: &Status) {
        for source in &status.event_sources {
            let state = if source.connected { "connected" } else { "not connected" };
            let waiting = source.waiting.map(|waiting| format!(", {waiting} waiting")).unwrap_or_default();
            let error = ending(source.last_error.as_ref());
            self.add(
                "events from",
                format!(
                    "{}: {state}, {} messages, lag {} ms{waiting}{error}",
                    source.url, source.messages, source.lag_ms
                ),
            );
        }
        for (name, webhook) in &status.webhooks {
            self.add("events to", format!("{name}: {webhook}"));
        }
        for view in &status.views {
            self.add(
                "view",
                format!("{}: {} objects{}", view.name, view.objects, ending(view.lost.as_ref())),
            );
        }
    }

    fn add_drives(&mut self, change: &Change<'_>) {
        for drive in change.now.label_values("tenon_drive_bytes", "drive") {
            let of = |name: &str| bytes(change.now.sum(name, &[("drive", drive)]));
            self.add(
                "drive",
                format!(
                    "{drive}: {} free of {}, log {}",
                    of("tenon_drive_available_bytes"),
                    of("tenon_drive_bytes"),
                    of("tenon_drive_log_bytes")
                ),
            );
        }
    }
}

/// Returns the end of a line that states a failure; empty if there is none.
fn ending(failure: Option<&String>) -> String {
    failure.map(|failure| format!("; {failure}")).unwrap_or_default()
}

/// Returns the use of memory by owner.
fn memory(status: &Status) -> String {
    format!(
        "{} reading, {} writing, {} metadata, {} views, of {}; {} inodes in the kernel",
        human_bytes(status.read_bytes),
        human_bytes(status.pending.write_bytes),
        human_bytes(status.metadata_bytes),
        human_bytes(status.views_bytes),
        human_bytes(status.memory_limit_bytes),
        status.kernel_inodes
    )
}
