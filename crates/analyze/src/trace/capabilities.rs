//! Which metrics a kernel can give, and what each is made of.

use super::tracefs::Tracefs;
use crate::model::{Capabilities, Capability, Measured};

/// A metric: its name, the tracepoints it needs, those of which any will do, those of a part of it, and what it is a proxy for.
struct Metric {
    name: &'static str,
    needs: &'static [&'static str],
    any_of: &'static [&'static str],
    /// Without one of these the metric lacks a part, which is said where it is from.
    also: &'static [&'static str],
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
        needs: &[
            "raw_syscalls/sys_enter",
            "raw_syscalls/sys_exit",
            "block/block_bio_queue",
            "block/block_rq_issue",
            "block/block_rq_complete",
        ],
        any_of: &[],
        also: &["io_uring/io_uring_submit_req", "io_uring/io_uring_complete"],
        proxy_for: Some(
            "time inside each layer: VFS is what comes before the file system's first tracepoint in a call, or the whole \
             call if it has none (a read that ext4 answers from the page cache has none); the file system is the rest \
             less what is below; a flush waits for what the kernel's workers send meanwhile; of io_uring's requests, where their tracepoints are there, from submission to completion",
        ),
    },
    Metric {
        name: IO,
        needs: &["block/block_rq_issue", "block/block_rq_complete"],
        any_of: &[],
        also: &[],
        proxy_for: None,
    },
    Metric {
        name: CHAINS,
        needs: &["block/block_bio_queue", "block/block_rq_issue"],
        any_of: &[],
        also: &[],
        proxy_for: None,
    },
    Metric {
        name: DENTRY,
        needs: &["xfs/xfs_lookup"],
        any_of: &[],
        also: &[],
        proxy_for: Some(
            "dentry-cache misses: the file system is asked for a name only when the cache lacks it",
        ),
    },
    Metric {
        name: INODE,
        needs: &[],
        any_of: &["xfs/xfs_iget_miss", "ext4/ext4_load_inode"],
        also: &[],
        proxy_for: Some(
            "inode-cache misses: on XFS inodes brought into memory (created ones too), on ext4 inode-table blocks read from the device",
        ),
    },
    Metric {
        name: INSERTIONS,
        needs: &["filemap/mm_filemap_add_to_page_cache"],
        any_of: &[],
        also: &[],
        proxy_for: Some(
            "page-cache misses: a page is inserted when a read or write finds it missing, or ahead of it",
        ),
    },
    Metric {
        name: EVICTIONS,
        needs: &["filemap/mm_filemap_delete_from_page_cache"],
        any_of: &[],
        also: &[],
        proxy_for: Some("page-cache evictions: pages of removed and truncated files leave by the same way"),
    },
    Metric {
        name: MISS_RATIO,
        needs: &["filemap/mm_filemap_get_pages", "readahead/page_cache_sync_ra"],
        any_of: &[],
        also: &[],
        proxy_for: Some(
            "page-cache miss ratio: reads that had to ask for pages, of all buffered reads; read-ahead that came in time is a hit",
        ),
    },
    Metric {
        name: LOCKS,
        needs: &["lock/contention_begin", "lock/contention_end"],
        any_of: &[],
        also: &[],
        proxy_for: Some(
            "time lost to locks: all contended locks of the kernel in the node's threads, not only those of I/O; not waits of user space (futex)",
        ),
    },
];

/// What `tracefs` has tracepoints for.
pub(super) fn probe(tracefs: &Tracefs) -> Capabilities {
    Capabilities(
        METRICS
            .iter()
            .map(|metric| Capability { metric: metric.name.to_owned(), source: source(metric, tracefs) })
            .collect(),
    )
}

/// What a kernel can show that has no tracing directory for us.
pub(super) fn nothing(why: &str) -> Capabilities {
    let lacking = || Measured::NotAvailable { why: why.to_owned() };
    Capabilities(
        METRICS
            .iter()
            .map(|metric| Capability { metric: metric.name.to_owned(), source: lacking() })
            .collect(),
    )
}

fn source(metric: &Metric, tracefs: &Tracefs) -> Measured<()> {
    if let Some(missing) = metric.needs.iter().find(|event| !tracefs.has(event)) {
        return Measured::NotAvailable { why: format!("this kernel has no tracepoint {missing}") };
    }
    let any: Vec<&str> = metric.any_of.iter().copied().filter(|event| tracefs.has(event)).collect();
    if any.is_empty() && !metric.any_of.is_empty() {
        return Measured::NotAvailable {
            why: format!("this kernel has no tracepoint {}", metric.any_of.join(" or ")),
        };
    }
    let (also, lacking): (Vec<&str>, Vec<&str>) = metric.also.iter().partition(|event| tracefs.has(event));
    let used: Vec<&str> = metric.needs.iter().copied().chain(any).chain(also).collect();
    let mut source = used.join(", ");
    if !lacking.is_empty() {
        source.push_str(&format!("; not available here: {}", lacking.join(", ")));
    }
    Measured::Is { value: (), source, proxy_for: metric.proxy_for.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A tracing directory with these events.
    fn kernel(events: &[&str]) -> (tempfile::TempDir, Tracefs) {
        let root = tempfile::tempdir().unwrap();
        for event in events {
            let path = root.path().join("events").join(event);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("format"), "name: x\nID: 1\n").unwrap();
        }
        let tracefs = Tracefs::at(root.path());
        (root, tracefs)
    }

    fn of<'a>(capabilities: &'a Capabilities, metric: &str) -> &'a Measured<()> {
        &capabilities.0.iter().find(|capability| capability.metric == metric).unwrap().source
    }

    #[test]
    fn s330_a_missing_tracepoint_is_named() {
        let (_root, tracefs) =
            kernel(&["block/block_bio_queue", "block/block_rq_issue", "block/block_rq_complete"]);
        let found = probe(&tracefs);
        assert!(of(&found, IO).value().is_some());
        assert!(of(&found, CHAINS).value().is_some());
        assert_eq!(
            *of(&found, LAYERS),
            Measured::NotAvailable { why: "this kernel has no tracepoint raw_syscalls/sys_enter".into() }
        );
        assert_eq!(
            *of(&found, INODE),
            Measured::NotAvailable {
                why: "this kernel has no tracepoint xfs/xfs_iget_miss or ext4/ext4_load_inode".into()
            }
        );
    }

    /// Without io_uring's tracepoints the drive's time per layer was shown as if nothing were missing.
    #[test]
    fn a_source_says_what_part_of_it_is_missing() {
        let needed = METRICS.iter().find(|metric| metric.name == LAYERS).unwrap().needs;
        let source = |also: &[&str]| {
            let (_root, tracefs) = kernel(&[needed, also].concat());
            let Measured::Is { source, .. } = of(&probe(&tracefs), LAYERS).clone() else { panic!() };
            source
        };
        let all = source(&["io_uring/io_uring_submit_req", "io_uring/io_uring_complete"]);
        assert!(all.ends_with("io_uring/io_uring_submit_req, io_uring/io_uring_complete"), "{all}");
        let some = source(&["io_uring/io_uring_submit_req"]);
        assert!(some.ends_with("; not available here: io_uring/io_uring_complete"), "{some}");
    }

    #[test]
    fn either_file_system_shows_inodes() {
        let (_root, tracefs) = kernel(&["ext4/ext4_load_inode"]);
        let Measured::Is { source, .. } = of(&probe(&tracefs), INODE).clone() else { panic!() };
        assert_eq!(source, "ext4/ext4_load_inode");
    }

    #[test]
    fn without_a_tracing_directory_nothing_is_available() {
        assert!(nothing("no tracefs").0.iter().all(|capability| capability.source.value().is_none()));
    }
}
