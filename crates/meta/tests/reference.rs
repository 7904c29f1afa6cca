//! A naive file system, written from the rules and not from the code: what ops mean, without tables, transactions or
//! records. Slow and plain on purpose.

use crate::strategies;
use meta::{
    Applied, AttrChanges, Content, Ctx, Extent, Fingerprint, FsError, Ino, Inode, Kind, Name, Observed, Op,
    RenameHow, Stored, Summary, XattrHow,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::{ETag, Timestamp};

type Place = (Ino, Name);

/// All inodes, with what leads to them and what is in them.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    nodes: BTreeMap<Ino, Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its content sums up `extents`.
    pub(crate) inode: Inode,
    pub(crate) extents: Vec<Extent>,
    pub(crate) names: BTreeSet<Place>,
    pub(crate) entries: BTreeMap<Name, Ino>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Reference {
    pub(crate) fn new(root: Inode) -> Self {
        let root = Node::of(root, Vec::new());
        Self { nodes: BTreeMap::from([(Ino::ROOT, root)]) }
    }

    /// Every node, with link counts as counted.
    pub(crate) fn nodes(&self) -> BTreeMap<Ino, Node> {
        let mut nodes = self.nodes.clone();
        for node in nodes.values_mut() {
            node.inode.nlink = match node.inode.kind {
                Kind::Directory => {
                    2 + node.entries.values().filter(|ino| self.nodes[ino].inode.is_dir()).count() as u32
                }
                _ => node.names.len() as u32,
            };
            node.inode.content =
                without_fingerprint(&Content::of(node.extents.clone(), node.inode.size_bytes));
        }
        nodes
    }

    /// On error nothing has changed.
    pub(crate) fn apply(&mut self, ctx: &Ctx, op: &Op) -> Result<Changed, FsError> {
        let before = self.clone();
        let result = self.apply_in_place(ctx, op);
        if result.is_err() {
            *self = before;
        }
        result
    }

    fn apply_in_place(&mut self, ctx: &Ctx, op: &Op) -> Result<Changed, FsError> {
        let now = ctx.now;
        match op {
            Op::Root { .. } => Err(FsError::Exists),
            Op::Lease { .. } => Err(FsError::StaleBase),
            Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target } => {
                self.place_is_free(*parent, name, *ino)?;
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
                self.touch(*parent, now);
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
            // The model does not know what waits to be exported; `rules` tests it.
            Op::AwaitExport { ino } => {
                self.nodes.get(ino).ok_or(FsError::NotFound)?;
                Ok(Changed::default())
            }
            Op::Exported { .. } => Ok(Changed::default()),
            Op::Link { ino, parent, name } => self.link(now, *ino, (*parent, name.clone())),
            Op::HandOn { ino, parent, name } => {
                let heir = (*parent, name.clone());
                let node = self.nodes.get_mut(ino).filter(|node| node.names.contains(&heir));
                node.ok_or(FsError::NotFound)?.inode.home = Some(heir);
                Ok(Changed::default())
            }
            Op::Unlink { parent, name, keep } => {
                let ino = self.find(*parent, name)?;
                if self.nodes[&ino].inode.is_dir() {
                    return Err(FsError::IsDirectory);
                }
                let changed = self.take(now, &(*parent, name.clone()), *keep);
                self.touch(*parent, now);
                Ok(changed)
            }
            Op::Rmdir { parent, name } => {
                let ino = self.find(*parent, name)?;
                if !self.nodes[&ino].inode.is_dir() {
                    return Err(FsError::NotDirectory);
                }
                self.is_empty(ino)?;
                let changed = self.take(now, &(*parent, name.clone()), false);
                self.touch(*parent, now);
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
                self.place_is_free(*parent, name, *ino)?;
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
                self.is_empty(ino)?;
                let keep = *keep && !self.nodes[&ino].inode.is_dir();
                let changed = self.take(now, &(*parent, name.clone()), keep);
                self.touch(*parent, now);
                Ok(changed)
            }
            Op::Evict { parent, name } => {
                let ino = self.find(*parent, name)?;
                self.is_empty(ino)?;
                if self.nodes[&ino].names.len() > 1 {
                    return Err(FsError::Invalid("several names"));
                }
                Ok(self.take(now, &(*parent, name.clone()), false))
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

    fn is_empty(&self, ino: Ino) -> Result<(), FsError> {
        if self.nodes[&ino].entries.is_empty() { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    fn place_is_free(&self, dir: Ino, name: &Name, ino: Ino) -> Result<(), FsError> {
        if self.dir(dir)?.entries.contains_key(name) {
            return Err(FsError::Exists);
        }
        if self.nodes.contains_key(&ino) { Err(FsError::Invalid("in use")) } else { Ok(()) }
    }

    fn touch(&mut self, dir: Ino, now: Timestamp) {
        let inode = &mut self.nodes.get_mut(&dir).unwrap().inode;
        inode.mtime = inode.mtime.max(now);
        inode.ctime = inode.ctime.max(now);
    }

    fn insert(&mut self, inode: Inode, extents: Vec<Extent>) {
        let place = inode.home.clone().unwrap();
        let ino = inode.ino;
        self.nodes.insert(ino, Node::of(inode, extents));
        self.enter(place, ino);
    }

    fn enter(&mut self, place: Place, ino: Ino) {
        self.nodes.get_mut(&place.0).unwrap().entries.insert(place.1.clone(), ino);
        self.nodes.get_mut(&ino).unwrap().names.insert(place);
    }

    fn leave(&mut self, place: &Place) -> Ino {
        let ino = self.nodes.get_mut(&place.0).unwrap().entries.remove(&place.1).unwrap();
        self.nodes.get_mut(&ino).unwrap().names.remove(place);
        ino
    }

    /// A name goes, and with the last one the inode, unless somebody keeps it.
    fn take(&mut self, now: Timestamp, place: &Place, keep: bool) -> Changed {
        let ino = self.leave(place);
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

    fn link(&mut self, now: Timestamp, ino: Ino, place: Place) -> Result<Changed, FsError> {
        let node = self.nodes.get(&ino).ok_or(FsError::NotFound)?;
        if node.inode.is_dir() {
            return Err(FsError::IsDirectory);
        }
        if self.dir(place.0)?.entries.contains_key(&place.1) {
            return Err(FsError::Exists);
        }
        self.touch(place.0, now);
        let node = self.nodes.get_mut(&ino).unwrap();
        node.inode.ctime = now;
        if node.names.is_empty() {
            node.inode.home = Some(place.clone());
        }
        self.enter(place, ino);
        Ok(Changed::default())
    }

    /// Whether `ino` is `above` or lies below it.
    fn is_below(&self, ino: Ino, above: Ino) -> bool {
        ino == above || self.nodes[&above].entries.values().any(|child| self.is_below(ino, *child))
    }

    fn rename(
        &mut self,
        now: Timestamp,
        from: &Place,
        to: &Place,
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
                (true, true) => self.is_empty(there)?,
                (false, false) => {}
            }
            changed = self.take(now, to, keep && !self.nodes[&there].inode.is_dir());
        }
        self.leave(from);
        if how == RenameHow::Exchange {
            self.leave(to);
            self.enter(from.clone(), there.unwrap());
            self.was_moved(there.unwrap(), to, from, now);
        }
        self.enter(to.clone(), moved);
        self.was_moved(moved, from, to, now);
        self.touch(from.0, now);
        self.touch(to.0, now);
        Ok(changed)
    }

    fn was_moved(&mut self, ino: Ino, from: &Place, to: &Place, now: Timestamp) {
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
            *extents = cut(extents, size_bytes);
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
        name_content(node, now, content.to_vec(), size_bytes, mtime);
        Ok(Changed::default())
    }

    /// Byte by byte: sizes in these tests are small.
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
        // Every extent lies in one range, not in two that touch.
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
        name_content(node, now, after, size_bytes, mtime);
        Ok(Changed::default())
    }

    fn refresh(&mut self, ino: Ino, seen: &Observed) -> Result<Changed, FsError> {
        let node = self.nodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        let known_etag = node.object().map(|object| object.etag.clone());
        let is_ahead = node.extents.iter().any(|extent| extent.object.key.is_some())
            && node.extents.iter().any(|extent| extent.object.key.is_none());
        let known = &mut node.inode;
        if known.is_dir() != (seen.kind == Kind::Directory) {
            return Err(FsError::Invalid("kind"));
        }
        let seen_etag = seen.object.as_ref().map(|object| object.etag.clone());
        let just_a_prefix = known.is_dir() && seen.object.is_none() && !seen.exact;
        let nothing_new = known_etag == seen_etag && (known.exact && !seen.exact || is_ahead);
        let headers_of_it = seen.exact && !known.exact && known_etag == seen_etag;
        if known.observed_at >= seen.looked_at && !headers_of_it {
            return Err(FsError::Late);
        }
        let observed_at = known.observed_at.max(seen.looked_at);
        known.observed_at = observed_at;
        if just_a_prefix || nothing_new {
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

/// What of the content lies within the size; a file cut to nothing still knows its first object.
fn cut(content: &[Extent], size_bytes: u64) -> Vec<Extent> {
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

/// The content of what was seen: its object.
fn whole(seen: &Observed) -> Vec<Extent> {
    let len = if seen.kind == Kind::Directory { 0 } else { seen.size_bytes };
    let extent = |object: &meta::Stored| Extent { offset: 0, len, object: object.clone(), object_offset: 0 };
    seen.object.iter().map(extent).collect()
}

/// A content but for its fingerprint, which depends on what the content was before.
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

/// What became of inodes; compared with [`Applied`].
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

fn name_content(
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
    /// The object at the path, else the first.
    fn object(&self) -> Option<&Stored> {
        let mut objects = self.extents.iter().map(|extent| &extent.object);
        objects.clone().find(|object| object.key.is_none()).or_else(|| objects.next())
    }

    fn of(inode: Inode, extents: Vec<Extent>) -> Self {
        Self { inode, extents, names: BTreeSet::new(), entries: BTreeMap::new(), xattrs: BTreeMap::new() }
    }
}

/// A new inode without names, owner and permissions.
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
