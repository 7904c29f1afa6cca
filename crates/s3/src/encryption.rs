//! Server-side encryption: the endpoint itself encrypts nothing.
//!
//! Requests for encryption are refused, since their senders would believe that the data is encrypted. An operator whose
//! disks are encrypted can state that ([`crate::EndpointOptions::encrypted`]). Then `AES256` applies to every object,
//! as at AWS, and responses show it (S3 User Guide, "Protecting data with server-side encryption"). KMS keys and
//! customer keys are always refused.

use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Result, s3_error};

use crate::error::{invalid_argument, not_implemented};

const HEADER: HeaderName = HeaderName::from_static("x-amz-server-side-encryption");
const ALGORITHM: HeaderValue = HeaderValue::from_static("AES256");

/// Beginnings of headers that name customer or KMS keys, for new objects and for sources of copies.
const KEYS: [&str; 2] = ["x-amz-server-side-encryption-", "x-amz-copy-source-server-side-encryption-"];

/// Refuses a request for encryption that the endpoint does not have.
pub(crate) fn check(headers: &HeaderMap, is_encrypted: bool) -> S3Result<()> {
    let mut names = headers.keys().map(HeaderName::as_str);
    if let Some(name) = names.find(|name| KEYS.iter().any(|begin| name.starts_with(begin))) {
        return Err(s3_error!(
            NotImplemented,
            "A header you provided implies functionality that is not implemented: {name}"
        ));
    }
    let wanted = headers.get_all(HEADER).iter().find(|value| !is_encrypted || **value != ALGORITHM);
    match wanted.map(HeaderValue::as_bytes) {
        None => Ok(()),
        Some(b"AES256") => Err(not_implemented(
            "Server-side encryption with AES256 (unless the endpoint is started with --encrypted-at-rest)",
        )),
        Some(b"aws:kms" | b"aws:kms:dsse" | b"aws:fsx") => Err(not_implemented("Encryption with KMS keys")),
        Some(other) => {
            let message = "The encryption method specified is not supported";
            Err(invalid_argument(message, HEADER.as_str(), &String::from_utf8_lossy(other)))
        }
    }
}

/// The header of responses that create or show an object, if all data is encrypted at rest.
pub(crate) const RESPONSE_HEADER: (HeaderName, HeaderValue) = (HEADER, ALGORITHM);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_encryption_is_refused() {
        for (name, value, plain, encrypted) in [
            ("x-amz-server-side-encryption", "AES256", Some("NotImplemented"), None),
            ("x-amz-server-side-encryption", "aws:kms", Some("NotImplemented"), Some("NotImplemented")),
            ("x-amz-server-side-encryption", "aws:kms:dsse", Some("NotImplemented"), Some("NotImplemented")),
            ("x-amz-server-side-encryption", "garbage", Some("InvalidArgument"), Some("InvalidArgument")),
            ("x-amz-server-side-encryption", "", Some("InvalidArgument"), Some("InvalidArgument")),
            (
                "x-amz-server-side-encryption-bucket-key-enabled",
                "true",
                Some("NotImplemented"),
                Some("NotImplemented"),
            ),
            ("x-amz-acl", "private", None, None),
        ] {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )]);
            let code = |is_encrypted| {
                check(&headers, is_encrypted).err().map(|error| error.code().as_str().to_owned())
            };
            assert_eq!(
                (code(false).as_deref(), code(true).as_deref()),
                (plain, encrypted),
                "{name}: {value}"
            );
        }
    }
}
