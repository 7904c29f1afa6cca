//! Memory as it is on a machine that has been running for a while.
//!
//! A virtual machine may hand free memory back to its host; the first touch of a page is then dearer than anything a
//! job does with it, and whoever uses the page cache pays, whatever the code. So free memory is filled with pages of
//! a sparse file before each measurement: what is allocated next comes out of pages that were in use just now.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Free memory that is left alone, in bytes.
const LEFT_FREE_BYTES: u64 = 512 << 20;

/// A sparse file as large as the memory.
#[derive(Debug)]
pub(super) struct Filler {
    file: File,
    size_bytes: u64,
}

impl Filler {
    /// `folder` lies on a disk: the holes of a file in memory take no pages.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).context("cannot make a sparse file")?;
        let size_bytes = in_bytes("MemTotal")?;
        file.set_len(size_bytes)?;
        Ok(Self { file, size_bytes })
    }

    /// Reads on where it last stopped, until little memory is free.
    pub(super) fn fill(&mut self) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        let mut read_bytes = 0;
        while read_bytes < self.size_bytes && in_bytes("MemFree")? > LEFT_FREE_BYTES {
            match self.file.read(&mut buffer)? {
                0 => drop(self.file.seek(SeekFrom::Start(0))?),
                count => read_bytes += count as u64,
            }
        }
        Ok(())
    }
}

fn in_bytes(field: &str) -> Result<u64> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("/proc/meminfo says no {field}"))? * 1024)
}
