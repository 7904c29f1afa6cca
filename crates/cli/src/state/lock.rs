//! The lock of a state directory: taken at once, or when the process that has it ends.

use crate::control::client::Client;
use crate::control::holder::{Holder, LOCK_FILE, LiveMount};
use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// How long a process that does not answer may take to release its state directory.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a process that says that it is ending. This is longer than the default of `--drain-timeout`.
const ENDING_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a holder may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of checks of a process that is ending.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The error that another process uses a state directory. The text names that process and says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InUse(pub(crate) String);

/// Takes the lock of a directory. Waits, within bounds, for a process that is ending. Returns `None` if another process still has the lock.
pub(super) fn take(root: &Path) -> Result<Option<File>> {
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(root.join(LOCK_FILE))
        .with_context(|| {
            format!("cannot use the state directory {}; choose another with --state-dir", root.display())
        })?;
    Ok(lock_when_free(&lock, root)?.then_some(lock))
}

/// Waits until the process that holds the state directory has ended. Returns at once if the holder does not end: it
/// has taken the directory after that process.
///
/// # Errors
/// The process has not ended after a while.
pub(crate) fn wait_until_free(root: &Path) -> Result<()> {
    let Ok(lock) = File::open(root.join(LOCK_FILE)) else { return Ok(()) };
    match lock_when_free(&lock, root)? {
        true => Ok(()),
        // Another process has taken the directory meanwhile.
        false if matches!(query_holder(root), HolderState::Running) => Ok(()),
        false => bail!("the process that used {} has not ended yet; its log may say why", root.display()),
    }
}

/// Describes the process that has the lock, and what to do.
pub(super) fn held_message(root: &Path, holder: &Holder) -> String {
    let (root, held) = (root.display(), holder.describe_use());
    match holder.is_command() {
        true => format!("the state in {root} is in use: {held}"),
        false => format!("the state in {root} is in use: {held}, or give another --state-dir"),
    }
}

/// State of the process that holds a state directory.
enum HolderState {
    /// The process does not answer: it was killed, or has only its last files to close.
    Silent,
    /// The process stores pending changes, and ends.
    Ending(Holder),
    /// The process continues.
    Running,
}

/// Asks the holder of a state directory what it does.
fn query_holder(root: &Path) -> HolderState {
    let Some(holder) = Holder::answering(root) else { return HolderState::Silent };
    let mount = LiveMount { state: root.to_owned(), holder: holder.clone() };
    let client = Client::connect(&mount).and_then(|client| client.with_timeout(ANSWER_TIMEOUT));
    match client.and_then(|mut client| client.status()) {
        Ok(status) if status.ending => HolderState::Ending(holder),
        Err(error) if is_closed(&error) => HolderState::Silent,
        _ => HolderState::Running,
    }
}

/// Returns whether the connection was closed, and did not merely time out.
fn is_closed(error: &anyhow::Error) -> bool {
    let of_socket = error.root_cause().downcast_ref::<std::io::Error>();
    of_socket.is_some_and(|error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Takes the lock, unless a process has it that continues to run. Waits, within bounds, for a process that is ending. Returns whether the
/// lock was taken.
fn lock_when_free(lock: &File, root: &Path) -> Result<bool> {
    let (mut silent, mut ending) = (Duration::ZERO, Duration::ZERO);
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => {
                return Err(
                    anyhow!(error).context(format!("cannot lock the state directory {}", root.display()))
                );
            }
        }
        match query_holder(root) {
            HolderState::Silent if silent < RELEASE_TIMEOUT => silent += POLL_INTERVAL,
            HolderState::Ending(holder) if ending < ENDING_TIMEOUT => {
                if ending.is_zero() {
                    eprintln!(
                        "tenon: waiting for process {}, which stores the pending changes of {} and ends",
                        holder.pid, holder.volume
                    );
                }
                ending += POLL_INTERVAL;
            }
            _ => return Ok(false),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_process_and_what_to_do() {
        let message = |mount_point: &str| {
            let holder = Holder {
                pid: 7,
                mount_point: mount_point.into(),
                also: Vec::new(),
                volume: "s3://bucket".to_owned(),
            };
            held_message(Path::new("/state"), &holder)
        };
        assert!(message("/mnt").contains("process 7 mounts s3://bucket at /mnt; `tenon umount /mnt` first"));
        assert!(
            message("http://localhost:9000").contains("serves s3://bucket at http://localhost:9000; stop it")
        );
        assert!(message("").contains("process 7 works on s3://bucket; try again when it has ended"));
    }
}
