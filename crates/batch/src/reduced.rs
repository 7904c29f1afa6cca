//! Verification of a batch by its rows: canonical ops that lead to them are derived, checked and applied. The job's own ops are not read.
//!
//! An accepted batch is the effect of ops that `meta::access` permits to the user and that `apply` has carried out, whatever its rows say, in
//! the order in which they are logged: directories top-down with their entries, then links, extended attributes and attributes. Rows are
//! never trusted: ops are guessed from them, and a wrong guess makes other rows than those that were claimed.
//!
//! Invariants:
//! - each claimed row was compared with the row that the canonical ops make, or removes a record that does not exist;
//! - each row that the canonical ops make was claimed.
//!
//! A batch for which no such ops are found is unproven: it changes more of the snapshot than that directories get entries, the volume has
//! quotas, the ops need another order, or the rows are forged. It is not rejected, because a replay of its ops may still accept some of
//! them.

use crate::base::Base;
use crate::bulk_txn::BulkTxn;
use crate::canonical;
use crate::change::{Change, is_delete, put_record};
use crate::inode_rows::InodeRows;
use crate::local_map::LocalMap;
use crate::overlay::Overlay;
use crate::proof::Proof;
use crate::run_rows::RunRows;
use crate::sealed::SealedBatch;
use crate::table_error::table_error;
use crate::verify::{MEMORY_BYTES_MAX, Rejected, Terms, Verified};
use meta::access::{AccessError, CreationRight, authorize_attributes};
use meta::acl::Acl;
use meta::codec::{DecodeError, InodeRecord, decode_dentry, decode_inode};
use meta::{
    Content, Dentry, Effect, EngineError, FsError, Ino, Inode, KeyRange, Kind, Merge, Name, Op, OpContext,
    OpRecord, Reader, namespace, schema,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use store::Timestamp;

/// The permission of a file's owner to write it.
const OWNER_WRITE: u16 = 0o200;

/// Checks a batch, and adds its rows and its canonical ops to a run. Returns `None` if the batch is unproven; the run is then of no use.
pub(crate) fn check(
    snapshot: &Arc<dyn Reader>,
    batch: &SealedBatch,
    terms: &Terms,
    scratch: &Path,
    run: &mut dyn RunRows,
) -> Result<Option<Verified>, Rejected> {
    let base = Base::new(snapshot.clone(), &terms.lease)?;
    if !base.has_fresh_lease(&terms.lease) {
        return Err(Rejected::Used);
    }
    let overlay = Overlay::new(base, LocalMap::new(scratch, MEMORY_BYTES_MAX));
    let check = Check {
        batch,
        terms,
        run,
        verified: Verified::new(overlay, Proof::Reduced),
        inodes: InodeRows::new(batch.rows_table().clone()),
        changed_later: BTreeSet::new(),
        kept: BTreeMap::new(),
        created: Vec::new(),
        bulk_rows: 0,
        passing: terms.lease.end,
    };
    match check.prove() {
        Ok(verified) => Ok(Some(verified)),
        Err(Stop::Unproven) => Ok(None),
        Err(Stop::Rejected(rejected)) => Err(rejected),
    }
}

/// The reason why a check ends early.
enum Stop {
    /// No canonical ops lead to the rows.
    Unproven,
    /// The batch is rejected, or could not be read.
    Rejected(Rejected),
}

type Result<T, E = Stop> = std::result::Result<T, E>;

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Rejected(error.into())
    }
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Engine(error) => error.into(),
            _ => Self::Unproven,
        }
    }
}

impl From<AccessError> for Stop {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Fs(error) => error.into(),
            AccessError::Denied | AccessError::NotPermitted => Self::Unproven,
        }
    }
}

impl From<DecodeError> for Stop {
    fn from(_: DecodeError) -> Self {
        Self::Unproven
    }
}

/// Fails with [`Stop::Unproven`] unless a necessary condition of the proof holds.
fn require(holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(Stop::Unproven) }
}

/// The check of a batch in progress.
struct Check<'a> {
    batch: &'a SealedBatch,
    terms: &'a Terms,
    run: &'a mut dyn RunRows,
    verified: Verified,
    inodes: InodeRows,
    /// New inodes with further names or extended attributes, which are set after all entries were created.
    changed_later: BTreeSet<Ino>,
    /// The claimed state of the new inodes that are in the overlay: directories, and inodes that are changed later.
    kept: BTreeMap<Ino, Inode>,
    /// The keys of `kept`, directories before their entries.
    created: Vec<Ino>,
    /// Rows of entries that were created in bulk, which are not in the overlay.
    bulk_rows: u64,
    /// The lowest inode number that was used for a passing name. Such numbers are taken from the end of the lease downwards; at first it is
    /// that end, which no name uses.
    passing: Ino,
}

/// A name that the batch claims to create.
struct Child {
    name: Name,
    dentry: Dentry,
}

impl Check<'_> {
    /// Derives canonical ops from the claimed rows, and checks that they make these rows.
    fn prove(mut self) -> Result<Verified> {
        // With a quota, an entry depends on the usage by the entries before it, which are not all in the overlay.
        require(self.verified.overlay.read(&schema::quotas_set(), true)?.is_none())?;
        for range in [schema::all_hard_links(), schema::all_xattrs()] {
            self.note_changed_later(&range)?;
        }
        let mut parents = self.parents_in_snapshot()?;
        while let Some(parent) = parents.pop_front() {
            self.fill(parent, &mut parents)?;
        }
        self.add_links()?;
        // Entries are completed before their directories, whose claimed modes may keep the user from searching them.
        for ino in std::mem::take(&mut self.created).into_iter().rev() {
            self.complete(ino)?;
        }
        self.cover_rows()?;
        self.add_rows()?;
        self.verified.claimed = Some(self.batch.rows_table().clone());
        Ok(self.verified)
    }

    /// Adds the inodes of which the batch puts records in a range to those that are changed later.
    fn note_changed_later(&mut self, range: &KeyRange) -> Result<()> {
        let mut rows = self.batch.changes_in(range);
        while let Some((key, change)) = rows.next()? {
            if matches!(change, Change::Put(_)) {
                self.changed_later.insert(schema::ino_of(&key)?);
            }
        }
        Ok(())
    }

    /// Returns the directories of the snapshot in which the batch claims to change entries.
    fn parents_in_snapshot(&self) -> Result<VecDeque<Ino>> {
        let mut parents = VecDeque::new();
        let mut range = schema::all_dentries();
        while let Some((key, _)) = self.batch.changes_in(&range).next()? {
            let parent = schema::ino_of(&key)?;
            if self.terms.lease.contains(&parent) {
                range.from = schema::dentries(self.terms.lease.end).from;
            } else {
                parents.push_back(parent);
                range.from = schema::dentries(parent).to;
            }
        }
        Ok(parents)
    }

    /// Creates the claimed entries of a directory, and adds its new subdirectories to the directories to fill.
    fn fill(&mut self, parent: Ino, parents: &mut VecDeque<Ino>) -> Result<()> {
        let children = self.children(parent)?;
        for (name, inode) in self.create_in_bulk(parent, &children)? {
            if inode.is_dir() {
                parents.push_back(inode.ino);
            }
            self.create_kept(parent, &name, inode)?;
        }
        if self.terms.lease.contains(&parent) { Ok(()) } else { self.set_times_of_parent(parent, &children) }
    }

    /// Returns the names that the batch claims to create in a directory, ordered by inode number.
    fn children(&self, parent: Ino) -> Result<Vec<Child>> {
        let mut children = Vec::new();
        let mut rows = self.batch.changes_in(&schema::dentries(parent));
        while let Some((key, change)) = rows.next()? {
            match change {
                Change::Put(row) => {
                    children.push(Child { name: schema::name_of(&key)?, dentry: decode_dentry(&row)? });
                }
                Change::Delete | Change::Merge(_) => {}
            }
        }
        children.sort_unstable_by_key(|child| child.dentry.ino);
        Ok(children)
    }

    /// Creates the entries that [`Terms::create_entry`] completes. Returns the others, for [`Self::create_kept`]: directories, and inodes
    /// that are changed later. Further names of an inode are left out.
    fn create_in_bulk(&mut self, parent: Ino, children: &[Child]) -> Result<Vec<(Name, Inode)>> {
        let mut others = Vec::new();
        if children.is_empty() {
            return Ok(others);
        }
        let right = CreationRight::new(&self.verified.overlay, &self.terms.caller, parent)?;
        let mut txn = BulkTxn::new(&self.verified.overlay, parent);
        let mut records = Vec::with_capacity(2);
        for Child { name, dentry } in children {
            let row = self.inodes.get(dentry.ino)?.ok_or(Stop::Unproven)?;
            let claimed = claimed_inode(dentry.ino, &row)?;
            if let Content::Inline(content) = &claimed.content {
                self.terms.note_packs(content, &mut self.verified.shared);
            }
            let is_changed_later = self.changed_later.contains(&dentry.ino);
            if claimed.home.as_ref() != Some(&(parent, name.clone())) {
                // This is a further name of an inode, which `add_links` adds.
                require(is_changed_later)?;
                continue;
            }
            if claimed.is_dir() || is_changed_later {
                others.push((name.clone(), claimed));
                continue;
            }
            txn.begin_entry();
            self.terms.create_entry(&mut txn, &right, &claimed, &mut records)?;
            let dentry_key = schema::dentry(parent, name);
            let dentry_row = meta::codec::encode_dentry(*dentry);
            let row = put_record(&row).ok_or(Stop::Unproven)?;
            let inode_key = schema::inode(dentry.ino);
            require(txn.has_only((&dentry_key, &dentry_row), (&inode_key, row)))?;
            txn.keep_entry();
            self.bulk_rows += 2;
            self.verified.accepted += records.len() as u64;
            for record in records.drain(..) {
                self.run.log(&record)?;
            }
        }
        let merges = txn.into_merges();
        self.verified.overlay.merge(merges)?;
        Ok(others)
    }

    /// Creates an inode that later ops change, or that has entries.
    fn create_kept(&mut self, parent: Ino, name: &Name, claimed: Inode) -> Result<()> {
        self.apply(claimed.btime, canonical::changeable_creation(&claimed, parent, name))?;
        self.created.push(claimed.ino);
        self.kept.insert(claimed.ino, claimed);
        Ok(())
    }

    /// Sets the claimed times of a directory of the snapshot by a passing name, if the creation of its entries does not explain them.
    fn set_times_of_parent(&mut self, parent: Ino, children: &[Child]) -> Result<()> {
        let key = schema::inode(parent);
        let Some(Change::Merge(Merge::Inode { mtime, ctime, .. })) = self.batch.change(&key)? else {
            return Ok(());
        };
        let is_explained = match self.verified.overlay.local.get(&key)? {
            Some(Change::Merge(Merge::Inode { mtime: made, .. })) => made >= mtime,
            _ => false,
        };
        if is_explained || mtime != ctime {
            return Ok(());
        }
        self.passing = Ino(self.passing.0 - 1);
        require(self.terms.lease.contains(&self.passing))?;
        require(self.batch.change(&schema::inode(self.passing))?.is_none())?;
        let name = Name::new(format!(".batch-{}", self.passing).as_bytes())?;
        require(children.iter().all(|child| child.name != name))?;
        for op in canonical::passing_name(self.terms, parent, name, self.passing) {
            self.apply(mtime, op)?;
        }
        Ok(())
    }

    /// Adds the claimed further names of new inodes.
    fn add_links(&mut self) -> Result<()> {
        let mut rows = self.batch.changes_in(&schema::all_hard_links());
        while let Some((key, change)) = rows.next()? {
            if let Change::Put(_) = change {
                let ino = schema::ino_of(&key)?;
                let (parent, name) = schema::link_of(&key)?;
                // The time of the link also becomes that of the directory, so a later one could exceed the directory's claimed time.
                let now = self.kept.get(&ino).ok_or(Stop::Unproven)?.btime;
                self.apply(now, Op::Link { ino, parent, name })?;
            }
        }
        Ok(())
    }

    /// Gives a new inode its claimed attributes: ACLs after the size and other extended attributes, which they could forbid, and the mode last.
    fn complete(&mut self, ino: Ino) -> Result<()> {
        let claimed = self.kept.get(&ino).ok_or(Stop::Unproven)?;
        if let Some(op) = canonical::content(claimed) {
            self.apply(claimed.ctime, op)?;
        } else if claimed.kind == Kind::File && claimed.size_bytes > 0 {
            self.apply(claimed.ctime, canonical::resize(claimed))?;
        }
        if self.changed_later.contains(&ino) {
            self.set_xattrs(ino, |name| !Acl::is_name(name))?;
            self.set_xattrs(ino, Acl::is_name)?;
        }
        let claimed = self.kept.get(&ino).ok_or(Stop::Unproven)?;
        let present = namespace::read_inode(&self.verified.overlay, ino)?.ok_or(Stop::Unproven)?;
        match canonical::adjustment(&present, claimed) {
            Some(op) => self.apply(claimed.ctime, op),
            None => Ok(()),
        }
    }

    /// Sets those claimed extended attributes of a new inode whose names are wanted.
    fn set_xattrs(&mut self, ino: Ino, is_wanted: impl Fn(&[u8]) -> bool) -> Result<()> {
        let now = self.kept.get(&ino).ok_or(Stop::Unproven)?.ctime;
        let mut rows = self.batch.changes_in(&schema::xattrs(ino));
        while let Some((key, change)) = rows.next()? {
            let name = schema::xattr_of(&key)?;
            if let Change::Put(value) = change
                && is_wanted(name)
            {
                self.apply(now, canonical::set_xattr(ino, name, &value))?;
            }
        }
        Ok(())
    }

    /// Fails unless the claimed rows are those that the ops have made.
    fn cover_rows(&self) -> Result<()> {
        let overlay = &self.verified.overlay;
        let mut made_rows = self.bulk_rows;
        let mut made = overlay.local.range(Bound::Unbounded, Bound::Unbounded);
        while let Some((key, change)) = made.next()? {
            match change {
                Change::Delete => require(overlay.base.get(&key, true)?.is_none())?,
                change => {
                    require(self.batch.change(&key)? == Some(change))?;
                    made_rows += 1;
                }
            }
        }
        let mut claimed_rows = 0;
        let mut rows = self.batch.rows_table().scan(Bound::Unbounded);
        while rows.advance().map_err(table_error)? {
            if is_delete(rows.value()) {
                require(overlay.base.get(rows.key(), true)?.is_none())?;
            } else {
                claimed_rows += 1;
            }
        }
        require(made_rows == claimed_rows)
    }

    /// Adds the claimed rows to the run, each of which the ops have made.
    fn add_rows(&mut self) -> Result<()> {
        let mut rows = self.batch.rows_table().scan(Bound::Unbounded);
        while rows.advance().map_err(table_error)? {
            if let Some(row) = put_record(rows.value()) {
                self.run.put(rows.key(), row)?;
            }
        }
        Ok(())
    }

    /// Checks a canonical op, applies it to the overlay, and logs it in the run.
    fn apply(&mut self, now: Timestamp, op: Op) -> Result<()> {
        let context = canonical::context(self.terms, now);
        let (terms, verified) = (self.terms, &mut self.verified);
        let admitted = terms.admit(0, &context, &op).and_then(|()| verified.apply(terms, 0, &context, &op));
        match admitted {
            Ok(Ok(applied)) => {
                let effect = Effect::of(&op, &applied);
                self.verified.accepted += 1;
                self.verified.released.extend(applied.released);
                Ok(self.run.log(&OpRecord { context, op, effect })?)
            }
            Err(Rejected::Engine(error)) => Err(error.into()),
            Ok(Err(_)) | Err(_) => Err(Stop::Unproven),
        }
    }
}

impl Terms {
    /// Creates a claimed entry by at most three ops: its creation, its content, and its other attributes. Adds the ops to `records`. Fails
    /// if the user may not do this.
    fn create_entry(
        &self,
        txn: &mut BulkTxn<'_>,
        right: &CreationRight<'_>,
        claimed: &Inode,
        records: &mut Vec<OpRecord>,
    ) -> Result<()> {
        let (parent, name) = claimed.home.as_ref().ok_or(Stop::Unproven)?;
        let mode = right.mode_of(claimed.kind, claimed.mode, claimed.uid, claimed.gid)?;
        require(mode == claimed.mode)?;
        let create = match claimed.kind {
            // Later ops of this entry need the permission to write.
            Kind::File if claimed.size_bytes > 0 && claimed.mode & OWNER_WRITE == 0 => {
                canonical::changeable_creation(claimed, *parent, name)
            }
            _ => canonical::creation(claimed, *parent, name),
        };
        let mut created = self.apply_entry_op(txn, claimed.btime, create, records)?;
        if let Some(op) = canonical::content(claimed) {
            created = self.apply_entry_op(txn, claimed.ctime, op, records)?;
        }
        let Some(op) = canonical::adjustment(&created, claimed) else { return Ok(()) };
        if let Op::SetAttr { changes, .. } = &op {
            let permitted =
                authorize_attributes(txn.overlay(), &self.caller, claimed.ctime, &created, changes)?;
            require(permitted == *changes)?;
        }
        self.apply_entry_op(txn, claimed.ctime, op, records).map(drop)
    }

    /// Applies an op on a new entry, whose right the caller has checked, and returns the inode. Adds the op to `records`.
    fn apply_entry_op(
        &self,
        txn: &mut BulkTxn<'_>,
        now: Timestamp,
        op: Op,
        records: &mut Vec<OpRecord>,
    ) -> Result<Inode> {
        let context: OpContext = canonical::context(self, now);
        self.admit(0, &context, &op).map_err(|_| Stop::Unproven)?;
        let applied = namespace::apply(txn, &context, &op)?;
        records.push(OpRecord { context, op, effect: Effect::default() });
        applied.inode.ok_or(Stop::Unproven)
    }
}

/// Decodes the claimed record of a new inode, which has no extents in rows of their own. Its content is checked with the op that names it.
fn claimed_inode(ino: Ino, row: &[u8]) -> Result<Inode> {
    let record = put_record(row).ok_or(Stop::Unproven)?;
    let InodeRecord { inode, unsummed } = decode_inode(ino, record)?;
    require(unsummed == 0 && matches!(inode.content, Content::Inline(_)))?;
    Ok(inode)
}
