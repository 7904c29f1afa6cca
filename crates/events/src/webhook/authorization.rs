//! The header by which the two sides of a webhook authenticate.

use super::error::WebhookError;
use http::HeaderValue;
use std::fmt;

/// The value of the header `Authorization`, which authenticates Tenon to a receiver, or a sender to Tenon.
#[derive(Clone)]
pub struct Authorization(HeaderValue);

impl Authorization {
    /// Makes the header from a token, sent as `Bearer TOKEN`, or from two words, sent unchanged (`Basic ...`).
    pub fn of(token: &str) -> Result<Self, WebhookError> {
        let value = if token.contains(' ') { token.to_owned() } else { format!("Bearer {token}") };
        let mut value = HeaderValue::try_from(value).map_err(|_| WebhookError::Token)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    pub(super) fn header(&self) -> &HeaderValue {
        &self.0
    }

    /// Returns whether a header has the same value. The comparison takes constant time.
    pub fn is(&self, header: Option<&HeaderValue>) -> bool {
        let value = header.map(HeaderValue::as_bytes).unwrap_or_default();
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), value).is_ok()
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization")
    }
}
