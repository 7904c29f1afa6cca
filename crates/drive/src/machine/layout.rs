//! Layout: which bytes of the device are what, for who watches its requests from below.

use super::Machine;
use crate::device::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::format::{Body, Geometry, Kind, ObjectRecord, Run, blocks_of};
use crate::shell::Drive;
use crate::space::lock;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What bytes of a device are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// The superblocks and the manifest.
    Root,
    /// Of a table of the index.
    Index,
    /// The data of one run: of one object, or of one part of one.
    Data,
    /// The checksums behind a run's data.
    Sums,
    /// A pack zone: the log's frames, and the small objects in them.
    Pack,
}

/// Contiguous bytes of a device with one use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Area {
    /// Where they begin, in bytes.
    pub at: u64,
    /// How many there are.
    pub len_bytes: u64,
    /// What they are.
    pub what: Use,
}

impl Drive {
    /// Everything on it that is something now, in the order of the device; what is in no area is free. Blocks while all of the index
    /// is read, and keeps from committing.
    pub fn layout(&self) -> Result<Vec<Area>> {
        self.0.machine.layout()
    }
}

impl Machine {
    fn layout(&self) -> Result<Vec<Area>> {
        let root = self.root();
        let _no_commit = self.log();
        let tables = self.index.view();
        let tables = tables.tables.iter().chain(&root.retiring).flat_map(|table| table.source().entry().runs);
        let mut areas: Vec<Area> = tables.map(|run| Area::of(run, Use::Index)).collect();
        areas.push(Area::of(self.geometry.superblocks(), Use::Root));
        areas.push(Area::of(root.superblock.manifest, Use::Root));
        areas.extend(
            lock(&self.space).zones().map(|(zone, _)| Area::of(zone_run(self.geometry, zone), Use::Pack)),
        );
        for (run, data_bytes) in self.runs_of_objects()? {
            let (data, sums) = Area::of(run, Use::Data).split(blocks_of(data_bytes) * BLOCK_BYTES, Use::Sums);
            areas.extend([data, sums]);
        }
        areas.sort_unstable();
        areas.dedup();
        Ok(areas)
    }

    /// Every run that an entry of the index names, with the length of its data in bytes.
    fn runs_of_objects(&self) -> Result<BTreeMap<Run, u64>> {
        let mut runs = BTreeMap::new();
        let mut scan = self.index.scan(Bound::Unbounded, &[])?;
        while let Some((key, value)) = scan.next()? {
            let kinds = [Kind::Object, Kind::Version, Kind::Part];
            if !kinds.iter().any(|&kind| key.first() == Some(&(kind as u8))) {
                continue;
            }
            let record = ObjectRecord::of_entry(key, value);
            let record = record.ok_or_else(|| Error::damaged("an object's record in the index", 0))?;
            if let Body::Extents(extents) = record.body {
                runs.extend(extents.iter().map(|extent| (extent.run, extent.data_bytes)));
            }
        }
        Ok(runs)
    }
}

impl Area {
    fn of(run: Run, what: Use) -> Self {
        Self { at: run.at(), len_bytes: run.len_bytes(), what }
    }

    /// The first bytes, and the others, which are something else.
    fn split(self, len_bytes: u64, others: Use) -> (Self, Self) {
        let rest = Self { at: self.at + len_bytes, len_bytes: self.len_bytes - len_bytes, what: others };
        (Self { len_bytes, ..self }, rest)
    }
}

fn zone_run(geometry: Geometry, zone: u64) -> Run {
    Run { start: zone * geometry.zone_blocks, blocks: geometry.zone_blocks }
}
