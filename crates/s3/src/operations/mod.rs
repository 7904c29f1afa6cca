//! The operations of S3 that a request can name.
//!
//! One table says everything about an operation: how a request names it, which body it has and what that may cost, which
//! IAM actions it needs, which parameters it takes, how it changes objects, what its response looks like, and which code
//! runs it. Routing, the refusal of unknown requests, authorization, the limits of documents and the tests follow from it.
//!
//! A request that is not in the table is refused before its signature is checked and before its body is read. This
//! matters because `s3s` ignores a sub-resource that does not go with the method: `DELETE key?acl` would delete the
//! object, and `PUT key?encryption` would overwrite it.
//!
//! Invariants: a request has at most one sub-resource; no query parameter occurs twice; the value of a sub-resource is
//! ignored, as at AWS.

mod table;

use http::{HeaderMap, Method};
use s3s::{S3Error, S3Result, s3_error};

use crate::error::{invalid_argument, not_implemented};
use crate::query::Query;

use table::PREFLIGHT;
pub(crate) use table::{DOCUMENT_BYTES_MAX, OPERATIONS};

/// The kind of resource that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    Service,
    Bucket,
    Object,
}

/// An operation: a row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    /// The name in S3's API.
    pub(crate) name: &'static str,
    pub(crate) method: &'static str,
    pub(crate) kind: ResourceKind,
    /// The sub-resource in the query; empty if there is none.
    pub(crate) sub_resource: &'static str,
    variant: Variant,
    pub(crate) handler: Handler,
    pub(crate) body: BodyKind,
    /// The IAM action that the request needs; `None` if it needs no permission.
    permission: Option<Permission>,
    /// IAM actions that the request needs as well.
    further_permissions: &'static [Permission],
    /// The parameters that a write takes besides its sub-resource. Reads take all, since a read that ignores a
    /// parameter changes nothing.
    parameters: &'static [&'static str],
    pub(crate) mutation: Option<Mutation>,
    pub(crate) response_fix: ResponseFix,
}

/// A further difference between operations with the same method, resource and sub-resource. The first row that fits is
/// the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Any,
    /// The request has the header `x-amz-copy-source`.
    Copy,
    /// A query parameter has this value.
    Parameter(&'static str, &'static str),
}

/// The code that runs an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handler {
    /// The method of `Service` that `s3s` calls for the operation of this name.
    Service(&'static str),
    /// A function of `Routes`, for operations that `s3s` lacks. They need a signature.
    Route,
    /// The response to a CORS preflight request. It needs no signature.
    Preflight,
    /// No code: S3 has the operation, and this endpoint does not implement it.
    Missing,
}

/// The body of a request: when it is read, and what it may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// No body is expected.
    None,
    /// The bytes of an object or a part, streamed by the handler. Their memory is acquired part by part.
    Stream,
    /// An XML or JSON document, read whole after authorization. Its memory is acquired first.
    Document { bytes_max: usize },
    /// A browser's form. Its fields are read before the sender is known; the file is streamed.
    BrowserForm,
    /// A form to STS, read before the sender is known, since its signature covers it.
    StsForm { bytes_max: usize },
}

/// An IAM action, and its subject.
pub(crate) type Permission = (&'static str, Subject);

/// The subject of an IAM action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The bucket or object that the request names.
    Target,
    /// The object that the request stores. Headers for its tags, lock, ACL and file mode need further permissions.
    NewObject,
    /// The upload that the request names. Its initiator needs no permission.
    Upload,
    /// Each key in the request's document, decided by the handler.
    EachKey,
    /// The source of a copy.
    CopySource,
    /// The tags of the source of a copy, and those of the target.
    CopiedTags,
    /// The source of a rename, a key in the target's bucket.
    RenameSource,
}

/// The kind of change that an operation, or a lifecycle rule, makes to objects. It determines the kinds of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    Put,
    Post,
    Copy,
    Complete,
    Delete,
    PutTags,
    DeleteTags,
    Rename,
    Expire,
}

/// The correction that a successful response of `s3s` needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseFix {
    AsIs,
    /// The status is 204.
    NoContent,
    /// The document has checksums that `s3s` does not know.
    Checksums,
    /// GetObjectAttributes: like [`ResponseFix::Checksums`], and unlike everywhere else its etag has no quotes.
    Attributes,
}

impl Operation {
    /// Returns the operation that a request names. Refuses requests that name no operation of this endpoint, or
    /// several, or a parameter that the operation does not take.
    pub(crate) fn find(
        method: &Method,
        kind: ResourceKind,
        query: &Query,
        headers: &HeaderMap,
    ) -> S3Result<&'static Self> {
        if *method == Method::OPTIONS {
            return Ok(&PREFLIGHT);
        }
        let sub_resource = sub_resource(query)?;
        let mut rows = OPERATIONS.iter().filter(|row| {
            row.method == method.as_str() && row.kind == kind && row.sub_resource == sub_resource
        });
        let row = rows.find(|row| row.variant.fits(query, headers));
        let row = row.ok_or_else(|| s3_error!(MethodNotAllowed))?;
        if row.handler == Handler::Missing {
            return Err(row.not_implemented());
        }
        row.check_parameters(query)?;
        Ok(row)
    }

    fn not_implemented(&self) -> S3Error {
        match self.sub_resource {
            "" => not_implemented(self.name),
            sub_resource => not_implemented(&format!("{} of {sub_resource}", self.method)),
        }
    }

    /// Returns the name of the operation that serves the request, for the access log.
    pub(crate) fn served_name(&self) -> &'static str {
        match self.handler {
            Handler::Service(name) => name,
            _ => self.name,
        }
    }

    /// Returns the IAM actions that the request needs, all of them.
    pub(crate) fn permissions(&self) -> impl Iterator<Item = Permission> {
        self.permission.into_iter().chain(self.further_permissions.iter().copied())
    }

    /// Returns whether the response says how the object is encrypted: if the operation stores an object or reads its
    /// bytes.
    pub(crate) fn shows_encryption(&self) -> bool {
        let stores_or_reads =
            matches!(self.permission, Some((_, Subject::NewObject) | ("s3:GetObject", Subject::Target)));
        stores_or_reads && self.kind == ResourceKind::Object
    }

    /// Returns whether the request's body is read whole after authorization.
    pub(crate) fn has_document(&self) -> bool {
        matches!(self.body, BodyKind::Document { .. })
    }

    /// Returns whether the operation copies an object or a part of one.
    pub(crate) fn is_copy(&self) -> bool {
        self.variant == Variant::Copy
    }

    /// Returns whether the request must say how long its body is.
    pub(crate) fn needs_length(&self) -> bool {
        let has_body = self.has_document() || self.body == BodyKind::Stream;
        self.method == table::PUT && self.kind == ResourceKind::Object && has_body
    }

    /// Returns whether the request's bucket must exist before anything else is looked at.
    pub(crate) fn needs_bucket_first(&self) -> bool {
        self.is_copy() || (self.has_document() && !self.is_create_bucket())
    }

    pub(crate) fn is_create_bucket(&self) -> bool {
        self.name == "CreateBucket"
    }

    /// Returns whether the operation may change the bytes of objects.
    #[cfg(feature = "fuzz")]
    pub(crate) fn writes_bytes(&self) -> bool {
        let is_tagging = matches!(self.mutation, Some(Mutation::PutTags | Mutation::DeleteTags));
        self.name == "DeleteBucket" || (self.mutation.is_some() && !is_tagging)
    }

    /// Refuses parameters that a write would silently ignore: a part number without an upload id, a version id where the
    /// operation takes none.
    fn check_parameters(&self, query: &Query) -> S3Result<()> {
        if let Some(value) = query.get("list-type").filter(|value| !["1", "2"].contains(value)) {
            return Err(invalid_argument("Invalid List Type specified in Query", "list-type", value));
        }
        if [table::GET, table::HEAD].contains(&self.method) {
            return Ok(());
        }
        if self.parameters.contains(&"partNumber") && !query.has("partNumber") {
            return Err(invalid_argument("This operation needs a part number.", "partNumber", ""));
        }
        // The signature of a form is among its fields.
        let takes_common = self.body != BodyKind::BrowserForm;
        let takes = |name: &str| {
            name == self.sub_resource
                || self.parameters.contains(&name)
                || (takes_common && (is_amz(name) || COMMON_PARAMETERS.contains(&name)))
        };
        match query.names().find(|name| !name.is_empty() && !takes(name)) {
            None => Ok(()),
            Some(name) => Err(unsupported_parameter(name)),
        }
    }
}

impl Variant {
    /// Returns whether a request is of this variant.
    fn fits(self, query: &Query, headers: &HeaderMap) -> bool {
        match self {
            Self::Any => true,
            Self::Copy => headers.contains_key("x-amz-copy-source"),
            Self::Parameter(name, value) => query.get(name) == Some(value),
        }
    }
}

/// Query parameters that refine an operation.
const PARAMETERS: [&str; 36] = [
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
    "metadata",
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

/// Parameters that every operation takes: the operation's name, cache busters, and signatures.
const COMMON_PARAMETERS: [&str; 5] = ["cachebuster", "x-id", "AWSAccessKeyId", "Signature", "Expires"];

/// Returns the sub-resource that a query names; empty if there is none. Refuses unknown and repeated parameters.
fn sub_resource(query: &Query) -> S3Result<&str> {
    let names: Vec<&str> = query.names().filter(|name| !name.is_empty()).collect();
    let is_known = |name: &str| is_amz(name) || is_sub_resource(name) || PARAMETERS.contains(&name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        return Err(not_implemented(&format!("A query with '{name}'")));
    }
    if let Some(name) = find_repeated(&names) {
        return Err(invalid_argument("A query parameter is given more than once", name, ""));
    }
    let words: Vec<&str> = names.into_iter().filter(|name| is_sub_resource(name)).collect();
    match words.as_slice() {
        [] => Ok(""),
        [word] => Ok(*word),
        [first, ..] => {
            let message = format!("Conflicting query string parameters: {}", words.join(", "));
            Err(invalid_argument(&message, "ResourceType", first))
        }
    }
}

fn is_amz(name: &str) -> bool {
    name.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("x-amz-"))
}

fn is_sub_resource(name: &str) -> bool {
    OPERATIONS.iter().any(|row| row.sub_resource == name && !row.sub_resource.is_empty())
}

/// Returns a parameter that occurs twice. Names that begin with `x-amz-` are compared without regard to case.
fn find_repeated<'q>(names: &[&'q str]) -> Option<&'q str> {
    let is_same = |a: &str, b: &str| a == b || (is_amz(a) && a.eq_ignore_ascii_case(b));
    let mut rest = names.iter().enumerate();
    rest.find(|(at, name)| names[..*at].iter().any(|earlier| is_same(name, earlier))).map(|(_, name)| *name)
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

    fn find(method: &Method, kind: ResourceKind, query: &str) -> Result<&'static str, String> {
        let found = Operation::find(method, kind, &Query::parse(query), &HeaderMap::new());
        found.map(|row| row.name).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn operations_are_found_in_the_table() {
        use ResourceKind::{Bucket, Object, Service};
        for (method, kind, query, expected) in [
            (Method::GET, Bucket, "list-type=2&prefix=a%2Fb", Ok("ListObjectsV2")),
            (Method::GET, Bucket, "list-type=1", Ok("ListObjects")),
            (Method::PUT, Object, "uploadId=1&partNumber=2&x-id=UploadPart", Ok("UploadPart")),
            (Method::PUT, Object, "x-amz-meta-a=b&X-Amz-Signature=0", Ok("PutObject")),
            (Method::PUT, Object, "append&position=0", Err("NotImplemented")),
            (Method::GET, Service, "", Ok("ListBuckets")),
            (Method::GET, Service, "x-id=ListDirectoryBuckets", Err("NotImplemented")),
            (Method::DELETE, Object, "acl", Err("MethodNotAllowed")),
            (Method::DELETE, Object, "%61cl", Err("MethodNotAllowed")),
            (Method::DELETE, Object, "acl=value", Err("MethodNotAllowed")),
            (Method::PUT, Object, "encryption", Err("NotImplemented")),
            (Method::PUT, Object, "acl&tagging", Err("InvalidArgument")),
            (Method::PUT, Object, "acl&acl", Err("InvalidArgument")),
            (Method::PUT, Object, "x-amz-acl=private&X-amz-acl=public-read", Err("InvalidArgument")),
            (Method::PUT, Object, "uploadId=1", Err("InvalidArgument")),
            (Method::PUT, Object, "partNumber=1", Err("InvalidArgument")),
            (Method::PUT, Object, "versionId=1", Err("InvalidArgument")),
            (Method::DELETE, Object, "versionId=1", Ok("DeleteObject")),
            (Method::DELETE, Bucket, "prefix=x", Err("InvalidArgument")),
            (Method::POST, Bucket, "X-Amz-Signature=0", Err("InvalidArgument")),
            (Method::GET, Bucket, "list-type=3", Err("InvalidArgument")),
            (Method::PUT, Object, "", Ok("PutObject")),
            (Method::PATCH, Object, "", Err("MethodNotAllowed")),
            (Method::HEAD, Service, "", Err("MethodNotAllowed")),
        ] {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(find(&method, kind, query), expected, "{method} {kind:?} {query}");
        }
    }

    #[test]
    fn a_copy_source_makes_a_put_a_copy() {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-amz-copy-source"),
            http::HeaderValue::from_static("b/k"),
        )]);
        for (query, name) in
            [("", "CopyObject"), ("uploadId=1&partNumber=1", "UploadPartCopy"), ("acl", "PutObjectAcl")]
        {
            let found = Operation::find(&Method::PUT, ResourceKind::Object, &Query::parse(query), &headers);
            assert_eq!(found.unwrap().name, name);
        }
    }
}
