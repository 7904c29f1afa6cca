//! S3's operations by name: each opens its bucket, does its work in `ops`, and wraps the output.
//!
//! `s3s` calls them with parsed inputs; it answers operations that are missing here with `NotImplemented`.

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use std::sync::Arc;

use crate::admission::AdmittedClient;
use crate::authorizer::Authorizer;
use crate::bucket::Bucket;
use crate::checksums::{self, Checksum, Trailer};
use crate::conditions::ETagLists;
use crate::context::EndpointContext;
use crate::lifecycle;
use crate::notify;
use crate::ops::contents_xml::ContentsXml;
use crate::ops::get::ReadOutput;
use crate::ops::{self, acl, copy, lock, multipart, settings, tagging};
use crate::owners;
use crate::scope::{RequestScope, object_url};
use crate::wire::BucketTags;

/// The implementation of S3's operations.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) context: Arc<EndpointContext>,
    pub(crate) authorizer: Authorizer,
}

/// A request that is being served.
struct Call<'a> {
    service: &'a Service,
    scope: Arc<RequestScope>,
}

impl Service {
    /// Returns the context of an operation, from the extensions of its request.
    fn call(&self, extensions: &http::Extensions) -> S3Result<Call<'_>> {
        Ok(Call { service: self, scope: RequestScope::of(extensions)? })
    }
}

impl Call<'_> {
    fn context(&self) -> &EndpointContext {
        &self.service.context
    }

    async fn bucket(&self) -> S3Result<Bucket> {
        self.context().open_target(&self.scope).await
    }

    /// Removes a setting of the bucket.
    async fn remove(&self, setting: &str) -> S3Result<()> {
        self.bucket().await?.set_text(setting, None).await
    }

    /// Opens the bucket of the source of a copy.
    async fn source_bucket(&self, source: &CopySource) -> S3Result<Bucket> {
        self.context().open_bucket(crate::copy_source::parts(source)?.0).await
    }

    /// Returns the owner of a bucket and its objects.
    async fn owner(&self, bucket: &Bucket) -> S3Result<Owner> {
        Ok(owners::to_dto(owners::find(bucket, &self.context().users).await?))
    }

    fn user(&self) -> Option<String> {
        self.scope.caller.user.clone()
    }

    fn now(&self) -> store::Timestamp {
        self.context().clock.now()
    }

    fn admitted(&self) -> Option<AdmittedClient> {
        Some(self.scope.caller.admitted.clone())
    }

    /// Hides from callers who may not list the bucket that a key is missing.
    async fn hide_missing<T>(&self, found: S3Result<T>) -> S3Result<T> {
        match found {
            Ok(found) => Ok(found),
            Err(error) => Err(self.service.authorizer.hide_missing_key(&self.scope, error).await),
        }
    }
}

fn ok<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

/// Returns the empty output of an operation that has succeeded.
fn done<T: Default>(outcome: S3Result<()>) -> S3Result<S3Response<T>> {
    outcome.and_then(|()| ok(T::default()))
}

/// Returns a response with the header of a checksum that the output has no field for.
fn with_checksum<T>((output, checksum): (T, Option<Checksum>)) -> S3Result<S3Response<T>> {
    let mut response = S3Response::new(output);
    checksums::add_checksum_header(&mut response.headers, checksum.as_ref());
    Ok(response)
}

/// Returns the response of an operation that reads an object.
fn read_response<T>(read: ReadOutput<T>) -> S3Result<S3Response<T>> {
    let mut response = S3Response::new(read.output);
    response.headers = read.headers;
    Ok(response)
}

/// Returns a response whose document gets these rows.
fn listing_response<T>((output, rows): (T, ContentsXml)) -> S3Result<S3Response<T>> {
    let mut response = S3Response::new(output);
    response.extensions.insert(rows);
    Ok(response)
}

fn etag_lists(extensions: &http::Extensions) -> ETagLists {
    extensions.get().cloned().unwrap_or_default()
}

fn trailer(extensions: &http::Extensions) -> Option<Trailer> {
    extensions.get().cloned()
}

/// Implements [`S3`]: each operation has its input, its output, and an expression over the call and the request.
macro_rules! implement_s3 {
    (|$call:ident, $request:ident| $($method:ident: $input:ident -> $output:ident => $body:expr;)*) => {
        #[async_trait::async_trait]
        impl S3 for Service {
            $(async fn $method(&self, $request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let $call = self.call(&$request.extensions)?;
                $body
            })*
        }
    };
}

implement_s3! { |call, request|
    // The service.
    list_buckets: ListBucketsInput -> ListBucketsOutput =>
        ok(ops::buckets::list(call.context(), call.user(), request.input).await?);

    // Buckets.
    head_bucket: HeadBucketInput -> HeadBucketOutput => {
        call.bucket().await?;
        ok(HeadBucketOutput { bucket_region: Some(call.context().region.clone()), ..Default::default() })
    };
    create_bucket: CreateBucketInput -> CreateBucketOutput => {
        let tags = request.extensions.get::<BucketTags>();
        ops::buckets::create(call.context(), &request.input, tags, call.user().as_deref()).await?;
        let name = &request.input.bucket;
        let mut response = S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) });
        if let Ok(arn) = format!("arn:aws:s3:::{name}").parse() {
            response.headers.insert("x-amz-bucket-arn", arn);
        }
        Ok(response)
    };
    delete_bucket: DeleteBucketInput -> DeleteBucketOutput =>
        done(ops::buckets::delete(call.context(), &call.bucket().await?).await);
    get_bucket_location: GetBucketLocationInput -> GetBucketLocationOutput => {
        call.bucket().await?;
        // S3 reports us-east-1 as no constraint (S3 API, GetBucketLocation).
        let region = Some(call.context().region.clone()).filter(|region| region != "us-east-1");
        ok(GetBucketLocationOutput { location_constraint: region.map(BucketLocationConstraint::from) })
    };
    list_objects: ListObjectsInput -> ListObjectsOutput => {
        let bucket = call.bucket().await?;
        listing_response(ops::listing::v1(&bucket, &call.owner(&bucket).await?, request.input).await?)
    };
    list_objects_v2: ListObjectsV2Input -> ListObjectsV2Output => {
        let bucket = call.bucket().await?;
        let with_attributes = call.scope.query.get("metadata") == Some("true")
            && call.service.authorizer.may_read_every_object(&call.scope).await?;
        let owner = call.owner(&bucket).await?;
        listing_response(ops::listing::v2(&bucket, &owner, request.input, with_attributes).await?)
    };
    list_object_versions: ListObjectVersionsInput -> ListObjectVersionsOutput => {
        let bucket = call.bucket().await?;
        ok(ops::versions::list(&bucket, &call.owner(&bucket).await?, request.input).await?)
    };
    delete_objects: DeleteObjectsInput -> DeleteObjectsOutput => {
        let bucket = call.bucket().await?;
        let denied = call.service.authorizer.denied_deletions(&call.scope, &request.input).await;
        ok(ops::delete::delete_many(&bucket, request.input, &denied).await?)
    };

    // Settings of buckets.
    get_bucket_acl: GetBucketAclInput -> GetBucketAclOutput => {
        let bucket = call.bucket().await?;
        ok(acl::get(&bucket, call.owner(&bucket).await?).await?)
    };
    put_bucket_acl: PutBucketAclInput -> PutBucketAclOutput => {
        let (bucket, input) = (call.bucket().await?, request.input);
        let given = acl::acl_request!(input, input.access_control_policy);
        let users = &call.context().users;
        done(acl::put(&bucket, given, users, &owners::find(&bucket, users).await?).await)
    };
    get_bucket_cors: GetBucketCorsInput -> GetBucketCorsOutput =>
        ok(settings::get_cors(&call.bucket().await?).await?);
    put_bucket_cors: PutBucketCorsInput -> PutBucketCorsOutput =>
        done(settings::put_cors(&call.bucket().await?, &request.input.cors_configuration).await);
    delete_bucket_cors: DeleteBucketCorsInput -> DeleteBucketCorsOutput =>
        done(call.remove(settings::CORS).await);
    get_bucket_lifecycle_configuration:
        GetBucketLifecycleConfigurationInput -> GetBucketLifecycleConfigurationOutput =>
    {
        let rules = Some(settings::get_lifecycle(&call.bucket().await?).await?);
        ok(GetBucketLifecycleConfigurationOutput { rules, ..Default::default() })
    };
    put_bucket_lifecycle_configuration:
        PutBucketLifecycleConfigurationInput -> PutBucketLifecycleConfigurationOutput =>
    {
        let rules = request.input.lifecycle_configuration.map(|given| given.rules).unwrap_or_default();
        done(lifecycle::put(&call.bucket().await?, rules, &call.context().entropy).await)
    };
    delete_bucket_lifecycle: DeleteBucketLifecycleInput -> DeleteBucketLifecycleOutput =>
        done(call.remove(settings::LIFECYCLE).await);
    get_bucket_notification_configuration:
        GetBucketNotificationConfigurationInput -> GetBucketNotificationConfigurationOutput =>
    {
        let set = settings::get_notification(&call.bucket().await?).await?;
        ok(GetBucketNotificationConfigurationOutput {
            event_bridge_configuration: set.event_bridge_configuration,
            lambda_function_configurations: set.lambda_function_configurations,
            queue_configurations: set.queue_configurations,
            topic_configurations: set.topic_configurations,
        })
    };
    put_bucket_notification_configuration:
        PutBucketNotificationConfigurationInput -> PutBucketNotificationConfigurationOutput =>
    {
        let (bucket, given) = (call.bucket().await?, request.input.notification_configuration);
        let context = call.context();
        done(notify::configuration::put(&bucket, given, &context.notifier, &context.entropy).await)
    };
    get_object_lock_configuration: GetObjectLockConfigurationInput -> GetObjectLockConfigurationOutput => {
        let object_lock_configuration = Some(lock::get_configuration(&call.bucket().await?).await?);
        ok(GetObjectLockConfigurationOutput { object_lock_configuration })
    };
    put_object_lock_configuration: PutObjectLockConfigurationInput -> PutObjectLockConfigurationOutput =>
        done(lock::put_configuration(&call.bucket().await?, request.input.object_lock_configuration).await);
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput -> GetBucketOwnershipControlsOutput => {
        let ownership_controls = Some(settings::get_ownership(&call.bucket().await?).await?);
        ok(GetBucketOwnershipControlsOutput { ownership_controls })
    };
    put_bucket_ownership_controls: PutBucketOwnershipControlsInput -> PutBucketOwnershipControlsOutput =>
        done(settings::put_ownership(&call.bucket().await?, &request.input.ownership_controls).await);
    delete_bucket_ownership_controls:
        DeleteBucketOwnershipControlsInput -> DeleteBucketOwnershipControlsOutput =>
        done(call.remove(settings::OWNERSHIP).await);
    get_bucket_policy: GetBucketPolicyInput -> GetBucketPolicyOutput => {
        let policy = Some(settings::get_policy(&call.bucket().await?).await?);
        ok(GetBucketPolicyOutput { policy })
    };
    put_bucket_policy: PutBucketPolicyInput -> PutBucketPolicyOutput =>
        done(settings::put_policy(&call.bucket().await?, request.input.policy, &call.context().users).await);
    delete_bucket_policy: DeleteBucketPolicyInput -> DeleteBucketPolicyOutput =>
        done(call.remove(settings::POLICY).await);
    get_bucket_policy_status: GetBucketPolicyStatusInput -> GetBucketPolicyStatusOutput => {
        let is_public = Some(settings::is_policy_public(&call.bucket().await?).await?);
        ok(GetBucketPolicyStatusOutput { policy_status: Some(PolicyStatus { is_public }) })
    };
    get_bucket_tagging: GetBucketTaggingInput -> GetBucketTaggingOutput =>
        ok(settings::get_tagging(&call.bucket().await?).await?);
    put_bucket_tagging: PutBucketTaggingInput -> PutBucketTaggingOutput =>
        done(settings::put_tagging(&call.bucket().await?, &request.input.tagging.tag_set).await);
    delete_bucket_tagging: DeleteBucketTaggingInput -> DeleteBucketTaggingOutput =>
        done(call.remove(settings::TAGGING).await);
    get_bucket_versioning: GetBucketVersioningInput -> GetBucketVersioningOutput =>
        ok(ops::versions::get_state(&call.bucket().await?).await?);
    put_bucket_versioning: PutBucketVersioningInput -> PutBucketVersioningOutput =>
        done(ops::versions::put_state(&call.bucket().await?, request.input.versioning_configuration).await);
    get_bucket_website: GetBucketWebsiteInput -> GetBucketWebsiteOutput =>
        ok(ops::website::get(&call.bucket().await?).await?);
    put_bucket_website: PutBucketWebsiteInput -> PutBucketWebsiteOutput =>
        done(ops::website::put(&call.bucket().await?, &request.input.website_configuration).await);
    delete_bucket_website: DeleteBucketWebsiteInput -> DeleteBucketWebsiteOutput =>
        done(call.remove(ops::website::SETTING).await);

    // Objects.
    head_object: HeadObjectInput -> HeadObjectOutput => {
        let lists = etag_lists(&request.extensions);
        let found = ops::get::head(call.bucket().await?, request.input, lists).await;
        read_response(call.hide_missing(found).await?)
    };
    get_object: GetObjectInput -> GetObjectOutput => {
        let lists = etag_lists(&request.extensions);
        let found = ops::get::get(call.bucket().await?, request.input, lists).await;
        read_response(call.hide_missing(found).await?)
    };
    get_object_attributes: GetObjectAttributesInput -> GetObjectAttributesOutput => {
        let found = ops::get::attributes(call.bucket().await?, request.input).await;
        ok(call.hide_missing(found).await?)
    };
    put_object: PutObjectInput -> PutObjectOutput => {
        let body = (trailer(&request.extensions), call.admitted());
        let (bucket, headers) = (call.bucket().await?, &request.headers);
        with_checksum(ops::put::put(bucket, request.input, headers, body, call.context()).await?)
    };
    copy_object: CopyObjectInput -> CopyObjectOutput => {
        let from = call.source_bucket(&request.input.copy_source).await?;
        let (to, headers) = (call.bucket().await?, &request.headers);
        ok(copy::copy(from, to, request.input, headers, call.now(), call.admitted()).await?)
    };
    delete_object: DeleteObjectInput -> DeleteObjectOutput =>
        ok(ops::delete::delete(&call.bucket().await?, &request.input).await?);
    get_object_acl: GetObjectAclInput -> GetObjectAclOutput => {
        let bucket = call.bucket().await?;
        ok(acl::get_object(&bucket, call.owner(&bucket).await?, &request.input).await?)
    };
    put_object_acl: PutObjectAclInput -> PutObjectAclOutput => {
        let bucket = call.bucket().await?;
        let list = request.input.access_control_policy.as_ref();
        done(acl::put_object(&bucket, &call.owner(&bucket).await?, list, &request.headers).await)
    };
    get_object_tagging: GetObjectTaggingInput -> GetObjectTaggingOutput => {
        let input = request.input;
        ok(tagging::get(&call.bucket().await?, &input.key, input.version_id.as_deref()).await?)
    };
    put_object_tagging: PutObjectTaggingInput -> PutObjectTaggingOutput =>
        ok(tagging::put(&call.bucket().await?, &request.input).await?);
    delete_object_tagging: DeleteObjectTaggingInput -> DeleteObjectTaggingOutput =>
        ok(tagging::delete(&call.bucket().await?, &request.input).await?);
    get_object_retention: GetObjectRetentionInput -> GetObjectRetentionOutput =>
        ok(lock::get_retention(&call.bucket().await?, &request.input).await?);
    put_object_retention: PutObjectRetentionInput -> PutObjectRetentionOutput =>
        done(lock::put_retention(&call.bucket().await?, request.input, call.now()).await);
    get_object_legal_hold: GetObjectLegalHoldInput -> GetObjectLegalHoldOutput =>
        ok(lock::get_legal_hold(&call.bucket().await?, &request.input).await?);
    put_object_legal_hold: PutObjectLegalHoldInput -> PutObjectLegalHoldOutput =>
        done(lock::put_legal_hold(&call.bucket().await?, request.input).await);

    // Multipart uploads.
    create_multipart_upload: CreateMultipartUploadInput -> CreateMultipartUploadOutput => {
        let (bucket, headers) = (call.bucket().await?, &request.headers);
        ok(multipart::create(&bucket, request.input, headers, call.user(), call.now()).await?)
    };
    upload_part: UploadPartInput -> UploadPartOutput => {
        let body = (trailer(&request.extensions), call.admitted());
        let (bucket, headers, with_md5) = (call.bucket().await?, &request.headers, call.context().md5);
        with_checksum(multipart::upload_part(&bucket, request.input, headers, body, with_md5).await?)
    };
    upload_part_copy: UploadPartCopyInput -> UploadPartCopyOutput => {
        let (bucket, with_md5) = (call.bucket().await?, call.context().md5);
        multipart::part_number(request.input.part_number)?;
        let from = call.source_bucket(&request.input.copy_source).await?;
        ok(multipart::upload_part_copy(from, &bucket, request.input, call.admitted(), with_md5).await?)
    };
    complete_multipart_upload: CompleteMultipartUploadInput -> CompleteMultipartUploadOutput => {
        let location = Some(object_url(&call.scope.bucket_url, &request.input.key));
        let output = multipart::complete(&call.bucket().await?, request.input, &request.headers).await?;
        ok(CompleteMultipartUploadOutput { location, ..output })
    };
    abort_multipart_upload: AbortMultipartUploadInput -> AbortMultipartUploadOutput =>
        done(multipart::abort(&call.bucket().await?, &request.input).await);
    list_parts: ListPartsInput -> ListPartsOutput => {
        let bucket = call.bucket().await?;
        ok(multipart::list_parts(&bucket, &call.owner(&bucket).await?, request.input).await?)
    };
    list_multipart_uploads: ListMultipartUploadsInput -> ListMultipartUploadsOutput => {
        let bucket = call.bucket().await?;
        ok(multipart::list_uploads(&bucket, &call.owner(&bucket).await?, request.input).await?)
    };
}
