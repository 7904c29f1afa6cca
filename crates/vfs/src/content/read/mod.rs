//! Reading: blocks of immutable objects, fetched ahead in parallel.
//!
//! `readahead` decides what to fetch (pure), `fetch` fetches it, `blocks` caches it in memory, `tiers` on the local disk and in a
//! bucket that machines share. A block is keyed by inode
//! and etag, so the caches need no invalidation: other bytes have another etag.

pub(crate) mod blocks;
pub(crate) mod buffer;
pub(crate) mod fetch;
pub(crate) mod readahead;
pub(crate) mod reader;
pub(crate) mod tiers;
