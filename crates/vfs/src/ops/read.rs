//! Reading files.

use bytes::{Bytes, BytesMut};
use meta::{Ino, Moment};
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use store::StoreError;

use crate::bucket::headers;
use crate::content::open_file::{FileHandle, OpenFile};
use crate::content::pin::{Cut, Piece, Pin};
use crate::content::ranges::zeros;
use crate::content::read::fetch::{Fetch, gather};
use crate::content::read::readahead::WHOLE_BYTES_MAX;
use crate::content::slab::SLAB_BYTES;
use crate::content::write::{Dirty, Local, Source};
use crate::names::handles::Handle;
use crate::{Error, Filesystem, Result};

/// Looks at an object that is not what it was: once to learn of a rename or a replacement, once for a race.
const LOOKS_MAX: u32 = 3;

/// The smallest page of a kernel's cache: the last page of a file is asked for as a whole.
const PAGE_BYTES: u64 = 4096;

impl Filesystem {
    /// Reads `len` bytes at `offset`; fewer only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: usize) -> Result<Bytes> {
        let handle = self.handles.file(handle)?;
        if handle.notes_read(self.config.atime, self.now()) {
            self.record_access(handle.file.ino);
        }
        let range = offset..offset.saturating_add(len as u64);
        if handle.file.pending().is_edited {
            // Once these bytes are stored another client may replace them.
            let (reading, _) = handle.begin_read().await?;
            if let Some(bytes) = self.read_edited(&handle, range.clone()).await? {
                reading.succeed();
                return Ok(bytes);
            }
        }
        self.read_published(&handle, range).await
    }

    async fn read_published(&self, handle: &FileHandle, range: Range<u64>) -> Result<Bytes> {
        let mut looks = 0;
        loop {
            let (reading, pin) = handle.begin_read().await?;
            let Some(pin) = pin else { return self.read_nothing(&handle.file) };
            match self.read_pin(handle, &pin, range.clone()).await {
                Ok(_) if self.ends_elsewhere(handle, &pin, &range) => {
                    return Err(Error::Stale("it was overwritten in the bucket while it was read".into()));
                }
                Ok(bytes) => {
                    if reading.succeed() && handle.version.is_cached {
                        self.references.set_cached(handle.file.ino, Some(&pin.identity()));
                    }
                    return Ok(bytes);
                }
                Err(error) if is_changed(&error) && looks < LOOKS_MAX => {
                    looks += 1;
                    drop(reading);
                    self.repin(&handle.file, &pin).await?;
                }
                Err(error) if is_changed(&error) => return Err(Error::Stale(error.to_string())),
                Err(error) => return Err(owned(error)),
            }
        }
    }

    /// Whether a page cache above takes the file for longer than the version that the handle reads: an answer that is shorter than
    /// asked for would be filled up with zeros. A page cache asks for the last page of a file as a whole, and for none behind it.
    fn ends_elsewhere(&self, handle: &FileHandle, pin: &Pin, range: &Range<u64>) -> bool {
        let is_beyond = range.end > pin.size_bytes.next_multiple_of(PAGE_BYTES);
        is_beyond
            && self.config.page_cache_above
            && handle.version.is_cached
            && !handle.file.pending().is_edited
    }

    /// Reads a file that has no object: it is empty, or its object was the name that is gone.
    fn read_nothing(&self, file: &OpenFile) -> Result<Bytes> {
        match self.names.inode(file.ino)?.home {
            Some(_) => Ok(Bytes::new()),
            None => Err(Error::Stale("it was removed from the bucket".into())),
        }
    }

    /// Reads immutable bytes, through the cache, ahead where the handle reads in order.
    async fn read_pin(
        &self,
        handle: &FileHandle,
        pin: &Arc<Pin>,
        range: Range<u64>,
    ) -> Result<Bytes, Arc<StoreError>> {
        let file = &handle.file;
        let range = range.start..range.end.min(pin.size_bytes);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let window = self.blocks.window_bytes(self.files.len());
        let (plan, passed) = {
            let mut ahead = handle.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            (ahead.plan(range.clone(), pin.size_bytes, window), ahead.passed())
        };
        self.was_read(file, passed);
        for ahead in plan {
            for cut in pin.cut(ahead)? {
                if let Cut::Stored(within, piece) = cut {
                    self.fetch(file.ino, &piece, within, range.end);
                }
            }
        }
        let mut bytes = Vec::new();
        for cut in pin.cut(range)? {
            match cut {
                Cut::Hole(hole) => bytes.push(zeros(&hole)),
                Cut::Stored(within, piece) => self.read_piece(file.ino, &piece, within, &mut bytes).await?,
            }
        }
        Ok(join(bytes))
    }

    /// Reads a range of a file out of the piece that holds it.
    pub(crate) async fn read_piece(
        &self,
        ino: Ino,
        piece: &Piece,
        range: Range<u64>,
        into: &mut Vec<Bytes>,
    ) -> Result<(), Arc<StoreError>> {
        let etag = &piece.object.etag;
        let mut rest = piece.within(&range);
        while !rest.is_empty() {
            let mut blocks = self.blocks.find(ino, etag, &rest);
            if blocks.is_empty() {
                self.fetch(ino, piece, range.clone(), range.end);
                blocks = self.blocks.find(ino, etag, &rest);
            }
            let Some(end) = blocks.last().map(|block| block.range.end.min(rest.end)) else {
                continue;
            };
            into.push(gather(&blocks, rest.start..end).await?);
            rest.start = end;
        }
        Ok(())
    }

    /// Starts requests for what is missing of a range of the file, which the piece holds, and of all of a short piece, as
    /// servers have a checksum of whole objects only; `must` is how far a read
    /// waits for it.
    pub(crate) fn fetch(&self, ino: Ino, piece: &Piece, range: Range<u64>, must: u64) {
        let must = piece.within(&(range.start..must.max(range.start))).end;
        let is_short = piece.range.end - piece.range.start <= WHOLE_BYTES_MAX;
        let within = piece.within(if is_short { &piece.range } else { &range });
        let blocks = self.blocks.reserve(ino, &piece.object.etag, within, must, SLAB_BYTES as u64);
        for fetch in Fetch::split(ino, piece, blocks) {
            let Some(me) = self.me.upgrade() else { return };
            tokio::spawn(async move {
                let (ino, etag, asked_at) = (fetch.ino, fetch.object.etag.clone(), me.moment());
                let meta = fetch.run(me.store.as_ref(), &me.slabs, &me.blocks).await;
                if let Some(meta) = meta.filter(|meta| meta.object.etag == etag) {
                    me.learn_headers(ino, &meta, asked_at);
                }
            });
        }
    }

    /// A GET brings the headers along: attributes that were only listed become exact.
    fn learn_headers(&self, ino: Ino, meta: &store::ObjectMeta, asked_at: Moment) {
        if self.names.inode(ino).is_ok_and(|inode| !inode.exact) {
            let seen = headers::observed(meta, false, &self.defaults, asked_at);
            if let Err(error) = self.reconcile_headers(ino, seen) {
                tracing::debug!(%error, "headers came too late");
            }
        }
    }

    /// The pinned object is not there: a rename moved it, or somebody replaced or removed it.
    async fn repin(&self, file: &OpenFile, old: &Arc<Pin>) -> Result<()> {
        // Who moves or removes it here holds its work until the file is pinned to where its bytes are.
        let _work = file.work.lock().await;
        if file.pin().0.as_ref() != Some(old) {
            return Ok(());
        }
        let looked = async { self.revalidate(&self.names.inode(file.ino)?).await };
        match looked.await {
            Ok(_) => file.replace(|| self.pin_of(file.ino)),
            Err(error) => Err(Error::Stale(error.to_string())),
        }
    }

    /// Reads a file with writes of its own; `None` if they were published meanwhile, and nothing is beside its pin.
    async fn read_edited(&self, handle: &FileHandle, range: Range<u64>) -> Result<Option<Bytes>> {
        let mut looks = 0;
        loop {
            let (sources, base) = {
                let mut work = handle.file.work.lock().await;
                match &*work {
                    Dirty::Clean => return Ok(None),
                    Dirty::Memory(memory) => return Ok(Some(memory.read(range))),
                    Dirty::Stream(stream) => match stream.read(range.clone()) {
                        Some(bytes) => return Ok(Some(bytes)),
                        None => self.settle(&handle.file, &mut work).await?,
                    },
                    Dirty::Local(_) => {}
                }
                work.follow(&handle.file);
                let Dirty::Local(local) = &*work else { return Ok(None) };
                (written(local, range.clone())?, local.base().cloned())
            };
            // Others go on writing while this waits for the store.
            match self.read_sources(handle, sources, base.as_ref()).await {
                Ok(bytes) => return Ok(Some(bytes)),
                // A rename may have moved the object below in between, or an upload of ours got there after all.
                Err(error)
                    if is_changed(&error)
                        && looks < LOOKS_MAX
                        && self.look_below(&handle.file, base.as_ref()).await? =>
                {
                    looks += 1
                }
                Err(error) if is_changed(&error) => return Err(Error::Stale(error.to_string())),
                Err(error) => return Err(owned(error)),
            }
        }
    }

    async fn read_sources(
        &self,
        handle: &FileHandle,
        sources: Vec<Written>,
        base: Option<&Arc<Pin>>,
    ) -> Result<Bytes, Arc<StoreError>> {
        let mut bytes = Vec::new();
        for source in sources {
            bytes.push(match (source, base) {
                (Written::Here(bytes), _) => bytes,
                (Written::Below(range), Some(base)) => self.read_pin(handle, base, range).await?,
                (Written::Below(range), None) => zeros(&range),
            });
        }
        Ok(join(bytes))
    }
}

/// A part of what an edited file consists of.
enum Written {
    Here(Bytes),
    /// This range of the bytes below.
    Below(Range<u64>),
}

fn written(local: &Local, range: Range<u64>) -> Result<Vec<Written>> {
    let read = |source| match source {
        Source::Local(range) => Ok(Written::Here(local.read(range)?)),
        Source::Base(range) => Ok(Written::Below(range)),
        Source::Zeros(range) => Ok(Written::Here(zeros(&range))),
    };
    local.sources(range).into_iter().map(read).collect()
}

/// The error says that the key holds other bytes than were pinned, or none.
pub(crate) fn is_changed(error: &StoreError) -> bool {
    matches!(error, StoreError::PreconditionFailed(_) | StoreError::NotFound(_) | StoreError::InvalidRange(_))
}

/// An error that several readers share, as this reader's own.
pub(crate) fn owned(error: Arc<StoreError>) -> Error {
    match Arc::try_unwrap(error) {
        Ok(error) => error.into(),
        Err(shared) => match &*shared {
            StoreError::Denied(text) => StoreError::Denied(text.clone()).into(),
            other => StoreError::Unavailable(other.to_string()).into(),
        },
    }
}

pub(crate) fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
    joined.freeze()
}
