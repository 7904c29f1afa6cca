//! Files that one process has at a time.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// How long to ask for a lock that nobody may have: a program that is being started has a copy of every file that is open here
/// until it runs, those that were closed meanwhile as well.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Takes the file for this process (flock(2)) as long as it is open; `WouldBlock`: another one has it. Waits on the caller's thread,
/// a second at most.
pub fn hold(file: &File) -> io::Result<()> {
    let ask = || flock(file, FlockOperation::NonBlockingLockExclusive);
    let mut tries = 1;
    loop {
        match ask() {
            Err(Errno::WOULDBLOCK) if tries < TRIES => sleep(PAUSE),
            outcome => return Ok(outcome?),
        }
        tries += 1;
    }
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
