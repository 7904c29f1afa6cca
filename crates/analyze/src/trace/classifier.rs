//! Which kind of bytes an inode holds, found by walking the node's file systems after the run.

use crate::model::{Kind, Naming, Region};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file of a device: (index of the device in the scope, inode).
pub(crate) type FileId = (u8, u64);

/// Inodes below this are ext4's own, such as its journal; XFS has none so low.
const FIRST_INODE: u64 = 11;

/// Tells kinds of files and of sectors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    /// Of the files that were asked about and still have a name.
    pub(crate) files: HashMap<FileId, Kind>,
    /// Of a raw device, in its order.
    pub(crate) regions: Vec<Region>,
    /// Whether there is a file system, so that I/O for no file is its own.
    pub(crate) has_file_system: bool,
}

impl Kinds {
    /// Names those of `wanted` that are still to be found below the mounts, each with the index of its device.
    pub(super) fn find(naming: &Naming, mounts: &[(u8, PathBuf)], wanted: &HashSet<FileId>) -> Self {
        let mut files = HashMap::new();
        for (device, mount) in mounts {
            walk(mount, &mut |path, inode, is_directory| {
                if wanted.contains(&(*device, inode)) {
                    let kind =
                        if is_directory { Kind::FileSystemMetadata } else { kind_of_path(naming, path) };
                    files.insert((*device, inode), kind);
                }
            });
        }
        let mut regions = match naming {
            Naming::Regions(regions) => regions.clone(),
            Naming::Files | Naming::Minio => Vec::new(),
        };
        regions.sort_unstable_by_key(|region| region.sectors.start);
        Self { files, regions, has_file_system: !mounts.is_empty() }
    }

    /// What an I/O of some sectors is for: the file system's own if it marked it so, or if it is for no file.
    pub(crate) fn of_io(&self, file: Option<FileId>, is_metadata: bool, sector: u64) -> Kind {
        match file {
            _ if is_metadata => Kind::FileSystemMetadata,
            Some((_, inode)) if inode < FIRST_INODE => Kind::FileSystemMetadata,
            Some(file) => self.files.get(&file).copied().unwrap_or(Kind::Unnamed),
            None if self.has_file_system => Kind::FileSystemMetadata,
            None => self.of_sector(sector),
        }
    }

    fn of_sector(&self, sector: u64) -> Kind {
        let after = self.regions.partition_point(|region| region.sectors.start <= sector);
        let region = after.checked_sub(1).and_then(|before| self.regions.get(before));
        let region = region.filter(|region| region.sectors.contains(&sector));
        region.map_or(Kind::Unnamed, |region| region.kind)
    }
}

/// Calls `each` with the path below `top`, the inode, and whether it is a directory, of everything on `top`'s file
/// system, itself too. What vanishes meanwhile or cannot be read has no name.
fn walk(top: &Path, each: &mut impl FnMut(&Path, u64, bool)) {
    let Ok(root) = fs::metadata(top) else { return };
    each(Path::new(""), root.ino(), true);
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != root.dev() {
                continue;
            }
            let path = entry.path();
            each(path.strip_prefix(top).unwrap_or(&path), meta.ino(), meta.is_dir());
            if meta.is_dir() {
                directories.push(path);
            }
        }
    }
}

/// What a file's content is.
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
        kinds.files.insert((0, 70), Kind::ObjectMetadata);
        assert_eq!(kinds.of_io(Some((0, 70)), false, 0), Kind::ObjectMetadata);
        assert_eq!(kinds.of_io(Some((1, 70)), false, 0), Kind::Unnamed);
        assert_eq!(kinds.of_io(None, false, 0), Kind::FileSystemMetadata);
        assert_eq!(kinds.of_io(Some((0, 70)), true, 0), Kind::FileSystemMetadata);
        assert_eq!(kinds.of_io(Some((0, 8)), false, 0), Kind::FileSystemMetadata, "ext4's journal");
    }

    /// Every sector behind a drive's superblocks was object data, also those of its index and those of nobody.
    #[test]
    fn what_no_region_holds_is_not_told_apart() {
        let region = |sectors, kind| Region { sectors, kind };
        let naming = Naming::Regions(vec![region(32..64, Kind::ObjectData), region(8..16, Kind::Index)]);
        let raw = Kinds::find(&naming, &[], &HashSet::new());
        let of = |sector| raw.of_io(None, false, sector);
        assert_eq!([8, 15, 32, 63].map(of), [Kind::Index, Kind::Index, Kind::ObjectData, Kind::ObjectData]);
        assert_eq!([0, 16, 31, 64].map(of), [Kind::Unnamed; 4]);
    }
}
