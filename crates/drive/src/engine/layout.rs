//! Layout: the use of each byte of the device, for tools that trace requests to the device.

use super::Engine;
use crate::device::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::format::{Body, Kind, ObjectRecord, Run, blocks_of};
use crate::space::lock;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A use of bytes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// The superblocks and the manifest.
    Root,
    /// A table of the index.
    Index,
    /// Data of a run: of one object, or of one part of an object.
    Data,
    /// The checksums behind a run's data.
    Sums,
    /// A pack zone: frames of the log, with the small objects in them.
    Pack,
}

/// Contiguous bytes of a device with one use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Area {
    /// Position in bytes.
    pub at: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// The use.
    pub what: Use,
}

impl Engine {
    /// Returns the areas that superblocks, index and log use, ordered by position. The rest is free, or kept by writes
    /// and reads in progress. Commits and checkpoints wait meanwhile.
    pub(crate) fn layout(&self) -> Result<Vec<Area>> {
        let root = self.root.lock();
        let _no_commit = self.log.lock();
        let tables = self.index.view();
        let tables = tables.tables.iter().chain(&root.retiring).flat_map(|table| table.source().entry().runs);
        let mut areas: Vec<Area> = tables.map(|run| Area::of(run, Use::Index)).collect();
        areas.push(Area::of(self.geometry.superblocks(), Use::Root));
        areas.push(Area::of(root.superblock.manifest, Use::Root));
        let space = lock(&self.space);
        let zones = space.log_zones().iter();
        areas.extend(zones.map(|(zone, _)| Area::of(self.geometry.zone_run(zone), Use::Pack)));
        drop(space);
        for (run, data_bytes) in self.runs_of_objects()? {
            let (data, sums) = Area::of(run, Use::Data).split(blocks_of(data_bytes) * BLOCK_BYTES, Use::Sums);
            areas.extend([data, sums]);
        }
        areas.sort_unstable();
        areas.dedup();
        Ok(areas)
    }

    /// Returns every run that an index entry refers to, and the length of its data in bytes.
    fn runs_of_objects(&self) -> Result<BTreeMap<Run, u64>> {
        let mut runs = BTreeMap::new();
        let mut scan = self.index.scan(Bound::Unbounded, &[])?;
        while let Some((key, value)) = scan.next()? {
            let kinds = [Kind::Object, Kind::Version, Kind::Part];
            if !kinds.iter().any(|&kind| key.first() == Some(&(kind as u8))) {
                continue;
            }
            let record = ObjectRecord::of_entry(key, value);
            let record = record.ok_or_else(|| Error::damaged_entry("an object's record", key))?;
            if let Body::Runs(slices) = record.body {
                runs.extend(slices.iter().map(|slice| (slice.run, slice.data_bytes)));
            }
        }
        Ok(runs)
    }
}

impl Area {
    fn of(run: Run, what: Use) -> Self {
        Self { at: run.at(), len_bytes: run.len_bytes(), what }
    }

    /// Splits an area after `len_bytes`. The second part gets the use `others`.
    fn split(self, len_bytes: u64, others: Use) -> (Self, Self) {
        let rest = Self { at: self.at + len_bytes, len_bytes: self.len_bytes - len_bytes, what: others };
        (Self { len_bytes, ..self }, rest)
    }
}
