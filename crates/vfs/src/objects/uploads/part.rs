//! Receiving of a part: its body is stored as it arrives, and named once it is complete.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use meta::{Extent, Ino, Op, Origin, XattrHow};
use std::ops::Range;
use store::{
    Attributes, MakePartNote, ObjectKey, ObjectRef, Part, Payload, Precondition, PutOptions, StoreError, Tags,
};

use super::DirectoryUploads;
use super::record::{PartRecord, part_name};
use crate::content::storing::StoringGuard;
use crate::layout::stored_at;
use crate::objects::errors::{error_about, namespace_error_about};
use crate::objects::etag::AssignedEtag;
use crate::volume::Mapping;

/// Length of the pieces in which a long body is passed on. The last piece may be longer (see [`LAST_BYTES_MIN`]).
const PIECE_BYTES: u64 = 8 << 20;
/// Minimum length of the last piece, S3's minimum length of a part: a shorter rest is added to the piece before it.
const LAST_BYTES_MIN: u64 = 5 << 20;

/// A stored body: its content from offset 0, and its length.
type Stored = (Vec<Extent>, u64);

impl DirectoryUploads {
    pub(super) async fn receive_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, store::Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> store::Result<Part> {
        store::part_number::check(number)?;
        let (ino, _) = self.upload(key, id)?;
        let _stores = StoringGuard::begin(self.fs.content.storing(), ino);
        let (content, size_bytes) = self.store_body(ino, body).await?;
        let named = match make_note() {
            Ok(note) => self.name_part(key, id, number, (&content, size_bytes), note).await,
            Err(error) => Err(error),
        };
        if named.as_ref().is_err_and(|error| !matches!(error, StoreError::Unavailable(_))) {
            self.directory.discard_all(&content).await;
        }
        named
    }

    /// Stores a body of unknown length. Discards what was stored if the body fails.
    async fn store_body(&self, ino: Ino, body: BoxStream<'_, store::Result<Bytes>>) -> store::Result<Stored> {
        let mut body = Body { body: body.fuse().boxed(), waiting: Payload::default() };
        if let Mapping::Chunked { bytes } = self.fs.mount.layout.mapping() {
            return self.store_chunks(ino, &mut body, bytes).await;
        }
        body.fill(PIECE_BYTES + LAST_BYTES_MIN).await?;
        let key = self.fs.content.new_key(ino)?;
        match body.waiting.len() >= PIECE_BYTES + LAST_BYTES_MIN {
            true => self.store_long(&key, &mut body).await,
            false => self.store_short(&key, body.waiting).await,
        }
    }

    /// Stores a part that is in memory as one object.
    async fn store_short(&self, key: &ObjectKey, body: Payload) -> store::Result<Stored> {
        let size_bytes = body.len();
        if body.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let object = self.fs.mount.store.put(key, body, PutOptions::default()).await?;
        Ok((vec![extent(&object, 0..size_bytes)], size_bytes))
    }

    /// Stores a long body as one object by a multipart upload, so that the completion can copy it as one part.
    async fn store_long(&self, key: &ObjectKey, body: &mut Body<'_>) -> store::Result<Stored> {
        let upload = self.fs.mount.store.multipart(key, Attributes::default(), Tags::new()).await?;
        let sent = async {
            let (mut size_bytes, mut number) = (0, 1);
            while !body.waiting.is_empty() {
                let piece = body.piece();
                size_bytes += piece.len();
                upload.put_part(number, piece).await?;
                number += 1;
                body.fill(PIECE_BYTES + LAST_BYTES_MIN).await?;
            }
            Ok((upload.complete(Precondition::None).await?, size_bytes))
        };
        match sent.await {
            Ok((object, size_bytes)) => Ok((vec![extent(&object, 0..size_bytes)], size_bytes)),
            Err(error) => {
                upload.abort().await.ok();
                Err(error)
            }
        }
    }

    async fn store_chunks(&self, ino: Ino, body: &mut Body<'_>, bytes: u64) -> store::Result<Stored> {
        let (mut content, mut at) = (Vec::new(), 0);
        let failed = loop {
            if let Err(error) = body.fill(bytes).await {
                break error;
            }
            let piece = body.take(bytes);
            if piece.is_empty() {
                return Ok((content, at));
            }
            let len = piece.len();
            let key = self.fs.content.new_key(ino)?;
            match self.fs.mount.store.put(&key, piece, PutOptions::default()).await {
                Ok(object) => content.push(extent(&object, at..at + len)),
                Err(error) => break error,
            }
            at += len;
        };
        self.directory.discard_all(&content).await;
        Err(failed)
    }

    /// Names a part in one commit: its bytes are appended to those of the other parts and replace its earlier ones.
    async fn name_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        (content, size_bytes): (&[Extent], u64),
        note: Option<String>,
    ) -> store::Result<Part> {
        let _key_lock = self.lock(id).await?;
        let (ino, _) = self.upload(key, id)?;
        let at = self.fs.names.tables().inode(ino).map_err(namespace_error_about(key))?.size_bytes;
        let now = self.fs.mount.now();
        let record = PartRecord::new(
            &AssignedEtag::for_content(content, size_bytes).etag(),
            at,
            size_bytes,
            now,
            note,
        );
        let mut ranges = Vec::new();
        match self.fs.names.tables().xattr(ino, &part_name(number)) {
            Err(meta::FsError::NoData) => {}
            old => {
                let old = PartRecord::parse(&old.map_err(namespace_error_about(key))?)?;
                ranges.extend((old.size_bytes > 0).then(|| old.at..old.at + old.size_bytes));
            }
        }
        ranges.push(at..at + size_bytes);
        let content = content.iter().map(|extent| Extent { offset: extent.offset + at, ..extent.clone() });
        let (content, size) = (content.collect(), at + size_bytes);
        let ops = [
            Op::Splice { ino, ranges, content, size_bytes: size, mtime: Some(now) },
            Op::SetXattr { ino, name: part_name(number), value: record.encode()?, how: XattrHow::Set },
        ];
        let applied =
            self.fs.names.commit_together(Origin::Bookkeeping, &ops).map_err(namespace_error_about(key))?;
        self.fs.names.sync_names_unless_write_back().await.map_err(error_about(key))?;
        for key in applied.into_iter().flat_map(|applied| applied.released) {
            self.fs.content.discard(key).await;
        }
        Ok(record.part(number))
    }
}

/// A body being read, and its bytes that wait to be stored.
struct Body<'b> {
    body: BoxStream<'b, store::Result<Bytes>>,
    /// Bytes that were read and are not stored yet.
    waiting: Payload,
}

impl Body<'_> {
    /// Reads until `bytes` wait, or to the end.
    async fn fill(&mut self, bytes: u64) -> store::Result<()> {
        while self.waiting.len() < bytes
            && let Some(piece) = self.body.try_next().await?
        {
            self.waiting.push(piece);
        }
        Ok(())
    }

    /// Returns the next piece of a long body: everything that waits, if the rest would be shorter than the minimum.
    fn piece(&mut self) -> Payload {
        match self.waiting.len() >= PIECE_BYTES + LAST_BYTES_MIN {
            true => self.take(PIECE_BYTES),
            false => std::mem::take(&mut self.waiting),
        }
    }

    /// Returns up to `bytes` of the waiting bytes.
    fn take(&mut self, bytes: u64) -> Payload {
        let (mut taken, mut left) = (Payload::default(), Payload::default());
        for piece in self.waiting.pieces() {
            let room = bytes - taken.len();
            let cut = room.min(piece.len() as u64) as usize;
            taken.push(piece.slice(..cut));
            left.push(piece.slice(cut..));
        }
        self.waiting = left;
        taken
    }
}

fn extent(object: &ObjectRef, range: Range<u64>) -> Extent {
    let len = range.end - range.start;
    Extent { offset: range.start, len, object: stored_at(object), object_offset: 0 }
}
