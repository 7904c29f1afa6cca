//! The formats of a volume's bucket, of the devices below it, and of its database.

use crate::bucket::Bucket;
use crate::bucket::credentials::StoreSettings;
use crate::command::upgrade_check::finding::Finding;
use crate::command::upgrade_check::formats;
use crate::metadata::database;
use crate::process::context::ProcessContext;
use crate::volume::{Volume, embedded};
use anyhow::Result;
use drive::StoredFormat;
use std::path::{Path, PathBuf};
use vfs::VolumeRecord;

/// Returns the findings about the record of an embedded volume, and about the devices of the volume.
pub(super) fn find_local(volume: &Volume) -> Vec<Finding> {
    let (record, devices): (_, Vec<PathBuf>) = match volume {
        Volume::Embedded { root } => (embedded_record(root), vec![embedded::drive_path(root)]),
        Volume::Drive { drives } => (None, drives.paths().map(Path::to_owned).collect()),
        _ => (None, Vec::new()),
    };
    let devices = devices.iter().filter(|path| path.exists()).flat_map(|path| device(path));
    record.into_iter().chain(devices).collect()
}

fn embedded_record(root: &Path) -> Option<Finding> {
    let version = embedded::stored_version(root).map(Some);
    formats::embedded_volume().examined(root.display().to_string(), version)
}

/// Returns the findings about a device.
fn device(path: &Path) -> Vec<Finding> {
    let place = path.display().to_string();
    match StoredFormat::read(path) {
        Ok(StoredFormat { drive, array }) => {
            let drive = drive.map(|found| formats::drive().found(&place, found.into()));
            let array = array.map(|found| formats::array_label().found(&place, found.into()));
            array.into_iter().chain(drive).collect()
        }
        Err(error) => vec![formats::drive().unknown(place, error)],
    }
}

/// Returns the findings about the objects of a volume, and about its database. Reads only.
pub(super) async fn find(volume: &Volume, store: &StoreSettings) -> Result<Vec<Finding>> {
    let context = ProcessContext::system()?;
    let bucket = match Bucket::open(volume, store, true, &context).await {
        Ok(bucket) => bucket,
        Err(error) => return Ok(vec![formats::volume_record().unknown(volume.url(), format!("{error:#}"))]),
    };
    let (prefix, store) = (volume.prefix().as_bytes(), bucket.store.as_ref());
    let mut found = Vec::new();
    let record = formats::volume_record();
    found.extend(record.examined(volume.url(), VolumeRecord::stored_version(store, prefix).await));
    let keys = backup::Keys::new(vfs::metadata_backups(prefix));
    match backup::stored_versions(store, &keys).await {
        Ok(versions) => {
            let place = |lineage| format!("{}, lineage {lineage}", volume.url());
            found.extend(
                versions
                    .into_iter()
                    .map(|(lineage, version)| formats::backup().found(place(lineage), version)),
            );
        }
        Err(error) => found.push(formats::backup().unknown(volume.url(), error)),
    }
    if let Ok(Some(record)) = VolumeRecord::read(store, prefix).await
        && let Some(url) = record.database.clone()
    {
        found.extend(tokio::task::spawn_blocking(move || in_database(&record, &url)).await?);
    }
    Ok(found)
}

/// Returns the finding about the metadata in a database; `None` if the database has none. Blocks.
fn in_database(record: &VolumeRecord, url: &str) -> Option<Finding> {
    let version = database::stored_version(record, url).map_err(|error| format!("{error:#}"));
    formats::database(database::newest_version(url)).examined(url, version)
}
