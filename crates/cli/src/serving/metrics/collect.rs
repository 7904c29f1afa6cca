//! Collects the samples of all metrics of a process.

use super::process_figures;
use super::table::METRICS;
use crate::bucket::Bucket;
use crate::control::event_reports::{HandlerReport, HintReport};
use crate::control::protocol::{EventSource, Status, Webhook};
use crate::endpoint::meter::EndpointMeter;
use drive::Drive;
use fuse::{Meter, Operation};
use metrics::{Collection, HistogramSnapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sources of the samples.
#[derive(Debug)]
pub(crate) struct Figures<'a> {
    pub(crate) status: &'a Status,
    /// Figures of the file system; `None` if buckets without files are served.
    pub(crate) fs: Option<&'a vfs::Status>,
    /// Figures of the kernel's requests, one for each mount point.
    pub(crate) meters: Vec<&'a Arc<Meter>>,
    pub(crate) bucket: Option<&'a Bucket>,
    pub(crate) endpoint: Option<&'a EndpointMeter>,
    /// Counts of exported spans, if traces are exported.
    pub(crate) traces: Option<otlp::Figures>,
    pub(crate) drives: Vec<Drive>,
}

/// Collects all samples.
pub(crate) fn collect(figures: &Figures<'_>) -> Collection {
    let mut collection = Collection::of(METRICS);
    let status = figures.status;
    collection.add("tenon_build", &[&status.version], 1.0);
    let endpoint = status.endpoint.as_deref().unwrap_or_default();
    collection.add("tenon_volume", &[&status.volume, &status.mount_point, endpoint], 1.0);
    collection.add("tenon_read_only", &[], flag(status.read_only));
    if let Some((total, available)) = status.room_bytes {
        collection.add("tenon_space_total_bytes", &[], total as f64);
        collection.add("tenon_space_available_bytes", &[], available as f64);
    }
    if let Some(fs) = figures.fs {
        add_file_system(&mut collection, status, fs);
        add_backup(&mut collection, status);
    }
    if !figures.meters.is_empty() {
        add_kernel_requests(&mut collection, &figures.meters);
        collection.add("tenon_fuse_inodes", &[], status.kernel_inodes as f64);
    }
    if let Some(bucket) = figures.bucket {
        add_store(&mut collection, bucket);
    }
    if let Some(endpoint) = figures.endpoint {
        add_endpoint(&mut collection, endpoint);
    }
    if status.endpoint.is_some() || status.console.is_some() {
        collection.add("tenon_events_lost", &[], status.events_lost as f64);
    }
    status.webhooks.iter().for_each(|(name, counts)| add_webhook(&mut collection, name, counts));
    for view in &status.views {
        collection.add("tenon_view_objects", &[&view.name], view.objects as f64);
        collection.add("tenon_view_lost", &[&view.name], flag(view.lost.is_some()));
    }
    add_event_sources(&mut collection, &status.event_sources);
    if let Some(otlp::Figures { sent, refused, dropped }) = figures.traces {
        for (outcome, count) in [("sent", sent), ("refused", refused), ("dropped", dropped)] {
            collection.add("tenon_trace_spans", &[outcome], count as f64);
        }
    }
    figures.drives.iter().for_each(|drive| add_drive(&mut collection, drive));
    process_figures::add(&mut collection);
    collection
}

/// Collects the samples of an event handler without a volume.
pub(crate) fn collect_handler(report: HandlerReport) -> Collection {
    let mut collection = Collection::of(METRICS);
    collection.add("tenon_build", &[&report.version], 1.0);
    for (name, value) in [
        ("tenon_handler_views", report.views.len()),
        ("tenon_handler_objects", report.objects),
        ("tenon_handler_memory_bytes", report.memory_bytes),
        ("tenon_handler_waiting_objects", report.looks),
        ("tenon_handler_unreadable_buckets", report.unlisted.len()),
    ] {
        collection.add(name, &[], value as f64);
    }
    let HintReport { applied, repeated, late, unwanted, looked } = report.hints;
    let outcomes = [
        ("applied", applied),
        ("repeated", repeated),
        ("late", late),
        ("unwanted", unwanted),
        ("looked", looked),
    ];
    for (outcome, count) in outcomes {
        collection.add("tenon_handler_hints", &[outcome], count as f64);
    }
    collection.add("tenon_handler_matching_seconds", &[], report.matching_ns as f64 / 1e9);
    let sources: Vec<EventSource> = report.feeds.into_iter().map(EventSource::from).collect();
    add_event_sources(&mut collection, &sources);
    process_figures::add(&mut collection);
    collection
}

fn flag(is_set: bool) -> f64 {
    if is_set { 1.0 } else { 0.0 }
}

/// Adds samples without labels.
fn add_all(collection: &mut Collection, samples: &[(&'static str, u64)]) {
    for &(name, value) in samples {
        collection.add(name, &[], value as f64);
    }
}

fn add_file_system(collection: &mut Collection, status: &Status, fs: &vfs::Status) {
    let pending = &status.pending;
    add_all(
        collection,
        &[
            ("tenon_open_handles", status.open_handles),
            ("tenon_dirty_files", pending.dirty_files),
            ("tenon_read_cache_hit_bytes", fs.read_hit_bytes),
            ("tenon_read_cache_missed_bytes", fs.read_missed_bytes),
            ("tenon_memory_limit_bytes", status.memory_limit_bytes),
            ("tenon_metadata_ops", fs.ops),
            ("tenon_exports_waiting", pending.exports),
            ("tenon_discards_waiting", fs.discards_waiting as u64),
            ("tenon_renames_unfinished", pending.renames),
            ("tenon_renamed_objects", status.objects_moved),
            ("tenon_writeback_changes", pending.backlog_changes),
            ("tenon_writeback_bytes", pending.backlog_bytes),
            ("tenon_writeback_refused_changes", pending.refused_changes),
            ("tenon_writeback_damaged", pending.damaged),
            ("tenon_conflicts", status.conflicts),
        ],
    );
    add_caches(collection, status);
    let owners = [
        ("reads", status.read_bytes),
        ("writes", pending.write_bytes),
        ("metadata", status.metadata_bytes),
        ("views", status.views_bytes),
    ];
    for (owner, bytes) in owners {
        collection.add("tenon_memory_bytes", &[owner], bytes as f64);
    }
    if let Some(lister) = &status.lister {
        collection.add("tenon_lister_requests", &[], lister.requests as f64);
        collection.add("tenon_lister_changes", &[], lister.changes as f64);
    }
}

fn add_caches(collection: &mut Collection, status: &Status) {
    if let Some(cache) = &status.disk_cache {
        add_all(
            collection,
            &[
                ("tenon_disk_cache_hit_bytes", cache.hit_bytes),
                ("tenon_disk_cache_stored_bytes", cache.stored_bytes),
                ("tenon_disk_cache_evicted_bytes", cache.evicted_bytes),
                ("tenon_disk_cache_damaged", cache.damaged),
                ("tenon_disk_cache_failures", cache.failures),
                ("tenon_disk_cache_used_bytes", cache.used_bytes),
                ("tenon_disk_cache_limit_bytes", cache.limit_bytes),
            ],
        );
    }
    if let Some(cache) = &status.shared_cache {
        add_all(
            collection,
            &[
                ("tenon_shared_cache_hit_bytes", cache.hit_bytes),
                ("tenon_shared_cache_missed_segments", cache.missed),
                ("tenon_shared_cache_stored_bytes", cache.stored_bytes),
                ("tenon_shared_cache_damaged", cache.damaged),
                ("tenon_shared_cache_failures", cache.failures),
            ],
        );
    }
}

fn add_backup(collection: &mut Collection, status: &Status) {
    let Some(backup) = &status.backup else { return };
    collection.add("tenon_backup_interval_seconds", &[], backup.interval_secs as f64);
    collection.add("tenon_backup_failing", &[], flag(backup.is_late()));
    if let Some(secs) = backup.age_secs {
        collection.add("tenon_backup_age_seconds", &[], secs as f64);
    }
    if let Some(secs) = backup.snapshot_age_secs {
        collection.add("tenon_backup_snapshot_age_seconds", &[], secs as f64);
    }
}

/// Adds the kernel's requests. Operations without requests are left out.
fn add_kernel_requests(collection: &mut Collection, meters: &[&Arc<Meter>]) {
    let sum = |of: &dyn Fn(&Meter) -> u64| meters.iter().map(|meter| of(meter)).sum::<u64>() as f64;
    for &operation in Operation::ALL {
        let count = sum(&|meter| meter.counts().of(operation));
        if count > 0.0 {
            collection.add("tenon_fuse_operations", &[operation.name()], count);
        }
        let latencies = meters.iter().map(|meter| meter.latencies(operation));
        let latencies = latencies.fold(HistogramSnapshot::default(), |all, one| all.plus(&one));
        if latencies.count() > 0 {
            collection.add_histogram(
                "tenon_fuse_operation_duration_seconds",
                &[operation.name()],
                &latencies,
            );
        }
    }
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in meters.iter().flat_map(|meter| meter.errors()) {
        *errors.entry(name).or_default() += count;
    }
    // Errors that alerts use are there before they happen.
    let is_shown = |name: &str, count| count > 0 || ["EIO", "ENOSPC", "ESTALE"].contains(&name);
    for (name, count) in errors.into_iter().filter(|(name, count)| is_shown(name, *count)) {
        collection.add("tenon_fuse_errors", &[name], count as f64);
    }
    collection.add("tenon_fuse_operations_in_progress", &[], sum(&Meter::in_progress));
    collection.add("tenon_fuse_read_bytes", &[], sum(&Meter::read_bytes));
    collection.add("tenon_fuse_written_bytes", &[], sum(&Meter::written_bytes));
}

fn add_store(collection: &mut Collection, bucket: &Bucket) {
    let store = bucket.store_figures();
    for (operation, outcome, count) in store.outcomes {
        collection.add("tenon_store_requests", &[operation, outcome], count as f64);
    }
    for (operation, latencies) in store.latencies {
        collection.add_histogram("tenon_store_request_duration_seconds", &[operation], &latencies);
    }
    collection.add("tenon_store_retries", &[], store.retries as f64);
    collection.add("tenon_store_sent_bytes", &[], store.sent_bytes as f64);
    collection.add("tenon_store_received_bytes", &[], store.received_bytes as f64);
}

fn add_endpoint(collection: &mut Collection, endpoint: &EndpointMeter) {
    let figures = endpoint.figures();
    for (operation, status, count) in &figures.requests {
        collection.add("tenon_s3_requests", &[operation, &status.to_string()], *count as f64);
    }
    for (operation, latencies) in &figures.latencies {
        collection.add_histogram("tenon_s3_request_duration_seconds", &[operation], latencies);
    }
    collection.add("tenon_s3_received_bytes", &[], figures.received_bytes as f64);
    collection.add("tenon_s3_sent_bytes", &[], figures.sent_bytes as f64);
}

fn add_webhook(collection: &mut Collection, receiver: &str, counts: &Webhook) {
    let Webhook { queued, sent, retried, failed, dropped } = *counts;
    let outcomes = [("sent", sent), ("retried", retried), ("failed", failed), ("dropped", dropped)];
    for (outcome, count) in outcomes {
        collection.add("tenon_webhook_events", &[receiver, outcome], count as f64);
    }
    collection.add("tenon_webhook_queued_events", &[receiver], queued as f64);
}

/// Adds the event sources. Several sources with one URL are one sample, because a label set must be unique.
fn add_event_sources(collection: &mut Collection, sources: &[EventSource]) {
    let mut by_url: BTreeMap<&str, Vec<&EventSource>> = BTreeMap::new();
    sources.iter().for_each(|source| by_url.entry(&source.url).or_default().push(source));
    for (url, sources) in by_url {
        let sum = |of: fn(&EventSource) -> u64| sources.iter().map(|source| of(source)).sum::<u64>() as f64;
        let connected = sources.iter().all(|source| source.connected);
        collection.add("tenon_event_source_connected", &[url], flag(connected));
        collection.add("tenon_event_source_messages", &[url], sum(|source| source.messages));
        collection.add("tenon_event_source_unreadable_messages", &[url], sum(|source| source.unreadable));
        collection.add("tenon_event_source_failures", &[url], sum(|source| source.failures));
        if sources.iter().any(|source| source.waiting.is_some()) {
            let waiting = sum(|source| source.waiting.unwrap_or(0));
            collection.add("tenon_event_source_waiting_messages", &[url], waiting);
        }
        let lag_ms = sources.iter().map(|source| source.lag_ms).max().unwrap_or(0);
        collection.add("tenon_event_source_lag_seconds", &[url], lag_ms as f64 / 1000.0);
    }
}

fn add_drive(collection: &mut Collection, drive: &Drive) {
    let info = drive.info();
    let id = format!("{:016x}", info.id);
    for (name, bytes) in [
        ("tenon_drive_bytes", info.len_bytes),
        ("tenon_drive_available_bytes", info.available_bytes),
        ("tenon_drive_log_bytes", info.log_bytes),
        ("tenon_drive_index_memory_bytes", info.index_memory_bytes),
        ("tenon_drive_lost_parts", drive.losses().len() as u64),
    ] {
        collection.add(name, &[&id], bytes as f64);
    }
}
