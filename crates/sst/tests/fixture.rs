//! Tables in memory, models of them, and assertions that compare the two.

use bytes::Bytes;
use sst::{Cache, Cursor, Options, Result, Sorted, Source, Table, Writer};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options with blocks so small that a few thousand entries fill many blocks and several partitions.
pub(crate) const SMALL: Options = Options { block_bytes: 48, restart_interval: 3, filter_bits_per_key: 10 };

/// Builds a table with these entries and returns its bytes.
pub(crate) fn build(model: &Model, options: Options) -> Bytes {
    let mut writer = Writer::new(Vec::new(), options);
    for (key, value) in model {
        writer.add(key, value).unwrap();
    }
    let (bytes, summary) = writer.finish().unwrap();
    assert_eq!(summary.len_bytes, bytes.len() as u64);
    assert_eq!(summary.entries, model.len() as u64);
    assert_eq!(summary.first, model.keys().next().cloned().unwrap_or_default());
    assert_eq!(summary.last, model.keys().next_back().cloned().unwrap_or_default());
    bytes.into()
}

pub(crate) fn open(bytes: Bytes) -> Result<Arc<Table<Bytes>>> {
    Table::open(bytes, 1, Arc::new(Cache::new(1 << 20))).map(Arc::new)
}

pub(crate) fn table(model: &Model, options: Options) -> Arc<Table<Bytes>> {
    open(build(model, options)).unwrap()
}

/// Returns `count` entries whose keys have a long common prefix.
pub(crate) fn numbered_model(count: usize) -> Model {
    let entry = |number| (format!("bucket/key-{number:07}").into_bytes(), vec![number as u8; number % 50]);
    (0..count).map(entry).collect()
}

/// Collects all remaining entries.
pub(crate) fn collect_rest(sorted: &mut impl Sorted) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Vec::new();
    while sorted.advance()? {
        entries.push((sorted.key().to_vec(), sorted.value().to_vec()));
    }
    Ok(entries)
}

pub(crate) fn scan_from<S: Source>(table: &Arc<Table<S>>, from: Bound<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor: Cursor<S> = table.scan(from);
    collect_rest(&mut cursor).unwrap()
}

/// Returns the model's entries from a bound on.
pub(crate) fn expected(model: &Model, from: Bound<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let range = model.range::<[u8], _>((from, Bound::Unbounded));
    range.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Asserts that the table answers as the model does, for keys that it holds and for their neighbours.
pub(crate) fn assert_same<S: Source>(table: &Arc<Table<S>>, model: &Model) {
    table.verify().unwrap();
    assert_eq!(table.entries(), model.len() as u64);
    assert_eq!(scan_from(table, Bound::Unbounded), expected(model, Bound::Unbounded));
    for (key, value) in model {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]), "{}", key.escape_ascii());
        assert!(table.may_hold(key).unwrap());
        for neighbour in neighbours(key) {
            let found = table.get(&neighbour).unwrap();
            assert_eq!(found.as_deref(), model.get(&neighbour).map(|value| &value[..]));
        }
    }
}

/// Returns keys just before and just after `key`.
pub(crate) fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
    let longer = [key, &[0]].concat();
    let Some((last, shorter)) = key.split_last() else { return vec![longer] };
    let with_last = |last: u8| [shorter, &[last]].concat();
    vec![longer, shorter.to_vec(), with_last(last.wrapping_add(1)), with_last(last.wrapping_sub(1))]
}
