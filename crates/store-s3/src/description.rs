//! The headers that describe a new object: attributes, tags, and the configuration's encryption and storage class.

use super::call::Call;
use super::client::Client;
use super::escape;
use super::headers::{ENCRYPTION, ENCRYPTION_KEY, STORAGE_CLASS, SYSTEM, USER_PREFIX, value};
use http::header::{CONTENT_TYPE, HeaderName};
use store::{Attributes, Result, StoreError, Tags};

const TAGGING: HeaderName = HeaderName::from_static("x-amz-tagging");

impl Client {
    /// Adds the headers of a new object: attributes, tags, and the configuration's encryption and storage class.
    pub(super) fn add_description(&self, call: Call, attributes: &Attributes, tags: &Tags) -> Result<Call> {
        let call = self.add_attributes(call, attributes)?;
        if tags.is_empty() { Ok(call) } else { add_tags(call, tags) }
    }

    /// Adds attributes and the configuration's encryption and storage class.
    pub(super) fn add_attributes(&self, call: Call, attributes: &Attributes) -> Result<Call> {
        // An object's own encryption overrides the configuration's.
        let is_protected = attributes.system.contains_key(ENCRYPTION);
        let mut call = if is_protected { call } else { self.add_encryption(call)? };
        if let Some(text) = &attributes.content_type {
            call = call.header(CONTENT_TYPE, value("Content-Type", text)?);
        }
        for (name, text) in &attributes.system {
            let known = SYSTEM.iter().find(|known| **known == name.as_str());
            let known =
                known.ok_or_else(|| StoreError::Invalid(format!("'{name}' is not a descriptive header")))?;
            call = call.header(HeaderName::from_static(known), value(name, text)?);
        }
        for (name, text) in &attributes.user {
            call = call.header(user_name(name)?, value(name, &escape::metadata_value(text))?);
        }
        if let Some(class) = attributes.storage_class.as_ref().or(self.config.storage_class.as_ref()) {
            call = call.header(STORAGE_CLASS, value("storage class", class)?);
        }
        Ok(call)
    }

    /// Adds the headers of the encryption and the KMS key that the configuration sets for new objects.
    pub(super) fn add_encryption(&self, mut call: Call) -> Result<Call> {
        if let Some(encryption) = &self.config.encryption {
            call = call.header(HeaderName::from_static(ENCRYPTION), value("encryption", encryption)?);
        }
        if let Some(key) = &self.config.encryption_key {
            call = call.header(HeaderName::from_static(ENCRYPTION_KEY), value("encryption key", key)?);
        }
        Ok(call)
    }
}

/// Adds the header of the tags, also for an empty set.
pub(super) fn add_tags(call: Call, tags: &Tags) -> Result<Call> {
    Ok(call.header(TAGGING, value("tags", &tagging(tags))?))
}

/// Returns the header of a name of user metadata. Fails for a name that S3 does not keep as it is.
fn user_name(name: &str) -> Result<HeaderName> {
    let lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let header = HeaderName::from_bytes(format!("{USER_PREFIX}{name}").as_bytes());
    header.ok().filter(|_| lower && !name.is_empty()).ok_or_else(|| {
        StoreError::Invalid(format!("invalid metadata name {name:?}: use lower-case letters, digits and '-'"))
    })
}

/// Encodes tags as a query string, as S3 requires.
pub(super) fn tagging(tags: &Tags) -> String {
    let pairs = tags.iter().map(|(name, value)| format!("{}={}", escape::query(name), escape::query(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_headers_are_refused() {
        for name in ["", "Upper", "with space", "ü"] {
            assert!(matches!(user_name(name), Err(StoreError::Invalid(_))), "{name}");
        }
    }
}
