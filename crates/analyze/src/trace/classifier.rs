//! Classification of I/O by what it reads or writes. File systems are walked after the run to find the names of traced inodes.

use crate::model::{Kind, Naming, Region};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file: (index of its device in the scope, inode number).
pub(crate) type FileId = (u8, u64);

/// First inode number of ordinary files. Lower ones are internal to ext4, such as its journal; XFS has none so low.
const FIRST_FILE_INODE: u64 = 11;

/// Maps files and sectors to the [`Kind`] of their I/O.
#[derive(Debug, Clone, Default)]
pub(crate) struct IoClassifier {
    /// The kind of each traced file that still has a name.
    pub(crate) files: HashMap<FileId, Kind>,
    /// Regions of a raw device, ordered by sector.
    pub(crate) regions: Vec<Region>,
    /// Whether the scope has a file system. I/O for no file is then the file system's own.
    pub(crate) has_file_system: bool,
}

impl IoClassifier {
    /// Walks the mounts, each with the index of its device, and classifies the files of `wanted` that it finds.
    pub(super) fn new(naming: &Naming, mounts: &[(u8, PathBuf)], wanted: &HashSet<FileId>) -> Self {
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

    /// Returns the kind of an I/O. File-system metadata is I/O that the file system marked as such, or that belongs to no file.
    pub(crate) fn classify(&self, file: Option<FileId>, is_metadata: bool, sector: u64) -> Kind {
        match file {
            _ if is_metadata => Kind::FileSystemMetadata,
            Some((_, inode)) if inode < FIRST_FILE_INODE => Kind::FileSystemMetadata,
            Some(file) => self.files.get(&file).copied().unwrap_or(Kind::Unnamed),
            None if self.has_file_system => Kind::FileSystemMetadata,
            None => self.classify_sector(sector),
        }
    }

    fn classify_sector(&self, sector: u64) -> Kind {
        let after = self.regions.partition_point(|region| region.sectors.start <= sector);
        let region = after.checked_sub(1).and_then(|before| self.regions.get(before));
        let region = region.filter(|region| region.sectors.contains(&sector));
        region.map_or(Kind::Unnamed, |region| region.kind)
    }
}

/// Calls `each` with the path below `top`, the inode, and whether it is a directory, for `top` and everything below it on the same file
/// system. Skips entries that vanish during the walk or cannot be read.
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

/// Returns the kind of a file's content, judged by its path.
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
    fn minio_files_are_classified_by_path() {
        let kind = |path: &str| kind_of_path(&Naming::Minio, Path::new(path));
        assert_eq!(kind("bucket/a/xl.meta"), Kind::ObjectMetadata);
        assert_eq!(kind("bucket/a/0f3c/part.1"), Kind::ObjectData);
        assert_eq!(kind(".minio.sys/format.json"), Kind::Index);
        assert_eq!(kind(".minio.sys/tmp/x/part.1"), Kind::ObjectData);
        assert_eq!(kind_of_path(&Naming::Files, Path::new("a/xl.meta")), Kind::ObjectData);
    }

    #[test]
    fn io_is_classified_by_file() {
        let mut classifier = IoClassifier { has_file_system: true, ..IoClassifier::default() };
        classifier.files.insert((0, 70), Kind::ObjectMetadata);
        assert_eq!(classifier.classify(Some((0, 70)), false, 0), Kind::ObjectMetadata);
        assert_eq!(classifier.classify(Some((1, 70)), false, 0), Kind::Unnamed);
        assert_eq!(classifier.classify(None, false, 0), Kind::FileSystemMetadata);
        assert_eq!(classifier.classify(Some((0, 70)), true, 0), Kind::FileSystemMetadata);
        assert_eq!(classifier.classify(Some((0, 8)), false, 0), Kind::FileSystemMetadata, "ext4's journal");
    }

    /// A bug: every sector behind a drive's superblocks counted as object data, also index and unused sectors.
    #[test]
    fn sectors_outside_all_regions_are_unnamed() {
        let region = |sectors, kind| Region { sectors, kind };
        let naming = Naming::Regions(vec![region(32..64, Kind::ObjectData), region(8..16, Kind::Index)]);
        let raw = IoClassifier::new(&naming, &[], &HashSet::new());
        let kind_of = |sector| raw.classify(None, false, sector);
        assert_eq!(
            [8, 15, 32, 63].map(kind_of),
            [Kind::Index, Kind::Index, Kind::ObjectData, Kind::ObjectData]
        );
        assert_eq!([0, 16, 31, 64].map(kind_of), [Kind::Unnamed; 4]);
    }
}
