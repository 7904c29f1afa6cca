//! Reads of files.

use bytes::{Bytes, BytesMut};
use cache::ObjectId;
use futures_util::future::join_all;
use meta::{FsError, Ino, Moment};
use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};
use store::StoreError;

use crate::base::Base;
use crate::bucket::discovery::Discovery;
use crate::bucket::headers;
use crate::bucket::reconcile::Reconciler;
use crate::content::Content;
use crate::content::open_file::{FileHandle, OpenFile};
use crate::content::pin::{Cut, Piece, Pin};
use crate::content::ranges::zeros;
use crate::content::read::fetch::{Fetch, gather};
use crate::content::read::readahead::WHOLE_BYTES_MAX;
use crate::content::read::tiers::{WARMED_BYTES_MAX, parts};
use crate::content::slab::SLAB_BYTES;
use crate::content::write::publisher::Publisher;
use crate::content::write::{Local, Source, WriteState};
use crate::mount::Mount;
use crate::names::Names;
use crate::{Error, Result};

/// Reads files through the cache, and through their unpublished writes.
#[derive(Debug)]
pub(crate) struct FileReader {
    pub(in crate::content) me: Weak<Self>,
    pub(in crate::content) mount: Arc<Mount>,
    pub(in crate::content) names: Arc<Names>,
    pub(in crate::content) content: Arc<Content>,
    pub(in crate::content) discovery: Arc<Discovery>,
    pub(in crate::content) reconciler: Arc<Reconciler>,
    pub(in crate::content) publisher: Arc<Publisher>,
}

impl FileReader {
    pub(crate) fn new(
        base: &Base,
        discovery: &Arc<Discovery>,
        reconciler: &Arc<Reconciler>,
        publisher: &Arc<Publisher>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            discovery: discovery.clone(),
            reconciler: reconciler.clone(),
            publisher: publisher.clone(),
        })
    }
}

/// Maximum checks of an object that changed during a read: one to learn of a rename or a replacement, further ones for races.
const REFRESHES_MAX: u32 = 3;

/// Smallest page size of a kernel's page cache: the last page of a file is requested whole.
const PAGE_BYTES: u64 = 4096;

impl FileReader {
    /// Reads a range of a file without unpublished writes. ESTALE if the object was removed, or replaced after the
    /// handle had read of it.
    pub(crate) async fn read_published(&self, handle: &FileHandle, range: Range<u64>) -> Result<Bytes> {
        let mut refreshes = 0;
        loop {
            let (reading, pin) = handle.begin_read().await?;
            let Some(pin) = pin else { return self.read_nothing(&handle.file) };
            match self.read_pin(handle, &pin, range.clone()).await {
                Ok(_) if self.would_be_zero_filled(handle, &pin, &range) => {
                    return Err(Error::Stale(
                        "the object was overwritten in the bucket while it was read; open the file again"
                            .into(),
                    ));
                }
                Ok(bytes) => {
                    if reading.succeed() && handle.version.is_cached {
                        self.names.references().set_cached(handle.file.ino, Some(&pin.identity()));
                    }
                    return Ok(bytes);
                }
                Err(error) if is_changed(&error) && refreshes < REFRESHES_MAX => {
                    refreshes += 1;
                    drop(reading);
                    self.repin(&handle.file, &pin).await?;
                }
                Err(error) if is_changed(&error) => return Err(Error::Stale(error.to_string())),
                Err(error) => return Err(into_owned_error(error)),
            }
        }
    }

    /// Returns whether the page cache above believes that the file is longer than the handle's version, as it requests
    /// a page behind the end: it would fill up a short answer with zeros. It requests the last page of a file whole,
    /// and no page behind it.
    fn would_be_zero_filled(&self, handle: &FileHandle, pin: &Pin, range: &Range<u64>) -> bool {
        let is_beyond = range.end > pin.size_bytes.next_multiple_of(PAGE_BYTES);
        is_beyond
            && self.mount.config.page_cache_above
            && handle.version.is_cached
            && !handle.file.pending().is_edited
    }

    /// Reads a file without an object: it is empty, or the object was removed together with the name.
    fn read_nothing(&self, file: &OpenFile) -> Result<Bytes> {
        match self.names.tables().inode(file.ino)?.home {
            Some(_) => Ok(Bytes::new()),
            None => Err(Error::Stale("the object was removed from the bucket".into())),
        }
    }

    /// Reads pinned bytes through the cache, with read-ahead for sequential handles.
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
        let window = self.content.blocks().window_bytes(self.content.files().len());
        let (plan, passed, is_random) = {
            let mut ahead = handle.readahead.lock().unwrap_or_else(PoisonError::into_inner);
            (ahead.plan(range.clone(), pin.size_bytes, window), ahead.passed(), ahead.is_random())
        };
        self.content.drop_passed_blocks(file, passed);
        if is_random
            && self.content.tiers().has_disk()
            && let Some(bytes) = self.read_from_disk(file.ino, pin, &range).await?
        {
            return Ok(bytes);
        }
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

    /// Reads a range of a file from the disk cache, without anything around it, if it is one piece that is cached there and not in memory.
    async fn read_from_disk(
        &self,
        ino: Ino,
        pin: &Pin,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>, Arc<StoreError>> {
        let [Cut::Stored(within, piece)] = &pin.cut(range.clone())?[..] else { return Ok(None) };
        let within = piece.within(within);
        let in_memory = self.content.blocks().find(ino, &piece.object.etag, &within);
        match in_memory.last().is_some_and(|block| block.range.end >= within.end) {
            true => Ok(None),
            false => Ok(self.content.tiers().read(piece, within).await),
        }
    }

    /// Reads a range of a file from the piece that holds it, and appends the bytes to `into`.
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
            let mut blocks = self.content.blocks().find(ino, etag, &rest);
            if blocks.is_empty() {
                self.fetch(ino, piece, range.clone(), range.end);
                blocks = self.content.blocks().find(ino, etag, &rest);
            }
            let Some(end) = blocks.last().map(|block| block.range.end.min(rest.end)) else {
                continue;
            };
            self.content.blocks().count_read(&blocks, &(rest.start..end));
            into.push(gather(&blocks, rest.start..end).await?);
            rest.start = end;
        }
        Ok(())
    }

    /// Starts requests for the uncached parts of a range of the file that the piece holds. A short piece is fetched
    /// whole, because servers have checksums of whole objects only. `needed_until` is the end of the bytes that a read
    /// waits for.
    pub(crate) fn fetch(&self, ino: Ino, piece: &Piece, range: Range<u64>, needed_until: u64) {
        let needed_until = piece.within(&(range.start..needed_until.max(range.start))).end;
        let is_short = piece.range.end - piece.range.start <= WHOLE_BYTES_MAX;
        let within = piece.within(if is_short { &piece.range } else { &range });
        let blocks =
            self.content.blocks().reserve(ino, &piece.object.etag, within, needed_until, SLAB_BYTES as u64);
        for fetch in Fetch::split(ino, piece, blocks) {
            let Some(me) = self.me.upgrade() else { return };
            let cause = store::current_cause();
            tokio::spawn(store::work_for(cause, async move {
                let (tiers, slabs) = (me.content.tiers(), me.content.slabs());
                let cached = fetch.cached_object(tiers);
                let missing = match cached {
                    Some(object) => fetch.fill_from_tiers(object, tiers, slabs).await,
                    None => vec![fetch],
                };
                join_all(missing.into_iter().map(|fetch| me.fetch_from_store(fetch, cached))).await;
            }));
        }
    }

    /// Carries out one request to the store. The tiers then store the bytes, if they can have the object.
    async fn fetch_from_store(&self, fetch: Fetch, cached: Option<ObjectId>) {
        let asked_at = self.mount.moment();
        let meta = fetch.run(self.mount.store.as_ref(), self.content.slabs(), self.content.blocks()).await;
        let Some(meta) = meta else { return };
        if meta.object.etag == fetch.object.etag {
            self.learn_headers(fetch.ino, &meta, asked_at);
        }
        if let Some(object) = cached {
            fetch.store_in_tiers(object, self.content.tiers(), meta.size_bytes);
        }
    }

    /// Stores all bytes of an open file in the disk cache. Returns how many of them were read from the store.
    pub(crate) async fn warm(&self, handle: &FileHandle) -> Result<u64> {
        let (_, Some(pin)) = handle.begin_read().await? else { return Ok(0) };
        let mut read_bytes = 0;
        for window in parts(0..pin.size_bytes, WARMED_BYTES_MAX) {
            for cut in pin.cut(window)? {
                if let Cut::Stored(within, piece) = cut {
                    let within = piece.within(&within);
                    read_bytes +=
                        self.content.tiers().warm(self.mount.store.as_ref(), &piece, within).await?;
                }
            }
        }
        Ok(read_bytes)
    }

    /// Takes over the headers that a GET returns: attributes known from a listing become authoritative.
    fn learn_headers(&self, ino: Ino, meta: &store::ObjectMeta, asked_at: Moment) {
        if self.names.tables().inode(ino).is_ok_and(|inode| !inode.exact) {
            let seen = headers::observed(meta, false, &self.mount.defaults, asked_at);
            if let Err(error) = self.reconciler.reconcile_headers(ino, seen) {
                tracing::debug!(%error, "attributes from the response to a GET could not be recorded in the metadata; they are read again when needed");
            }
        }
    }

    /// Pins a file to its current object after the object of the pin `old` was moved, replaced or removed.
    async fn repin(&self, file: &OpenFile, old: &Arc<Pin>) -> Result<()> {
        // A local move or removal holds the lock until the file is pinned to the new place.
        let _state = file.write_state.lock().await;
        if file.pin().0.as_ref() != Some(old) {
            return Ok(());
        }
        if self.names.tables().engine().is_shared() {
            // Another machine has replaced the content, and deleted what it replaced, or removed the file.
            match self.names.tables().newest_inode(file.ino) {
                Err(FsError::NotFound) => {
                    return Err(Error::Stale("it was removed on another machine".into()));
                }
                found => found?,
            };
            return file.repin(|| self.names.pin_of(file.ino));
        }
        let looked = async { self.discovery.revalidate(&self.names.tables().inode(file.ino)?).await };
        match looked.await {
            Ok(_) => file.replace(|| self.names.pin_of(file.ino)),
            Err(error) => Err(Error::Stale(error.to_string())),
        }
    }

    /// Reads a file with unpublished writes; `None` if they were published meanwhile.
    pub(crate) async fn read_edited(&self, handle: &FileHandle, range: Range<u64>) -> Result<Option<Bytes>> {
        let mut refreshes = 0;
        loop {
            let (sources, base) = {
                let mut state = handle.file.write_state.lock().await;
                match &*state {
                    WriteState::Clean => return Ok(None),
                    WriteState::Memory(memory) => return Ok(Some(memory.read(range))),
                    WriteState::Stream(stream) => match stream.read(range.clone()) {
                        Some(bytes) => return Ok(Some(bytes)),
                        None => self.publisher.spill_to_disk(&handle.file, &mut state).await?,
                    },
                    WriteState::Local(_) => {}
                }
                state.rebase_on_pin(&handle.file);
                let WriteState::Local(local) = &*state else { return Ok(None) };
                (edited_parts(local, range.clone())?, local.base().cloned())
            };
            // The lock is released while this waits for the store, so that writers can go on.
            match self.read_sources(handle, sources, base.as_ref()).await {
                Ok(bytes) => return Ok(Some(bytes)),
                // A rename may have moved the object below meanwhile, or an upload whose answer was lost may have replaced it.
                Err(error)
                    if is_changed(&error)
                        && refreshes < REFRESHES_MAX
                        && self.publisher.refresh_base(&handle.file, base.as_ref()).await? =>
                {
                    refreshes += 1
                }
                Err(error) if is_changed(&error) => return Err(Error::Stale(error.to_string())),
                Err(error) => return Err(into_owned_error(error)),
            }
        }
    }

    /// Returns the bytes of the parts of an edited file, joined.
    async fn read_sources(
        &self,
        handle: &FileHandle,
        sources: Vec<EditedPart>,
        base: Option<&Arc<Pin>>,
    ) -> Result<Bytes, Arc<StoreError>> {
        let mut bytes = Vec::new();
        for source in sources {
            bytes.push(match (source, base) {
                (EditedPart::Local(bytes), _) => bytes,
                (EditedPart::Base(range), Some(base)) => self.read_pin(handle, base, range).await?,
                (EditedPart::Base(range), None) => zeros(&range),
            });
        }
        Ok(join(bytes))
    }
}

/// A part of an edited file's content.
enum EditedPart {
    /// Bytes that were written, or zeros.
    Local(Bytes),
    /// A range of the content below the edits.
    Base(Range<u64>),
}

/// Returns the parts of a range of an edited file, with the bytes of the local ones.
fn edited_parts(local: &Local, range: Range<u64>) -> Result<Vec<EditedPart>> {
    let read = |source| match source {
        Source::Local(range) => Ok(EditedPart::Local(local.read(range)?)),
        Source::Base(range) => Ok(EditedPart::Base(range)),
        Source::Zeros(range) => Ok(EditedPart::Local(zeros(&range))),
    };
    local.sources(range).into_iter().map(read).collect()
}

/// Returns whether the error means that the key holds other bytes than were pinned, or none.
pub(crate) fn is_changed(error: &StoreError) -> bool {
    matches!(error, StoreError::PreconditionFailed(_) | StoreError::NotFound(_) | StoreError::InvalidRange(_))
}

/// Returns an error shared by several readers as an owned one. If other readers still have it, only
/// [`StoreError::Denied`] keeps its kind; any other becomes [`StoreError::Unavailable`].
pub(crate) fn into_owned_error(error: Arc<StoreError>) -> Error {
    match Arc::try_unwrap(error) {
        Ok(error) => error.into(),
        Err(shared) => match &*shared {
            StoreError::Denied(text) => StoreError::Denied(text.clone()).into(),
            other => StoreError::Unavailable(other.to_string()).into(),
        },
    }
}

/// Returns pieces as one. Copies them, unless there is only one.
pub(crate) fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
    joined.freeze()
}
