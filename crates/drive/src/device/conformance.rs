//! One suite for every device: what callers may rely on, one behaviour per case.

use super::{BLOCK_BYTES, BlockDevice, Buffer};
use std::io;
use std::thread;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The least length of a device under test, in bytes.
pub const LEN_BYTES_MIN: u64 = 8 << 20;

/// A case: its name, and what it asks of a device whose bytes are its own.
type Case = (&'static str, fn(&dyn BlockDevice));

const CASES: &[Case] = &[
    ("what is written is read", what_is_written_is_read),
    ("a later write wins", a_later_write_wins),
    ("neighbours stay", neighbours_stay),
    ("the first and the last block", the_first_and_the_last_block),
    ("large and unaligned memory", large_and_unaligned_memory),
    ("nothing is a range too", nothing_is_a_range_too),
    ("beyond the end", beyond_the_end),
    ("broken blocks", broken_blocks),
    ("several at once", several_at_once),
];

/// Runs every case on a device of at least [`LEN_BYTES_MIN`], whose bytes are lost. Panics at what is wrong.
pub fn run(device: &dyn BlockDevice) {
    assert!(device.len_bytes() >= LEN_BYTES_MIN && device.len_bytes().is_multiple_of(BLOCK_BYTES));
    for (name, case) in CASES {
        println!("{name}");
        case(device);
        assert!(device.flush().is_ok(), "{name}: flush");
    }
}

fn what_is_written_is_read(device: &dyn BlockDevice) {
    let written = pattern(1, 3);
    write(device, 5, &written);
    assert_holds(device, 5, &written);
    assert!(device.flush().is_ok());
    assert_holds(device, 5, &written);
    assert_holds(device, 6, &written[BLOCK..2 * BLOCK]);
}

fn a_later_write_wins(device: &dyn BlockDevice) {
    write(device, 10, &pattern(2, 4));
    let later = pattern(3, 2);
    write(device, 11, &later);
    assert_holds(device, 11, &later);
    assert_holds(device, 10, &pattern(2, 4)[..BLOCK]);
}

fn neighbours_stay(device: &dyn BlockDevice) {
    let (before, after) = (pattern(4, 1), pattern(5, 1));
    write(device, 20, &before);
    write(device, 22, &after);
    write(device, 21, &pattern(6, 1));
    assert_holds(device, 20, &before);
    assert_holds(device, 22, &after);
}

fn the_first_and_the_last_block(device: &dyn BlockDevice) {
    let last = device.len_bytes() / BLOCK_BYTES - 1;
    for (seed, block) in [(7, 0), (8, last)] {
        let written = pattern(seed, 1);
        write(device, block, &written);
        assert_holds(device, block, &written);
    }
}

/// Memory of any alignment is taken: what stands in the middle of a caller's vector, or in `Bytes` from a socket.
fn large_and_unaligned_memory(device: &dyn BlockDevice) {
    let blocks = 600;
    let written = [&[0][..], &*pattern(9, blocks)].concat();
    write(device, 30, &written[1..]);
    let mut seen = vec![0; written.len()];
    let done = device.read_at(30 * BLOCK_BYTES, &mut seen[1..]);
    assert!(done.is_ok(), "{done:?}");
    assert!(seen == written, "unaligned memory holds something else");
    assert_holds(device, 30, &written[1..]);
}

fn nothing_is_a_range_too(device: &dyn BlockDevice) {
    for at in [0, BLOCK_BYTES, device.len_bytes()] {
        assert!(device.read_at(at, &mut []).is_ok());
        assert!(device.write_at(at, &[]).is_ok());
    }
}

fn beyond_the_end(device: &dyn BlockDevice) {
    let last = device.len_bytes() - BLOCK_BYTES;
    let kept = pattern(10, 1);
    write(device, last / BLOCK_BYTES, &kept);
    for at in [last, device.len_bytes(), u64::MAX - BLOCK_BYTES + 1] {
        let read = device.read_at(at, &mut Buffer::zeroed(2 * BLOCK));
        assert_eq!(kind(read), Some(io::ErrorKind::UnexpectedEof), "a read at {at}");
        let written = device.write_at(at, &pattern(11, 2));
        assert_eq!(kind(written), Some(io::ErrorKind::StorageFull), "a write at {at}");
    }
    assert_holds(device, last / BLOCK_BYTES, &kept);
}

/// Whoever asks for something else than whole blocks has miscounted: better to stop than to go on.
fn broken_blocks(device: &dyn BlockDevice) {
    let panics = |what: &(dyn Fn() + Sync)| {
        let outcome = thread::scope(|scope| scope.spawn(what).join());
        assert!(outcome.is_err(), "broken blocks are taken");
    };
    panics(&|| drop(device.read_at(512, &mut Buffer::zeroed(BLOCK))));
    panics(&|| drop(device.read_at(0, &mut [0; 512])));
    panics(&|| drop(device.write_at(100, &pattern(12, 1))));
    panics(&|| drop(device.write_at(0, &[0; BLOCK + 1])));
}

fn several_at_once(device: &dyn BlockDevice) {
    let each = 16;
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for round in 0..each {
                    let block = 700 + writer * each + round;
                    write(device, block, &pattern(block, 1));
                    assert!(device.flush().is_ok());
                    assert_holds(device, block, &pattern(block, 1));
                }
            });
        }
    });
    for block in 700..700 + 4 * each {
        assert_holds(device, block, &pattern(block, 1));
    }
}

fn write(device: &dyn BlockDevice, block: u64, from: &[u8]) {
    let done = device.write_at(block * BLOCK_BYTES, from);
    assert!(done.is_ok(), "writing {} bytes at block {block}: {done:?}", from.len());
}

fn assert_holds(device: &dyn BlockDevice, block: u64, expected: &[u8]) {
    let mut seen = Buffer::zeroed(expected.len());
    let done = device.read_at(block * BLOCK_BYTES, &mut seen);
    assert!(done.is_ok(), "reading {} bytes at block {block}: {done:?}", expected.len());
    assert!(*seen == *expected, "block {block} or one behind it holds something else");
}

fn kind(outcome: io::Result<()>) -> Option<io::ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// Blocks of bytes that tell one seed and place from another.
fn pattern(seed: u64, blocks: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(blocks * BLOCK);
    for (n, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed << 32 | n as u64).to_le_bytes());
    }
    buffer
}
