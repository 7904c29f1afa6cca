//! That the simulated device does to a drive what a real one may, and no more.

use super::*;
use drive::device::{Buffer, conformance};

const BLOCK: u64 = 4096;

/// One block of one byte.
fn block_of(byte: u8) -> Buffer {
    blocks_of(byte, 1)
}

fn blocks_of(byte: u8, blocks: u64) -> Buffer {
    let mut buffer = Buffer::zeroed((blocks * BLOCK) as usize);
    buffer.fill(byte);
    buffer
}

fn device() -> SimDevice {
    SimDevice::new(64 * BLOCK)
}

fn read(device: &SimDevice, block: u64, blocks: u64) -> Buffer {
    let mut buffer = blocks_of(0, blocks);
    device.read_at(block * BLOCK, &mut buffer).unwrap();
    buffer
}

/// The one byte that a block is made of, if it is of one.
fn only(bytes: &[u8]) -> Option<u8> {
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}

#[test]
fn it_keeps_the_rules() {
    conformance::run(&SimDevice::new(conformance::LEN_BYTES_MIN));
}

#[test]
fn what_was_flushed_stays() {
    for seed in 0..200 {
        let device = device();
        device.write_at(0, &blocks_of(1, 4)).unwrap();
        device.flush().unwrap();
        device.write_at(8 * BLOCK, &blocks_of(2, 4)).unwrap();
        device.crash(seed);
        assert_eq!(only(&read(&device, 0, 4)), Some(1), "seed {seed}");
        assert_eq!(device.unflushed(), 0);
    }
}

#[test]
fn what_was_not_flushed_is_there_is_torn_or_is_lost() {
    let before = device();
    before.write_at(0, &blocks_of(1, 2)).unwrap();
    before.flush().unwrap();
    before.write_at(0, &blocks_of(2, 2)).unwrap();
    let mut outcomes = std::collections::BTreeMap::<Option<u8>, u32>::new();
    for seed in 0..200 {
        let device = before.fork();
        device.crash(seed);
        let seen = read(&device, 0, 2);
        assert!(seen.chunks(512).all(|sector| matches!(only(sector), Some(1 | 2))), "seed {seed}");
        *outcomes.entry(only(&seen)).or_default() += 1;
    }
    assert!([None, Some(1), Some(2)].iter().all(|outcome| outcomes[outcome] > 10), "{outcomes:?}");
}

#[test]
fn a_later_write_may_survive_an_earlier_one() {
    let before = device();
    for block in 0..8 {
        before.write_at(block * BLOCK, &block_of(1)).unwrap();
    }
    let only_the_last = (0..500).any(|seed| {
        let device = before.fork();
        device.crash(seed);
        only(&read(&device, 0, 1)) == Some(0) && only(&read(&device, 7, 1)) == Some(1)
    });
    assert!(only_the_last);
}

#[test]
fn either_of_two_at_one_place_may_come_last() {
    let before = device();
    before.write_at(0, &block_of(1)).unwrap();
    before.write_at(0, &block_of(2)).unwrap();
    let after = |seed| {
        let device = before.fork();
        device.crash(seed);
        only(&read(&device, 0, 1))
    };
    assert!((0..100).any(|seed| after(seed) == Some(1)));
    assert!((0..100).any(|seed| after(seed) == Some(2)));
}

#[test]
fn one_seed_is_one_crash() {
    let before = device();
    for block in 0..16 {
        before.write_at(block * BLOCK, &block_of(block as u8 + 1)).unwrap();
    }
    for seed in 0..50 {
        let (one, other) = (before.fork(), before.fork());
        one.crash(seed);
        other.crash(seed);
        assert!(*read(&one, 0, 16) == *read(&other, 0, 16), "seed {seed}");
    }
}

#[test]
fn clones_share_and_forks_do_not() {
    let device = device();
    let (clone, fork) = (device.clone(), device.fork());
    device.write_at(0, &block_of(1)).unwrap();
    assert_eq!(only(&read(&clone, 0, 1)), Some(1));
    assert_eq!(only(&read(&fork, 0, 1)), Some(0));
}

#[test]
fn one_bit_rots_and_stays_rotten() {
    let device = device();
    device.write_at(0, &blocks_of(0, 4)).unwrap();
    for seed in 0..50 {
        let device = device.fork();
        let at = device.flip(seed, BLOCK + 7..2 * BLOCK);
        assert!((BLOCK + 7..2 * BLOCK).contains(&at));
        let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(ones(&read(&device, 0, 4)), 1);
        device.flush().unwrap();
        device.crash(seed);
        let seen = read(&device, 0, 4);
        assert_eq!((ones(&seen), seen[at as usize].count_ones()), (1, 1));
    }
}

#[test]
fn ranges_fail_until_it_is_healed() {
    let device = device();
    device.write_at(0, &blocks_of(1, 8)).unwrap();
    device.fail_reads(BLOCK..2 * BLOCK);
    device.fail_writes(4 * BLOCK + 100..4 * BLOCK + 101);
    let mut into = blocks_of(0, 2);
    let error = device.read_at(0, &mut into).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    device.read_at(2 * BLOCK, &mut into).unwrap();
    assert!(device.write_at(4 * BLOCK, &block_of(2)).is_err());
    device.write_at(5 * BLOCK, &block_of(2)).unwrap();
    device.heal();
    device.read_at(0, &mut into).unwrap();
    device.write_at(4 * BLOCK, &block_of(2)).unwrap();
}

#[test]
fn a_write_that_fails_may_leave_a_part() {
    let device = device();
    device.fail_writes(0..64 * BLOCK);
    for block in 0..32 {
        assert!(device.write_at(block * BLOCK, &block_of(1)).is_err());
    }
    assert!((0..32).any(|block| only(&read(&device, block, 1)).is_none()));
}

#[test]
fn some_operations_fail_at_random_and_a_broken_device_fails_all() {
    let device = device();
    device.fail_at_random(7, 10);
    let failed = (0..1000).filter(|_| device.write_at(0, &block_of(1)).is_err()).count();
    assert!((50..200).contains(&failed), "{failed}");
    device.break_down();
    device.crash(1);
    assert!(device.flush().is_err());
    assert!(device.read_at(0, &mut block_of(0)).is_err());
}

/// What a device had in its cache when a flush failed is gone, and the next flush has nothing to complain of.
#[test]
fn a_flush_after_one_that_failed_makes_nothing_safe() {
    let failed = device();
    failed.write_at(0, &block_of(1)).unwrap();
    failed.break_down();
    assert!(failed.flush().is_err());
    failed.heal();
    failed.flush().unwrap();
    let after = |device: &SimDevice, seed| {
        let device = device.fork();
        device.crash(seed);
        only(&read(&device, 0, 1))
    };
    assert!((0..100).any(|seed| after(&failed, seed) == Some(0)));
    // Written anew and flushed, it is.
    failed.write_at(0, &block_of(2)).unwrap();
    failed.flush().unwrap();
    assert!((0..100).all(|seed| after(&failed, seed) == Some(2)));
}

#[test]
fn the_power_goes_at_an_operation() {
    let before = device();
    before.cut_power_after(2);
    before.write_at(0, &block_of(1)).unwrap();
    before.flush().unwrap();
    assert!(before.write_at(BLOCK, &block_of(2)).is_err());
    assert!(before.write_at(2 * BLOCK, &block_of(3)).is_err());
    assert!(before.flush().is_err());
    let mut survived = 0;
    for seed in 0..100 {
        let device = before.fork();
        device.crash(seed);
        assert_eq!(only(&read(&device, 0, 1)), Some(1), "it was flushed");
        assert_eq!(only(&read(&device, 2, 1)), Some(0), "there was no power");
        survived += u32::from(only(&read(&device, 1, 1)) == Some(2));
    }
    assert!((10..90).contains(&survived), "{survived}");
}

#[test]
fn what_was_asked_is_told() {
    let device = device();
    device.write_at(BLOCK, &blocks_of(1, 2)).unwrap();
    device.flush().unwrap();
    read(&device, 1, 1);
    let operation = |kind, at, len| Operation { kind, at, len };
    let expected = [
        operation(OperationKind::Write, BLOCK, 2 * BLOCK),
        operation(OperationKind::Flush, 0, 0),
        operation(OperationKind::Read, BLOCK, BLOCK),
    ];
    assert_eq!(device.take_operations(), expected);
    assert_eq!(device.take_operations(), []);
}

#[test]
#[should_panic(expected = "is under way")]
fn a_read_of_what_is_being_written_panics() {
    let device = device();
    let _write = device.begin(OperationKind::Write, 0, 2 * BLOCK as usize);
    read(&device, 1, 1);
}

#[test]
#[should_panic(expected = "is under way")]
fn two_writes_at_one_place_panic() {
    let device = device();
    let _write = device.begin(OperationKind::Write, 0, BLOCK as usize);
    let _ = device.write_at(0, &block_of(1));
}

/// A flush covers what had returned when it began.
#[test]
fn a_write_during_a_flush_is_not_flushed_by_it() {
    let device = device();
    let flush = device.begin(OperationKind::Flush, 0, 0);
    device.write_at(0, &block_of(1)).unwrap();
    device.lock().medium.flush(flush.written);
    assert_eq!(device.unflushed(), 1);
}
