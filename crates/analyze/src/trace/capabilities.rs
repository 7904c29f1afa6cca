//! The metrics, the tracepoints that each needs, and whether this kernel has them.

use super::tracefs::Tracefs;
use crate::model::{Capabilities, Capability, Measured};

/// A metric and the tracepoints that it is computed from.
struct Metric {
    name: &'static str,
    /// Tracepoints that the kernel must have.
    required: &'static [&'static str],
    /// Tracepoints of which the kernel must have at least one; empty if there is no such choice.
    any_of: &'static [&'static str],
    /// Tracepoints that a part of the metric needs. If one is missing, the metric's source names it.
    optional: &'static [&'static str],
    /// The quantity that the metric approximates, and how; `None` if it is exact.
    proxy_for: Option<&'static str>,
}

pub(crate) const LAYERS: &str = "time per layer";
pub(crate) const IO: &str = "I/Os and sizes";
pub(crate) const CHAINS: &str = "chain lengths";
pub(crate) const DENTRY: &str = "dentry-cache misses";
pub(crate) const INODE: &str = "inode-cache misses";
pub(crate) const INSERTIONS: &str = "page-cache insertions";
pub(crate) const EVICTIONS: &str = "page-cache evictions";
pub(crate) const MISS_RATIO: &str = "page-cache miss ratio";
pub(crate) const LOCKS: &str = "lock time";

const METRICS: &[Metric] = &[
    Metric {
        name: LAYERS,
        required: &[
            "raw_syscalls/sys_enter",
            "raw_syscalls/sys_exit",
            "block/block_bio_queue",
            "block/block_rq_issue",
            "block/block_rq_complete",
        ],
        any_of: &[],
        optional: &["io_uring/io_uring_submit_req", "io_uring/io_uring_complete"],
        proxy_for: Some(
            "the time inside each layer: VFS is the time until the file system's first tracepoint in a call, or the whole call \
             if there is none (as in a read that ext4 answers from the page cache); the file system is the rest, without the \
             time in the block layer and the device; a flush includes requests that the kernel's workers send during it; \
             io_uring requests count from submission to completion, if their tracepoints are there",
        ),
    },
    Metric {
        name: IO,
        required: &["block/block_rq_issue", "block/block_rq_complete"],
        any_of: &[],
        optional: &[],
        proxy_for: None,
    },
    Metric {
        name: CHAINS,
        required: &["block/block_bio_queue", "block/block_rq_issue"],
        any_of: &[],
        optional: &[],
        proxy_for: None,
    },
    Metric {
        name: DENTRY,
        required: &["xfs/xfs_lookup"],
        any_of: &[],
        optional: &[],
        proxy_for: Some(
            "dentry-cache misses: the file system looks a name up only after a miss in the cache",
        ),
    },
    Metric {
        name: INODE,
        required: &[],
        any_of: &["xfs/xfs_iget_miss", "ext4/ext4_load_inode"],
        optional: &[],
        proxy_for: Some(
            "inode-cache misses: on XFS inodes loaded into memory (new ones too), on ext4 inode-table blocks read from the device",
        ),
    },
    Metric {
        name: INSERTIONS,
        required: &["filemap/mm_filemap_add_to_page_cache"],
        any_of: &[],
        optional: &[],
        proxy_for: Some(
            "page-cache misses: a page is inserted when a read or write finds it missing, or by read-ahead",
        ),
    },
    Metric {
        name: EVICTIONS,
        required: &["filemap/mm_filemap_delete_from_page_cache"],
        any_of: &[],
        optional: &[],
        proxy_for: Some("page-cache evictions: pages of removed and truncated files count too"),
    },
    Metric {
        name: MISS_RATIO,
        required: &["filemap/mm_filemap_get_pages", "readahead/page_cache_sync_ra"],
        any_of: &[],
        optional: &[],
        proxy_for: Some(
            "the page-cache miss ratio: buffered reads that found a page missing, of all buffered reads; a page that read-ahead brought in time is a hit",
        ),
    },
    Metric {
        name: LOCKS,
        required: &["lock/contention_begin", "lock/contention_end"],
        any_of: &[],
        optional: &[],
        proxy_for: Some(
            "the time lost to locks: waits of the node's threads for any contended kernel lock, not only for locks of I/O; waits in user space (futex) do not count",
        ),
    },
];

/// Returns for each metric whether `tracefs` has its tracepoints.
pub(super) fn probe(tracefs: &Tracefs) -> Capabilities {
    Capabilities(
        METRICS
            .iter()
            .map(|metric| Capability { metric: metric.name.to_owned(), source: source(metric, tracefs) })
            .collect(),
    )
}

/// Returns the capabilities without a usable tracefs: no metric is available.
pub(super) fn none_available(why: &str) -> Capabilities {
    let unavailable = || Measured::NotAvailable { why: why.to_owned() };
    Capabilities(
        METRICS
            .iter()
            .map(|metric| Capability { metric: metric.name.to_owned(), source: unavailable() })
            .collect(),
    )
}

fn source(metric: &Metric, tracefs: &Tracefs) -> Measured<()> {
    if let Some(missing) = metric.required.iter().find(|event| !tracefs.has(event)) {
        return Measured::NotAvailable { why: format!("this kernel has no tracepoint {missing}") };
    }
    let any: Vec<&str> = metric.any_of.iter().copied().filter(|event| tracefs.has(event)).collect();
    if any.is_empty() && !metric.any_of.is_empty() {
        return Measured::NotAvailable {
            why: format!("this kernel has no tracepoint {}", metric.any_of.join(" or ")),
        };
    }
    let (optional, missing): (Vec<&str>, Vec<&str>) =
        metric.optional.iter().partition(|event| tracefs.has(event));
    let used: Vec<&str> = metric.required.iter().copied().chain(any).chain(optional).collect();
    let mut source = used.join(", ");
    if !missing.is_empty() {
        source.push_str(&format!("; not available here: {}", missing.join(", ")));
    }
    Measured::Is { value: (), source, proxy_for: metric.proxy_for.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes a tracefs directory with these events.
    fn tracefs_with(events: &[&str]) -> (tempfile::TempDir, Tracefs) {
        let root = tempfile::tempdir().unwrap();
        for event in events {
            let path = root.path().join("events").join(event);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("format"), "name: x\nID: 1\n").unwrap();
        }
        let tracefs = Tracefs::at(root.path());
        (root, tracefs)
    }

    fn source_of<'a>(capabilities: &'a Capabilities, metric: &str) -> &'a Measured<()> {
        &capabilities.0.iter().find(|capability| capability.metric == metric).unwrap().source
    }

    #[test]
    fn s330_a_missing_tracepoint_is_named() {
        let (_root, tracefs) =
            tracefs_with(&["block/block_bio_queue", "block/block_rq_issue", "block/block_rq_complete"]);
        let found = probe(&tracefs);
        assert!(source_of(&found, IO).value().is_some());
        assert!(source_of(&found, CHAINS).value().is_some());
        assert_eq!(
            *source_of(&found, LAYERS),
            Measured::NotAvailable { why: "this kernel has no tracepoint raw_syscalls/sys_enter".into() }
        );
        assert_eq!(
            *source_of(&found, INODE),
            Measured::NotAvailable {
                why: "this kernel has no tracepoint xfs/xfs_iget_miss or ext4/ext4_load_inode".into()
            }
        );
    }

    /// A bug: without io_uring's tracepoints the drive's time per layer was shown as if nothing were missing.
    #[test]
    fn a_source_names_missing_optional_tracepoints() {
        let required = METRICS.iter().find(|metric| metric.name == LAYERS).unwrap().required;
        let source = |optional: &[&str]| {
            let (_root, tracefs) = tracefs_with(&[required, optional].concat());
            let Measured::Is { source, .. } = source_of(&probe(&tracefs), LAYERS).clone() else { panic!() };
            source
        };
        let all = source(&["io_uring/io_uring_submit_req", "io_uring/io_uring_complete"]);
        assert!(all.ends_with("io_uring/io_uring_submit_req, io_uring/io_uring_complete"), "{all}");
        let some = source(&["io_uring/io_uring_submit_req"]);
        assert!(some.ends_with("; not available here: io_uring/io_uring_complete"), "{some}");
    }

    #[test]
    fn one_tracepoint_of_any_of_is_enough() {
        let (_root, tracefs) = tracefs_with(&["ext4/ext4_load_inode"]);
        let Measured::Is { source, .. } = source_of(&probe(&tracefs), INODE).clone() else { panic!() };
        assert_eq!(source, "ext4/ext4_load_inode");
    }

    #[test]
    fn without_tracefs_nothing_is_available() {
        assert!(none_available("no tracefs").0.iter().all(|capability| capability.source.value().is_none()));
    }
}
