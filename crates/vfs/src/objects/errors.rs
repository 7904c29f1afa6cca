//! Translation of file-system errors to store errors.

use meta::{EngineError, FsError};
use store::names::BadName;
use store::{ObjectKey, StoreError};

use crate::Error;

/// Translates an error of the file system about a key.
pub(super) fn error_about(key: &ObjectKey) -> impl Fn(Error) -> StoreError {
    let key = key.clone();
    move |error| store_error(&key, error)
}

/// Translates an error of the namespace about a key.
pub(super) fn namespace_error_about(key: &ObjectKey) -> impl Fn(FsError) -> StoreError {
    let key = key.clone();
    move |error| namespace_error(&key, error)
}

fn store_error(key: &ObjectKey, error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        Error::Namespace(error) => namespace_error(key, error),
        Error::Name(error) => no_such_key(key, &bad_name(&error)),
        Error::Stale(_) | Error::StaleEntry(_) => StoreError::PreconditionFailed(key.clone()),
        Error::Cache(error) if crate::Error::Cache(error_of(&error)).errno() == libc::ENOSPC => {
            StoreError::Full(error.to_string())
        }
        Error::Cache(error) => StoreError::Unavailable(error.to_string()),
        Error::Volume(what) => StoreError::Invalid(what),
        Error::Errno { errno, what } => match errno {
            libc::ENOENT => StoreError::NotFound(key.clone()),
            libc::EROFS | libc::EPERM | libc::EACCES => StoreError::Denied(what.to_owned()),
            libc::ENOSPC | libc::EDQUOT => StoreError::Full(what.to_owned()),
            libc::EOPNOTSUPP => StoreError::Unsupported(what.to_owned()),
            libc::EBUSY => StoreError::Unavailable(what.to_owned()),
            _ => StoreError::Invalid(what.to_owned()),
        },
    }
}

fn namespace_error(key: &ObjectKey, error: FsError) -> StoreError {
    match error {
        FsError::NotFound => StoreError::NotFound(key.clone()),
        FsError::OverQuota | FsError::VolumeFull | FsError::Engine(EngineError::Full(_)) => {
            StoreError::Full(error.to_string())
        }
        FsError::NameTooLong => no_such_key(key, &error.to_string()),
        FsError::Conflict | FsError::StaleBase | FsError::Engine(_) => {
            StoreError::Unavailable(error.to_string())
        }
        FsError::Corrupt(what) => StoreError::Corrupt(what),
        error => StoreError::Invalid(error.to_string()),
    }
}

fn bad_name(error: &BadName) -> String {
    error.to_string()
}

fn error_of(error: &std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(number) => std::io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}

/// Returns the error for a key that is not possible.
pub(super) fn no_such_key(key: &ObjectKey, reason: &str) -> StoreError {
    StoreError::InvalidKey { key: key.to_string(), reason: reason.to_owned() }
}

/// Returns the error for a key that is reserved for Tenon.
pub(super) fn reserved(key: &ObjectKey) -> StoreError {
    no_such_key(key, "'.tenon' at the volume's root is reserved for Tenon")
}
