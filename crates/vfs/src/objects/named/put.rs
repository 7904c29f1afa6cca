//! Storing an object in a volume named by inode: its bytes first, then one commit that makes it and its name.

use bytes::Bytes;
use meta::acl::ACCESS;
use meta::{Applied, AttrChanges, Ctx, Extent, FsError, Ino, Inode, Kind, Name, Observed, Op, XattrHow};
use store::{
    Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef, Payload, Precondition, PutOptions, StoreError, Tags,
    Timestamp, names,
};

use super::{ATTEMPTS_MAX, Way, busy, is_race};
use crate::bucket::headers::{self, Defaults};
use crate::names::invalidation::Invalidation;
use crate::objects::Objects;
use crate::objects::description::{IMPLICIT, Kept, MARKER, keep};
use crate::objects::errors::{about, named, no_such_key};
use crate::objects::etag::{self, Given};
use crate::objects::storing::Stores;
use crate::ops::without_set_id;

/// The longest symbolic link target, in bytes.
const TARGET_BYTES_MAX: u64 = 4095;
/// An extended attribute holds a marker's body, so it is not longer.
const MARKER_BYTES_MAX: u64 = 60 << 10;

/// What is stored and is to get a name.
#[derive(Debug)]
pub(in crate::objects) struct New<'n> {
    pub(in crate::objects) ino: Ino,
    /// All of it, from offset 0.
    pub(in crate::objects) content: Vec<Extent>,
    pub(in crate::objects) size_bytes: u64,
    /// It is a symbolic link.
    pub(in crate::objects) target: Option<Bytes>,
    pub(in crate::objects) attributes: &'n Attributes,
    pub(in crate::objects) tags: &'n Tags,
    /// What to call the content, if it has a name already.
    pub(in crate::objects) etag: Option<&'n ETag>,
    /// The inode is there already, as an orphan.
    pub(in crate::objects) orphan: Option<Orphan>,
}

/// What an orphan has that gets a name.
#[derive(Debug)]
pub(in crate::objects) struct Orphan {
    pub(in crate::objects) base: Option<ETag>,
    /// Attributes that are not the object's.
    pub(in crate::objects) surplus: Vec<Box<[u8]>>,
}

/// One commit, and who must hear of it.
#[derive(Debug, Default)]
pub(in crate::objects) struct Change {
    pub(in crate::objects) ops: Vec<Op>,
    pub(in crate::objects) news: Vec<Invalidation>,
}

impl Change {
    /// Something changes under a name.
    pub(in crate::objects) fn entry(&mut self, parent: Ino, name: &Name) {
        self.news.push(Invalidation::entry(parent, name.as_bytes()));
        self.news.push(Invalidation::Inode(parent));
    }

    pub(in crate::objects) fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Bytes) {
        self.ops.push(Op::SetXattr { ino, name: name.into(), value, how: XattrHow::Set });
    }
}

impl Objects {
    pub(in crate::objects) async fn put_named(
        &self,
        key: &ObjectKey,
        body: Payload,
        options: PutOptions,
    ) -> store::Result<ObjectRef> {
        let way = self.way(key)?;
        if way.last.is_none() {
            return self.put_marker(key, &body.to_bytes(), options).await;
        }
        self.look_first(key, &options.precondition)?;
        let ino = self.fs.new_ino(way.dir).map_err(about(key))?;
        let _stores = Stores::begin(&self.fs, ino);
        let target = self.target(key, &body, &options.attributes);
        let content = match target {
            Some(_) => Vec::new(),
            None => self.fs.store_content(ino, &body).await?,
        };
        let (attributes, tags) = (&options.attributes, &options.tags);
        let size_bytes = body.len();
        let new = New { ino, content, size_bytes, target, attributes, tags, etag: None, orphan: None };
        self.name_or_discard(key, &new, &options.precondition).await
    }

    /// Nothing is stored for what would be refused anyway.
    pub(super) fn look_first(&self, key: &ObjectKey, precondition: &Precondition) -> store::Result<()> {
        self.steadily(key, || {
            let there = self.there(&self.way(key)?).map_err(named(key))?;
            self.must_hold(key, precondition, there.as_ref())
        })
    }

    /// Where a symbolic link leads, if that is what the headers say.
    fn target(&self, key: &ObjectKey, body: &Payload, attributes: &Attributes) -> Option<Bytes> {
        let seen = self.seen(key, body.len(), attributes, self.fs.now(), &self.fs.defaults);
        let is_link = seen.kind == Kind::Symlink && (1..=TARGET_BYTES_MAX).contains(&body.len());
        is_link.then(|| body.to_bytes()).filter(|target| !target.contains(&0))
    }

    /// Names what was stored; what cannot be named goes again.
    pub(in crate::objects) async fn name_or_discard(
        &self,
        key: &ObjectKey,
        new: &New<'_>,
        precondition: &Precondition,
    ) -> store::Result<ObjectRef> {
        let named = self.name_object(key, new, precondition).await;
        // Of a commit whose outcome is unknown nobody knows what it named.
        if named.as_ref().is_err_and(|error| !matches!(error, StoreError::Unavailable(_))) {
            self.discard_all(&new.content).await;
        }
        named
    }

    pub(in crate::objects) async fn discard_all(&self, content: &[Extent]) {
        let inode = content.iter().filter_map(|extent| extent.object.key.clone());
        let keys: std::collections::BTreeSet<ObjectKey> = inode.collect();
        for key in keys {
            self.fs.discard(key).await;
        }
    }

    /// One commit: the object is there, and whatever had its name is not any more.
    pub(in crate::objects) async fn name_object(
        &self,
        key: &ObjectKey,
        new: &New<'_>,
        precondition: &Precondition,
    ) -> store::Result<ObjectRef> {
        let _claim = self.fs.claims.claim(&self.claimed(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let way = self.way(key)?;
            let taken = self.taken(&way).map_err(named(key))?;
            let held = match (precondition, &taken) {
                (Precondition::Matches(_), Some((_, inode))) => self.fs.open_file(inode.ino).ok(),
                _ => None,
            };
            let outcome = {
                // Nobody publishes other bytes between the look and the commit.
                let _work = match &held {
                    Some(file) => Some(file.work.lock().await),
                    None => None,
                };
                self.try_to_name(key, new, precondition)
            };
            if let Some(file) = held {
                file.close().await.map_err(about(key))?;
            }
            match outcome {
                Ok(Some((object, change, applied))) => {
                    self.settle(key, change, applied).await?;
                    return Ok(object);
                }
                // What had the name went in between.
                Ok(None) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(busy())
    }

    /// What a change left behind goes, what it did survives, and everybody hears of it.
    pub(in crate::objects) async fn settle(
        &self,
        key: &ObjectKey,
        change: Change,
        applied: Vec<Applied>,
    ) -> store::Result<()> {
        for applied in applied.iter().filter(|applied| applied.orphaned) {
            match self.fs.let_go(applied).await {
                Err(crate::Error::Namespace(FsError::NotFound)) => {}
                Err(error) => tracing::warn!(%key, %error, "what was replaced could not be cleared away"),
                Ok(()) => {}
            }
        }
        self.fs.names_first().await.map_err(about(key))?;
        self.fs.invalidations.deliver(change.news).await;
        Ok(())
    }

    /// `None`: somebody else was faster.
    fn try_to_name(
        &self,
        key: &ObjectKey,
        new: &New<'_>,
        precondition: &Precondition,
    ) -> store::Result<Option<(ObjectRef, Change, Vec<Applied>)>> {
        let way = self.way(key)?;
        let taken = self.taken(&way).map_err(named(key))?;
        let there = taken.as_ref().map(|(_, inode)| inode).filter(|inode| self.is_object(inode));
        self.must_hold(key, precondition, there)?;
        let ctx = self.fs.ctx();
        let (object, change) = self.naming(key, new, &way, taken.as_ref(), &ctx)?;
        match self.fs.names.commit_together(&ctx, &change.ops) {
            Ok(applied) => Ok(Some((object, change, applied))),
            Err(error) if is_race(&error) => Ok(None),
            Err(error) => Err(named(key)(error)),
        }
    }

    fn naming(
        &self,
        key: &ObjectKey,
        new: &New<'_>,
        way: &Way,
        taken: Option<&(Name, Inode)>,
        ctx: &Ctx,
    ) -> store::Result<(ObjectRef, Change)> {
        let mut change = Change::default();
        let Some(last) = &way.last else { return Err(no_such_key(key, "a marker is no file")) };
        let dir = self.make_way(key, way, &mut change)?;
        let place = (dir, self.free_name(key, way, last, taken)?);
        if taken.is_some() {
            change.ops.push(Op::Unlink { parent: place.0, name: place.1.clone(), keep: true });
        }
        change.entry(place.0, &place.1);
        let old = taken.map(|(_, old)| old).filter(|old| old.kind == Kind::File);
        let seen = self.seen(key, new.size_bytes, new.attributes, ctx.now, &self.defaults_over(old));
        let given = Given::to(&new.content, new.size_bytes).called(new.etag);
        let etag = match &new.target {
            Some(target) => etag::of_link(Some(target)),
            None => given.etag(),
        };
        make(new, place, &seen, &mut change);
        let mut kept = keep(new.attributes, new.tags)?;
        kept.describes(&etag, Some(given), (seen.mode, seen.uid, seen.gid, seen.mtime));
        change.ops.extend(kept.ops(new.ino)?);
        if let Some(list) =
            old.filter(|old| without_set_id(old.mode) == seen.mode).and_then(|old| self.acl(old))
        {
            change.set_xattr(new.ino, ACCESS, list);
        }
        Ok((ObjectRef::new(key.clone(), etag), change))
    }

    /// The directories on the way to a key that are not there; the last of them.
    pub(super) fn make_way(&self, key: &ObjectKey, way: &Way, change: &mut Change) -> store::Result<Ino> {
        let mut dir = way.dir;
        for (index, name) in way.missing.iter().enumerate() {
            let is_taken = index == 0 && self.fs.names.entry(dir, name).map_err(named(key))?.is_some();
            if is_taken {
                self.step_aside(key, dir, name, change)?;
            }
            change.entry(dir, name);
            let ino = self.fs.new_ino(dir).map_err(about(key))?;
            change.ops.push(self.directory(dir, name, ino));
            change.set_xattr(ino, IMPLICIT, Bytes::from_static(b"1"));
            dir = ino;
        }
        Ok(dir)
    }

    /// A file whose name a directory needs shows beside it from now on.
    fn step_aside(&self, key: &ObjectKey, dir: Ino, name: &Name, change: &mut Change) -> store::Result<()> {
        let beside = beside(key, name)?;
        change.entry(dir, &beside);
        let (from, to) = ((dir, name.clone()), (dir, beside));
        change.ops.push(Op::Rename { from, to, how: meta::RenameHow::Replace, keep: true });
        Ok(())
    }

    fn directory(&self, parent: Ino, name: &Name, ino: Ino) -> Op {
        let defaults = &self.fs.defaults;
        Op::Create {
            parent,
            name: name.clone(),
            ino,
            kind: Kind::Directory,
            mode: defaults.dir_mode,
            umask: 0,
            uid: defaults.uid,
            gid: defaults.gid,
            rdev: 0,
            target: None,
        }
    }

    /// The name that an object gets: beside a directory that has the plain one.
    pub(super) fn free_name(
        &self,
        key: &ObjectKey,
        way: &Way,
        last: &Name,
        taken: Option<&(Name, Inode)>,
    ) -> store::Result<Name> {
        if let Some((name, _)) = taken {
            return Ok(name.clone());
        }
        let is_directory =
            way.missing.is_empty() && self.fs.names.entry(way.dir, last).map_err(named(key))?.is_some();
        if is_directory { beside(key, last) } else { Ok(last.clone()) }
    }

    /// What a file is like that says nothing else: like the one that it replaces, whose right to lend its owner's
    /// rights was not given to other bytes.
    fn defaults_over(&self, old: Option<&Inode>) -> Defaults {
        match old {
            Some(old) => Defaults {
                uid: old.uid,
                gid: old.gid,
                file_mode: without_set_id(old.mode),
                ..self.fs.defaults
            },
            None => self.fs.defaults,
        }
    }

    fn seen(
        &self,
        key: &ObjectKey,
        size_bytes: u64,
        attributes: &Attributes,
        at: Timestamp,
        defaults: &Defaults,
    ) -> Observed {
        let object = ObjectRef { last_modified: Some(at), ..ObjectRef::new(key.clone(), ETag::new("")) };
        let meta = ObjectMeta { object, size_bytes, attributes: attributes.clone(), tag_count: None };
        headers::observed(&meta, key.as_bytes().ends_with(b"/"), defaults, self.fs.moment())
    }

    /// What an inode is like with other headers: as it is, where they do not say.
    pub(super) fn seen_over(&self, key: &ObjectKey, inode: &Inode, attributes: &Attributes) -> Observed {
        let (uid, gid, mode) = (inode.uid, inode.gid, inode.mode);
        let defaults = Defaults { uid, gid, file_mode: mode, dir_mode: mode };
        self.seen(key, inode.size_bytes, attributes, inode.mtime, &defaults)
    }

    fn acl(&self, inode: &Inode) -> Option<Bytes> {
        self.fs.names.xattr(inode.ino, ACCESS).ok()
    }

    /// A directory becomes one that was made for its own sake.
    async fn put_marker(
        &self,
        key: &ObjectKey,
        body: &Bytes,
        options: PutOptions,
    ) -> store::Result<ObjectRef> {
        if body.len() as u64 > MARKER_BYTES_MAX {
            let why = "in a volume named by inode an object whose key ends in '/' is a directory, and has at most 60 KiB";
            return Err(StoreError::Invalid(why.to_owned()));
        }
        let _claim = self.fs.claims.claim(&self.claimed(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let way = self.way(key)?;
            self.must_hold(key, &options.precondition, self.there(&way).map_err(named(key))?.as_ref())?;
            let ctx = self.fs.ctx();
            let (object, change) = self.marking(key, &way, body, &options, &ctx)?;
            match self.fs.names.commit_together(&ctx, &change.ops) {
                Ok(applied) => {
                    self.settle(key, change, applied).await?;
                    return Ok(object);
                }
                Err(error) if is_race(&error) => {}
                Err(error) => return Err(named(key)(error)),
            }
        }
        Err(busy())
    }

    fn marking(
        &self,
        key: &ObjectKey,
        way: &Way,
        body: &Bytes,
        options: &PutOptions,
        ctx: &Ctx,
    ) -> store::Result<(ObjectRef, Change)> {
        let mut change = Change::default();
        let old = match way.missing.is_empty() {
            true => Some(self.fs.names.inode(way.dir).map_err(named(key))?),
            false => None,
        };
        let dir = self.make_way(key, way, &mut change)?;
        let defaults = match &old {
            Some(old) => Defaults { uid: old.uid, gid: old.gid, dir_mode: old.mode, ..self.fs.defaults },
            None => self.fs.defaults,
        };
        let seen = self.seen(key, 0, &options.attributes, ctx.now, &defaults);
        let is_implicit = old.is_none() || self.is_implicit(dir).map_err(named(key))?;
        if is_implicit {
            change.ops.push(Op::RemoveXattr { ino: dir, name: IMPLICIT.into() });
        }
        self.set_body(dir, old.is_some(), body, &mut change).map_err(named(key))?;
        let is_other = old.is_none_or(|old| (old.mode, old.uid, old.gid) != (seen.mode, seen.uid, seen.gid));
        if is_other {
            let (mode, uid, gid) = (Some(seen.mode), Some(seen.uid), Some(seen.gid));
            let changes = AttrChanges { mode, uid, gid, ..AttrChanges::default() };
            change.ops.push(Op::SetAttr { ino: dir, changes });
        }
        let etag = etag::of_marker(dir.0, body, ctx.now);
        let mut kept = keep(&options.attributes, &options.tags)?;
        kept.describes(&etag, None, (seen.mode, seen.uid, seen.gid, seen.mtime));
        kept.record.at = Some(ctx.now.0);
        let before = Kept::read(&self.fs.names, dir);
        match before {
            Ok(before) => change.ops.extend(kept.ops_over(dir, &before)?),
            Err(_) => change.ops.extend(kept.ops(dir)?),
        }
        change.news.push(Invalidation::Attributes(dir));
        Ok((ObjectRef::new(key.clone(), etag), change))
    }

    fn set_body(&self, dir: Ino, is_there: bool, body: &Bytes, change: &mut Change) -> Result<(), FsError> {
        if !body.is_empty() {
            change.set_xattr(dir, MARKER, body.clone());
        } else if is_there && !self.marker_body(dir)?.is_empty() {
            change.ops.push(Op::RemoveXattr { ino: dir, name: MARKER.into() });
        }
        Ok(())
    }
}

/// The inode with its content under its name.
fn make(new: &New<'_>, (parent, name): (Ino, Name), seen: &Observed, change: &mut Change) {
    let ino = new.ino;
    let base = new.orphan.as_ref().and_then(|orphan| orphan.base.clone());
    let publish = Op::Publish {
        ino,
        base,
        content: new.content.clone(),
        size_bytes: new.size_bytes,
        mtime: Some(seen.mtime),
    };
    let Some(orphan) = &new.orphan else {
        let kind = if new.target.is_some() { Kind::Symlink } else { Kind::File };
        let (mode, uid, gid, target) = (seen.mode, seen.uid, seen.gid, new.target.clone());
        change.ops.push(Op::Create { parent, name, ino, kind, mode, umask: 0, uid, gid, rdev: 0, target });
        match kind {
            Kind::File => change.ops.push(publish),
            _ => {
                let changes = AttrChanges { mtime: Some(seen.mtime), ..AttrChanges::default() };
                change.ops.push(Op::SetAttr { ino, changes });
            }
        }
        return;
    };
    let (mode, uid, gid) = (Some(seen.mode), Some(seen.uid), Some(seen.gid));
    let changes = AttrChanges { mode, uid, gid, ..AttrChanges::default() };
    let surplus = orphan.surplus.iter().cloned();
    change.ops.extend(surplus.map(|name| Op::RemoveXattr { ino, name }));
    change.ops.extend([publish, Op::SetAttr { ino, changes }, Op::Link { ino, parent, name }]);
}

fn beside(key: &ObjectKey, name: &Name) -> store::Result<Name> {
    let why = "an object and a directory have this name, and it is too long for one beside the other";
    Name::new(&names::beside(name.as_bytes())).map_err(|_| no_such_key(key, why))
}
