//! Ordered bytes, in memory and on disk.

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use std::collections::BTreeMap;
use std::ops::Bound;

pub type Key = Vec<u8>;

pub trait Store {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Puts (`Some`) and deletes, atomically.
    fn write(&mut self, batch: Vec<(Key, Option<Vec<u8>>)>);
    fn scan(&self, from: &[u8], to: &[u8]) -> Vec<(Key, Vec<u8>)>;
    /// Everything written is where it would be after a while.
    fn settle(&mut self) {}
}

#[derive(Default)]
pub struct Memory(BTreeMap<Key, Vec<u8>>);

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }

    fn write(&mut self, batch: Vec<(Key, Option<Vec<u8>>)>) {
        for (key, value) in batch {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
    }

    fn scan(&self, from: &[u8], to: &[u8]) -> Vec<(Key, Vec<u8>)> {
        self.0
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// An LSM tree with a block cache that holds a part of the tables.
pub struct Disk {
    database: Database,
    rows: Keyspace,
}

impl Disk {
    pub fn open() -> fjall::Result<Self> {
        let path = std::env::temp_dir().join(format!("tenon-placement-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let database = Database::builder(path).temporary(true).cache_size(16 << 20).open()?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default)?;
        Ok(Self { database, rows })
    }
}

impl Store for Disk {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.rows.get(key).expect("get").map(|value| value.to_vec())
    }

    fn write(&mut self, batch: Vec<(Key, Option<Vec<u8>>)>) {
        let mut writes = self.database.batch();
        for (key, value) in batch {
            match value {
                Some(value) => writes.insert(&self.rows, key, value),
                None => writes.remove(&self.rows, key),
            }
        }
        writes.commit().expect("commit");
    }

    fn scan(&self, from: &[u8], to: &[u8]) -> Vec<(Key, Vec<u8>)> {
        let rows = self.rows.range(from.to_vec()..to.to_vec());
        rows.map(|row| row.into_inner().map(|(key, value)| (key.to_vec(), value.to_vec())).expect("scan"))
            .collect()
    }

    fn settle(&mut self) {
        self.rows.rotate_memtable_and_wait().expect("flush");
        self.rows.major_compact().expect("compact");
    }
}
