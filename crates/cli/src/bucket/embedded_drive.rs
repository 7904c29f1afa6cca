//! An embedded volume whose objects are on an object drive, which is one file in the volume's directory.
//!
//! Owns the length of that file, and the name of the one bucket on the drive.

use crate::bucket::devices;
use crate::bucket::drives::DrivesOptions;
use crate::bucket::local_buckets::LocalBuckets;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Devices;
use crate::volume::embedded::drive_path;
use anyhow::{Context, Result, bail};
use drive::device::{BlockDevice, FileDevice};
use drive::{Drive, FormatOptions, OpenOptions};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use store::{Buckets, ObjectStore};

/// The only bucket on the drive.
const BUCKET: &str = "objects";

/// Default length of a drive: 1/`FREE_FRACTION` of the free space, in whole MiB, at most [`LEN_BYTES_MAX`]. If that
/// is less than [`LEN_BYTES_MIN`], no drive is made.
const FREE_FRACTION: u64 = 4;
const LEN_BYTES_MAX: u64 = 16 << 30;
const LEN_BYTES_MIN: u64 = 256 << 20;

/// Creates the drive of a volume, with this length or one that fits the free space. Returns the length in bytes.
pub(crate) async fn create_drive(
    root: &Path,
    len_bytes: Option<u64>,
    context: &ProcessContext,
) -> Result<u64> {
    let path = drive_path(root);
    let free_bytes = free_bytes(root)?;
    let len_bytes = drive_len(len_bytes, free_bytes, root)?;
    let made = create_drive_at(&path, len_bytes, context).await;
    if made.is_err() {
        let _ = fs::remove_file(&path);
    }
    made.map(|()| len_bytes)
}

async fn create_drive_at(path: &Path, len_bytes: u64, context: &ProcessContext) -> Result<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(path, len_bytes)?);
    Drive::format(&device, FormatOptions::default(), &context.entropy)?;
    drop(device);
    let drive = devices::open(&Devices::of([path])?, OpenOptions::default(), context).await?.drive;
    drive.create(BUCKET).await?;
    Ok(drive.close().await?)
}

/// Returns the length of a new drive: the requested one, or one that fits the free space.
fn drive_len(requested: Option<u64>, free_bytes: u64, root: &Path) -> Result<u64> {
    let mib = |bytes: u64| bytes >> 20;
    let free = format!("{} MiB are free at {}", mib(free_bytes), root.display());
    match requested {
        Some(requested) if requested > free_bytes => {
            bail!(
                "{free}, which is not enough for a drive of {} MiB: free some space, or give a smaller --size",
                mib(requested)
            )
        }
        Some(requested) => Ok(requested),
        None => {
            let len_bytes = mib((free_bytes / FREE_FRACTION).min(LEN_BYTES_MAX)) << 20;
            if len_bytes < LEN_BYTES_MIN {
                bail!(
                    "{free}, and a drive takes a quarter of that, at least {} MiB: free some space, choose another disk, or give --size",
                    mib(LEN_BYTES_MIN)
                );
            }
            Ok(len_bytes)
        }
    }
}

fn free_bytes(root: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(root)
        .with_context(|| format!("cannot find out the free space at {}", root.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Opens the drive of a volume. Returns the store with the volume's objects, and the drive to close at the end.
pub(crate) async fn open(
    root: &Path,
    options: OpenOptions,
    context: &ProcessContext,
) -> Result<(Arc<dyn ObjectStore>, LocalBuckets)> {
    let (path, opening) = (drive_path(root), DrivesOptions { options, ..DrivesOptions::default() });
    let local = LocalBuckets::of_drives(&Devices::of([path.as_path()])?.into(), opening, context).await?;
    let store = local
        .buckets()
        .open(BUCKET)
        .await
        .with_context(|| format!("cannot open the volume's bucket on the drive {}", path.display()))?;
    Ok((store, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_has_the_requested_length_or_one_that_fits() {
        let len = |requested, free_mib: u64| {
            drive_len(requested, free_mib << 20, Path::new("v")).map_err(|error| error.to_string())
        };
        assert_eq!(len(None, 40 << 10), Ok(10 << 30));
        assert_eq!(len(None, 1 << 20), Ok(LEN_BYTES_MAX));
        assert_eq!(len(None, 1025), Ok(LEN_BYTES_MIN));
        assert!(len(None, 1023).unwrap_err().contains("1023 MiB are free"));
        assert_eq!(len(Some(64 << 20), 100), Ok(64 << 20));
        assert!(len(Some(64 << 20), 60).unwrap_err().contains("--size"));
    }
}
