//! The check of the invariants: reads all families in step, one inode after another, and checks each inode with its records.
//!
//! Memory is bounded by a page of each family and the records of one inode, except for 17 bytes for each directory, 16 bytes for each directory
//! in the tree of a quota, and the quotas.

use super::Violation;
use super::directories::Directories;
use super::family_rows::{FamilyRows, PAGE_LARGE_ROWS, PAGE_ROWS};
use super::findings::Findings;
use super::names::NameSums;
use super::quotas::Quotas;
use crate::acl::{self, Acl};
use crate::codec::{
    DecodeError, decode_batch, decode_dentry, decode_extent_row, decode_inode, decode_number,
    decode_refused_op,
};
use crate::engine::Reader;
use crate::error::EngineError;
use crate::extent::extents_fit;
use crate::{Content, Extent, Fingerprint, Ino, Inode, Kind, SETGID, Summary, schema};
use std::collections::BTreeMap;
use store::ObjectKey;

/// Returns the violations of the invariants, in the order of the invariants' numbers. Of very many violations of one invariant, most are only
/// counted. The tables must not change meanwhile.
pub fn fsck(reader: &(impl Reader + ?Sized)) -> Result<Vec<Violation>, EngineError> {
    let mut check = Check::default();
    check.quotas = Quotas::read(reader, &mut check.findings)?;
    check.read_counter(reader)?;
    let mut families = Families::new(reader);
    while let Some(ino) = families.next_ino(&mut check.findings)? {
        check.check_inode(&mut families, ino)?;
    }
    FamilyRows::new(reader, schema::batches(), PAGE_ROWS).for_each(&mut check.findings, |key, value| {
        match schema::batch_of(key)?.1 {
            None => decode_batch(value).map(drop),
            Some(_) => decode_refused_op(value).map(drop),
        }
    })?;
    check.finish(reader)
}

/// The families of records whose keys begin with the number of an inode, or of a directory.
struct Families<'r, R: ?Sized> {
    inodes: FamilyRows<'r, R>,
    dentries: FamilyRows<'r, R>,
    extents: FamilyRows<'r, R>,
    uses: FamilyRows<'r, R>,
    hard_links: FamilyRows<'r, R>,
    orphans: FamilyRows<'r, R>,
    set_groups: FamilyRows<'r, R>,
    xattrs: FamilyRows<'r, R>,
    waiting_exports: FamilyRows<'r, R>,
}

impl<'r, R: Reader + ?Sized> Families<'r, R> {
    fn new(reader: &'r R) -> Self {
        Self {
            inodes: FamilyRows::new(reader, schema::inodes(), PAGE_ROWS),
            dentries: FamilyRows::new(reader, schema::all_dentries(), PAGE_ROWS),
            extents: FamilyRows::new(reader, schema::all_extents(), PAGE_ROWS),
            uses: FamilyRows::new(reader, schema::all_objects_used(), PAGE_ROWS),
            hard_links: FamilyRows::new(reader, schema::all_hard_links(), PAGE_ROWS),
            orphans: FamilyRows::new(reader, schema::orphans(), PAGE_ROWS),
            set_groups: FamilyRows::new(reader, schema::set_groups(), PAGE_ROWS),
            xattrs: FamilyRows::new(reader, schema::all_xattrs(), PAGE_LARGE_ROWS),
            waiting_exports: FamilyRows::new(reader, schema::waiting_exports(), PAGE_ROWS),
        }
    }

    /// Returns the lowest number of an inode, existing or not, that has records that have not been read.
    fn next_ino(&mut self, findings: &mut Findings) -> Result<Option<Ino>, EngineError> {
        let families = [
            &mut self.inodes,
            &mut self.dentries,
            &mut self.extents,
            &mut self.uses,
            &mut self.hard_links,
            &mut self.orphans,
            &mut self.set_groups,
            &mut self.xattrs,
            &mut self.waiting_exports,
        ];
        let mut lowest: Option<Ino> = None;
        for family in families {
            let next = family.next_ino(findings)?;
            lowest = lowest.into_iter().chain(next).min();
        }
        Ok(lowest)
    }
}

/// The records of one inode, apart from those of its names.
#[derive(Debug, Default)]
struct InodeRows {
    extents: Vec<Extent>,
    uses: BTreeMap<ObjectKey, u64>,
    is_orphan: bool,
    set_group: Option<u64>,
    has_xattrs: bool,
    access: Option<Acl>,
    default: Option<Acl>,
    is_waiting_export: bool,
}

/// A check that is under way.
#[derive(Debug, Default)]
struct Check {
    findings: Findings,
    names: NameSums,
    directories: Directories,
    quotas: Quotas,
    next_ino: Option<u64>,
    /// Whether there are inodes or dentries, and whether the root is among them.
    has_records: bool,
    has_root: bool,
}

impl Check {
    fn report(&mut self, number: u32, what: String) {
        self.findings.report(number, what);
    }

    fn read_counter(&mut self, reader: &(impl Reader + ?Sized)) -> Result<(), EngineError> {
        if let Some(found) = reader.get(&schema::next_ino())? {
            match decode_number(&found.value) {
                Ok(next) => self.next_ino = Some(next),
                Err(error) => self.report(14, format!("the inode counter: {error}")),
            }
        }
        Ok(())
    }

    /// Checks the inode with a number, the next one, and its records.
    fn check_inode<R: Reader + ?Sized>(
        &mut self,
        families: &mut Families<'_, R>,
        ino: Ino,
    ) -> Result<(), EngineError> {
        let mut found = None;
        families.inodes.for_each_of(ino, &mut self.findings, |_, _, value| {
            found = Some(decode_inode(ino, value)?);
            Ok(())
        })?;
        let inode = found.as_ref().map(|record| &record.inode);
        self.has_records |= inode.is_some();
        let subdirectories = self.add_dentries(families, ino, inode)?;
        let links = self.subtract_names(families, ino, inode)?;
        let rows = self.read_rows(families, ino)?;
        match &found {
            None => self.check_stray(ino, &rows),
            Some(record) => {
                let inode = &record.inode;
                self.names.check_link_count(inode, links, subdirectories);
                if inode.is_dir() {
                    self.directories.add(ino, inode.home.as_ref().map(|(parent, _)| *parent));
                }
                self.quotas.add(inode, &mut self.findings);
                self.check_links(inode, &rows);
                self.check_attributes(inode, &rows);
                self.check_extents(inode, record.unsummed, &rows);
            }
        }
        Ok(())
    }

    /// Reads the dentries in a directory. Returns the number of subdirectories.
    fn add_dentries<R: Reader + ?Sized>(
        &mut self,
        families: &mut Families<'_, R>,
        dir: Ino,
        inode: Option<&Inode>,
    ) -> Result<u32, EngineError> {
        let (names, is_directory) = (&mut self.names, inode.is_some_and(Inode::is_dir));
        let (mut subdirectories, mut has_dentries) = (0u32, false);
        families.dentries.for_each_of(dir, &mut self.findings, |findings, key, value| {
            let (name, dentry) = (schema::name_of(key)?, decode_dentry(value)?);
            has_dentries = true;
            if !is_directory {
                findings.report(3, format!("{name} is in {dir}, which is not a directory"));
            }
            if dentry.kind == Kind::Directory {
                subdirectories = subdirectories.saturating_add(1);
            }
            names.add_dentry(dir, &name, dentry);
            Ok(())
        })?;
        self.has_records |= has_dentries;
        Ok(subdirectories)
    }

    /// Reads the names of an inode. Returns the number of additional names.
    fn subtract_names<R: Reader + ?Sized>(
        &mut self,
        families: &mut Families<'_, R>,
        ino: Ino,
        inode: Option<&Inode>,
    ) -> Result<u32, EngineError> {
        let (names, kind) = (&mut self.names, inode.map(|inode| inode.kind));
        if let Some((dir, name)) = inode.and_then(|inode| inode.home.as_ref()) {
            names.subtract_name(*dir, name, ino, kind);
        }
        let mut links = 0u32;
        families.hard_links.for_each_of(ino, &mut self.findings, |_, key, _| {
            let (dir, name) = schema::link_of(key)?;
            names.subtract_name(dir, &name, ino, kind);
            links = links.saturating_add(1);
            Ok(())
        })?;
        Ok(links)
    }

    fn read_rows<R: Reader + ?Sized>(
        &mut self,
        families: &mut Families<'_, R>,
        ino: Ino,
    ) -> Result<InodeRows, EngineError> {
        let (mut rows, findings) = (InodeRows::default(), &mut self.findings);
        families.extents.for_each_of(ino, findings, |_, key, value| {
            rows.extents.push(decode_extent_row(key, value)?);
            Ok(())
        })?;
        families.uses.for_each_of(ino, findings, |_, key, value| {
            rows.uses.insert(schema::object_of(key)?, decode_number(value)?);
            Ok(())
        })?;
        families.orphans.for_each_of(ino, findings, |_, _, _| {
            rows.is_orphan = true;
            Ok(())
        })?;
        families.set_groups.for_each_of(ino, findings, |_, _, value| {
            rows.set_group = Some(decode_number(value)?);
            Ok(())
        })?;
        families.xattrs.for_each_of(ino, findings, |_, key, value| {
            let name = schema::xattr_of(key)?;
            rows.has_xattrs = true;
            if Acl::is_name(name) {
                let list = Acl::parse(value).ok_or(DecodeError::Field("an invalid ACL"))?;
                let place = if name == acl::ACCESS { &mut rows.access } else { &mut rows.default };
                *place = Some(list);
            }
            Ok(())
        })?;
        families.waiting_exports.for_each_of(ino, findings, |_, _, value| {
            decode_number(value)?;
            rows.is_waiting_export = true;
            Ok(())
        })?;
        Ok(rows)
    }

    /// Reports the records of an inode that does not exist.
    fn check_stray(&mut self, ino: Ino, rows: &InodeRows) {
        if rows.is_orphan {
            self.report(7, format!("the orphan {ino} does not exist"));
        }
        if !rows.extents.is_empty() {
            self.report(9, format!("extent rows of inode {ino}, which does not exist"));
        }
        if rows.set_group.is_some() {
            self.report(11, format!("a set-group record of inode {ino}, which does not exist"));
        }
        if rows.has_xattrs {
            self.report(12, format!("extended attributes of inode {ino}, which does not exist"));
        }
        if rows.is_waiting_export {
            self.report(17, format!("a waiting export of inode {ino}, which does not exist"));
        }
        if !rows.uses.is_empty() {
            self.report(18, format!("object use counts of inode {ino}, which does not exist"));
        }
    }

    fn check_links(&mut self, inode: &Inode, rows: &InodeRows) {
        if inode.ino == Ino::ROOT {
            self.has_root = true;
            if !inode.is_dir() || inode.home.is_some() {
                let (kind, home) = (inode.kind, &inode.home);
                self.report(1, format!("the root is a {kind:?} with the primary name {home:?}"));
            }
        } else if inode.home.is_none() && inode.nlink > 0 {
            self.report(5, format!("inode {} has no primary name", inode.ino));
        }
        let is_orphan = inode.nlink == 0;
        if rows.is_orphan != is_orphan || (is_orphan && inode.home.is_some()) {
            self.report(
                7,
                format!(
                    "inode {}: link count {}, orphan record {}, primary name {:?}",
                    inode.ino, inode.nlink, rows.is_orphan, inode.home
                ),
            );
        }
        if let Some(next) = self.next_ino.filter(|next| inode.ino.0 >= *next) {
            self.report(
                13,
                format!("inode {} has a number that was not leased: the next number is {next}", inode.ino),
            );
        }
    }

    fn check_attributes(&mut self, inode: &Inode, rows: &InodeRows) {
        let expected = (inode.is_dir() && inode.mode & SETGID != 0).then_some(u64::from(inode.gid));
        if rows.set_group != expected {
            let found = rows.set_group;
            self.report(
                11,
                format!("inode {} has the set-group record {found:?}, expected {expected:?}", inode.ino),
            );
        }
        let (access, default) = (rows.access.as_ref(), rows.default.as_ref());
        let is_consistent =
            access.is_none_or(|list| !list.is_minimal() && list.on_mode(inode.mode) == inode.mode);
        if !is_consistent || (default.is_some() && !inode.is_dir()) {
            self.report(
                15,
                format!(
                    "inode {} of mode {:o} has the ACLs {access:?} and {default:?}",
                    inode.ino, inode.mode
                ),
            );
        }
    }

    fn check_extents(&mut self, inode: &Inode, unsummed: usize, rows: &InodeRows) {
        let content = match &inode.content {
            Content::Inline(extents) if unsummed == 0 => extents,
            _ => &rows.extents,
        };
        if !extents_fit(content, inode.size_bytes) || (inode.is_dir() && inode.size_bytes > 0) {
            self.report(
                8,
                format!("inode {} of {} bytes has the extents {content:?}", inode.ino, inode.size_bytes),
            );
        }
        if let Some(what) = wrong_summary(inode, unsummed, &rows.extents) {
            self.report(9, what);
        }
        let mut expected = BTreeMap::new();
        if let Content::Rows(_) = inode.content {
            for key in rows.extents.iter().filter_map(|extent| extent.object.key.clone()) {
                *expected.entry(key).or_default() += 1;
            }
        }
        if rows.uses != expected {
            let found = &rows.uses;
            self.report(
                18,
                format!("inode {} has the object use counts {found:?}, expected {expected:?}", inode.ino),
            );
        }
    }

    /// Makes the checks that need all records, and returns the violations.
    fn finish(mut self, reader: &(impl Reader + ?Sized)) -> Result<Vec<Violation>, EngineError> {
        if self.has_records && !self.has_root {
            self.report(1, "the root is missing".into());
        }
        self.names.check(reader, &mut self.findings)?;
        self.directories.check(&mut self.findings);
        self.quotas.check(&mut self.findings);
        Ok(self.findings.into_violations())
    }
}

/// Returns the description of a difference between the extent rows of an inode and what its record says of them.
fn wrong_summary(inode: &Inode, unsummed: usize, rows: &[Extent]) -> Option<String> {
    let expected = match &inode.content {
        Content::Inline(_) => unsummed as u64,
        Content::Rows(summary) => summary.extents,
    };
    if rows.len() as u64 != expected {
        return Some(format!("inode {} has {} extent rows, expected {expected}", inode.ino, rows.len()));
    }
    let comparable = |content: &Content| match content {
        // Fingerprints are not compared: they depend on earlier contents, which are not known here.
        Content::Rows(summary) => Some(Summary { fingerprint: Fingerprint([0; 16]), ..summary.clone() }),
        Content::Inline(_) => None,
    };
    let summary = comparable(&inode.content)?;
    let found = comparable(&Content::of(rows, inode.size_bytes));
    (found.as_ref() != Some(&summary)).then(|| {
        format!("inode {} has the summary {summary:?}, but its extent rows give {found:?}", inode.ino)
    })
}
