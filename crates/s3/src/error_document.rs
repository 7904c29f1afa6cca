//! The XML of an error (S3 API Reference, "Error responses").
//!
//! `s3s` writes a code and its own message. This module writes S3's message for the code instead, and adds elements
//! with details, such as the invalid argument or the unknown access key.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};
use http_body_util::BodyExt as _;
use s3s::{Body, S3Error};
use std::fmt::Write as _;

/// Carries the detail elements of an error through `s3s`. Removed before the response is sent.
const DETAILS: HeaderName = HeaderName::from_static("x-tenon-error-details");

/// Adds detail elements to an error's XML.
pub(crate) fn with_details(mut error: S3Error, details: &[(&str, &str)]) -> S3Error {
    let xml = elements(details);
    let mut headers = error.headers().cloned().unwrap_or_default();
    if let Ok(value) = HeaderValue::from_bytes(xml.as_bytes()) {
        headers.insert(DETAILS, value);
    }
    error.set_headers(headers);
    error
}

/// Returns S3's message for a code, if it is always the same.
fn message(code: &str) -> Option<&'static str> {
    Some(match code {
        "BucketAlreadyOwnedByYou" => {
            "Your previous request to create the named bucket succeeded and you already own it."
        }
        "AccessControlListNotSupported" => "The bucket does not allow ACLs.",
        "EntityTooSmall" => "Your proposed upload is smaller than the minimum allowed size",
        "EntityTooLarge" => "Your proposed upload exceeds the maximum allowed object size.",
        "InternalError" => "We encountered an internal error, please try again.",
        "InvalidAccessKeyId" => "The AWS Access Key Id you provided does not exist in our records.",
        "InvalidBucketName" => "The specified bucket is not valid.",
        "InvalidURI" => "The specified URI couldn't be parsed.",
        "KeyTooLongError" => "Your key is too long.",
        "MalformedXML" | "MalformedACLError" => {
            "The XML you provided was not well-formed or did not validate against our published schema."
        }
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "NoSuchBucket" => "The specified bucket does not exist.",
        "NoSuchBucketPolicy" => "The bucket policy does not exist.",
        "NoSuchKey" => "The specified key does not exist.",
        "NoSuchTagSet" => "The TagSet does not exist.",
        "OwnershipControlsNotFoundError" => "The bucket ownership controls were not found.",
        "PreconditionFailed" => "At least one of the pre-conditions you specified did not hold.",
        "RequestTimeTooSkewed" => {
            "The difference between the request time and the current time is too large."
        }
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        }
        _ => return None,
    })
}

/// The parts of a request that errors repeat.
#[derive(Debug)]
pub(crate) struct ErrorContext {
    /// The path of the request, in path style.
    pub(crate) resource: String,
    pub(crate) method: String,
    /// The id of the upload that the request names.
    pub(crate) upload: Option<String>,
    /// The access key in the request's credential, which need not be verified.
    pub(crate) access_key: Option<String>,
}

impl ErrorContext {
    /// Returns the detail elements that follow from the code and the request.
    fn details(&self, code: &str) -> String {
        let path = percent_encoding::percent_decode_str(self.resource.trim_start_matches('/'));
        let path = path.decode_utf8_lossy();
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        let kind = match (bucket, key) {
            ("", _) => "SERVICE",
            (_, "") => "BUCKET",
            _ => "OBJECT",
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let length = key.len().to_string();
        match code {
            "NoSuchBucket"
            | "BucketNotEmpty"
            | "BucketAlreadyOwnedByYou"
            | "InvalidBucketName"
            | "NoSuchBucketPolicy"
            | "NoSuchTagSet"
            | "NoSuchWebsiteConfiguration"
            | "ObjectLockConfigurationNotFoundError"
            | "OwnershipControlsNotFoundError" => elements(&[("BucketName", bucket)]),
            "NoSuchKey" => elements(&[("Key", key)]),
            "NoSuchUpload" => elements(&[("UploadId", &text(&self.upload))]),
            "KeyTooLongError" => elements(&[("Size", &length), ("MaxSizeAllowed", "1024")]),
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
                elements(&[("AWSAccessKeyId", &text(&self.access_key))])
            }
            "MethodNotAllowed" => elements(&[("Method", &self.method), ("ResourceType", kind)]),
            _ => String::new(),
        }
    }
}

/// Returns details as XML elements.
fn elements(details: &[(&str, &str)]) -> String {
    let mut xml = String::new();
    for (name, value) in details {
        write!(xml, "<{name}>{}</{name}>", escaped(value)).ok();
    }
    xml
}

/// Completes an error response with S3's message and detail elements. Other responses stay unchanged.
pub(crate) async fn complete(response: Response<Body>, context: &ErrorContext, id: &str) -> Response<Body> {
    if !(response.status().is_client_error() || response.status().is_server_error()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Ok(body) = body.collect().await else { return Response::from_parts(head, Body::empty()) };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let details = head.headers.remove(DETAILS);
    let mut details = details
        .as_ref()
        .map(HeaderValue::as_bytes)
        .map(String::from_utf8_lossy)
        .unwrap_or_default()
        .into_owned();
    let body = match element(&body, "Code") {
        Some(code) => {
            if details.is_empty() {
                details = context.details(code);
            }
            document(code, element(&body, "Message"), &details, &context.resource, id)
        }
        None => body,
    };
    if !body.is_empty() {
        // The error's headers have replaced those of `s3s`, Content-Type included.
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    }
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Response::from_parts(head, Body::from(body))
}

/// Returns the XML document of an error.
fn document(code: &str, s3s_message: Option<&str>, details: &str, resource: &str, id: &str) -> String {
    let given =
        s3s_message.map(|given| if given == "Request has expired" { "Request has expired." } else { given });
    let message = message(code).or(given).unwrap_or_default();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{details}<Resource>{}</Resource><RequestId>{id}</RequestId><HostId>tenon</HostId></Error>",
        escaped(resource)
    )
}

/// Returns the raw text of the first element of this name.
fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Escapes text for XML. Characters that XML cannot represent become U+FFFD.
pub(crate) fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            c if c < ' ' => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_documents_have_the_standard_message_and_details() {
        let xml = document("NoSuchKey", Some("gone"), "<Key>a</Key>", "/b/<", "1");
        assert!(xml.contains("<Message>The specified key does not exist.</Message><Key>a</Key>"), "{xml}");
        assert!(xml.contains("<Resource>/b/&lt;</Resource>"), "{xml}");
        let xml = document("InvalidArgument", Some("so &amp; so"), "", "/", "1");
        assert!(xml.contains("<Message>so &amp; so</Message>"), "{xml}");
    }
}
