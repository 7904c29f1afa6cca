//! Fetches object bytes into blocks and gathers them for readers.

use bytes::{Bytes, BytesMut};
use cache::ObjectId;
use futures_util::StreamExt as _;
use meta::Ino;
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, GetOptions, ObjectMeta, ObjectRef, ObjectStore, StoreError};

use super::blocks::{Block, Blocks};
use crate::content::pin::Piece;
use crate::content::read::buffer::Buffer;
use crate::content::read::tiers::Tiers;
use crate::content::slab::SlabPool;

/// One request and the adjacent blocks that it fills.
#[derive(Debug, Clone)]
pub(crate) struct Fetch {
    pub(crate) ino: Ino,
    pub(crate) object: Arc<ObjectRef>,
    /// End of the bytes that the file uses of the object.
    end: u64,
    /// The tag that the object must have; `None` if its key alone identifies it.
    if_match: Option<ETag>,
    /// The blocks to fill, adjacent and in order.
    blocks: Vec<Arc<Block>>,
}

impl Fetch {
    /// Groups adjacent blocks into requests.
    pub(crate) fn split(ino: Ino, piece: &Piece, blocks: Vec<Arc<Block>>) -> Vec<Self> {
        let end = piece.within(&piece.range).end;
        let (object, if_match) = (piece.object.clone(), piece.if_match.clone());
        Self { ino, object, end, if_match, blocks: Vec::new() }.with_blocks(blocks)
    }

    /// Returns requests for other blocks of the same object.
    fn with_blocks(&self, blocks: Vec<Arc<Block>>) -> Vec<Self> {
        let mut fetches: Vec<Self> = Vec::new();
        for block in blocks {
            match fetches.last_mut() {
                Some(last) if last.range().end == block.range.start => last.blocks.push(block),
                _ => fetches.push(Self { blocks: vec![block], ..self.clone() }),
            }
        }
        fetches
    }

    /// Returns the identity of the object in the tiers, if they can have it.
    pub(crate) fn cached_object(&self, tiers: &Tiers) -> Option<ObjectId> {
        tiers.object(&self.object.key, self.if_match.as_ref())
    }

    /// Completes the blocks that a tier has, and returns the requests for the others.
    pub(crate) async fn fill_from_tiers(
        &self,
        object: ObjectId,
        tiers: &Tiers,
        slabs: &SlabPool,
    ) -> Vec<Self> {
        self.with_blocks(tiers.fill(object, self.blocks.clone(), slabs).await)
    }

    /// Stores the blocks in the tiers, in the background. They must be complete. `size_bytes` is the length of the object.
    pub(crate) fn store_in_tiers(self, object: ObjectId, tiers: &Arc<Tiers>, size_bytes: u64) {
        tiers.store_blocks(object, self.blocks, size_bytes);
    }

    /// Returns the range of the object that the request asks for.
    fn range(&self) -> Range<u64> {
        let ends = self.blocks.first().zip(self.blocks.last());
        ends.map_or(0..0, |(first, last)| first.range.start..last.range.end)
    }

    /// Sends the request and completes every block, with bytes or with the error. Returns the object's metadata from
    /// the answer, `None` on an error. Blocks that failed are dropped from the cache.
    pub(crate) async fn run(
        &self,
        store: &dyn ObjectStore,
        slabs: &SlabPool,
        cache: &Blocks,
    ) -> Option<ObjectMeta> {
        match self.fill(store, slabs).await {
            Ok(meta) => Some(meta),
            Err(error) => {
                cache.discard(self.ino, &self.blocks);
                let error = Arc::new(error);
                self.blocks.iter().for_each(|block| block.complete(Err(error.clone())));
                None
            }
        }
    }

    /// Sends the request and completes the blocks one after the other as their bytes arrive.
    async fn fill(&self, store: &dyn ObjectStore, slabs: &SlabPool) -> Result<ObjectMeta, StoreError> {
        let object = store.get(&self.object.key, self.options()).await?;
        let mut body = object.body;
        let mut piece = Bytes::new();
        for block in &self.blocks {
            let wanted = (block.range.end - block.range.start) as usize;
            let mut buffer = Buffer::new(slabs, wanted);
            while buffer.len() < wanted {
                if piece.is_empty() {
                    piece = body
                        .next()
                        .await
                        .unwrap_or_else(|| Err(ended_early(&self.object, block.range.end)))?;
                }
                let taken = buffer.fill(&piece[..piece.len().min(wanted - buffer.len())]);
                piece = piece.slice(taken..);
            }
            block.complete(Ok(buffer.freeze()));
        }
        Ok(object.meta)
    }

    fn options(&self) -> GetOptions {
        let range = self.range();
        GetOptions {
            if_match: self.if_match.clone(),
            version: self.object.version.clone(),
            range: (range != (0..self.end)).then_some(range),
        }
    }
}

/// Returns the error for a body that ended before a byte that the file uses.
fn ended_early(object: &ObjectRef, end: u64) -> StoreError {
    StoreError::Corrupt(format!("'{}' ended before its byte {end}", object.key))
}

/// Returns the bytes of `range` from blocks that cover it, without a copy if one block holds all of them.
pub(crate) async fn gather(blocks: &[Arc<Block>], range: Range<u64>) -> Result<Bytes, Arc<StoreError>> {
    let cut = |block: &Block, bytes: &Bytes| {
        let start = range.start.max(block.range.start) - block.range.start;
        let end = range.end.min(block.range.end) - block.range.start;
        bytes.slice(start as usize..end as usize)
    };
    if let [one] = blocks {
        return Ok(cut(one, &one.bytes().await?));
    }
    let mut joined = BytesMut::with_capacity((range.end - range.start) as usize);
    for block in blocks {
        joined.extend_from_slice(&cut(block, &block.bytes().await?));
    }
    let wanted = range.end - range.start;
    assert_eq!(joined.len() as u64, wanted, "blocks cover the range for which they were found without a gap");
    Ok(joined.freeze())
}
