//! State directories of one process each, for volumes whose names can be learned again: several processes then open
//! the same volume at a time, and nothing is left at the end.
//!
//! Invariant: a private directory is removed by its process or, after a crash, by the next process that makes one.

use crate::control::holder::{Holder, LOCK_FILE};
use crate::process::context::random_id;
use crate::state::StateDir;
use crate::volume::Volume;
use anyhow::{Context, Result};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directory of the private state directories, among those of volumes.
const PARENT: &str = "private";

/// Age from which a private directory without a lock is left over. A process locks its directory within this time after making it.
const LEFT_OVER_AGE: Duration = Duration::from_secs(60);

/// Makes and locks a private state directory among the state directories of the user. Removes those of processes that crashed.
pub(crate) fn make(volume: &Volume, states: &Path) -> Result<StateDir> {
    let parent = states.join(PARENT);
    remove_leftovers(&parent);
    let root = parent.join(format!("{:016x}", random_id()?));
    StateDir::lock(&root, &Holder::for_command(volume.url()))
}

/// Removes a private state directory and releases its lock.
pub(crate) fn remove(state: StateDir) -> Result<()> {
    let root = state.root().to_owned();
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))
}

fn remove_leftovers(parent: &Path) {
    let found = fs::read_dir(parent).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    for root in found.filter(is_left_over) {
        if let Err(error) = fs::remove_dir_all(&root) {
            tracing::warn!("cannot remove {}, which a process left: {error}", root.display());
        }
    }
}

fn is_left_over(root: &PathBuf) -> bool {
    let modified = fs::metadata(root).and_then(|found| found.modified());
    let age = modified.ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    let is_locked = || match File::open(root.join(LOCK_FILE)) {
        Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(),
        Err(_) => false,
    };
    age > LEFT_OVER_AGE && !is_locked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_process_that_crashed_is_removed() {
        let states = tempfile::tempdir().unwrap();
        let volume = Volume::parse("s3://bucket").unwrap();
        let (used, left) = (make(&volume, states.path()).unwrap(), make(&volume, states.path()).unwrap());
        let roots = [used.root().to_owned(), left.root().to_owned()];
        let hour_ago = fs::metadata(&roots[0]).unwrap().modified().unwrap() - Duration::from_secs(3600);
        for root in &roots {
            File::open(root).unwrap().set_modified(hour_ago).unwrap();
        }
        // The lock of a process that crashes is released.
        drop(left);
        let new = make(&volume, states.path()).unwrap();
        assert!(roots[0].exists() && !roots[1].exists());
        remove(new).unwrap();
        assert_eq!(fs::read_dir(states.path().join(PARENT)).unwrap().count(), 1);
    }
}
