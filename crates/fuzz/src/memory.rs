//! Peak memory that a target holds for an input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn count_allocation(bytes: usize) {
    PEAK_BYTES.fetch_max(HELD_BYTES.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: each call is forwarded to the system allocator with the same arguments.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocation(size);
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs a closure and returns its result with the peak of bytes held above those held before.
pub(crate) fn measure_peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let done = run();
    (done, PEAK_BYTES.load(Relaxed).saturating_sub(before))
}
