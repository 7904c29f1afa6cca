//! The ops of a commit that names stored content, or creates the marker of a directory.

use bytes::Bytes;
use meta::acl::ACCESS;
use meta::{
    AttrChanges, Extent, FsError, Ino, Inode, Kind, Name, Observed, Op, OpContext, RenameHow, SeenName,
    XattrHow,
};
use store::{Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef, PutOptions, Tags, Timestamp, names};

use super::keys::{NamedKeys, ResolvedKey};
use crate::bucket::headers::{self, Defaults};
use crate::objects::description::{IMPLICIT, MARKER, ObjectDescription, describe_object};
use crate::objects::errors::{error_about, namespace_error_about, no_such_key};
use crate::objects::etag::{self, AssignedEtag};
use crate::ops::without_set_id;

/// Stored content that is to get a name.
#[derive(Debug)]
pub(in crate::objects) struct NewObject<'n> {
    pub(in crate::objects) ino: Ino,
    /// All content, from offset 0.
    pub(in crate::objects) content: Vec<Extent>,
    pub(in crate::objects) size_bytes: u64,
    /// The target, if the object is a symbolic link.
    pub(in crate::objects) target: Option<Bytes>,
    pub(in crate::objects) attributes: &'n Attributes,
    pub(in crate::objects) tags: &'n Tags,
    /// The etag of the content, if it has one already.
    pub(in crate::objects) etag: Option<&'n ETag>,
    /// The orphan to use as the inode, instead of a new one.
    pub(in crate::objects) orphan: Option<Orphan>,
}

/// State of an orphan that gets a name.
#[derive(Debug)]
pub(in crate::objects) struct Orphan {
    /// Etag of the content that the orphan has.
    pub(in crate::objects) base: Option<ETag>,
    /// Attributes of the orphan that the object must not have.
    pub(in crate::objects) surplus: Vec<Box<[u8]>>,
}

/// The ops of one commit.
#[derive(Debug, Default)]
pub(in crate::objects) struct Change {
    /// The names that the ops rename or remove. The commit fails if one refers to another inode by now.
    pub(in crate::objects) names: Vec<SeenName>,
    pub(in crate::objects) ops: Vec<Op>,
}

impl Change {
    /// Removes a name of a file, which becomes an orphan with its last name.
    pub(super) fn unlink(&mut self, parent: Ino, name: &Name, ino: Ino) {
        self.names.push(SeenName { parent, name: name.clone(), ino });
        self.ops.push(Op::Unlink { parent, name: name.clone(), keep: true });
    }

    /// Gives an inode another name; the entry that has it now is replaced or kept, as `how` says.
    pub(super) fn rename(&mut self, ino: Ino, from: (Ino, Name), to: (Ino, Name), how: RenameHow) {
        self.names.push(SeenName { parent: from.0, name: from.1.clone(), ino });
        self.ops.push(Op::Rename { from, to, how, keep: true });
    }

    pub(in crate::objects) fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Bytes) {
        self.ops.push(Op::SetXattr { ino, name: name.into(), value, how: XattrHow::Set });
    }
}

impl NamedKeys {
    pub(super) fn plan_naming(
        &self,
        key: &ObjectKey,
        new: &NewObject<'_>,
        resolved: &ResolvedKey,
        taken: Option<&(Name, Inode)>,
        context: &OpContext,
    ) -> store::Result<(ObjectRef, Change)> {
        let mut change = Change::default();
        let Some(last) = &resolved.last else {
            return Err(no_such_key(key, "a key that ends in '/' is the marker of a directory, not a file"));
        };
        let dir = self.make_directories(key, resolved, &mut change)?;
        let place = (dir, self.free_name(key, resolved, last, taken)?);
        if let Some((name, file)) = taken {
            change.unlink(place.0, name, file.ino);
        }
        let old = taken.map(|(_, old)| old).filter(|old| old.kind == Kind::File);
        let seen =
            self.attributes_from(key, new.size_bytes, new.attributes, context.now, &self.defaults_over(old));
        let given = AssignedEtag::for_content(&new.content, new.size_bytes).with_etag(new.etag);
        let etag = match &new.target {
            Some(target) => etag::of_link(Some(target)),
            None => given.etag(),
        };
        make(new, place, &seen, &mut change);
        let mut description = describe_object(new.attributes, new.tags)?;
        description.bind(&etag, Some(given), (seen.mode, seen.uid, seen.gid, seen.mtime));
        change.ops.extend(description.ops(new.ino)?);
        if let Some(list) =
            old.filter(|old| without_set_id(old.mode) == seen.mode).and_then(|old| self.acl(old))
        {
            change.set_xattr(new.ino, ACCESS, list);
        }
        Ok((ObjectRef::new(key.clone(), etag), change))
    }

    /// Adds the missing directories of a key to a change; returns the last one.
    pub(super) fn make_directories(
        &self,
        key: &ObjectKey,
        resolved: &ResolvedKey,
        change: &mut Change,
    ) -> store::Result<Ino> {
        let mut dir = resolved.dir;
        for (index, name) in resolved.missing.iter().enumerate() {
            if index == 0
                && let Some(file) = self.file_at(dir, name).map_err(namespace_error_about(key))?
            {
                let to = (dir, shadowed_name(key, name)?);
                change.rename(file, (dir, name.clone()), to, RenameHow::Replace);
            }
            let ino = self.fs.names.new_ino(dir).map_err(error_about(key))?;
            change.ops.push(self.creation_of_directory(dir, name, ino));
            change.set_xattr(ino, IMPLICIT, Bytes::from_static(b"1"));
            dir = ino;
        }
        Ok(dir)
    }

    /// Returns the inode of a file, or of anything else that is not a directory.
    fn file_at(&self, dir: Ino, name: &Name) -> Result<Option<Ino>, FsError> {
        let entry = self.fs.names.tables().entry(dir, name)?;
        Ok(entry.filter(|entry| entry.kind != Kind::Directory).map(|entry| entry.ino))
    }

    fn creation_of_directory(&self, parent: Ino, name: &Name, ino: Ino) -> Op {
        let defaults = &self.fs.mount.defaults;
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

    /// Returns the name of a new object: the shadowed one if a directory has the plain one.
    pub(super) fn free_name(
        &self,
        key: &ObjectKey,
        resolved: &ResolvedKey,
        last: &Name,
        taken: Option<&(Name, Inode)>,
    ) -> store::Result<Name> {
        if let Some((name, _)) = taken {
            return Ok(name.clone());
        }
        let is_directory = resolved.missing.is_empty()
            && self
                .fs
                .names
                .tables()
                .entry(resolved.dir, last)
                .map_err(namespace_error_about(key))?
                .is_some();
        if is_directory { shadowed_name(key, last) } else { Ok(last.clone()) }
    }

    /// Returns the attributes for headers that do not set them: those of the replaced file without its set-id bits, which were
    /// not granted to other bytes.
    fn defaults_over(&self, old: Option<&Inode>) -> Defaults {
        match old {
            Some(old) => Defaults {
                uid: old.uid,
                gid: old.gid,
                file_mode: without_set_id(old.mode),
                ..self.fs.mount.defaults
            },
            None => self.fs.mount.defaults,
        }
    }

    pub(super) fn attributes_from(
        &self,
        key: &ObjectKey,
        size_bytes: u64,
        attributes: &Attributes,
        at: Timestamp,
        defaults: &Defaults,
    ) -> Observed {
        let object = ObjectRef { last_modified: Some(at), ..ObjectRef::new(key.clone(), ETag::new("")) };
        let meta = ObjectMeta { object, size_bytes, attributes: attributes.clone(), tag_count: None };
        headers::observed(&meta, key.as_bytes().ends_with(b"/"), defaults, self.fs.mount.moment())
    }

    /// Returns the attributes of an inode after a change of headers; headers that say nothing keep the current ones.
    pub(super) fn attributes_over(
        &self,
        key: &ObjectKey,
        inode: &Inode,
        attributes: &Attributes,
    ) -> Observed {
        let (uid, gid, mode) = (inode.uid, inode.gid, inode.mode);
        let defaults = Defaults { uid, gid, file_mode: mode, dir_mode: mode };
        self.attributes_from(key, inode.size_bytes, attributes, inode.mtime, &defaults)
    }

    /// Returns the access list of an inode, if it has one.
    fn acl(&self, inode: &Inode) -> Option<Bytes> {
        self.fs.names.tables().xattr(inode.ino, ACCESS).ok()
    }

    pub(super) fn plan_marker(
        &self,
        key: &ObjectKey,
        resolved: &ResolvedKey,
        body: &Bytes,
        options: &PutOptions,
        context: &OpContext,
    ) -> store::Result<(ObjectRef, Change)> {
        let mut change = Change::default();
        let old = match resolved.missing.is_empty() {
            true => Some(self.fs.names.tables().inode(resolved.dir).map_err(namespace_error_about(key))?),
            false => None,
        };
        let dir = self.make_directories(key, resolved, &mut change)?;
        let defaults = match &old {
            Some(old) => {
                Defaults { uid: old.uid, gid: old.gid, dir_mode: old.mode, ..self.fs.mount.defaults }
            }
            None => self.fs.mount.defaults,
        };
        let seen = self.attributes_from(key, 0, &options.attributes, context.now, &defaults);
        let is_implicit = old.is_none() || self.is_implicit(dir).map_err(namespace_error_about(key))?;
        if is_implicit {
            change.ops.push(Op::RemoveXattr { ino: dir, name: IMPLICIT.into() });
        }
        self.set_body(dir, old.is_some(), body, &mut change).map_err(namespace_error_about(key))?;
        let is_other = old.is_none_or(|old| (old.mode, old.uid, old.gid) != (seen.mode, seen.uid, seen.gid));
        if is_other {
            let (mode, uid, gid) = (Some(seen.mode), Some(seen.uid), Some(seen.gid));
            let changes = AttrChanges { mode, uid, gid, ..AttrChanges::default() };
            change.ops.push(Op::SetAttr { ino: dir, changes });
        }
        let etag = etag::of_marker(dir.0, body, context.now);
        let mut description = describe_object(&options.attributes, &options.tags)?;
        description.bind(&etag, None, (seen.mode, seen.uid, seen.gid, seen.mtime));
        description.record.at = Some(context.now.0);
        let before = ObjectDescription::read(self.fs.names.tables(), dir);
        match before {
            Ok(before) => change.ops.extend(description.replacement_ops(dir, &before)?),
            Err(_) => change.ops.extend(description.ops(dir)?),
        }
        Ok((ObjectRef::new(key.clone(), etag), change))
    }

    /// Adds to the change what gives a directory's marker this body.
    fn set_body(&self, dir: Ino, is_there: bool, body: &Bytes, change: &mut Change) -> Result<(), FsError> {
        if !body.is_empty() {
            change.set_xattr(dir, MARKER, body.clone());
        } else if is_there && !self.marker_body(dir)?.is_empty() {
            change.ops.push(Op::RemoveXattr { ino: dir, name: MARKER.into() });
        }
        Ok(())
    }
}

/// Adds the ops that create the inode, its content and its name.
fn make(new: &NewObject<'_>, (parent, name): (Ino, Name), seen: &Observed, change: &mut Change) {
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

/// Returns the name that an object gets if a directory has its plain name.
fn shadowed_name(key: &ObjectKey, name: &Name) -> store::Result<Name> {
    let why = "an object and a directory share this name, which is too long for the shadowed name that the object would get";
    Name::new(&names::colliding(name.as_bytes())).map_err(|_| no_such_key(key, why))
}
