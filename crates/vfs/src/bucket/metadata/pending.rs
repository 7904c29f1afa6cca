//! Pending changes of metadata and tags, to be stored with the object.
//!
//! The values are extended attributes of the inode in the metadata engine. An attribute of Tenon's own lists which of them are
//! pending, and which ones are to be removed from the object. A change that the object cannot hold, or that the store refuses,
//! stays in the engine and is no longer pending: an extended attribute never prevents bytes from being stored.
//!
//! Invariant: on reads, a pending change takes precedence over the object, and the object over attributes that only the engine
//! has.

use bytes::Bytes;
use meta::{FsError, Ino, Inode, Kind, Op, Origin, XattrHow};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::{CONTENT_TYPE, Changes, Described, TAG, is_of_object, tag_of};
use crate::Result;
use crate::bucket::headers;
use crate::bucket::metadata::object_metadata::Metadata;

/// The attribute that lists pending names. Each is a sign (`+` set, `-` removed), the name and a NUL.
const PENDING: &[u8] = b"tenon.waiting";

/// Names of an inode's extended attributes whose change is not stored with its object yet, each with whether it was set (true) or
/// removed.
type PendingXattrs = BTreeMap<Vec<u8>, bool>;

/// Serializes changes of the pending names. Never held across an await.
#[derive(Debug, Default)]
pub(crate) struct PendingLock(Mutex<()>);

impl Metadata {
    /// Returns whether an extended attribute of an inode belongs to its object.
    pub(crate) fn is_of_object(&self, inode: &Inode, name: &[u8]) -> bool {
        let has_object = matches!(inode.kind, Kind::File | Kind::Directory) && inode.ino != Ino::ROOT;
        self.mount.rules.exports_attributes && has_object && is_of_object(name)
    }

    /// Sets an extended attribute, or removes it with `None`, as a change to be stored with the object later.
    pub(crate) fn set_pending(&self, ino: Ino, name: &[u8], value: Option<Bytes>) -> Result<()> {
        let _pending_guard = self.pending_lock.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.pending_xattrs(ino)?;
        names.insert(name.to_vec(), value.is_some());
        let mut ops = Vec::new();
        match value {
            Some(value) => ops.push(Op::SetXattr { ino, name: name.into(), value, how: XattrHow::Set }),
            None if self.has_xattr(ino, name)? => ops.push(Op::RemoveXattr { ino, name: name.into() }),
            None => {}
        }
        ops.push(Op::SetXattr { ino, name: PENDING.into(), value: encode(&names), how: XattrHow::Set });
        self.names.commit_together(Origin::FrontEnd, &self.names.with_export(ino, ops)?)?;
        Ok(())
    }

    /// Returns the changes of an inode's metadata and tags that are not stored with its object yet.
    pub(crate) fn pending_changes(&self, ino: Ino) -> Result<Changes> {
        let mut changes = Changes::new();
        for (name, is_set) in self.pending_xattrs(ino)? {
            let value = match is_set {
                true => match self.names.tables().xattr(ino, &name) {
                    // The change was stored, or the attribute removed, meanwhile.
                    Err(FsError::NoData) => continue,
                    value => Some(value?),
                },
                false => None,
            };
            changes.insert(name, value);
        }
        Ok(changes)
    }

    /// Returns the metadata to store with an inode's bytes: `had`, which the object has now, with the content type of a new
    /// name, the POSIX attributes and the pending changes.
    pub(crate) fn updated_description(&self, inode: &Inode, had: Described) -> Result<Described> {
        let Described { mut attributes, tags } = had;
        self.renamed.retype(inode, &mut attributes);
        let described = Described { attributes: headers::with_posix(attributes, inode), tags };
        Ok(described.with(&self.pending_changes(inode.ino)?))
    }

    /// Clears the pending changes after `stored` was stored with the object, including those that the object could not
    /// hold. Returns true and clears nothing if a change is pending that `stored` does not contain.
    pub(crate) fn clear_stored_pending(&self, ino: Ino, stored: &Described) -> Result<bool> {
        let _pending_guard = self.pending_lock.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.pending_xattrs(ino)?;
        if names.is_empty() {
            return Ok(false);
        }
        let changes = self.pending_changes(ino)?;
        if stored.clone().with(&changes) != *stored {
            return Ok(true);
        }
        let holds = stored.xattrs();
        let is_held = |name: &Vec<u8>| (holds.contains_key(name) || name == CONTENT_TYPE) && names[name];
        let held = names.keys().filter(|name| is_held(name)).map(|name| name.as_slice().into());
        let mut ops: Vec<Op> = held.map(|name| Op::RemoveXattr { ino, name }).collect();
        ops.push(Op::RemoveXattr { ino, name: PENDING.into() });
        self.names.commit_together(Origin::Other, &ops)?;
        Ok(false)
    }

    /// Clears pending changes that the store refuses. They stay on this machine. Clears only tags that are not ASCII if there
    /// are any, as some servers refuse these; otherwise all changes. Returns whether any change was pending.
    pub(crate) fn drop_refused_pending(&self, ino: Ino, why: &str) -> Result<bool> {
        let _pending_guard = self.pending_lock.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.pending_xattrs(ino)?;
        if names.is_empty() {
            return Ok(false);
        }
        let changes = self.pending_changes(ino)?;
        let is_plain = |name: &Vec<u8>| {
            let value = changes.get(name).and_then(Option::as_ref);
            !name.starts_with(TAG) || name.is_ascii() && value.is_none_or(|value| value.is_ascii())
        };
        let before = names.len();
        names.retain(|name, _| is_plain(name));
        let kept_here =
            if names.len() == before || names.is_empty() { "all" } else { "tags that are not ASCII" };
        tracing::warn!(%ino, kept_here, why, "the store refuses changes of extended attributes; these are kept on this machine only");
        let op = match names.len() == before || names.is_empty() {
            true => Op::RemoveXattr { ino, name: PENDING.into() },
            false => Op::SetXattr { ino, name: PENDING.into(), value: encode(&names), how: XattrHow::Set },
        };
        self.names.commit(Origin::Other, &op)?;
        Ok(true)
    }

    /// Discards pending changes, because another client stored an object with its own metadata.
    pub(crate) fn forget_pending(&self, ino: Ino) -> Result<()> {
        self.cache.forget(ino);
        self.renamed.forget(ino);
        let _pending_guard = self.pending_lock.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.pending_xattrs(ino)?;
        if names.is_empty() {
            return Ok(());
        }
        let mut ops = Vec::new();
        for (name, _) in names.iter().filter(|(_, is_set)| **is_set) {
            if self.has_xattr(ino, name)? {
                ops.push(Op::RemoveXattr { ino, name: name.as_slice().into() });
            }
        }
        ops.push(Op::RemoveXattr { ino, name: PENDING.into() });
        self.names.commit_together(Origin::Other, &ops)?;
        Ok(())
    }

    /// Returns whether changes of tags are pending.
    pub(crate) fn has_pending_tags(&self, ino: Ino) -> Result<bool> {
        Ok(self.pending_xattrs(ino)?.keys().any(|name| tag_of(name, b"").is_some()))
    }

    /// Returns the extended attributes whose changes wait to be exported.
    fn pending_xattrs(&self, ino: Ino) -> Result<PendingXattrs> {
        match self.names.tables().xattr(ino, PENDING) {
            Err(FsError::NoData | FsError::NotFound) => Ok(PendingXattrs::new()),
            value => Ok(decode(&value?)),
        }
    }

    /// Returns whether the metadata engine has an extended attribute of an inode.
    fn has_xattr(&self, ino: Ino, name: &[u8]) -> Result<bool> {
        match self.names.tables().xattr(ino, name) {
            Err(FsError::NoData) => Ok(false),
            value => Ok(value.map(|_| true)?),
        }
    }
}

fn encode(names: &PendingXattrs) -> Bytes {
    let one =
        |(name, is_set): (&Vec<u8>, &bool)| [if *is_set { b"+" } else { b"-" }, &name[..], b"\0"].concat();
    names.iter().flat_map(one).collect::<Vec<u8>>().into()
}

fn decode(value: &[u8]) -> PendingXattrs {
    let names = value.split(|byte| *byte == 0).filter_map(|one| one.split_first());
    names.map(|(sign, name)| (name.to_vec(), *sign == b'+')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_xattrs_are_read_back() {
        let names = PendingXattrs::from([(b"user.a".to_vec(), true), (b"user.\xff".to_vec(), false)]);
        assert_eq!(decode(&encode(&names)), names);
        assert_eq!(encode(&names), b"+user.a\0-user.\xff\0"[..]);
        assert_eq!(decode(b""), PendingXattrs::new());
    }
}
