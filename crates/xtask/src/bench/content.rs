//! What files hold: every page says whose it is, so that every byte can be compared at the speed of memory.

use bytes::Bytes;
use std::sync::OnceLock;

const BLOCK_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// The noise under all files, made once.
fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| {
        let numbers = store::Entropy::new(0x7e40);
        let words = std::iter::repeat_with(|| numbers.next_u64().to_le_bytes());
        words.take(BLOCK_BYTES / 8).flatten().collect()
    })
}

/// The content of all files: noise with the file's number and the page's place stamped on each page.
#[derive(Debug, Clone)]
pub(super) struct Content {
    block: Vec<u8>,
}

impl Content {
    /// For files of at most so many bytes.
    pub(super) fn new(file_bytes: u64) -> Self {
        let len = file_bytes.next_multiple_of(PAGE_BYTES as u64).min(BLOCK_BYTES as u64) as usize;
        Self { block: noise()[..len].to_vec() }
    }

    /// The bytes of `file` from `offset` on, up to a block; the buffer stays valid until the next call.
    pub(super) fn block(&mut self, file: usize, offset: u64, len: u64) -> &[u8] {
        let len = len.min(self.block.len() as u64) as usize;
        for page in 0..len.div_ceil(PAGE_BYTES) {
            let at = page * PAGE_BYTES;
            self.block[at..at + 8].copy_from_slice(&(file as u64).to_le_bytes());
            self.block[at + 8..at + 16].copy_from_slice(&(offset + at as u64).to_le_bytes());
        }
        &self.block[..len]
    }

    /// The bytes of a range, to be sent.
    pub(super) fn pieces(&mut self, file: usize, start: u64, end: u64) -> Vec<Bytes> {
        let mut at = start;
        let mut pieces = Vec::new();
        while at < end {
            let piece = Bytes::copy_from_slice(self.block(file, at, end - at));
            at += piece.len() as u64;
            pieces.push(piece);
        }
        pieces
    }
}

/// Compares bytes as they arrive, in pieces of any size, from `start` of `file` on.
#[derive(Debug)]
pub(super) struct Comparison {
    content: Content,
    file: usize,
    start: u64,
    at: u64,
}

impl Comparison {
    pub(super) fn new(content: Content, file: usize, start: u64) -> Self {
        Self { content, file, start, at: start }
    }

    /// Whether these are the next bytes.
    pub(super) fn holds(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let block_bytes = self.content.block.len();
            let within = (self.at - self.start) % block_bytes as u64;
            let take = bytes.len().min(block_bytes - within as usize);
            let block = self.content.block(self.file, self.at - within, block_bytes as u64);
            if block[within as usize..within as usize + take] != bytes[..take] {
                return false;
            }
            self.at += take as u64;
            bytes = &bytes[take..];
        }
        true
    }

    pub(super) fn end(&self) -> u64 {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_sees_one_wrong_byte() {
        let content = Content::new(3_000_000);
        let mut sent = content.clone().pieces(3, 0, 3_000_000).concat();
        let mut right = Comparison::new(content.clone(), 3, 0);
        assert!(sent.chunks(70_001).all(|piece| right.holds(piece)));
        assert_eq!(right.end(), 3_000_000);
        sent[2_500_000] ^= 1;
        assert!(!Comparison::new(content.clone(), 3, 0).holds(&sent));
        assert!(!Comparison::new(content, 4, 0).holds(&sent));
    }

    #[test]
    fn small_files_are_compared_whole() {
        let sent = Content::new(70_000).pieces(1, 0, 70_000).concat();
        assert!(Comparison::new(Content::new(70_000), 1, 0).holds(&sent));
        assert!(!Comparison::new(Content::new(70_000), 1, 0).holds(&sent[1..]));
    }
}
