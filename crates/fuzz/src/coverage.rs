//! Edge coverage: which edges of the instrumented code an input took, and how often.

use std::sync::{Mutex, PoisonError};

/// Counter regions of the instrumented crates: address and length in bytes.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by every instrumented module before `main` (LLVM, "SanitizerCoverage", inline 8-bit counters).
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let region = (start as usize, stop as usize - start as usize);
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    if region.1 > 0 && !counters.contains(&region) {
        counters.push(region);
    }
}

/// The edge counters of this process, and what they have shown so far.
#[derive(Debug)]
pub(crate) struct EdgeCoverage {
    regions: Vec<(usize, usize)>,
    /// The hit-count classes seen so far per edge, one bit per class (see [`count_class`]).
    seen: Vec<u8>,
}

/// Coverage of an input that no earlier input had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewCoverage {
    /// The input took an edge for the first time.
    pub(crate) has_edge: bool,
    /// The input took an edge with a hit count in a new class.
    pub(crate) has_count: bool,
}

impl EdgeCoverage {
    pub(crate) fn of_this_process() -> Self {
        let regions = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seen = vec![0; regions.iter().map(|(_, len)| len).sum()];
        Self { regions, seen }
    }

    /// Returns the number of edges that any input took.
    pub(crate) fn taken(&self) -> usize {
        self.seen.iter().filter(|bits| **bits != 0).count()
    }

    pub(crate) fn clear(&mut self) {
        for &(start, len) in &self.regions {
            // SAFETY: a module's counters are its own bytes for as long as the process runs, and nothing else refers to
            // them. A thread that counts at the same time can only falsify a count.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0, len) };
        }
    }

    /// Adds the counts since [`EdgeCoverage::clear`] to the coverage and returns what is new.
    pub(crate) fn note(&mut self) -> NewCoverage {
        let (mut new_coverage, mut at) = (NewCoverage::default(), 0);
        for &(start, len) in &self.regions {
            // SAFETY: as above.
            let counts = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
            let seen = &mut self.seen[at..at + len];
            // Most edges are not taken.
            for (counts, seen) in counts.chunks(64).zip(seen.chunks_mut(64)) {
                if counts.iter().any(|count| *count != 0) {
                    new_coverage.note(counts, seen);
                }
            }
            at += len;
        }
        new_coverage
    }
}

impl NewCoverage {
    fn note(&mut self, counts: &[u8], seen: &mut [u8]) {
        for (count, seen) in counts.iter().zip(seen) {
            let class = count_class(*count);
            self.has_edge |= class != 0 && *seen == 0;
            self.has_count |= class & !*seen != 0;
            *seen |= class;
        }
    }
}

/// Returns the bit of a hit count's class: 1, 2, 3, 4-7, 8-15, 16-31, 32-127, or more.
fn count_class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        _ => 128,
    }
}
