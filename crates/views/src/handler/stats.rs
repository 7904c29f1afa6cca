//! What can be said of a handler.

use super::reconcile::Outcome;
use super::{Handler, SHARDS, View};
use crate::{Unlisted, ViewId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a handler is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandlerStats {
    /// By number.
    pub views: Vec<ViewStats>,
    /// Containers that some view names.
    pub containers: usize,
    /// Those of them that cannot be listed.
    pub unlisted: Vec<Unlisted>,
    /// Objects of them that some view may show.
    pub objects: usize,
    /// Sets of views that objects are in.
    pub sets: usize,
    /// About the memory that the objects take, in bytes.
    pub memory_bytes: usize,
    /// What came of hints since the start.
    pub hints: HintCounts,
    /// How long it took in all to find out what comes of them, and in which views their objects are.
    pub matching: Duration,
    /// Objects that wait to be looked at, or are.
    pub looks: usize,
    /// Bytes of the log since the last snapshot.
    pub log_bytes: u64,
}

/// How a view is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewStats {
    /// Which.
    pub view: ViewId,
    /// Its rules as they would stand in a file.
    pub rules: String,
    /// Objects that it shows.
    pub objects: usize,
}

/// What came of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HintCounts {
    /// Believed.
    pub applied: u64,
    /// They said what was known.
    pub repeated: u64,
    /// Something later was known.
    pub late: u64,
    /// No view wants the object.
    pub unwanted: u64,
    /// Somebody had to look at the object.
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
    pub(super) fn add(&mut self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Applied => &mut self.applied,
            Outcome::Repeated => &mut self.repeated,
            Outcome::Late => &mut self.late,
            Outcome::Unwanted => &mut self.unwanted,
            Outcome::Look => &mut self.looked,
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
    /// How it is. Objects count as they were when somebody last asked for changes: time alone may have shown or hidden some since.
    pub fn stats(&self) -> HandlerStats {
        let (views, containers) = {
            let registry = self.registry();
            (registry.views.clone(), registry.containers.clone())
        };
        let mut stats = HandlerStats {
            containers: containers.len(),
            hints: self.counts.get(),
            matching: Duration::from_nanos(self.counts.matching_ns.load(Ordering::Relaxed)),
            looks: self.looks.count(),
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
                stats.objects += table.live();
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
