//! The namespace: the meaning of ops, and typed reads of inodes and entries.
//!
//! Owns [`apply`], with one file per family of ops, and [`Namespace`], which reads inodes and entries, and which commits ops
//! and retries them while they conflict. Keeps no state of its own, except unused inode numbers and whether quotas exist.
//!
//! Invariant: an op that changes a dentry also writes the inode of its directory, at least by a merge. The version of a directory's inode is
//! therefore a counter of the changes of its entries, its attributes and its ACLs.

mod apply;
mod attr;
mod batch;
mod create;
mod export;
mod extents;
mod foreign;
mod publish;
mod quota;
mod read_ahead;
mod records;
mod rename;
mod unlink;
mod volume;
mod xattr;

use crate::allocate::{Allocator, FIRST_INO, LEASE_INOS};
use crate::codec::{decode_dentry, decode_extent_row, decode_inode, decode_number, decode_quota};
use crate::engine::{Engine, Reader};
use crate::error::{CommitError, EngineError};
use crate::record::KeyRange;
use crate::{
    Applied, Content, Dentry, Extent, FsError, Ino, Inode, Limits, Name, Op, OpContext, Quota, Staged, schema,
};
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use apply::apply;
pub use attr::LINKS_MAX;
pub use batch::{read_batch, read_batches, read_refused_ops};
pub(crate) use quota::usage;
pub use xattr::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};

/// Conflicts after which a commit excludes all other commits of this [`Namespace`].
const CONFLICTS_BEFORE_EXCLUSION: usize = 4;

/// Conflicts after which a commit fails with [`FsError::Conflict`].
const CONFLICTS_MAX: usize = 64;

/// Ops and typed reads over an engine. Shared by reference; calls do not depend on each other.
#[derive(Debug)]
pub struct Namespace {
    engine: Arc<dyn Engine>,
    allocator: Mutex<Allocator>,
    /// The number of this opening of the engine.
    mount: u64,
    /// Prevents starvation: held shared by every commit, and exclusively by a commit after too many conflicts.
    starvation_lock: RwLock<()>,
    /// Whether any quota is set, as far as this process knows.
    has_quotas: AtomicBool,
}

/// How an attempt to commit ops is made.
#[derive(Debug, Clone, Copy)]
struct Attempt<'a> {
    /// Whether the first op that fails ends the attempt, and the writes of the ops before it are undone.
    is_all_or_nothing: bool,
    /// Whether keys that are almost certainly absent are assumed to be absent, instead of being read across a network. The commit checks
    /// the assumption.
    is_optimistic: bool,
    /// An inode whose content must not have changed since it was read; `None` if no content matters.
    seen: Option<&'a Inode>,
    /// Names that must refer to the same inodes as when they were read.
    names: &'a [SeenName],
}

/// A name, and the inode to which it was seen to refer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenName {
    /// The directory.
    pub parent: Ino,
    /// The name in it.
    pub name: Name,
    /// The inode.
    pub ino: Ino,
}

impl Attempt<'_> {
    /// Returns an attempt that commits all ops or none, after a number of conflicts. It is optimistic if there was no conflict.
    fn all_or_nothing(conflicts: usize) -> Self {
        Self { is_all_or_nothing: true, is_optimistic: conflicts == 0, seen: None, names: &[] }
    }
}

impl Namespace {
    /// Opens the namespace of an engine and reserves inode numbers for it. An empty engine gets a root directory of mode 0755,
    /// owned by the user and group of `context`.
    pub fn new(engine: Arc<dyn Engine>, context: &OpContext) -> Result<Self, FsError> {
        let allocator = Mutex::new(Allocator::new(Ino::ROOT..Ino::ROOT));
        let mut namespace = Self {
            engine,
            allocator,
            mount: 0,
            starvation_lock: RwLock::new(()),
            has_quotas: AtomicBool::new(false),
        };
        match namespace.commit(context, &Op::Root { mode: 0o755, uid: context.uid, gid: context.gid }) {
            Ok(_) | Err(FsError::Exists) => {}
            Err(error) => return Err(error),
        }
        let lease = namespace.lease(context, LEASE_INOS)?;
        // Without its lease, another opening gets the same numbers.
        namespace.engine.rely_on_commits()?;
        namespace.mount = mount_number(&lease);
        *namespace.lock_allocator() = Allocator::new(lease);
        namespace.has_quotas.store(namespace.read_has_quotas()?, Ordering::Release);
        Ok(namespace)
    }

    /// Returns the number of this opening of the engine, from 1. It is greater than the number of every earlier opening.
    pub fn mount(&self) -> u64 {
        self.mount
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Applies an op and commits it.
    pub fn commit(&self, context: &OpContext, op: &Op) -> Result<Applied, FsError> {
        only(self.commit_all(context, std::slice::from_ref(op))?)
    }

    /// Applies ops in order in one commit. If an op fails, nothing is committed and its error is returned.
    pub fn commit_together(&self, context: &OpContext, ops: &[Op]) -> Result<Vec<Applied>, FsError> {
        self.commit_together_if(context, &[], ops)
    }

    /// Like [`Namespace::commit_together`], if names still refer to the inodes that the caller has seen. Fails with `NotFound` if one does
    /// not.
    pub fn commit_together_if(
        &self,
        context: &OpContext,
        names: &[SeenName],
        ops: &[Op],
    ) -> Result<Vec<Applied>, FsError> {
        let attempt = |number| Attempt { names, ..Attempt::all_or_nothing(number) };
        let results = self.retry_conflicts(|number| self.try_commit(context, ops, attempt(number)))?;
        results.into_iter().collect()
    }

    /// Like [`Namespace::commit`], for an op that only stores the content of `seen` in other objects. Fails with `StaleBase` if the
    /// inode has other content by now.
    pub fn commit_rewrite(&self, context: &OpContext, seen: &Inode, op: &Op) -> Result<Applied, FsError> {
        let ops = std::slice::from_ref(op);
        let attempt = |number| Attempt { seen: Some(seen), ..Attempt::all_or_nothing(number) };
        only(self.retry_conflicts(|number| self.try_commit(context, ops, attempt(number)))?)
    }

    /// Applies ops in order in one commit. An op that fails changes nothing, and its error is the result in its place. After an
    /// outer error no op has been applied; after [`EngineError::Uncertain`] perhaps all of them.
    pub fn commit_all(
        &self,
        context: &OpContext,
        ops: &[Op],
    ) -> Result<Vec<Result<Applied, FsError>>, FsError> {
        self.retry_conflicts(|attempt| {
            let is_all_or_nothing = false;
            self.try_commit(context, ops, Attempt { is_all_or_nothing, ..Attempt::all_or_nothing(attempt) })
        })
    }

    /// Retries `attempt` until it does not conflict. `attempt` gets the number of conflicts so far, and returns `None` after a conflict.
    fn retry_conflicts<T>(
        &self,
        attempt: impl Fn(usize) -> Result<Option<T>, FsError>,
    ) -> Result<T, FsError> {
        for conflicts in 0..CONFLICTS_MAX {
            let outcome = if conflicts < CONFLICTS_BEFORE_EXCLUSION {
                let _shared = self.starvation_lock.read().unwrap_or_else(PoisonError::into_inner);
                attempt(conflicts)
            } else {
                let _exclusive = self.starvation_lock.write().unwrap_or_else(PoisonError::into_inner);
                attempt(conflicts)
            };
            if let Some(done) = outcome? {
                return Ok(done);
            }
        }
        Err(FsError::Conflict)
    }

    /// Applies ops and commits them. Returns `None` after a conflict.
    fn try_commit(
        &self,
        context: &OpContext,
        ops: &[Op],
        attempt: Attempt<'_>,
    ) -> Result<Option<Vec<Result<Applied, FsError>>>, FsError> {
        let mut txn = Staged::new(&*self.engine);
        if self.engine.is_remote() {
            if attempt.is_optimistic {
                txn.assume_absent(ops.iter().flat_map(read_ahead::keys_probably_absent).collect());
            }
            txn.read_ahead(ops.iter().flat_map(read_ahead::keys_read_by).collect())?;
        }
        if let Some(seen) = attempt.seen
            && records::load(&mut txn, seen.ino)?.content != seen.content
        {
            return Err(FsError::StaleBase);
        }
        for SeenName { parent, name, ino } in attempt.names {
            if records::find_entry(&mut txn, *parent, name)?.is_none_or(|dentry| dentry.ino != *ino) {
                return Err(FsError::NotFound);
            }
        }
        let mut results = Vec::with_capacity(ops.len());
        for op in ops {
            let result = apply(&mut txn, context, op);
            match &result {
                Ok(applied) => txn.keep_op(context, op, applied),
                Err(FsError::Engine(error)) => return Err(error.clone().into()),
                Err(_) => txn.drop_op(),
            }
            let is_aborted = attempt.is_all_or_nothing && result.is_err();
            results.push(result);
            if is_aborted {
                txn.drop_all();
                break;
            }
        }
        // A commit without ops still checks its conditions, so that no op fails because it read half of a concurrent change.
        match self.engine.commit(txn.into_commit()) {
            Ok(_) => Ok(Some(results)),
            Err(CommitError::Conflict) => Ok(None),
            Err(CommitError::Engine(error)) => Err(error.into()),
        }
    }

    /// Returns the inode with the given number, which may be an orphan.
    pub fn inode(&self, ino: Ino) -> Result<Inode, FsError> {
        read_inode(&*self.engine, ino)?.ok_or(FsError::NotFound)
    }

    /// Like [`Namespace::inode`], from the newest state, which a remote engine reads across the network.
    pub fn newest_inode(&self, ino: Ino) -> Result<Inode, FsError> {
        self.engine.get_newest(&schema::inode(ino))?;
        self.inode(ino)
    }

    /// Returns an inode and all extents of its content, from one state.
    pub fn content(&self, ino: Ino) -> Result<(Inode, Vec<Extent>), FsError> {
        read_content(&*self.engine, ino)?.ok_or(FsError::NotFound)
    }

    /// Returns a view of the tables that no later commit changes. Fails with an engine without snapshots.
    pub fn snapshot(&self) -> Result<Arc<dyn Reader>, FsError> {
        Ok(self.engine.snapshot()?)
    }

    /// Returns the extents of an inode that was read earlier. Fails with `StaleBase` if its content has changed since, and with
    /// `NotFound` if the inode no longer exists.
    pub fn content_of(&self, inode: &Inode) -> Result<Vec<Extent>, FsError> {
        if let Content::Inline(extents) = &inode.content {
            return Ok(extents.clone());
        }
        let (now, extents) = self.content(inode.ino)?;
        if now.content == inode.content { Ok(extents) } else { Err(FsError::StaleBase) }
    }

    /// Returns the inodes with the given numbers, in the order of the numbers; `None` for those that do not exist.
    pub fn inodes(&self, inos: &[Ino]) -> Result<Vec<Option<Inode>>, FsError> {
        let keys: Vec<_> = inos.iter().map(|ino| schema::inode(*ino)).collect();
        let found = self.engine.multi_get(&keys)?;
        let decode = |(ino, found): (&Ino, Option<crate::Versioned>)| match found {
            None => Ok(None),
            Some(found) => match decode_inode(*ino, &found.value)? {
                record if record.unsummed > 0 => read_inode(&*self.engine, *ino),
                record => Ok(Some(record.inode)),
            },
        };
        inos.iter().zip(found).map(decode).collect()
    }

    /// Returns the inode that a name refers to; `None` if there is no such name.
    pub fn lookup(&self, parent: Ino, name: &Name) -> Result<Option<Inode>, FsError> {
        let (key, mut seen) = (schema::dentry(parent, name), None);
        loop {
            let found = self.engine.get_dentry(&key)?;
            let Some((dentry, inode)) = found else { return Ok(None) };
            let dentry = decode_dentry(&dentry.value)?;
            if let Some(inode) = inode {
                let record = decode_inode(dentry.ino, &inode.value)?;
                return if record.unsummed > 0 {
                    read_inode(&*self.engine, dentry.ino)
                } else {
                    Ok(Some(record.inode))
                };
            }
            // The name was removed between the two reads, or a cache has an old name. If the next attempt finds the same name without its
            // inode, the tables are damaged.
            if self.engine.get_newest(&key)?.is_none() {
                return Ok(None);
            }
            if seen.replace(dentry.ino) == Some(dentry.ino) {
                return Err(FsError::Corrupt(format!(
                    "a name refers to inode {}, which does not exist",
                    dentry.ino
                )));
            }
        }
    }

    /// Returns the dentry of a name; `None` if there is no such name.
    pub fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Dentry>, FsError> {
        read_entry(&*self.engine, parent, name)
    }

    /// Returns the first `limit` entries of a directory after a name, ascending by name. Returns no entries for an inode that does
    /// not exist or is not a directory.
    pub fn entries(
        &self,
        dir: Ino,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, Dentry)>, FsError> {
        let KeyRange { from, to } = schema::dentries(dir);
        let after = after.map(|name| schema::dentry(dir, name));
        let from = match &after {
            Some(key) => Bound::Excluded(key.as_slice()),
            None => Bound::Included(from.as_slice()),
        };
        let rows = self.engine.scan(from, Bound::Excluded(&to), limit)?;
        let entry = |(key, found): &(Vec<u8>, crate::Versioned)| {
            Ok((schema::name_of(key)?, decode_dentry(&found.value)?))
        };
        rows.iter().map(entry).collect()
    }

    /// Returns the first directory that has entries and a number of at least `from`; `None` if there is none.
    pub fn directory_from(&self, from: Ino) -> Result<Option<Ino>, FsError> {
        let (first, all) = (schema::dentries(from), schema::all_dentries());
        let rows = self.engine.scan(Bound::Included(&first.from), Bound::Excluded(&all.to), 1)?;
        rows.first().map(|(key, _)| Ok(schema::ino_of(key)?)).transpose()
    }

    /// Returns the path of an inode's primary name, as names from the root down; empty for the root. Fails with `NotFound` for
    /// orphans.
    pub fn path(&self, ino: Ino) -> Result<Vec<Name>, FsError> {
        read_path(&*self.engine, ino)
    }

    /// Returns the value of an extended attribute. Fails with `NoData` if the inode has no such attribute.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<bytes::Bytes, FsError> {
        match self.engine.get(&schema::xattr(ino, name))? {
            Some(found) => Ok(bytes::Bytes::copy_from_slice(&found.value)),
            None => self.inode(ino).and(Err(FsError::NoData)),
        }
    }

    /// Returns the names of an inode's extended attributes, ascending.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Box<[u8]>>, FsError> {
        let range = schema::xattrs(ino);
        let (from, to) = range.bounds();
        let rows = self.engine.scan(from, to, usize::MAX)?;
        rows.iter().map(|(key, _)| Ok(schema::xattr_of(key)?.into())).collect()
    }

    /// Returns all names of an inode, the primary name first; empty for the root and for orphans.
    pub fn names(&self, ino: Ino) -> Result<Vec<(Ino, Name)>, FsError> {
        let mut names = Vec::from_iter(self.inode(ino)?.home);
        let range = schema::hard_links(ino);
        let (from, to) = range.bounds();
        for (key, _) in self.engine.scan(from, to, usize::MAX)? {
            names.push(schema::link_of(&key)?);
        }
        Ok(names)
    }

    /// Sets or removes a quota. Counts the current usage while no other op of this `Namespace` is committed. Fails with `Invalid` while
    /// another session is alive.
    pub fn set_quota(&self, context: &OpContext, dir: Ino, limits: Option<Limits>) -> Result<(), FsError> {
        let _exclusive = self.starvation_lock.write().unwrap_or_else(PoisonError::into_inner);
        if !self.engine.is_alone()? {
            return Err(FsError::Invalid(
                "a quota can only be set while no other machine has the volume mounted",
            ));
        }
        let done = self
            .try_commit(context, &[Op::SetQuota { dir, limits }], Attempt::all_or_nothing(1))?
            .ok_or(FsError::Conflict)?;
        done.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.has_quotas.store(self.read_has_quotas()?, Ordering::Release);
        Ok(())
    }

    /// Reads again whether any quota is set, because another session may have set or removed one.
    pub fn refresh_quotas(&self) -> Result<(), FsError> {
        self.has_quotas.store(self.read_has_quotas()?, Ordering::Release);
        Ok(())
    }

    /// Returns whether any quota is set.
    pub fn has_quotas(&self) -> bool {
        self.has_quotas.load(Ordering::Acquire)
    }

    fn read_has_quotas(&self) -> Result<bool, FsError> {
        Ok(self.engine.get(&schema::quotas_set())?.is_some())
    }

    /// Returns a directory's own quota; `None` if it has none.
    pub fn quota(&self, dir: Ino) -> Result<Option<Quota>, FsError> {
        let found = self.engine.get(&schema::quota(dir))?;
        Ok(found.map(|found| decode_quota(&found.value)).transpose()?)
    }

    /// Returns the directory other than the root whose quota counts an inode, if any. For a directory, returns the directory
    /// whose quota counts its entries.
    pub fn tree(&self, inode: &Inode) -> Result<Option<Ino>, FsError> {
        let dir = match &inode.home {
            _ if inode.is_dir() => inode.ino,
            Some((parent, _)) => *parent,
            None => return Ok(None),
        };
        let found = self.engine.get(&schema::tree(dir))?;
        Ok(found.map(|found| decode_number(&found.value)).transpose()?.map(Ino))
    }

    /// Returns the first `limit` orphans with a number greater than `after`, for example those that a crash left behind.
    pub fn orphans(&self, after: Option<Ino>, limit: usize) -> Result<Vec<Ino>, FsError> {
        let range = schema::orphans();
        let after = after.map(schema::orphan);
        let from = match &after {
            Some(key) => Bound::Excluded(key.as_slice()),
            None => Bound::Included(range.from.as_slice()),
        };
        let rows = self.engine.scan(from, Bound::Excluded(&range.to), limit)?;
        rows.iter().map(|(key, _)| Ok(schema::ino_of(key)?)).collect()
    }

    /// Returns the first `limit` inodes with a number greater than `after` whose attributes are newer than the headers of their
    /// objects.
    pub fn waiting_exports(&self, after: Option<Ino>, limit: usize) -> Result<Vec<Ino>, FsError> {
        let range = schema::waiting_exports();
        let after = after.map(schema::waiting_export);
        let from = match &after {
            Some(key) => Bound::Excluded(key.as_slice()),
            None => Bound::Included(range.from.as_slice()),
        };
        let rows = self.engine.scan(from, Bound::Excluded(&range.to), limit)?;
        rows.iter().map(|(key, _)| Ok(schema::ino_of(key)?)).collect()
    }

    /// Returns the number of the last change of an inode whose attributes wait to be exported; `None` if none wait.
    pub fn waiting_export(&self, ino: Ino) -> Result<Option<u64>, FsError> {
        let found = self.engine.get(&schema::waiting_export(ino))?;
        Ok(found.map(|found| decode_number(&found.value)).transpose()?)
    }

    /// Allocates `count` inode numbers for new entries of a directory, close to those of its other entries.
    ///
    /// # Panics
    /// Panics when all 2^40 numbers reserved at the opening of the namespace have been allocated.
    pub fn allocate(&self, parent: Ino, count: usize) -> Vec<Ino> {
        let inos = self.lock_allocator().allocate(parent, count);
        assert_eq!(
            inos.len(),
            count,
            "the leased inode numbers are used up: unmount the volume and mount it again"
        );
        inos
    }

    /// Leases `count` inode numbers, which nothing else allocates.
    pub fn lease(&self, context: &OpContext, count: u64) -> Result<Range<Ino>, FsError> {
        loop {
            let from = match self.engine.get(&schema::next_ino())? {
                Some(found) => Ino(decode_number(&found.value)?),
                None => FIRST_INO,
            };
            let to = Ino(from.0.saturating_add(count));
            match self.commit(context, &Op::Lease { from, to }) {
                Ok(_) => return Ok(from..to),
                Err(FsError::StaleBase) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn lock_allocator(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the only result of a commit of one op.
fn only(mut results: Vec<Result<Applied, FsError>>) -> Result<Applied, FsError> {
    results.pop().unwrap_or_else(|| Err(FsError::Corrupt("a commit without a result".into())))
}

/// Returns the path of an inode's primary name, as names from the root down; empty for the root. Fails with `NotFound` for
/// orphans.
pub fn read_path(reader: &(impl Reader + ?Sized), ino: Ino) -> Result<Vec<Name>, FsError> {
    let line = read_line(reader, ino)?;
    line.into_iter().rev().map(|inode| inode.home.map(|(_, name)| name).ok_or(FsError::NotFound)).collect()
}

/// Returns an inode and the directories above it by their primary names, from the inode up, without the root. The last one has no name if
/// it is an orphan.
pub(crate) fn read_line(reader: &(impl Reader + ?Sized), ino: Ino) -> Result<Vec<Inode>, FsError> {
    let mut line: Vec<Inode> = Vec::new();
    let mut at = Some(ino);
    while let Some(next) = at.filter(|ino| *ino != Ino::ROOT) {
        let inode = read_inode(reader, next)?.ok_or(FsError::NotFound)?;
        at = inode.home.as_ref().map(|(parent, _)| *parent);
        line.push(inode);
        if line.len() > records::DEPTH_MAX {
            return Err(FsError::Corrupt(format!("the directories above inode {ino} form a cycle")));
        }
    }
    Ok(line)
}

/// Returns the dentry of a name; `None` if there is no such name.
pub(crate) fn read_entry(
    reader: &(impl Reader + ?Sized),
    parent: Ino,
    name: &Name,
) -> Result<Option<Dentry>, FsError> {
    let found = reader.get(&schema::dentry(parent, name))?;
    Ok(found.map(|found| decode_dentry(&found.value)).transpose()?)
}

/// Returns the number of the opening that reserved a lease. The leases of openings have equal lengths. Other leases may
/// be in between, so that numbers are left out.
fn mount_number(lease: &Range<Ino>) -> u64 {
    lease.start.0.saturating_sub(FIRST_INO.0) / LEASE_INOS + 1
}

/// Returns the inode with the given number; `None` if there is none.
pub fn read_inode(reader: &(impl Reader + ?Sized), ino: Ino) -> Result<Option<Inode>, FsError> {
    let Some(found) = reader.get(&schema::inode(ino))? else { return Ok(None) };
    let record = decode_inode(ino, &found.value)?;
    match record.unsummed {
        0 => Ok(Some(record.inode)),
        _ => Ok(read_content(reader, ino)?.map(|(inode, _)| inode)),
    }
}

/// Returns an inode and all extents of its content, from one state; `None` if there is no such inode.
pub fn read_content(
    reader: &(impl Reader + ?Sized),
    ino: Ino,
) -> Result<Option<(Inode, Vec<Extent>)>, FsError> {
    let key = schema::inode(ino);
    loop {
        let Some(found) = reader.get(&key)? else { return Ok(None) };
        let record = decode_inode(ino, &found.value)?;
        let expected = match &record.inode.content {
            Content::Inline(extents) if record.unsummed == 0 => {
                let extents = extents.clone();
                return Ok(Some((record.inode, extents)));
            }
            Content::Inline(_) => record.unsummed as u64,
            Content::Rows(summary) => summary.extents,
        };
        let range = schema::extents(ino);
        let (from, to) = range.bounds();
        let rows = reader.scan(from, to, usize::MAX)?;
        // Extent rows change only together with their inode, so an unchanged version means that the rows belong to it.
        if reader.get_newest(&key)?.map(|again| again.version) != Some(found.version) {
            continue;
        }
        if rows.len() as u64 != expected {
            return Err(FsError::Corrupt(format!(
                "inode {ino} has {} extent rows, but its record says {expected}; run `tenon fsck`",
                rows.len(),
            )));
        }
        let extents: Vec<Extent> =
            rows.iter().map(|(key, row)| decode_extent_row(key, &row.value)).collect::<Result<_, _>>()?;
        let inode = match record.unsummed {
            0 => record.inode,
            _ => record.summed(&extents),
        };
        return Ok(Some((inode, extents)));
    }
}

/// Returns the extents that overlap a range of a file. The inode's extents must have rows.
pub fn read_rows(
    reader: &(impl Reader + ?Sized),
    ino: Ino,
    range: &Range<u64>,
) -> Result<Vec<Extent>, FsError> {
    let (before, within) = schema::extents_around(ino, range);
    let first = reader.last(&before)?.map(|(key, row)| decode_extent_row(&key, &row.value)).transpose()?;
    let (from, to) = within.bounds();
    let rows = reader.scan(from, to, usize::MAX)?;
    let first = first.filter(|extent| extent.end() > range.start).map(Ok);
    let rows = rows.iter().map(|(key, row)| decode_extent_row(key, &row.value));
    Ok(first.into_iter().chain(rows).collect::<Result<_, _>>()?)
}

/// Returns the last extents that begin before the offset `end`, at most `limit`, in descending order. The inode's extents must
/// have rows.
pub fn last_rows(
    reader: &(impl Reader + ?Sized),
    ino: Ino,
    end: u64,
    limit: usize,
) -> Result<Vec<Extent>, FsError> {
    let mut range = KeyRange { from: schema::extents(ino).from, to: schema::extent(ino, end) };
    let mut found = Vec::new();
    while found.len() < limit
        && let Some((key, row)) = reader.last(&range)?
    {
        found.push(decode_extent_row(&key, &row.value)?);
        range.to = key;
    }
    Ok(found)
}

/// Applies logged ops to an engine in one commit. The ops of a logged commit can be passed together.
///
/// Fails if an op fails, because then the engine does not have the state in which the ops were logged.
pub fn replay(engine: &(impl Engine + ?Sized), ops: &[(OpContext, Op)]) -> Result<(), FsError> {
    let mut txn = Staged::new(engine);
    for (context, op) in ops {
        let applied = apply(&mut txn, context, op)?;
        txn.keep_op(context, op, &applied);
    }
    match engine.commit(txn.into_commit()) {
        Ok(_) => Ok(()),
        Err(CommitError::Conflict) => Err(FsError::Conflict),
        Err(CommitError::Engine(error)) => Err(EngineError::into(error)),
    }
}
