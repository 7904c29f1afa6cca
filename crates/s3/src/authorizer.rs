//! Authorization: decides by the user's role, the bucket's policy, its owner and its ACL whether a request is allowed.

use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopyObjectInput, UploadPartCopyInput};
use s3s::path::S3Path;
use s3s::{S3Error, S3Request, S3Result, s3_error};
use std::sync::Arc;

use crate::access_log::RequestFacts;
use crate::endpoint::EndpointContext;
use crate::file_mode;
use crate::ops::{acl, copy, multipart, settings, tagging};
use crate::owners;
use crate::policy::{self, AccessRequest, Effect, Policy};
use crate::policy_condition::RequestContext;
use crate::users::Role;
use crate::wire::Signer;

/// Authorizes the requests of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Authorizer(pub(crate) Arc<EndpointContext>);

impl Authorizer {
    /// Returns `AccessDenied` unless `user` (`None`: an unsigned request) may perform `action` on a bucket or an
    /// object.
    pub(crate) async fn authorize(
        &self,
        user: Option<&str>,
        action: &'static str,
        bucket: Option<&str>,
        key: Option<&str>,
        request_context: &RequestContext,
    ) -> S3Result<()> {
        let user = self.0.user_of(user);
        let user = user.as_deref();
        let role = user.and_then(|user| self.0.users.get(user)).map(|user| user.role);
        let effect = match bucket {
            Some(bucket) => self.evaluate_policy(user, action, bucket, key, request_context).await?,
            None => Effect::NoMatch,
        };
        let is_allowed = match effect {
            Effect::Allow => true,
            Effect::NoMatch if role.is_some_and(|role| role_allows(role, action)) => true,
            // Every user may list buckets; the listing shows only the user's own.
            Effect::NoMatch if role.is_some() && action == "s3:ListAllMyBuckets" => true,
            Effect::NoMatch if action == "s3:CreateBucket" => self.is_assigned(user, bucket),
            Effect::NoMatch => {
                self.is_owner(user, bucket).await? || self.acl_allows(user, action, bucket).await?
            }
            // A policy that denies everything does not stop administrators and the owner from replacing it.
            Effect::Deny if !action.ends_with("BucketPolicy") => false,
            Effect::Deny => role == Some(Role::Admin) || self.is_owner(user, bucket).await?,
        };
        match (is_allowed, effect, user) {
            (true, _, _) => Ok(()),
            (false, Effect::Deny, Some(user)) => Err(denied_by_policy(user, action, bucket, key)),
            (false, _, _) => Err(denied()),
        }
    }

    /// Whether the bucket exists and belongs to the user.
    async fn is_owner(&self, user: Option<&str>, bucket: Option<&str>) -> S3Result<bool> {
        let (Some(user), Some(bucket)) = (user, bucket) else { return Ok(false) };
        match self.0.open_bucket(bucket).await {
            Ok(bucket) => Ok(owners::find(&bucket, &self.0.users).await? == user),
            Err(_) => Ok(false),
        }
    }

    /// Whether the list of users assigns the bucket to the user. The bucket need not exist yet.
    fn is_assigned(&self, user: Option<&str>, bucket: Option<&str>) -> bool {
        let (Some(user), Some(bucket)) = (user, bucket) else { return false };
        self.0.users.assigned_owner(bucket).is_some_and(|owner| owner == user)
    }

    /// Returns `AccessDenied` if the bucket has another owner than the request expects (`x-amz-expected-bucket-owner`).
    async fn check_expected_owner(&self, bucket: Option<&str>, wanted: Option<&str>) -> S3Result<()> {
        let (Some(wanted), Some(bucket)) = (wanted, bucket) else { return Ok(()) };
        // The operation itself reports a missing bucket.
        let Ok(bucket) = self.0.open_bucket(bucket).await else { return Ok(()) };
        if owners::find(&bucket, &self.0.users).await? == wanted { Ok(()) } else { Err(denied()) }
    }

    async fn acl_allows(&self, user: Option<&str>, action: &str, bucket: Option<&str>) -> S3Result<bool> {
        let Some(bucket) = bucket else { return Ok(false) };
        match self.0.open_bucket(bucket).await {
            Ok(bucket) => acl::allows(&bucket, user, action).await,
            Err(_) => Ok(false),
        }
    }

    async fn evaluate_policy(
        &self,
        user: Option<&str>,
        action: &str,
        bucket: &str,
        key: Option<&str>,
        request_context: &RequestContext,
    ) -> S3Result<Effect> {
        let Ok(opened) = self.0.open_bucket(bucket).await else { return Ok(Effect::NoMatch) };
        let Some(text) = opened.text(settings::POLICY).await? else { return Ok(Effect::NoMatch) };
        let policy = match Policy::parse(&String::from_utf8_lossy(&text), bucket) {
            Ok(policy) => policy,
            // An unreadable policy may deny anything, so it denies everything. The bucket's owner may still replace it.
            Err(error) => {
                tracing::debug!(
                    bucket,
                    ?error,
                    "the bucket policy cannot be parsed and denies everything; replace it"
                );
                return Ok(Effect::Deny);
            }
        };
        let resource = key.map_or_else(|| bucket.to_owned(), |key| format!("{bucket}/{key}"));
        Ok(policy.evaluate(AccessRequest { user, action, resource: &resource, request_context }))
    }
}

#[async_trait::async_trait]
impl S3Access for Authorizer {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name().to_owned();
        RequestFacts::note_operation(context.extensions_mut(), &operation);
        let action = version_action(required_action(&operation), context.uri());
        let user = Signer::of(context.extensions_mut()).map(str::to_owned);
        if user.is_none() && overrides_headers(context.uri()) {
            return Err(s3_error!(
                InvalidRequest,
                "Request specific response headers cannot be used for anonymous GET requests."
            ));
        }
        let uri = context.uri().clone();
        let request_context = RequestContext::of(&uri, context.extensions_mut());
        let (bucket, key) = match context.s3_path() {
            S3Path::Root => (None, None),
            S3Path::Bucket { bucket } => (Some(bucket.as_ref()), None),
            S3Path::Object { bucket, key } => (Some(bucket.as_ref()), Some(key.as_ref())),
        };
        let wanted = context.headers().get("x-amz-expected-bucket-owner");
        self.check_expected_owner(bucket, wanted.map(|wanted| wanted.to_str().unwrap_or_default())).await?;
        // Each key of a DeleteObjects request is authorized separately, in the service.
        let bypasses = context.headers().get("x-amz-bypass-governance-retention");
        if bypasses.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")) && key.is_some() {
            self.authorize(user.as_deref(), "s3:BypassGovernanceRetention", bucket, key, &request_context)
                .await?;
        }
        if action == "s3:DeleteObject" && key.is_none() {
            return match user.is_some() {
                true => Ok(()),
                false => self.authorize(None, action, bucket, Some("*"), &request_context).await,
            };
        }
        match (self.authorize(user.as_deref(), action, bucket, key, &request_context).await, action) {
            (Ok(()), _) => {}
            (Err(_), "s3:AbortMultipartUpload" | "s3:ListMultipartUploadParts")
                if self.is_initiator(user.as_deref(), bucket, key, context.uri()).await? => {}
            (Err(error), _) => return Err(error),
        }
        if action == "s3:PutObject" {
            for action in header_actions(context.headers()) {
                self.authorize(user.as_deref(), action, bucket, key, &request_context).await?;
            }
            self.check_file_mode(user.as_deref(), context.headers())?;
        }
        if action == "s3:PutObject"
            && let Some(bucket) = bucket
            && let Ok(bucket) = self.0.open_bucket(bucket).await
        {
            acl::check_object(&bucket, context.headers()).await?;
        }
        Ok(())
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        let (bucket, key, version) = copy::parse_source(&request.input.copy_source)?;
        self.check_expected_owner(Some(bucket), request.input.expected_source_bucket_owner.as_deref())
            .await?;
        let request_context = RequestContext::of(&request.uri, &request.extensions);
        let user = Signer::of(&request.extensions);
        self.check_source(user, bucket, key.as_bytes(), version.is_some(), &request_context).await?;
        let replaces = request.input.tagging_directive.as_ref().is_some_and(|d| d.as_str() == "REPLACE");
        if replaces {
            return Ok(());
        }
        let target = (request.input.bucket.as_str(), request.input.key.as_str());
        let name = String::from_utf8_lossy(key.as_bytes());
        self.check_copied_tags(user, (bucket, &name, version), target, &request_context).await
    }

    async fn upload_part_copy(&self, request: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        let (bucket, key, version) = copy::parse_source(&request.input.copy_source)?;
        self.check_expected_owner(Some(bucket), request.input.expected_source_bucket_owner.as_deref())
            .await?;
        let request_context = RequestContext::of(&request.uri, &request.extensions);
        self.check_source(
            Signer::of(&request.extensions),
            bucket,
            key.as_bytes(),
            version.is_some(),
            &request_context,
        )
        .await
    }
}

impl Authorizer {
    /// Refuses a copy of tags that the user may not read or may not write. A source without tags is never refused.
    async fn check_copied_tags(
        &self,
        user: Option<&str>,
        (from, key, version): (&str, &str, Option<&str>),
        (to, target): (&str, &str),
        request_context: &RequestContext,
    ) -> S3Result<()> {
        let reads = if version.is_some() { "s3:GetObjectVersionTagging" } else { "s3:GetObjectTagging" };
        let may_read = self.authorize(user, reads, Some(from), Some(key), request_context).await;
        let may_write =
            self.authorize(user, "s3:PutObjectTagging", Some(to), Some(target), request_context).await;
        let Err(error) = may_read.and(may_write) else { return Ok(()) };
        // The operation itself reports errors of reading the source.
        match tagging::get(&self.0.open_bucket(from).await?, key, version).await {
            Ok(tags) if !tags.tag_set.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Replaces `NoSuchKey` by `AccessDenied` for users who may not list the bucket, so that they cannot probe for keys
    /// (S3 API Reference, GetObject, "Permissions").
    pub(crate) async fn hide_missing_key(
        &self,
        bucket: &str,
        uri: &http::Uri,
        extensions: &http::Extensions,
        error: S3Error,
    ) -> S3Error {
        if *error.code() != s3s::S3ErrorCode::NoSuchKey {
            return error;
        }
        let request_context = RequestContext::of(uri, extensions);
        let user = Signer::of(extensions);
        match self.authorize(user, "s3:ListBucket", Some(bucket), None, &request_context).await {
            Ok(()) => error,
            Err(_) => denied(),
        }
    }

    /// Whether the user began the upload that a request names. The initiator of an upload may abort it and list its
    /// parts (S3 User Guide, "Multipart upload API and permissions").
    async fn is_initiator(
        &self,
        user: Option<&str>,
        bucket: Option<&str>,
        key: Option<&str>,
        uri: &http::Uri,
    ) -> S3Result<bool> {
        let (Some(user), Some(bucket), Some(key)) = (self.0.user_of(user), bucket, key) else {
            return Ok(false);
        };
        let query = uri.query().unwrap_or_default().as_bytes();
        let id = url::form_urlencoded::parse(query).find(|(word, _)| word == "uploadId");
        match (id, self.0.open_bucket(bucket).await) {
            (Some((_, id)), Ok(bucket)) => multipart::is_initiator(&bucket, key, &id, &user).await,
            _ => Ok(false),
        }
    }

    /// Refuses metadata that makes an object a set-user-id file, a device, a link or the like, unless the user is an
    /// administrator: in a mount such files would act as if root had created them.
    fn check_file_mode(&self, user: Option<&str>, headers: &http::HeaderMap) -> S3Result<()> {
        let user = self.0.user_of(user);
        let role = user.and_then(|user| self.0.users.get(&user)).map(|user| user.role);
        if role == Some(Role::Admin) || !file_mode::is_special(headers) { Ok(()) } else { Err(denied()) }
    }

    async fn check_source(
        &self,
        user: Option<&str>,
        bucket: &str,
        key: &[u8],
        is_version: bool,
        request_context: &RequestContext,
    ) -> S3Result<()> {
        let action = if is_version { "s3:GetObjectVersion" } else { "s3:GetObject" };
        let key = String::from_utf8_lossy(key);
        self.authorize(user, action, Some(bucket), Some(&key), request_context).await
    }
}

/// Returns the actions that a request's headers need in addition to the operation's own action.
fn header_actions(headers: &http::HeaderMap) -> impl Iterator<Item = &'static str> {
    [
        ("x-amz-object-lock-mode", "s3:PutObjectRetention"),
        ("x-amz-object-lock-legal-hold", "s3:PutObjectLegalHold"),
        ("x-amz-tagging", "s3:PutObjectTagging"),
    ]
    .into_iter()
    .filter(|(name, _)| headers.get(*name).is_some_and(|value| !value.is_empty()))
    .map(|(_, action)| action)
}

/// Whether a role allows an action where no policy decides.
fn role_allows(role: Role, action: &str) -> bool {
    match role {
        Role::Admin => true,
        Role::ReadWrite => {
            is_read_action(action)
                || matches!(
                    action,
                    "s3:PutObject"
                        | "s3:DeleteObject"
                        | "s3:DeleteObjectVersion"
                        | "s3:PutObjectVersionTagging"
                        | "s3:DeleteObjectVersionTagging"
                        | "s3:PutObjectTagging"
                        | "s3:DeleteObjectTagging"
                        | "s3:AbortMultipartUpload"
                        | "s3:PutObjectAcl"
                        | "s3:RestoreObject"
                )
        }
        Role::ReadOnly => is_read_action(action),
        Role::PolicyOnly => false,
    }
}

/// Whether a role sees all buckets. Other users see only their own.
pub(crate) fn sees_all_buckets(role: Role) -> bool {
    role_allows(role, "s3:ListAllMyBuckets")
}

fn is_read_action(action: &str) -> bool {
    action.starts_with("s3:GetObject") || action.starts_with("s3:List") || action == "s3:GetBucketLocation"
}

/// Returns the action on a version, if the request names one.
fn version_action(action: &'static str, uri: &http::Uri) -> &'static str {
    let query = uri.query().unwrap_or_default().as_bytes();
    let names_version =
        url::form_urlencoded::parse(query).any(|(word, value)| word == "versionId" && !value.is_empty());
    match action {
        _ if !names_version => action,
        "s3:GetObject" => "s3:GetObjectVersion",
        "s3:GetObjectAttributes" => "s3:GetObjectVersionAttributes",
        "s3:GetObjectTagging" => "s3:GetObjectVersionTagging",
        "s3:PutObjectTagging" => "s3:PutObjectVersionTagging",
        "s3:DeleteObjectTagging" => "s3:DeleteObjectVersionTagging",
        "s3:DeleteObject" => "s3:DeleteObjectVersion",
        "s3:GetObjectAcl" => "s3:GetObjectVersionAcl",
        "s3:PutObjectAcl" => "s3:PutObjectVersionAcl",
        action => action,
    }
}

/// Whether a request overrides response headers (`response-*` parameters).
fn overrides_headers(uri: &http::Uri) -> bool {
    let query = uri.query().unwrap_or_default().as_bytes();
    url::form_urlencoded::parse(query).any(|(word, _)| word.starts_with("response-"))
}

/// Returns the IAM action that an operation needs (Service Authorization Reference, "Actions defined by Amazon S3").
fn required_action(operation: &str) -> &'static str {
    match operation {
        "GetObject" | "HeadObject" => "s3:GetObject",
        "GetObjectAttributes" => "s3:GetObjectAttributes",
        "GetObjectTagging" => "s3:GetObjectTagging",
        "GetObjectAcl" => "s3:GetObjectAcl",
        "GetObjectRetention" => "s3:GetObjectRetention",
        "GetObjectLegalHold" => "s3:GetObjectLegalHold",
        "PutObject"
        | "PostObject"
        | "CopyObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload" => "s3:PutObject",
        "PutObjectTagging" => "s3:PutObjectTagging",
        "DeleteObjectTagging" => "s3:DeleteObjectTagging",
        "PutObjectAcl" => "s3:PutObjectAcl",
        "PutObjectRetention" => "s3:PutObjectRetention",
        "PutObjectLegalHold" => "s3:PutObjectLegalHold",
        "DeleteObject" | "DeleteObjects" => "s3:DeleteObject",
        "AbortMultipartUpload" => "s3:AbortMultipartUpload",
        "ListParts" => "s3:ListMultipartUploadParts",
        "ListMultipartUploads" => "s3:ListBucketMultipartUploads",
        "ListObjects" | "ListObjectsV2" | "HeadBucket" => "s3:ListBucket",
        "ListObjectVersions" => "s3:ListBucketVersions",
        "ListBuckets" => "s3:ListAllMyBuckets",
        "CreateBucket" => "s3:CreateBucket",
        "DeleteBucket" => "s3:DeleteBucket",
        "GetBucketLocation" => "s3:GetBucketLocation",
        "GetBucketAcl" => "s3:GetBucketAcl",
        "PutBucketAcl" => "s3:PutBucketAcl",
        "GetBucketCors" => "s3:GetBucketCORS",
        "PutBucketCors" | "DeleteBucketCors" => "s3:PutBucketCORS",
        "GetBucketPolicy" => "s3:GetBucketPolicy",
        "PutBucketPolicy" => "s3:PutBucketPolicy",
        "DeleteBucketPolicy" => "s3:DeleteBucketPolicy",
        "GetBucketPolicyStatus" => "s3:GetBucketPolicyStatus",
        "GetBucketWebsite" => "s3:GetBucketWebsite",
        "PutBucketWebsite" => "s3:PutBucketWebsite",
        "DeleteBucketWebsite" => "s3:DeleteBucketWebsite",
        "GetBucketTagging" => "s3:GetBucketTagging",
        "PutBucketTagging" | "DeleteBucketTagging" => "s3:PutBucketTagging",
        "GetBucketVersioning" => "s3:GetBucketVersioning",
        "PutBucketVersioning" => "s3:PutBucketVersioning",
        "GetBucketOwnershipControls" => "s3:GetBucketOwnershipControls",
        "PutBucketOwnershipControls" | "DeleteBucketOwnershipControls" => "s3:PutBucketOwnershipControls",
        "GetBucketNotificationConfiguration" => "s3:GetBucketNotification",
        "PutBucketNotificationConfiguration" => "s3:PutBucketNotification",
        "GetBucketLifecycleConfiguration" => "s3:GetLifecycleConfiguration",
        "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => "s3:PutLifecycleConfiguration",
        "GetObjectLockConfiguration" => "s3:GetBucketObjectLockConfiguration",
        "PutObjectLockConfiguration" => "s3:PutBucketObjectLockConfiguration",
        // All other operations are reserved to administrators.
        _ => "s3:Other",
    }
}

/// Returns the error for a user whom a bucket policy explicitly denies an action (IAM User Guide, "Troubleshoot access
/// denied error messages").
fn denied_by_policy(user: &str, action: &str, bucket: Option<&str>, key: Option<&str>) -> S3Error {
    let resource = bucket.into_iter().chain(key).collect::<Vec<_>>().join("/");
    let message = format!(
        "User: {user} is not authorized to perform: {action} on resource: \"{}{resource}\" with an explicit deny in a resource-based policy",
        policy::ARN
    );
    S3Error::with_message(s3s::S3ErrorCode::AccessDenied, message)
}

fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied.")
}
