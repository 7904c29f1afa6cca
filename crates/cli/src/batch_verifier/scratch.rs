//! Temporary files of a verifier: one directory for each process, which a later process removes if this one is killed.

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Beginning of the names of directories of verifiers.
const BEGINNING: &str = "tenon-verifier-";

/// File by which a living process locks its directory.
const LOCK_FILE: &str = "lock";

/// The directory of this process. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    dir: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes a directory below `parent`, and removes those of verifiers that were killed.
    pub(super) fn open(parent: &Path) -> Result<Self> {
        let failed = || format!("cannot use {} for temporary files", parent.display());
        fs::create_dir_all(parent).with_context(failed)?;
        remove_leftovers(parent).with_context(failed)?;
        let dir = parent.join(format!("{BEGINNING}{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).with_context(failed)?;
        let lock = File::create(dir.join(LOCK_FILE)).with_context(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(failed)?;
        Ok(Self { dir, _lock: lock })
    }

    /// Runs `work` with a new directory, which is removed afterwards.
    pub(super) fn with_dir<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let dir = self.dir.join("batch");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let done = work(&dir);
        let _ = fs::remove_dir_all(&dir);
        done
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes the directories whose processes have ended.
fn remove_leftovers(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let is_of_verifier = entry.file_name().to_str().is_some_and(|name| name.starts_with(BEGINNING));
        if !is_of_verifier {
            continue;
        }
        // A directory without the file is being made, or is one of another user.
        let Ok(lock) = File::options().write(true).open(entry.path().join(LOCK_FILE)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_killed_verifiers_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("tenon-verifier-0");
        fs::create_dir_all(left.join("batch")).unwrap();
        fs::write(left.join(LOCK_FILE), "").unwrap();
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        let scratch = Scratch::open(parent.path()).unwrap();
        assert!(!left.exists() && other.exists() && scratch.dir.exists());
        remove_leftovers(parent.path()).unwrap();
        assert!(scratch.dir.exists(), "a living process keeps its directory");
        let dir = scratch.with_dir(|dir| Ok(dir.to_owned())).unwrap();
        assert!(!dir.exists());
        let made = scratch.dir.clone();
        drop(scratch);
        assert!(!made.exists());
    }
}
