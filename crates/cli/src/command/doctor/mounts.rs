//! Checks of the mounts and endpoints of this user.

use super::finding::Finding;
use crate::control::client::Client;
use crate::control::protocol::Status;
use crate::state::dead_mounts;
use crate::state::registry::Registry;
use std::time::Duration;

/// Timeout of an answer of a process.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks all mounts.
pub(super) fn check() -> Vec<Finding> {
    let mounts = Registry::of_user().mounts();
    let mut findings: Vec<Finding> = dead_mounts::all(&mounts)
        .iter()
        .map(|dead| {
            Finding::failed(
                "mount",
                dead.to_string(),
                "mount again: Tenon replaces the dead mount; the log says why it died",
            )
        })
        .collect();
    for mount in &mounts {
        let name = format!("mount {}", mount.holder.mount_point.display());
        let asked = Client::connect(mount).and_then(|client| client.with_timeout(ANSWER_TIMEOUT)?.status());
        match asked {
            Ok(status) => findings.extend(check_status(&name, &status)),
            Err(error) => findings.push(Finding::failed(
                &name,
                format!("{error:#}"),
                "the process hangs or has ended; its log may say why",
            )),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("mounts", "none"));
    }
    findings
}

fn check_status(name: &str, status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |is_found: bool, found: String, advice: String| {
        if is_found {
            findings.push(Finding::warning(name, found, advice));
        }
    };
    let at = if status.mount_point.is_empty() { &status.volume } else { &status.mount_point };
    add(
        status.conflicts > 0,
        format!("{} conflicts", status.conflicts),
        format!("`tenon conflicts list {at}` shows them"),
    );
    add(
        status.pending.refused_changes > 0,
        format!("the bucket refuses {} changes of the write-back log", status.pending.refused_changes),
        format!("the log says why: {}", status.log_file.as_deref().unwrap_or("standard error")),
    );
    add(
        status.pending.damaged > 0,
        format!("{} damaged parts of the write-back log", status.pending.damaged),
        "check the disk of the state directory, and compare the files written last".to_owned(),
    );
    add(
        status.move_failure.is_some(),
        format!("renames do not finish: {}", status.move_failure.as_deref().unwrap_or_default()),
        "other clients see old names until the objects have moved".to_owned(),
    );
    let late = status.backup.as_ref().filter(|backup| backup.is_late());
    add(
        late.is_some(),
        format!(
            "the metadata is not backed up: {}",
            late.and_then(|b| b.failure.as_deref()).unwrap_or("late")
        ),
        "if this machine is lost, so are the names since the last backup".to_owned(),
    );
    let is_full = status.room_bytes.is_some_and(|(total, free)| free < total / 20);
    add(is_full, "less than 5 % of the space is free".to_owned(), "remove files, or add space".to_owned());
    let versions = crate::process::VERSION;
    add(
        status.version != versions,
        format!("its process is version {}, this program {versions}", status.version),
        "unmount and mount again to use the new version".to_owned(),
    );
    for source in status.event_sources.iter().filter(|source| !source.connected) {
        add(
            true,
            format!(
                "no events from {}: {}",
                source.url,
                source.last_error.as_deref().unwrap_or("not connected")
            ),
            "changes of other clients appear only after --metadata-ttl".to_owned(),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::ok(name, format!("{}, {}", status.volume, status.pending)));
    }
    findings
}
