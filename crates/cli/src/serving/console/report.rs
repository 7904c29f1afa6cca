//! The status of a process in sections, for the console.

use crate::control::protocol::{BackupReport, EventSource, Lister, Status, Webhook};
use console::{Fact, Section, Tone};
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns the sections of a status that have facts.
pub(crate) fn sections(status: &Status) -> Vec<Section> {
    let mut sections = vec![process(status)];
    if !status.is_buckets {
        sections.extend([pending(status), background(status), memory(status)]);
        sections.extend(status.backup.as_ref().map(backup));
        sections.push(requests("Requests of programs", &status.fuse_requests));
    }
    sections.push(requests("Requests to the store", &status.store_requests));
    sections.push(events(status));
    sections.retain(|section| !section.facts.is_empty());
    sections
}

fn section(title: &str, facts: impl IntoIterator<Item = Fact>) -> Section {
    Section { title: title.to_owned(), facts: facts.into_iter().collect() }
}

fn fact(label: &str, value: impl Into<String>) -> Fact {
    Fact { label: label.to_owned(), value: value.into(), tone: Tone::Plain }
}

/// Returns a fact that needs attention if `is_wrong`.
fn warning_if(is_wrong: bool, label: &str, value: impl Into<String>) -> Fact {
    Fact { tone: if is_wrong { Tone::Warning } else { Tone::Plain }, ..fact(label, value) }
}

fn failure(label: &str, value: impl Into<String>) -> Fact {
    Fact { tone: Tone::Failure, ..fact(label, value) }
}

fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

fn ago(secs: u64) -> String {
    format!("{} ago", HumanDuration(Duration::from_secs(secs)))
}

fn process(status: &Status) -> Section {
    let places: Vec<&str> = status.mount_points().collect();
    let space = status.room_bytes.map(|(total, available)| {
        let is_short = available < total / 20;
        warning_if(is_short, "Space", format!("{} free of {}", bytes(available), bytes(total)))
    });
    let mut facts = vec![fact("Volume", &status.volume)];
    facts.extend((!places.is_empty()).then(|| fact("Mounted at", places.join(", "))));
    facts.extend(status.endpoint.iter().map(|url| fact("S3 endpoint", url)));
    facts.extend(status.metrics.iter().map(|url| fact("Metrics", url)));
    facts.extend(status.server.iter().map(|url| fact("Server of the bucket", url)));
    facts.extend(status.read_only.then(|| fact("Changes", "refused (read-only)")));
    facts.extend(status.ending.then(|| warning_if(true, "State", "ending: stores pending changes")));
    facts.extend(space);
    let uptime = HumanDuration(Duration::from_secs(status.uptime_secs));
    facts.push(fact("Process", format!("{}, version {}, up {uptime}", status.pid, status.version)));
    facts.push(fact("State directory", &status.state_dir));
    facts.push(fact("Log", status.log_file.as_deref().unwrap_or("on standard error")));
    section("Process", facts)
}

fn pending(status: &Status) -> Section {
    let pending = &status.pending;
    let mut facts = vec![
        fact("Open", format!("{} files and directories", count(status.open_handles))),
        fact("Changed files", count(pending.dirty_files)),
        fact("Attributes to store", count(pending.exports)),
        fact(
            "Write-back log",
            format!("{} changes, {}", count(pending.backlog_changes), bytes(pending.backlog_bytes)),
        ),
    ];
    facts.extend((pending.refused_changes > 0).then(|| {
        failure(
            "Refused",
            format!("{} changes are refused by the bucket; see the log", pending.refused_changes),
        )
    }));
    facts.extend((pending.damaged > 0).then(|| {
        failure("Damaged", format!("{} parts of the write-back log; see the log", pending.damaged))
    }));
    facts.extend(status.metadata_failure.iter().map(|why| failure("Metadata", format!("stopped: {why}"))));
    section("Not stored yet", facts)
}

fn background(status: &Status) -> Section {
    let mut facts = vec![
        fact("Renames to finish", count(status.pending.renames)),
        fact("Objects moved", count(status.objects_moved)),
    ];
    facts.extend(status.move_failure.iter().map(|why| warning_if(true, "Mover", why)));
    facts.extend(status.moves_refused.iter().map(|one| warning_if(true, "Not moved", one)));
    let policy = &status.conflict_policy;
    let conflicts = format!("{} to resolve, policy {policy}", count(status.conflicts));
    facts.push(warning_if(status.conflicts > 0, "Conflicts", conflicts));
    facts.extend(status.lister.as_ref().map(|lister| fact("Lister", lister_text(lister))));
    section("Background work", facts)
}

fn lister_text(lister: &Lister) -> String {
    let at = if lister.idle { "idle".to_owned() } else { format!("at /{}", lister.dir) };
    let round = lister.finished_at.as_deref().unwrap_or("none yet");
    format!("{at}; last full round {round}; {} changes found", count(lister.changes))
}

fn memory(status: &Status) -> Section {
    let mut facts = vec![
        fact("Reading", bytes(status.read_bytes)),
        fact("Writing", bytes(status.pending.write_bytes)),
        fact("Metadata", bytes(status.metadata_bytes)),
    ];
    facts.extend((status.views_bytes > 0).then(|| fact("Views", bytes(status.views_bytes))));
    facts.push(fact("Limit", bytes(status.memory_limit_bytes)));
    facts.push(fact("Inodes in the kernel", count(status.kernel_inodes)));
    section("Memory", facts)
}

fn backup(backup: &BackupReport) -> Section {
    let newest = match backup.age_secs {
        Some(secs) => format!("complete as of {}", ago(secs)),
        None => "none yet".to_owned(),
    };
    let mut facts = vec![warning_if(backup.is_late(), "Newest", newest)];
    facts.extend(backup.snapshot_age_secs.map(|secs| fact("Snapshot", ago(secs))));
    facts.push(fact("Generation", backup.generation.to_string()));
    facts.push(fact("Interval", HumanDuration(Duration::from_secs(backup.interval_secs)).to_string()));
    facts.extend(backup.failure.iter().map(|why| failure("Failing", why)));
    section("Backup of the metadata", facts)
}

fn requests(title: &str, counts: &BTreeMap<String, u64>) -> Section {
    let seen = counts.iter().filter(|(_, number)| **number > 0);
    section(title, seen.map(|(name, number)| fact(name, count(*number))))
}

fn events(status: &Status) -> Section {
    let mut facts: Vec<Fact> = status.webhooks.iter().map(|(name, counts)| webhook(name, counts)).collect();
    facts.extend((status.events_lost > 0).then(|| warning_if(true, "Lost", count(status.events_lost))));
    facts.extend(status.event_sources.iter().map(source));
    section("Events", facts)
}

fn webhook(name: &str, counts: &Webhook) -> Fact {
    let is_failing = counts.failed > 0 || counts.dropped > 0;
    warning_if(is_failing, &format!("To {name}"), counts.to_string())
}

fn source(source: &EventSource) -> Fact {
    let state = if source.connected { "connected" } else { "not connected" };
    let error = source.last_error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
    let waiting = source.waiting.map(|waiting| format!(", {} waiting", count(waiting))).unwrap_or_default();
    let text = format!(
        "{state}, {} messages{waiting}, {} failures, {} ms behind{error}",
        count(source.messages),
        count(source.failures),
        source.lag_ms
    );
    warning_if(!source.connected, &format!("From {}", source.url), text)
}
