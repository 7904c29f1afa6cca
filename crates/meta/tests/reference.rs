//! A reference model: a naive file system written from the rules of the ops and not from the code, without tables, transactions
//! and records. Slow and simple on purpose.

use crate::strategies;
use meta::{
    Applied, AttrChanges, Content, Extent, Fingerprint, FsError, Ino, Inode, Kind, Name, Observed, Op,
    OpContext, RenameHow, Stored, Summary, XattrHow,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::{ETag, Timestamp};

/// A directory and a name in it.
type DentryKey = (Ino, Name);

/// The model: all inodes with their names and contents.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    nodes: BTreeMap<Ino, Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// The inode. [`Reference::nodes`] computes its content from `extents`.
    pub(crate) inode: Inode,
    pub(crate) extents: Vec<Extent>,
    pub(crate) names: BTreeSet<DentryKey>,
    pub(crate) entries: BTreeMap<Name, Ino>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Reference {
    pub(crate) fn new(root: Inode) -> Self {
        let root = Node::of(root, Vec::new());
        Self { nodes: BTreeMap::from([(Ino::ROOT, root)]) }
    }

    /// Returns all nodes, with link counts and contents computed.
    pub(crate) fn nodes(&self) -> BTreeMap<Ino, Node> {
        let mut nodes = self.nodes.clone();
        for node in nodes.values_mut() {
            node.inode.nlink = match node.inode.kind {
                Kind::Directory => {
                    2 + node.entries.values().filter(|ino| self.nodes[ino].inode.is_dir()).count() as u32
                }
                _ => node.names.len() as u32,
            };
            node.inode.content = without_fingerprint(&Content::of(&node.extents, node.inode.size_bytes));
        }
        nodes
    }

    /// Applies an op. After an error nothing has changed.
    pub(crate) fn apply(&mut self, context: &OpContext, op: &Op) -> Result<Changed, FsError> {
        let before = self.clone();
        let result = self.apply_in_place(context, op);
        if result.is_err() {
            *self = before;
        }
        result
    }

    fn apply_in_place(&mut self, context: &OpContext, op: &Op) -> Result<Changed, FsError> {
        let now = context.now;
        match op {
            Op::Root { .. } => Err(FsError::Exists),
            Op::Lease { .. } => Err(FsError::StaleBase),
            Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target } => {
                self.require_free(*parent, name, *ino)?;
                let dir = &self.nodes[parent].inode;
                let inherits = dir.mode & 0o2000 != 0;
                let gid = if inherits { dir.gid } else { *gid };
                let mode = if *kind == Kind::Symlink { *mode } else { mode & !umask };
                let mode = if inherits && *kind == Kind::Directory { mode | 0o2000 } else { mode };
                let size_bytes = target.as_ref().map_or(0, |target| target.len() as u64);
                let inode = Inode {
                    mode,
                    uid: *uid,
                    gid,
                    rdev: *rdev,
                    size_bytes,
                    home: Some((*parent, name.clone())),
                    target: target.clone(),
                    ..blank(*ino, *kind, now)
                };
                self.insert(inode, Vec::new());
                self.touch_times(*parent, now);
                Ok(Changed::default())
            }
            Op::CreateOrphan { parent, ino, mode, umask, uid, gid } => {
                let dir = &self.dir(*parent)?.inode;
                let gid = if dir.mode & 0o2000 != 0 { dir.gid } else { *gid };
                if self.nodes.contains_key(ino) {
                    return Err(FsError::Invalid("number"));
                }
                let mode = mode & !umask;
                let inode = Inode { mode, uid: *uid, gid, ..blank(*ino, Kind::File, now) };
                self.nodes.insert(*ino, Node::of(inode, Vec::new()));
                Ok(Changed::default())
            }
            Op::Accessed { ino, atime } => {
                self.nodes.get_mut(ino).ok_or(FsError::NotFound)?.inode.atime = *atime;
                Ok(Changed::default())
            }
            // The model ignores waiting exports; `rules` tests them.
            Op::AwaitExport { ino } => {
                self.nodes.get(ino).ok_or(FsError::NotFound)?;
                Ok(Changed::default())
            }
            // The strategies draw no batches; `rules` tests them.
            Op::Exported { .. } | Op::SetBatch { .. } | Op::SetRefusedOp { .. } => Ok(Changed::default()),
            Op::Link { ino, parent, name } => self.link(now, *ino, (*parent, name.clone())),
            Op::HandOn { ino, parent, name } => {
                let primary_name = (*parent, name.clone());
                let node = self.nodes.get_mut(ino).filter(|node| node.names.contains(&primary_name));
                node.ok_or(FsError::NotFound)?.inode.home = Some(primary_name);
                Ok(Changed::default())
            }
            Op::Unlink { parent, name, keep } => {
                let ino = self.find(*parent, name)?;
                if self.nodes[&ino].inode.is_dir() {
                    return Err(FsError::IsDirectory);
                }
                let changed = self.remove_name(now, &(*parent, name.clone()), *keep);
                self.touch_times(*parent, now);
                Ok(changed)
            }
            Op::Rmdir { parent, name } => {
                let ino = self.find(*parent, name)?;
                if !self.nodes[&ino].inode.is_dir() {
                    return Err(FsError::NotDirectory);
                }
                self.require_empty(ino)?;
                let changed = self.remove_name(now, &(*parent, name.clone()), false);
                self.touch_times(*parent, now);
                Ok(changed)
            }
            Op::Rename { from, to, how, keep } => self.rename(now, from, to, *how, *keep),
            Op::SetAttr { ino, changes } => self.set_attr(now, *ino, changes),
            Op::SetXattr { ino, name, value, how } => {
                let node = self.nodes.get_mut(ino).ok_or(FsError::NotFound)?;
                if name.is_empty() {
                    return Err(FsError::Invalid("name"));
                }
                match (how, node.xattrs.contains_key(&**name)) {
                    (XattrHow::Create, true) => return Err(FsError::Exists),
                    (XattrHow::Replace, false) => return Err(FsError::NoData),
                    _ => node.xattrs.insert(name.to_vec(), value.to_vec()),
                };
                node.inode.ctime = node.inode.ctime.max(now);
                Ok(Changed::default())
            }
            Op::RemoveXattr { ino, name } => {
                let node = self.nodes.get_mut(ino).ok_or(FsError::NotFound)?;
                node.xattrs.remove(&**name).ok_or(FsError::NoData)?;
                node.inode.ctime = node.inode.ctime.max(now);
                Ok(Changed::default())
            }
            Op::Publish { ino, base, content, size_bytes, mtime } => {
                self.publish(now, *ino, base.as_ref(), content, *size_bytes, *mtime)
            }
            Op::Splice { ino, ranges, content, size_bytes, mtime } => {
                self.splice(now, *ino, ranges, content, *size_bytes, *mtime)
            }
            Op::Import { parent, name, ino, seen } => {
                self.require_free(*parent, name, *ino)?;
                let mut inode = from_observed(*ino, seen);
                inode.home = Some((*parent, name.clone()));
                self.insert(inode, whole(seen));
                Ok(Changed::default())
            }
            Op::Refresh { ino, seen } => self.refresh(*ino, seen),
            Op::Vanish { parent, name, looked_at, keep } => {
                let ino = self.find(*parent, name)?;
                if self.nodes[&ino].inode.observed_at >= *looked_at {
                    return Err(FsError::Late);
                }
                self.require_empty(ino)?;
                let keep = *keep && !self.nodes[&ino].inode.is_dir();
                let changed = self.remove_name(now, &(*parent, name.clone()), keep);
                self.touch_times(*parent, now);
                Ok(changed)
            }
            Op::Evict { parent, name } => {
                let ino = self.find(*parent, name)?;
                self.require_empty(ino)?;
                if self.nodes[&ino].names.len() > 1 {
                    return Err(FsError::Invalid("several names"));
                }
                Ok(self.remove_name(now, &(*parent, name.clone()), false))
            }
            Op::SetQuota { .. } => Err(FsError::NoData),
            Op::Purge { ino } => match self.nodes.get(ino) {
                Some(node) if node.names.is_empty() && *ino != Ino::ROOT => {
                    self.nodes.remove(ino);
                    Ok(Changed { removed: Some(*ino), orphaned: false })
                }
                _ => Err(FsError::NotFound),
            },
        }
    }

    fn dir(&self, ino: Ino) -> Result<&Node, FsError> {
        match self.nodes.get(&ino) {
            None => Err(FsError::NotFound),
            Some(node) if !node.inode.is_dir() => Err(FsError::NotDirectory),
            Some(node) => Ok(node),
        }
    }

    fn find(&self, dir: Ino, name: &Name) -> Result<Ino, FsError> {
        self.dir(dir)?.entries.get(name).copied().ok_or(FsError::NotFound)
    }

    fn require_empty(&self, ino: Ino) -> Result<(), FsError> {
        if self.nodes[&ino].entries.is_empty() { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    fn require_free(&self, dir: Ino, name: &Name, ino: Ino) -> Result<(), FsError> {
        if self.dir(dir)?.entries.contains_key(name) {
            return Err(FsError::Exists);
        }
        if self.nodes.contains_key(&ino) { Err(FsError::Invalid("in use")) } else { Ok(()) }
    }

    fn touch_times(&mut self, dir: Ino, now: Timestamp) {
        let inode = &mut self.nodes.get_mut(&dir).unwrap().inode;
        inode.mtime = inode.mtime.max(now);
        inode.ctime = inode.ctime.max(now);
    }

    fn insert(&mut self, inode: Inode, extents: Vec<Extent>) {
        let place = inode.home.clone().unwrap();
        let ino = inode.ino;
        self.nodes.insert(ino, Node::of(inode, extents));
        self.add_entry(place, ino);
    }

    fn add_entry(&mut self, place: DentryKey, ino: Ino) {
        self.nodes.get_mut(&place.0).unwrap().entries.insert(place.1.clone(), ino);
        self.nodes.get_mut(&ino).unwrap().names.insert(place);
    }

    fn remove_entry(&mut self, place: &DentryKey) -> Ino {
        let ino = self.nodes.get_mut(&place.0).unwrap().entries.remove(&place.1).unwrap();
        self.nodes.get_mut(&ino).unwrap().names.remove(place);
        ino
    }

    /// Removes a name, and with the last name the inode unless `keep` is set.
    fn remove_name(&mut self, now: Timestamp, place: &DentryKey, keep: bool) -> Changed {
        let ino = self.remove_entry(place);
        let node = self.nodes.get_mut(&ino).unwrap();
        if node.names.is_empty() && !keep {
            self.nodes.remove(&ino);
            return Changed { removed: Some(ino), orphaned: false };
        }
        node.inode.ctime = now;
        if node.inode.home.as_ref() == Some(place) {
            node.inode.home = node.names.first().cloned();
        }
        if node.names.is_empty() {
            return Changed { removed: Some(ino), orphaned: true };
        }
        Changed::default()
    }

    fn link(&mut self, now: Timestamp, ino: Ino, place: DentryKey) -> Result<Changed, FsError> {
        let node = self.nodes.get(&ino).ok_or(FsError::NotFound)?;
        if node.inode.is_dir() {
            return Err(FsError::IsDirectory);
        }
        if self.dir(place.0)?.entries.contains_key(&place.1) {
            return Err(FsError::Exists);
        }
        self.touch_times(place.0, now);
        let node = self.nodes.get_mut(&ino).unwrap();
        node.inode.ctime = now;
        if node.names.is_empty() {
            node.inode.home = Some(place.clone());
        }
        self.add_entry(place, ino);
        Ok(Changed::default())
    }

    /// Returns whether `ino` is `above` or is below it.
    fn is_below(&self, ino: Ino, above: Ino) -> bool {
        ino == above || self.nodes[&above].entries.values().any(|child| self.is_below(ino, *child))
    }

    fn rename(
        &mut self,
        now: Timestamp,
        from: &DentryKey,
        to: &DentryKey,
        how: RenameHow,
        keep: bool,
    ) -> Result<Changed, FsError> {
        let moved = self.find(from.0, &from.1)?;
        let there = self.dir(to.0)?.entries.get(&to.1).copied();
        match (how, there) {
            (RenameHow::NoReplace, Some(_)) => return Err(FsError::Exists),
            (RenameHow::Exchange, None) => return Err(FsError::NotFound),
            (_, Some(there)) if there == moved => return Ok(Changed::default()),
            _ => {}
        }
        if self.is_below(to.0, moved) {
            return Err(FsError::CrossesItself);
        }
        if how == RenameHow::Exchange && self.is_below(from.0, there.unwrap()) {
            return Err(FsError::CrossesItself);
        }
        let mut changed = Changed::default();
        if let (RenameHow::Replace, Some(there)) = (how, there) {
            match (self.nodes[&moved].inode.is_dir(), self.nodes[&there].inode.is_dir()) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                (true, true) => self.require_empty(there)?,
                (false, false) => {}
            }
            changed = self.remove_name(now, to, keep && !self.nodes[&there].inode.is_dir());
        }
        self.remove_entry(from);
        if how == RenameHow::Exchange {
            self.remove_entry(to);
            self.add_entry(from.clone(), there.unwrap());
            self.move_name(there.unwrap(), to, from, now);
        }
        self.add_entry(to.clone(), moved);
        self.move_name(moved, from, to, now);
        self.touch_times(from.0, now);
        self.touch_times(to.0, now);
        Ok(changed)
    }

    fn move_name(&mut self, ino: Ino, from: &DentryKey, to: &DentryKey, now: Timestamp) {
        let inode = &mut self.nodes.get_mut(&ino).unwrap().inode;
        inode.ctime = now;
        if inode.home.as_ref() == Some(from) {
            inode.home = Some(to.clone());
        }
    }

    fn set_attr(&mut self, now: Timestamp, ino: Ino, changes: &AttrChanges) -> Result<Changed, FsError> {
        let Node { inode, extents, .. } = self.nodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        if let Some(size_bytes) = changes.size_bytes {
            match inode.kind {
                Kind::File => {}
                Kind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid("size")),
            }
            inode.size_bytes = size_bytes;
            inode.mtime = now;
            *extents = truncate(extents, size_bytes);
        }
        inode.mode = changes.mode.unwrap_or(inode.mode);
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.atime = changes.atime.unwrap_or(inode.atime);
        inode.mtime = changes.mtime.unwrap_or(inode.mtime);
        inode.ctime = now;
        inode.exact = true;
        Ok(Changed::default())
    }

    fn publish(
        &mut self,
        now: Timestamp,
        ino: Ino,
        base: Option<&ETag>,
        content: &[Extent],
        size_bytes: u64,
        mtime: Option<Timestamp>,
    ) -> Result<Changed, FsError> {
        let node = self.nodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        if node.object().map(|object| &object.etag) != base {
            return Err(FsError::StaleBase);
        }
        let overlap = content.windows(2).any(|pair| pair[1].offset < pair[0].end());
        let empty = content.len() > 1 && content.iter().any(|extent| extent.len == 0);
        if overlap || empty || content.last().is_some_and(|last| last.end() > size_bytes) {
            return Err(FsError::Invalid("content"));
        }
        if node.inode.is_dir() && size_bytes > 0 {
            return Err(FsError::IsDirectory);
        }
        set_content(node, now, content.to_vec(), size_bytes, mtime);
        Ok(Changed::default())
    }

    /// Replaces content byte by byte, since the files of these tests are small.
    fn splice(
        &mut self,
        now: Timestamp,
        ino: Ino,
        ranges: &[Range<u64>],
        content: &[Extent],
        size_bytes: u64,
        mtime: Option<Timestamp>,
    ) -> Result<Changed, FsError> {
        let node = self.nodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        match node.inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid("content")),
        }
        let replaced = |at: u64| ranges.iter().any(|range| range.contains(&at));
        let disordered = ranges.windows(2).any(|pair| pair[1].start < pair[0].end)
            || ranges.iter().any(|range| range.start > range.end)
            || content.windows(2).any(|pair| pair[1].offset < pair[0].end());
        let outside = content.iter().any(|extent| {
            extent.len == 0 || extent.end() > size_bytes || !(extent.offset..extent.end()).all(replaced)
        });
        // An extent must be within one range, not across two adjacent ranges.
        let across = content.iter().any(|extent| {
            !ranges.iter().any(|range| range.start <= extent.offset && extent.end() <= range.end)
        });
        if disordered || outside || across {
            return Err(FsError::Invalid("content"));
        }
        let mut after = content.to_vec();
        for extent in &node.extents {
            let kept: Vec<u64> =
                (extent.offset..extent.end().min(size_bytes)).filter(|at| !replaced(*at)).collect();
            for run in kept.chunk_by(|one, next| one + 1 == *next) {
                let object_offset = extent.object_offset + run[0] - extent.offset;
                after.push(Extent { offset: run[0], len: run.len() as u64, object_offset, ..extent.clone() });
            }
        }
        after.sort_by_key(|extent| extent.offset);
        set_content(node, now, after, size_bytes, mtime);
        Ok(Changed::default())
    }

    fn refresh(&mut self, ino: Ino, seen: &Observed) -> Result<Changed, FsError> {
        let node = self.nodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        let known_etag = node.object().map(|object| object.etag.clone());
        let has_later_writes = node.extents.iter().any(|extent| extent.object.key.is_some())
            && node.extents.iter().any(|extent| extent.object.key.is_none());
        let known = &mut node.inode;
        if known.is_dir() != (seen.kind == Kind::Directory) {
            return Err(FsError::Invalid("kind"));
        }
        let seen_etag = seen.object.as_ref().map(|object| object.etag.clone());
        let is_known_prefix = known.is_dir() && seen.object.is_none() && !seen.exact;
        let adds_nothing = known_etag == seen_etag && (known.exact && !seen.exact || has_later_writes);
        let completes_listing = seen.exact && !known.exact && known_etag == seen_etag;
        if known.observed_at >= seen.looked_at && !completes_listing {
            return Err(FsError::Late);
        }
        let observed_at = known.observed_at.max(seen.looked_at);
        known.observed_at = observed_at;
        if is_known_prefix || adds_nothing {
            return Ok(Changed::default());
        }
        let mut inode = Inode { observed_at, ..from_observed(ino, seen) };
        inode.home = known.home.clone();
        if inode.kind == Kind::Symlink && inode.target.is_none() && known_etag == seen_etag {
            inode.target = known.target.clone();
        }
        *known = inode;
        node.extents = whole(seen);
        Ok(Changed::default())
    }
}

/// Returns the content cut off at the size. The first extent stays, perhaps with length 0.
fn truncate(content: &[Extent], size_bytes: u64) -> Vec<Extent> {
    let mut left = Vec::new();
    for extent in content {
        let mut extent = extent.clone();
        let end = extent.end().min(size_bytes);
        extent.offset = extent.offset.min(size_bytes);
        extent.len = end - extent.offset;
        if left.is_empty() || extent.len > 0 {
            left.push(extent);
        }
    }
    left
}

/// Returns the observed object as a single extent.
fn whole(seen: &Observed) -> Vec<Extent> {
    let len = if seen.kind == Kind::Directory { 0 } else { seen.size_bytes };
    let extent = |object: &meta::Stored| Extent { offset: 0, len, object: object.clone(), object_offset: 0 };
    seen.object.iter().map(extent).collect()
}

/// Returns a content without its fingerprint, which depends on earlier contents.
pub(crate) fn without_fingerprint(content: &Content) -> Content {
    match content {
        Content::Rows(summary) => {
            Content::Rows(Summary { fingerprint: Fingerprint([0; Fingerprint::BYTES]), ..summary.clone() })
        }
        inline => inline.clone(),
    }
}

fn from_observed(ino: Ino, seen: &Observed) -> Inode {
    let size_bytes = if seen.kind == Kind::Directory { 0 } else { seen.size_bytes };
    Inode {
        ino,
        kind: seen.kind,
        mode: seen.mode,
        uid: seen.uid,
        gid: seen.gid,
        nlink: 0,
        rdev: seen.rdev,
        size_bytes,
        atime: seen.atime,
        mtime: seen.mtime,
        ctime: seen.ctime,
        btime: seen.btime,
        home: None,
        content: Content::EMPTY,
        target: seen.target.clone(),
        exact: seen.exact,
        observed_at: seen.looked_at,
    }
}

/// The effect of an op on inodes, for comparison with [`Applied`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changed {
    removed: Option<Ino>,
    orphaned: bool,
}

impl From<&Applied> for Changed {
    fn from(applied: &Applied) -> Self {
        Self { removed: applied.removed.as_ref().map(|inode| inode.ino), orphaned: applied.orphaned }
    }
}

fn set_content(
    node: &mut Node,
    now: Timestamp,
    content: Vec<Extent>,
    size_bytes: u64,
    mtime: Option<Timestamp>,
) {
    node.extents = content;
    let inode = &mut node.inode;
    inode.size_bytes = size_bytes;
    inode.observed_at = strategies::at(now);
    if let Some(mtime) = mtime {
        inode.mtime = mtime;
        inode.ctime = inode.ctime.max(mtime);
    }
}

impl Node {
    /// Returns the object at the path key, or else the object of the first extent.
    fn object(&self) -> Option<&Stored> {
        let mut objects = self.extents.iter().map(|extent| &extent.object);
        objects.clone().find(|object| object.key.is_none()).or_else(|| objects.next())
    }

    fn of(inode: Inode, extents: Vec<Extent>) -> Self {
        Self { inode, extents, names: BTreeSet::new(), entries: BTreeMap::new(), xattrs: BTreeMap::new() }
    }
}

/// Returns a new inode without name, owner and permissions.
fn blank(ino: Ino, kind: Kind, now: Timestamp) -> Inode {
    Inode {
        ino,
        kind,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 0,
        rdev: 0,
        size_bytes: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        home: None,
        content: Content::EMPTY,
        target: None,
        exact: true,
        observed_at: strategies::at(now),
    }
}
