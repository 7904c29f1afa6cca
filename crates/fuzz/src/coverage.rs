//! Which edges of the instrumented code an input took, and how often.

use std::sync::{Mutex, PoisonError};

/// Where the counters of the instrumented crates are: address and length.
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

/// All counters of this process.
#[derive(Debug)]
pub(crate) struct Edges {
    regions: Vec<(usize, usize)>,
    /// For each edge the orders of magnitude seen so far, a bit each.
    seen: Vec<u8>,
}

/// What an input did that none before it did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    /// It took an edge.
    pub(crate) has_edge: bool,
    /// It took an edge more or less often by an order of magnitude.
    pub(crate) has_count: bool,
}

impl Edges {
    pub(crate) fn of_process() -> Self {
        let regions = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seen = vec![0; regions.iter().map(|(_, len)| len).sum()];
        Self { regions, seen }
    }

    /// How many were ever taken.
    pub(crate) fn taken(&self) -> usize {
        self.seen.iter().filter(|bits| **bits != 0).count()
    }

    pub(crate) fn clear(&mut self) {
        for &(start, len) in &self.regions {
            // SAFETY: a module's counters are its own bytes for as long as the process runs, and nothing else refers to
            // them; a thread that counts meanwhile can only spoil a count.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0, len) };
        }
    }

    /// Takes note of what was counted since [`Edges::clear`].
    pub(crate) fn note(&mut self) -> News {
        let (mut news, mut at) = (News::default(), 0);
        for &(start, len) in &self.regions {
            // SAFETY: as above.
            let counts = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
            let seen = &mut self.seen[at..at + len];
            // Most edges are not taken.
            for (counts, seen) in counts.chunks(64).zip(seen.chunks_mut(64)) {
                if counts.iter().any(|count| *count != 0) {
                    news.note(counts, seen);
                }
            }
            at += len;
        }
        news
    }
}

impl News {
    fn note(&mut self, counts: &[u8], seen: &mut [u8]) {
        for (count, seen) in counts.iter().zip(seen) {
            let order = order(*count);
            self.has_edge |= order != 0 && *seen == 0;
            self.has_count |= order & !*seen != 0;
            *seen |= order;
        }
    }
}

/// A bit for 1, 2, 3, 4-7, 8-15, 16-31, 32-127 and more.
fn order(count: u8) -> u8 {
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
