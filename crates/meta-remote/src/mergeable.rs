//! The numbers of a record that the database works with. They are columns of their own, because the database cannot decode a record: it adds
//! to those that merges change, and finds the inode of a dentry.
//!
//! | record | `sum1` | `sum2` | `max1` | `max2` |
//! |---|---|---|---|---|
//! | inode | link count | | modification time | change time |
//! | quota | bytes used | files used | 0 | 0 |
//! | dentry | inode number | 0 | | |
//! | other | | | | |
//!
//! A put sets the sums from the record and clears the maxima, which only merges set. So a record is as it was put if `max1` is null.

use meta::codec::{decode_dentry, decode_inode, decode_quota};
use meta::{EngineError, Ino, Merge, Usage, Value, schema};
use store::Timestamp;

/// The sums of a record that is put; `None` for a column that its type does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// The first sum.
    pub sum1: Option<i64>,
    /// The second sum.
    pub sum2: Option<i64>,
}

impl Sums {
    /// Returns the sums of a record. A record that is not what its key says has none, so that no merge into it is possible.
    pub fn of(key: &[u8], record: &[u8]) -> Self {
        if is_inode(key) {
            let inode = decode_inode(Ino(0), record).ok();
            Self { sum1: inode.map(|found| found.inode.nlink.into()), sum2: None }
        } else if is_quota(key) {
            let used = decode_quota(record).ok().map(|quota| quota.used);
            Self { sum1: used.map(|used| used.bytes), sum2: used.map(|used| used.files) }
        } else if schema::all_dentries().contains(key) {
            let ino = decode_dentry(record).ok().and_then(|dentry| i64::try_from(dentry.ino.0).ok());
            Self { sum1: ino, sum2: ino.map(|_| 0) }
        } else {
            Self::default()
        }
    }
}

/// The change that a merge makes in the columns: sums that are added, and lower bounds of maxima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The first sum.
    pub sum1: i64,
    /// The second sum.
    pub sum2: i64,
    /// The first maximum.
    pub max1: i64,
    /// The second maximum.
    pub max2: i64,
}

impl Change {
    /// Returns the change of a merge. Fails if the record under the key cannot be merged in this way.
    pub fn of(key: &[u8], merge: Merge) -> Result<Self, EngineError> {
        match merge {
            Merge::Inode { nlink, mtime, ctime } if is_inode(key) => {
                Ok(Self { sum1: nlink.into(), sum2: 0, max1: mtime.0, max2: ctime.0 })
            }
            Merge::Usage(more) if is_quota(key) => {
                Ok(Self { sum1: more.bytes, sum2: more.files, max1: 0, max2: 0 })
            }
            _ => Err(EngineError::Corrupt(format!(
                "a merge into a record of another type: '{}'",
                key.escape_ascii()
            ))),
        }
    }
}

/// The columns of a record into which something was merged after it was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// The first sum.
    pub sum1: i64,
    /// The second sum.
    pub sum2: i64,
    /// The first maximum.
    pub max1: i64,
    /// The second maximum.
    pub max2: i64,
}

impl Merged {
    /// Returns the record with the numbers of the columns.
    pub fn put_into(self, key: &[u8], record: &[u8]) -> Result<Value, EngineError> {
        let merge = if is_inode(key) {
            let nlink = self.sum1 - i64::from(decode_inode(Ino(0), record)?.inode.nlink);
            let nlink =
                i32::try_from(nlink).map_err(|_| EngineError::Corrupt("a link count out of range".into()))?;
            Merge::Inode { nlink, mtime: Timestamp(self.max1), ctime: Timestamp(self.max2) }
        } else {
            let used = decode_quota(record)?.used;
            Merge::Usage(Usage { bytes: self.sum1, files: self.sum2 }.plus(used.negated()))
        };
        Ok(merge.apply(record)?)
    }
}

fn is_inode(key: &[u8]) -> bool {
    schema::inodes().contains(key)
}

fn is_quota(key: &[u8]) -> bool {
    schema::quotas().contains(key)
}
