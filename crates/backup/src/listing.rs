//! The parts of a lineage in a bucket, by a listing, and the choice of parts for a restoration. Nothing here reads a part.

use crate::keys::{Epoch, Keys, Lineage, Part};
use meta::Seqno;
use std::collections::BTreeMap;
use store::{ListEntry, ListRequest, ListedObject, ObjectStore, Pages, Result, Timestamp};

/// Entries per page of a listing.
const PAGE_ENTRIES: usize = 1000;

/// The parts of a lineage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub(crate) epochs: BTreeMap<Epoch, EpochParts>,
}

/// The parts of an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EpochParts {
    pub(crate) snapshots: BTreeMap<Seqno, SnapshotParts>,
    /// Segments by `from` and `to`, with their lengths.
    pub(crate) log: BTreeMap<(Seqno, Seqno), u64>,
}

/// The parts of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SnapshotParts {
    /// Numbers of the tables.
    pub(crate) tables: Vec<u32>,
    /// Length of the tables and the manifest.
    pub(crate) bytes: u64,
    /// When the manifest was stored, by the clock of the bucket. `None` if the snapshot is incomplete.
    pub(crate) completed_at: Option<Timestamp>,
}

/// A complete snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complete {
    pub(crate) epoch: Epoch,
    pub(crate) seqno: Seqno,
    pub(crate) at: Timestamp,
    pub(crate) bytes: u64,
}

/// Returns the lineages that have parts in a bucket.
pub async fn lineages(store: &dyn ObjectStore, keys: &Keys) -> Result<Vec<Lineage>> {
    let request = ListRequest {
        prefix: keys.root().to_vec().into(),
        delimiter: Some(b'/'),
        limit: PAGE_ENTRIES,
        ..ListRequest::default()
    };
    let entries = Pages::new(store, request).collect().await?;
    let lineage = |entry| match entry {
        ListEntry::Prefix(prefix) => keys.parse_lineage(&prefix),
        ListEntry::Object(_) => None,
    };
    Ok(entries.into_iter().filter_map(lineage).collect())
}

/// Returns the lineage with the newest complete snapshot that was stored at or before `before`, among those that are wanted, and its parts;
/// `None` if none of them has one.
pub async fn newest_lineage(
    store: &dyn ObjectStore,
    keys: &Keys,
    is_wanted: impl Fn(Lineage) -> bool,
    before: Option<Timestamp>,
) -> Result<Option<(Lineage, Listing)>> {
    let mut newest: Option<(Timestamp, Lineage, Listing)> = None;
    for lineage in lineages(store, keys).await?.into_iter().filter(|lineage| is_wanted(*lineage)) {
        let listing = Listing::read(store, keys, lineage).await?;
        let Some(at) = listing.newest_at(before) else { continue };
        if newest.as_ref().is_none_or(|(known, ..)| *known < at) {
            newest = Some((at, lineage, listing));
        }
    }
    Ok(newest.map(|(_, lineage, listing)| (lineage, listing)))
}

impl Listing {
    /// Lists the parts of a lineage.
    pub async fn read(store: &dyn ObjectStore, keys: &Keys, lineage: Lineage) -> Result<Self> {
        let prefix = keys.lineage(lineage).into();
        let request = ListRequest { prefix, limit: PAGE_ENTRIES, ..ListRequest::default() };
        let (mut listing, mut pages) = (Self::default(), Pages::new(store, request));
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else { continue };
                if let Some(part) = keys.parse(lineage, &object.key) {
                    listing.add(part, size_bytes, object.last_modified.unwrap_or_default());
                }
            }
        }
        Ok(listing)
    }

    pub(crate) fn add(&mut self, part: Part, bytes: u64, stored_at: Timestamp) {
        match part {
            Part::Generation => {}
            Part::Log { epoch, from, to } => {
                self.epochs.entry(epoch).or_default().log.insert((from, to), bytes);
            }
            Part::Table { epoch, seqno, number } => {
                let snapshot = self.epochs.entry(epoch).or_default().snapshots.entry(seqno).or_default();
                snapshot.tables.push(number);
                snapshot.bytes += bytes;
            }
            Part::Manifest { epoch, seqno } => {
                let snapshot = self.epochs.entry(epoch).or_default().snapshots.entry(seqno).or_default();
                snapshot.completed_at = Some(stored_at);
                snapshot.bytes += bytes;
            }
        }
    }

    /// Returns the complete snapshots, by epoch and commit: oldest first.
    pub(crate) fn complete(&self) -> Vec<Complete> {
        let of_epoch = |(epoch, parts): (&Epoch, &EpochParts)| {
            let epoch = *epoch;
            let complete = move |(seqno, snapshot): (&Seqno, &SnapshotParts)| {
                Some(Complete { epoch, seqno: *seqno, at: snapshot.completed_at?, bytes: snapshot.bytes })
            };
            parts.snapshots.iter().filter_map(complete).collect::<Vec<_>>()
        };
        self.epochs.iter().flat_map(of_epoch).collect()
    }

    /// Returns when each complete snapshot was stored, by the clock of the bucket, oldest first.
    pub fn snapshot_times(&self) -> Vec<Timestamp> {
        self.complete().iter().map(|snapshot| snapshot.at).collect()
    }

    /// Returns when the newest complete snapshot was stored, by the clock of the bucket, among those stored at or before `before`; `None` if
    /// there is none.
    fn newest_at(&self, before: Option<Timestamp>) -> Option<Timestamp> {
        let times = self.complete().into_iter().map(|snapshot| snapshot.at);
        times.filter(|at| before.is_none_or(|before| *at <= before)).max()
    }

    /// Returns the segments that continue a snapshot without a gap, in order.
    pub(crate) fn chain(&self, epoch: Epoch, seqno: Seqno) -> Vec<(Seqno, Seqno)> {
        let Some(parts) = self.epochs.get(&epoch) else { return Vec::new() };
        let (mut at, mut chain) = (seqno, Vec::new());
        // Segments overlap if a crash came between the upload of one and the record of it. Among those that continue the
        // chain, the longest contains the others.
        while let Some(next) =
            parts.log.keys().filter(|(from, to)| *from <= at && *to > at).max_by_key(|key| key.1)
        {
            chain.push(*next);
            at = next.1;
        }
        chain
    }

    /// Returns the commit up to which an epoch can be restored from one of its snapshots.
    pub(crate) fn end(&self, epoch: Epoch, seqno: Seqno) -> Seqno {
        self.chain(epoch, seqno).last().map_or(seqno, |(_, to)| *to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E: Epoch = Epoch(1);

    fn listing(log: &[(u64, u64)]) -> Listing {
        let mut listing = Listing::default();
        for (from, to) in log {
            listing.add(Part::Log { epoch: E, from: Seqno(*from), to: Seqno(*to) }, 1, Timestamp(0));
        }
        listing
    }

    fn chain(log: &[(u64, u64)], from: u64) -> Vec<(u64, u64)> {
        listing(log).chain(E, Seqno(from)).into_iter().map(|(from, to)| (from.0, to.0)).collect()
    }

    #[test]
    fn a_chain_has_no_gap_and_prefers_the_longest_segment() {
        assert_eq!(chain(&[(0, 5), (5, 9), (9, 12)], 0), [(0, 5), (5, 9), (9, 12)]);
        assert_eq!(chain(&[(0, 5), (5, 9), (9, 12)], 7), [(5, 9), (9, 12)]);
        assert_eq!(chain(&[(0, 5), (6, 9)], 0), [(0, 5)]);
        assert_eq!(chain(&[(0, 5), (5, 7), (5, 9), (7, 8)], 0), [(0, 5), (5, 9)]);
        assert_eq!(chain(&[(0, 5)], 5), []);
    }

    #[test]
    fn a_snapshot_without_manifest_is_not_complete() {
        let mut listing = Listing::default();
        listing.add(Part::Table { epoch: E, seqno: Seqno(3), number: 0 }, 10, Timestamp(0));
        assert_eq!(listing.complete(), []);
        listing.add(Part::Manifest { epoch: E, seqno: Seqno(3) }, 1, Timestamp(7));
        assert_eq!(listing.complete(), [Complete { epoch: E, seqno: Seqno(3), at: Timestamp(7), bytes: 11 }]);
    }
}
