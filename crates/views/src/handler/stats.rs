//! Statistics of a handler.

use super::reconcile::ApplyOutcome;
use super::{Handler, SHARDS, View};
use crate::{Unlisted, ViewId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State of a handler, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandlerStats {
    /// The views, in the order of their numbers.
    pub views: Vec<ViewStats>,
    /// Number of containers that some view names.
    pub containers: usize,
    /// Those containers that cannot be listed.
    pub unlisted: Vec<Unlisted>,
    /// Number of known objects in the containers; each matches the rules on keys of some view.
    pub objects: usize,
    /// Number of distinct sets of views that objects are in.
    pub sets: usize,
    /// Approximate memory of the objects, in bytes.
    pub memory_bytes: usize,
    /// Outcomes of hints since the start.
    pub hints: HintCounts,
    /// Total time spent finding the outcomes of hints, and the views of their objects.
    pub matching: Duration,
    /// Number of objects that are being verified or queued for verification.
    pub looks: usize,
    /// Length of the log since the last snapshot, in bytes.
    pub log_bytes: u64,
}

/// State of a view, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewStats {
    /// The view.
    pub view: ViewId,
    /// Its rules, as YAML.
    pub rules: String,
    /// Number of objects that the view shows.
    pub objects: usize,
}

/// Outcomes of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HintCounts {
    /// Applied to the known state.
    pub applied: u64,
    /// Said what was known already.
    pub repeated: u64,
    /// Older than the known state.
    pub late: u64,
    /// Dropped: no view wants the object.
    pub unwanted: u64,
    /// Not trusted: the object was verified in the store.
    pub looked: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    applied: AtomicU64,
    repeated: AtomicU64,
    late: AtomicU64,
    unwanted: AtomicU64,
    looked: AtomicU64,
    matching_ns: AtomicU64,
}

impl HintCounts {
    pub(super) fn add(&mut self, outcome: ApplyOutcome) {
        let count = match outcome {
            ApplyOutcome::Applied => &mut self.applied,
            ApplyOutcome::Repeated => &mut self.repeated,
            ApplyOutcome::Late => &mut self.late,
            ApplyOutcome::Unwanted => &mut self.unwanted,
            ApplyOutcome::Verify => &mut self.looked,
        };
        *count += 1;
    }
}

impl Counts {
    pub(super) fn add(&self, counts: &HintCounts, matching: Duration) {
        let add = |to: &AtomicU64, count: u64| {
            if count > 0 {
                to.fetch_add(count, Ordering::Relaxed);
            }
        };
        add(&self.applied, counts.applied);
        add(&self.repeated, counts.repeated);
        add(&self.late, counts.late);
        add(&self.unwanted, counts.unwanted);
        add(&self.looked, counts.looked);
        add(&self.matching_ns, u64::try_from(matching.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn get(&self) -> HintCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        HintCounts {
            applied: of(&self.applied),
            repeated: of(&self.repeated),
            late: of(&self.late),
            unwanted: of(&self.unwanted),
            looked: of(&self.looked),
        }
    }
}

impl Handler {
    /// Returns the handler's statistics. A view's objects are counted as of the last request for its changes; if it
    /// has rules on ages, others may match by now.
    pub fn stats(&self) -> HandlerStats {
        let (views, containers) = {
            let registry = self.registry();
            (registry.views.clone(), registry.containers.clone())
        };
        let mut stats = HandlerStats {
            containers: containers.len(),
            hints: self.counts.get(),
            matching: Duration::from_nanos(self.counts.matching_ns.load(Ordering::Relaxed)),
            looks: self.verify_queue.count(),
            log_bytes: self.log_bytes(),
            ..HandlerStats::default()
        };
        let mut sizes = vec![0; views.len()];
        for container in containers.values() {
            stats.sets += container.rules().matcher.set_count();
            stats.unlisted.extend(container.unlisted());
        }
        for shard in 0..SHARDS {
            for table in self.shard_at(shard).tables() {
                stats.objects += table.live_count();
                stats.memory_bytes += table.memory_bytes();
                for (set, count) in table.set_sizes() {
                    for view in set.iter() {
                        sizes[*view as usize] += count;
                    }
                }
            }
        }
        let of_view = |(view, objects): (Option<Arc<View>>, usize)| {
            view.map(|view| ViewStats { view: view.id(), rules: view.text.clone(), objects })
        };
        stats.views = views.into_iter().zip(sizes).filter_map(of_view).collect();
        stats
    }
}
