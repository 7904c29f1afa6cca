//! Commit in a volume named by inode: new objects under keys of their own take the place of ranges of a file.

use futures_util::StreamExt as _;
use meta::{Extent, FsError, Ino, Inode, Op};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use store::{Attributes, ObjectKey, ObjectRef, Payload, Precondition, PutOptions, StoreError, Timestamp};

use super::assemble::Assembly;
use super::plan::{everything, may_stay_scattered, objects_of, plan};
use super::{Dirty, Local, Memory, Stream, When};
use crate::bucket::headers;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::Pin;
use crate::content::ranges::total;
use crate::layout::stored_at;
use crate::{Error, Filesystem, Result};

/// Objects of one file under way at the same time.
pub(super) const IN_FLIGHT_MAX: usize = 4;

/// What a commit stored, as content of the file.
#[derive(Debug, Default)]
pub(super) struct Spliced {
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) content: Vec<Extent>,
    /// The ranges of a delta.
    pub(super) delta: Option<Vec<Range<u64>>>,
}

impl Spliced {
    /// The objects.
    pub(super) fn keys(&self) -> BTreeSet<ObjectKey> {
        self.content.iter().filter_map(|extent| extent.object.key.clone()).collect()
    }
}

impl Filesystem {
    /// Assembles a file that nobody will have open: what its deltas scattered becomes one object, or one for each
    /// chunk, unless it is a small part of a long file. Its bytes are safe already.
    pub(crate) async fn assemble_closed(&self, file: &OpenFile) -> Result<()> {
        let mut work = file.work.lock().await;
        let is_last = self.files.users(file.ino) == 1;
        match &*work {
            Dirty::Local(local) if is_last && !may_stay_scattered(self.layout.mapping(), local)? => {}
            _ => return Ok(()),
        }
        let inode = file.overlay(self.names.inode(file.ino)?);
        if inode.home.is_none() || self.has_path_key(&inode)? {
            return Ok(());
        }
        self.commit_by_inode(file, &mut work, &inode, When::Closed).await
    }

    /// Stores what was written, and names it. The caller holds the file's work.
    pub(super) async fn commit_by_inode(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        when: When,
    ) -> Result<()> {
        self.check_quota(inode.ino, inode.size_bytes)?;
        let attributes = headers::with_posix(Attributes::default(), inode);
        let size_bytes = work.size_bytes().unwrap_or(inode.size_bytes);
        let spliced = match std::mem::replace(work, Dirty::Clean) {
            Dirty::Clean => return Ok(()),
            Dirty::Memory(memory) => {
                let (outcome, memory) = self.store_memory(inode.ino, memory, &attributes).await;
                *work = Dirty::Memory(memory);
                outcome?
            }
            Dirty::Stream(mut stream) => {
                let outcome = self.finish_spread(&mut stream, &attributes).await;
                *work = Dirty::Stream(stream);
                outcome?
            }
            Dirty::Local(local) => {
                let outcome = self.store_edits(inode.ino, &local, &attributes, when).await;
                *work = Dirty::Local(local);
                outcome?
            }
        };
        // What a stream has stored its next attempt names; others store once more.
        let keys = if matches!(work, Dirty::Stream(_)) { BTreeSet::new() } else { spliced.keys() };
        let named = self.name_spliced(file, work, spliced, size_bytes).await;
        self.discard_refused(&named, keys).await;
        self.or_keep(named, work)
    }

    /// What a quota does not let be named is garbage.
    pub(super) async fn discard_refused<T>(&self, named: &Result<T>, keys: BTreeSet<ObjectKey>) {
        if let Err(Error::Namespace(FsError::OverQuota | FsError::VolumeFull)) = named {
            for key in keys {
                self.discard(key).await;
            }
        }
    }

    /// The writes are what was stored from now on.
    async fn name_spliced(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        mut spliced: Spliced,
        size_bytes: u64,
    ) -> Result<()> {
        if spliced.ranges.is_empty() && work.is_published() {
            return Ok(());
        }
        let delta = spliced.delta.take();
        let pin = self.name_content(file, spliced, size_bytes, file.pending().touched).await?;
        if let Dirty::Local(local) = work {
            local.published(Arc::new(pin), delta);
        } else {
            *work = Dirty::Clean;
        }
        let is_edited = !work.is_clean();
        let data_bytes = work.data_bytes().unwrap_or(size_bytes);
        file.set_pending(Pending { is_edited, size_bytes, data_bytes, ..Pending::default() });
        Ok(())
    }

    /// One op names what was stored; what nothing refers to any more goes.
    pub(super) async fn name_content(
        &self,
        file: &OpenFile,
        spliced: Spliced,
        size_bytes: u64,
        mtime: Option<Timestamp>,
    ) -> Result<Pin> {
        let ino = file.ino;
        let Spliced { ranges, content, .. } = spliced;
        let splice = Op::Splice { ino, ranges, content, size_bytes, mtime };
        let released = self.names.commit(&self.ctx(), &splice)?.released;
        file.has_named();
        file.set_new(false);
        let pin = self.pin_of(ino)?.ok_or(Error::NOT_FOUND)?;
        self.references.set_cached(ino, Some(&pin.identity()));
        file.repin(|| Ok::<_, Error>(Some(pin.clone())))?;
        self.invalidations.notify_others(ino);
        for key in released {
            self.discard(key).await;
        }
        Ok(pin)
    }

    /// Whether what is to be stored of an open file is a delta that leaves a part of it in the object with this key.
    pub(super) fn leaves(&self, local: &Local, key: &ObjectKey) -> Result<bool, StoreError> {
        plan(self.layout.mapping(), local, When::Open)?.leaves(local, key)
    }

    async fn store_edits(
        &self,
        ino: Ino,
        local: &Local,
        attributes: &Attributes,
        when: When,
    ) -> Result<Spliced> {
        let plan = plan(self.layout.mapping(), local, when)?;
        let objects =
            plan.objects.iter().map(|runs| self.store_runs(ino, Assembly { local, runs }, attributes));
        // Collected, as a stream over the closure would not be `Send`.
        let objects: Vec<_> = objects.collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        let content = self.all_or_none(stored).await?.concat();
        let delta = plan.is_delta.then(|| plan.objects.concat());
        Ok(Spliced { ranges: plan.replaces, content, delta })
    }

    async fn store_runs(
        &self,
        ino: Ino,
        assembly: Assembly<'_>,
        attributes: &Attributes,
    ) -> Result<Vec<Extent>, StoreError> {
        let key = self.content_key(ino)?;
        let stored = self.assemble(assembly, &key, &attributes.clone().into(), Precondition::None).await;
        let object = self.or_stored_before(stored, &key, attributes, total(assembly.runs)).await?;
        Ok(extents(&object, assembly.runs))
    }

    async fn store_memory(
        &self,
        ino: Ino,
        memory: Memory,
        attributes: &Attributes,
    ) -> (Result<Spliced>, Memory) {
        let frozen = memory.freeze();
        let objects = split(&frozen.payload, self.layout.mapping().object_bytes()).into_iter();
        let objects: Vec<_> =
            objects.map(|(range, payload)| self.store_range(ino, range, payload, attributes)).collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        match self.all_or_none(stored).await {
            Ok(content) => {
                let spliced = Spliced { ranges: everything(), content: content.concat(), delta: None };
                (Ok(spliced), frozen.stored())
            }
            Err(error) => (Err(error.into()), frozen.thaw(&self.slabs)),
        }
    }

    /// Stores bytes for a file that is not there yet, as its mapping says: its content from offset 0. Nothing stays if
    /// some cannot be stored.
    pub(crate) async fn store_content(&self, ino: Ino, payload: &Payload) -> Result<Vec<Extent>, StoreError> {
        let attributes = Attributes::default();
        let objects = split(payload, self.layout.mapping().object_bytes()).into_iter();
        let objects: Vec<_> =
            objects.map(|(range, payload)| self.store_range(ino, range, payload, &attributes)).collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        Ok(self.all_or_none(stored).await?.concat())
    }

    /// Copies the bytes of a pin for a file that is not there yet, inside the store where that is worth it: its content
    /// from offset 0.
    pub(crate) async fn copy_content(&self, ino: Ino, pin: Pin) -> Result<Vec<Extent>> {
        let range = 0..pin.size_bytes;
        let local = Local::begin(&self.config.cache_dir, Some(Arc::new(pin)))?;
        let attributes = Attributes::default();
        let objects = objects_of(self.layout.mapping(), &local, range)?;
        let objects: Vec<_> = objects
            .iter()
            .map(|runs| self.store_runs(ino, Assembly { local: &local, runs }, &attributes))
            .collect();
        let stored = futures_util::stream::iter(objects).buffered(IN_FLIGHT_MAX).collect().await;
        Ok(self.all_or_none(stored).await?.concat())
    }

    async fn store_range(
        &self,
        ino: Ino,
        range: Range<u64>,
        payload: Payload,
        attributes: &Attributes,
    ) -> Result<Vec<Extent>, StoreError> {
        let object = self.store_payload(ino, payload, attributes).await?;
        Ok(extents(&object, &[range]))
    }

    pub(super) async fn store_payload(
        &self,
        ino: Ino,
        payload: Payload,
        attributes: &Attributes,
    ) -> Result<ObjectRef, StoreError> {
        let key = self.content_key(ino)?;
        let size_bytes = payload.len();
        let options = PutOptions {
            precondition: Precondition::None,
            attributes: attributes.clone(),
            ..PutOptions::default()
        };
        let stored = self.store.put(&key, payload, options).await;
        self.or_stored_before(stored, &key, attributes, size_bytes).await
    }

    async fn finish_spread(&self, stream: &mut Stream, attributes: &Attributes) -> Result<Spliced> {
        let size_bytes = stream.size_bytes();
        let objects = match stream.key().cloned() {
            None => stream.finish_chunks().await?,
            Some(key) => {
                let stored = stream.finish(Precondition::None).await;
                vec![self.or_stored_before(stored, &key, attributes, size_bytes).await?]
            }
        };
        let chunk_bytes = stream.part_bytes();
        let each = if objects.len() == 1 { size_bytes } else { chunk_bytes };
        let at = |index: usize| index as u64 * each..((index as u64 + 1) * each).min(size_bytes);
        let content = objects.iter().enumerate().map(|(index, object)| extents(object, &[at(index)]));
        Ok(Spliced { ranges: everything(), content: content.flatten().collect(), delta: None })
    }

    /// A key of content that was never used.
    pub(crate) fn content_key(&self, ino: Ino) -> Result<ObjectKey, StoreError> {
        let key = self.layout.content_key(ino, self.entropy.next_u64());
        key.map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// An upload whose first answer was lost finds its own object when it is repeated.
    async fn or_stored_before(
        &self,
        stored: Result<ObjectRef, StoreError>,
        key: &ObjectKey,
        attributes: &Attributes,
        size_bytes: u64,
    ) -> Result<ObjectRef, StoreError> {
        match stored {
            Err(StoreError::PreconditionFailed(text) | StoreError::NotFound(text)) => {
                let found = self.already_stored(key, attributes, size_bytes).await?;
                found.ok_or_else(|| StoreError::Unavailable(format!("'{text}' was not stored")))
            }
            stored => stored,
        }
    }

    /// Everything that was stored, or the first error; then what was stored goes again.
    pub(super) async fn all_or_none(
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
            self.discard(key).await;
        }
        Err(error)
    }
}

/// The content that an object gives the file which has these ranges in it, one after the other.
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

/// Cuts a payload into objects of so many bytes, with the range of the file that each holds.
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
