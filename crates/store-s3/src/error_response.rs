//! Error responses: conversion of S3's error codes to store errors.
//!
//! No message contains a secret: from an error document only code, message and region are used, never the fields in
//! which servers repeat the signed request.

use super::call::{Call, Target};
use super::credentials::ExpiryCertainty;
use super::failure::{Failure, one_line};
use super::request_counts::RequestKind;
use super::xml;
use http::header::SERVER;
use http::{HeaderMap, Method, StatusCode};
use std::time::Duration;
use store::StoreError;

impl Failure {
    /// Makes a failure from an error response. The body is empty for HEAD.
    pub(super) fn from_response(call: &Call, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let response = ErrorResponse::of(status, headers, body);
        let error = response.to_error(call, status, headers);
        let retry_after =
            headers.get("retry-after").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
        Self {
            ambiguous: matches!(error, StoreError::Unavailable(_)),
            retry_after: retry_after.map(Duration::from_secs).filter(|_| error.is_retryable()),
            may_be_transient: response.may_be_transient(call, headers),
            credentials_expired: response.credentials_expired(call, status),
            code: response.code,
            error,
        }
    }
}

/// The contents of an error response.
#[derive(Debug)]
struct ErrorResponse {
    code: String,
    message: String,
    region: Option<String>,
}

impl ErrorResponse {
    /// Reads an error from the body and the headers of a response.
    fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let document = xml::parse_error(body).unwrap_or_default();
        // MinIO sends the code in a header if the response has no body.
        let code = document.code.or_else(|| header("x-minio-error-code")).unwrap_or_default();
        let message = document.message.or_else(|| header("x-minio-error-desc"));
        let message = message.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().to_owned());
        let region = header("x-amz-bucket-region").or(document.region);
        Self { code: one_line(&code), message: one_line(&message), region: region.map(|r| one_line(&r)) }
    }

    /// Returns the code and the message as one line.
    fn text(&self, status: StatusCode) -> String {
        match self.code.as_str() {
            "" => format!("HTTP {}: {}", status.as_u16(), self.message),
            code => format!("{code}: {}", self.message),
        }
    }

    fn to_error(&self, call: &Call, status: StatusCode, headers: &HeaderMap) -> StoreError {
        let text = self.text(status);
        match self.code.as_str() {
            "NoSuchKey" | "NoSuchVersion" => not_found(call),
            "NoSuchBucket" => StoreError::NoSuchBucket(call.bucket().to_owned()),
            "NoSuchUpload" | "InvalidPart" | "InvalidPartOrder" => StoreError::Invalid(text),
            "BucketAlreadyExists" | "BucketAlreadyOwnedByYou" => bucket_state(call, "exists already"),
            "BucketNotEmpty" => bucket_state(call, "still holds objects"),
            "PreconditionFailed" => precondition_failed(call, text),
            "ConditionalRequestConflict" | "OperationAborted" => conflict(call, text),
            "InvalidRange" => call.with_key(StoreError::InvalidRange, || StoreError::Invalid(text)),
            // The code of versitygw for an invalid path.
            "400" if call.key().is_some() => invalid_key(call, text),
            code if is_key_refused(code) => invalid_key(call, text),
            "RequestTimeTooSkewed" => StoreError::Denied(format!(
                "{text}; this machine's clock differs from the server's: set the clock"
            )),
            "SignatureDoesNotMatch" => {
                StoreError::Denied(format!("{text}; check the secret key and the region"))
            }
            "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "InvalidToken" => {
                StoreError::Denied(text)
            }
            "InvalidAccessKeyId" | "XAdminUserNotFound" => {
                StoreError::Denied(format!("{text}; check the access key"))
            }
            "ExpiredToken" => StoreError::Denied(format!("{text}; the session is over: get new credentials")),
            "InvalidObjectState" => {
                StoreError::Denied(format!("{text}; the object is archived: restore it first"))
            }
            "SlowDown"
            | "SlowDownRead"
            | "SlowDownWrite"
            | "RequestLimitExceeded"
            | "Throttling"
            | "ThrottlingException"
            | "TooManyRequests"
            | "ReduceYourRequestRate" => StoreError::Throttled(text),
            "InternalError" | "RequestTimeout" | "IncompleteBody" | "XMinioServerNotInitialized" => {
                StoreError::Unavailable(text)
            }
            "BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" => {
                StoreError::Corrupt(text)
            }
            "QuotaExceeded"
            | "XMinioStorageFull"
            | "XMinioAdminBucketQuotaExceeded"
            | "InsufficientCapacity" => StoreError::Full(text),
            "NotImplemented" | "MethodNotAllowed" => StoreError::Unsupported(text),
            _ => self.by_status(call, status, headers),
        }
    }

    /// Returns how certain it is that the server reports expired credentials or an unknown session; `None` if nothing
    /// suggests it.
    fn credentials_expired(&self, call: &Call, status: StatusCode) -> Option<ExpiryCertainty> {
        match self.code.as_str() {
            "ExpiredToken"
            | "ExpiredTokenException"
            | "TokenRefreshRequired"
            | "InvalidToken"
            | "InvalidAccessKeyId" => Some(ExpiryCertainty::Certain),
            "" if call.method == Method::HEAD && matches!(status.as_u16(), 400 | 401 | 403) => {
                Some(ExpiryCertainty::Possible)
            }
            _ => None,
        }
    }

    /// Returns whether a refusal may be due to a race in the server. If a directory is removed while a server on a file
    /// system makes an object in it, MinIO reports missing permissions, versitygw a bad key.
    fn may_be_transient(&self, call: &Call, headers: &HeaderMap) -> bool {
        let minio = headers.get(SERVER).is_some_and(|server| server == "MinIO");
        let writes = call.method != Method::GET && call.method != Method::HEAD && call.key().is_some();
        writes && ((minio && self.code == "AccessDenied") || self.code == "ExistingObjectIsDirectory")
    }

    /// Returns the error for a response whose code is not known, by its status.
    fn by_status(&self, call: &Call, status: StatusCode, headers: &HeaderMap) -> StoreError {
        let text = self.text(status);
        match status.as_u16() {
            300..=400 if self.region.is_some() && self.is_about_region() => self.wrong_region(call),
            300..=399 => {
                let to = headers.get("location").and_then(|v| v.to_str().ok()).unwrap_or("elsewhere");
                StoreError::Invalid(format!(
                    "{text}; the server points to {}: check the endpoint",
                    one_line(to)
                ))
            }
            401 | 403 => StoreError::Denied(text),
            404 if self.code.is_empty() => match call.target {
                Target::Bucket => StoreError::NoSuchBucket(call.bucket().to_owned()),
                _ => not_found(call),
            },
            405 | 501 => StoreError::Unsupported(text),
            409 => conflict(call, text),
            412 => precondition_failed(call, text),
            416 => call.with_key(StoreError::InvalidRange, || StoreError::Invalid(text)),
            429 | 503 => StoreError::Throttled(text),
            507 => StoreError::Full(text),
            408 | 500..=599 => StoreError::Unavailable(text),
            _ => StoreError::Invalid(text),
        }
    }

    /// Returns whether an error is about the bucket's region. Servers send the region with other errors too. Responses to
    /// HEAD have no code.
    fn is_about_region(&self) -> bool {
        matches!(
            self.code.as_str(),
            "" | "PermanentRedirect"
                | "TemporaryRedirect"
                | "AuthorizationHeaderMalformed"
                | "IllegalLocationConstraintException"
        )
    }

    /// Returns the error for a bucket in another region than the client's.
    fn wrong_region(&self, call: &Call) -> StoreError {
        let region = self.region.as_deref().unwrap_or_default();
        StoreError::Invalid(format!(
            "bucket '{}' is in region {region}: set the region to {region}",
            call.bucket()
        ))
    }
}

/// Returns whether a code means that the server cannot store the key.
fn is_key_refused(code: &str) -> bool {
    matches!(
        code,
        "KeyTooLongError"
            | "InvalidURI"
            | "XMinioInvalidObjectName"
            | "XMinioInvalidResourceName"
            | "XMinioParentIsObject"
            | "XMinioObjectExistsAsDirectory"
            | "ObjectParentIsFile"
            | "ExistingObjectIsDirectory"
            | "DirectoryObjectContainsData"
            | "DirectoryNotEmpty"
            | "InvalidObjectName"
    )
}

fn not_found(call: &Call) -> StoreError {
    match (
        call.source(),
        call.with_key(StoreError::NotFound, || StoreError::NoSuchBucket(call.bucket().to_owned())),
    ) {
        (Some(source), _) => StoreError::NotFound(source.clone()),
        (None, error) => error,
    }
}

fn precondition_failed(call: &Call, text: String) -> StoreError {
    call.with_key(StoreError::PreconditionFailed, || StoreError::Invalid(text))
}

/// Makes the error for concurrent writers. A PUT may be retried; after a refused completion, the upload must be begun
/// again with all its parts (S3 API reference).
fn conflict(call: &Call, text: String) -> StoreError {
    match call.kind {
        RequestKind::Complete => precondition_failed(call, text),
        _ => StoreError::Unavailable(text),
    }
}

fn bucket_state(call: &Call, reason: &str) -> StoreError {
    StoreError::BucketState { bucket: call.bucket().to_owned(), reason: reason.to_owned() }
}

fn invalid_key(call: &Call, reason: String) -> StoreError {
    let key = call.key().map(ToString::to_string).unwrap_or_default();
    StoreError::InvalidKey { key, reason }
}
