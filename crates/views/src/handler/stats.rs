//! Statistics of a handler.

use super::Handler;
use super::objects::ApplyOutcome;
use crate::{Unlisted, ViewId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State of a handler, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandlerStats {
    /// The views, in the order of their numbers.
    pub views: Vec<ViewStats>,
    /// Number of containers that some view names.
    pub containers: usize,
    /// Those containers whose known objects may be incomplete, because a listing failed or memory is lacking.
    pub unlisted: Vec<Unlisted>,
    /// Number of known objects in the containers; each matches the rules on keys of some view.
    pub objects: usize,
    /// Number of distinct sets of views that were found for objects so far, summed over the containers.
    pub sets: usize,
    /// Approximate memory of the objects, in bytes.
    pub memory_bytes: usize,
    /// Outcomes of hints since the start of the process.
    pub hints: HintCounts,
    /// Total time since the start of the process spent finding the outcomes of hints, and the views of their objects.
    pub matching: Duration,
    /// Number of objects that are being verified or queued for verification.
    pub looks: usize,
    /// Length of the current log, which began with the last snapshot or with the process, in bytes; 0 without a state
    /// directory.
    pub log_bytes: u64,
}

/// State of a view, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewStats {
    /// The id of the view.
    pub view: ViewId,
    /// The view's rules, as YAML.
    pub rules: String,
    /// Number of objects that the view shows.
    pub objects: usize,
}

/// Outcomes of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HintCounts {
    /// Number of hints that were applied to the known state.
    pub applied: u64,
    /// Number of hints that said what was known already.
    pub repeated: u64,
    /// Number of hints that were older than the known state.
    pub late: u64,
    /// Number of hints that were dropped: no view wants the object, or there is no memory for it.
    pub unwanted: u64,
    /// Number of hints that were not trusted: the object is verified in the store.
    pub looked: u64,
}

/// Sums of outcomes of hints, and of the time that it took to find them.
#[derive(Debug, Default)]
pub(super) struct HintCounters {
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
            ApplyOutcome::Unwanted | ApplyOutcome::NoRoom => &mut self.unwanted,
            ApplyOutcome::Verify => &mut self.looked,
        };
        *count += 1;
    }
}

impl HintCounters {
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

    /// Returns the total time spent finding the outcomes of hints.
    fn matching(&self) -> Duration {
        Duration::from_nanos(self.matching_ns.load(Ordering::Relaxed))
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
    /// Returns the approximate memory of the objects, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.objects.memory_bytes()
    }

    /// Returns the handler's statistics. A view's objects are counted as of the last request for its changes; if it
    /// has rules on ages, others may match by now.
    pub fn stats(&self) -> HandlerStats {
        let (views, containers) = (self.registry.views(), self.registry.containers());
        let totals = self.objects.totals(views.len());
        let with_size = views.iter().zip(&totals.view_sizes);
        let view_stats = with_size.filter_map(|(view, objects)| {
            let view = view.as_ref()?;
            Some(ViewStats { view: view.id(), rules: view.text.clone(), objects: *objects })
        });
        HandlerStats {
            views: view_stats.collect(),
            containers: containers.len(),
            unlisted: containers.values().filter_map(|container| container.unlisted()).collect(),
            objects: totals.objects,
            sets: containers.values().map(|container| container.set_count()).sum(),
            memory_bytes: totals.memory_bytes,
            hints: self.hint_counts.get(),
            matching: self.hint_counts.matching(),
            looks: self.verifier.count(),
            log_bytes: self.log.bytes(),
        }
    }
}
