//! Rewriting of packs of which files use less than half.
//!
//! The bytes in use are copied into new packs, and the extents of each file are changed. `tenon gc` then deletes the old packs as it deletes
//! all packs that no file uses.
//!
//! Invariants:
//! - a new pack is in the bucket before a file refers to it;
//! - extents are changed only if the file has the content that was copied, and only while no write to its open file is unpublished;
//! - an old pack is not deleted here: what could not be moved, and what a killed collection has left, still has its bytes;
//! - new packs are below the id 0, which no batch has, so that the end of a batch does not take them for its own.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use meta::{BatchId, Extent, FsError, Ino, Inode, Op, Stored};
use staging::packs::{PACK_BYTES, pack_key};
use store::{ETag, GetOptions, ObjectKey, Payload, PutOptions, StoreError};

use crate::content::garbage::require_alone;
use crate::content::open_file::OpenFile;
use crate::content::pack_census::{PacksToRewrite, SparsePack, sparse_packs};
use crate::followers::op_log::commit_rewrite;
use crate::layout::batch_objects;
use crate::objects::has_assigned_etag;
use crate::ops::Admin;
use crate::{Error, Filesystem, Result};

/// The id of a batch that stands for collections in the keys of the packs that they make.
const COLLECTIONS: BatchId = BatchId(0);

impl Admin<'_> {
    /// Copies the bytes in use of packs of which files use less than half into new packs, for which [`Admin::collect_garbage`] then deletes the
    /// old ones. Only looks for such packs if `only_find`. Returns none while a batch is open.
    ///
    /// # Errors
    ///
    /// EBUSY while another machine has the volume mounted.
    pub async fn rewrite_packs(&self, only_find: bool) -> Result<PacksToRewrite> {
        let fs = self.fs;
        let _only_collection = fs.content.collecting().lock().await;
        let engine = fs.names.tables().engine();
        let mut sparse = sparse_packs(engine, fs.mount.store.as_ref(), &fs.mount.layout).await?;
        for index in (0..sparse.len()).rev() {
            if has_assigned_etags(fs, &sparse[index])? {
                sparse.swap_remove(index);
            }
        }
        let found = PacksToRewrite::of(&sparse);
        if only_find || sparse.is_empty() {
            return Ok(found);
        }
        fs.mount.check_writable()?;
        require_alone(engine.as_ref())?;
        let mut new = NewPack::default();
        for pack in sparse {
            let Some(bytes) = read_pack(fs, &pack).await? else { continue };
            for ino in pack.users {
                new.copy(fs, ino, &pack.key, &bytes)?;
                if new.bytes.len() as u64 >= PACK_BYTES {
                    std::mem::take(&mut new).store(fs).await?;
                }
            }
        }
        new.store(fs).await?;
        Ok(found)
    }
}

/// A pack that is being filled.
#[derive(Debug, Default)]
struct NewPack {
    bytes: Vec<u8>,
    moves: Vec<Move>,
}

/// The move of a file's bytes from an old pack.
#[derive(Debug)]
struct Move {
    /// The file, with the content that was copied.
    seen: Inode,
    /// The extents in the old pack.
    old: Vec<Extent>,
    /// Where the bytes of the first of these extents are in the new pack; those of the others follow.
    offset: u64,
}

impl NewPack {
    /// Copies what a file uses of an old pack. Copies nothing of a file that uses nothing of it any more.
    fn copy(&mut self, fs: &Filesystem, ino: Ino, pack: &ObjectKey, bytes: &Bytes) -> Result<()> {
        let (seen, mut old) = match fs.names.tables().content(ino) {
            Err(FsError::NotFound) => return Ok(()),
            content => content?,
        };
        old.retain(|extent| extent.object.key.as_ref() == Some(pack));
        if old.is_empty() {
            return Ok(());
        }
        let offset = self.bytes.len();
        for extent in &old {
            let range = usize::try_from(extent.object_offset).ok().zip(usize::try_from(extent.len).ok());
            let range = range.and_then(|(at, len)| Some(at..at.checked_add(len)?));
            let Some(used) = range.and_then(|range| bytes.get(range)) else {
                self.bytes.truncate(offset);
                tracing::error!(%ino, key = %pack, "a pack is shorter than what a file uses of it, and is not rewritten; run `tenon fsck`");
                return Ok(());
            };
            self.bytes.extend_from_slice(used);
        }
        self.moves.push(Move { seen, old, offset: offset as u64 });
        Ok(())
    }

    /// Stores the pack, and has the files refer to it.
    async fn store(self, fs: &Filesystem) -> Result<()> {
        if self.moves.is_empty() {
            return Ok(());
        }
        let prefix = batch_objects(&fs.mount.config.prefix, COLLECTIONS);
        let key = pack_key(&prefix, 0, fs.mount.entropy.next_u64())?;
        fs.mount.store.put(&key, Payload::from(Bytes::from(self.bytes)), PutOptions::default()).await?;
        for moved in self.moves {
            moved.commit(fs, &key).await?;
        }
        Ok(())
    }
}

impl Move {
    /// Has the file refer to the new pack. Does nothing if the file has other content by now, or unpublished writes.
    async fn commit(self, fs: &Filesystem, pack: &ObjectKey) -> Result<()> {
        let user = match fs.io.opener.open_file(self.seen.ino) {
            Err(Error::Namespace(FsError::NotFound)) => return Ok(()),
            opened => opened?,
        };
        let state = user.write_state.lock().await;
        let committed = if state.is_clean() { self.commit_clean(fs, &user, pack) } else { Ok(()) };
        drop(state);
        user.close().await?;
        committed
    }

    /// Like `commit`, for a file without unpublished writes. The caller holds its `write_state`.
    fn commit_clean(&self, fs: &Filesystem, file: &OpenFile, pack: &ObjectKey) -> Result<()> {
        let ranges = self.old.iter().map(|extent| extent.offset..extent.end()).collect();
        let mut next = self.offset;
        let content = self.old.iter().map(|extent| {
            let object_offset = next;
            next += extent.len;
            // Cached blocks are known by inode and tag, so the same bytes at another offset have another tag.
            let etag = ETag::provisional(fs.mount.entropy.next_u64());
            let object = Stored { key: Some(pack.clone()), etag, version: None, last_modified: None };
            Extent { object, object_offset, ..extent.clone() }
        });
        let Inode { ino, size_bytes, .. } = self.seen;
        let op = Op::Splice { ino, ranges, content: content.collect(), size_bytes, mtime: None };
        match commit_rewrite(&fs.names, &self.seen, &op) {
            Err(FsError::StaleBase | FsError::NotFound) => return Ok(()),
            applied => applied?,
        };
        let identity = || file.pin().0.map(|pin| pin.identity());
        let before = identity();
        file.repin(|| fs.names.pin_of(ino))?;
        if let (Some(before), Some(now)) = (before, identity()) {
            fs.names.references().change_etag(ino, &before, &now);
        }
        Ok(())
    }
}

/// Returns whether S3 clients know a file that uses the pack by an etag which is bound to the place of its bytes.
fn has_assigned_etags(fs: &Filesystem, pack: &SparsePack) -> Result<bool> {
    for ino in &pack.users {
        match fs.names.tables().inode(*ino) {
            Err(FsError::NotFound) => {}
            inode if has_assigned_etag(fs.names.tables(), &inode.clone()?)? => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// Returns the bytes of a pack; `None` if it is missing.
async fn read_pack(fs: &Filesystem, pack: &SparsePack) -> Result<Option<Bytes>, StoreError> {
    let object = match fs.mount.store.get(&pack.key, GetOptions::default()).await {
        Err(StoreError::NotFound(key)) => {
            tracing::error!(%key, "a pack that files use is missing; run `tenon fsck`");
            return Ok(None);
        }
        object => object?,
    };
    let mut bytes = Vec::with_capacity(usize::try_from(pack.size_bytes).unwrap_or_default());
    let mut body = object.body;
    while let Some(piece) = body.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes.into()))
}
