//! Content of files. Every page carries the number of its file and its offset, so that every byte can be compared at memory speed.

use crate::workload::{self, JobFile, Rewritten};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

const BLOCK_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = workload::PAGE_BYTES as usize;
/// Added to the number of a file in pages that were written again.
const REWRITTEN: u64 = 1 << 32;

/// Identity of a file's content: its number, and the pages that were written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    number: u64,
    rewritten: Option<Arc<Rewritten>>,
}

/// Returns the random block that is the base of all files; it is generated once.
fn random_block() -> &'static [u8] {
    static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let numbers = store::Entropy::new(0x7e40);
        let words = std::iter::repeat_with(|| numbers.next_u64().to_le_bytes());
        words.take(BLOCK_BYTES / 8).flatten().collect()
    })
}

/// The content of all files: random bytes, with the file's number and the page's offset at the beginning of each page.
#[derive(Debug, Clone)]
pub struct Content {
    block: Vec<u8>,
}

impl Content {
    /// Makes content for files of at most `file_bytes`.
    pub fn new(file_bytes: u64) -> Self {
        let len = file_bytes.next_multiple_of(PAGE_BYTES as u64).clamp(PAGE_BYTES as u64, BLOCK_BYTES as u64)
            as usize;
        Self { block: random_block()[..len].to_vec() }
    }

    /// Returns bytes of a file from `offset` on, which is the beginning of a page: at most `len`, and at most one block.
    pub fn block(&mut self, stamp: &Stamp, offset: u64, len: u64) -> &[u8] {
        let within = (offset % self.block.len() as u64) as usize;
        let len = len.min((self.block.len() - within) as u64) as usize;
        for at in (0..len).step_by(PAGE_BYTES) {
            let page = &mut self.block[within + at..];
            page[..8].copy_from_slice(&stamp.of_page(offset + at as u64).to_le_bytes());
            page[8..16].copy_from_slice(&(offset + at as u64).to_le_bytes());
        }
        &self.block[within..within + len]
    }

    /// Returns the bytes of a range, for an upload. The range starts at the beginning of a page.
    pub fn pieces(&mut self, stamp: impl Into<Stamp>, start: u64, end: u64) -> Vec<Bytes> {
        let stamp = stamp.into();
        let mut at = start;
        let mut pieces = Vec::new();
        while at < end {
            let piece = Bytes::copy_from_slice(self.block(&stamp, at, end - at));
            at += piece.len() as u64;
            pieces.push(piece);
        }
        pieces
    }
}

impl Stamp {
    /// Returns the same content with every page written again.
    pub(crate) fn rewritten(&self) -> Self {
        Self { number: self.number + REWRITTEN, rewritten: None }
    }

    /// Returns the number that the page at an offset carries.
    fn of_page(&self, offset: u64) -> u64 {
        let page = offset / PAGE_BYTES as u64;
        let is_rewritten = self.rewritten.as_ref().is_some_and(|rewritten| rewritten.pages.contains(&page));
        if is_rewritten { self.number + REWRITTEN } else { self.number }
    }
}

impl From<usize> for Stamp {
    fn from(number: usize) -> Self {
        Self { number: number as u64, rewritten: None }
    }
}

impl From<&JobFile> for Stamp {
    fn from(file: &JobFile) -> Self {
        Self { rewritten: file.rewritten.clone(), ..file.number.into() }
    }
}

/// Compares the bytes of a file from some offset on, in pieces of any size.
#[derive(Debug)]
pub struct ContentChecker {
    content: Content,
    stamp: Stamp,
    /// Offset of the next byte to compare.
    at: u64,
}

impl ContentChecker {
    /// Makes a checker for the bytes of a file from `start` on.
    pub fn new(content: Content, stamp: impl Into<Stamp>, start: u64) -> Self {
        Self { content, stamp: stamp.into(), at: start }
    }

    /// Compares the next bytes and advances; returns whether they are equal.
    pub fn check_next(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let within = (self.at % PAGE_BYTES as u64) as usize;
            let block =
                self.content.block(&self.stamp, self.at - within as u64, (within + bytes.len()) as u64);
            let take = bytes.len().min(block.len() - within);
            if block[within..within + take] != bytes[..take] {
                return false;
            }
            self.at += take as u64;
            bytes = &bytes[take..];
        }
        true
    }

    /// Returns the offset up to which bytes were compared.
    pub fn position(&self) -> u64 {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_detected() {
        let content = Content::new(3_000_000);
        let mut sent = content.clone().pieces(3_usize, 0, 3_000_000).concat();
        let mut checker = ContentChecker::new(content.clone(), 3_usize, 0);
        assert!(sent.chunks(70_001).all(|piece| checker.check_next(piece)));
        assert_eq!(checker.position(), 3_000_000);
        sent[2_500_000] ^= 1;
        assert!(!ContentChecker::new(content.clone(), 3_usize, 0).check_next(&sent));
        assert!(!ContentChecker::new(content, 4_usize, 0).check_next(&sent));
    }

    #[test]
    fn pages_that_were_written_again_have_other_bytes() {
        let rewritten = Some(Arc::new(Rewritten { pages: [3, 300].into() }));
        let stamp = Stamp { rewritten, ..2_usize.into() };
        let mut content = Content::new(2 << 20);
        let mut bytes = content.pieces(2_usize, 0, 2 << 20).concat();
        for page in [3, 300] {
            let at = page * PAGE_BYTES;
            let new = content
                .pieces(Stamp::from(2_usize).rewritten(), at as u64, (at + PAGE_BYTES) as u64)
                .concat();
            bytes[at..at + PAGE_BYTES].copy_from_slice(&new);
        }
        assert!(ContentChecker::new(content.clone(), stamp.clone(), 0).check_next(&bytes));
        assert!(
            ContentChecker::new(content.clone(), stamp.clone(), 12_288).check_next(&bytes[12_288..16_384])
        );
        assert!(!ContentChecker::new(content.clone(), 2_usize, 0).check_next(&bytes));
        assert_eq!(
            content
                .pieces(&JobFile { number: 2, path: String::new(), size_bytes: 9, rewritten: None }, 0, 9)
                .concat(),
            bytes[..9]
        );
    }

    #[test]
    fn small_files_are_compared_completely() {
        let sent = Content::new(70_000).pieces(1_usize, 0, 70_000).concat();
        assert!(ContentChecker::new(Content::new(70_000), 1_usize, 0).check_next(&sent));
        assert!(!ContentChecker::new(Content::new(70_000), 1_usize, 0).check_next(&sent[1..]));
    }
}
