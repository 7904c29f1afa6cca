//! Properties of the admission policy.

use super::*;
use proptest::prelude::*;

const GEOMETRY: Geometry = Geometry { blocks: 256 * 64, zone_blocks: 256, row_blocks: 1 };
const POLICY: Policy = Policy { geometry: GEOMETRY, index_memory_bytes: 1 << 20 };

/// Returns the usage of a drive with this number of free zones, of which up to four are in the log reserve.
fn with_free_zones(zones: u64) -> Usage {
    let reserve_zones = zones.min(LOG_RESERVE_ZONES);
    let zones = zones - reserve_zones;
    let checkpoint_blocks = POLICY.checkpoint_blocks(IndexSize::default(), 0, 4096);
    let space = FreeSpace { blocks: zones * 256, zones, reserve_zones, checkpoint_blocks, zone_blocks: 256 };
    Usage { space, index: IndexSize::default(), log: LogSize::default(), failed_checkpoints: 0 }
}

fn demand(purpose: Purpose, has_inline: bool, frame_bytes: u64) -> Demand {
    Demand { purpose, has_inline, frame_bytes }
}

#[test]
fn an_empty_drive_admits_everything_into_the_head_zone() {
    for purpose in [Purpose::Frees, Purpose::Moves, Purpose::Grows] {
        for has_inline in [false, true] {
            let admitted = POLICY.admit_commit(&with_free_zones(60), demand(purpose, has_inline, 5000));
            assert_eq!(admitted, Ok(Admission::InHeadZone));
        }
    }
    assert!(POLICY.admits_inline(&with_free_zones(60), 100_000));
}

#[test]
fn a_frame_that_does_not_fit_the_head_zone_goes_to_the_next_zone() {
    let mut usage = with_free_zones(60);
    usage.log.head_bytes = GEOMETRY.zone_bytes() - 8192;
    assert_eq!(POLICY.admit_commit(&usage, demand(Purpose::Grows, true, 8192)), Ok(Admission::InHeadZone));
    assert_eq!(POLICY.admit_commit(&usage, demand(Purpose::Grows, true, 8193)), Ok(Admission::InNextZone));
    let too_long = demand(Purpose::Frees, false, GEOMETRY.zone_bytes() + 1);
    assert_eq!(POLICY.admit_commit(&usage, too_long), Err(Refusal::FrameTooLong));
}

/// The checkpoints of a drive failed for ever, and its writers took all memory.
#[test]
fn data_is_refused_while_checkpoints_fail_and_deletions_are_not() {
    let mut usage = with_free_zones(60);
    usage.index.memtable_bytes = POLICY.index_memory_bytes;
    assert!(POLICY.must_wait_for_checkpoint(&usage));
    usage.failed_checkpoints = FAILED_CHECKPOINTS_MAX;
    assert!(!POLICY.must_wait_for_checkpoint(&usage));
    for purpose in [Purpose::Moves, Purpose::Grows] {
        let refused = POLICY.admit_commit(&usage, demand(purpose, false, 5000));
        assert_eq!(refused, Err(Refusal::IndexUnwritable));
    }
    assert!(POLICY.admit_commit(&usage, demand(Purpose::Frees, false, 5000)).is_ok());
}

#[test]
fn as_zones_run_out_data_is_refused_first_and_deletions_last() {
    let is_admitted = |zones, purpose, has_inline| {
        POLICY.admit_commit(&with_free_zones(zones), demand(purpose, has_inline, 5000)).is_ok()
    };
    // Room for a checkpoint of an empty index, beside the log reserve.
    let least = LOG_RESERVE_ZONES + 1;
    for zones in 0..60 {
        assert_eq!(is_admitted(zones, Purpose::Frees, false), zones >= least, "{zones}");
        assert_eq!(is_admitted(zones, Purpose::Grows, true), zones >= least, "{zones}");
    }
    let mut last_zone = with_free_zones(least);
    last_zone.space.reserve_zones = DELETION_ZONES - 1;
    last_zone.space.checkpoint_blocks = 256;
    assert_eq!(POLICY.admit_commit(&last_zone, demand(Purpose::Moves, true, 5000)), Err(Refusal::Full));
    assert!(POLICY.admit_commit(&last_zone, demand(Purpose::Frees, false, 5000)).is_ok());
}

#[test]
fn the_index_keeps_the_last_free_zone_while_the_log_has_enough() {
    let space = |zones: u64, reserve_zones| FreeSpace {
        blocks: zones * 256,
        zones,
        reserve_zones,
        checkpoint_blocks: 0,
        zone_blocks: 256,
    };
    assert!(space(2, LOG_RESERVE_ZONES).has_zone_for_log());
    assert!(!space(1, DELETION_ZONES).has_zone_for_log());
    assert!(space(1, DELETION_ZONES - 1).has_zone_for_log());
    assert!(!space(0, 0).has_zone_for_log());
    let kept = FreeSpace { checkpoint_blocks: 257, ..space(2, 0) };
    assert!(!kept.has_zone_for_log(), "the next checkpoint needs the blocks");
}

prop_compose! {
    fn usages()(
        zones in 0u64..40,
        scattered in 0u64..2000,
        reserve_zones in 0u64..=LOG_RESERVE_ZONES,
        checkpoint_blocks in 0u64..3000,
        tables_bytes in 0u64..(4 << 20),
        memtable_bytes in 0u64..(1 << 20),
        frozen_bytes in 0u64..(1 << 20),
        head_bytes in 0u64..=(1 << 20),
        since_checkpoint_bytes in 0u64..(8 << 20),
        failed_checkpoints in 0u32..5,
    ) -> Usage {
        let space = FreeSpace {
            blocks: zones * 256 + scattered,
            zones,
            reserve_zones,
            checkpoint_blocks,
            zone_blocks: 256,
        };
        Usage {
            space,
            index: IndexSize { tables_bytes, memtable_bytes, frozen_bytes },
            log: LogSize { head_bytes, since_checkpoint_bytes },
            failed_checkpoints,
        }
    }
}

proptest! {
    /// Each purpose leaves room for those before it.
    #[test]
    fn a_purpose_is_admitted_wherever_a_later_one_is(usage in usages(), has_inline: bool, frame_bytes in 1u64..(2 << 20)) {
        let is_admitted = |purpose| POLICY.admit_commit(&usage, demand(purpose, has_inline, frame_bytes)).is_ok();
        prop_assert!(!is_admitted(Purpose::Grows) || is_admitted(Purpose::Moves));
        prop_assert!(!is_admitted(Purpose::Moves) || is_admitted(Purpose::Frees));
    }

    /// Bytes of objects never take the zones that deletions need, nor the blocks of the next checkpoint.
    #[test]
    fn an_admitted_commit_leaves_room_for_deletions(usage in usages(), has_inline: bool, frame_bytes in 1u64..(1 << 20)) {
        for purpose in [Purpose::Frees, Purpose::Moves, Purpose::Grows] {
            let Ok(admission) = POLICY.admit_commit(&usage, demand(purpose, has_inline, frame_bytes)) else { continue };
            let taken = u64::from(admission == Admission::InNextZone);
            prop_assert!(!has_inline || usage.space.log_zones() >= DELETION_ZONES + taken);
            prop_assert!(usage.space.blocks >= usage.space.checkpoint_blocks);
            let is_in_head = usage.log.head_bytes + frame_bytes <= GEOMETRY.zone_bytes();
            prop_assert_eq!(admission == Admission::InHeadZone, is_in_head);
        }
    }

    /// More free space never turns an admission into a refusal.
    #[test]
    fn more_free_zones_refuse_nothing_more(usage in usages(), has_inline: bool, more in 1u64..20, frame_bytes in 1u64..(1 << 20)) {
        let mut roomier = usage;
        roomier.space.zones += more;
        roomier.space.blocks += more * 256;
        for purpose in [Purpose::Frees, Purpose::Moves, Purpose::Grows] {
            let demand = demand(purpose, has_inline, frame_bytes);
            prop_assert!(POLICY.admit_commit(&usage, demand).is_err() || POLICY.admit_commit(&roomier, demand).is_ok());
        }
        prop_assert!(!POLICY.admits_inline(&usage, 1000) || POLICY.admits_inline(&roomier, 1000));
        prop_assert!(POLICY.needs_cleaning(usage.space, usage.index) || !POLICY.needs_cleaning(roomier.space, roomier.index));
        prop_assert!(usage.space.log_zones() <= roomier.space.log_zones());
    }

    /// Writers that wait for the log have fewer zones than the log reserve; writers that do not can store moved objects.
    #[test]
    fn writers_wait_before_moves_are_refused(usage in usages(), frame_bytes in 1u64..(1 << 20)) {
        let is_refused = POLICY.admit_commit(&usage, demand(Purpose::Moves, true, frame_bytes)) == Err(Refusal::Full);
        let is_for_index = !usage.space.has_room_for_index(blocks_of(bytes_left_by(Purpose::Moves, usage.index)));
        prop_assert!(!is_refused || is_for_index || Policy::must_wait_for_cleaning(usage.space));
    }

    /// A zone that the log takes leaves the blocks of the next checkpoint.
    #[test]
    fn the_log_takes_no_zone_of_the_next_checkpoint(usage in usages()) {
        let space = usage.space;
        if space.has_zone_for_log() {
            prop_assert!(space.zones > 0 && space.blocks - space.zone_blocks >= space.checkpoint_blocks);
        }
        prop_assert!(space.log_zones() <= space.free_zones());
        prop_assert!(space.free_zones() * space.zone_blocks <= space.free_blocks());
    }
}
