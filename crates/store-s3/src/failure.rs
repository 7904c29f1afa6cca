//! Failed attempts, and the texts of transport errors. No message contains a secret.

use super::credentials::{CredentialsError, ExpiryCertainty};
use std::error::Error;
use std::time::Duration;
use store::StoreError;

/// Maximum length of a server's text in an error message, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// The failure of one attempt at a request.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// S3's error code; empty if there is none.
    pub(super) code: String,
    /// Whether the request may have taken effect.
    pub(super) ambiguous: bool,
    /// Whether the refusal may be transient although the error code says otherwise.
    pub(super) may_be_transient: bool,
    /// The pause that the server requested.
    pub(super) retry_after: Option<Duration>,
    /// How certain it is that the credentials have expired; `None` if nothing suggests it.
    pub(super) credentials_expired: Option<ExpiryCertainty>,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            code: String::new(),
            ambiguous: false,
            may_be_transient: false,
            retry_after: None,
            credentials_expired: None,
        }
    }
}

impl From<CredentialsError> for Failure {
    fn from(error: CredentialsError) -> Self {
        let text = error.to_string();
        if error.may_pass() { StoreError::Unavailable(text).into() } else { StoreError::Denied(text).into() }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Failure {
    /// Makes a failure for a missing or incomplete response. The request may have taken effect.
    pub(super) fn no_response(text: impl Into<String>) -> Self {
        Self { ambiguous: true, ..StoreError::Unavailable(text.into()).into() }
    }

    /// Makes a failure for a malformed response.
    pub(super) fn malformed(text: impl Into<String>) -> Self {
        Self { ambiguous: true, ..StoreError::Corrupt(text.into()).into() }
    }

    /// Makes a failure of connecting: the server did not receive the request.
    pub(super) fn not_connected(text: String) -> Self {
        StoreError::Unavailable(text).into()
    }
}

/// Formats a transport error and its causes on one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    one_line(&text)
}

/// Makes a server's text safe for a log line: one line, without control characters, of limited length.
pub(super) fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
}
