//! Rules for bucket names, and the errors of calls that create and remove buckets.

use crate::{Result, StoreError};

/// Checks a name by S3's rules for general purpose buckets (S3 User Guide, "Bucket naming rules"): 3 to 63
/// lower-case letters, digits, `-` and single `.`, beginning and ending with a letter or digit.
pub fn check(name: &str) -> Result<()> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| inner(*byte) && byte.is_ascii_alphanumeric());
    let bytes = name.as_bytes();
    let good = (3..=63).contains(&bytes.len())
        && bytes.iter().all(|&byte| inner(byte))
        && outer(bytes.first())
        && outer(bytes.last())
        && !name.contains("..");
    if good {
        return Ok(());
    }
    let name = name.escape_debug();
    Err(StoreError::Invalid(format!(
        "'{name}' is not a valid bucket name: use 3 to 63 lower-case letters, digits, '-' and '.'"
    )))
}

/// Returns the error for creating a bucket that exists.
pub fn exists(name: &str) -> StoreError {
    StoreError::BucketState { bucket: name.to_owned(), reason: "the bucket exists already".to_owned() }
}

/// Returns the error for removing a bucket that is not empty.
pub fn not_empty(name: &str) -> StoreError {
    StoreError::BucketState {
        bucket: name.to_owned(),
        reason: "the bucket is not empty: delete its objects, versions and uploads first".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn names_follow_the_rules_of_s3() {
        for good in ["abc", "a-b.c", "123", &"x".repeat(63)] {
            check(good).unwrap();
        }
        for bad in ["", "ab", "Abc", "a_b", "-ab", "ab-", "a..b", "a/b", "äbc", &"x".repeat(64)] {
            check(bad).unwrap_err();
        }
    }
}
