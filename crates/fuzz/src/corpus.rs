//! The corpus of a target: a text file with one input per line, non-printable bytes escaped as by `escape_ascii`.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the corpus folder of a checkout.
pub fn folder(root: &Path) -> PathBuf {
    root.join("crates/fuzz/corpus")
}

/// Reads the corpus of a target; empty if the target has no file.
pub fn read(folder: &Path, target: &str) -> Result<Vec<Vec<u8>>> {
    let path = corpus_file(folder, target);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(unescape).collect())
}

/// Replaces the corpus of a target by these inputs.
pub fn write(folder: &Path, target: &str, inputs: &[Vec<u8>]) -> Result<()> {
    let lines: String = inputs.iter().map(|input| format!("{}\n", input.escape_ascii())).collect();
    let path = corpus_file(folder, target);
    fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))
}

fn corpus_file(folder: &Path, target: &str) -> PathBuf {
    folder.join(format!("{target}.txt"))
}

/// Undoes `escape_ascii`. Bytes that are not an escape sequence stand for themselves.
fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let (byte, len) = match (first, after) {
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'x', high, low, ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
                (digit(*high) << 4 | digit(*low), 4)
            }
            (b'\\', [escaped, ..]) => (*escaped, 2),
            _ => (first, 1),
        };
        bytes.push(byte);
        rest = &rest[len..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&all.escape_ascii().to_string()), all);
    }
}
