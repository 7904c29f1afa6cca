//! Which names a bucket may have, and what is said of those that cannot be.

use crate::{Result, StoreError};

/// Refuses what S3 refuses as the name of a general purpose bucket (S3 User Guide, "Bucket naming rules"): 3 to
/// 63 lower-case letters, digits, `-` and single `.`, beginning and ending with a letter or digit.
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
    let rule = "a bucket's name has 3 to 63 lower-case letters, digits, '-' and '.'";
    Err(StoreError::Invalid(format!("{rule}; '{}' is none", name.escape_debug())))
}

/// The refusal of a second bucket of the same name.
pub fn exists(name: &str) -> StoreError {
    StoreError::BucketState { bucket: name.to_owned(), reason: "it exists already".to_owned() }
}

/// The refusal to remove a bucket that holds objects.
pub fn not_empty(name: &str) -> StoreError {
    StoreError::BucketState { bucket: name.to_owned(), reason: "it still holds objects".to_owned() }
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
