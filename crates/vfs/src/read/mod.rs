//! Reading: chunks of immutable objects, fetched ahead in parallel.
//!
//! `readahead` decides what to fetch (pure), `fetch` moves it, `chunks` holds it. A chunk belongs to one inode and
//! one etag, so nothing here is ever invalidated: another etag is other bytes.

pub(crate) mod chunks;
pub(crate) mod fetch;
pub(crate) mod readahead;
