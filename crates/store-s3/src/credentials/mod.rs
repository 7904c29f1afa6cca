//! Credentials for signing requests: their sources, and the search for them.
//!
//! [`Search`] reads the environment (passed as a function, because only the cli reads it) and the files of the AWS
//! tools, and returns a [`CredentialsSource`], such as a [`Provider`]. A [`CredentialsCache`] gets credentials from
//! the provider, caches them and renews them before they expire. Order and meaning of the settings follow the AWS
//! SDKs and Tools Reference Guide, "Standardized credential providers".
//!
//! This module never shows a secret (in `Debug`, an error or a command line), calls no provider before the first
//! request or an explicit sign-in, and does not read the machine's clock directly.

mod container;
mod credentials_cache;
mod document;
#[cfg(feature = "fuzz")]
mod fuzz;
mod instance;
mod process;
mod profile;
mod provider;
mod provider_request;
mod role;
mod search;
mod sso;
mod sts;
mod web_identity;

pub(super) use credentials_cache::CredentialsCache;
#[cfg(feature = "fuzz")]
pub(super) use fuzz::{documents as fuzz_documents, files as fuzz_files};
pub use provider::Provider;
pub(super) use provider_request::ProviderContext;
pub use search::{Found, Search};

use std::fmt;
use std::sync::Arc;
use store::Timestamp;

/// An access key, its secret key, and the session token of temporary credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
}

/// How certain it is from a server's response that credentials have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpiryCertainty {
    /// The server's error code says that the credentials have expired or are invalid.
    Certain,
    /// A refusal may have other reasons: responses to HEAD have no error code.
    Possible,
}

/// The reason why there are no credentials. Every message is one line and contains no secret.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum CredentialsError {
    /// No credentials were found; contains the places searched.
    #[error(
        "no credentials: looked at {0}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ask for anonymous access"
    )]
    Missing(String),
    /// Incomplete or malformed credentials or settings.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file or environment variable with the error.
        place: String,
        /// The error in the file or variable.
        reason: String,
    },
    /// No file contains the requested profile.
    #[error("no profile '{name}' in {files}")]
    NoSuchProfile {
        /// The profile's name.
        name: String,
        /// The files that were searched for the profile.
        files: String,
    },
    /// A provider returned no credentials.
    #[error("no credentials from {provider}: {reason}")]
    Failed {
        /// Name of the provider that failed.
        provider: String,
        /// The reason, and what to do about it.
        reason: String,
        /// Whether the error may be transient.
        may_pass: bool,
    },
}

/// The source of a client's credentials.
#[derive(Debug, Clone)]
pub enum CredentialsSource {
    /// Requests are not signed.
    Anonymous,
    /// Fixed credentials, which are never renewed.
    Fixed(Arc<Credentials>),
    /// Credentials from a provider, requested for the first request and renewed before they expire.
    Provider(Arc<Provider>),
}

/// Credentials and their expiry time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpiringCredentials {
    credentials: Credentials,
    ends: Option<Timestamp>,
}

/// A text that is never shown in messages.
#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl Credentials {
    /// Makes credentials of their parts, which must be printable ASCII, because they are sent in headers.
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

    /// Makes credentials of optional parts; `None` without both keys. An access key without a secret key, or the
    /// reverse, is an error that names `place`.
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

    /// Returns the access key, which is not secret.
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

    /// Returns whether the error may be transient.
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
