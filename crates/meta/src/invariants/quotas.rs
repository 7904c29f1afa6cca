//! Invariant 16: the usage of quotas, and the directories of their trees.

use super::family_rows::{FamilyRows, PAGE_ROWS};
use super::findings::Findings;
use crate::codec::{decode_number, decode_quota};
use crate::engine::Reader;
use crate::error::EngineError;
use crate::namespace::usage;
use crate::{Ino, Inode, Quota, Usage, schema};
use std::collections::BTreeMap;

/// The records about quotas, and what the inodes use.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Quotas by directory.
    by_directory: BTreeMap<Ino, Quota>,
    /// Directories in trees, each with the directory whose quota counts its entries, in the order of their numbers.
    trees: Vec<(Ino, Ino)>,
    used: BTreeMap<Ino, Usage>,
}

impl Quotas {
    pub(super) fn read(
        reader: &(impl Reader + ?Sized),
        findings: &mut Findings,
    ) -> Result<Self, EngineError> {
        let mut quotas = Self::default();
        FamilyRows::new(reader, schema::quotas(), PAGE_ROWS).for_each(findings, |key, value| {
            quotas.by_directory.insert(schema::ino_of(key)?, decode_quota(value)?);
            Ok(())
        })?;
        FamilyRows::new(reader, schema::trees(), PAGE_ROWS).for_each(findings, |key, value| {
            quotas.trees.push((schema::ino_of(key)?, Ino(decode_number(value)?)));
            Ok(())
        })?;
        Ok(quotas)
    }

    fn tree_of(&self, dir: Ino) -> Option<Ino> {
        let index = self.trees.binary_search_by_key(&dir, |(dir, _)| *dir).ok()?;
        Some(self.trees[index].1)
    }

    /// Counts an inode, and checks whether it is marked as in the right tree.
    pub(super) fn add(&mut self, inode: &Inode, findings: &mut Findings) {
        let above = inode.home.as_ref().and_then(|(parent, _)| self.tree_of(*parent));
        for dir in above.into_iter().chain([Ino::ROOT]) {
            let sum = self.used.entry(dir).or_default();
            *sum = sum.plus(usage(inode));
        }
        let has_own = inode.ino != Ino::ROOT && self.by_directory.contains_key(&inode.ino);
        let own = has_own.then_some(inode.ino);
        let (found, expected) = (self.tree_of(inode.ino), own.or(above).filter(|_| inode.is_dir()));
        if found != expected || (own.is_some() && above.is_some()) {
            findings.report(
                16,
                format!("directory {} is in the tree {found:?}, expected {expected:?}", inode.ino),
            );
        }
    }

    /// Checks the usage of each quota, after all inodes have been counted.
    pub(super) fn check(&self, findings: &mut Findings) {
        for (dir, quota) in &self.by_directory {
            let used = self.used.get(dir).copied().unwrap_or_default();
            if quota.used != used {
                findings.report(
                    16,
                    format!("the quota of {dir} has the usage {:?}, expected {used:?}", quota.used),
                );
            }
        }
    }
}
