//! Reading: blocks of immutable objects, fetched ahead in parallel.
//!
//! `readahead` decides what to fetch (pure), `fetch` fetches it, `blocks` caches it. A block is keyed by inode and etag, so the
//! cache needs no invalidation: other bytes have another etag.

pub(crate) mod blocks;
pub(crate) mod fetch;
pub(crate) mod readahead;
pub(crate) mod reader;
