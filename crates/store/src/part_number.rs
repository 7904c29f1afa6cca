//! The range of part numbers in a multipart upload.

use crate::{Result, StoreError};

/// The highest part number (S3 User Guide, "Amazon S3 multipart upload limits").
const MAX: u32 = 10_000;

/// Checks a part number by S3's limits.
pub fn check(number: u32) -> Result<()> {
    match (1..=MAX).contains(&number) {
        true => Ok(()),
        false => Err(StoreError::Invalid(format!("invalid part number {number}: use 1 to {MAX}"))),
    }
}
