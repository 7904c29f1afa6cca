//! S3 errors, and the conversion of store errors to them.

use http::StatusCode;
use s3s::{S3Error, S3ErrorCode, StdError, s3_error};
use store::StoreError;

use crate::error_document::with_details;

/// Converts an error of a store call.
pub(crate) fn from_store(error: StoreError) -> S3Error {
    let code = match &error {
        StoreError::NotFound(_) => S3ErrorCode::NoSuchKey,
        StoreError::NoSuchBucket(_) => S3ErrorCode::NoSuchBucket,
        StoreError::BucketState { .. } => S3ErrorCode::OperationAborted,
        StoreError::PreconditionFailed(_) => return precondition_failed(),
        StoreError::InvalidKey { .. } | StoreError::Invalid(_) => S3ErrorCode::InvalidArgument,
        StoreError::InvalidRange(_) => {
            return s3_error!(InvalidRange, "The requested range is not satisfiable");
        }
        StoreError::Denied(_) | StoreError::Locked(_) => S3ErrorCode::AccessDenied,
        StoreError::Unsupported(_) => S3ErrorCode::NotImplemented,
        StoreError::Full(_) => return full(&error),
        StoreError::Throttled(_) => S3ErrorCode::SlowDown,
        StoreError::Unavailable(_) => S3ErrorCode::ServiceUnavailable,
        _ => S3ErrorCode::InternalError,
    };
    let message = match &error {
        StoreError::NotFound(_) => "The specified key does not exist.".to_owned(),
        StoreError::NoSuchBucket(_) => "The specified bucket does not exist.".to_owned(),
        StoreError::Locked(_) => "Access Denied because object protected by object lock.".to_owned(),
        _ => error.to_string(),
    };
    S3Error::with_message(code, message)
}

/// Converts an error of a store call in which only an upload can be missing: `NotFound` becomes `NoSuchUpload`.
pub(crate) fn from_upload(error: StoreError) -> S3Error {
    match error {
        StoreError::NotFound(_) => no_such_upload(),
        error => from_store(error),
    }
}

pub(crate) fn no_such_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    )
}

pub(crate) fn malformed_xml() -> S3Error {
    s3_error!(
        MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema."
    )
}

pub(crate) fn precondition_failed() -> S3Error {
    s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold")
}

pub(crate) fn not_implemented(what: &str) -> S3Error {
    s3_error!(NotImplemented, "{what} is not implemented here")
}

/// Returns the error for a fault of the endpoint itself.
pub(crate) fn internal() -> S3Error {
    s3_error!(InternalError, "We encountered an internal error, please try again.")
}

/// Returns an S3 error whose code `s3s` has no constant for.
pub(crate) fn custom(code: &'static str, status: StatusCode, message: impl Into<String>) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message.into());
    error.set_status_code(status);
    error
}

pub(crate) fn bad_request(message: impl Into<String>) -> S3Error {
    custom("BadRequest", StatusCode::BAD_REQUEST, message)
}

/// Returns the error for a full disk: not the client's fault, and a retry will not help soon.
fn full(error: &StoreError) -> S3Error {
    custom("InsufficientStorage", StatusCode::INSUFFICIENT_STORAGE, error.to_string())
}

/// Returns the error `InvalidArgument`, with the argument's name and value.
pub(crate) fn invalid_argument(message: &str, name: &str, value: &str) -> S3Error {
    let error = S3Error::with_message(S3ErrorCode::InvalidArgument, message.to_owned());
    with_details(error, &[("ArgumentName", name), ("ArgumentValue", value)])
}

/// Returns the error for a body whose length differs from the declared one.
pub(crate) fn incomplete() -> S3Error {
    s3_error!(
        IncompleteBody,
        "You did not provide the number of bytes specified by the Content-Length HTTP header"
    )
}

/// Returns the error for a client that stopped sending.
pub(crate) fn timed_out() -> S3Error {
    s3_error!(
        RequestTimeout,
        "Your socket connection to the server was not read from or written to within the timeout period."
    )
}

/// Converts an error in reading a body: an S3 error stays as it is, any other means that the body ended early.
pub(crate) fn body_error(error: StdError) -> S3Error {
    match error.downcast::<S3Error>() {
        Ok(error) => *error,
        Err(error) => {
            tracing::debug!(%error, "a request body could not be read to its end");
            incomplete()
        }
    }
}
