//! The background work of a mount, one line each.

use crate::command::samples::Change;
use crate::command::stats::{bytes, count};
use crate::command::units::human_bytes;
use crate::control::protocol::Status;

/// Width of the names.
const NAME_WIDTH: usize = 16;

/// Returns a line for each kind of background work, and for each event source, webhook, view and drive.
pub(super) fn lines(status: &Status, change: &Change<'_>) -> Vec<String> {
    let per_sec = |name: &str| count(change.per_sec(name, &[]));
    let now = |name: &str| change.now.sum(name, &[]);
    let pending = &status.pending;
    let mut lines = Vec::new();
    let mut add = |name: &str, text: String| lines.push(format!("{name:<NAME_WIDTH$} {text}"));
    if !status.is_buckets {
        add(
            "pending",
            format!(
                "{} dirty files, {} in memory, {} attribute exports",
                pending.dirty_files,
                human_bytes(pending.write_bytes),
                pending.exports
            ),
        );
        add(
            "write-back log",
            format!(
                "{} changes, {}, {} refused, {} damaged",
                pending.backlog_changes,
                human_bytes(pending.backlog_bytes),
                pending.refused_changes,
                pending.damaged
            ),
        );
        let failure = status.move_failure.as_ref().map(|failure| format!("; {failure}")).unwrap_or_default();
        add(
            "renames",
            format!(
                "{} to finish, {} objects moved/s{failure}",
                pending.renames,
                per_sec("tenon_renamed_objects_total")
            ),
        );
        add("deletions", format!("{} unused objects wait", count(now("tenon_discards_waiting"))));
        add("conflicts", format!("{} to resolve; policy {}", status.conflicts, status.conflict_policy));
    }
    if let Some(backup) = &status.backup {
        let age = backup.age_secs.map_or("none so far".to_owned(), |age| format!("{age} s old"));
        let failure = backup.failure.as_ref().map(|failure| format!("; {failure}")).unwrap_or_default();
        add("backup", format!("{age}, every {} s{failure}", backup.interval_secs));
    }
    if let Some(lister) = &status.lister {
        let state = if lister.idle { "idle" } else { "active" };
        add(
            "listing",
            format!(
                "{state} at /{}; {} requests/s, {} changes found",
                lister.dir,
                per_sec("tenon_lister_requests_total"),
                lister.changes
            ),
        );
    }
    for source in &status.event_sources {
        let state = if source.connected { "connected" } else { "not connected" };
        let waiting = source.waiting.map(|waiting| format!(", {waiting} waiting")).unwrap_or_default();
        let error = source.last_error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
        add(
            "events from",
            format!(
                "{}: {state}, {} messages, lag {} ms{waiting}{error}",
                source.url, source.messages, source.lag_ms
            ),
        );
    }
    for (name, webhook) in &status.webhooks {
        add("events to", format!("{name}: {webhook}"));
    }
    for view in &status.views {
        let state = view.lost.as_ref().map(|reason| format!("; {reason}")).unwrap_or_default();
        add("view", format!("{}: {} objects{state}", view.name, view.objects));
    }
    if !status.is_buckets {
        add(
            "memory",
            format!(
                "{} reading, {} writing, {} metadata, {} views, of {}; {} inodes in the kernel",
                human_bytes(status.read_bytes),
                human_bytes(pending.write_bytes),
                human_bytes(status.metadata_bytes),
                human_bytes(status.views_bytes),
                human_bytes(status.memory_limit_bytes),
                status.kernel_inodes
            ),
        );
    }
    if let Some((total, free)) = status.room_bytes {
        add("space", format!("{} free of {}", human_bytes(free), human_bytes(total)));
    }
    for drive in change.now.label_values("tenon_drive_bytes", "drive") {
        let of = |name: &str| bytes(change.now.sum(name, &[("drive", drive)]));
        add(
            "drive",
            format!(
                "{drive}: {} free of {}, log {}",
                of("tenon_drive_available_bytes"),
                of("tenon_drive_bytes"),
                of("tenon_drive_log_bytes")
            ),
        );
    }
    if let Some(failure) = &status.metadata_failure {
        add("metadata", failure.clone());
    }
    lines
}
