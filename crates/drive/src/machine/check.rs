//! Check: every entry of the index is what it can be, and every block is counted as it is used.

use super::Machine;
use crate::error::Result;
use crate::format::{BucketId, IndexKey, Kind, ObjectRecord};
use crate::index::Losses;
use crate::pool::Membership;
use crate::space::{Named, lock};
use crate::wire::Decoder;
use std::collections::BTreeSet;
use std::ops::Bound;

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// What is not as it must be, one line each.
    pub problems: Vec<String>,
    /// Objects and their older versions, deletions' marks included.
    pub objects: u64,
    /// Parts of uploads that are not complete.
    pub parts: u64,
    /// Blocks that belong to nobody.
    pub free_blocks: u64,
    /// Blocks of runs that objects and parts lie in.
    pub object_blocks: u64,
    /// Blocks of the index, and of what is being written or still read.
    pub held_blocks: u64,
    /// Blocks of the zones of the log.
    pub zone_blocks: u64,
}

/// What was seen of a walk through the index.
#[derive(Default)]
struct Walk {
    checked: Checked,
    named: Named,
    buckets: BTreeSet<BucketId>,
    uploads: BTreeSet<u64>,
}

impl Machine {
    /// Walks through index and space. Nothing is committed meanwhile. The bytes of objects are not read. Of an index that is damaged in
    /// parts it counts what can be read.
    pub(crate) fn check(&self) -> Result<Checked> {
        let damaged = self.verify_tables();
        let _no_checkpoint = self.root();
        let _no_commit = self.log();
        let mut walk = Walk::default();
        let losses = Losses::default();
        let mut scan = self.index.scan_whole(Bound::Unbounded, &losses);
        while let Some((key, value)) = scan.next()? {
            if walk.entry(key, value, self.geometry.zone_bytes()).is_none() {
                walk.checked.problems.push(format!("the entry '{}' makes no sense", key.escape_ascii()));
            }
        }
        let Walk { mut checked, named, uploads, .. } = walk;
        if !(damaged.is_empty() && losses.is_empty() && self.losses.is_empty()) {
            // Blocks that only a lost entry names are not free: the space cannot be compared with a part of the index.
            checked.problems = [self.losses.clone(), damaged, losses.lines()].concat();
            return Ok(checked);
        }
        let orphans =
            uploads.iter().map(|upload| format!("upload {upload:016x} has parts, and is not there"));
        checked.problems.extend(orphans);
        let (census, problems) = lock(&self.space).census(&named);
        checked.problems.extend(problems);
        checked.free_blocks = census.free_blocks;
        checked.object_blocks = census.named_blocks;
        checked.held_blocks = census.held_blocks;
        checked.zone_blocks = census.zone_blocks;
        Ok(checked)
    }
}

impl Walk {
    /// An entry, in the order of the keys: buckets, the pool, objects, parts, settings, uploads, versions. `None` if it makes no sense.
    fn entry(&mut self, key: &[u8], value: &[u8], zone_bytes: u64) -> Option<()> {
        let (&kind, rest) = key.split_first()?;
        if kind == Kind::Bucket as u8 {
            self.buckets.insert(Decoder(value).number()?);
            return Some(());
        }
        if kind == Kind::Membership as u8 {
            return Membership::decode(value).map(drop);
        }
        let (bucket, rest) = rest.split_first_chunk()?;
        if !self.buckets.contains(&u64::from_be_bytes(*bucket)) {
            let key = key.escape_ascii();
            self.checked.problems.push(format!("the entry '{key}' is of a bucket that is not there"));
        }
        match kind {
            _ if kind == Kind::Object as u8 || kind == Kind::Version as u8 => {
                self.checked.objects += 1;
                self.named.body(&ObjectRecord::of_entry(key, value)?.body, zone_bytes);
            }
            _ if kind == Kind::Part as u8 => {
                self.checked.parts += 1;
                self.uploads.insert(u64::from_be_bytes(*rest.first_chunk()?));
                self.named.body(&ObjectRecord::of_entry(key, value)?.body, zone_bytes);
            }
            _ if kind == Kind::Upload as u8 => {
                self.uploads.remove(&IndexKey::escaped_key(key)?.1);
            }
            _ if kind == Kind::Setting as u8 => {}
            _ => return None,
        }
        Some(())
    }
}
