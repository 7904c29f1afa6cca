//! Tables of arbitrary entries answer as an ordered map does.

use crate::fixture::{
    Model, SMALL, assert_same, collect_rest, expected, neighbours, numbered_model, scan_from, table,
};
use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sst::{Merge, Options, Table};
use std::ops::Bound;

/// Generates keys over few distinct bytes, so that they share prefixes; the empty key is among them.
fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0), Just(b'a'), Just(b'b'), Just(255)], 0..12)
}

fn model(len: usize) -> impl Strategy<Value = Model> {
    btree_map(key(), vec(any::<u8>(), 0..200), 0..len)
}

fn options() -> impl Strategy<Value = Options> {
    let make = |(block_bytes, restart_interval, filter_bits_per_key)| Options {
        block_bytes,
        restart_interval,
        filter_bits_per_key,
    };
    (0_usize..2000, 0_usize..20, prop_oneof![Just(0), Just(10), 1_u32..100]).prop_map(make)
}

fn bounds(key: &[u8]) -> [Bound<&[u8]>; 2] {
    [Bound::Included(key), Bound::Excluded(key)]
}

type Entry = (Vec<u8>, Vec<u8>);

fn last_before(table: &Table<Bytes>, key: &[u8]) -> Option<Entry> {
    table.last_before(key).unwrap().map(|(key, value)| (key, value.to_vec()))
}

fn model_before(model: &Model, key: &[u8]) -> Option<Entry> {
    let before = model.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)));
    before.last().map(|(key, value)| (key.clone(), value.clone()))
}

proptest! {
    #[test]
    fn a_table_is_an_ordered_map(model in model(300), options in options(), more in vec(key(), 0..20)) {
        let table = table(&model, options);
        assert_same(&table, &model);
        for key in &more {
            let found = table.get(key).unwrap();
            prop_assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..]));
            for from in bounds(key) {
                prop_assert_eq!(scan_from(&table, from), expected(&model, from));
            }
            prop_assert_eq!(last_before(&table, key), model_before(&model, key));
        }
    }

    #[test]
    fn a_merge_shows_the_newest(models in vec(model(60), 0..6), options in options()) {
        let cursors = models.iter().map(|model| table(model, options).scan(Bound::Unbounded));
        let mut merged = Model::new();
        for model in models.iter().rev() {
            merged.extend(model.clone());
        }
        let mut merge = Merge::new(cursors);
        prop_assert_eq!(collect_rest(&mut merge).unwrap(), expected(&merged, Bound::Unbounded));
        prop_assert!(!merge.advance().unwrap());
    }
}

#[test]
fn a_table_of_several_partitions_is_an_ordered_map() {
    let model = numbered_model(6000);
    let table = table(&model, SMALL);
    assert_same(&table, &model);
    for key in model.keys().step_by(499) {
        for neighbour in neighbours(key).iter().chain([key]) {
            for from in bounds(neighbour) {
                assert_eq!(scan_from(&table, from), expected(&model, from));
            }
            assert_eq!(last_before(&table, neighbour), model_before(&model, neighbour));
        }
    }
}
