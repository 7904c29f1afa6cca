//! Eviction: when a directory of segments holds too much, the files that were used longest ago are deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    /// Time of the last use: that of the file's last change.
    used_at: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// Outcome of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Bytes of the files that are left.
    pub(crate) left_bytes: u64,
    /// Bytes of the files that were deleted.
    pub(crate) deleted_bytes: u64,
}

/// Measures a directory. If its files hold more than `allowed` permits (a function of what they hold), deletes the files that were used longest
/// ago until a tenth of what is permitted is free.
pub(crate) fn evict(dir: &Path, allowed: impl FnOnce(u64) -> u64) -> io::Result<Evicted> {
    let mut files = list(dir)?;
    let held: u64 = files.iter().map(|file| file.bytes).sum();
    let allowed = allowed(held);
    if held <= allowed {
        return Ok(Evicted { left_bytes: held, deleted_bytes: 0 });
    }
    files.sort_unstable_by_key(|file| file.used_at);
    let mut deleted_bytes = 0;
    for file in files {
        if held - deleted_bytes <= allowed / 10 * 9 {
            break;
        }
        match fs::remove_file(&file.path) {
            Ok(()) => deleted_bytes += file.bytes,
            // Another process evicts as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => deleted_bytes += file.bytes,
            Err(error) => return Err(error),
        }
    }
    Ok(Evicted { left_bytes: held - deleted_bytes, deleted_bytes })
}

fn list(dir: &Path) -> io::Result<Vec<Stored>> {
    use std::os::unix::fs::MetadataExt;
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(found) => files.push(Stored {
                used_at: found.modified()?,
                bytes: found.blocks() * 512,
                path: entry.path(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_files_used_longest_ago_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let age_of = |number: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + number * 7 % 10);
        for number in 0..10 {
            let path = dir.path().join(number.to_string());
            fs::write(&path, [7; 8192]).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(age_of(number)).unwrap();
        }
        assert_eq!(evict(dir.path(), |held| held).unwrap(), Evicted { left_bytes: 81_920, deleted_bytes: 0 });
        let evicted = evict(dir.path(), |_| 50_000).unwrap();
        assert_eq!(evicted, Evicted { left_bytes: 40_960, deleted_bytes: 40_960 });
        let left: Vec<_> =
            (0..10).filter(|number: &u64| dir.path().join(number.to_string()).exists()).collect();
        let mut newest: Vec<u64> = (0..10).collect();
        newest.sort_by_key(|&number| age_of(number));
        assert!(left.iter().all(|number| newest[5..].contains(number)), "{left:?}");
    }
}
