//! Rotation: which parts of a lineage are kept, by the scheme of grandfather, father and son. Pure.
//!
//! Invariant: the two newest complete snapshots stay, with the log after the older one, so that damage of the newest snapshot
//! loses nothing.

use crate::keys::{Epoch, Part};
use crate::listing::{Complete, Listing};
use meta::Seqno;
use std::collections::BTreeSet;
use std::time::Duration;
use store::Timestamp;

/// Steps of the rotation, each an age and a period: of the snapshots that are younger than the age, counted back from the newest snapshot,
/// the newest of each period stays.
const STEPS: [(Duration, Duration); 3] =
    [(hours(24), hours(1)), (hours(7 * 24), hours(24)), (hours(28 * 24), hours(7 * 24))];

/// Number of newest snapshots that stay, whatever their age and length.
const ALWAYS_KEPT: usize = 2;

/// Maximum length of the kept snapshots together. The two newest count, and stay also if they alone are longer.
pub(crate) const TOTAL_BYTES_MAX: u64 = 10 << 30;

const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

/// Returns the parts to delete, in this order. `current` is the epoch of the caller, which is not writing a snapshot now; later epochs are
/// left alone.
pub(crate) fn superfluous(listing: &Listing, current: Epoch, total_bytes_max: u64) -> Vec<Part> {
    let complete = listing.complete();
    let kept = kept(&complete, total_bytes_max);
    let fallback = complete.iter().rev().nth(ALWAYS_KEPT - 1).or(complete.first());
    let mut parts = Vec::new();
    for (epoch, found) in listing.epochs.iter().filter(|(epoch, _)| **epoch <= current) {
        for (seqno, snapshot) in &found.snapshots {
            if kept.contains(&(*epoch, *seqno)) {
                continue;
            }
            // The manifest goes first: a snapshot is never complete without its tables.
            if snapshot.completed_at.is_some() {
                parts.push(Part::Manifest { epoch: *epoch, seqno: *seqno });
            }
            let table = |number: &u32| Part::Table { epoch: *epoch, seqno: *seqno, number: *number };
            parts.extend(snapshot.tables.iter().map(table));
        }
        let Some(fallback) = fallback else { continue };
        let is_old = |to: Seqno| (*epoch, to) <= (fallback.epoch, fallback.seqno);
        let old = found.log.keys().filter(|(_, to)| is_old(*to));
        parts.extend(old.map(|(from, to)| Part::Log { epoch: *epoch, from: *from, to: *to }));
    }
    parts
}

fn kept(complete: &[Complete], total_bytes_max: u64) -> BTreeSet<(Epoch, Seqno)> {
    let Some(newest) = complete.last() else { return BTreeSet::new() };
    let mut periods = BTreeSet::new();
    let mut kept = BTreeSet::new();
    let mut bytes = 0_u64;
    for (index, snapshot) in complete.iter().rev().enumerate() {
        // Evaluate all steps: a snapshot may stand for an hour, a day and a week.
        let stands_for = STEPS.iter().enumerate().filter(|(step, (age, period))| {
            newest.at.since(snapshot.at) < *age && periods.insert((*step, period_of(snapshot.at, *period)))
        });
        let is_kept = stands_for.count() > 0;
        bytes = bytes.saturating_add(snapshot.bytes);
        if index < ALWAYS_KEPT || (is_kept && bytes <= total_bytes_max) {
            kept.insert((snapshot.epoch, snapshot.seqno));
        } else {
            bytes -= snapshot.bytes;
        }
    }
    kept
}

fn period_of(at: Timestamp, period: Duration) -> i64 {
    at.secs().div_euclid(period.as_secs().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(snapshots: &[(u32, u64, i64)]) -> Listing {
        let mut listing = Listing::default();
        for (epoch, seqno, secs) in snapshots {
            let (epoch, seqno) = (Epoch(*epoch), Seqno(*seqno));
            listing.add(Part::Table { epoch, seqno, number: 0 }, 100, Timestamp(0));
            listing.add(Part::Manifest { epoch, seqno }, 0, Timestamp::from_secs(*secs, 0));
        }
        listing
    }

    fn kept_of(listing: &Listing, total: u64) -> Vec<u64> {
        let gone = superfluous(listing, Epoch(9), total);
        let is_kept = |one: &Complete| !gone.contains(&Part::Manifest { epoch: one.epoch, seqno: one.seqno });
        listing.complete().iter().filter(|one| is_kept(one)).map(|one| one.seqno.0).collect()
    }

    /// Hourly snapshots over a year are thinned to 24 hours, 7 days and 4 weeks.
    #[test]
    fn hourly_snapshots_of_a_year_are_thinned() {
        let hourly: Vec<_> = (0..365 * 24).map(|hour| (1, hour as u64 + 1, hour * 3600)).collect();
        let kept = kept_of(&listing(&hourly), u64::MAX);
        let newest = 365 * 24_u64;
        assert!((24..24 + 7 + 5).contains(&kept.len()), "{kept:?}");
        assert!((0..24).all(|age| kept.contains(&(newest - age))), "{kept:?}");
        assert!(kept.iter().all(|seqno| *seqno + 28 * 24 > newest));
        // Thinning again changes nothing.
        let again: Vec<_> = kept.iter().map(|seqno| (1, *seqno, (*seqno as i64 - 1) * 3600)).collect();
        assert_eq!(kept_of(&listing(&again), u64::MAX), kept);
    }

    #[test]
    fn the_total_is_bounded_but_two_snapshots_stay() {
        let hourly: Vec<_> = (0..10).map(|hour| (1, hour as u64 + 1, hour * 3600)).collect();
        assert_eq!(kept_of(&listing(&hourly), 450), [7, 8, 9, 10]);
        assert_eq!(kept_of(&listing(&hourly), 0), [9, 10]);
        assert_eq!(kept_of(&listing(&[]), 0), [] as [u64; 0]);
    }

    #[test]
    fn the_log_after_the_second_newest_snapshot_stays() {
        let mut listing = listing(&[(1, 10, 0), (1, 20, 60), (3, 5, 120)]);
        for (epoch, from, to) in [(1, 8, 12), (1, 12, 20), (1, 20, 25), (3, 4, 6)] {
            listing.add(Part::Log { epoch: Epoch(epoch), from: Seqno(from), to: Seqno(to) }, 1, Timestamp(0));
        }
        let gone = superfluous(&listing, Epoch(3), u64::MAX);
        let logs: Vec<_> = gone.iter().filter(|part| matches!(part, Part::Log { .. })).copied().collect();
        let log = |from, to| Part::Log { epoch: Epoch(1), from: Seqno(from), to: Seqno(to) };
        assert_eq!(logs, [log(8, 12), log(12, 20)]);
    }

    #[test]
    fn leftovers_of_crashes_go_and_parts_of_later_epochs_stay() {
        let mut listing = listing(&[(2, 10, 0)]);
        let left = |epoch| Part::Table { epoch: Epoch(epoch), seqno: Seqno(11), number: 0 };
        listing.add(left(2), 1, Timestamp(0));
        listing.add(left(3), 1, Timestamp(0));
        assert_eq!(superfluous(&listing, Epoch(2), u64::MAX), [left(2)]);
    }
}
