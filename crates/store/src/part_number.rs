//! Which numbers a part of an upload may have.

use crate::{Result, StoreError};

/// The highest part number (S3 User Guide, "Amazon S3 multipart upload limits").
const MAX: u32 = 10_000;

/// Refuses what S3 refuses as a part's number.
pub fn check(number: u32) -> Result<()> {
    match (1..=MAX).contains(&number) {
        true => Ok(()),
        false => Err(StoreError::Invalid(format!("part {number}: numbers go from 1 to {MAX}"))),
    }
}
