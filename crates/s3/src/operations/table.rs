//! The rows of the table (S3 API Reference, "Actions").

use super::ResourceKind::{Bucket, Object, Service};
use super::Subject::{CopiedTags, CopySource, EachKey, NewObject, RenameSource, Target, Upload};
use super::{
    BodyKind, Handler, Mutation, Operation, Permission, ResourceKind, ResponseFix, Subject, Variant,
};

pub(super) const GET: &str = "GET";
pub(super) const HEAD: &str = "HEAD";
pub(super) const PUT: &str = "PUT";
const POST: &str = "POST";
const DELETE: &str = "DELETE";

/// The maximum length of a document, in bytes. Completing an upload of 10,000 parts with checksums takes 2 MB.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// The maximum length of a website configuration, in bytes (S3 API, PutBucketWebsite).
const WEBSITE_BYTES_MAX: usize = 128 << 10;
/// The maximum length of an STS request body, in bytes.
const STS_BYTES_MAX: usize = 8 << 10;

/// A CORS preflight request (Fetch Standard, "CORS protocol"), for any resource and with any query.
pub(crate) static PREFLIGHT: Operation =
    Operation { handler: Handler::Preflight, ..open("OPTIONS", Service, "", "Preflight") };

/// All other operations. The rows of one request are in order: the first that fits is the operation.
pub(crate) static OPERATIONS: &[Operation] = &[
    // The service.
    missing(GET, Service, "", "ListDirectoryBuckets")
        .when(Variant::Parameter("x-id", "ListDirectoryBuckets")),
    op(GET, Service, "", "ListBuckets", "s3:ListAllMyBuckets"),
    open(POST, Service, "", "AssumeRole").route().body(BodyKind::StsForm { bytes_max: STS_BYTES_MAX }),
    // Buckets.
    op(HEAD, Bucket, "", "HeadBucket", "s3:ListBucket"),
    op(GET, Bucket, "", "ListObjectsV2", "s3:ListBucket").when(Variant::Parameter("list-type", "2")),
    op(GET, Bucket, "", "ListObjects", "s3:ListBucket"),
    op(PUT, Bucket, "", "CreateBucket", "s3:CreateBucket").document(),
    op(DELETE, Bucket, "", "DeleteBucket", "s3:DeleteBucket"),
    op(POST, Bucket, "", "PostObject", "s3:PutObject")
        .on(NewObject)
        .served_as("PutObject")
        .body(BodyKind::BrowserForm)
        .mutates(Mutation::Post),
    op(POST, Bucket, "delete", "DeleteObjects", "s3:DeleteObject")
        .on(EachKey)
        .document()
        .mutates(Mutation::Delete),
    op(GET, Bucket, "acl", "GetBucketAcl", "s3:GetBucketAcl"),
    op(PUT, Bucket, "acl", "PutBucketAcl", "s3:PutBucketAcl").document(),
    op(GET, Bucket, "cors", "GetBucketCors", "s3:GetBucketCORS"),
    op(PUT, Bucket, "cors", "PutBucketCors", "s3:PutBucketCORS").document(),
    op(DELETE, Bucket, "cors", "DeleteBucketCors", "s3:PutBucketCORS"),
    op(GET, Bucket, "lifecycle", "GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration"),
    op(PUT, Bucket, "lifecycle", "PutBucketLifecycleConfiguration", "s3:PutLifecycleConfiguration")
        .document(),
    op(DELETE, Bucket, "lifecycle", "DeleteBucketLifecycle", "s3:PutLifecycleConfiguration"),
    op(GET, Bucket, "location", "GetBucketLocation", "s3:GetBucketLocation"),
    op(GET, Bucket, "notification", "GetBucketNotificationConfiguration", "s3:GetBucketNotification"),
    op(PUT, Bucket, "notification", "PutBucketNotificationConfiguration", "s3:PutBucketNotification")
        .document()
        .takes(&["skipDestinationValidation"]),
    op(GET, Bucket, "object-lock", "GetObjectLockConfiguration", "s3:GetBucketObjectLockConfiguration"),
    op(PUT, Bucket, "object-lock", "PutObjectLockConfiguration", "s3:PutBucketObjectLockConfiguration")
        .document(),
    op(GET, Bucket, "ownershipControls", "GetBucketOwnershipControls", "s3:GetBucketOwnershipControls"),
    op(PUT, Bucket, "ownershipControls", "PutBucketOwnershipControls", "s3:PutBucketOwnershipControls")
        .document(),
    op(DELETE, Bucket, "ownershipControls", "DeleteBucketOwnershipControls", "s3:PutBucketOwnershipControls"),
    op(GET, Bucket, "policy", "GetBucketPolicy", "s3:GetBucketPolicy"),
    op(PUT, Bucket, "policy", "PutBucketPolicy", "s3:PutBucketPolicy").document(),
    op(DELETE, Bucket, "policy", "DeleteBucketPolicy", "s3:DeleteBucketPolicy"),
    op(GET, Bucket, "policyStatus", "GetBucketPolicyStatus", "s3:GetBucketPolicyStatus"),
    op(GET, Bucket, "tagging", "GetBucketTagging", "s3:GetBucketTagging"),
    op(PUT, Bucket, "tagging", "PutBucketTagging", "s3:PutBucketTagging")
        .document()
        .response_fix(ResponseFix::NoContent),
    op(DELETE, Bucket, "tagging", "DeleteBucketTagging", "s3:PutBucketTagging"),
    op(GET, Bucket, "uploads", "ListMultipartUploads", "s3:ListBucketMultipartUploads"),
    op(GET, Bucket, "versioning", "GetBucketVersioning", "s3:GetBucketVersioning"),
    op(PUT, Bucket, "versioning", "PutBucketVersioning", "s3:PutBucketVersioning").document(),
    op(GET, Bucket, "versions", "ListObjectVersions", "s3:ListBucketVersions"),
    op(GET, Bucket, "website", "GetBucketWebsite", "s3:GetBucketWebsite"),
    op(PUT, Bucket, "website", "PutBucketWebsite", "s3:PutBucketWebsite")
        .body(BodyKind::Document { bytes_max: WEBSITE_BYTES_MAX }),
    op(DELETE, Bucket, "website", "DeleteBucketWebsite", "s3:DeleteBucketWebsite"),
    // Objects.
    op(HEAD, Object, "", "HeadObject", "s3:GetObject"),
    op(GET, Object, "", "GetObject", "s3:GetObject"),
    op(PUT, Object, "", "CopyObject", "s3:PutObject")
        .on(NewObject)
        .and(&[("s3:GetObject", CopySource), ("s3:GetObjectTagging", CopiedTags)])
        .when(Variant::Copy)
        .mutates(Mutation::Copy)
        .response_fix(ResponseFix::Checksums),
    op(PUT, Object, "", "PutObject", "s3:PutObject")
        .on(NewObject)
        .body(BodyKind::Stream)
        .mutates(Mutation::Put),
    op(DELETE, Object, "", "DeleteObject", "s3:DeleteObject").mutates(Mutation::Delete).takes(&["versionId"]),
    op(GET, Object, "acl", "GetObjectAcl", "s3:GetObjectAcl"),
    op(PUT, Object, "acl", "PutObjectAcl", "s3:PutObjectAcl").document().takes(&["versionId"]),
    op(GET, Object, "attributes", "GetObjectAttributes", "s3:GetObjectAttributes")
        .response_fix(ResponseFix::Attributes),
    op(GET, Object, "legal-hold", "GetObjectLegalHold", "s3:GetObjectLegalHold"),
    op(PUT, Object, "legal-hold", "PutObjectLegalHold", "s3:PutObjectLegalHold")
        .document()
        .takes(&["versionId"]),
    op(PUT, Object, "renameObject", "RenameObject", "s3:PutObject")
        .and(&[("s3:GetObject", RenameSource), ("s3:DeleteObject", RenameSource)])
        .route()
        .mutates(Mutation::Rename),
    op(GET, Object, "retention", "GetObjectRetention", "s3:GetObjectRetention"),
    op(PUT, Object, "retention", "PutObjectRetention", "s3:PutObjectRetention")
        .document()
        .takes(&["versionId"]),
    op(GET, Object, "tagging", "GetObjectTagging", "s3:GetObjectTagging"),
    op(PUT, Object, "tagging", "PutObjectTagging", "s3:PutObjectTagging")
        .document()
        .mutates(Mutation::PutTags)
        .takes(&["versionId"]),
    op(DELETE, Object, "tagging", "DeleteObjectTagging", "s3:DeleteObjectTagging")
        .mutates(Mutation::DeleteTags)
        .takes(&["versionId"]),
    // Multipart uploads.
    op(POST, Object, "uploads", "CreateMultipartUpload", "s3:PutObject").on(NewObject),
    op(PUT, Object, "uploadId", "UploadPartCopy", "s3:PutObject")
        .on(NewObject)
        .and(&[("s3:GetObject", CopySource)])
        .when(Variant::Copy)
        .takes(&["partNumber"])
        .response_fix(ResponseFix::Checksums),
    op(PUT, Object, "uploadId", "UploadPart", "s3:PutObject")
        .on(NewObject)
        .body(BodyKind::Stream)
        .takes(&["partNumber"]),
    op(POST, Object, "uploadId", "CompleteMultipartUpload", "s3:PutObject")
        .on(NewObject)
        .document()
        .mutates(Mutation::Complete)
        .response_fix(ResponseFix::Checksums),
    op(GET, Object, "uploadId", "ListParts", "s3:ListMultipartUploadParts")
        .on(Upload)
        .response_fix(ResponseFix::Checksums),
    op(DELETE, Object, "uploadId", "AbortMultipartUpload", "s3:AbortMultipartUpload").on(Upload),
    // Operations of S3 that this endpoint does not implement.
    missing(GET, Bucket, "abac", "GetBucketAbac"),
    missing(PUT, Bucket, "abac", "PutBucketAbac"),
    missing(GET, Bucket, "accelerate", "GetBucketAccelerateConfiguration"),
    missing(PUT, Bucket, "accelerate", "PutBucketAccelerateConfiguration"),
    missing(GET, Bucket, "analytics", "GetBucketAnalyticsConfiguration"),
    missing(PUT, Bucket, "analytics", "PutBucketAnalyticsConfiguration"),
    missing(DELETE, Bucket, "analytics", "DeleteBucketAnalyticsConfiguration"),
    missing(GET, Bucket, "encryption", "GetBucketEncryption"),
    missing(PUT, Bucket, "encryption", "PutBucketEncryption"),
    missing(DELETE, Bucket, "encryption", "DeleteBucketEncryption"),
    missing(GET, Bucket, "intelligent-tiering", "GetBucketIntelligentTieringConfiguration"),
    missing(PUT, Bucket, "intelligent-tiering", "PutBucketIntelligentTieringConfiguration"),
    missing(DELETE, Bucket, "intelligent-tiering", "DeleteBucketIntelligentTieringConfiguration"),
    missing(GET, Bucket, "inventory", "GetBucketInventoryConfiguration"),
    missing(PUT, Bucket, "inventory", "PutBucketInventoryConfiguration"),
    missing(DELETE, Bucket, "inventory", "DeleteBucketInventoryConfiguration"),
    missing(GET, Bucket, "logging", "GetBucketLogging"),
    missing(PUT, Bucket, "logging", "PutBucketLogging"),
    missing(GET, Bucket, "metadataConfiguration", "GetBucketMetadataConfiguration"),
    missing(POST, Bucket, "metadataConfiguration", "CreateBucketMetadataConfiguration"),
    missing(DELETE, Bucket, "metadataConfiguration", "DeleteBucketMetadataConfiguration"),
    missing(PUT, Bucket, "metadataInventoryTable", "UpdateBucketMetadataInventoryTableConfiguration"),
    missing(PUT, Bucket, "metadataJournalTable", "UpdateBucketMetadataJournalTableConfiguration"),
    missing(GET, Bucket, "metadataTable", "GetBucketMetadataTableConfiguration"),
    missing(POST, Bucket, "metadataTable", "CreateBucketMetadataTableConfiguration"),
    missing(DELETE, Bucket, "metadataTable", "DeleteBucketMetadataTableConfiguration"),
    missing(GET, Bucket, "metrics", "GetBucketMetricsConfiguration"),
    missing(PUT, Bucket, "metrics", "PutBucketMetricsConfiguration"),
    missing(DELETE, Bucket, "metrics", "DeleteBucketMetricsConfiguration"),
    missing(GET, Bucket, "publicAccessBlock", "GetPublicAccessBlock"),
    missing(PUT, Bucket, "publicAccessBlock", "PutPublicAccessBlock"),
    missing(DELETE, Bucket, "publicAccessBlock", "DeletePublicAccessBlock"),
    missing(GET, Bucket, "replication", "GetBucketReplication"),
    missing(PUT, Bucket, "replication", "PutBucketReplication"),
    missing(DELETE, Bucket, "replication", "DeleteBucketReplication"),
    missing(GET, Bucket, "requestPayment", "GetBucketRequestPayment"),
    missing(PUT, Bucket, "requestPayment", "PutBucketRequestPayment"),
    missing(GET, Bucket, "session", "CreateSession"),
    missing(PUT, Object, "encryption", "UpdateObjectEncryption"),
    missing(POST, Object, "restore", "RestoreObject"),
    missing(POST, Object, "select", "SelectObjectContent"),
    missing(GET, Object, "torrent", "GetObjectTorrent"),
];

/// Returns a row for an operation that needs an action on its target. `s3s` knows it under its own name; it has no body.
const fn op(
    method: &'static str,
    kind: ResourceKind,
    sub_resource: &'static str,
    name: &'static str,
    action: &'static str,
) -> Operation {
    Operation { permission: Some((action, Target)), ..open(method, kind, sub_resource, name) }
}

/// Returns a row as [`op`] does, for an operation that needs no permission.
const fn open(
    method: &'static str,
    kind: ResourceKind,
    sub_resource: &'static str,
    name: &'static str,
) -> Operation {
    Operation {
        name,
        method,
        kind,
        sub_resource,
        variant: Variant::Any,
        handler: Handler::Service(name),
        body: BodyKind::None,
        permission: None,
        further_permissions: &[],
        parameters: &[],
        mutation: None,
        response_fix: ResponseFix::AsIs,
    }
}

/// Returns a row for an operation of S3 that this endpoint does not implement.
const fn missing(
    method: &'static str,
    kind: ResourceKind,
    sub_resource: &'static str,
    name: &'static str,
) -> Operation {
    Operation { handler: Handler::Missing, ..open(method, kind, sub_resource, name) }
}

impl Operation {
    /// Limits the row to a variant of the request.
    const fn when(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    /// Sets the subject of the row's first permission.
    const fn on(self, subject: Subject) -> Self {
        let permission = match self.permission {
            Some((action, _)) => Some((action, subject)),
            None => None,
        };
        Self { permission, ..self }
    }

    /// Sets further permissions that the operation needs.
    const fn and(self, further_permissions: &'static [Permission]) -> Self {
        Self { further_permissions, ..self }
    }

    /// Sets the method of `Service` that serves the operation, if it has another name.
    const fn served_as(self, name: &'static str) -> Self {
        Self { handler: Handler::Service(name), ..self }
    }

    /// Has a route of this endpoint serve the operation, since `s3s` does not know it.
    const fn route(self) -> Self {
        Self { handler: Handler::Route, ..self }
    }

    const fn body(self, body: BodyKind) -> Self {
        Self { body, ..self }
    }

    /// Notes that the request body is a document, which is read whole.
    const fn document(self) -> Self {
        self.body(BodyKind::Document { bytes_max: DOCUMENT_BYTES_MAX })
    }

    /// Sets the query parameters that the operation understands.
    const fn takes(self, parameters: &'static [&'static str]) -> Self {
        Self { parameters, ..self }
    }

    /// Sets the mutation that the operation makes, for events.
    const fn mutates(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    const fn response_fix(self, response_fix: ResponseFix) -> Self {
        Self { response_fix, ..self }
    }
}
