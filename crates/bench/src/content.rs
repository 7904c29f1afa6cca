//! Content of files. Every page carries the number of its file and its offset, so that every byte can be compared at memory speed.

use bytes::Bytes;
use std::sync::OnceLock;

const BLOCK_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

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
        let len = file_bytes.next_multiple_of(PAGE_BYTES as u64).min(BLOCK_BYTES as u64) as usize;
        Self { block: random_block()[..len].to_vec() }
    }

    /// Returns the bytes of `file` from `offset` on, at most one block.
    pub fn block(&mut self, file: usize, offset: u64, len: u64) -> &[u8] {
        let len = len.min(self.block.len() as u64) as usize;
        for page in 0..len.div_ceil(PAGE_BYTES) {
            let at = page * PAGE_BYTES;
            self.block[at..at + 8].copy_from_slice(&(file as u64).to_le_bytes());
            self.block[at + 8..at + 16].copy_from_slice(&(offset + at as u64).to_le_bytes());
        }
        &self.block[..len]
    }

    /// Returns the bytes of a range, for an upload.
    pub fn pieces(&mut self, file: usize, start: u64, end: u64) -> Vec<Bytes> {
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

/// Compares the bytes of `file` from `start` on, in pieces of any size.
#[derive(Debug)]
pub struct ContentChecker {
    content: Content,
    file: usize,
    start: u64,
    at: u64,
}

impl ContentChecker {
    /// Makes a checker for the bytes of `file` from `start` on.
    pub fn new(content: Content, file: usize, start: u64) -> Self {
        Self { content, file, start, at: start }
    }

    /// Compares the next bytes and advances; returns whether they are equal.
    pub fn check_next(&mut self, mut bytes: &[u8]) -> bool {
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
        let mut sent = content.clone().pieces(3, 0, 3_000_000).concat();
        let mut checker = ContentChecker::new(content.clone(), 3, 0);
        assert!(sent.chunks(70_001).all(|piece| checker.check_next(piece)));
        assert_eq!(checker.position(), 3_000_000);
        sent[2_500_000] ^= 1;
        assert!(!ContentChecker::new(content.clone(), 3, 0).check_next(&sent));
        assert!(!ContentChecker::new(content, 4, 0).check_next(&sent));
    }

    #[test]
    fn small_files_are_compared_completely() {
        let sent = Content::new(70_000).pieces(1, 0, 70_000).concat();
        assert!(ContentChecker::new(Content::new(70_000), 1, 0).check_next(&sent));
        assert!(!ContentChecker::new(Content::new(70_000), 1, 0).check_next(&sent[1..]));
    }
}
