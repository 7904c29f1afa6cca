//! Which kind of bytes an inode holds, found by walking the node's file systems after the run.

use crate::model::{Kind, Naming, Region};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file of a device: (index of the device in the scope, inode).
pub(crate) type FileId = (u8, u64);

/// Tells kinds of files and of sectors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    /// Of the files that were asked about and still have a name.
    pub(crate) files: HashMap<FileId, Kind>,
    /// Of a raw device.
    pub(crate) regions: Vec<Region>,
    /// Whether there is a file system, so that I/O for no file is its own.
    pub(crate) has_file_system: bool,
}

impl Kinds {
    /// Names those of `wanted` that are still to be found below the mounts, each with the index of its device.
    pub(super) fn find(naming: &Naming, mounts: &[(u8, PathBuf)], wanted: &HashSet<FileId>) -> Self {
        let mut files = HashMap::new();
        for (device, mount) in mounts {
            walk(mount, mount, &mut |path, inode| {
                if wanted.contains(&(*device, inode)) {
                    files.insert((*device, inode), kind_of_path(naming, path));
                }
            });
        }
        let regions = match naming {
            Naming::Regions(regions) => regions.clone(),
            Naming::Files | Naming::Minio => Vec::new(),
        };
        Self { files, regions, has_file_system: !mounts.is_empty() }
    }

    /// What an I/O is for that the file system did not mark as its own metadata.
    pub(crate) fn of_io(&self, file: Option<FileId>, sector: u64) -> Kind {
        match file {
            Some(file) => self.files.get(&file).copied().unwrap_or(Kind::Unnamed),
            None if self.has_file_system => Kind::FileSystemMetadata,
            None => self
                .regions
                .iter()
                .find(|region| region.sectors.contains(&sector))
                .map_or(Kind::ObjectData, |region| region.kind),
        }
    }
}

/// Calls `each` with the path below `top` and the inode of everything below `directory` on its file system. What
/// vanishes meanwhile or cannot be read has no name.
fn walk(top: &Path, directory: &Path, each: &mut impl FnMut(&Path, u64)) {
    let Ok(device) = fs::metadata(top).map(|meta| meta.dev()) else { return };
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != device {
                continue;
            }
            let path = entry.path();
            each(path.strip_prefix(top).unwrap_or(&path), meta.ino());
            if meta.is_dir() {
                directories.push(path);
            }
        }
    }
}

/// What a file's content is. A directory's content is the file system's metadata, which the file system itself marks
/// on every kernel but where it reads through the block device's own cache.
fn kind_of_path(naming: &Naming, path: &Path) -> Kind {
    match naming {
        Naming::Minio if path.file_name().is_some_and(|name| name == "xl.meta") => Kind::ObjectMetadata,
        Naming::Minio if path.starts_with(".minio.sys") && !path.starts_with(".minio.sys/tmp") => Kind::Index,
        _ => Kind::ObjectData,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minio_names_its_metadata() {
        let kind = |path: &str| kind_of_path(&Naming::Minio, Path::new(path));
        assert_eq!(kind("bucket/a/xl.meta"), Kind::ObjectMetadata);
        assert_eq!(kind("bucket/a/0f3c/part.1"), Kind::ObjectData);
        assert_eq!(kind(".minio.sys/format.json"), Kind::Index);
        assert_eq!(kind(".minio.sys/tmp/x/part.1"), Kind::ObjectData);
        assert_eq!(kind_of_path(&Naming::Files, Path::new("a/xl.meta")), Kind::ObjectData);
    }

    #[test]
    fn files_regions_and_the_rest_are_told_apart() {
        let mut kinds = Kinds { has_file_system: true, ..Kinds::default() };
        kinds.files.insert((0, 7), Kind::ObjectMetadata);
        assert_eq!(kinds.of_io(Some((0, 7)), 0), Kind::ObjectMetadata);
        assert_eq!(kinds.of_io(Some((1, 7)), 0), Kind::Unnamed);
        assert_eq!(kinds.of_io(None, 0), Kind::FileSystemMetadata);
        let raw = Kinds { regions: vec![Region { sectors: 8..16, kind: Kind::Index }], ..Kinds::default() };
        assert_eq!(raw.of_io(None, 8), Kind::Index);
        assert_eq!(raw.of_io(None, 16), Kind::ObjectData);
    }
}
