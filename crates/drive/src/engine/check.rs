//! Check: verifies that every index entry is valid, and that every block is counted as the entries use it.

use super::Engine;
use crate::codec::Decoder;
use crate::error::Result;
use crate::format::{BucketId, IndexKey, Kind, Membership, ObjectRecord};
use crate::index::Losses;
use crate::space::{References, lock};
use std::collections::BTreeSet;
use std::ops::Bound;

/// The outcome of a check. If the index is damaged in part, only `problems` and the numbers of readable objects and
/// parts are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Violations, one line each.
    pub problems: Vec<String>,
    /// Number of objects, older versions and delete markers included.
    pub objects: u64,
    /// Number of parts of uploads in progress.
    pub parts: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of blocks in runs of objects and parts.
    pub object_blocks: u64,
    /// Number of blocks of the index and the manifest, and of blocks that are being written or still read.
    pub held_blocks: u64,
    /// Number of blocks in zones of the log.
    pub zone_blocks: u64,
}

/// The state of a walk through the index.
#[derive(Default)]
struct Walk {
    checked: Checked,
    references: References,
    buckets: BTreeSet<BucketId>,
    uploads: BTreeSet<u64>,
}

impl Engine {
    /// Compares the index with the space. Commits and checkpoints wait meanwhile. The bytes of objects are not read. If
    /// the index is damaged in part, counts the readable entries and reports the losses, but does not compare.
    pub(crate) fn check(&self) -> Result<Checked> {
        let damaged = self.verify_tables();
        let _no_checkpoint = self.root.lock();
        let _no_commit = self.log.lock();
        let mut walk = Walk::default();
        let losses = Losses::default();
        let mut scan = self.index.scan_readable(Bound::Unbounded, &losses);
        while let Some((key, value)) = scan.next()? {
            if walk.entry(key, value, self.geometry.zone_bytes()).is_none() {
                walk.checked.problems.push(format!("the entry '{}' is invalid", key.escape_ascii()));
            }
        }
        let Walk { mut checked, references, uploads, .. } = walk;
        if !(damaged.is_empty() && losses.is_empty() && self.losses.is_empty()) {
            // Blocks that only a lost entry refers to are not free, so the space cannot be compared with a part of the index.
            checked.problems = [self.losses.clone(), damaged, losses.lines()].concat();
            return Ok(checked);
        }
        let orphans =
            uploads.iter().map(|upload| format!("upload {upload:016x} has parts, but does not exist"));
        checked.problems.extend(orphans);
        let (counts, problems) = lock(&self.space).audit(&references);
        checked.problems.extend(problems);
        checked.free_blocks = counts.free_blocks;
        checked.object_blocks = counts.named_blocks;
        checked.held_blocks = counts.held_blocks;
        checked.zone_blocks = counts.zone_blocks;
        Ok(checked)
    }
}

impl Walk {
    /// Takes the next entry, in key order: buckets, membership, objects, parts, settings, uploads, versions. Returns `None` if the entry
    /// is invalid.
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
            self.checked.problems.push(format!("the entry '{key}' is of a bucket that does not exist"));
        }
        match kind {
            _ if kind == Kind::Object as u8 || kind == Kind::Version as u8 => {
                self.checked.objects += 1;
                self.references.add_body(&ObjectRecord::of_entry(key, value)?.body, zone_bytes);
            }
            _ if kind == Kind::Part as u8 => {
                self.checked.parts += 1;
                self.uploads.insert(u64::from_be_bytes(*rest.first_chunk()?));
                self.references.add_body(&ObjectRecord::of_entry(key, value)?.body, zone_bytes);
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
