//! The block devices of a scope, as the kernel's events number them.
//!
//! Invariant: no two devices of a scope are of one disk, so that a request is of one of them.

use super::event::{Event, What};
use crate::model::{SECTOR_BYTES, TraceError};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A block device: a whole one, or a partition.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    /// As events of requests write it, the major above 20 bits of the minor: a partition's requests are its disk's.
    pub(super) disk: u32,
    /// The same, as events of the file system on it write it.
    pub(super) number: u32,
    /// As `stat` writes it.
    stat_number: u64,
    /// Its sectors among the disk's.
    sectors: Range<u64>,
}

/// Opens those of a scope.
pub(super) fn open_all(paths: &[PathBuf]) -> Result<Vec<Device>, TraceError> {
    if paths.is_empty() {
        return Err(TraceError::Scope("no device to trace: give those that hold the node's data".into()));
    }
    let mut devices: Vec<Device> = Vec::new();
    for path in paths {
        let device = Device::open(path)?;
        if let Some(other) = devices.iter().find(|other| other.disk == device.disk) {
            let (one, two) = (&other.name, &device.name);
            return Err(TraceError::Scope(format!("{one} and {two} are of one disk: give that disk, once")));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// Events by the sectors of their devices instead of those of the disks, without those of other partitions. A flush is the
/// whole disk's.
pub(super) fn within(devices: &[Device], events: &mut Vec<Event>) {
    events.retain_mut(|event| match &mut event.what {
        What::Io { device, sectors: 1.., sector, .. } => {
            let place = devices[usize::from(*device)].sectors.clone();
            let is_within = place.contains(sector);
            *sector = sector.saturating_sub(place.start);
            is_within
        }
        _ => true,
    });
}

impl Device {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let unusable = |why: String| TraceError::Scope(format!("{}: {why}", path.display()));
        let meta = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
        if !meta.file_type().is_block_device() {
            return Err(unusable("not a block device; give the device that holds the node's data".into()));
        }
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let described = Described::at(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
            .map_err(|error| unusable(error.to_string()))?;
        if !described.below.is_empty() {
            let below = described.below.join(", ");
            let why = format!("made of {below}, so its requests are theirs: give {below}, without --mount");
            return Err(unusable(why));
        }
        let number = major << 20 | minor;
        Ok(Self {
            name: path.display().to_string(),
            disk: described.disk.unwrap_or(number),
            number,
            stat_number: meta.rdev(),
            sectors: described.sectors,
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        (self.sectors.end - self.sectors.start) * SECTOR_BYTES
    }
}

/// What sysfs says of a device (Linux: `Documentation/ABI/stable/sysfs-block`).
#[derive(Debug, PartialEq, Eq)]
struct Described {
    /// The number of the disk that it is a partition of.
    disk: Option<u32>,
    sectors: Range<u64>,
    /// The devices that it is made of, as by LVM, LUKS or RAID: the kernel sends their requests, not its own.
    below: Vec<String>,
}

impl Described {
    fn at(dir: &Path) -> std::io::Result<Self> {
        let dir = fs::canonicalize(dir)?;
        let read = |name: &str| fs::read_to_string(dir.join(name)).map(|text| text.trim().to_owned());
        let wrong = || std::io::Error::other(format!("{} says no numbers", dir.display()));
        let number = |name: &str| read(name)?.parse::<u64>().map_err(|_| wrong());
        let is_partition = dir.join("partition").exists();
        let disk = match is_partition {
            true => Some(numbered(&read("../dev")?).ok_or_else(wrong)?),
            false => None,
        };
        let start = if is_partition { number("start")? } else { 0 };
        let entries = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
        let mut below: Vec<String> =
            entries.map(|entry| format!("/dev/{}", entry.file_name().to_string_lossy())).collect();
        below.sort_unstable();
        Ok(Self { disk, sectors: start..start + number("size")?, below })
    }
}

/// `8:16`, the major above 20 bits of the minor.
fn numbered(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

/// The index of each mount's device.
pub(super) fn mounts_of(mounts: &[PathBuf], devices: &[Device]) -> Result<Vec<(u8, PathBuf)>, TraceError> {
    mounts
        .iter()
        .map(|mount| {
            let unusable = |why: String| TraceError::Scope(format!("{}: {why}", mount.display()));
            let number = fs::metadata(mount).map_err(|error| unusable(error.to_string()))?.dev();
            let device = devices.iter().position(|device| device.stat_number == number);
            let device = device.ok_or_else(|| unusable("not on a device of the scope".into()))?;
            Ok((device as u8, mount.clone()))
        })
        .collect()
}

/// The types of the file systems mounted there.
pub(super) fn types_of(mounts: &[(u8, PathBuf)], devices: &[Device]) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let type_of = |number: &str| {
        table.lines().find_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            (mount.split(' ').nth(2)? == number)
                .then(|| file_system.split(' ').next().unwrap_or("").to_owned())
        })
    };
    mounts
        .iter()
        .filter_map(|(device, _)| devices.get(usize::from(*device)))
        .filter_map(|device| type_of(&format!("{}:{}", device.number >> 20, device.number & 0xf_ffff)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::event::{IoStep, asked};
    use super::*;

    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    /// A partition was refused, and its disk's file system with it; a volume of LVM was taken, and had no requests.
    #[test]
    fn a_partition_is_its_disks_and_a_volume_names_what_is_below() {
        let disk = sysfs(&[
            ("dev", "8:16"),
            ("size", "5000"),
            ("sdb1/partition", "1"),
            ("sdb1/start", "2048"),
            ("sdb1/size", "1000"),
        ]);
        let whole = Described::at(disk.path()).unwrap();
        assert_eq!(whole, Described { disk: None, sectors: 0..5000, below: Vec::new() });
        let partition = Described::at(&disk.path().join("sdb1")).unwrap();
        assert_eq!((partition.disk, partition.sectors), (Some(8 << 20 | 16), 2048..3048));
        let volume = sysfs(&[("size", "1000"), ("slaves/sdc", ""), ("slaves/sdb1", "")]);
        assert_eq!(Described::at(volume.path()).unwrap().below, ["/dev/sdb1", "/dev/sdc"]);
    }

    #[test]
    fn requests_of_other_partitions_are_left_out() {
        let device = Device { name: String::new(), disk: 1, number: 2, stat_number: 0, sectors: 2048..3048 };
        let asked = asked(b"W").unwrap();
        let at = |sector, sectors| Event {
            at_ns: 0,
            tid: 0,
            what: What::Io { step: IoStep::Issue, device: 0, asked, sectors, sector },
        };
        let mut events = vec![at(2047, 8), at(2048, 8), at(3048, 8), at(0, 0)];
        within(&[device], &mut events);
        assert_eq!(events, [at(0, 8), at(0, 0)]);
    }
}
