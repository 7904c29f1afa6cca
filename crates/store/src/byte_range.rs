//! Checks of byte ranges against the size of an object.

use crate::{ObjectKey, Result, StoreError};
use std::ops::Range;

/// Cuts a range to an object of `size_bytes`; a range that begins at or beyond the end is `InvalidRange`, an empty
/// one before the end is `Invalid`.
pub fn clamp(key: &ObjectKey, range: Range<u64>, size_bytes: u64) -> Result<Range<u64>> {
    if range.start >= size_bytes {
        return Err(StoreError::InvalidRange(key.clone()));
    }
    if range.is_empty() {
        return Err(StoreError::Invalid(format!("the range {range:?} is empty")));
    }
    Ok(range.start..range.end.min(size_bytes))
}

/// Checks the range of a part copy: like [`clamp`], but a range that ends beyond the source is `InvalidRange`.
pub fn require_inside(key: &ObjectKey, range: Range<u64>, size_bytes: u64) -> Result<Range<u64>> {
    if range.end > size_bytes {
        return Err(StoreError::InvalidRange(key.clone()));
    }
    clamp(key, range, size_bytes)
}
