//! Reads of records over a connection.

use crate::connection::Connection;
use crate::failure::unexpected;
use crate::record;
use crate::request::Arguments;
use crate::scripts::Script;
use crate::values::{Values, optional_bytes};
use meta::{DentryWithInode, KeyRange, Rows, Versioned, schema};
use meta_remote::{Failure, Reads, ScanRange};
use redis::Value;

impl Reads for Connection {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        let found = optional_bytes(self.call("HGET", "records", &[key]).await?)?;
        found.map(|record| record::decode(key, &record)).transpose()
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, Failure> {
        let fields: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        of_keys(keys, self.call("HMGET", "records", &fields).await?)
    }

    async fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, Failure> {
        let mut found = Values::of(self.run(Script::GetDentry, Arguments::default().bytes(key)).await?)?;
        if found.is_empty() {
            return Ok(None);
        }
        let dentry = record::decode(key, &found.bytes()?)?;
        let inode = if found.is_empty() { None } else { found.optional_bytes()? };
        let inode = inode.map(|inode| {
            let ino = meta::codec::decode_dentry(&dentry.value).map_err(|_| unexpected())?.ino;
            record::decode(&schema::inode(ino), &inode)
        });
        let inode = inode.transpose()?;
        Ok(Some((dentry, inode)))
    }

    async fn scan(&self, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
        let mut arguments = Arguments::default();
        add_range(&mut arguments, range, limit);
        rows(self.run(Script::Scan, &arguments).await?)
    }

    async fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
        let mut arguments = Arguments::default();
        arguments.bytes(range.from.as_slice()).bytes(range.to.as_slice());
        Ok(rows(self.run(Script::Last, &arguments).await?)?.pop())
    }
}

/// Adds the bounds of a range, and the maximum number of its records.
pub(crate) fn add_range(arguments: &mut Arguments, range: &ScanRange, limit: usize) {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX).min(1 << 53);
    let to = range.to.as_deref();
    arguments.bytes(range.from.as_slice()).text(i32::from(to.is_some()));
    arguments.bytes(to.unwrap_or_default()).text(limit);
}

/// Returns the records of keys from an answer in the order of the keys.
pub(crate) fn of_keys(keys: &[Vec<u8>], answer: Value) -> Result<Vec<Option<Versioned>>, Failure> {
    let mut found = Values::of(answer)?;
    let record =
        |key: &Vec<u8>| found.optional_bytes()?.map(|record| record::decode(key, &record)).transpose();
    keys.iter().map(record).collect()
}

/// Returns the keys and records of a flat list.
pub(crate) fn rows(answer: Value) -> Result<Rows, Failure> {
    let (mut found, mut rows) = (Values::of(answer)?, Vec::new());
    while !found.is_empty() {
        let key = found.bytes()?;
        let record = record::decode(&key, &found.bytes()?)?;
        rows.push((key, record));
    }
    Ok(rows)
}
