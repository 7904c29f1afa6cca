//! Commit by splicing: new objects with unique keys replace ranges of a file. A volume named by inode stores all
//! files like this, a volume named by path only deltas and files whose path is no key.

use futures_util::StreamExt as _;
use meta::{Applied, Extent, FsError, Ino, Inode, Op, Origin};
use staging::packs::{PACKED_BYTES_MAX, Packed};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use store::{Attributes, ObjectKey, ObjectRef, Payload, Precondition, StoreError, Timestamp};

use super::assemble::Assembly;
use super::plan::{may_stay_scattered, objects_of, plan, whole_range};
use super::{Local, Memory, Stream, When, WriteState};
use crate::bucket::headers;
use crate::content::invariants::assert_can_be_named;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::Pin;
use crate::content::ranges::total;
use crate::content::write::uploader::Uploader;
use crate::followers::op_log::commit_rewrite;
use crate::layout::stored_at;
use crate::{Error, Result};

/// Maximum number of objects of one file that are stored at a time.
pub(super) const IN_FLIGHT_MAX: usize = 4;

/// Result of a commit's uploads: new content for ranges of the file.
#[derive(Debug, Default)]
pub(super) struct Spliced {
    /// The ranges that the new content replaces; those that it does not cover become holes.
    pub(super) ranges: Vec<Range<u64>>,
    /// The extents of the new content.
    pub(super) content: Vec<Extent>,
    /// The ranges of the file that are in a delta; `None` if nothing was stored as a delta.
    pub(super) delta: Option<Vec<Range<u64>>>,
    /// The inode as it was seen, if its content is only stored anew; `None` if a program has changed the content.
    pub(super) rewritten: Option<Inode>,
}

impl Spliced {
    /// Returns the keys of the new objects.
    pub(super) fn keys(&self) -> BTreeSet<ObjectKey> {
        self.content.iter().filter_map(|extent| extent.object.key.clone()).collect()
    }
}

impl Uploader {
    /// Assembles a file whose path is no key at its last close: content scattered over deltas becomes one object, or
    /// one per chunk, unless the deltas are a small part of a long file. The bytes are safe in any case. If another
    /// client has changed the file since, it is left to that client.
    pub(crate) async fn assemble_closed(&self, file: &OpenFile) -> Result<()> {
        let mut state = file.write_state.lock().await;
        let is_last = self.content.files().users(file.ino) == 1;
        match &*state {
            WriteState::Local(local)
                if is_last && !may_stay_scattered(self.mount.layout.mapping(), local)? => {}
            _ => return Ok(()),
        }
        let inode = file.overlay(self.names.tables().inode(file.ino)?);
        if inode.home.is_none() || self.names.has_path_key(&inode)? {
            return Ok(());
        }
        if self.names.pin(&inode)?.as_ref() != state.base().map(|pin| &**pin) {
            return Ok(());
        }
        match self.commit_by_inode(file, &mut state, &inode, When::Closed).await {
            Err(Error::Namespace(FsError::StaleBase)) => Ok(()),
            assembled => assembled,
        }
    }

    /// Stores the unpublished writes in objects under keys of their own, and names them. The caller holds the file's
    /// `write_state`.
    pub(crate) async fn commit_by_inode(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        when: When,
    ) -> Result<()> {
        self.names.check_quota(inode.ino, inode.size_bytes)?;
        let rewritten = state.is_published().then(|| inode.clone());
        let attributes = match self.is_for_pack(state) {
            true => Attributes::default(),
            false => headers::with_posix(Attributes::default(), inode),
        };
        let size_bytes = state.size_bytes().unwrap_or(inode.size_bytes);
        // The content stays in place while it is stored: the caller may be dropped, as when an S3 client disconnects.
        let spliced = match state {
            WriteState::Clean => return Ok(()),
            WriteState::Memory(memory) => self.store_memory(inode.ino, memory, &attributes).await?,
            WriteState::Stream(stream) => self.finish_stream_objects(stream, &attributes).await?,
            WriteState::Local(local) => self.store_edits(inode.ino, local, &attributes, when).await?,
        };
        // A stream keeps what it has stored for the next attempt; other states upload again.
        let keys = if matches!(state, WriteState::Stream(_)) { BTreeSet::new() } else { spliced.keys() };
        let spliced = Spliced { rewritten, ..spliced };
        let named = self.name_spliced(file, state, spliced, size_bytes).await;
        self.discard_refused(&named, keys).await;
        self.content.restore_on_failure(named, state)
    }

    /// Returns whether all unpublished writes go to a pack, whose object has no attributes.
    fn is_for_pack(&self, state: &WriteState) -> bool {
        self.mount.config.batch.is_some()
            && matches!(state, WriteState::Memory(memory) if memory.size_bytes() <= PACKED_BYTES_MAX)
    }

    /// Discards objects that could not be named, because of a quota or because the file has other content by now.
    pub(crate) async fn discard_refused<T>(&self, named: &Result<T>, keys: BTreeSet<ObjectKey>) {
        if let Err(Error::Namespace(FsError::OverQuota | FsError::VolumeFull | FsError::StaleBase)) = named {
            for key in keys {
                self.content.discard(key).await;
            }
        }
    }

    /// Names the new content and makes it the base of further writes.
    async fn name_spliced(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        mut spliced: Spliced,
        size_bytes: u64,
    ) -> Result<()> {
        if spliced.ranges.is_empty() && state.is_published() {
            return Ok(());
        }
        let delta = spliced.delta.take();
        let pin = self.name_content(file, spliced, size_bytes, file.pending().touched).await?;
        if let WriteState::Local(local) = state {
            local.published(Arc::new(pin), delta);
        } else {
            *state = WriteState::Clean;
        }
        let is_edited = !state.is_clean();
        let data_bytes = state.data_bytes().unwrap_or(size_bytes);
        file.set_pending(Pending { is_edited, size_bytes, data_bytes, ..Pending::default() });
        Ok(())
    }

    /// Names new content in one op and discards the objects that the file no longer uses.
    pub(super) async fn name_content(
        &self,
        file: &OpenFile,
        spliced: Spliced,
        size_bytes: u64,
        mtime: Option<Timestamp>,
    ) -> Result<Pin> {
        let ino = file.ino;
        let Spliced { ranges, content, rewritten, .. } = spliced;
        assert_can_be_named(&ranges, &content, size_bytes);
        let splice = Op::Splice { ino, ranges, content, size_bytes, mtime };
        let named = match &rewritten {
            Some(seen) => commit_rewrite(&self.names, seen, &splice),
            None => self.names.commit(Origin::FrontEnd, &splice),
        };
        let Applied { released, inode, .. } = named?;
        file.mark_names_unsynced();
        file.set_new(false);
        let pin = match self.names.pin(&inode.ok_or(Error::NOT_FOUND)?) {
            // Another commit has replaced the content since.
            Err(Error::Namespace(FsError::StaleBase)) => self.names.pin_of(ino),
            pin => pin,
        };
        let pin = pin?.ok_or(Error::NOT_FOUND)?;
        self.names.references().set_cached(ino, Some(&pin.identity()));
        file.repin(|| Ok::<_, Error>(Some(pin.clone())))?;
        for key in released {
            self.content.discard(key).await;
        }
        Ok(pin)
    }

    /// Returns whether a commit of an open file is a delta that leaves a part of the file in the object with this key.
    pub(crate) fn leaves_part_in(&self, local: &Local, key: &ObjectKey) -> Result<bool, StoreError> {
        plan(self.mount.layout.mapping(), local, When::Open)?.leaves_part_in(local, key)
    }

    /// Stores the objects that the plan of a commit says. On failure no object stays.
    async fn store_edits(
        &self,
        ino: Ino,
        local: &Local,
        attributes: &Attributes,
        when: When,
    ) -> Result<Spliced> {
        let plan = plan(self.mount.layout.mapping(), local, when)?;
        let share = &self.file_share();
        let objects =
            plan.objects.iter().map(|runs| self.store_runs(ino, Assembly { local, runs, share }, attributes));
        // Collected first, because a stream over the closure would not be `Send`.
        let objects: Vec<_> = objects.collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        let content = self.all_or_discard(stored).await?.concat();
        let delta = plan.is_delta.then(|| plan.objects.concat());
        Ok(Spliced { ranges: plan.replaces, content, delta, rewritten: None })
    }

    /// Stores the ranges of an assembly as one object under a new key or, if the file is short and the mount is a batch, in a pack.
    async fn store_runs(
        &self,
        ino: Ino,
        assembly: Assembly<'_>,
        attributes: &Attributes,
    ) -> Result<Vec<Extent>, StoreError> {
        let size_bytes = total(assembly.runs);
        // Pieces of a longer file are not packed: they could be parts of a multipart copy, for which a pack must be in the bucket.
        if let Some(batch) = &self.mount.config.batch
            && size_bytes > 0
            && assembly.local.size_bytes() <= PACKED_BYTES_MAX
        {
            let payload = self.read_merged(assembly, &(0..size_bytes)).await?;
            return Ok(packed_extents(&batch.packs.append(&payload)?, assembly.runs));
        }
        let key = self.content.new_key(ino)?;
        let stored = self.assemble(assembly, &key, &attributes.clone().into(), Precondition::None).await;
        let object = self.mount.accept_earlier_upload(stored, &key, attributes, size_bytes).await?;
        Ok(extents(&object, assembly.runs))
    }

    /// Stores content that is in memory, divided as the mapping says. Returns it as memory again, which is to be named
    /// on success.
    async fn store_memory(&self, ino: Ino, memory: &mut Memory, attributes: &Attributes) -> Result<Spliced> {
        let objects = split(&memory.freeze(), self.mount.layout.mapping().object_bytes()).into_iter();
        let objects: Vec<_> =
            objects.map(|(range, payload)| self.store_range(ino, range, payload, attributes)).collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        let content = self.all_or_discard(stored).await.inspect_err(|_| memory.thaw(self.content.slabs()))?;
        Ok(Spliced { ranges: whole_range(), content: content.concat(), delta: None, rewritten: None })
    }

    /// Stores bytes for an inode that does not exist yet, divided as the mapping says; returns its content from offset 0. On
    /// failure no object stays.
    pub(crate) async fn store_content(&self, ino: Ino, payload: &Payload) -> Result<Vec<Extent>, StoreError> {
        let attributes = Attributes::default();
        let objects = split(payload, self.mount.layout.mapping().object_bytes()).into_iter();
        let objects: Vec<_> =
            objects.map(|(range, payload)| self.store_range(ino, range, payload, &attributes)).collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        Ok(self.all_or_discard(stored).await?.concat())
    }

    /// Copies the bytes of a pin for an inode that does not exist yet, inside the store where that is worthwhile; returns its
    /// content from offset 0.
    pub(crate) async fn copy_content(&self, ino: Ino, pin: Pin) -> Result<Vec<Extent>> {
        let range = 0..pin.size_bytes;
        let local = Local::begin(&self.mount.config.cache_dir, Some(Arc::new(pin)))?;
        let attributes = Attributes::default();
        let objects = objects_of(self.mount.layout.mapping(), &local, range)?;
        let share = &self.file_share();
        let objects: Vec<_> = objects
            .iter()
            .map(|runs| self.store_runs(ino, Assembly { local: &local, runs, share }, &attributes))
            .collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        Ok(self.all_or_discard(stored).await?.concat())
    }

    /// Stores the bytes of a range of a file as one object or, if they are short and the mount is a batch, in a pack of several files.
    async fn store_range(
        &self,
        ino: Ino,
        range: Range<u64>,
        payload: Payload,
        attributes: &Attributes,
    ) -> Result<Vec<Extent>, StoreError> {
        if let Some(batch) = &self.mount.config.batch
            && !payload.is_empty()
            && payload.len() <= PACKED_BYTES_MAX
        {
            let packed = batch.packs.append(&payload)?;
            return Ok(packed_extents(&packed, &[range]));
        }
        let object = self.mount.store_payload(&self.content.new_key(ino)?, payload, attributes).await?;
        Ok(extents(&object, &[range]))
    }

    /// Completes a stream, and returns its objects as content of the whole file.
    async fn finish_stream_objects(&self, stream: &mut Stream, attributes: &Attributes) -> Result<Spliced> {
        let size_bytes = stream.size_bytes();
        let objects = match stream.key().cloned() {
            None => stream.finish_chunks().await?,
            Some(key) => {
                let stored = stream.finish(Precondition::None).await;
                vec![self.mount.accept_earlier_upload(stored, &key, attributes, size_bytes).await?]
            }
        };
        let chunk_bytes = stream.part_bytes();
        let object_bytes = if objects.len() == 1 { size_bytes } else { chunk_bytes };
        let at =
            |index: usize| index as u64 * object_bytes..((index as u64 + 1) * object_bytes).min(size_bytes);
        let content = objects.iter().enumerate().map(|(index, object)| extents(object, &[at(index)]));
        Ok(Spliced {
            ranges: whole_range(),
            content: content.flatten().collect(),
            delta: None,
            rewritten: None,
        })
    }

    /// Returns all results, or the first error after discarding the objects that were stored.
    pub(crate) async fn all_or_discard(
        &self,
        stored: Vec<Result<Vec<Extent>, StoreError>>,
    ) -> Result<Vec<Vec<Extent>>, StoreError> {
        let (mut done, mut failed) = (Vec::new(), None);
        for outcome in stored {
            match outcome {
                Ok(extents) => done.push(extents),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let Some(error) = failed else { return Ok(done) };
        for key in done.into_iter().filter_map(|extents| extents.into_iter().next()?.object.key) {
            self.content.discard(key).await;
        }
        Err(error)
    }
}

/// Returns the extents of an object that concatenates these ranges of a file.
pub(super) fn extents(object: &ObjectRef, runs: &[Range<u64>]) -> Vec<Extent> {
    let mut object_offset = 0;
    let extent = |run: &Range<u64>| {
        let len = run.end - run.start;
        let extent = Extent { offset: run.start, len, object: stored_at(object), object_offset };
        object_offset += len;
        extent
    };
    runs.iter().map(extent).filter(|extent| extent.len > 0).collect()
}

/// Returns the extent of a content in a pack.
fn packed_extents(packed: &Packed, runs: &[Range<u64>]) -> Vec<Extent> {
    let mut found = extents(&packed.object, runs);
    found.iter_mut().for_each(|extent| extent.object_offset += packed.offset);
    found
}

/// Splits a payload into objects of `object_bytes`, with the range of the file that each holds.
fn split(payload: &Payload, object_bytes: u64) -> Vec<(Range<u64>, Payload)> {
    let mut objects: Vec<(Range<u64>, Payload)> = Vec::new();
    let mut at = 0;
    for piece in payload.pieces() {
        let mut rest = piece.clone();
        while !rest.is_empty() {
            let room = object_bytes - at % object_bytes;
            let taken = rest.split_to(room.min(rest.len() as u64) as usize);
            if at % object_bytes == 0 {
                objects.push((at..at, Payload::default()));
            }
            at += taken.len() as u64;
            if let Some((range, payload)) = objects.last_mut() {
                range.end = at;
                payload.push(taken);
            }
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn payloads_are_cut_at_multiples() {
        let payload: Payload =
            [Bytes::from_static(b"abcd"), Bytes::from_static(b"efg")].into_iter().collect();
        let cut = |bytes| {
            let objects = split(&payload, bytes).into_iter();
            objects.map(|(range, payload)| (range, payload.to_bytes())).collect::<Vec<_>>()
        };
        assert_eq!(cut(u64::MAX), [(0..7, Bytes::from_static(b"abcdefg"))]);
        assert_eq!(
            cut(3),
            [
                (0..3, Bytes::from_static(b"abc")),
                (3..6, Bytes::from_static(b"def")),
                (6..7, Bytes::from_static(b"g"))
            ]
        );
        assert!(split(&Payload::default(), 3).is_empty());
    }
}
