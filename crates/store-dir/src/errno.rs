//! Conversion of the kernel's errors to store errors.

use rustix::io::Errno;
use std::fmt;
use store::{ObjectKey, StoreError};

/// Converts the error of a call about `key`.
pub(super) fn failed(key: &ObjectKey, error: Errno) -> StoreError {
    match error {
        Errno::NAMETOOLONG => StoreError::InvalidKey {
            key: key.to_string(),
            reason: "its path is longer than the file system allows".to_owned(),
        },
        _ => about(key, error),
    }
}

/// Converts the error of a call about `subject`, such as a path or a bucket's name.
pub(super) fn about(subject: &dyn fmt::Display, error: Errno) -> StoreError {
    let text = format!("'{subject}': {error}");
    match error {
        Errno::NOSPC | Errno::DQUOT => StoreError::Full(text),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => StoreError::Denied(text),
        Errno::FBIG | Errno::INVAL => StoreError::Invalid(text),
        Errno::XDEV => {
            StoreError::Unsupported(format!("another file system mounted inside the directory: {text}"))
        }
        Errno::OPNOTSUPP | Errno::NOSYS => StoreError::Unsupported(text),
        _ => StoreError::Unavailable(text),
    }
}
