//! `tenon status`: shows the mounts and their state.

use crate::command::units::{human_bytes, human_duration};
use crate::control::batch_protocol::{BatchInfo, path_text};
use crate::control::cache_messages::{DiskCacheReport, SharedCacheReport};
use crate::control::client::Client;
use crate::control::protocol;
use crate::state::dead_mounts;
use crate::state::registry::{self, Registry};
use anyhow::Result;
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Time before the expiry of a batch from which the list of mounts announces it: a week.
const EXPIRING_SOON_SECS: u64 = 7 * 86_400;

/// Show mounts, or one mount in detail.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Mount point or volume (default: all mounts)
    #[arg(value_name = "DIR|VOLUME")]
    of: Option<String>,
    /// Print one JSON object per mount
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let registry = Registry::of_user();
        if let Some(of) = &self.of
            && let Some(dead) = dead_mounts::at(&registry::absolute(of))
        {
            return Err(dead.error());
        }
        let mounts = match &self.of {
            Some(of) => vec![registry.find(of)?],
            None => registry.mounts(),
        };
        let dead = if self.of.is_none() { dead_mounts::all(&mounts) } else { Vec::new() };
        if mounts.is_empty() && dead.is_empty() && !self.json {
            println!("nothing is mounted; `tenon mount VOLUME DIR` mounts a volume");
        }
        for mount in &mounts {
            let asked = Client::connect(mount).and_then(|mut client| client.status());
            let status = match asked {
                // A mount that just died must not hide the others.
                Err(error) if self.of.is_none() => {
                    eprintln!("tenon: {error:#}");
                    continue;
                }
                asked => asked?,
            };
            match (self.json, &self.of) {
                (true, _) => println!("{}", serde_json::to_string(&status)?),
                (false, None) => println!("{}", summary(&status)),
                (false, Some(_)) => print!("{}", describe(&status)),
            }
        }
        for dead in &dead {
            println!("{}", if self.json { dead.json() } else { dead.to_string() });
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Describes a mount in one line.
fn summary(status: &protocol::Status) -> String {
    let conflicts = match status.conflicts {
        0 => String::new(),
        conflicts => format!(", {conflicts} conflicts"),
    };
    let backup = match &status.backup {
        Some(backup) if backup.is_late() => ", backup of the metadata is failing",
        _ => "",
    };
    let metadata = if status.metadata_failure.is_some() { ", the metadata engine has STOPPED" } else { "" };
    let ending = if status.ending { ", ending" } else { "" };
    let batches: String = status.batches.iter().filter_map(expiring_soon).collect();
    let pending = if status.is_buckets { "buckets".to_owned() } else { status.pending.to_string() };
    format!(
        "{}  {}  pid {}  {pending}{conflicts}{backup}{metadata}{batches}{ending}  version {}  state {}  log {}",
        locations(status),
        status.volume,
        status.pid,
        status.version,
        status.state_dir,
        log(status)
    )
}

fn log(status: &protocol::Status) -> &str {
    status.log_file.as_deref().unwrap_or("on standard error")
}

/// Returns the places where the volume can be reached: its mount points and its endpoint.
fn locations(status: &protocol::Status) -> String {
    let places: Vec<&str> = status.mount_points().chain(status.endpoint.as_deref()).collect();
    places.join(" and ")
}

/// Describes a mount in detail, one fact per line.
fn describe(status: &protocol::Status) -> String {
    let ending = if status.ending { ", ending" } else { "" };
    let process = format!(
        "{}, version {}, up {}{ending}",
        status.pid,
        status.version,
        human_duration(status.uptime_secs)
    );
    let space = status.room_bytes.map_or("not known".to_owned(), |(total, available)| {
        format!("{} free of {}", human_bytes(available), human_bytes(total))
    });
    let about = [
        ("S3 endpoint", status.endpoint.clone().unwrap_or_else(|| "none".to_owned())),
        ("volume", format!("{}{}", status.volume, if status.read_only { " (read-only)" } else { "" })),
        ("process", process),
        ("state", status.state_dir.clone()),
        ("log", log(status).to_owned()),
        ("space", space),
    ];
    let metrics = status.metrics.clone().map(|url| ("metrics", url));
    let console = status.console.clone().map(|url| ("console", url));
    let about = about.into_iter().chain(metrics).chain(console);
    if status.is_buckets {
        return format_lines(about);
    }
    let mounted = [("mount point", status.mount_points().collect::<Vec<_>>().join(" and "))];
    let names = status.names_only_here.then(|| {
        let (dir, volume) = (&status.state_dir, &status.volume);
        ("names", format!("only in {dir}; copy them with `tenon dump {volume} FILE`"))
    });
    let backup = status.backup.as_ref().map(|backup| ("backup", backup_line(backup)));
    let failure = status.metadata_failure.as_ref().map(|failure| ("metadata", format!("STOPPED: {failure}")));
    let lines = [
        ("open", format!("{} handles", status.open_handles)),
        ("pending", status.pending.to_string()),
        ("renames", renames(status)),
        ("conflicts", format!("{} to resolve; policy {}", status.conflicts, status.conflict_policy)),
        ("listing", listing(status.lister.as_ref())),
        ("memory", memory(status)),
        ("store requests", requests(&status.store_requests)),
        ("FUSE requests", requests(&status.fuse_requests)),
    ];
    let caches = (status.disk_cache.iter().map(|report| ("disk cache", disk_cache(report))))
        .chain(status.shared_cache.iter().map(|report| ("shared cache", shared_cache(report))));
    let webhooks = status.webhooks.iter().map(|(name, counts)| ("webhook", format!("{name}: {counts}")));
    let lost = (status.events_lost > 0).then(|| ("events lost", status.events_lost.to_string()));
    let all = mounted.into_iter().chain(about).chain(failure).chain(names).chain(backup).chain(lines);
    let all = all
        .chain(caches)
        .chain(webhooks)
        .chain(lost)
        .chain(status.batches.iter().map(|batch| ("batch", batch_line(batch))))
        .chain(status.views.iter().map(|view| ("view", view_line(view))))
        .chain(status.moves_refused.iter().map(|one| ("not moved", one.clone())))
        .chain(status.event_sources.iter().map(|source| ("events from", source_line(source))));
    format_lines(all)
}

fn format_lines<'t>(lines: impl IntoIterator<Item = (&'t str, String)>) -> String {
    lines.into_iter().map(|(title, text)| format!("{title:<16}{text}\n")).collect()
}

/// Describes an open or expired batch.
fn batch_line(batch: &BatchInfo) -> String {
    let (id, path) = (&batch.id, path_text(batch.path.as_deref()));
    let changes = format!("{} changes", batch.ops);
    let last = batch.last_change.as_ref().map(|at| format!(", the last at {at}")).unwrap_or_default();
    if let Some(at) = &batch.expired {
        return format!("{id} {path}: expired at {at}; {changes} were dropped{last}");
    }
    let expiry = match (&batch.expires, batch.expires_in_secs) {
        (Some(at), Some(secs)) => format!("; expires at {at}, in {}", human_duration(secs)),
        _ => String::new(),
    };
    format!("{id} {path}: {}, {changes}{last}{expiry}", batch.state)
}

/// Says that a batch has expired or expires within a few days; `None` for others.
fn expiring_soon(batch: &BatchInfo) -> Option<String> {
    if batch.expired.is_some() {
        return Some(format!(", batch {} has EXPIRED", batch.id));
    }
    let secs = batch.expires_in_secs.filter(|secs| *secs < EXPIRING_SOON_SECS)?;
    Some(format!(", batch {} EXPIRES in {}", batch.id, human_duration(secs)))
}

/// Describes the backup of the metadata.
fn backup_line(backup: &protocol::BackupReport) -> String {
    let ago = |secs| format!("{} ago", human_duration(secs));
    let newest = match backup.age_secs {
        Some(secs) => format!("complete as of {}", ago(secs)),
        None if backup.generation == 0 => "none yet, as nothing has changed".to_owned(),
        None => "none yet".to_owned(),
    };
    let snapshot =
        backup.snapshot_age_secs.map(|secs| format!(", snapshot {}", ago(secs))).unwrap_or_default();
    let failure = match &backup.failure {
        Some(failure) => format!("; FAILING: {failure}"),
        None if backup.is_late() => {
            "; LATE: the bucket does not have the content of all files yet".to_owned()
        }
        None => String::new(),
    };
    format!("{newest}{snapshot}, generation {}{failure}", backup.generation)
}

fn view_line(view: &protocol::View) -> String {
    let lost = view.lost.as_ref().map(|why| format!("; out of date: {why}")).unwrap_or_default();
    let unlisted: String = view.unlisted.iter().map(|why| format!("; {why}")).collect();
    format!("{}: {} objects{lost}{unlisted}", view.name, view.objects)
}

fn source_line(source: &protocol::EventSource) -> String {
    let state = if source.connected { "connected" } else { "not connected" };
    let unreadable = match source.unreadable {
        0 => String::new(),
        count => format!(", {count} unreadable"),
    };
    let error = source.last_error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
    let (url, messages) = (&source.url, source.messages);
    let waiting = match source.waiting {
        Some(count) => format!("{count} waiting"),
        None => "number waiting unknown".to_owned(),
    };
    let received = format!("{messages} messages{unreadable}, {waiting}, {} ms behind", source.lag_ms);
    format!("{url}: {state}, {received}, {} failures{error}", source.failures)
}

fn renames(status: &protocol::Status) -> String {
    let moved = format!("{} to finish, {} objects moved", status.pending.renames, status.objects_moved);
    match &status.move_failure {
        Some(failure) => format!("{moved}; last attempt: {failure}"),
        None => moved,
    }
}

/// Describes what the background lister does.
fn listing(lister: Option<&protocol::Lister>) -> String {
    let Some(lister) = lister else { return "off".to_owned() };
    let at = if lister.idle { "idle".to_owned() } else { format!("at /{}", lister.dir) };
    let round = lister.finished_at.as_ref().map_or("none yet", String::as_str);
    format!("{at}; last full round {round}; {} requests, {} changes found", lister.requests, lister.changes)
}

fn memory(status: &protocol::Status) -> String {
    let views = match status.views_bytes {
        0 => String::new(),
        bytes => format!(", {} views", human_bytes(bytes)),
    };
    format!(
        "{} reading, {} writing, {} metadata{views}, of {}; {} inodes in the kernel",
        human_bytes(status.read_bytes),
        human_bytes(status.pending.write_bytes),
        human_bytes(status.metadata_bytes),
        human_bytes(status.memory_limit_bytes),
        status.kernel_inodes
    )
}

fn disk_cache(report: &DiskCacheReport) -> String {
    let damaged = match report.damaged {
        0 => String::new(),
        damaged => format!(", {damaged} damaged files deleted"),
    };
    let failures = match report.failures {
        0 => String::new(),
        failures => format!(", {failures} calls of its disk FAILED"),
    };
    format!(
        "{} of {}; {} read from it, {} stored, {} evicted{damaged}{failures}",
        human_bytes(report.used_bytes),
        human_bytes(report.limit_bytes),
        human_bytes(report.hit_bytes),
        human_bytes(report.stored_bytes),
        human_bytes(report.evicted_bytes)
    )
}

fn shared_cache(report: &SharedCacheReport) -> String {
    let failures = match report.failures + report.damaged {
        0 => String::new(),
        failures => format!(", {failures} requests FAILED"),
    };
    format!(
        "{} read from it, {} segments were not there, {} stored{failures}",
        human_bytes(report.hit_bytes),
        report.missed,
        human_bytes(report.stored_bytes)
    )
}

/// Formats the numbers of requests by kind. Leaves out kinds without requests.
fn requests(counts: &BTreeMap<String, u64>) -> String {
    let seen = counts.iter().filter(|(_, count)| **count > 0);
    let shown: Vec<String> = seen.map(|(name, count)| format!("{name} {count}")).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}
