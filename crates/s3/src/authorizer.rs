//! Authorization: decides by the user's role, the bucket's policy, its owner and its ACL whether a request is allowed.

use http::{HeaderMap, HeaderValue};
use s3s::dto::DeleteObjectsInput;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::context::EndpointContext;
use crate::copy_source;
use crate::file_mode;
use crate::iam_actions::{of_version, role_allows};
use crate::operations::{Handler, Subject};
use crate::ops::{acl, multipart, rename, settings, tagging};
use crate::owners;
use crate::policy::{self, AccessRequest, Effect, Policy};
use crate::scope::{Caller, RequestScope};
use crate::users::Role;

/// The authorization of an endpoint's requests.
#[derive(Debug, Clone)]
pub(crate) struct Authorizer(pub(crate) Arc<EndpointContext>);

impl Authorizer {
    /// Authorizes what a request does to its target. Errors: `AccessDenied`, and `InvalidRequest` for an unsigned
    /// request that sets response headers.
    pub(crate) async fn authorize_target(&self, scope: &RequestScope, headers: &HeaderMap) -> S3Result<()> {
        let (caller, bucket, key) = (&scope.caller, scope.target.bucket(), scope.target.key());
        if caller.signer.is_none() && scope.operation.handler == Handler::Route {
            return Err(denied());
        }
        if caller.signer.is_none() && scope.query.names().any(|name| name.starts_with("response-")) {
            return Err(s3_error!(
                InvalidRequest,
                "Request specific response headers cannot be used for anonymous GET requests."
            ));
        }
        self.check_expected_owner(bucket, headers.get("x-amz-expected-bucket-owner")).await?;
        let bypasses = headers.get("x-amz-bypass-governance-retention");
        if bypasses.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")) && key.is_some() {
            self.authorize(caller, "s3:BypassGovernanceRetention", bucket, key).await?;
        }
        for (action, subject) in scope.operation.permissions() {
            match subject {
                Subject::Target => {
                    let is_of_version = scope.query.non_empty("versionId").is_some();
                    let action = if is_of_version { of_version(action) } else { action };
                    self.authorize(caller, action, bucket, key).await?;
                }
                Subject::NewObject => {
                    self.authorize(caller, action, bucket, key).await?;
                    self.check_new_object(scope, headers).await?;
                }
                Subject::Upload => self.authorize_upload(scope, action).await?,
                // Every signed-in user may send the request; `denied_deletions` decides for each key.
                Subject::EachKey if caller.user.is_some() => {}
                Subject::EachKey => self.authorize(caller, action, bucket, Some("*")).await?,
                Subject::CopySource | Subject::CopiedTags | Subject::RenameSource => {}
            }
        }
        Ok(())
    }

    /// Authorizes what a request does to the sources that its headers name. Error: `AccessDenied`.
    pub(crate) async fn authorize_sources(&self, scope: &RequestScope, headers: &HeaderMap) -> S3Result<()> {
        for (action, subject) in scope.operation.permissions() {
            match subject {
                Subject::CopySource => self.authorize_copy_source(scope, headers, action).await?,
                Subject::CopiedTags if !replaces_tags(headers) => {
                    self.authorize_copied_tags(scope, action).await?;
                }
                Subject::RenameSource => {
                    let source = rename::RenameRequest::parse(&scope.target, headers)?.from;
                    self.authorize(&scope.caller, action, scope.target.bucket(), Some(&source)).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the positions of the keys in a DeleteObjects request that the caller may not delete.
    pub(crate) async fn denied_deletions(
        &self,
        scope: &RequestScope,
        input: &DeleteObjectsInput,
    ) -> BTreeSet<usize> {
        let bypass = input.bypass_governance_retention.unwrap_or(false);
        let bypass = bypass.then_some("s3:BypassGovernanceRetention");
        let mut denied = BTreeSet::new();
        for (at, object) in input.delete.objects.iter().enumerate() {
            let is_of_version = object.version_id.as_deref().is_some_and(|version| !version.is_empty());
            let action = if is_of_version { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
            for action in std::iter::once(action).chain(bypass) {
                let key = Some(object.key.as_str());
                if self.authorize(&scope.caller, action, scope.target.bucket(), key).await.is_err() {
                    denied.insert(at);
                }
            }
        }
        denied
    }

    /// Returns whether the caller may read every object of the target's bucket. Without a bucket policy the permission does not
    /// depend on the key; with one, this returns false.
    pub(crate) async fn may_read_every_object(&self, scope: &RequestScope) -> S3Result<bool> {
        let Some(name) = scope.target.bucket() else { return Ok(false) };
        if self.0.open_bucket(name).await?.text(settings::POLICY).await?.is_some() {
            return Ok(false);
        }
        Ok(self.authorize(&scope.caller, "s3:GetObject", Some(name), Some("*")).await.is_ok())
    }

    /// Fails with `AccessDenied` unless the caller may perform `action` on a bucket or, with `key`, an object. Fails with
    /// another error if the bucket's policy, owner or ACL cannot be read.
    pub(crate) async fn authorize(
        &self,
        caller: &Caller,
        action: &str,
        bucket: Option<&str>,
        key: Option<&str>,
    ) -> S3Result<()> {
        let user = caller.user.as_deref();
        let role = user.and_then(|user| self.0.users.get(user)).map(|user| user.role);
        let effect = match bucket {
            Some(bucket) => self.evaluate_policy(caller, action, bucket, key).await?,
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

    /// Returns whether the bucket exists and belongs to the user.
    async fn is_owner(&self, user: Option<&str>, bucket: Option<&str>) -> S3Result<bool> {
        let (Some(user), Some(bucket)) = (user, bucket) else { return Ok(false) };
        match self.0.open_bucket(bucket).await {
            Ok(bucket) => Ok(owners::find(&bucket, &self.0.users).await? == user),
            Err(_) => Ok(false),
        }
    }

    /// Returns whether the list of users assigns the bucket to the user. The bucket need not exist yet.
    fn is_assigned(&self, user: Option<&str>, bucket: Option<&str>) -> bool {
        let (Some(user), Some(bucket)) = (user, bucket) else { return false };
        self.0.users.assigned_owner(bucket).is_some_and(|owner| owner == user)
    }

    /// Fails with `AccessDenied` if the bucket has another owner than the request expects
    /// (`x-amz-expected-bucket-owner`).
    async fn check_expected_owner(&self, bucket: Option<&str>, wanted: Option<&HeaderValue>) -> S3Result<()> {
        let (Some(wanted), Some(bucket)) = (wanted, bucket) else { return Ok(()) };
        // The operation itself reports a missing bucket.
        let Ok(bucket) = self.0.open_bucket(bucket).await else { return Ok(()) };
        if owners::find(&bucket, &self.0.users).await?.as_bytes() == wanted.as_bytes() {
            Ok(())
        } else {
            Err(denied())
        }
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
        caller: &Caller,
        action: &str,
        bucket: &str,
        key: Option<&str>,
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
        Ok(policy.evaluate(AccessRequest {
            user: caller.user.as_deref(),
            action,
            resource: &resource,
            request_context: &caller.request_context,
        }))
    }

    /// Authorizes what the headers of a new object ask for: its tags, lock and ACL. Refuses metadata that makes it a
    /// set-user-id file, a device, a link or the like, unless the user is an administrator: in a mount such files would
    /// act as if root had created them.
    async fn check_new_object(&self, scope: &RequestScope, headers: &HeaderMap) -> S3Result<()> {
        let (caller, bucket, key) = (&scope.caller, scope.target.bucket(), scope.target.key());
        for action in header_actions(headers) {
            self.authorize(caller, action, bucket, key).await?;
        }
        let user = caller.user.as_deref().and_then(|user| self.0.users.get(user));
        let is_admin = user.is_some_and(|user| user.role == Role::Admin);
        if !is_admin && file_mode::is_special(headers) {
            return Err(denied());
        }
        // The operation itself reports a missing bucket.
        match self.0.open_bucket(bucket.unwrap_or_default()).await {
            Ok(bucket) => acl::check_object(&bucket, headers).await,
            Err(_) => Ok(()),
        }
    }

    /// Authorizes a request about an upload. Its initiator may abort it and list its parts (S3 User Guide, "Multipart
    /// upload API and permissions").
    async fn authorize_upload(&self, scope: &RequestScope, action: &str) -> S3Result<()> {
        let (user, bucket, key) = (&scope.caller.user, scope.target.bucket(), scope.target.key());
        let Err(error) = self.authorize(&scope.caller, action, bucket, key).await else { return Ok(()) };
        let (Some(user), Some(bucket), Some(key), Some(id)) =
            (user, bucket, key, scope.query.get("uploadId"))
        else {
            return Err(error);
        };
        match self.0.open_bucket(bucket).await {
            Ok(bucket) if multipart::is_initiator(&bucket, key, id, user).await? => Ok(()),
            _ => Err(error),
        }
    }

    /// Fails unless the caller may do `action` to the source of a copy.
    async fn authorize_copy_source(
        &self,
        scope: &RequestScope,
        headers: &HeaderMap,
        action: &'static str,
    ) -> S3Result<()> {
        let Some(source) = &scope.copy_source else { return Err(denied()) };
        let (bucket, key, version) = copy_source::parts(source)?;
        self.check_expected_owner(Some(bucket), headers.get("x-amz-source-expected-bucket-owner")).await?;
        let action = if version.is_some() { of_version(action) } else { action };
        let key = String::from_utf8_lossy(key.as_bytes());
        self.authorize(&scope.caller, action, Some(bucket), Some(&key)).await
    }

    /// Refuses a copy of tags that the user may not read or may not write. A source without tags is never refused.
    async fn authorize_copied_tags(&self, scope: &RequestScope, action: &'static str) -> S3Result<()> {
        let Some(source) = &scope.copy_source else { return Err(denied()) };
        let (bucket, key, version) = copy_source::parts(source)?;
        let key = String::from_utf8_lossy(key.as_bytes());
        let (caller, target) = (&scope.caller, &scope.target);
        let reads = if version.is_some() { of_version(action) } else { action };
        let may_read = self.authorize(caller, reads, Some(bucket), Some(&key)).await;
        let may_write = self.authorize(caller, "s3:PutObjectTagging", target.bucket(), target.key()).await;
        let Err(error) = may_read.and(may_write) else { return Ok(()) };
        // The operation itself reports errors of reading the source.
        match tagging::get(&self.0.open_bucket(bucket).await?, &key, version).await {
            Ok(tags) if !tags.tag_set.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Replaces `NoSuchKey` by `AccessDenied` for users who may not list the bucket, so that they cannot probe for keys
    /// (S3 API Reference, GetObject, "Permissions").
    pub(crate) async fn hide_missing_key(&self, scope: &RequestScope, error: S3Error) -> S3Error {
        if *error.code() != S3ErrorCode::NoSuchKey {
            return error;
        }
        match self.authorize(&scope.caller, "s3:ListBucket", scope.target.bucket(), None).await {
            Ok(()) => error,
            Err(_) => denied(),
        }
    }
}

/// Returns whether a copy gets the tags of its request instead of those of its source.
fn replaces_tags(headers: &HeaderMap) -> bool {
    let mut directives = headers.get_all("x-amz-tagging-directive").iter();
    matches!((directives.next(), directives.next()), (Some(only), None) if only.as_bytes() == b"REPLACE")
}

/// Returns the actions that a request's headers need in addition to the operation's own action.
fn header_actions(headers: &HeaderMap) -> impl Iterator<Item = &'static str> {
    [
        ("x-amz-object-lock-mode", "s3:PutObjectRetention"),
        ("x-amz-object-lock-legal-hold", "s3:PutObjectLegalHold"),
        ("x-amz-tagging", "s3:PutObjectTagging"),
    ]
    .into_iter()
    .filter(|(name, _)| headers.get(*name).is_some_and(|value| !value.is_empty()))
    .map(|(_, action)| action)
}

/// Returns the error for a user whom a bucket policy explicitly denies an action (IAM User Guide, "Troubleshoot access
/// denied error messages").
fn denied_by_policy(user: &str, action: &str, bucket: Option<&str>, key: Option<&str>) -> S3Error {
    let resource = bucket.into_iter().chain(key).collect::<Vec<_>>().join("/");
    let message = format!(
        "User: {user} is not authorized to perform: {action} on resource: \"{}{resource}\" with an explicit deny in a resource-based policy",
        policy::ARN
    );
    S3Error::with_message(S3ErrorCode::AccessDenied, message)
}

fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied.")
}
