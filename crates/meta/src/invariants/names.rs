//! Invariants 2, 4, 5 and 6: the dentries are exactly the names that the inodes have, each once.
//!
//! Dentries are in the order of directories, and inodes with their additional names in the order of inodes, so that the two cannot be compared
//! record by record without memory for all names. [`NameSums`] compares them by sums of digests: each dentry is added, and each primary or
//! additional name of an inode is subtracted. Inodes are in groups by their number. Where the names of a group agree, its sum is 0. The names
//! of the other groups, of which there are none in sound tables, are read again and compared one by one.

use super::family_rows::{FamilyRows, PAGE_ROWS};
use super::findings::Findings;
use crate::codec::{decode_dentry, decode_inode};
use crate::engine::Reader;
use crate::error::EngineError;
use crate::{Dentry, Ino, Inode, Kind, Name, schema};
use aws_lc_rs::digest::{Context, SHA256};
use std::collections::{BTreeMap, BTreeSet};

/// Number of groups of inodes.
const GROUPS: u64 = 4096;

/// Groups whose names are compared one by one, so that memory is bounded.
const COMPARED_GROUPS_MAX: usize = 64;

/// Wrong link counts that are described, so that memory is bounded.
const WRONG_COUNTS_MAX: usize = 1000;

/// Sums of digests of names, by group of inodes.
#[derive(Debug)]
pub(super) struct NameSums {
    sums: Vec<u128>,
    /// Inodes whose link counts disagree with their primary and additional names, with descriptions.
    wrong_counts: Vec<(Ino, String)>,
}

impl Default for NameSums {
    fn default() -> Self {
        Self { sums: vec![0; GROUPS as usize], wrong_counts: Vec::new() }
    }
}

impl NameSums {
    /// Adds a dentry.
    pub(super) fn add_dentry(&mut self, dir: Ino, name: &Name, dentry: Dentry) {
        let sum = &mut self.sums[group_of(dentry.ino)];
        *sum = sum.wrapping_add(digest(dir, name, dentry.ino, Some(dentry.kind)));
    }

    /// Subtracts a name of an inode; `kind` is `None` if the inode does not exist.
    pub(super) fn subtract_name(&mut self, dir: Ino, name: &Name, ino: Ino, kind: Option<Kind>) {
        let sum = &mut self.sums[group_of(ino)];
        *sum = sum.wrapping_sub(digest(dir, name, ino, kind));
    }

    /// Checks the link count of an inode with its number of additional names, and of subdirectories if it is a directory.
    pub(super) fn check_link_count(&mut self, inode: &Inode, additional: u32, subdirectories: u32) {
        let names = additional.saturating_add(u32::from(inode.home.is_some()));
        if self.wrong_counts.len() < WRONG_COUNTS_MAX
            && let Some(what) = wrong_link_count(inode, names, subdirectories)
        {
            self.wrong_counts.push((inode.ino, what));
        }
    }

    /// Reports the violations, after all names have been added and subtracted.
    pub(super) fn check(
        self,
        reader: &(impl Reader + ?Sized),
        findings: &mut Findings,
    ) -> Result<(), EngineError> {
        let differ = |group: &usize| self.sums[*group] != 0;
        let mut groups: BTreeSet<usize> = (0..self.sums.len()).filter(differ).collect();
        if let Some(first) = groups.iter().nth(COMPARED_GROUPS_MAX).copied() {
            let rest = groups.split_off(&first).len();
            findings.report(
                2,
                format!("names of inodes in {rest} further groups of {GROUPS} disagree with the dentries"),
            );
        }
        for (ino, what) in self.wrong_counts {
            if !groups.contains(&group_of(ino)) {
                findings.report(4, what);
            }
        }
        if !groups.is_empty() {
            NamesOfGroups::read(reader, &groups)?.check(findings);
        }
        Ok(())
    }
}

fn group_of(ino: Ino) -> usize {
    (ino.0 % GROUPS) as usize
}

/// Returns the first 16 bytes of the SHA-256 of a name and what it refers to, as a number.
fn digest(dir: Ino, name: &Name, ino: Ino, kind: Option<Kind>) -> u128 {
    let mut digest = Context::new(&SHA256);
    digest.update(&dir.0.to_be_bytes());
    digest.update(&ino.0.to_be_bytes());
    digest.update(&[kind.map_or(u8::MAX, |kind| kind as u8)]);
    digest.update(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finish().as_ref()[..16]);
    u128::from_be_bytes(bytes)
}

/// Returns the description of a wrong link count of an inode with a number of names.
fn wrong_link_count(inode: &Inode, names: u32, subdirectories: u32) -> Option<String> {
    let (expected, names_expected) = match inode.kind {
        Kind::Directory => (subdirectories.saturating_add(2), u32::from(inode.ino != Ino::ROOT)),
        _ => (names, names),
    };
    (inode.nlink != expected || names != names_expected).then(|| {
        format!(
            "{:?} {} has a link count of {}, expected {expected}, and {names} names",
            inode.kind, inode.ino, inode.nlink
        )
    })
}

/// The names of some groups of inodes.
#[derive(Debug, Default)]
struct NamesOfGroups {
    inodes: BTreeMap<Ino, Inode>,
    dentries: BTreeMap<(Ino, Name), Dentry>,
    additional_names: BTreeSet<(Ino, Ino, Name)>,
    /// Number of subdirectories of the directories among the inodes.
    subdirectories: BTreeMap<Ino, u32>,
}

impl NamesOfGroups {
    fn read(reader: &(impl Reader + ?Sized), groups: &BTreeSet<usize>) -> Result<Self, EngineError> {
        let mut names = Self::default();
        let is_read = |ino: Ino| groups.contains(&group_of(ino));
        // Records that cannot be decoded have been reported before.
        let ignored = &mut Findings::default();
        FamilyRows::new(reader, schema::inodes(), PAGE_ROWS).for_each(ignored, |key, value| {
            let ino = schema::ino_of(key)?;
            if is_read(ino) {
                names.inodes.insert(ino, decode_inode(ino, value)?.inode);
            }
            Ok(())
        })?;
        FamilyRows::new(reader, schema::all_dentries(), PAGE_ROWS).for_each(ignored, |key, value| {
            let (dir, dentry) = (schema::ino_of(key)?, decode_dentry(value)?);
            if is_read(dentry.ino) {
                names.dentries.insert((dir, schema::name_of(key)?), dentry);
            }
            if is_read(dir) && dentry.kind == Kind::Directory {
                *names.subdirectories.entry(dir).or_default() += 1;
            }
            Ok(())
        })?;
        FamilyRows::new(reader, schema::all_hard_links(), PAGE_ROWS).for_each(ignored, |key, _| {
            let ino = schema::ino_of(key)?;
            if is_read(ino) {
                let (dir, name) = schema::link_of(key)?;
                names.additional_names.insert((ino, dir, name));
            }
            Ok(())
        })?;
        Ok(names)
    }

    fn check(&self, findings: &mut Findings) {
        self.check_dentries(findings);
        self.check_link_counts(findings);
        self.check_homes(findings);
        self.check_additional_names(findings);
    }

    fn check_dentries(&self, findings: &mut Findings) {
        for ((dir, name), dentry) in &self.dentries {
            match self.inodes.get(&dentry.ino) {
                Some(inode) if inode.kind == dentry.kind => {}
                Some(inode) => findings.report(
                    2,
                    format!(
                        "{name} in {dir} has the type {:?}, but inode {} is a {:?}",
                        dentry.kind, inode.ino, inode.kind
                    ),
                ),
                None => findings.report(
                    2,
                    format!("{name} in {dir} refers to inode {}, which does not exist", dentry.ino),
                ),
            }
        }
    }

    fn check_link_counts(&self, findings: &mut Findings) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        for dentry in self.dentries.values() {
            *names.entry(dentry.ino).or_default() += 1;
        }
        let count = |counts: &BTreeMap<Ino, u32>, ino| counts.get(&ino).copied().unwrap_or(0);
        for inode in self.inodes.values() {
            let below = count(&self.subdirectories, inode.ino);
            if let Some(what) = wrong_link_count(inode, count(&names, inode.ino), below) {
                findings.report(4, what);
            }
        }
    }

    fn check_homes(&self, findings: &mut Findings) {
        for inode in self.inodes.values() {
            let Some(home) = &inode.home else { continue };
            if self.dentries.get(home).is_none_or(|dentry| dentry.ino != inode.ino) {
                let (dir, name) = home;
                findings.report(
                    5,
                    format!("the primary name {name} in {dir} does not refer to inode {}", inode.ino),
                );
            }
        }
    }

    fn check_additional_names(&self, findings: &mut Findings) {
        for (place @ (dir, name), dentry) in &self.dentries {
            let inode = self.inodes.get(&dentry.ino);
            let is_home = inode.is_some_and(|inode| inode.home.as_ref() == Some(place));
            let is_additional = self.additional_names.contains(&(dentry.ino, *dir, name.clone()));
            if is_home == is_additional {
                findings.report(
                    6,
                    format!(
                        "{name} in {dir}: is a primary name: {is_home}, is an additional name: {is_additional}"
                    ),
                );
            }
        }
        for (ino, dir, name) in &self.additional_names {
            let dentry = self.dentries.get(&(*dir, name.clone()));
            if dentry.is_none_or(|dentry| dentry.ino != *ino) {
                findings
                    .report(6, format!("the additional name {name} in {dir} does not refer to inode {ino}"));
            }
        }
    }
}
