//! The check of the invariants: loads all tables in one pass, then checks each invariant.

use super::Violation;
use crate::acl::{self, Acl};
use crate::codec::{
    DecodeError, decode_batch, decode_dentry, decode_extent_row, decode_inode, decode_number, decode_quota,
    decode_refused_op,
};
use crate::engine::Reader;
use crate::error::EngineError;
use crate::extent::extents_fit;
use crate::namespace::usage;
use crate::record::{KeyRange, Value};
use crate::{
    Content, Dentry, Extent, Fingerprint, Ino, Inode, Kind, Name, Quota, SETGID, Summary, Usage, schema,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::ObjectKey;

/// Rows read at a time, which bounds how long one call occupies the engine.
const PAGE_ROWS: usize = 4096;

/// Returns all violations of the invariants, in the order of the invariants' numbers. The tables must not change meanwhile. Memory
/// grows with the size of the tables.
pub fn fsck(reader: &(impl Reader + ?Sized)) -> Result<Vec<Violation>, EngineError> {
    let mut tables = Tables::default();
    tables.load(reader)?;
    tables.check_root();
    tables.check_dentry_inodes();
    tables.check_dentry_parents();
    tables.check_link_counts();
    tables.check_homes();
    tables.check_additional_names();
    tables.check_orphans();
    tables.check_extents();
    tables.check_directory_ancestors();
    tables.check_set_groups();
    tables.check_xattrs();
    tables.check_numbers_are_leased();
    tables.check_acls();
    tables.check_quotas();
    tables.check_waiting_exports();
    let mut violations = tables.violations;
    violations.sort_by_key(|violation| violation.number);
    Ok(violations)
}

/// The decoded tables, and the violations found so far.
#[derive(Debug, Default)]
struct Tables {
    /// Inodes, each with [`InodeRecord::unsummed`](crate::codec::InodeRecord).
    inodes: BTreeMap<Ino, (Inode, usize)>,
    dentries: BTreeMap<(Ino, Name), Dentry>,
    extents: BTreeMap<Ino, Vec<Extent>>,
    uses: BTreeMap<Ino, BTreeMap<ObjectKey, u64>>,
    additional_names: BTreeSet<(Ino, Ino, Name)>,
    orphans: BTreeSet<Ino>,
    set_groups: BTreeMap<Ino, u64>,
    quotas: QuotaRows,
    xattrs: XattrRows,
    waiting_exports: BTreeSet<Ino>,
    next_ino: Option<u64>,
    violations: Vec<Violation>,
}

/// The records about quotas.
#[derive(Debug, Default)]
struct QuotaRows {
    /// Quotas by directory.
    by_directory: BTreeMap<Ino, Quota>,
    /// The directory whose quota counts an inode, by inode.
    trees: BTreeMap<Ino, Ino>,
}

/// The records of extended attributes.
#[derive(Debug, Default)]
struct XattrRows {
    owners: BTreeSet<Ino>,
    /// Lists by inode, each with whether it is the access list.
    acls: BTreeMap<(Ino, bool), Acl>,
}

impl Tables {
    /// Adds a violation of the invariant with a number.
    fn report(&mut self, number: u32, what: String) {
        self.violations.push(Violation { number, what });
    }

    fn load(&mut self, reader: &(impl Reader + ?Sized)) -> Result<(), EngineError> {
        self.for_each_row(reader, schema::inodes(), |tables, key, value| {
            let ino = schema::ino_of(key)?;
            let record = decode_inode(ino, value)?;
            tables.inodes.insert(ino, (record.inode, record.unsummed));
            Ok(())
        })?;
        self.for_each_row(reader, schema::all_dentries(), |tables, key, value| {
            tables.dentries.insert((schema::ino_of(key)?, schema::name_of(key)?), decode_dentry(value)?);
            Ok(())
        })?;
        self.for_each_row(reader, schema::all_extents(), |tables, key, value| {
            let extent = decode_extent_row(key, value)?;
            tables.extents.entry(schema::ino_of(key)?).or_default().push(extent);
            Ok(())
        })?;
        self.for_each_row(reader, schema::all_objects_used(), |tables, key, value| {
            let uses = tables.uses.entry(schema::ino_of(key)?).or_default();
            uses.insert(schema::object_of(key)?, decode_number(value)?);
            Ok(())
        })?;
        self.for_each_row(reader, schema::all_hard_links(), |tables, key, _| {
            let (dir, name) = schema::link_of(key)?;
            tables.additional_names.insert((schema::ino_of(key)?, dir, name));
            Ok(())
        })?;
        self.load_other_families(reader)
    }

    /// Reads the records of the families that [`load`](Self::load) does not read itself.
    fn load_other_families(&mut self, reader: &(impl Reader + ?Sized)) -> Result<(), EngineError> {
        self.for_each_row(reader, schema::orphans(), |tables, key, _| {
            tables.orphans.insert(schema::ino_of(key)?);
            Ok(())
        })?;
        self.for_each_row(reader, schema::set_groups(), |tables, key, value| {
            tables.set_groups.insert(schema::ino_of(key)?, decode_number(value)?);
            Ok(())
        })?;
        self.for_each_row(reader, schema::quotas(), |tables, key, value| {
            tables.quotas.by_directory.insert(schema::ino_of(key)?, decode_quota(value)?);
            Ok(())
        })?;
        self.for_each_row(reader, schema::trees(), |tables, key, value| {
            tables.quotas.trees.insert(schema::ino_of(key)?, Ino(decode_number(value)?));
            Ok(())
        })?;
        self.for_each_row(reader, schema::all_xattrs(), |tables, key, value| {
            let (ino, name) = (schema::ino_of(key)?, schema::xattr_of(key)?);
            tables.xattrs.owners.insert(ino);
            if Acl::is_name(name) {
                let list = Acl::parse(value).ok_or(DecodeError::Field("an invalid ACL"))?;
                tables.xattrs.acls.insert((ino, name == acl::ACCESS), list);
            }
            Ok(())
        })?;
        self.for_each_row(reader, schema::waiting_exports(), |tables, key, value| {
            decode_number(value)?;
            tables.waiting_exports.insert(schema::ino_of(key)?);
            Ok(())
        })?;
        self.for_each_row(reader, schema::batches(), |_, key, value| match schema::batch_of(key)?.1 {
            None => decode_batch(value).map(drop),
            Some(_) => decode_refused_op(value).map(drop),
        })?;
        if let Some(found) = reader.get(&schema::next_ino())? {
            match decode_number(&found.value) {
                Ok(next) => self.next_ino = Some(next),
                Err(error) => self.report(14, format!("the inode counter: {error}")),
            }
        }
        Ok(())
    }

    /// Visits the records of a range, page by page. A record that `visit` cannot decode is a violation.
    fn for_each_row(
        &mut self,
        reader: &(impl Reader + ?Sized),
        range: KeyRange,
        visit: impl Fn(&mut Self, &[u8], &Value) -> Result<(), DecodeError>,
    ) -> Result<(), EngineError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = match &after {
                Some(key) => Bound::Excluded(key.as_slice()),
                None => Bound::Included(range.from.as_slice()),
            };
            let rows = reader.scan(from, Bound::Excluded(&range.to), PAGE_ROWS)?;
            for (key, found) in &rows {
                if let Err(error) = visit(self, key, &found.value) {
                    self.report(14, format!("the record of key {}: {error}", key.escape_ascii()));
                }
            }
            match rows.into_iter().next_back() {
                Some((key, _)) => after = Some(key),
                None => return Ok(()),
            }
        }
    }

    fn inode(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino).map(|(inode, _)| inode)
    }

    /// Checks all inodes. `find_violation` returns the description of a violation.
    fn check_inodes(&mut self, number: u32, find_violation: impl Fn(&Self, &Inode, usize) -> Option<String>) {
        let found: Vec<String> = self
            .inodes
            .values()
            .filter_map(|(inode, unsummed)| find_violation(self, inode, *unsummed))
            .collect();
        for what in found {
            self.report(number, what);
        }
    }

    /// Checks all dentries. `find_violation` returns the description of a violation.
    fn check_dentries(
        &mut self,
        number: u32,
        find_violation: impl Fn(&Self, &(Ino, Name), Dentry) -> Option<String>,
    ) {
        let found: Vec<String> =
            self.dentries.iter().filter_map(|(place, dentry)| find_violation(self, place, *dentry)).collect();
        for what in found {
            self.report(number, what);
        }
    }

    fn check_root(&mut self) {
        match self.inode(Ino::ROOT) {
            Some(root) if root.is_dir() && root.home.is_none() => {}
            Some(root) => {
                self.report(1, format!("the root is a {:?} with the primary name {:?}", root.kind, root.home))
            }
            None if self.inodes.is_empty() && self.dentries.is_empty() => {}
            None => self.report(1, "the root is missing".into()),
        }
    }

    fn check_dentry_inodes(&mut self) {
        self.check_dentries(2, |tables, (dir, name), dentry| match tables.inode(dentry.ino) {
            Some(inode) if inode.kind == dentry.kind => None,
            Some(inode) => Some(format!(
                "{name} in {dir} has the type {:?}, but inode {} is a {:?}",
                dentry.kind, inode.ino, inode.kind
            )),
            None => Some(format!("{name} in {dir} refers to inode {}, which does not exist", dentry.ino)),
        });
    }

    fn check_dentry_parents(&mut self) {
        self.check_dentries(3, |tables, (dir, name), _| match tables.inode(*dir) {
            Some(inode) if inode.is_dir() => None,
            _ => Some(format!("{name} is in {dir}, which is not a directory")),
        });
    }

    fn check_link_counts(&mut self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirectories: BTreeMap<Ino, u32> = BTreeMap::new();
        for ((dir, _), dentry) in &self.dentries {
            *names.entry(dentry.ino).or_default() += 1;
            if dentry.kind == Kind::Directory {
                *subdirectories.entry(*dir).or_default() += 1;
            }
        }
        self.check_inodes(4, |_, inode, _| {
            let names = names.get(&inode.ino).copied().unwrap_or(0);
            let (expected, names_expected) = match inode.kind {
                Kind::Directory => {
                    let below = subdirectories.get(&inode.ino).copied().unwrap_or(0);
                    (2 + below, u32::from(inode.ino != Ino::ROOT))
                }
                _ => (names, names),
            };
            (inode.nlink != expected || names != names_expected).then(|| {
                format!(
                    "{:?} {} has a link count of {}, expected {expected}, and {names} names",
                    inode.kind, inode.ino, inode.nlink
                )
            })
        });
    }

    fn check_homes(&mut self) {
        self.check_inodes(5, |tables, inode, _| match &inode.home {
            None if inode.ino == Ino::ROOT || inode.nlink == 0 => None,
            None => Some(format!("inode {} has no primary name", inode.ino)),
            Some(home) if tables.dentries.get(home).is_some_and(|dentry| dentry.ino == inode.ino) => None,
            Some((dir, name)) => {
                Some(format!("the primary name {name} in {dir} does not refer to inode {}", inode.ino))
            }
        });
    }

    fn check_additional_names(&mut self) {
        self.check_dentries(6, |tables, (dir, name), dentry| {
            let is_home =
                tables.inode(dentry.ino).is_some_and(|inode| inode.home == Some((*dir, name.clone())));
            let is_additional = tables.additional_names.contains(&(dentry.ino, *dir, name.clone()));
            (is_home == is_additional).then(|| {
                format!(
                    "{name} in {dir}: is a primary name: {is_home}, is an additional name: {is_additional}"
                )
            })
        });
        let is_dentry = |(ino, dir, name): &&(Ino, Ino, Name)| {
            self.dentries.get(&(*dir, name.clone())).is_some_and(|dentry| dentry.ino == *ino)
        };
        let stray: Vec<_> = self.additional_names.iter().filter(|name| !is_dentry(name)).cloned().collect();
        for (ino, dir, name) in stray {
            self.report(6, format!("the additional name {name} in {dir} does not refer to inode {ino}"));
        }
    }

    fn check_orphans(&mut self) {
        self.check_inodes(7, |tables, inode, _| {
            let has_record = tables.orphans.contains(&inode.ino);
            let is_orphan = inode.nlink == 0;
            (has_record != is_orphan || (is_orphan && inode.home.is_some())).then(|| {
                format!(
                    "inode {}: link count {}, orphan record {has_record}, primary name {:?}",
                    inode.ino, inode.nlink, inode.home
                )
            })
        });
        let stray: Vec<Ino> =
            self.orphans.iter().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.report(7, format!("the orphan {ino} does not exist"));
        }
    }

    fn check_extents(&mut self) {
        let none = Vec::new();
        self.check_inodes(8, |tables, inode, unsummed| {
            let content = match &inode.content {
                Content::Inline(extents) if unsummed == 0 => extents,
                _ => tables.extents.get(&inode.ino).unwrap_or(&none),
            };
            let fits = extents_fit(content, inode.size_bytes) && (!inode.is_dir() || inode.size_bytes == 0);
            (!fits).then(|| {
                format!("inode {} of {} bytes has the extents {content:?}", inode.ino, inode.size_bytes)
            })
        });
        self.check_inodes(9, |tables, inode, unsummed| {
            let rows = tables.extents.get(&inode.ino).unwrap_or(&none);
            let expected = match &inode.content {
                Content::Inline(_) => unsummed as u64,
                Content::Rows(summary) => summary.extents,
            };
            let comparable = |content: &Content| match content {
                // Fingerprints are not compared: they depend on earlier contents, which are not known here.
                Content::Rows(summary) => {
                    Some(Summary { fingerprint: Fingerprint([0; 16]), ..summary.clone() })
                }
                Content::Inline(_) => None,
            };
            if rows.len() as u64 != expected {
                return Some(format!(
                    "inode {} has {} extent rows, expected {expected}",
                    inode.ino,
                    rows.len()
                ));
            }
            let summary = comparable(&inode.content)?;
            let found = comparable(&Content::of(rows, inode.size_bytes));
            (found.as_ref() != Some(&summary)).then(|| {
                format!("inode {} has the summary {summary:?}, but its extent rows give {found:?}", inode.ino)
            })
        });
        self.check_inodes(18, |tables, inode, _| {
            let mut expected = BTreeMap::new();
            if let Content::Rows(_) = inode.content {
                let rows = tables.extents.get(&inode.ino).unwrap_or(&none);
                for key in rows.iter().filter_map(|extent| extent.object.key.clone()) {
                    *expected.entry(key).or_default() += 1;
                }
            }
            let found = tables.uses.get(&inode.ino).cloned().unwrap_or_default();
            (found != expected).then(|| {
                format!("inode {} has the object use counts {found:?}, expected {expected:?}", inode.ino)
            })
        });
        let without: Vec<Ino> =
            self.uses.keys().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in without {
            self.report(18, format!("object use counts of inode {ino}, which does not exist"));
        }
        let stray: Vec<Ino> =
            self.extents.keys().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.report(9, format!("extent rows of inode {ino}, which does not exist"));
        }
    }

    fn check_directory_ancestors(&mut self) {
        let mut reachable = BTreeSet::from([Ino::ROOT]);
        let mut lost = Vec::new();
        for (inode, _) in self.inodes.values().filter(|(inode, _)| inode.is_dir()) {
            let mut path = Vec::new();
            let mut at = inode.ino;
            let reaches_root = loop {
                if reachable.contains(&at) {
                    break true;
                }
                path.push(at);
                match self.inode(at).and_then(|inode| inode.home.as_ref()) {
                    Some((parent, _)) if path.len() <= self.inodes.len() => at = *parent,
                    _ => break false,
                }
            };
            if reaches_root { reachable.extend(path) } else { lost.push(inode.ino) }
        }
        for ino in lost {
            self.report(10, format!("directory {ino} is not reachable from the root"));
        }
    }

    fn check_set_groups(&mut self) {
        self.check_inodes(11, |tables, inode, _| {
            let expected = (inode.is_dir() && inode.mode & SETGID != 0).then_some(u64::from(inode.gid));
            let found = tables.set_groups.get(&inode.ino).copied();
            (found != expected).then(|| {
                format!("inode {} has the set-group record {found:?}, expected {expected:?}", inode.ino)
            })
        });
        let stray: Vec<Ino> =
            self.set_groups.keys().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.report(11, format!("a set-group record of inode {ino}, which does not exist"));
        }
    }

    fn check_waiting_exports(&mut self) {
        let stray: Vec<Ino> =
            self.waiting_exports.iter().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.report(17, format!("a waiting export of inode {ino}, which does not exist"));
        }
    }

    fn check_xattrs(&mut self) {
        let stray: Vec<Ino> =
            self.xattrs.owners.iter().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.report(12, format!("extended attributes of inode {ino}, which does not exist"));
        }
    }

    fn check_acls(&mut self) {
        self.check_inodes(15, |tables, inode, _| {
            let (access, default) =
                (tables.xattrs.acls.get(&(inode.ino, true)), tables.xattrs.acls.get(&(inode.ino, false)));
            let is_consistent =
                access.is_none_or(|list| !list.is_minimal() && list.on_mode(inode.mode) == inode.mode);
            (!is_consistent || (default.is_some() && !inode.is_dir())).then(|| {
                format!(
                    "inode {} of mode {:o} has the ACLs {access:?} and {default:?}",
                    inode.ino, inode.mode
                )
            })
        });
    }

    fn check_quotas(&mut self) {
        let mut used: BTreeMap<Ino, Usage> = BTreeMap::new();
        for (inode, _) in self.inodes.values() {
            let tree = inode.home.as_ref().and_then(|(parent, _)| self.quotas.trees.get(parent));
            for dir in tree.into_iter().chain([&Ino::ROOT]) {
                let sum = used.entry(*dir).or_default();
                *sum = sum.plus(usage(inode));
            }
        }
        let counts = |dir: &Ino| used.get(dir).copied().unwrap_or_default();
        let wrong = self.quotas.by_directory.iter().filter(|(dir, quota)| quota.used != counts(dir));
        let wrong: Vec<String> = wrong
            .map(|(dir, quota)| {
                format!("the quota of {dir} has the usage {:?}, expected {:?}", quota.used, counts(dir))
            })
            .collect();
        for what in wrong {
            self.report(16, what);
        }
        self.check_inodes(16, |tables, inode, _| {
            let above = inode.home.as_ref().and_then(|(parent, _)| tables.quotas.trees.get(parent)).copied();
            let own = (inode.ino != Ino::ROOT && tables.quotas.by_directory.contains_key(&inode.ino))
                .then_some(inode.ino);
            let (found, expected) = (tables.quotas.trees.get(&inode.ino).copied(), own.or(above));
            let expected = expected.filter(|_| inode.is_dir());
            (found != expected || (own.is_some() && above.is_some()))
                .then(|| format!("directory {} is in the tree {found:?}, expected {expected:?}", inode.ino))
        });
    }

    fn check_numbers_are_leased(&mut self) {
        let Some(next) = self.next_ino else { return };
        self.check_inodes(13, |_, inode, _| {
            (inode.ino.0 >= next).then(|| {
                format!("inode {} has a number that was not leased: the next number is {next}", inode.ino)
            })
        });
    }
}
