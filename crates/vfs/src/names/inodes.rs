//! Inodes, their paths and keys, and the snapshots of their content.

use meta::namespace::read_inode;
use meta::{
    Applied, Content, Dentry, Extent, FsError, Ino, Inode, Kind, Name, Op, Origin, Reader, RenameHow, Stored,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::names;
use store::{ObjectKey, ObjectRef};

use crate::content::pin::Pin;
use crate::layout::{content_keys, relocated, stored, whole};
use crate::names::Names;
use crate::{Error, Result};

/// The part of a key's path that the tables know.
#[derive(Debug)]
pub(crate) struct KnownPath {
    /// The deepest known directory.
    pub(crate) dir: Ino,
    /// The next component of the key in that directory; `None` if the key is the directory's marker.
    pub(crate) next: Option<Name>,
    /// Whether that component is the last one, the object's own name.
    pub(crate) is_last: bool,
}

/// The extents of an inode's content, if they are in rows of their own and not in the inode record.
enum Extents {
    /// Rows of a snapshot of the tables.
    Rows(Arc<dyn Reader>),
    /// The extents themselves, because the engine has no snapshots that may exist for long.
    Loaded(Vec<Extent>),
}

impl Names {
    /// Allocates an inode number for a child of `parent`; ENOSPC if none is left.
    pub(crate) fn new_ino(&self, parent: Ino) -> Result<Ino> {
        self.tables
            .allocate(parent, 1)
            .first()
            .copied()
            .ok_or(Error::new(libc::ENOSPC, "no inode number is left"))
    }

    /// Returns the snapshot of an inode's content; `None` if the content is not stored yet and will be at the file's path.
    pub(crate) fn pin_of(&self, ino: Ino) -> Result<Option<Pin>> {
        Ok(self.inode_with_pin(ino)?.1)
    }

    /// Returns an inode with the snapshot of its content, `None` if the content is not stored yet.
    pub(crate) fn inode_with_pin(&self, ino: Ino) -> Result<(Inode, Option<Pin>)> {
        let inode = self.tables.inode(ino)?;
        if let Content::Inline(_) = inode.content {
            let pin = self.pin(&inode)?;
            return Ok((inode, pin));
        }
        if !self.tables.engine().has_lasting_snapshots() {
            let (inode, extents) = self.tables.content(ino)?;
            let pin = self.pin_with(&inode, || Ok(Extents::Loaded(extents)))?;
            return Ok((inode, pin));
        }
        let tables = self.tables.snapshot()?;
        let inode = read_inode(&*tables, ino)?.ok_or(FsError::NotFound)?;
        let pin = self.pin_with(&inode, || Ok(Extents::Rows(tables)))?;
        Ok((inode, pin))
    }

    /// Returns the content that `inode` had when it was read. Fails with `StaleBase` if the content has changed since and its
    /// extents are not in the inode record.
    pub(crate) fn pin(&self, inode: &Inode) -> Result<Option<Pin>> {
        self.pin_with(inode, || {
            if !self.tables.engine().has_lasting_snapshots() {
                return Ok(Extents::Loaded(self.tables.content_of(inode)?));
            }
            let tables = self.tables.snapshot()?;
            let is_same = read_inode(&*tables, inode.ino)?.is_some_and(|now| now.content == inode.content);
            if is_same { Ok(Extents::Rows(tables)) } else { Err(FsError::StaleBase.into()) }
        })
    }

    /// Returns the objects under keys of their own that hold an inode's content; none if the inode is gone.
    pub(crate) fn own_objects(&self, ino: Ino) -> Result<BTreeSet<ObjectKey>> {
        match self.tables.content(ino) {
            Ok((_, extents)) => Ok(content_keys(&extents)),
            Err(FsError::NotFound) => Ok(BTreeSet::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Like [`Names::pin`]; `extents` returns the extents of an inode whose record does not have them.
    fn pin_with(&self, inode: &Inode, extents: impl FnOnce() -> Result<Extents>) -> Result<Option<Pin>> {
        let path = match self.lies_at_path(inode)? {
            false => None,
            true => match self.object(inode)? {
                None => return Ok(None),
                Some(object) if inode.is_ahead() => Some(object.key),
                Some(object) => return Ok(Some(Pin::whole(object, inode.content.data_bytes()))),
            },
        };
        let size_bytes = inode.size_bytes;
        Ok(Some(match &inode.content {
            Content::Inline(extents) => Pin::of_extents(extents, size_bytes, path.as_ref()),
            Content::Rows(summary) => match extents()? {
                Extents::Rows(tables) => Pin::of_rows(tables, inode.ino, summary.clone(), size_bytes, path),
                Extents::Loaded(extents) => Pin::of_extents(&extents, size_bytes, path.as_ref()),
            },
        }))
    }

    /// Returns whether an inode's bytes are, or will be once stored, under the key that its path gives.
    pub(crate) fn lies_at_path(&self, inode: &Inode) -> Result<bool> {
        match inode.object() {
            Some(object) => Ok(self.mount.layout.is_at_path(object)),
            None => self.has_path_key(inode),
        }
    }

    /// Returns whether an inode's path can be a key. An inode without a name counts as if it could.
    pub(crate) fn has_path_key(&self, inode: &Inode) -> Result<bool> {
        self.mount.layout.has_path_key(&self.tables, inode)
    }

    /// Returns the key that a file's path gives; `None` if the path cannot be a key.
    pub(crate) fn path_key(&self, inode: &Inode) -> Result<Option<ObjectKey>> {
        self.mount.layout.find_path_key(&self.tables, inode)
    }

    /// Fails if a new name is the escaped form of a key that is no path.
    pub(crate) fn check_not_escape(&self, parent: Ino, name: &Name, kind: Kind) -> Result<()> {
        let layout = &self.mount.layout;
        if !layout.can_have_keys() {
            return Ok(());
        }
        Ok(layout.check_not_escape(&layout.directory(&self.tables, parent)?, name, kind)?)
    }

    /// Returns whether a listing of the bucket shows an inode under a name, once it is stored.
    pub(crate) fn is_shown(&self, parent: Ino, name: &Name, inode: &Inode) -> Result<bool> {
        self.mount.layout.would_show_in(&self.tables, parent, name, inode)
    }

    /// Returns the object that has an inode's bytes, or is its directory's marker. `None` if nothing is stored, or the
    /// object went together with the name.
    pub(crate) fn object(&self, inode: &Inode) -> Result<Option<ObjectRef>> {
        let Some(stored) = inode.object() else { return Ok(None) };
        if inode.home.is_none() && stored.key.is_none() {
            // The object at the path was deleted or replaced together with the name.
            return Ok(None);
        }
        Ok(Some(ObjectRef {
            key: self.mount.layout.key(&self.tables, inode)?,
            etag: stored.etag.clone(),
            version: stored.version.clone(),
            last_modified: None,
        }))
    }

    /// Returns a file's path for the log, or its inode number if it has no name.
    pub(crate) fn path_for_log(&self, ino: Ino) -> String {
        let text = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        let path = self.tables.path(ino).map(|path| path.iter().map(text).collect::<Vec<_>>().join("/"));
        path.unwrap_or_else(|_| format!("inode {ino}"))
    }

    /// Returns the op that gives a shadowed file (`%=name`) its plain name back when the directory of that name goes;
    /// `None` if there is no such file.
    pub(crate) fn op_to_unshadow(&self, parent: Ino, name: &Name) -> Result<Option<Op>, FsError> {
        let Ok(shadowed) = Name::new(&names::colliding(name.as_bytes())) else { return Ok(None) };
        let is_there =
            self.tables.entry(parent, &shadowed)?.is_some_and(|entry| entry.kind != Kind::Directory);
        let (from, to) = ((parent, shadowed), (parent, name.clone()));
        Ok(is_there.then_some(Op::Rename { from, to, how: RenameHow::NoReplace, keep: true }))
    }

    /// Returns whether a directory is `ancestor` or below it.
    pub(crate) fn is_below(&self, mut dir: Ino, ancestor: Ino) -> Result<bool> {
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            match self.tables.inode(dir)?.home {
                Some((parent, _)) => dir = parent,
                None => return Ok(false),
            }
        }
    }

    /// Returns whether listing the bucket would restore everything about a file at its path.
    pub(crate) fn is_restorable_from_bucket(&self, ino: Ino) -> Result<bool> {
        let inode = self.tables.inode(ino)?;
        let is_whole = self.lies_at_path(&inode)? && !inode.is_ahead();
        Ok(is_whole && inode.nlink == 1 && self.tables.xattrs(ino)?.is_empty())
    }

    /// Makes names and attributes changed so far survive the loss of power.
    pub(crate) async fn sync_names(&self) -> Result<()> {
        if self.mount.config.write_back {
            // The write-back log has names and data in one order.
            return Ok(self.mount.store.sync().await?);
        }
        let engine = self.tables.engine().clone();
        let synced = store::blocking(move || Ok(engine.sync())).await;
        synced
            .map_err(|_| Error::new(libc::EIO, "the sync was interrupted"))?
            .map_err(|error| meta::FsError::from(error).into())
    }

    /// Like `sync_names`, before a deletion or an answer that relies on the names. Returns at once in write-back mode,
    /// as the write-back log keeps names and deletions in order.
    pub(crate) async fn sync_names_unless_write_back(&self) -> Result<()> {
        if self.mount.config.write_back { Ok(()) } else { self.sync_names().await }
    }

    /// Returns whether an inode has its primary name below a directory.
    pub(crate) fn is_inside(&self, ino: Ino, dir: Ino) -> Result<bool> {
        match self.tables.inode(ino).ok().and_then(|inode| inode.home) {
            Some((parent, _)) => self.is_below(parent, dir),
            None => Ok(false),
        }
    }

    /// Adds the record of a pending export to `ops`, so that it is committed together with the change of attributes. The caller
    /// must then call `ExportQueue::export_soon`.
    pub(crate) fn with_export(&self, ino: Ino, mut ops: Vec<Op>) -> Result<Vec<Op>> {
        if self.mount.rules.exports_attributes && self.has_headers(&self.tables.inode(ino)?)? {
            ops.push(Op::AwaitExport { ino });
        }
        Ok(ops)
    }

    /// Returns whether an inode has, or as a directory can get, an object whose headers hold its attributes.
    pub(crate) fn has_headers(&self, inode: &Inode) -> Result<bool> {
        let is_stored = inode.object().is_some() || inode.kind == Kind::Directory;
        Ok(is_stored && inode.ino != Ino::ROOT && self.has_path_key(inode)?)
    }

    /// Returns whether an inode's attributes are newer than the headers of its object, so that their export is pending.
    /// Returns true if the tables cannot be read.
    pub(crate) fn awaits_export(&self, ino: Ino) -> bool {
        self.mount.rules.exports_attributes && !matches!(self.tables.waiting_export(ino), Ok(None))
    }

    /// Returns the part of a key's path that the tables know. Returns `None` for a key that has no path: it is outside
    /// the volume or Tenon's own, or keys are no paths.
    pub(crate) fn known_path(&self, key: &ObjectKey) -> Result<Option<KnownPath>> {
        let Some(inside) = self.mount.layout.path_in_volume(key) else { return Ok(None) };
        let mut path = names::key_to_path(&inside);
        if self.mount.layout.has_own_path(key, &path) {
            return Ok(None);
        }
        let last = path.pop().unwrap_or_default();
        let mut dir = Ino::ROOT;
        for name in path {
            let name = Name::new(&name)?;
            match self.tables.entry(dir, &name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => dir = ino,
                _ => return Ok(Some(KnownPath { dir, next: Some(name), is_last: false })),
            }
        }
        let next = if last.is_empty() { None } else { Some(Name::new(&last)?) };
        Ok(Some(KnownPath { dir, next, is_last: true }))
    }

    /// Returns the directory and the visible name of a key's object. Returns `None` if a directory above is not known,
    /// or the key has no path or is that of a marker.
    pub(crate) fn visible_entry(&self, key: &ObjectKey) -> Result<Option<(Ino, Name)>> {
        let Some(known) = self.known_path(key)?.filter(|known| known.is_last) else { return Ok(None) };
        let Some(name) = known.next else { return Ok(None) };
        Ok(Some((known.dir, self.visible_name(known.dir, &name)?)))
    }

    /// Returns the visible name of an object: escaped if a directory has its plain name.
    pub(crate) fn visible_name(&self, dir: Ino, name: &Name) -> Result<Name> {
        match self.tables.entry(dir, name)? {
            Some(entry) if entry.kind == Kind::Directory => {
                Ok(Name::new(&names::colliding(name.as_bytes()))?)
            }
            _ => Ok(name.clone()),
        }
    }

    /// Makes an object the inode's content, whatever the content was before. Returns the keys that are no longer part of it.
    pub(crate) fn publish(
        &self,
        inode: &Inode,
        object: &ObjectRef,
        size_bytes: u64,
        mtime: Option<store::Timestamp>,
    ) -> Result<Vec<ObjectKey>> {
        let applied = commit_on_content(self, Origin::FrontEnd, || {
            Ok(vec![self.publish_op(inode.ino, object, size_bytes, mtime)?])
        })?;
        Ok(applied.map(|applied| applied.released).unwrap_or_default())
    }

    /// Returns the op that makes an object the inode's content.
    pub(crate) fn publish_op(
        &self,
        ino: Ino,
        object: &ObjectRef,
        size_bytes: u64,
        mtime: Option<store::Timestamp>,
    ) -> Result<Op> {
        let base = self.tables.inode(ino)?.object().map(|object| object.etag.clone());
        let content = whole(stored(object), size_bytes);
        Ok(Op::Publish { ino, base, content, size_bytes, mtime })
    }

    /// Records that the object at an inode's path was copied elsewhere or has another tag now.
    pub(crate) fn relocate(&self, inode: &Inode, there: &Stored) -> Result<()> {
        commit_on_content(self, Origin::Bookkeeping, || Ok(vec![self.relocate_op(inode.ino, there)?]))
            .map(drop)
    }

    /// Returns the op that records where the object of an inode's path is now.
    pub(crate) fn relocate_op(&self, ino: Ino, there: &Stored) -> Result<Op> {
        let (inode, stored) = self.tables.content(ino)?;
        let base = inode.object().map(|object| object.etag.clone());
        let content = relocated(&stored, there);
        Ok(Op::Publish { ino, base, content, size_bytes: inode.size_bytes, mtime: None })
    }
}

/// Makes an object the inode's content that has older headers than the inode's attributes, and records in the same commit that these must
/// be exported. Returns the keys that are no longer part of the content.
pub(crate) fn publish_outdated(
    names: &Names,
    ino: Ino,
    object: &ObjectRef,
    size_bytes: u64,
    mtime: Option<store::Timestamp>,
) -> Result<Vec<ObjectKey>> {
    let applied = commit_on_content(names, Origin::FrontEnd, || {
        Ok(vec![names.publish_op(ino, object, size_bytes, mtime)?, Op::AwaitExport { ino }])
    })?;
    Ok(applied.map(|applied| applied.released).unwrap_or_default())
}

/// Commits ops together, of which the first names the current object as its base. Makes them again if the object got another etag
/// meanwhile, because it was uploaded or moved. Returns what the first op did; `None`: there are no ops, as the current content needs no
/// change.
pub(crate) fn commit_on_content(
    names: &Names,
    origin: Origin,
    ops: impl Fn() -> Result<Vec<Op>>,
) -> Result<Option<Applied>> {
    loop {
        let ops = ops()?;
        let applied = match ops.as_slice() {
            [] => return Ok(None),
            [op] => names.commit(origin, op),
            ops => names.commit_together(origin, ops).map(|all| all.into_iter().next().unwrap_or_default()),
        };
        match applied {
            Err(FsError::StaleBase) => {}
            outcome => return Ok(Some(outcome?)),
        }
    }
}

/// Returns whether all of an inode's content is one object that is not at its path.
pub(crate) fn is_one_object_beside(inode: &Inode) -> bool {
    let all = inode.content.only_extent();
    all.is_some_and(|all| all.object.key.is_some() && all.len == inode.size_bytes)
}
