//! The block devices of a scope, with the device numbers that trace events use.
//!
//! Invariant: no two devices of a scope are on one disk, so a request belongs to at most one of them.

use super::event::{Event, Payload};
use crate::model::{SECTOR_BYTES, TraceError};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A block device: a whole disk or a partition.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    /// Number of the disk in events of the block layer: the major number above 20 bits of the minor. A partition's requests carry the number
    /// of its disk.
    pub(super) disk: u32,
    /// Number of the device in events of the file system on it, in the same form.
    pub(super) number: u32,
    /// Number of the device in the form of `stat`.
    stat_number: u64,
    /// Sectors of the disk that the device consists of.
    sectors: Range<u64>,
}

/// Looks up the devices of a scope.
pub(super) fn open_all(paths: &[PathBuf]) -> Result<Vec<Device>, TraceError> {
    if paths.is_empty() {
        return Err(TraceError::Scope(
            "no device to trace: name the devices that hold the node's data".into(),
        ));
    }
    let mut devices: Vec<Device> = Vec::new();
    for path in paths {
        let device = Device::open(path)?;
        if let Some(other) = devices.iter().find(|other| other.disk == device.disk) {
            let (one, two) = (&other.name, &device.name);
            return Err(TraceError::Scope(format!("{one} and {two} are on one disk: name the disk instead")));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// Removes I/O events of other partitions, and makes the sectors of the others relative to their device instead of the disk. Flushes are
/// kept, as they apply to the whole disk.
pub(super) fn keep_own_sectors(devices: &[Device], events: &mut Vec<Event>) {
    events.retain_mut(|event| match &mut event.payload {
        Payload::Io { device, sectors: 1.., sector, .. } => {
            let own = devices[usize::from(*device)].sectors.clone();
            let is_own = own.contains(sector);
            *sector = sector.saturating_sub(own.start);
            is_own
        }
        _ => true,
    });
}

impl Device {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let unusable = |why: String| TraceError::Scope(format!("{}: {why}", path.display()));
        let meta = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
        if !meta.file_type().is_block_device() {
            return Err(unusable("not a block device; name the device that holds the node's data".into()));
        }
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let sysfs = SysfsDevice::read(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
            .map_err(|error| unusable(error.to_string()))?;
        if !sysfs.underlying.is_empty() {
            let underlying = sysfs.underlying.join(", ");
            let why = format!(
                "built on {underlying}, and the kernel traces requests there only: name {underlying} instead, without --mount"
            );
            return Err(unusable(why));
        }
        let number = major << 20 | minor;
        Ok(Self {
            name: path.display().to_string(),
            disk: sysfs.disk.unwrap_or(number),
            number,
            stat_number: meta.rdev(),
            sectors: sysfs.sectors,
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        (self.sectors.end - self.sectors.start) * SECTOR_BYTES
    }
}

/// Attributes of a device from sysfs (Linux: `Documentation/ABI/stable/sysfs-block`).
#[derive(Debug, PartialEq, Eq)]
struct SysfsDevice {
    /// Number of the disk, if the device is a partition.
    disk: Option<u32>,
    sectors: Range<u64>,
    /// Devices that this one is built on, as with LVM, LUKS or RAID. The kernel's request events are for these devices only.
    underlying: Vec<String>,
}

impl SysfsDevice {
    fn read(dir: &Path) -> std::io::Result<Self> {
        let dir = fs::canonicalize(dir)?;
        let attribute = |name: &str| fs::read_to_string(dir.join(name)).map(|text| text.trim().to_owned());
        let invalid =
            || std::io::Error::other(format!("the attributes in {} are not numbers", dir.display()));
        let number = |name: &str| attribute(name)?.parse::<u64>().map_err(|_| invalid());
        let is_partition = dir.join("partition").exists();
        let disk = match is_partition {
            true => Some(parse_device_number(&attribute("../dev")?).ok_or_else(invalid)?),
            false => None,
        };
        let start = if is_partition { number("start")? } else { 0 };
        let entries = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
        let mut underlying: Vec<String> =
            entries.map(|entry| format!("/dev/{}", entry.file_name().to_string_lossy())).collect();
        underlying.sort_unstable();
        Ok(Self { disk, sectors: start..start + number("size")?, underlying })
    }
}

/// Parses `8:16` into the major number above 20 bits of the minor.
fn parse_device_number(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

/// Returns each mount with the index of its device.
pub(super) fn mounts_of(mounts: &[PathBuf], devices: &[Device]) -> Result<Vec<(u8, PathBuf)>, TraceError> {
    mounts
        .iter()
        .map(|mount| {
            let unusable = |why: String| TraceError::Scope(format!("{}: {why}", mount.display()));
            let number = fs::metadata(mount).map_err(|error| unusable(error.to_string()))?.dev();
            let device = devices.iter().position(|device| device.stat_number == number);
            let device = device.ok_or_else(|| unusable("not on any of the given devices".into()))?;
            Ok((device as u8, mount.clone()))
        })
        .collect()
}

/// Returns the types of the mounted file systems, such as `xfs`.
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
    use super::super::event::{IoStage, parse_rwbs};
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

    /// Two bugs: a partition was refused; an LVM volume was accepted, and no request of it was traced.
    #[test]
    fn a_partition_knows_its_disk_and_a_volume_its_underlying_devices() {
        let disk = sysfs(&[
            ("dev", "8:16"),
            ("size", "5000"),
            ("sdb1/partition", "1"),
            ("sdb1/start", "2048"),
            ("sdb1/size", "1000"),
        ]);
        let whole = SysfsDevice::read(disk.path()).unwrap();
        assert_eq!(whole, SysfsDevice { disk: None, sectors: 0..5000, underlying: Vec::new() });
        let partition = SysfsDevice::read(&disk.path().join("sdb1")).unwrap();
        assert_eq!((partition.disk, partition.sectors), (Some(8 << 20 | 16), 2048..3048));
        let volume = sysfs(&[("size", "1000"), ("slaves/sdc", ""), ("slaves/sdb1", "")]);
        assert_eq!(SysfsDevice::read(volume.path()).unwrap().underlying, ["/dev/sdb1", "/dev/sdc"]);
    }

    #[test]
    fn requests_of_other_partitions_are_left_out() {
        let device = Device { name: String::new(), disk: 1, number: 2, stat_number: 0, sectors: 2048..3048 };
        let flags = parse_rwbs(b"W").unwrap();
        let at = |sector, sectors| Event {
            at_ns: 0,
            tid: 0,
            payload: Payload::Io { stage: IoStage::Issue, device: 0, flags, sectors, sector },
        };
        let mut events = vec![at(2047, 8), at(2048, 8), at(3048, 8), at(0, 0)];
        keep_own_sectors(&[device], &mut events);
        assert_eq!(events, [at(0, 8), at(0, 0)]);
    }
}
