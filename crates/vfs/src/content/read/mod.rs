//! Reading: blocks of immutable objects, fetched ahead in parallel.
//!
//! `readahead` decides what to fetch (pure), `fetch` moves it, `blocks` holds it. A block belongs to one inode and
//! one etag, so nothing here is ever invalidated: another etag is other bytes.

pub(crate) mod blocks;
pub(crate) mod fetch;
pub(crate) mod readahead;
