//! Errors of a webhook's configuration.

/// An error of a webhook's configuration.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL is invalid.
    #[error("'{0}' is not a receiver's URL; write it as https://host/path")]
    Url(String),
    /// The URL contains a secret, which would be visible.
    #[error(
        "a URL must not contain a user or a password, because it is visible to others; use a token instead"
    )]
    Credentials,
    /// The token cannot be sent in a header.
    #[error("the token contains characters that an HTTP header cannot have")]
    Token,
    /// No certificate authority is trusted, or the CA bundle cannot be read.
    #[error(transparent)]
    Connect(#[from] connect::CertificateError),
}
