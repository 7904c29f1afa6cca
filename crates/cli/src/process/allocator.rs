//! The process's memory allocator: few arenas, and freed memory that is returned to the system.
//!
//! glibc gives each thread an arena. Memory that one thread frees cannot be used by others, and most of it stays with
//! the process: with an arena for every thread, `tenon serve` used eight times the memory that it accounts for.

use std::thread;
use std::time::Duration;

/// Environment variable of glibc. A value set by the user is kept.
const ARENAS: &str = "MALLOC_ARENA_MAX";
/// Maximum number of arenas if the user sets none.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: i32 = 2;

/// Shortest and longest pause between two checks of the resident size.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Sets the number of arenas. Must be called before the first thread starts.
pub(crate) fn configure() {
    if crate::process::environment::variable(ARENAS).is_some() {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}

/// Starts a thread that returns freed memory to the system whenever the process holds more than three quarters of the
/// limit.
pub(crate) fn start_trimming(limit_bytes: u64) {
    let trim_repeatedly = move || {
        let mut pause = PAUSES.0;
        loop {
            thread::sleep(pause);
            let Some(before) = resident_bytes().filter(|resident| *resident > limit_bytes / 4 * 3) else {
                pause = PAUSES.0;
                continue;
            };
            trim();
            // Memory in use cannot be returned, and a search for free memory takes time.
            let returned = resident_bytes().map_or(0, |after| before.saturating_sub(after));
            pause = if returned > before / 16 { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        }
    };
    if let Err(error) = thread::Builder::new().name("memory".to_owned()).spawn(trim_repeatedly) {
        tracing::warn!(%error, "cannot start the thread that returns freed memory to the system");
    }
}

/// Returns free memory to the system.
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
    fn freed_memory_is_returned_to_the_system() {
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
