//! The manifest: the state of the drive at one place in the log, apart from the index entries in its tables.

use super::{Geometry, NUMBER_END, Run};
use crate::codec::{Decoder, Encoder};

/// A table of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableEntry {
    /// The runs that hold the table, in the order of its bytes.
    pub(crate) runs: Vec<Run>,
    pub(crate) len_bytes: u64,
}

impl TableEntry {
    fn is_long_enough(&self) -> bool {
        self.len_bytes <= self.runs.iter().map(|run| run.len_bytes()).sum()
    }
}

/// Statistics of a pack zone, a zone of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Zone {
    /// Bytes of inline data written to the zone, and the approximate bytes of their index entries.
    pub(crate) inline_bytes: u64,
    pub(crate) entries_bytes: u64,
    /// Bytes of inline data that objects still use.
    pub(crate) live_bytes: u64,
    /// The number of the last frame in the zone.
    pub(crate) last_frame: u64,
    /// Bytes written from the zone's beginning on.
    pub(crate) used_bytes: u64,
}

impl Zone {
    fn encode(self, to: &mut Encoder) {
        let Self { inline_bytes, entries_bytes, live_bytes, last_frame, used_bytes } = self;
        for number in [inline_bytes, entries_bytes, live_bytes, last_frame, used_bytes] {
            to.number(number);
        }
    }

    fn is_valid(&self, geometry: Geometry) -> bool {
        self.live_bytes <= self.inline_bytes
            && self.inline_bytes.max(self.used_bytes) <= geometry.zone_bytes()
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            inline_bytes: from.number()?,
            entries_bytes: from.number()?,
            live_bytes: from.number()?,
            last_frame: from.number()?,
            used_bytes: from.number()?,
        })
    }
}

/// The state of the drive before the frame `next_frame`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// The number of the first frame whose changes are not in the tables.
    pub(crate) next_frame: u64,
    /// The position of that frame: a zone, and bytes from its beginning.
    pub(crate) head_zone: u64,
    pub(crate) head_at: u64,
    /// The zone in which the log continues after the head zone.
    pub(crate) next_zone: u64,
    /// The number of the last write. Write numbers are part of etags and version ids.
    pub(crate) last_write: u64,
    /// The tables, newest first.
    pub(crate) tables: Vec<TableEntry>,
    /// The pack zones by number, head and next zone included.
    pub(crate) zones: Vec<(u64, Zone)>,
    /// Blocks that belong to no object and no zone. Tables and the manifest itself lie in some of them.
    pub(crate) free: Vec<Run>,
    /// Runs with more than one owner, and the number of additional owners.
    pub(crate) shared: Vec<(Run, u32)>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        for number in [self.next_frame, self.head_zone, self.head_at, self.next_zone, self.last_write] {
            to.number(number);
        }
        to.list(self.tables.iter(), |to, table| {
            to.list(table.runs.iter(), |to, run| run.encode(to));
            to.number(table.len_bytes);
        });
        to.list(self.zones.iter(), |to, (number, zone)| {
            to.number(*number);
            zone.encode(to);
        });
        to.list(self.free.iter(), |to, run| run.encode(to));
        to.list(self.shared.iter(), |to, (run, more)| {
            run.encode(to);
            to.number((*more).into());
        });
        to.0
    }

    /// Returns whether everything in the manifest is possible on a device of this geometry.
    pub(crate) fn is_valid(&self, geometry: Geometry) -> bool {
        let lies_inside = |run: &Run| geometry.contains(*run);
        let mut named =
            self.tables.iter().flat_map(|table| &table.runs).chain(self.shared.iter().map(|(run, _)| run));
        self.free.is_sorted_by(|one, next| one.end() < next.start)
            && self.free.iter().all(lies_inside)
            && named.all(lies_inside)
            && self.tables.iter().all(TableEntry::is_long_enough)
            && self.zones.is_sorted_by(|(one, _), (next, _)| one < next)
            && self.zones.last().is_some_and(|(last, _)| *last < geometry.zones())
            && [self.head_zone, self.next_zone]
                .iter()
                .all(|log| self.zones.iter().any(|(number, _)| number == log))
            && self.head_at <= geometry.zone_bytes()
            && self.head_at.is_multiple_of(geometry.row_bytes())
            && self.next_frame < NUMBER_END
            && self.last_write < NUMBER_END
            && self.zones.iter().all(|(_, zone)| zone.is_valid(geometry))
            && self.no_zone_is_free(geometry)
    }

    fn no_zone_is_free(&self, geometry: Geometry) -> bool {
        self.zones.iter().all(|(number, _)| {
            let zone = geometry.zone_run(*number);
            let before = self.free.partition_point(|free| free.end() <= zone.start);
            self.free.get(before).is_none_or(|free| free.start >= zone.end())
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let from_ref = &mut from;
        let manifest = Self {
            next_frame: from_ref.number()?,
            head_zone: from_ref.number()?,
            head_at: from_ref.number()?,
            next_zone: from_ref.number()?,
            last_write: from_ref.number()?,
            tables: from_ref.list(|from| {
                let runs = from.list(Run::decode)?;
                Some(TableEntry { runs, len_bytes: from.number()? })
            })?,
            zones: from_ref.list(|from| Some((from.number()?, Zone::decode(from)?)))?,
            free: from_ref.list(Run::decode)?,
            shared: from_ref.list(|from| Some((Run::decode(from)?, from.number32()?)))?,
        };
        from.end(manifest)
    }
}
