//! Conformance suite for devices: one case for each behaviour that callers rely on.

use super::{BLOCK_BYTES, BlockDevice, Buffer};
use std::io;
use std::thread;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The least length of a device under test, in bytes, if its rows are blocks. With longer rows, as many rows.
pub const LEN_BYTES_MIN: u64 = 8 << 20;

/// A case: its name, and a test of a device whose contents may be overwritten.
type Case = (&'static str, fn(&dyn BlockDevice));

const CASES: &[Case] = &[
    ("a read returns what was written", a_read_returns_what_was_written),
    ("a later write wins", a_later_write_wins),
    ("neighbours are unchanged", neighbours_are_unchanged),
    ("the first and the last block", the_first_and_the_last_block),
    ("large and unaligned memory", large_and_unaligned_memory),
    ("an empty range is valid", an_empty_range_is_valid),
    ("beyond the end", beyond_the_end),
    ("partial blocks panic", partial_blocks_panic),
    ("several at once", several_at_once),
];

/// Runs every case on a device of at least [`LEN_BYTES_MIN`], whose contents are lost. Panics on a violation.
pub fn run(device: &dyn BlockDevice) {
    let row_bytes = device.row_bytes();
    assert!(device.len_bytes() / row_bytes >= LEN_BYTES_MIN / BLOCK_BYTES, "the device is too short");
    assert!(device.len_bytes().is_multiple_of(row_bytes) && row_bytes.is_multiple_of(BLOCK_BYTES));
    for (name, case) in CASES {
        println!("{name}");
        case(device);
        assert!(device.flush().is_ok(), "{name}: flush");
    }
}

fn a_read_returns_what_was_written(device: &dyn BlockDevice) {
    let written = pattern(device, 1, 3);
    write(device, 5, &written);
    assert_holds(device, 5, &written);
    assert!(device.flush().is_ok());
    assert_holds(device, 5, &written);
    assert_holds(device, 6, &written[row(device)..2 * row(device)]);
}

fn a_later_write_wins(device: &dyn BlockDevice) {
    write(device, 10, &pattern(device, 2, 4));
    let later = pattern(device, 3, 2);
    write(device, 11, &later);
    assert_holds(device, 11, &later);
    assert_holds(device, 10, &pattern(device, 2, 4)[..row(device)]);
}

fn neighbours_are_unchanged(device: &dyn BlockDevice) {
    let (before, after) = (pattern(device, 4, 1), pattern(device, 5, 1));
    write(device, 20, &before);
    write(device, 22, &after);
    write(device, 21, &pattern(device, 6, 1));
    assert_holds(device, 20, &before);
    assert_holds(device, 22, &after);
}

fn the_first_and_the_last_block(device: &dyn BlockDevice) {
    let last = device.len_bytes() / device.row_bytes() - 1;
    for (seed, at) in [(7, 0), (8, last)] {
        let written = pattern(device, seed, 1);
        write(device, at, &written);
        assert_holds(device, at, &written);
    }
}

/// Memory of any alignment is accepted, such as the middle of a vector, or `Bytes` from a socket.
fn large_and_unaligned_memory(device: &dyn BlockDevice) {
    let written = [&[0][..], &*pattern(device, 9, 600)].concat();
    write(device, 30, &written[1..]);
    let mut seen = vec![0; written.len()];
    let done = device.read_at(30 * device.row_bytes(), &mut seen[1..]);
    assert!(done.is_ok(), "{done:?}");
    assert!(seen == written, "unaligned memory has wrong contents");
    assert_holds(device, 30, &written[1..]);
}

fn an_empty_range_is_valid(device: &dyn BlockDevice) {
    for at in [0, device.row_bytes(), device.len_bytes()] {
        assert!(device.read_at(at, &mut []).is_ok());
        assert!(device.write_at(at, &[]).is_ok());
    }
}

fn beyond_the_end(device: &dyn BlockDevice) {
    let row_bytes = device.row_bytes();
    let last = device.len_bytes() - row_bytes;
    let kept = pattern(device, 10, 1);
    write(device, last / row_bytes, &kept);
    for at in [last, device.len_bytes(), u64::MAX / row_bytes * row_bytes] {
        let read = device.read_at(at, &mut Buffer::zeroed(2 * row(device)));
        assert_eq!(kind(read), Some(io::ErrorKind::UnexpectedEof), "a read at {at}");
        let written = device.write_at(at, &pattern(device, 11, 2));
        assert_eq!(kind(written), Some(io::ErrorKind::StorageFull), "a write at {at}");
    }
    assert_holds(device, last / row_bytes, &kept);
}

/// A range that is not whole blocks is a bug of the caller, so devices panic.
fn partial_blocks_panic(device: &dyn BlockDevice) {
    let panics = |what: &(dyn Fn() + Sync)| {
        let outcome = thread::scope(|scope| scope.spawn(what).join());
        assert!(outcome.is_err(), "a range that is not whole blocks was accepted");
    };
    panics(&|| drop(device.read_at(512, &mut Buffer::zeroed(BLOCK))));
    panics(&|| drop(device.read_at(0, &mut [0; 512])));
    panics(&|| drop(device.write_at(100, &pattern(device, 12, 1))));
    panics(&|| drop(device.write_at(0, &vec![0; row(device) + 1])));
    if row(device) > BLOCK {
        panics(&|| drop(device.write_at(BLOCK_BYTES, &pattern(device, 13, 1))));
        panics(&|| drop(device.write_at(0, &Buffer::zeroed(BLOCK))));
    }
}

fn several_at_once(device: &dyn BlockDevice) {
    let each = 16;
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for round in 0..each {
                    let block = 700 + writer * each + round;
                    write(device, block, &pattern(device, block, 1));
                    assert!(device.flush().is_ok());
                    assert_holds(device, block, &pattern(device, block, 1));
                }
            });
        }
    });
    for block in 700..700 + 4 * each {
        assert_holds(device, block, &pattern(device, block, 1));
    }
}

/// Returns the row size, in bytes.
fn row(device: &dyn BlockDevice) -> usize {
    device.row_bytes() as usize
}

fn write(device: &dyn BlockDevice, at: u64, from: &[u8]) {
    let done = device.write_at(at * device.row_bytes(), from);
    assert!(done.is_ok(), "writing {} bytes at row {at}: {done:?}", from.len());
}

fn assert_holds(device: &dyn BlockDevice, at: u64, expected: &[u8]) {
    let mut seen = Buffer::zeroed(expected.len());
    let done = device.read_at(at * device.row_bytes(), &mut seen);
    assert!(done.is_ok(), "reading {} bytes at row {at}: {done:?}", expected.len());
    assert!(*seen == *expected, "rows from {at} on have wrong contents");
}

fn kind(outcome: io::Result<()>) -> Option<io::ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// Returns rows of bytes that differ for each seed and position.
fn pattern(device: &dyn BlockDevice, seed: u64, rows: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(rows * row(device));
    for (n, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed << 32 | n as u64).to_le_bytes());
    }
    buffer
}
