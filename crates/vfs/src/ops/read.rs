//! Reading files.

use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use store::StoreError;

use crate::handles::Handle;
use crate::headers;
use crate::open_file::{FileHandle, OpenFile, Pin};
use crate::read::fetch::{Fetch, gather};
use crate::slab::SLAB_BYTES;
use crate::write::Dirty;
use crate::{Error, Filesystem, Result};

/// Looks at an object that is not what it was: once to learn of a rename or a replacement, once for a race.
const LOOKS_MAX: u32 = 3;

impl Filesystem {
    /// Reads `len` bytes at `offset`; fewer only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: usize) -> Result<Bytes> {
        let handle = self.handles.file(handle)?;
        let range = offset..offset.saturating_add(len as u64);
        if handle.file.pending().is_dirty
            && let Some(bytes) = self.read_unpublished(&handle.file, range.clone()).await?
        {
            return Ok(bytes);
        }
        self.read_published(&handle, range).await
    }

    async fn read_published(&self, handle: &FileHandle, range: Range<u64>) -> Result<Bytes> {
        let mut looks = 0;
        loop {
            let (pin, lineage) = handle.file.pin();
            if !handle.accepts(lineage) {
                return Err(Error::Stale(
                    "it was overwritten in the bucket after this handle had read from it".into(),
                ));
            }
            let Some(pin) = pin else { return self.read_nothing(&handle.file) };
            match self.read_pin(handle, &pin, range.clone()).await {
                Ok(bytes) => {
                    handle.mark_read();
                    return Ok(bytes);
                }
                Err(error) if is_changed(&error) && looks < LOOKS_MAX => {
                    looks += 1;
                    self.repin(&handle.file, &pin).await?;
                }
                Err(error) if is_changed(&error) => return Err(Error::Stale(error.to_string())),
                Err(error) => return Err(owned(error)),
            }
        }
    }

    /// Reads a file that has no object: it is empty, or its object was the name that is gone.
    fn read_nothing(&self, file: &OpenFile) -> Result<Bytes> {
        match self.names.inode(file.ino)?.home {
            None if !self.layout.follows_paths() => Ok(Bytes::new()),
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
        let window = self.chunks.window_bytes(self.files.len());
        let (plan, passed) = {
            let mut ahead = handle.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            (ahead.plan(range.clone(), pin.size_bytes, window), ahead.passed())
        };
        self.was_read(file, passed);
        plan.into_iter().for_each(|ahead| self.fetch(file, pin, ahead, range.end));
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let rest = at..range.end;
            let mut chunks = self.chunks.find(file.ino, &pin.etag, &rest);
            if chunks.is_empty() {
                self.fetch(file, pin, rest.clone(), range.end);
                chunks = self.chunks.find(file.ino, &pin.etag, &rest);
            }
            let Some(end) = chunks.last().map(|chunk| chunk.range.end.min(range.end)) else {
                continue;
            };
            pieces.push(gather(&chunks, at..end).await?);
            at = end;
        }
        Ok(join(pieces))
    }

    /// Starts requests for what is missing of `range`; `must` is how far a read waits for it.
    fn fetch(&self, file: &OpenFile, pin: &Arc<Pin>, range: Range<u64>, must: u64) {
        let chunks = self.chunks.reserve(file.ino, &pin.etag, range, must, SLAB_BYTES as u64);
        for fetch in Fetch::split(file.ino, pin, chunks) {
            let Some(me) = self.me.upgrade() else { return };
            tokio::spawn(async move {
                let (ino, etag, asked_at) = (fetch.ino, fetch.pin.etag.clone(), me.now());
                let meta = fetch.run(me.store.as_ref(), &me.slabs, &me.chunks).await;
                if let Some(meta) = meta.filter(|meta| meta.object.etag == etag) {
                    me.learn_headers(ino, &meta, asked_at);
                }
            });
        }
    }

    /// A GET brings the headers along: attributes that were only listed become exact.
    fn learn_headers(&self, ino: meta::Ino, meta: &store::ObjectMeta, asked_at: store::Timestamp) {
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
        let looked = async { self.look_again(&self.names.inode(file.ino)?).await };
        match looked.await {
            Ok(_) => file.replace(|| self.pin_of(file.ino)),
            Err(error) => Err(Error::Stale(error.to_string())),
        }
    }

    /// Reads what is not published yet; `None` if it was published meanwhile.
    async fn read_unpublished(&self, file: &Arc<OpenFile>, range: Range<u64>) -> Result<Option<Bytes>> {
        let mut work = file.work.lock().await;
        match &*work {
            Dirty::Clean => return Ok(None),
            Dirty::Memory(memory) => return Ok(Some(memory.read(range))),
            Dirty::Stream(stream) => match stream.read(range.clone()) {
                Some(bytes) => return Ok(Some(bytes)),
                None => self.settle(file, &mut work).await?,
            },
            Dirty::Local(_) => {}
        }
        work.follow(file);
        let Dirty::Local(local) = &*work else { return Ok(None) };
        match self.merged(local, range.clone()).await {
            Ok(payload) => Ok(Some(payload.to_bytes())),
            // A rename may have moved the object below in between.
            Err(error) if is_changed(&error) && file.pin().0.as_ref() != local.base.as_ref() => {
                work.follow(file);
                let Dirty::Local(local) = &*work else { return Ok(None) };
                Ok(Some(self.merged(local, range).await?.to_bytes()))
            }
            Err(error) if is_changed(&error) => Err(Error::Stale(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

/// The error says that the key holds other bytes than were pinned, or none.
fn is_changed(error: &StoreError) -> bool {
    matches!(error, StoreError::PreconditionFailed(_) | StoreError::NotFound(_) | StoreError::InvalidRange(_))
}

/// An error that several readers share, as this reader's own.
fn owned(error: Arc<StoreError>) -> Error {
    match Arc::try_unwrap(error) {
        Ok(error) => error.into(),
        Err(shared) => match &*shared {
            StoreError::Denied(text) => StoreError::Denied(text.clone()).into(),
            other => StoreError::Unavailable(other.to_string()).into(),
        },
    }
}

fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
    joined.freeze()
}
