//! Who signs the requests, and where that is found.
//!
//! [`Search`] reads what there is (the environment comes as a function: only the cli reads it; the files of the AWS
//! tools) and says who can give credentials: a [`Provider`]. A [`Keyring`](keyring::Keyring) asks it, keeps what it
//! gave, and asks again in time. The order and the meaning of the settings are those of the AWS SDKs and Tools
//! Reference Guide, "Standardized credential providers".
//!
//! Refuses: to show a secret (not in `Debug`, not in an error, not in a command line), to ask anybody before the
//! first request, to read the clock.

mod ask;
mod container;
mod document;
#[cfg(feature = "fuzz")]
mod fuzz;
mod instance;
mod keyring;
mod process;
mod profile;
mod provider;
mod role;
mod search;
mod sso;
mod web_identity;

pub(super) use ask::World;
#[cfg(feature = "fuzz")]
pub(super) use fuzz::{documents as fuzz_documents, files as fuzz_files};
pub(super) use keyring::{Doubt, Keyring};
pub use provider::Provider;
pub use search::{Found, Search};

use crate::Timestamp;
use std::fmt;
use std::sync::Arc;

/// An access key and its secret, and the token of a temporary session.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
}

/// Why credentials could not be had. Every text is one line and holds no secret.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum CredentialsError {
    /// No place has any; holds the places.
    #[error(
        "no credentials: looked at {0}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ask for anonymous access"
    )]
    Missing(String),
    /// A place has one half only, or something that is no credential.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file or variable.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A profile that was asked for is in no file.
    #[error("no profile '{name}' in {files}")]
    NoSuchProfile {
        /// The profile's name.
        name: String,
        /// The files looked at.
        files: String,
    },
    /// Who should give credentials does not.
    #[error("no credentials from {provider}: {reason}")]
    Failed {
        /// Who it is.
        provider: String,
        /// What is wrong, and what to do about it.
        reason: String,
        /// Whether it may be otherwise a moment later.
        may_pass: bool,
    },
}

/// Where a client's credentials come from.
#[derive(Debug, Clone)]
pub enum CredentialsSource {
    /// Requests are not signed.
    Anonymous,
    /// The same for the client's whole life.
    Fixed(Arc<Credentials>),
    /// Asked for when the first request is sent, and again before they end.
    Provider(Arc<Provider>),
}

/// Credentials, and when they end by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    credentials: Credentials,
    ends: Option<Timestamp>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl Credentials {
    /// Credentials of these parts; they must be printable ASCII, as they travel in headers.
    pub fn new(
        access_key: &str,
        secret_key: &str,
        session_token: Option<&str>,
    ) -> Result<Self, CredentialsError> {
        let parts = [
            ("access key", Some(access_key)),
            ("secret key", Some(secret_key)),
            ("session token", session_token),
        ];
        for (name, text) in parts {
            if text.is_some_and(|text| text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic())) {
                let reason = "empty, or holds white space or other characters no key has".to_owned();
                return Err(CredentialsError::Malformed { place: name.to_owned(), reason });
            }
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            session_token: session_token.map(str::to_owned),
        })
    }

    /// Credentials of two halves that must come together.
    fn pair(
        place: &str,
        access_key: Option<String>,
        secret_key: Option<String>,
        session_token: Option<String>,
    ) -> Result<Option<Self>, CredentialsError> {
        let malformed = |reason: &str| CredentialsError::malformed(place, reason);
        match (access_key, secret_key) {
            (None, None) => Ok(None),
            (Some(access), Some(secret)) => Self::new(&access, &secret, session_token.as_deref())
                .map(Some)
                .map_err(|error| malformed(&error.to_string())),
            (Some(_), None) => Err(malformed("an access key without its secret key")),
            (None, Some(_)) => Err(malformed("a secret key without its access key")),
        }
    }

    /// The public half.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    pub(super) fn secret_key(&self) -> &str {
        &self.secret_key
    }

    pub(super) fn session_token(&self) -> Option<&str> {
        self.session_token.as_deref()
    }
}

impl CredentialsError {
    fn malformed(place: &str, reason: &str) -> Self {
        Self::Malformed { place: place.to_owned(), reason: reason.to_owned() }
    }

    /// Whether it may be otherwise a moment later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Failed { may_pass: true, .. })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl From<Credentials> for CredentialsSource {
    fn from(credentials: Credentials) -> Self {
        Self::Fixed(Arc::new(credentials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let credentials = Credentials::new("AKIA", "hush-secret", Some("hush-token")).unwrap();
        assert!(!format!("{:?}", CredentialsSource::from(credentials)).contains("hush"));
        assert!(!format!("{:?}", Secret("hush".to_owned())).contains("hush"));
    }

    #[test]
    fn keys_with_white_space_are_refused() {
        assert!(Credentials::new("A", "with\nnewline", None).is_err());
        assert!(Credentials::new("", "x", None).is_err());
    }
}
