//! Fuzz targets for the crate `fuzz`. For any input, nothing panics and keys ascend. A table that passes `verify`, and a table built
//! from any entries, answers like an ordered map.

use crate::block::{Block, BlockCursor};
use crate::layout::{BlockHandle, Footer, Partition, checksum, u32_at};
use crate::{Cache, Merge, Options, Result, Sorted, Table, Writer};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads the input as a table, once unchanged and once with its checksums made right, as an attacker would.
pub fn table(bytes: &[u8]) {
    read_table(bytes);
    read_table(&with_right_checksums(bytes));
}

/// Reads the input as options and entries, and writes, reads and merges three tables made of them.
pub fn entries(bytes: &[u8]) {
    let Some(([block, restart, bits], mut rest)) = bytes.split_first_chunk() else { return };
    let options = Options {
        block_bytes: usize::from(*block) * 4,
        restart_interval: usize::from(restart % 20),
        filter_bits_per_key: u32::from(bits % 70),
    };
    let mut models = [Model::new(), Model::new(), Model::new()];
    while let Some(([lens, value], after)) = rest.split_first_chunk() {
        let (key, after) = after.split_at(after.len().min(usize::from(lens & 31)));
        let value_bytes = vec![*value; usize::from(*value)];
        models[usize::from(lens >> 5) % 3].insert(key.to_vec(), value_bytes);
        rest = after;
    }
    let tables = models.each_ref().map(|model| {
        let bytes = build(model, options);
        assert_eq!(with_right_checksums(&bytes), bytes, "the checksums of a written table are right");
        expect_sound(open(&bytes))
    });
    for (table, model) in tables.iter().zip(&models) {
        expect_sound(table.verify());
        assert_equal(table, model);
    }
    let mut merged = Merge::new(tables.iter().map(|table| table.scan(Bound::Unbounded)));
    let [newest, newer, mut all] = models;
    all.extend(newer);
    all.extend(newest);
    assert_eq!(expect_sound(collect_rest(&mut merged)), Vec::from_iter(all));
}

/// Returns the value of an operation that cannot fail on a sound table.
fn expect_sound<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("a sound table must be readable: {error}"))
}

fn build(model: &Model, options: Options) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options);
    for (key, value) in model {
        expect_sound(writer.add(key, value));
    }
    expect_sound(writer.finish()).0
}

fn open(bytes: &[u8]) -> Result<Arc<Table<Bytes>>> {
    let cache = Arc::new(Cache::new(1 << 20));
    Table::open(Bytes::copy_from_slice(bytes), 1, cache).map(Arc::new)
}

fn read_table(bytes: &[u8]) {
    let Ok(table) = open(bytes) else { return };
    let mut cursor = table.scan(Bound::Unbounded);
    let mut model = Model::new();
    while let Ok(true) = cursor.advance() {
        assert!(model.last_key_value().is_none_or(|(last, _)| last.as_slice() < cursor.key()), "keys ascend");
        model.insert(cursor.key().to_vec(), cursor.value().to_vec());
    }
    if table.verify().is_ok() {
        return assert_equal(&table, &model);
    }
    for key in model.keys() {
        drop(table.get(key));
        drop(table.scan(Bound::Excluded(key)).advance());
        drop(collect_rest(&mut table.scan_part(Bound::Included(key))));
    }
}

/// Asserts that every way of reading the table returns the entries of the map.
fn assert_equal(table: &Arc<Table<Bytes>>, model: &Model) {
    assert_eq!(table.entries(), model.len() as u64);
    let all = expect_sound(collect_rest(&mut table.scan(Bound::Unbounded)));
    assert_eq!(expect_sound(collect_rest(&mut table.scan_part(Bound::Unbounded))), all);
    assert!(all.iter().map(|(key, value)| (key, value)).eq(model), "a scan returns the entries of the map");
    for key in model.keys() {
        let shorter = &key[..key.len().saturating_sub(1)];
        for key in [key, shorter, &[key, &[0][..]].concat()] {
            let found = expect_sound(table.get(key));
            assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice));
            for from in [Bound::Included(key), Bound::Excluded(key)] {
                let mut cursor = table.scan(from);
                let next = model.range::<[u8], _>((from, Bound::Unbounded)).next();
                assert_eq!(expect_sound(cursor.advance()), next.is_some());
                assert_eq!(cursor.key(), next.map_or(&[][..], |(key, _)| key));
            }
        }
    }
}

fn collect_rest(sorted: &mut impl Sorted) -> Result<Entries> {
    let mut entries = Vec::new();
    while sorted.advance()? {
        entries.push((sorted.key().to_vec(), sorted.value().to_vec()));
    }
    Ok(entries)
}

/// Returns the bytes with every checksum corrected that can be reached from the footer.
fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut table = bytes.to_vec();
    let Some(footer_at) = table.len().checked_sub(Footer::LEN) else { return table };
    let top_len = u32_at(&table, footer_at + 12);
    if let Some(top_at) = footer_at.checked_sub(top_len as usize) {
        for value_at in value_offsets(&table, top_at, footer_at) {
            fix_partition_checksums(&mut table, value_at);
        }
    }
    let len = |at: usize| usize::from(u16::from_le_bytes([table[at], table[at + 1]]));
    let (first_len, last_len) = (len(footer_at + 32), len(footer_at + 34));
    let tail_at = footer_at.saturating_sub(top_len as usize + first_len + last_len);
    let footer = Footer {
        entries: u64::from(u32_at(&table, footer_at + 16)),
        table_len: table.len() as u64,
        first_len: first_len as u16,
        last_len: last_len as u16,
        top_len,
        checksum: checksum(&table[tail_at..footer_at]),
    };
    table[footer_at..].copy_from_slice(&footer.encode());
    table
}

fn fix_partition_checksums(table: &mut [u8], value_at: usize) {
    let Some(partition) = table.get(value_at..value_at + Partition::LEN) else { return };
    let Ok(partition) = Partition::decode(partition, 0) else { return };
    let (index_at, index_end) = (partition.index.at as usize, partition.index.end() as usize);
    for handle_at in value_offsets(table, index_at, index_end) {
        fix_checksum(table, handle_at, handle_at + 12);
    }
    fix_checksum(table, value_at, value_at + 12);
    if let Some(index) = table.get(index_at..index_end) {
        let sum = checksum(index);
        table[value_at + 20..value_at + 24].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Corrects the checksum of the part to which the handle at `handle_at` refers.
fn fix_checksum(table: &mut [u8], handle_at: usize, checksum_at: usize) {
    let Some(handle) = table.get(handle_at..handle_at + BlockHandle::LEN) else { return };
    let Ok(handle) = BlockHandle::decode(handle, 0) else { return };
    let Some(bytes) = table.get(handle.at as usize..handle.end() as usize) else { return };
    let sum = checksum(bytes);
    table[checksum_at..checksum_at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the offsets in the table of the values of a block's entries.
fn value_offsets(table: &[u8], at: usize, end: usize) -> Vec<usize> {
    let bytes = Bytes::copy_from_slice(table.get(at..end).unwrap_or_default());
    let Ok(block) = Block::new(bytes, at as u64) else { return Vec::new() };
    let mut cursor = BlockCursor::new(block);
    let mut found = Vec::new();
    while let Ok(true) = cursor.advance() {
        found.push(at + cursor.value_range().start);
    }
    found
}
