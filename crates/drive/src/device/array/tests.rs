//! Conformance of arrays over files, by rings and by threads.

use super::*;
use crate::device::{BLOCK_BYTES, FileDevice, conformance};
use std::path::Path;
use store::Entropy;

fn files(folder: &Path, count: usize, by_ring: bool) -> Vec<(String, Io)> {
    let each_bytes = conformance::LEN_BYTES_MIN + ROWS_AT;
    let device = |n: usize| {
        let path = folder.join(n.to_string());
        let device =
            if path.exists() { FileDevice::open(&path) } else { FileDevice::create(&path, each_bytes) };
        let device = device.unwrap();
        let io = if by_ring { Io::open(device) } else { Arc::new(device).into() };
        (n.to_string(), io)
    };
    (0..count).map(device).collect()
}

#[test]
fn an_array_conforms() {
    for (data, parity, by_ring) in [(1, 1, true), (2, 0, true), (3, 1, false), (4, 2, true), (12, 4, true)] {
        let (folder, shape) = (tempfile::tempdir().unwrap(), Shape { data, parity });
        Array::format(files(folder.path(), shape.members(), by_ring), shape, &Entropy::new(5)).unwrap();
        conformance::run(&Found::look(files(folder.path(), shape.members(), by_ring)).open(false).unwrap());
        let left = files(folder.path(), shape.members(), by_ring).into_iter().skip(parity);
        println!("and without {parity} of {shape:?}");
        conformance::run(&Found::look(left).open(false).unwrap());
    }
}

/// Async calls by rings and by threads, with and without missing members, read what they wrote.
#[tokio::test(flavor = "multi_thread")]
async fn async_reads_return_what_was_written() {
    let (folder, shape) = (tempfile::tempdir().unwrap(), Shape { data: 4, parity: 2 });
    Array::format(files(folder.path(), 6, true), shape, &Entropy::new(5)).unwrap();
    let words = 1_u64..=5 * shape.row_bytes() * 16;
    let written: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    for (by_ring, skipped) in [(true, 0), (false, 0), (true, 1), (false, 2)] {
        let left = files(folder.path(), 6, by_ring).into_iter().skip(skipped);
        let io = Io::Array(Arc::new(Found::look(left).open(false).unwrap()));
        let at = 3 * shape.row_bytes();
        io.write(at, &[Bytes::from(Buffer::gathered([&written[..]]))]).await.unwrap();
        io.flush().await.unwrap();
        for (first, blocks) in [(0, 1), (5, 2), (0, written.len() / UNIT_BYTES), (33, 300)] {
            let read =
                io.read(at + first as u64 * BLOCK_BYTES, Buffer::zeroed(blocks * UNIT_BYTES)).await.unwrap();
            assert!(
                *read == written[first * UNIT_BYTES..(first + blocks) * UNIT_BYTES],
                "{blocks} at {first}"
            );
        }
    }
}

/// A task that made more than 128 blocking reads in a row never returned: `tenon drive rebuild`, which scrubs in its main task, ran
/// for ever.
#[tokio::test]
async fn a_task_may_block_on_an_array_any_number_of_times() {
    let (folder, shape) = (tempfile::tempdir().unwrap(), Shape { data: 1, parity: 1 });
    Array::format(files(folder.path(), 2, true), shape, &Entropy::new(5)).unwrap();
    let array = Found::look(files(folder.path(), 2, true)).open(false).unwrap();
    let mut block = [1; BLOCK_BYTES as usize];
    for _ in 0..1000 {
        array.read_at(0, &mut block).unwrap();
    }
    assert_eq!(block, [0; BLOCK_BYTES as usize]);
}
