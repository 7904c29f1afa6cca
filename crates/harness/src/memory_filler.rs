//! Filler of free memory, which makes memory behave as on a machine that has run for a while.
//!
//! A virtual machine may return free memory to its host. The first access to such a page is then more expensive than anything a job does with
//! it, so jobs that use the page cache would be slow for this reason only. Before each measurement, free memory is therefore filled with pages
//! of a sparse file. Later allocations reuse these pages, which the host has already backed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Free memory that is not filled, in bytes.
const LEFT_FREE_BYTES: u64 = 512 << 20;

/// A sparse file of the size of the machine's memory.
#[derive(Debug)]
pub struct MemoryFiller {
    file: File,
    size_bytes: u64,
}

impl MemoryFiller {
    /// Creates the file in `folder`, and removes its name. The folder must be on a disk: holes of a file in tmpfs use no pages.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join("memory-filler");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        // The file lives as long as it is open.
        std::fs::remove_file(&path)?;
        let size_bytes = meminfo_bytes("MemTotal")?;
        file.set_len(size_bytes)?;
        Ok(Self { file, size_bytes })
    }

    /// Reads on in the file until at most [`LEFT_FREE_BYTES`] of memory are free, or as many bytes as the file has are read.
    ///
    /// # Errors
    /// If the file or `/proc/meminfo` cannot be read.
    pub fn fill(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        let mut read_bytes = 0;
        while read_bytes < self.size_bytes && meminfo_bytes("MemFree")? > LEFT_FREE_BYTES {
            match self.file.read(&mut buffer)? {
                0 => drop(self.file.seek(SeekFrom::Start(0))?),
                count => read_bytes += count as u64,
            }
        }
        Ok(())
    }
}

/// Reads a field of `/proc/meminfo`, in bytes.
fn meminfo_bytes(field: &str) -> io::Result<u64> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {field}")))? * 1024)
}
