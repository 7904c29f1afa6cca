//! What one process has at a time.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// How long a file may have been given up and be held: a process that ends has it until its files are closed, and a program that
/// is being started has a copy of every file that is open here until it runs, those that were closed meanwhile as well.
const FREE_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Asks for what may be somebody's who is about to give it back, for so long in all; then it is theirs. Waits on the caller's thread.
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

/// Takes the file for this process (flock(2)) as long as it is open; `WouldBlock`: another one has it, and does not end. Waits on the
/// caller's thread.
pub fn hold(file: &File) -> io::Result<()> {
    let ask = || flock(file, FlockOperation::NonBlockingLockExclusive);
    Ok(when_free(FREE_WITHIN, ask, |error| *error == Errno::WOULDBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> File {
        File::options().create(true).truncate(false).write(true).open(path).unwrap()
    }

    /// What `exec` had not closed yet once made a log that was just closed another process's.
    #[test]
    fn a_file_is_held_by_one_and_free_when_the_last_copy_is_closed() {
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
