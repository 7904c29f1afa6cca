//! An allocator that counts the bytes that each thread holds, with what the system's allocator adds to each allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Debug)]
struct CountingAllocator;

thread_local! {
    static HELD_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Returns the bytes that this thread has allocated less those that it has freed. Wraps around if it has freed more, which differences
/// do not show.
pub(crate) fn held_bytes() -> usize {
    HELD_BYTES.get()
}

/// Returns the bytes that glibc takes for an allocation: a header, and room up to a multiple of 16.
fn taken_bytes(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

// SAFETY: all calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.set(HELD_BYTES.get().wrapping_add(taken_bytes(layout)));
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD_BYTES.set(HELD_BYTES.get().wrapping_sub(taken_bytes(layout)));
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
