//! How the invariants are checked: one pass gathers the tables, then one predicate per number.

use super::Violation;
use crate::acl::{self, Acl};
use crate::codec::{DecodeError, decode_dentry, decode_extent, decode_inode, decode_number, decode_quota};
use crate::engine::{EngineError, KeyRange, Reader, Value};
use crate::inode::extents_fit;
use crate::namespace::usage;
use crate::{
    Content, Dentry, Extent, Fingerprint, Ino, Inode, Kind, Name, Quota, SETGID, Summary, Usage, schema,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::ObjectKey;

/// Rows read at a time: what one call holds an engine up for.
const PAGE_ROWS: usize = 4096;

/// Every broken invariant, in the order of their numbers. Wants a reader that nobody writes to meanwhile; its memory
/// grows with the tables.
pub fn fsck(reader: &(impl Reader + ?Sized)) -> Result<Vec<Violation>, EngineError> {
    let mut tables = Tables::default();
    tables.gather(reader)?;
    tables.root();
    tables.dentries_lead_to_inodes();
    tables.dentries_are_in_directories();
    tables.link_counts();
    tables.homes();
    tables.further_names();
    tables.orphans();
    tables.extents();
    tables.directories_reach_the_root();
    tables.set_groups();
    tables.xattrs();
    tables.numbers_are_leased();
    tables.acls();
    tables.quotas();
    tables.waiting_exports();
    let mut violations = tables.violations;
    violations.sort_by_key(|violation| violation.number);
    Ok(violations)
}

/// The tables, decoded.
#[derive(Debug, Default)]
struct Tables {
    /// Each with the number of its rows of extents that it has no summary of.
    inodes: BTreeMap<Ino, (Inode, usize)>,
    dentries: BTreeMap<(Ino, Name), Dentry>,
    extents: BTreeMap<Ino, Vec<Extent>>,
    uses: BTreeMap<Ino, BTreeMap<ObjectKey, u64>>,
    further: BTreeSet<(Ino, Ino, Name)>,
    orphans: BTreeSet<Ino>,
    set_groups: BTreeMap<Ino, u64>,
    quotas: BTreeMap<Ino, Quota>,
    trees: BTreeMap<Ino, Ino>,
    with_xattrs: BTreeSet<Ino>,
    acls: BTreeMap<(Ino, bool), Acl>,
    waiting_exports: BTreeSet<Ino>,
    next_ino: Option<u64>,
    violations: Vec<Violation>,
}

impl Tables {
    fn break_(&mut self, number: u32, what: String) {
        self.violations.push(Violation { number, what });
    }

    fn gather(&mut self, reader: &(impl Reader + ?Sized)) -> Result<(), EngineError> {
        self.each(reader, schema::inodes(), |tables, key, value| {
            let ino = schema::ino_of(key)?;
            let record = decode_inode(ino, value)?;
            tables.inodes.insert(ino, (record.inode, record.unsummed));
            Ok(())
        })?;
        self.each(reader, schema::all_dentries(), |tables, key, value| {
            tables.dentries.insert((schema::ino_of(key)?, schema::name_of(key)?), decode_dentry(value)?);
            Ok(())
        })?;
        self.each(reader, schema::all_extents(), |tables, key, value| {
            let extent = decode_extent(schema::offset_of(key)?, value)?;
            tables.extents.entry(schema::ino_of(key)?).or_default().push(extent);
            Ok(())
        })?;
        self.each(reader, schema::all_objects_used(), |tables, key, value| {
            let uses = tables.uses.entry(schema::ino_of(key)?).or_default();
            uses.insert(schema::object_of(key)?, decode_number(value)?);
            Ok(())
        })?;
        self.each(reader, schema::all_hard_links(), |tables, key, _| {
            let (dir, name) = schema::link_of(key)?;
            tables.further.insert((schema::ino_of(key)?, dir, name));
            Ok(())
        })?;
        self.gather_small(reader)
    }

    fn gather_small(&mut self, reader: &(impl Reader + ?Sized)) -> Result<(), EngineError> {
        self.each(reader, schema::orphans(), |tables, key, _| {
            tables.orphans.insert(schema::ino_of(key)?);
            Ok(())
        })?;
        self.each(reader, schema::set_groups(), |tables, key, value| {
            tables.set_groups.insert(schema::ino_of(key)?, decode_number(value)?);
            Ok(())
        })?;
        self.each(reader, schema::quotas(), |tables, key, value| {
            tables.quotas.insert(schema::ino_of(key)?, decode_quota(value)?);
            Ok(())
        })?;
        self.each(reader, schema::trees(), |tables, key, value| {
            tables.trees.insert(schema::ino_of(key)?, Ino(decode_number(value)?));
            Ok(())
        })?;
        self.each(reader, schema::all_xattrs(), |tables, key, value| {
            let (ino, name) = (schema::ino_of(key)?, schema::xattr_of(key)?);
            tables.with_xattrs.insert(ino);
            if Acl::is_name(name) {
                let list = Acl::parse(value).ok_or(DecodeError::Field("an ACL that is none"))?;
                tables.acls.insert((ino, name == acl::ACCESS), list);
            }
            Ok(())
        })?;
        self.each(reader, schema::waiting_exports(), |tables, key, value| {
            decode_number(value)?;
            tables.waiting_exports.insert(schema::ino_of(key)?);
            Ok(())
        })?;
        if let Some(found) = reader.get(&schema::next_ino())? {
            match decode_number(&found.value) {
                Ok(next) => self.next_ino = Some(next),
                Err(error) => self.break_(14, format!("the inode counter: {error}")),
            }
        }
        Ok(())
    }

    fn each(
        &mut self,
        reader: &(impl Reader + ?Sized),
        range: KeyRange,
        take: impl Fn(&mut Self, &[u8], &Value) -> Result<(), DecodeError>,
    ) -> Result<(), EngineError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = match &after {
                Some(key) => Bound::Excluded(key.as_slice()),
                None => Bound::Included(range.from.as_slice()),
            };
            let rows = reader.scan(from, Bound::Excluded(&range.to), PAGE_ROWS)?;
            for (key, found) in &rows {
                if let Err(error) = take(self, key, &found.value) {
                    self.break_(14, format!("the record of key {}: {error}", key.escape_ascii()));
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

    /// Runs a predicate over all inodes; it answers with what is wrong.
    fn inodes_satisfy(&mut self, number: u32, wrong: impl Fn(&Self, &Inode, usize) -> Option<String>) {
        let found: Vec<String> =
            self.inodes.values().filter_map(|(inode, unsummed)| wrong(self, inode, *unsummed)).collect();
        for what in found {
            self.break_(number, what);
        }
    }

    /// Runs a predicate over all dentries; it answers with what is wrong.
    fn dentries_satisfy(
        &mut self,
        number: u32,
        wrong: impl Fn(&Self, &(Ino, Name), Dentry) -> Option<String>,
    ) {
        let found: Vec<String> =
            self.dentries.iter().filter_map(|(place, dentry)| wrong(self, place, *dentry)).collect();
        for what in found {
            self.break_(number, what);
        }
    }

    fn root(&mut self) {
        match self.inode(Ino::ROOT) {
            Some(root) if root.is_dir() && root.home.is_none() => {}
            Some(root) => {
                self.break_(1, format!("the root is a {:?} with the home {:?}", root.kind, root.home))
            }
            None if self.inodes.is_empty() && self.dentries.is_empty() => {}
            None => self.break_(1, "there is no root".into()),
        }
    }

    fn dentries_lead_to_inodes(&mut self) {
        self.dentries_satisfy(2, |tables, (dir, name), dentry| match tables.inode(dentry.ino) {
            Some(inode) if inode.kind == dentry.kind => None,
            Some(inode) => Some(format!(
                "{name} in {dir} says {:?}, inode {} is a {:?}",
                dentry.kind, inode.ino, inode.kind
            )),
            None => Some(format!("{name} in {dir} leads to inode {}, which does not exist", dentry.ino)),
        });
    }

    fn dentries_are_in_directories(&mut self) {
        self.dentries_satisfy(3, |tables, (dir, name), _| match tables.inode(*dir) {
            Some(inode) if inode.is_dir() => None,
            _ => Some(format!("{name} is in {dir}, which is no directory")),
        });
    }

    fn link_counts(&mut self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirectories: BTreeMap<Ino, u32> = BTreeMap::new();
        for ((dir, _), dentry) in &self.dentries {
            *names.entry(dentry.ino).or_default() += 1;
            if dentry.kind == Kind::Directory {
                *subdirectories.entry(*dir).or_default() += 1;
            }
        }
        self.inodes_satisfy(4, |_, inode, _| {
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
                    "{:?} {} has {} links, {expected} expected, and {names} names",
                    inode.kind, inode.ino, inode.nlink
                )
            })
        });
    }

    fn homes(&mut self) {
        self.inodes_satisfy(5, |tables, inode, _| match &inode.home {
            None if inode.ino == Ino::ROOT || inode.nlink == 0 => None,
            None => Some(format!("inode {} has no home", inode.ino)),
            Some(home) if tables.dentries.get(home).is_some_and(|dentry| dentry.ino == inode.ino) => None,
            Some((dir, name)) => {
                Some(format!("the home {name} in {dir} does not lead to inode {}", inode.ino))
            }
        });
    }

    fn further_names(&mut self) {
        self.dentries_satisfy(6, |tables, (dir, name), dentry| {
            let is_home =
                tables.inode(dentry.ino).is_some_and(|inode| inode.home == Some((*dir, name.clone())));
            let is_further = tables.further.contains(&(dentry.ino, *dir, name.clone()));
            (is_home == is_further)
                .then(|| format!("{name} in {dir}: home {is_home}, further name {is_further}"))
        });
        let leads = |(ino, dir, name): &&(Ino, Ino, Name)| {
            self.dentries.get(&(*dir, name.clone())).is_some_and(|dentry| dentry.ino == *ino)
        };
        let stray: Vec<_> = self.further.iter().filter(|further| !leads(further)).cloned().collect();
        for (ino, dir, name) in stray {
            self.break_(6, format!("the further name {name} in {dir} does not lead to inode {ino}"));
        }
    }

    fn orphans(&mut self) {
        self.inodes_satisfy(7, |tables, inode, _| {
            let recorded = tables.orphans.contains(&inode.ino);
            let is_orphan = inode.nlink == 0;
            (recorded != is_orphan || (is_orphan && inode.home.is_some())).then(|| {
                format!(
                    "inode {}: {} links, orphan record {recorded}, home {:?}",
                    inode.ino, inode.nlink, inode.home
                )
            })
        });
        let stray: Vec<Ino> =
            self.orphans.iter().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.break_(7, format!("the orphan {ino} is no inode"));
        }
    }

    fn extents(&mut self) {
        let none = Vec::new();
        self.inodes_satisfy(8, |tables, inode, unsummed| {
            let content = match &inode.content {
                Content::Inline(extents) if unsummed == 0 => extents,
                _ => tables.extents.get(&inode.ino).unwrap_or(&none),
            };
            let fits = extents_fit(content, inode.size_bytes) && (!inode.is_dir() || inode.size_bytes == 0);
            (!fits).then(|| {
                format!("inode {} of {} bytes has the extents {content:?}", inode.ino, inode.size_bytes)
            })
        });
        self.inodes_satisfy(9, |tables, inode, unsummed| {
            let rows = tables.extents.get(&inode.ino).unwrap_or(&none);
            let expected = match &inode.content {
                Content::Inline(_) => unsummed as u64,
                Content::Rows(summary) => summary.extents,
            };
            let says = |content: &Content| match content {
                // What a fingerprint was before each change is not known any more.
                Content::Rows(summary) => {
                    Some(Summary { fingerprint: Fingerprint([0; 16]), ..summary.clone() })
                }
                Content::Inline(_) => None,
            };
            if rows.len() as u64 != expected {
                return Some(format!(
                    "inode {} has {} extent rows, {expected} expected",
                    inode.ino,
                    rows.len()
                ));
            }
            let summary = says(&inode.content)?;
            let found = says(&Content::of(rows.clone(), inode.size_bytes));
            (found.as_ref() != Some(&summary)).then(|| {
                format!("inode {} sums its extent rows up as {summary:?}, they are {found:?}", inode.ino)
            })
        });
        self.inodes_satisfy(18, |tables, inode, _| {
            let mut expected = BTreeMap::new();
            if let Content::Rows(_) = inode.content {
                let rows = tables.extents.get(&inode.ino).unwrap_or(&none);
                for key in rows.iter().filter_map(|extent| extent.object.key.clone()) {
                    *expected.entry(key).or_default() += 1;
                }
            }
            let found = tables.uses.get(&inode.ino).cloned().unwrap_or_default();
            (found != expected).then(|| {
                format!("inode {} counts the uses of objects {found:?}, they are {expected:?}", inode.ino)
            })
        });
        let without: Vec<Ino> =
            self.uses.keys().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in without {
            self.break_(18, format!("uses of objects by inode {ino}, which does not exist"));
        }
        let stray: Vec<Ino> =
            self.extents.keys().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.break_(9, format!("extent rows of inode {ino}, which does not exist"));
        }
    }

    fn directories_reach_the_root(&mut self) {
        let mut reach = BTreeSet::from([Ino::ROOT]);
        let mut lost = Vec::new();
        for (inode, _) in self.inodes.values().filter(|(inode, _)| inode.is_dir()) {
            let mut way = Vec::new();
            let mut at = inode.ino;
            let arrived = loop {
                if reach.contains(&at) {
                    break true;
                }
                way.push(at);
                match self.inode(at).and_then(|inode| inode.home.as_ref()) {
                    Some((parent, _)) if way.len() <= self.inodes.len() => at = *parent,
                    _ => break false,
                }
            };
            if arrived { reach.extend(way) } else { lost.push(inode.ino) }
        }
        for ino in lost {
            self.break_(10, format!("directory {ino} does not lead to the root"));
        }
    }

    fn set_groups(&mut self) {
        self.inodes_satisfy(11, |tables, inode, _| {
            let expected = (inode.is_dir() && inode.mode & SETGID != 0).then_some(u64::from(inode.gid));
            let found = tables.set_groups.get(&inode.ino).copied();
            (found != expected)
                .then(|| format!("inode {} hands on the group {found:?}, {expected:?} expected", inode.ino))
        });
        let stray: Vec<Ino> =
            self.set_groups.keys().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.break_(11, format!("a group for entries of {ino}, which does not exist"));
        }
    }

    fn waiting_exports(&mut self) {
        let stray: Vec<Ino> =
            self.waiting_exports.iter().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.break_(17, format!("a waiting export of inode {ino}, which does not exist"));
        }
    }

    fn xattrs(&mut self) {
        let stray: Vec<Ino> =
            self.with_xattrs.iter().filter(|ino| !self.inodes.contains_key(ino)).copied().collect();
        for ino in stray {
            self.break_(12, format!("extended attributes of inode {ino}, which does not exist"));
        }
    }

    fn acls(&mut self) {
        self.inodes_satisfy(15, |tables, inode, _| {
            let (access, default) =
                (tables.acls.get(&(inode.ino, true)), tables.acls.get(&(inode.ino, false)));
            let agrees =
                access.is_none_or(|list| !list.is_minimal() && list.on_mode(inode.mode) == inode.mode);
            (!agrees || (default.is_some() && !inode.is_dir())).then(|| {
                format!(
                    "inode {} of mode {:o} has the ACLs {access:?} and {default:?}",
                    inode.ino, inode.mode
                )
            })
        });
    }

    fn quotas(&mut self) {
        let mut used: BTreeMap<Ino, Usage> = BTreeMap::new();
        for (inode, _) in self.inodes.values() {
            let tree = inode.home.as_ref().and_then(|(parent, _)| self.trees.get(parent));
            for dir in tree.into_iter().chain([&Ino::ROOT]) {
                let sum = used.entry(*dir).or_default();
                *sum = sum.plus(usage(inode));
            }
        }
        let counts = |dir: &Ino| used.get(dir).copied().unwrap_or_default();
        let wrong = self.quotas.iter().filter(|(dir, quota)| quota.used != counts(dir));
        let wrong: Vec<String> = wrong
            .map(|(dir, quota)| {
                format!("the quota of {dir} counts {:?}, there are {:?}", quota.used, counts(dir))
            })
            .collect();
        for what in wrong {
            self.break_(16, what);
        }
        self.inodes_satisfy(16, |tables, inode, _| {
            let above = inode.home.as_ref().and_then(|(parent, _)| tables.trees.get(parent)).copied();
            let own = (inode.ino != Ino::ROOT && tables.quotas.contains_key(&inode.ino)).then_some(inode.ino);
            let (found, expected) = (tables.trees.get(&inode.ino).copied(), own.or(above));
            let expected = expected.filter(|_| inode.is_dir());
            (found != expected || (own.is_some() && above.is_some()))
                .then(|| format!("directory {} is in the tree {found:?}, {expected:?} expected", inode.ino))
        });
    }

    fn numbers_are_leased(&mut self) {
        let Some(next) = self.next_ino else { return };
        self.inodes_satisfy(13, |_, inode, _| {
            (inode.ino.0 >= next).then(|| format!("inode {} was never leased, the next is {next}", inode.ino))
        });
    }
}
