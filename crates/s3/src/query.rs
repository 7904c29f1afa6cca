//! What a request's query may say.
//!
//! A server that overlooks a word it does not know does something else than was asked: a rename becomes a PUT of nothing,
//! and data is lost. Here such a request is refused.

use http::Method;

/// Words that name an operation or an argument of one, in the AWS documentation of S3's API.
const KNOWN: [&str; 84] = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "allow-unordered",
    "bucket-region",
    "continuation-token",
    "cors",
    "delete",
    "delimiter",
    "encoding-type",
    "encryption",
    "events",
    "fetch-owner",
    "id",
    "intelligent-tiering",
    "inventory",
    "key-marker",
    "legal-hold",
    "lifecycle",
    "list-type",
    "location",
    "logging",
    "marker",
    "max-buckets",
    "max-directory-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "part-number-marker",
    "partNumber",
    "policy",
    "policyStatus",
    "prefix",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "skipDestinationValidation",
    "start-after",
    "tagging",
    "torrent",
    "upload-id-marker",
    "uploadId",
    "uploads",
    "version-id-marker",
    "versionId",
    "versioning",
    "versions",
    "website",
    "x-id",
    "AWSAccessKeyId",
    "Signature",
    "Expires",
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
    "x-amz-checksum-mode",
    "x-amz-acl",
    "x-amz-user-agent",
    "x-amz-object-attributes",
    "cachebuster",
    "abac",
];

/// The first word of a query that this endpoint does not know.
pub(crate) fn unknown_word(query: &str) -> Option<String> {
    let words = url::form_urlencoded::parse(query.as_bytes()).map(|(word, _)| word.into_owned());
    words.into_iter().find(|word| !is_known(word))
}

/// Whether a request's query has a word.
pub(crate) fn has_word(uri: &http::Uri, name: &str) -> bool {
    uri.query().unwrap_or_default().split('&').any(|word| word.split('=').next() == Some(name))
}

/// Whether the body of a request with this query is a document, which is read as a whole.
pub(crate) fn is_document(method: &Method, query: &str) -> bool {
    let has = |name: &str| query.split('&').any(|word| word.split('=').next() == Some(name));
    match *method {
        Method::POST => has("delete") || has("uploadId") || has("restore") || has("select"),
        Method::PUT => !query.is_empty() && !has("partNumber") && DOCUMENTS.iter().any(|name| has(name)),
        _ => false,
    }
}

/// What a PUT sets by a document.
const DOCUMENTS: [&str; 22] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "retention",
    "tagging",
    "versioning",
    "website",
];

fn is_known(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    KNOWN.contains(&word) || lower.starts_with("x-amz-") || word.is_empty()
}

#[cfg(test)]
mod tests {
    use super::unknown_word;

    #[test]
    fn what_is_not_known_is_named() {
        assert_eq!(unknown_word("list-type=2&prefix=a%2Fb"), None);
        assert_eq!(unknown_word("uploadId=1&partNumber=2&x-id=UploadPart"), None);
        assert_eq!(unknown_word("x-amz-meta-a=b&X-Amz-Signature=0"), None);
        assert_eq!(unknown_word("append&position=0"), Some("append".to_owned()));
        assert_eq!(unknown_word(""), None);
    }
}
