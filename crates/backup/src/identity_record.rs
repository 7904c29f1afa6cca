//! The record that has the identity of metadata in a database: the backup that it continues.
//!
//! It says which copy of the metadata this is, and so is not part of dumps and snapshots, which are made to be copied.

use meta::{Ino, Rows, Value, schema};

/// Name of the root's extended attribute that is the record. Users do not see attributes of this name space.
const ATTRIBUTE: &[u8] = b"tenon.backup";

/// Returns the key of the record.
pub fn identity_key() -> Vec<u8> {
    schema::xattr(Ino::ROOT, ATTRIBUTE)
}

/// Returns the records of a page that are part of dumps and snapshots.
pub(crate) fn copied(rows: &Rows) -> impl Iterator<Item = (&[u8], &Value)> {
    let identity = identity_key();
    let is_copied = move |(key, _): &(&[u8], &Value)| *key != identity;
    rows.iter().map(|(key, found)| (key.as_slice(), &found.value)).filter(is_copied)
}
