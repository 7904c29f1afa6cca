//! Arrays: reads while members are missing, damaged or stale, repair, and rebuild.

use crate::fixture::{LENGTHS, body, fill, key};
use bytes::Bytes;
use drive::device::{Array, BLOCK_BYTES, BlockDevice, Buffer, Found, Io, MemberState, Shape};
use drive::{Drive, Error, FormatOptions, OpenOptions};
use futures_util::TryStreamExt as _;
use sim::device::SimDevice;
use std::sync::Arc;
use store::conformance::Capabilities;
use store::{Buckets, Entropy, GetOptions, ObjectStore, PutOptions, SystemClock};

const MIB: u64 = 1 << 20;

pub(crate) fn named(devices: &[SimDevice], which: impl IntoIterator<Item = usize>) -> Vec<(String, Io)> {
    which.into_iter().map(|n| (format!("dev{n}"), Arc::new(devices[n].clone()).into())).collect()
}

/// Returns new devices, formatted as an array.
pub(crate) fn formatted(data: usize, parity: usize, each_bytes: u64) -> Vec<SimDevice> {
    let devices: Vec<SimDevice> = (0..data + parity).map(|_| SimDevice::new(each_bytes)).collect();
    let all = named(&devices, 0..devices.len());
    Array::format(all, Shape { data, parity }, &Entropy::new(5)).unwrap();
    devices
}

pub(crate) fn open(devices: &[SimDevice], which: impl IntoIterator<Item = usize>) -> drive::Result<Array> {
    Found::look(named(devices, which)).open(false)
}

fn pattern(array: &Array, seed: u64, rows: u64) -> Vec<u8> {
    let words = rows * array.row_bytes() / 8;
    (0..words).flat_map(|n| (seed << 32 ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect()
}

fn assert_holds(array: &Array, row: u64, expected: &[u8]) {
    let mut seen = Buffer::zeroed(expected.len());
    array.read_at(row * array.row_bytes(), &mut seen).unwrap();
    assert!(*seen == *expected, "rows from {row} on have wrong bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_on_an_array_conforms() {
    let bucket = || async {
        let drive = drive_on(&formatted(3, 2, 80 * MIB), 0..5, true)?;
        drive.create("tests").await?;
        Buckets::open(&drive, "tests").await
    };
    store::conformance::run(bucket, Capabilities::ALL).await.unwrap();
}

/// Reads each block alone and together with others, for every pair of missing members.
#[test]
fn every_range_is_read_without_any_two_of_six() {
    let devices = formatted(4, 2, 2 * MIB);
    let array = open(&devices, 0..6).unwrap();
    let written = pattern(&array, 1, 20);
    array.write_at(5 * array.row_bytes(), &written).unwrap();
    array.flush().unwrap();
    drop(array);
    for one in 0..6 {
        for other in one + 1..6 {
            let devices: Vec<SimDevice> = devices.iter().map(SimDevice::fork).collect();
            let array = open(&devices, (0..6).filter(|&n| n != one && n != other)).unwrap();
            assert_holds(&array, 5, &written);
            for (first, blocks) in [(0, 1), (1, 1), (3, 2), (7, 9), (79, 1)] {
                let range = first * BLOCK_BYTES as usize..(first + blocks) * BLOCK_BYTES as usize;
                let mut seen = Buffer::zeroed(range.len());
                array.read_at(5 * array.row_bytes() + range.start as u64, &mut seen).unwrap();
                assert!(*seen == written[range], "{one} {other}: {blocks} blocks at {first}");
            }
        }
    }
}

#[test]
fn s305_too_many_missing_devices_are_an_error_that_names_them() {
    let devices = formatted(4, 2, 2 * MIB);
    let error = open(&devices, [0, 3, 5]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "too few devices of the array: 4 of 6 are needed, but 3 are present and in sync; missing: member 1, 2, 4"
    );
    drop(open(&devices, 0..6).unwrap());
    drop(open(&devices, 0..5).unwrap());
    let error = open(&devices, [0, 1, 2, 5]).unwrap_err();
    assert!(
        error.to_string().ends_with("missing: member 3, 4; excluded because they missed writes: dev5"),
        "{error}"
    );
}

/// A device that failed once lacks later writes, and its own label does not say so.
#[test]
fn s306_a_device_that_missed_a_write_is_not_read_until_it_is_rebuilt() {
    for fails_at_flush in [false, true] {
        let devices = formatted(2, 1, 2 * MIB);
        let array = open(&devices, 0..3).unwrap();
        array.write_at(0, &pattern(&array, 1, 4)).unwrap();
        array.flush().unwrap();
        if !fails_at_flush {
            devices[1].break_down();
        }
        array.write_at(0, &pattern(&array, 2, 4)).unwrap();
        if fails_at_flush {
            devices[1].break_down();
        }
        array.flush().unwrap();
        devices[1].heal();
        devices.iter().for_each(|device| device.crash(3));
        assert_holds(&array, 0, &pattern(&array, 2, 4));
        let expected = pattern(&array, 2, 4);
        assert_eq!(array.member_states()[1], MemberState::Stale("dev1".into()));
        drop(array);
        let found = Found::look(named(&devices, [2, 1, 0]));
        assert_eq!(found.info().unwrap().members[1], MemberState::Stale("dev1".into()));
        let array = found.open(false).unwrap();
        assert_holds(&array, 0, &expected);
        drop(array);
        assert!(
            open(&devices, [0, 1])
                .unwrap_err()
                .to_string()
                .contains("excluded because they missed writes: dev1")
        );
        let array = Arc::new(open(&devices, 0..3).unwrap());
        // Regression: an open array reported a stale member as missing.
        assert_eq!(array.member_states()[1], MemberState::Stale("dev1".into()));
        let back: Io = Arc::new(devices[1].clone()).into();
        assert!(array.was_member(&back));
        assert_eq!(array.rebuild("dev1".into(), &back, &Entropy::new(8), |_, _| ()).unwrap().member, 1);
        assert_eq!(array.member_states()[1], MemberState::InSync("dev1".into()));
        drop(array);
        assert_holds(&open(&devices, [1, 2]).unwrap(), 0, &expected);
    }
}

/// The labels of the other members are written one by one. Whichever of them a power cut prevents, acknowledged writes are there.
#[test]
fn power_cuts_while_labels_are_written() {
    for operations in 0..40 {
        let devices = formatted(2, 2, 2 * MIB);
        let array = open(&devices, 0..4).unwrap();
        let (before, after) = (pattern(&array, 1, 2), pattern(&array, 2, 2));
        array.write_at(0, &before).unwrap();
        array.flush().unwrap();
        devices[0].break_down();
        for (n, device) in devices.iter().enumerate().skip(1) {
            device.cut_power_after((operations * (n as u64 + 1)) / 3);
        }
        let acknowledged = array.write_at(array.row_bytes() * 4, &after).and_then(|()| array.flush()).is_ok();
        drop(array);
        devices.iter().for_each(SimDevice::heal);
        devices.iter().enumerate().for_each(|(n, device)| device.crash(operations * 7 + n as u64));
        for which in [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]] {
            let devices: Vec<SimDevice> = devices.iter().map(SimDevice::fork).collect();
            let Ok(array) = open(&devices, which) else { continue };
            assert_holds(&array, 0, &before);
            if acknowledged {
                assert_holds(&array, 4, &after);
            }
        }
        let array = open(&devices, 0..4).unwrap();
        assert_holds(&array, 0, &before);
    }
}

#[test]
fn s309_an_interrupted_rebuild_is_started_again() {
    let devices = formatted(3, 2, 4 * MIB);
    let array = open(&devices, 0..5).unwrap();
    let written = pattern(&array, 1, 100);
    array.write_at(0, &written).unwrap();
    array.flush().unwrap();
    drop(array);
    let with_new: Vec<SimDevice> =
        devices.iter().cloned().chain([SimDevice::new(4 * MIB), SimDevice::new(3 * MIB)]).collect();
    let rebuild = |device: usize| {
        let array = Arc::new(open(&with_new, [0, 2, 3]).unwrap());
        let new: Io = Arc::new(with_new[device].clone()).into();
        array.rebuild("new".into(), &new, &Entropy::new(device as u64), |_, _| ())
    };
    assert!(rebuild(6).unwrap_err().to_string().contains("but a member of the array needs"), "too short");
    for operations in 0..20 {
        with_new[5].cut_power_after(operations);
        let is_done = rebuild(5).is_ok();
        with_new[5].crash(operations);
        if is_done {
            break;
        }
        let array = open(&with_new, [5, 0, 2, 3]).unwrap();
        assert_holds(&array, 0, &written);
    }
    let array = open(&with_new, [5, 2, 3]).unwrap();
    assert_holds(&array, 0, &written);
    assert_eq!(
        Found::look(named(&with_new, [0, 2, 3, 5])).info().unwrap().members[1],
        MemberState::InSync("dev5".into())
    );
    // The replaced device is not taken for its replacement.
    assert!(open(&with_new, [1, 2, 3]).is_err());
}

/// A rebuild made a current member the replacement of another member, and so lost the data that the device had as itself.
#[test]
fn s532_a_member_is_not_rebuilt_into_the_place_of_another() {
    let devices = formatted(1, 2, 2 * MIB);
    let array = Arc::new(open(&devices, [0, 1]).unwrap());
    let written = pattern(&array, 1, 4);
    array.write_at(0, &written).unwrap();
    for device in [&devices[1], &devices[1].fork()] {
        let member: Io = Arc::new(device.clone()).into();
        let refused = array.rebuild("dev1".into(), &member, &Entropy::new(8), |_, _| ()).unwrap_err();
        assert!(refused.to_string().contains("is a member of the array"), "{refused}");
    }
    array.flush().unwrap();
    drop(array);
    assert_holds(&open(&devices, [1]).unwrap(), 0, &written);
}

/// A member whose label could not be read for a moment was made the replacement of another member (world of arrays 76008297).
#[test]
fn a_device_whose_label_cannot_be_read_is_not_rebuilt() {
    let devices = formatted(1, 2, 2 * MIB);
    let array = Arc::new(open(&devices, [0, 1]).unwrap());
    devices[1].fail_reads(0..MIB);
    let member: Io = Arc::new(devices[1].clone()).into();
    let refused = array.rebuild("another name".into(), &member, &Entropy::new(8), |_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("its label cannot be read"), "{refused}");
    devices[1].heal();
    array.flush().unwrap();
}

#[test]
fn s310_devices_of_two_arrays_and_copies_are_refused() {
    let devices = formatted(2, 1, 2 * MIB);
    let others: Vec<SimDevice> = (0..3).map(|_| SimDevice::new(2 * MIB)).collect();
    Array::format(named(&others, 0..3), Shape { data: 2, parity: 1 }, &Entropy::new(6)).unwrap();
    let mixed = [devices[0].clone(), devices[1].clone(), others[2].clone(), devices[0].fork()];
    assert!(open(&mixed, [0, 1, 2]).unwrap_err().to_string().contains("belongs to another array"));
    assert!(open(&mixed, [0, 1, 3]).unwrap_err().to_string().contains("remove the copy"));
    assert!(matches!(open(&[SimDevice::new(2 * MIB)], [0]).unwrap_err(), Error::Foreign(_)));
}

/// Each half of a mirror was used without the other, so neither has all writes.
#[test]
fn s310_halves_used_separately_are_refused_together() {
    let devices = formatted(1, 1, 2 * MIB);
    drop(open(&devices, [0]).unwrap());
    drop(open(&devices, [1]).unwrap());
    let error = open(&devices, [0, 1]).unwrap_err();
    assert!(error.to_string().contains("used separately"), "{error}");
    // As the error advises: name one half, rebuild the other, then name both.
    let array = Arc::new(open(&devices, [0]).unwrap());
    let other: Io = Arc::new(devices[1].clone()).into();
    array.rebuild("dev1".into(), &other, &Entropy::new(8), |_, _| ()).unwrap();
    drop(array);
    assert_eq!(open(&devices, [0, 1]).unwrap().losses_left(), 1);
}

/// A power cut during the opening of a mirror left one half with a label of a new epoch that the other did not get. Then the other half was
/// used alone. Both together were refused as used separately or, after two such openings, the stale half was read.
#[test]
fn s310_an_opening_interrupted_by_a_power_cut_has_no_effect() {
    for (data, parity) in [(1, 1), (2, 1), (1, 2)] {
        let count = data + parity;
        for seed in 0..200 {
            let entropy = Entropy::new(seed);
            let first = SimDevice::new(2 * MIB);
            let others = (1..count).map(|_| first.beside(2 * MIB));
            let devices: Vec<SimDevice> = std::iter::once(first.clone()).chain(others).collect();
            Array::format(named(&devices, 0..count), Shape { data, parity }, &entropy).unwrap();
            for _ in 0..1 + entropy.below(3) {
                devices[0].cut_power_after(entropy.below(6 * count as u64));
                drop(open(&devices, 0..count));
                devices.iter().for_each(|device| device.crash(entropy.next_u64()));
            }
            let absent = entropy.below(count as u64) as usize;
            let array = open(&devices, (0..count).filter(|&n| n != absent)).unwrap();
            let written = pattern(&array, seed, 4);
            array.write_at(0, &written).unwrap();
            array.flush().unwrap();
            drop(array);
            let found = Found::look(named(&devices, 0..count));
            assert_eq!(found.info().unwrap().members[absent], MemberState::Stale(format!("dev{absent}")));
            assert_holds(&found.open(false).unwrap(), 0, &written);
        }
    }
}

// Arrays with a drive.

pub(crate) fn drive_on(
    devices: &[SimDevice],
    which: impl IntoIterator<Item = usize>,
    is_new: bool,
) -> drive::Result<Drive> {
    let array = Arc::new(open(devices, which)?);
    if is_new {
        let device: Arc<dyn BlockDevice> = array.clone();
        Drive::format(&device, FormatOptions::default(), &Entropy::new(7))?;
    }
    Drive::open(
        Io::Array(array),
        OpenOptions { index_bytes: 4 << 10, ..OpenOptions::default() },
        Arc::new(SystemClock),
    )
}

/// Returns an array with a drive, with objects of every kind of body in tables and in the log.
pub(crate) async fn filled(data: usize, parity: usize) -> Vec<SimDevice> {
    let devices = formatted(data, parity, 33 * MIB);
    let drive = drive_on(&devices, 0..data + parity, true).unwrap();
    fill(&drive).await;
    devices
}

pub(crate) async fn assert_all_there(drive: &Drive) {
    let store = Buckets::open(drive, "photos").await.unwrap();
    for number in 0..LENGTHS.len() {
        let object = store.get(&key(number), GetOptions::default()).await.unwrap();
        let pieces: Vec<Bytes> = object.body.try_collect().await.unwrap();
        assert!(pieces.concat() == body(number), "object {number} has wrong bytes");
    }
}

/// A device returns wrong bytes without an error: checksums find them, and the data is computed from the other devices.
#[tokio::test]
async fn s307_wrong_bytes_of_one_device_are_computed_from_the_others_and_repaired() {
    let devices = filled(3, 1).await;
    for damaged in 0..4 {
        let devices: Vec<SimDevice> = devices.iter().map(SimDevice::fork).collect();
        for seed in 0..400 {
            devices[damaged].flip(seed, MIB..33 * MIB);
        }
        // All units in use at once.
        let zeros = Buffer::zeroed(BLOCK_BYTES as usize * 16);
        for at in (MIB..33 * MIB - zeros.len() as u64).step_by(zeros.len() * 2) {
            devices[damaged].write_at(at, &zeros).unwrap();
        }
        let drive = drive_on(&devices, [2, 0, 3, 1], false).unwrap();
        assert_all_there(&drive).await;
        let scrubbed = drive.scrub(|_| ()).await.unwrap();
        assert_eq!(scrubbed.damaged, Vec::<String>::new(), "{damaged}");
        assert!(scrubbed.repaired > 0, "{damaged}");
        assert!(drive.check().await.unwrap().problems.is_empty());
        drop(drive);
        // Another device is lost, so the repaired units are needed.
        let drive = drive_on(&devices, (0..4).filter(|&n| n != (damaged + 1) % 4), false).unwrap();
        assert_all_there(&drive).await;
        assert_eq!(drive.scrub(|_| ()).await.unwrap().damaged, Vec::<String>::new());
    }
}

#[tokio::test]
async fn s308_a_device_that_fails_while_the_drive_is_used_is_not_noticed() {
    let devices = filled(4, 2).await;
    let drive = drive_on(&devices, 0..6, false).unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    for (n, broken) in [4, 1].into_iter().enumerate() {
        devices[broken].break_down();
        store.put(&key(n), body(n).into(), PutOptions::default()).await.unwrap();
        store.put(&key(5), body(5).into(), PutOptions::default()).await.unwrap();
        assert_all_there(&drive).await;
        drive.close().await.unwrap();
    }
    devices[0].break_down();
    assert!(store.put(&key(1), body(1).into(), PutOptions::default()).await.is_err());
    drop((store, drive));
    for n in [0, 1, 4] {
        devices[n].heal();
        devices[n].crash(n as u64);
    }
    assert_all_there(&drive_on(&devices, [5, 4, 3, 2, 1, 0], false).unwrap()).await;
}

#[tokio::test]
async fn damage_on_two_devices_is_reported() {
    let devices = filled(3, 1).await;
    for device in &devices[..2] {
        for at in (2 * MIB..10 * MIB).step_by(BLOCK_BYTES as usize) {
            device.write_at(at, &Buffer::zeroed(BLOCK_BYTES as usize)).unwrap();
        }
    }
    match drive_on(&devices, 0..4, false) {
        Err(error) => assert!(error.to_string().starts_with("damaged"), "{error}"),
        Ok(drive) => assert!(!drive.scrub(|_| ()).await.unwrap().damaged.is_empty()),
    }
}
