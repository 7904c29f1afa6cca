//! Huge pages for buffers: the kernel pins one page instead of hundreds, and passes one long segment to the device instead of many
//! short ones.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The huge page size of processors with pages of 4 KiB. If the kernel has no huge pages left, the memory is in ordinary ones.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A part of a mapping of huge pages, owned exclusively. Dropping it returns its memory to the system, even if other chunks of the
/// mapping are in use; those are in ordinary pages afterwards.
pub(super) struct Chunk {
    pages: Arc<HugePages>,
    /// Offset of the chunk in the mapping, in bytes.
    at: usize,
    len: usize,
}

impl Chunk {
    /// Maps huge pages, zeroed, and divides them into chunks of a length, a power of two; at least one chunk. Each chunk is aligned to
    /// its length, or to a huge page if it is longer.
    pub(super) fn allocate(len: usize) -> impl Iterator<Item = Self> {
        assert!(len.is_power_of_two(), "huge pages cannot be divided into chunks of {len} bytes");
        let pages = Arc::new(HugePages::map(len.max(HUGE_PAGE_BYTES)));
        let count = pages.len / len;
        (0..count).map(move |n| Self { pages: pages.clone(), at: n * len, len })
    }

    /// Returns whether another chunk of the mapping was dropped.
    pub(super) fn has_lost_sibling(&self) -> bool {
        self.pages.has_freed_chunk.load(Ordering::Relaxed)
    }

    pub(super) fn shares_mapping(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pages, &other.pages)
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: a chunk lies within its pages.
        unsafe { self.pages.start.add(self.at) }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped as long as a chunk of them exists, and are initialized with zeros.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and chunks do not overlap (`allocate`).
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if Arc::strong_count(&self.pages) == 1 {
            // The last chunk: all of the pages are unmapped.
            return;
        }
        self.pages.has_freed_chunk.store(true, Ordering::Relaxed);
        // SAFETY: no other chunk has this part of the pages. If the kernel refuses, the memory is freed with the last chunk.
        let _ = unsafe { madvise(self.start().as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("at", &self.at).field("len", &self.len).finish_non_exhaustive()
    }
}

/// A mapping of whole huge pages.
///
/// A process has a limited number of mappings (`vm.max_map_count`, 65,530 by default). The kernel merges adjacent mappings of one
/// kind, so only the used part is mapped and all of it gets the same advice. Where the limit is reached all the same, the memory comes
/// from the heap.
struct HugePages {
    start: NonNull<u8>,
    len: usize,
    is_mapped: bool,
    /// Whether a chunk was dropped and its memory returned to the kernel.
    has_freed_chunk: AtomicBool,
}

// SAFETY: the memory belongs to the process, and each byte to one chunk.
unsafe impl Send for HugePages {}
// SAFETY: as above; only the owner of a chunk changes its bytes.
unsafe impl Sync for HugePages {}

impl HugePages {
    fn map(len: usize) -> Self {
        let (start, is_mapped) = match map_aligned(len) {
            Some(start) => (start, true),
            None => (allocate_aligned(len), false),
        };
        // SAFETY: the range was just mapped or allocated. Without huge pages the memory works as well.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Self { start, len, is_mapped, has_freed_chunk: AtomicBool::new(false) }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: no chunk is left.
        unsafe {
            if self.is_mapped {
                unmap(self.start, self.len);
            } else {
                dealloc(self.start.as_ptr(), layout(self.len));
            }
        }
    }
}

/// Maps zeroed memory aligned to huge pages; `None` if the kernel refuses.
fn map_aligned(len: usize) -> Option<NonNull<u8>> {
    // Linux aligns long mappings only since 6.7, so a longer range is mapped and the aligned part of it is kept.
    let mapped_len = len + HUGE_PAGE_BYTES;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped_len, access, flags) };
    let mapped = NonNull::new(mapped.ok()?.cast::<u8>())?;
    let before = mapped.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: all three ranges lie in the mapping, and nothing refers to the two that are unmapped.
    unsafe {
        let start = mapped.add(before);
        unmap(mapped, before);
        unmap(start.add(len), mapped_len - before - len);
        Some(start)
    }
}

/// Unmaps a range. If the kernel refuses, the memory stays mapped until the process ends.
///
/// # Safety
///
/// The range is mapped and not referenced.
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: by the caller.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

fn allocate_aligned(len: usize) -> NonNull<u8> {
    // SAFETY: the length is not zero.
    let start = unsafe { alloc_zeroed(layout(len)) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout(len)))
}

fn layout(len: usize) -> Layout {
    // Lengths are powers of two of at least a huge page, far below the limit of a layout.
    Layout::from_size_align(len, HUGE_PAGE_BYTES).unwrap_or(Layout::new::<u8>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap() {
        for len in [64 << 10, 1 << 20, 2 << 20, 8 << 20] {
            let mut chunks: Vec<_> = Chunk::allocate(len).collect();
            assert_eq!(chunks.len(), (HUGE_PAGE_BYTES / len).max(1));
            for (n, chunk) in chunks.iter_mut().enumerate() {
                assert_eq!(chunk.len(), len);
                assert_eq!(chunk.as_ptr().align_offset(len.min(HUGE_PAGE_BYTES)), 0);
                assert!(chunk.iter().all(|byte| *byte == 0));
                chunk.fill(n as u8 + 1);
            }
            for (n, chunk) in chunks.iter().enumerate() {
                assert!(chunk.iter().all(|byte| *byte == n as u8 + 1));
            }
        }
    }

    /// Each chunk of 2 MiB took two mappings, so a read cache of 64 GiB reached the kernel's limit of 65,530 and the process was aborted.
    #[test]
    fn a_chunk_takes_at_most_one_mapping() {
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = mappings();
        let mut chunks: Vec<_> = (0..1000).flat_map(|_| Chunk::allocate(HUGE_PAGE_BYTES)).collect();
        chunks.iter_mut().for_each(|chunk| chunk[0] = 1);
        // Other tests map and unmap memory at the same time.
        assert!(mappings() < before + 1100, "{} mappings for 1000 chunks", mappings() - before);
    }

    #[test]
    fn memory_comes_from_the_heap_if_mapping_fails() {
        let start = allocate_aligned(HUGE_PAGE_BYTES);
        let pages = HugePages {
            start,
            len: HUGE_PAGE_BYTES,
            is_mapped: false,
            has_freed_chunk: AtomicBool::new(false),
        };
        let mut chunk = Chunk { pages: Arc::new(pages), at: 0, len: HUGE_PAGE_BYTES };
        assert!(chunk.iter().all(|byte| *byte == 0));
        chunk.fill(7);
        assert_eq!(map_aligned(usize::MAX - 2 * HUGE_PAGE_BYTES), None);
    }

    #[test]
    fn a_chunk_outlives_its_siblings() {
        let mut chunks = Chunk::allocate(1 << 20);
        let (mut first, second) = (chunks.next().unwrap(), chunks.next().unwrap());
        drop(chunks);
        first.fill(7);
        drop(second);
        assert!(first.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn memory_of_a_dropped_chunk_returns_to_the_system() {
        let mut chunks = Chunk::allocate(1 << 20);
        let (mut first, mut second) = (chunks.next().unwrap(), chunks.next().unwrap());
        first.fill(7);
        second.fill(7);
        let (pages, at) = (second.pages.clone(), second.at);
        drop(second);
        let again = Chunk { pages, at, len: 1 << 20 };
        assert!(again.iter().all(|byte| *byte == 0), "the memory was returned to the kernel");
    }
}
