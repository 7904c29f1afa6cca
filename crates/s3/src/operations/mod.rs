//! The table of S3's operations, by method, kind of resource and sub-resource in the query.
//!
//! A request that is not in the table is refused before its signature is checked and before its body is read. This
//! matters because `s3s` ignores a sub-resource that does not go with the method: `DELETE key?acl` would delete the
//! object, and `PUT key?encryption` would overwrite it.
//!
//! Invariants: a request has at most one sub-resource; no query parameter occurs twice; parameter names are compared
//! decoded, here and in `s3s`. The value of a sub-resource is ignored, as at AWS.

use http::{Method, Uri};
use s3s::{S3Error, S3Result, s3_error};

use crate::authentication::invalid_argument;
use crate::error::not_implemented;

/// The kind of resource that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    Service,
    Bucket,
    Object,
}

/// The support for one method of one sub-resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    /// S3 has no such operation.
    No,
    /// S3 has the operation; this endpoint does not implement it.
    Aws,
    /// This endpoint implements the operation.
    Yes,
    /// This endpoint implements the operation, and its request body is an XML or JSON document.
    Doc,
}

use Support::{Aws, Doc, No, Yes};

/// A sub-resource, and the support for its GET, PUT, POST and DELETE.
type Row = (&'static str, [Support; 4]);

/// Operations on the service: ListBuckets, and requests to STS.
const SERVICE: [Row; 1] = [("", [Yes, No, Yes, No])];

/// Operations on buckets, by sub-resource (S3 API Reference, "Actions"). POST without a sub-resource is a browser-based
/// upload.
const BUCKET: [Row; 32] = [
    ("", [Yes, Yes, Yes, Yes]),
    ("abac", [Aws, Aws, No, No]),
    ("accelerate", [Aws, Aws, No, No]),
    ("acl", [Yes, Doc, No, No]),
    ("analytics", [Aws, Aws, No, Aws]),
    ("cors", [Yes, Doc, No, Yes]),
    ("delete", [No, No, Doc, No]),
    ("encryption", [Aws, Aws, No, Aws]),
    ("intelligent-tiering", [Aws, Aws, No, Aws]),
    ("inventory", [Aws, Aws, No, Aws]),
    ("lifecycle", [Yes, Doc, No, Yes]),
    ("location", [Yes, No, No, No]),
    ("logging", [Aws, Aws, No, No]),
    ("metadataConfiguration", [Aws, No, Aws, Aws]),
    ("metadataInventoryTable", [No, Aws, No, No]),
    ("metadataJournalTable", [No, Aws, No, No]),
    ("metadataTable", [Aws, No, Aws, Aws]),
    ("metrics", [Aws, Aws, No, Aws]),
    ("notification", [Yes, Doc, No, No]),
    ("object-lock", [Yes, Doc, No, No]),
    ("ownershipControls", [Yes, Doc, No, Yes]),
    ("policy", [Yes, Doc, No, Yes]),
    ("policyStatus", [Yes, No, No, No]),
    ("publicAccessBlock", [Aws, Aws, No, Aws]),
    ("replication", [Aws, Aws, No, Aws]),
    ("requestPayment", [Aws, Aws, No, No]),
    ("session", [Aws, No, No, No]),
    ("tagging", [Yes, Doc, No, Yes]),
    ("uploads", [Yes, No, No, No]),
    ("versioning", [Yes, Doc, No, No]),
    ("versions", [Yes, No, No, No]),
    ("website", [Yes, Doc, No, Yes]),
];

/// Operations on objects, by sub-resource.
const OBJECT: [Row; 13] = [
    ("", [Yes, Yes, No, Yes]),
    ("acl", [Yes, Doc, No, No]),
    ("attributes", [Yes, No, No, No]),
    ("encryption", [No, Aws, No, No]),
    ("legal-hold", [Yes, Doc, No, No]),
    ("renameObject", [No, Yes, No, No]),
    ("restore", [No, No, Aws, No]),
    ("retention", [Yes, Doc, No, No]),
    ("select", [No, No, Aws, No]),
    ("tagging", [Yes, Doc, No, Yes]),
    ("torrent", [Aws, No, No, No]),
    ("uploadId", [Yes, Yes, Doc, Yes]),
    ("uploads", [No, No, Yes, No]),
];

/// Query parameters that refine an operation. Reads accept all of them, since a read that ignores a parameter changes
/// nothing.
const PARAMETERS: [&str; 35] = [
    "allow-unordered",
    "bucket-region",
    "cachebuster",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "id",
    "key-marker",
    "list-type",
    "marker",
    "max-buckets",
    "max-directory-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "prefix",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "select-type",
    "skipDestinationValidation",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
    "versionId",
    "x-id",
    "AWSAccessKeyId",
    "Signature",
    "Expires",
];

/// Parameters that every operation accepts: the operation's name, cache busters, and signatures.
const COMMON_PARAMETERS: [&str; 5] = ["cachebuster", "x-id", "AWSAccessKeyId", "Signature", "Expires"];

/// Refuses a request that names no operation of this endpoint, or several, or a parameter that its operation does not
/// take.
pub(crate) fn check(method: &Method, kind: ResourceKind, query: &str) -> S3Result<()> {
    let names: Vec<String> =
        parameters(query).map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        return Err(not_implemented(&format!("A query with '{name}'")));
    }
    if let Some(name) = find_repeated(&names) {
        return Err(invalid_argument("A query parameter is given more than once", name, ""));
    }
    let named: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_sub_resource(name)).collect();
    if let [first, _, ..] = named.as_slice() {
        let message = format!("Conflicting query string parameters: {}", named.join(", "));
        return Err(invalid_argument(&message, "ResourceType", first));
    }
    let sub_resource = named.first().copied().unwrap_or_default();
    match support(method, kind, sub_resource) {
        No => return Err(s3_error!(MethodNotAllowed)),
        Aws => return Err(not_implemented(&format!("{method} of {sub_resource}"))),
        Yes | Doc => {}
    }
    check_list_type(query)?;
    check_parameters(method, kind, sub_resource, &names)
}

/// Whether a request's query has a parameter.
pub(crate) fn has_parameter(uri: &Uri, name: &str) -> bool {
    parameters(uri.query().unwrap_or_default()).any(|(parameter, _)| parameter == name)
}

/// Whether an operation of the table may change the bytes of objects.
#[cfg(feature = "fuzz")]
pub(crate) fn writes_bytes(method: &Method, kind: ResourceKind, query: &str) -> bool {
    let named =
        parameters(query).map(|(name, _)| name).find(|name| is_sub_resource(name)).unwrap_or_default();
    check(method, kind, query).is_ok()
        && matches!(
            (method.as_str(), kind, named.as_str()),
            ("PUT", ResourceKind::Object, "" | "renameObject")
                | ("POST", ResourceKind::Object, "uploadId")
                | ("POST", ResourceKind::Bucket, "" | "delete")
                | ("DELETE", ResourceKind::Object | ResourceKind::Bucket, "")
        )
}

/// Whether the body of a request with this query is a document, which is read whole.
pub(crate) fn has_document_body(method: &Method, query: &str) -> bool {
    let is_doc = |kind, name: &str| support(method, kind, name) == Doc;
    parameters(query)
        .any(|(name, _)| is_doc(ResourceKind::Bucket, &name) || is_doc(ResourceKind::Object, &name))
}

fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    url::form_urlencoded::parse(query.as_bytes()).into_owned()
}

fn is_amz(name: &str) -> bool {
    name.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("x-amz-"))
}

fn is_known(name: &str) -> bool {
    is_amz(name) || is_sub_resource(name) || PARAMETERS.contains(&name)
}

fn is_sub_resource(name: &str) -> bool {
    let is_in = |rows: &[Row]| rows.iter().any(|(row, _)| *row == name && !row.is_empty());
    is_in(&BUCKET) || is_in(&OBJECT)
}

/// Returns a parameter that occurs twice. Names that begin with `x-amz-` are compared without regard to case.
fn find_repeated(names: &[String]) -> Option<&str> {
    let is_same = |a: &str, b: &str| a == b || (is_amz(a) && a.eq_ignore_ascii_case(b));
    let mut rest = names.iter().enumerate();
    rest.find(|(at, name)| names[..*at].iter().any(|earlier| is_same(name, earlier)))
        .map(|(_, name)| name.as_str())
}

/// The parameters that make up the signature of a presigned URL.
const SIGNATURE_PARAMETERS: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// Whether a parameter belongs to the signature of a presigned URL.
pub(crate) fn is_signature_parameter(name: &str) -> bool {
    SIGNATURE_PARAMETERS.contains(&name)
}

fn support(method: &Method, kind: ResourceKind, sub_resource: &str) -> Support {
    let rows: &[Row] = match kind {
        ResourceKind::Service => &SERVICE,
        ResourceKind::Bucket => &BUCKET,
        ResourceKind::Object => &OBJECT,
    };
    let column = match method.as_str() {
        "GET" => 0,
        "PUT" => 1,
        "POST" => 2,
        "DELETE" => 3,
        "HEAD" if kind != ResourceKind::Service && sub_resource.is_empty() => return Yes,
        _ => return No,
    };
    rows.iter().find(|(name, _)| *name == sub_resource).map_or(No, |(_, methods)| methods[column])
}

fn check_list_type(query: &str) -> S3Result<()> {
    match parameters(query).find(|(name, _)| name == "list-type") {
        Some((name, value)) if !["1", "2"].contains(&value.as_str()) => {
            Err(invalid_argument("Invalid List Type specified in Query", &name, &value))
        }
        _ => Ok(()),
    }
}

/// Refuses parameters that a write would silently ignore: a part number without an upload id, a version id where the
/// operation takes none.
fn check_parameters(
    method: &Method,
    kind: ResourceKind,
    sub_resource: &str,
    names: &[String],
) -> S3Result<()> {
    if [Method::GET, Method::HEAD].contains(method) {
        return Ok(());
    }
    let takes_version = match (method.as_str(), sub_resource) {
        ("PUT", "acl" | "legal-hold" | "retention" | "tagging") | ("DELETE", "" | "tagging") => {
            kind == ResourceKind::Object
        }
        _ => false,
    };
    let is_part = *method == Method::PUT && sub_resource == "uploadId";
    if is_part && !names.iter().any(|name| name == "partNumber") {
        return Err(invalid_argument("This operation needs a part number.", "partNumber", ""));
    }
    let takes = |name: &str| match name {
        "versionId" => takes_version,
        "partNumber" => is_part,
        "skipDestinationValidation" => sub_resource == "notification",
        name => name == sub_resource || is_amz(name) || COMMON_PARAMETERS.contains(&name),
    };
    match names.iter().find(|name| !takes(name)) {
        None => Ok(()),
        Some(name) => Err(unsupported_parameter(name)),
    }
}

fn unsupported_parameter(name: &str) -> S3Error {
    let message = match name {
        "versionId" => "This operation does not accept a version-id.".to_owned(),
        name => format!("This operation does not accept the query parameter {name}."),
    };
    invalid_argument(&message, name, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &Method, kind: ResourceKind, query: &str) -> Option<String> {
        check(method, kind, query).err().map(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn operations_are_checked_against_the_table() {
        use ResourceKind::{Bucket, Object, Service};
        for (method, kind, query, expected) in [
            (Method::GET, Bucket, "list-type=2&prefix=a%2Fb", None),
            (Method::PUT, Object, "uploadId=1&partNumber=2&x-id=UploadPart", None),
            (Method::PUT, Object, "x-amz-meta-a=b&X-Amz-Signature=0", None),
            (Method::PUT, Object, "append&position=0", Some("NotImplemented")),
            (Method::GET, Service, "", None),
            (Method::DELETE, Object, "acl", Some("MethodNotAllowed")),
            (Method::DELETE, Object, "%61cl", Some("MethodNotAllowed")),
            (Method::DELETE, Object, "acl=value", Some("MethodNotAllowed")),
            (Method::PUT, Object, "encryption", Some("NotImplemented")),
            (Method::PUT, Object, "acl&tagging", Some("InvalidArgument")),
            (Method::PUT, Object, "acl&acl", Some("InvalidArgument")),
            (Method::PUT, Object, "x-amz-acl=private&X-amz-acl=public-read", Some("InvalidArgument")),
            (Method::PUT, Object, "uploadId=1", Some("InvalidArgument")),
            (Method::PUT, Object, "partNumber=1", Some("InvalidArgument")),
            (Method::PUT, Object, "versionId=1", Some("InvalidArgument")),
            (Method::DELETE, Object, "versionId=1", None),
            (Method::DELETE, Bucket, "prefix=x", Some("InvalidArgument")),
            (Method::GET, Bucket, "list-type=3", Some("InvalidArgument")),
            (Method::PUT, Object, "", None),
            (Method::PATCH, Object, "", Some("MethodNotAllowed")),
            (Method::HEAD, Service, "", Some("MethodNotAllowed")),
        ] {
            assert_eq!(code(&method, kind, query).as_deref(), expected, "{method} {kind:?} {query}");
        }
    }

    #[test]
    fn parameter_names_are_compared_decoded() {
        let uri: Uri = "/b/k?rename%4Fbject".parse().unwrap();
        assert!(has_parameter(&uri, "renameObject") && !has_parameter(&uri, "rename"));
        assert!(
            has_document_body(&Method::PUT, "%61cl")
                && !has_document_body(&Method::PUT, "uploadId=1&partNumber=1")
        );
    }
}
