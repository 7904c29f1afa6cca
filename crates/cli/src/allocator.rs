//! The process's memory allocator: few arenas, and freed memory that goes back to the system.
//!
//! glibc gives each thread an arena. What one thread frees no other can use, and most of it stays with the process: with an arena for
//! every thread `tenon serve` took eight times the memory that it accounts for.

use std::thread;
use std::time::Duration;

/// Read by glibc; whoever sets it knows better.
const ARENAS: &str = "MALLOC_ARENA_MAX";
#[cfg(target_env = "gnu")]
const ARENAS_MAX: i32 = 2;

/// The shortest and the longest pause between two looks at the resident size.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Sets the number of arenas, before the first thread begins.
pub(crate) fn configure() {
    if crate::environment::variable(ARENAS).is_some() {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}

/// Gives freed memory back to the system whenever the process holds more than three quarters of the limit, as long as it lives.
pub(crate) fn keep_within(limit_bytes: u64) {
    let keep = move || {
        let mut pause = PAUSES.0;
        loop {
            thread::sleep(pause);
            let Some(before) = resident_bytes().filter(|resident| *resident > limit_bytes / 4 * 3) else {
                pause = PAUSES.0;
                continue;
            };
            trim();
            // Memory in use cannot be given back, and looking for free memory takes time.
            let given_back = resident_bytes().map_or(0, |after| before.saturating_sub(after));
            pause = if given_back > before / 16 { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        }
    };
    if let Err(error) = thread::Builder::new().name("memory".to_owned()).spawn(keep) {
        tracing::warn!(%error, "freed memory stays with the process");
    }
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer, and takes the allocator's locks itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_freed_is_given_back() {
        let pieces: Vec<Vec<u8>> = (0..64_000).map(|_| vec![1; 1000]).collect();
        // The last piece stays, so that the end of the heap is in use.
        let last = vec![1; 1000];
        let before = resident_bytes().unwrap();
        drop(pieces);
        trim();
        let after = resident_bytes().unwrap();
        assert!(after + (32 << 20) < before, "{after} of {before}");
        drop(last);
    }
}
