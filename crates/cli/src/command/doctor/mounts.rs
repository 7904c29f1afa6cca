//! Checks of the mounts and endpoints of this user.

use super::finding::Finding;
use crate::control::client::Client;
use crate::control::protocol::Status;
use crate::process::VERSION;
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

/// A fault of a mount, and how to remedy it.
type Problem = (String, String);

/// Returns the findings about a mount from its status.
fn check_status(name: &str, status: &Status) -> Vec<Finding> {
    let problems = stored_problems(status)
        .into_iter()
        .chain([backup_problem(status), space_problem(status), version_problem(status)])
        .flatten()
        .chain(event_problems(status));
    let mut findings: Vec<Finding> =
        problems.map(|(found, advice)| Finding::warning(name, found, advice)).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(name, format!("{}, {}", status.volume, status.pending)));
    }
    findings
}

/// Returns the problems with changes that the bucket does not have.
fn stored_problems(status: &Status) -> [Option<Problem>; 4] {
    let at = if status.mount_point.is_empty() { &status.volume } else { &status.mount_point };
    let (conflicts, pending) = (status.conflicts, &status.pending);
    [
        (conflicts > 0)
            .then(|| (format!("{conflicts} conflicts"), format!("`tenon conflicts list {at}` shows them"))),
        (pending.refused_changes > 0).then(|| {
            let log = status.log_file.as_deref().unwrap_or("standard error");
            let refused = pending.refused_changes;
            (
                format!("the bucket refuses {refused} changes of the write-back log"),
                format!("the log says why: {log}"),
            )
        }),
        (pending.damaged > 0).then(|| {
            (
                format!("{} damaged parts of the write-back log", pending.damaged),
                "check the disk of the state directory, and compare the files written last".to_owned(),
            )
        }),
        status.move_failure.as_ref().map(|failure| {
            (
                format!("renames do not finish: {failure}"),
                "other clients see old names until the objects have moved".to_owned(),
            )
        }),
    ]
}

fn backup_problem(status: &Status) -> Option<Problem> {
    let backup = status.backup.as_ref().filter(|backup| backup.is_late())?;
    let why = backup.failure.as_deref().unwrap_or("late");
    Some((
        format!("the metadata is not backed up: {why}"),
        "if this machine is lost, so are the names since the last backup".to_owned(),
    ))
}

fn space_problem(status: &Status) -> Option<Problem> {
    let (total, free) = status.room_bytes?;
    (free < total / 20)
        .then(|| ("less than 5 % of the space is free".to_owned(), "remove files, or add space".to_owned()))
}

fn version_problem(status: &Status) -> Option<Problem> {
    (status.version != VERSION).then(|| {
        (
            format!("its process is version {}, this program {VERSION}", status.version),
            "unmount and mount again to use the new version".to_owned(),
        )
    })
}

/// Returns the sources of events that do not answer.
fn event_problems(status: &Status) -> impl Iterator<Item = Problem> {
    status.event_sources.iter().filter(|source| !source.connected).map(|source| {
        let why = source.last_error.as_deref().unwrap_or("not connected");
        (
            format!("no events from {}: {why}", source.url),
            "changes of other clients appear only after --metadata-ttl".to_owned(),
        )
    })
}
