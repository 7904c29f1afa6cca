//! Exclusive locks of files, for what one process may use at a time.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// Longest time for which a file that was given up may still be locked. A process that ends holds its locks until its
/// files are closed. A program that is being started holds a copy of every file that is open here until it calls
/// `exec`, even of files that are closed here meanwhile.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Calls `ask` until it succeeds or fails with another error than a busy one. After about `within`, returns the busy
/// error. For resources whose holder is about to release them. Blocks the caller's thread.
pub fn when_free<T, E>(
    within: Duration,
    mut ask: impl FnMut() -> Result<T, E>,
    mut is_busy: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    let mut waited = Duration::ZERO;
    loop {
        match ask() {
            Err(error) if is_busy(&error) && waited < within => {
                sleep(PAUSE);
                waited += PAUSE;
            }
            outcome => return outcome,
        }
    }
}

/// Locks a file for this process (flock(2)) as long as the file is open. Waits up to ten seconds for a holder that is
/// about to end; `WouldBlock`: the holder did not end. Blocks the caller's thread.
pub fn hold(file: &File) -> io::Result<()> {
    let ask = || flock(file, FlockOperation::NonBlockingLockExclusive);
    Ok(when_free(BUSY_MAX, ask, |error| *error == Errno::WOULDBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> File {
        File::options().create(true).truncate(false).write(true).open(path).unwrap()
    }

    /// A log that was closed here was still locked by a child process that had not called `exec` yet, and counted as
    /// another process's.
    #[test]
    fn a_file_stays_locked_until_its_last_copy_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = open(&path);
        hold(&first).unwrap();
        assert_eq!(hold(&open(&path)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let copy = first.try_clone().unwrap();
        drop(first);
        let program = std::thread::spawn(move || {
            sleep(5 * PAUSE);
            drop(copy);
        });
        hold(&open(&path)).unwrap();
        program.join().unwrap();
    }
}
