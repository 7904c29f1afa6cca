//! The directory of an embedded volume: what is in it, and the record that makes it a volume.

use crate::process::files;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Name of the record in an embedded volume's directory.
const RECORD_FILE: &str = "tenon.toml";
/// Name of the state directory in an embedded volume's directory.
pub(crate) const STATE_DIR: &str = "state";
/// Name of the directory with the objects, if they are files.
const OBJECTS_DIR: &str = "objects";
/// Name of the drive's file, if the objects are on a drive.
const DRIVE_FILE: &str = "objects.drive";
const RECORD_VERSION: u32 = 1;
/// Version of the record of a volume whose objects are not in a directory, which older versions of Tenon do not
/// support.
const RECORD_VERSION_WITH_OBJECTS: u32 = 2;

/// The contents of `tenon.toml`, the record of an embedded volume. How files are stored in objects is in
/// [`vfs::VolumeRecord`], in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Version of this record.
    pub(crate) version: u32,
    /// Id that distinguishes volumes of the same name.
    pub(crate) id: String,
    /// Time of creation (RFC 3339).
    pub(crate) created: String,
    /// Location of the objects.
    #[serde(default, skip_serializing_if = "ObjectLocation::is_directory")]
    pub(crate) objects: ObjectLocation,
}

/// Location of an embedded volume's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ObjectLocation {
    /// In a directory, as files.
    #[default]
    Directory,
    /// On an object drive, which is one file.
    Drive,
}

impl ObjectLocation {
    fn is_directory(&self) -> bool {
        *self == Self::Directory
    }
}

/// Makes the directory of an embedded volume, which must be new or empty. It becomes a volume when its record is
/// written.
pub(crate) fn make_directory(root: &Path, objects: ObjectLocation) -> Result<()> {
    if root.join(RECORD_FILE).exists() {
        bail!("{} is a Tenon volume already; mount it, or choose another directory", root.display());
    }
    if root.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; choose a new directory, or mount it as file://{0}", root.display());
    }
    let shown = || format!("cannot make {}", root.display());
    fs::create_dir_all(root.join(STATE_DIR)).with_context(shown)?;
    match objects {
        ObjectLocation::Directory => fs::create_dir(objects_dir(root)).with_context(shown),
        ObjectLocation::Drive => Ok(()),
    }
}

/// Removes what [`make_directory`] made, as far as it is empty. With `keeps_root`, the directory itself stays.
pub(crate) fn remove_directory(root: &Path, keeps_root: bool) {
    for path in [objects_dir(root), root.join(STATE_DIR)] {
        let _ = fs::remove_dir(path);
    }
    if !keeps_root {
        let _ = fs::remove_dir(root);
    }
}

/// Returns the directory with the objects of an embedded volume, if they are files.
pub(crate) fn objects_dir(root: &Path) -> PathBuf {
    root.join(OBJECTS_DIR)
}

/// Returns the path of the drive with the objects of an embedded volume, if they are on one.
pub(crate) fn drive_path(root: &Path) -> PathBuf {
    root.join(DRIVE_FILE)
}

/// Returns the record of a new volume.
pub(crate) fn new_record(id: u64, created: jiff::Timestamp, objects: ObjectLocation) -> Record {
    let version = record_version(objects);
    Record { version, id: format!("{id:016x}"), created: created.to_string(), objects }
}

/// The versions of records that this build reads.
pub(crate) const RECORD_VERSIONS: RangeInclusive<u32> = RECORD_VERSION..=RECORD_VERSION_WITH_OBJECTS;

/// Returns whether a directory is an embedded volume.
pub(crate) fn is_volume(root: &Path) -> bool {
    root.join(RECORD_FILE).exists()
}

/// Reads the version of the record of the embedded volume at `root`, also of one that this build cannot read.
pub(crate) fn stored_version(root: &Path) -> Result<u32> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let path = root.join(RECORD_FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let version: Version = toml::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    Ok(version.version)
}

/// Reads the record of the embedded volume at `root`.
pub(crate) fn read_record(root: &Path) -> Result<Record> {
    let path = root.join(RECORD_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "{0} is not a Tenon volume; make one with `tenon format {0}`, or use file://{0} to mount the files in it",
                root.display()
            )
        }
        Err(error) => return Err(anyhow!(error).context(format!("cannot read {}", path.display()))),
    };
    let record: Record = toml::from_str(&text)
        .map_err(|error| anyhow!("{} is damaged: {}", path.display(), error.message()))?;
    if record.version != record_version(record.objects) {
        bail!(
            "{} has version {}; this Tenon knows versions up to {RECORD_VERSION_WITH_OBJECTS}; use a newer Tenon",
            path.display(),
            record.version
        );
    }
    Ok(record)
}

fn record_version(objects: ObjectLocation) -> u32 {
    match objects {
        ObjectLocation::Directory => RECORD_VERSION,
        ObjectLocation::Drive => RECORD_VERSION_WITH_OBJECTS,
    }
}

/// Writes the record. It appears complete or not at all, and must be written last: it declares the volume complete.
pub(crate) fn write_record(root: &Path, record: &Record) -> Result<()> {
    Ok(files::write_durably(&root.join(RECORD_FILE), &toml::to_string(record)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        new_record(7, jiff::Timestamp::UNIX_EPOCH, ObjectLocation::Directory)
    }

    #[test]
    fn format_keeps_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("precious"), "x").unwrap();
        let refused = make_directory(dir.path(), ObjectLocation::Directory).unwrap_err().to_string();
        assert!(refused.contains("not empty"), "{refused}");
        assert_eq!(fs::read(dir.path().join("precious")).unwrap(), b"x");
    }

    #[test]
    fn a_damaged_or_newer_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(RECORD_FILE), "version = 1\nnonsense = true\n").unwrap();
        assert!(read_record(dir.path()).unwrap_err().to_string().contains("is damaged"));
        write_record(dir.path(), &Record { version: 3, ..record() }).unwrap();
        assert!(read_record(dir.path()).unwrap_err().to_string().contains("version 3"));
    }

    #[test]
    fn a_record_says_where_the_objects_are_and_older_ones_say_in_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        write_record(dir.path(), &record()).unwrap();
        let text = fs::read_to_string(dir.path().join(RECORD_FILE)).unwrap();
        assert!(!text.contains("objects") && text.contains("version = 1"), "{text}");
        let on_a_drive = new_record(7, jiff::Timestamp::UNIX_EPOCH, ObjectLocation::Drive);
        write_record(dir.path(), &on_a_drive).unwrap();
        assert_eq!(read_record(dir.path()).unwrap(), on_a_drive);
    }
}
