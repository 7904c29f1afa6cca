//! Signing keys (S3 API Reference, "Authenticating requests: AWS Signature Version 4").

use aws_lc_rs::{constant_time, digest, hmac};
use store::hex;

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The scope of a credential: `date/region/service/aws4_request`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scope(String);

impl Scope {
    /// Returns the part of a credential, `access-key/date/region/service/aws4_request`, behind the access key.
    pub(super) fn of(credential: &str) -> Option<Self> {
        credential.split_once('/').map(|(_, scope)| Self(scope.to_owned()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Derives the signing key of a secret for this scope.
    pub(super) fn key(&self, secret: &str) -> SigningKey {
        let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
        SigningKey(self.0.split('/').fold(first, |key, step| {
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, step.as_bytes()).as_ref())
        }))
    }
}

/// A derived signing key.
pub(super) struct SigningKey(hmac::Key);

impl SigningKey {
    /// Returns the signature of a text, in hexadecimal.
    pub(super) fn sign(&self, text: &str) -> String {
        hex(hmac::sign(&self.0, text.as_bytes()).as_ref())
    }
}

pub(super) fn is_equal_constant_time(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

/// Returns the SHA-256 of bytes, in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}
