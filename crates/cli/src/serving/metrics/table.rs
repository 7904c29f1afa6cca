//! All metrics. Names follow the conventions of Prometheus: the unit is last, and a name is never used for another thing.

use metrics::{Kind, Metric};

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

const fn info(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Info, labels, help }
}

/// The metrics of every process, in the order of the text.
pub(super) static METRICS: &[Metric] = &[
    info("tenon_build", &["version"], "Version of the process"),
    info("tenon_volume", &["volume", "mount_point", "endpoint"], "The volume, and where it can be reached"),
    gauge("tenon_read_only", &[], "1 if changes are refused"),
    counter("tenon_fuse_operations", &["operation"], "Requests of the kernel by operation"),
    histogram(
        "tenon_fuse_operation_duration_seconds",
        &["operation"],
        "Time from the arrival of a request of the kernel to its reply",
    ),
    counter("tenon_fuse_errors", &["errno"], "Replies with an error, also expected ones such as ENOENT"),
    gauge(
        "tenon_fuse_operations_in_progress",
        &[],
        "Requests of the kernel without a reply so far, except waits for locks",
    ),
    counter("tenon_fuse_read_bytes", &[], "Bytes that programs read through the kernel"),
    counter("tenon_fuse_written_bytes", &[], "Bytes that programs wrote through the kernel"),
    gauge("tenon_fuse_inodes", &[], "Inodes that the kernel remembers"),
    counter("tenon_store_requests", &["operation", "outcome"], "Requests to the store, with retries"),
    histogram(
        "tenon_store_request_duration_seconds",
        &["operation"],
        "Time from a request to the store to the head of its response",
    ),
    counter("tenon_store_retries", &[], "Requests to the store that were retries"),
    counter("tenon_store_sent_bytes", &[], "Bytes of bodies that the store accepted"),
    counter("tenon_store_received_bytes", &[], "Bytes of bodies that the store returned"),
    gauge("tenon_open_handles", &[], "Open files and directories"),
    gauge("tenon_dirty_files", &[], "Open files with changes that are not stored"),
    counter("tenon_read_cache_hit_bytes", &[], "Bytes of reads that were in memory"),
    counter("tenon_read_cache_missed_bytes", &[], "Bytes of reads that waited for the store"),
    counter("tenon_disk_cache_hit_bytes", &[], "Bytes of reads that were in the disk cache"),
    counter("tenon_disk_cache_stored_bytes", &[], "Bytes that were stored in the disk cache"),
    counter(
        "tenon_disk_cache_evicted_bytes",
        &[],
        "Bytes of files of the disk cache that were deleted to stay within its limit",
    ),
    counter(
        "tenon_disk_cache_damaged",
        &[],
        "Files of the disk cache that were deleted because of a wrong checksum",
    ),
    counter("tenon_disk_cache_failures", &[], "Calls of the disk of the disk cache that failed"),
    gauge(
        "tenon_disk_cache_used_bytes",
        &[],
        "Bytes of the files of the disk cache, as far as they have been measured",
    ),
    gauge("tenon_disk_cache_limit_bytes", &[], "Size of the disk cache"),
    counter("tenon_shared_cache_hit_bytes", &[], "Bytes of segments that were in the shared cache"),
    counter("tenon_shared_cache_missed_segments", &[], "Segments that were not in the shared cache"),
    counter("tenon_shared_cache_stored_bytes", &[], "Bytes of segments that were stored in the shared cache"),
    counter("tenon_shared_cache_damaged", &[], "Segments of the shared cache that had a wrong checksum"),
    counter(
        "tenon_shared_cache_failures",
        &[],
        "Requests to the shared cache that failed or got no answer in time",
    ),
    gauge("tenon_memory_bytes", &["owner"], "Memory in use, by owner: reads, writes, metadata, views"),
    gauge("tenon_memory_limit_bytes", &[], "The memory limit"),
    counter("tenon_metadata_ops", &[], "Changes of the namespace since the volume's metadata was created"),
    gauge("tenon_exports_waiting", &[], "Changes of attributes that wait to be stored in headers"),
    gauge("tenon_discards_waiting", &[], "Unused objects that wait for their deletion"),
    gauge("tenon_renames_unfinished", &[], "Renames whose objects have not all moved"),
    counter("tenon_renamed_objects", &[], "Objects moved after renames"),
    gauge("tenon_writeback_changes", &[], "Changes in the write-back log"),
    gauge("tenon_writeback_bytes", &[], "Length of the changes in the write-back log"),
    gauge("tenon_writeback_refused_changes", &[], "Changes in the write-back log that the bucket refuses"),
    gauge("tenon_writeback_damaged", &[], "Damaged ranges and files of the write-back log"),
    gauge("tenon_conflicts", &[], "Unresolved conflicts"),
    counter("tenon_lister_requests", &[], "Requests of the background lister"),
    counter("tenon_lister_changes", &[], "Changes of other clients that the background lister found"),
    gauge(
        "tenon_backup_age_seconds",
        &[],
        "Age of the moment as of which the backup of the metadata is complete",
    ),
    gauge("tenon_backup_snapshot_age_seconds", &[], "Age of the newest snapshot of the metadata"),
    gauge("tenon_backup_interval_seconds", &[], "Interval of the backups of the metadata"),
    gauge("tenon_backup_failing", &[], "1 if the last backup of the metadata failed, or is late"),
    gauge("tenon_space_total_bytes", &[], "Disk space for objects, where it is known"),
    gauge("tenon_space_available_bytes", &[], "Free disk space for objects, where it is known"),
    counter(
        "tenon_s3_requests",
        &["operation", "status"],
        "Requests to the S3 endpoint; status 0: no response",
    ),
    histogram(
        "tenon_s3_request_duration_seconds",
        &["operation"],
        "Time from the head of a request to the S3 endpoint to the last byte of the response",
    ),
    counter("tenon_s3_received_bytes", &[], "Bytes of request bodies at the S3 endpoint"),
    counter("tenon_s3_sent_bytes", &[], "Bytes of response bodies of the S3 endpoint"),
    counter(
        "tenon_webhook_events",
        &["receiver", "outcome"],
        "Events for a webhook: sent, retried, failed, dropped",
    ),
    gauge("tenon_webhook_queued_events", &["receiver"], "Events that wait for a webhook or are being sent"),
    counter("tenon_events_lost", &[], "Changes for which no event was sent"),
    gauge("tenon_view_objects", &["view"], "Objects in a view"),
    gauge("tenon_view_lost", &["view"], "1 if the handler of a view does not answer"),
    gauge("tenon_event_source_connected", &["source"], "1 if the event source answered the last request"),
    counter("tenon_event_source_messages", &["source"], "Messages received from an event source"),
    counter("tenon_event_source_unreadable_messages", &["source"], "Messages that could not be read"),
    counter(
        "tenon_event_source_failures",
        &["source"],
        "Failures of an event source or of a receiver of its events",
    ),
    gauge(
        "tenon_event_source_waiting_messages",
        &["source"],
        "Messages that wait in an event source, if it tells",
    ),
    gauge("tenon_event_source_lag_seconds", &["source"], "Age of the newest event when it was applied"),
    gauge("tenon_handler_views", &[], "Views that clients of an event handler have opened"),
    gauge("tenon_handler_objects", &[], "Objects that an event handler knows"),
    gauge("tenon_handler_memory_bytes", &[], "Memory for the objects that an event handler knows"),
    gauge("tenon_handler_waiting_objects", &[], "Objects that an event handler will examine in the store"),
    gauge("tenon_handler_unreadable_buckets", &[], "Buckets that an event handler cannot read"),
    counter(
        "tenon_handler_hints",
        &["outcome"],
        "Hints by outcome: applied, repeated, late, unwanted, or looked at in the store",
    ),
    counter("tenon_handler_matching_seconds", &[], "Time that an event handler spent on matching hints"),
    gauge("tenon_drive_bytes", &["drive"], "Length of a drive"),
    gauge("tenon_drive_available_bytes", &["drive"], "Free space of a drive"),
    gauge("tenon_drive_log_bytes", &["drive"], "Log of a drive that an opening after a crash would read"),
    gauge("tenon_drive_index_memory_bytes", &["drive"], "Memory of the index of a drive"),
    gauge("tenon_drive_lost_parts", &["drive"], "Parts of a drive that were lost when it was opened"),
    counter(
        "tenon_trace_spans",
        &["outcome"],
        "Spans for the collector of traces: sent, refused by it, or dropped because too many waited",
    ),
    counter("process_cpu_seconds", &[], "Processor time in user and system mode"),
    gauge("process_resident_memory_bytes", &[], "Resident memory"),
    gauge("process_virtual_memory_bytes", &[], "Virtual memory"),
    gauge("process_open_fds", &[], "Open file descriptors"),
    gauge("process_max_fds", &[], "Limit on open file descriptors"),
    gauge("process_threads", &[], "Threads"),
    gauge("process_start_time_seconds", &[], "Start time since the Unix epoch"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    #[test]
    fn names_follow_the_conventions() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len(), "a name is used twice");
        for Metric { name, kind, help, .. } in METRICS {
            let is_valid = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte == b'3');
            assert!(is_valid && !name.ends_with("_total") && !help.ends_with('.'), "{name}");
            assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
        }
    }

    /// The document has one line for each metric: name, kind, labels and meaning.
    #[test]
    fn the_document_lists_all_metrics() {
        let mut rows = String::new();
        for metric in METRICS {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(
                rows,
                "| `{}` | {kind} | {} | {} |",
                metric.sample_name(),
                labels.join(", "),
                metric.help
            )
            .unwrap();
        }
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let document = std::fs::read_to_string(document).unwrap();
        assert!(document.contains(&rows), "docs/metrics.md must have exactly these rows:\n{rows}");
    }
}
