//! Memory in huge pages: the kernel pins one where it would pin hundreds, and hands the device one long piece instead of as many
//! short ones.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A huge page where processors have pages of 4 KiB. Where the kernel has none to give the memory lies in ordinary pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A part of huge pages, used by one at a time. Dropped, its memory is the system's again, whoever has the parts beside it; those are
/// in ordinary pages then.
pub(super) struct Piece {
    pages: Arc<Pages>,
    at: usize,
    len: usize,
}

impl Piece {
    /// Zeros: huge pages in as many pieces of a length, a power of two, as they have; one at least. Each begins at a multiple of its
    /// length, or of a huge page.
    pub(super) fn several(len: usize) -> impl Iterator<Item = Self> {
        assert!(len.is_power_of_two(), "huge pages have no pieces of {len} bytes");
        let pages = Arc::new(Pages::map(len.max(HUGE_PAGE_BYTES)));
        let count = pages.len / len;
        (0..count).map(move |n| Self { pages: pages.clone(), at: n * len, len })
    }

    /// Whether a part beside it was dropped.
    pub(super) fn is_alone(&self) -> bool {
        self.pages.are_broken.load(Ordering::Relaxed)
    }

    pub(super) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pages, &other.pages)
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: a piece lies within its pages.
        unsafe { self.pages.start.add(self.at) }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped as long as a piece of them is there, and zeros until somebody writes.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no two pieces have a byte in common (`several`).
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if Arc::strong_count(&self.pages) == 1 {
            // The last one: all of the pages go.
            return;
        }
        self.pages.are_broken.store(true, Ordering::Relaxed);
        // SAFETY: nobody else has this part of the pages, nor will. A kernel that refuses keeps the memory until all pieces are gone.
        let _ = unsafe { madvise(self.start().as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("at", &self.at).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Memory that is mapped, of which whole huge pages are used.
struct Pages {
    mapped: NonNull<u8>,
    mapped_len: usize,
    start: NonNull<u8>,
    len: usize,
    /// A part of them is the system's.
    are_broken: AtomicBool,
}

// SAFETY: it is memory of the process, of which every byte belongs to one piece.
unsafe impl Send for Pages {}
// SAFETY: as above; nothing of it changes but what pieces own.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(len: usize) -> Self {
        // Linux aligns it since 6.7; before that there is an aligned part in somewhat more. What nobody touches is only addresses.
        let mapped_len = len + HUGE_PAGE_BYTES;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, wherever the kernel likes.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped_len, access, flags) };
        let Some(mapped) = mapped.ok().and_then(|mapped| NonNull::new(mapped.cast::<u8>())) else {
            handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()))
        };
        // SAFETY: at most a huge page further, which is mapped as well.
        let start = unsafe { mapped.add(mapped.align_offset(HUGE_PAGE_BYTES)) };
        // SAFETY: of what was just mapped. Without huge pages it works as well.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Self { mapped, mapped_len, start, len, are_broken: AtomicBool::new(false) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: no piece is there any more. A kernel that refuses has lost what it could have had back.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_no_byte_in_common() {
        for len in [64 << 10, 1 << 20, 2 << 20, 8 << 20] {
            let mut pieces: Vec<_> = Piece::several(len).collect();
            assert_eq!(pieces.len(), (HUGE_PAGE_BYTES / len).max(1));
            for (n, piece) in pieces.iter_mut().enumerate() {
                assert_eq!(piece.len(), len);
                assert_eq!(piece.as_ptr().align_offset(len.min(HUGE_PAGE_BYTES)), 0);
                assert!(piece.iter().all(|byte| *byte == 0));
                piece.fill(n as u8 + 1);
            }
            for (n, piece) in pieces.iter().enumerate() {
                assert!(piece.iter().all(|byte| *byte == n as u8 + 1));
            }
        }
    }

    #[test]
    fn a_piece_outlives_those_beside_it() {
        let mut pieces = Piece::several(1 << 20);
        let (mut first, second) = (pieces.next().unwrap(), pieces.next().unwrap());
        drop(pieces);
        first.fill(7);
        drop(second);
        assert!(first.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_is_dropped_is_the_systems_again() {
        let mut pieces = Piece::several(1 << 20);
        let (mut first, mut second) = (pieces.next().unwrap(), pieces.next().unwrap());
        first.fill(7);
        second.fill(7);
        let (pages, at) = (second.pages.clone(), second.at);
        drop(second);
        let again = Piece { pages, at, len: 1 << 20 };
        assert!(again.iter().all(|byte| *byte == 0), "nobody has kept it");
    }
}
