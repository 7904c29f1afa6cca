//! Damaged tables report the damage and never return wrong data.

use crate::fixture::{Model, SMALL, build, collect_rest, numbered_model, open};
use bytes::Bytes;
use sst::{Error, Options, Result, Table};
use std::ops::Bound;
use std::sync::Arc;

fn is_corrupt<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

/// A table with a filter, two levels of restart points and several blocks.
fn small() -> Model {
    numbered_model(12)
}

/// Asserts that every lookup is right or reports damage, and that `verify` reports damage.
fn assert_detected(bytes: Vec<u8>, model: &Model, what: &str) {
    let table = match open(bytes.into()) {
        Ok(table) => table,
        Err(error) => return assert!(matches!(error, Error::Corrupt { .. }), "{what}: {error}"),
    };
    assert!(is_corrupt(&table.verify()), "{what} is not detected");
    for (key, value) in model {
        match table.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{what}"),
            error => assert!(is_corrupt(&error), "{what}"),
        }
    }
    assert_scan(&table, model, what);
}

fn assert_scan(table: &Arc<Table<Bytes>>, model: &Model, what: &str) {
    let mut cursor = table.scan(Bound::Unbounded);
    for (key, value) in model {
        match cursor.advance() {
            Ok(true) => assert_eq!((cursor.key(), &cursor.value()[..]), (&key[..], &value[..]), "{what}"),
            other => return assert!(is_corrupt(&other), "{what}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    let model = small();
    let bytes = build(&model, SMALL);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_detected(flipped, &model, &format!("bit {bit} of {}", bytes.len() * 8));
    }
}

#[test]
fn a_truncated_or_extended_table_is_refused() {
    let bytes = build(&small(), SMALL);
    for len in 0..bytes.len() {
        assert!(is_corrupt(&open(bytes.slice(..len))), "{len} bytes");
        assert!(is_corrupt(&open(bytes.slice(bytes.len() - len..))), "the last {len} bytes");
    }
    assert!(is_corrupt(&open([&bytes[..], &[0]].concat().into())));
    assert!(is_corrupt(&open([&bytes[..], &bytes[..]].concat().into())));
}

/// A device that lost a write still holds blocks of an older table, with checksums that are right for them.
#[test]
fn a_block_of_an_older_table_is_detected() {
    let new = numbered_model(3000);
    let old: Model = new.iter().map(|(key, value)| (key.clone(), vec![b'o'; value.len()])).collect();
    let (new_bytes, old_bytes) = (build(&new, SMALL), build(&old, SMALL));
    let half = new_bytes.len() / 2;
    for len in [200, 1000, half] {
        let mixed = [&new_bytes[..half], &old_bytes[half..half + len], &new_bytes[half + len..]].concat();
        assert_detected(mixed, &new, &format!("{len} bytes of the older"));
    }
}

#[test]
fn other_versions_are_refused() {
    let bytes = build(&small(), Options::default());
    let version_at = bytes.len() - 40;
    let mut newer = bytes.to_vec();
    newer[version_at] = 2;
    let error = open(newer.into()).unwrap_err().to_string();
    let footer_at = bytes.len() - 48;
    assert_eq!(
        error,
        format!("the table is damaged at byte {footer_at}: this program does not support its format version")
    );
}

#[test]
fn a_cursor_ends_at_damage() {
    let mut bytes = build(&numbered_model(3000), SMALL).to_vec();
    let half = bytes.len() / 3;
    bytes[half] ^= 1;
    let mut cursor = open(bytes.into()).unwrap().scan(Bound::Unbounded);
    assert!(collect_rest(&mut cursor).is_err());
    assert!(!cursor.advance().unwrap());
    assert_eq!((cursor.key(), cursor.value()), (&b""[..], &Bytes::new()));
}
