//! An embedded volume whose objects are on a drive: a file in the volume's directory, without a file system in it.
//!
//! Owns the file's place, its length, and the name of the one bucket on it.

use crate::bucket::World;
use crate::devices::Devices;
use crate::drives::Opening;
use crate::local::Local;
use anyhow::{Context, Result, bail};
use drive::device::{BlockDevice, FileDevice};
use drive::{Drive, FormatOptions, OpenOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Buckets, ObjectStore};

/// The drive's file in the volume's directory, and the bucket on it.
const DRIVE_FILE: &str = "objects.drive";
const BUCKET: &str = "objects";

/// What a drive takes of the free space, unless it is told: a part, but no more than this, and whole MiB of at least that.
const FREE_PART: u64 = 4;
const LEN_BYTES_MAX: u64 = 16 << 30;
const LEN_BYTES_MIN: u64 = 256 << 20;

/// Where the drive of an embedded volume is.
pub(crate) fn drive_of(root: &Path) -> PathBuf {
    root.join(DRIVE_FILE)
}

/// Makes the drive of a volume, with room for so many bytes or as the file system has it; how many they are.
pub(crate) async fn make(root: &Path, len_bytes: Option<u64>, world: &World) -> Result<u64> {
    let path = drive_of(root);
    let free_bytes = free_bytes(root)?;
    let len_bytes = len_of(len_bytes, free_bytes, root)?;
    let made = make_at(&path, len_bytes, world).await;
    if made.is_err() {
        let _ = fs::remove_file(&path);
    }
    made.map(|()| len_bytes)
}

async fn make_at(path: &Path, len_bytes: u64, world: &World) -> Result<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(path, len_bytes)?);
    Drive::format(&device, FormatOptions::default(), &world.entropy)?;
    drop(device);
    let drive = Devices::of([path])?.open(OpenOptions::default(), world).await?.drive;
    drive.create(BUCKET).await?;
    Ok(drive.close().await?)
}

/// How long a drive becomes: as it is asked for, or as fits.
fn len_of(asked: Option<u64>, free_bytes: u64, root: &Path) -> Result<u64> {
    let mib = |bytes: u64| bytes >> 20;
    let is_at = format!("{} MiB are free at {}", mib(free_bytes), root.display());
    match asked {
        Some(asked) if asked > free_bytes => {
            bail!(
                "{is_at}, and a drive of {} MiB does not fit: free some, or give a lesser --size",
                mib(asked)
            )
        }
        Some(asked) => Ok(asked),
        None => {
            let len_bytes = mib((free_bytes / FREE_PART).min(LEN_BYTES_MAX)) << 20;
            if len_bytes < LEN_BYTES_MIN {
                bail!(
                    "{is_at}, and a drive takes a quarter of that, {} MiB at least: free some, choose another disk, or give a --size",
                    mib(LEN_BYTES_MIN)
                );
            }
            Ok(len_bytes)
        }
    }
}

fn free_bytes(root: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(root)
        .with_context(|| format!("cannot ask what is free at {}", root.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The objects of a volume, and what is to be closed when they are not wanted any more.
pub(crate) async fn open(
    root: &Path,
    options: OpenOptions,
    world: &World,
) -> Result<(Arc<dyn ObjectStore>, Local)> {
    let (path, opening) = (drive_of(root), Opening { options, ..Opening::default() });
    let local = Local::of_drives(&Devices::of([path.as_path()])?.into(), opening, world).await?;
    let store =
        local.buckets().open(BUCKET).await.with_context(|| format!("cannot use {}", path.display()))?;
    Ok((store, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_as_long_as_fits_or_as_is_asked_for() {
        let of = |asked, free_mib: u64| {
            len_of(asked, free_mib << 20, Path::new("v")).map_err(|error| error.to_string())
        };
        assert_eq!(of(None, 40 << 10), Ok(10 << 30));
        assert_eq!(of(None, 1 << 20), Ok(LEN_BYTES_MAX));
        assert_eq!(of(None, 1025), Ok(LEN_BYTES_MIN));
        assert!(of(None, 1023).unwrap_err().contains("1023 MiB are free"));
        assert_eq!(of(Some(64 << 20), 100), Ok(64 << 20));
        assert!(of(Some(64 << 20), 60).unwrap_err().contains("--size"));
    }
}
