//! S3's operations by name: each opens its bucket, does its work in `ops`, and wraps the output.
//!
//! `s3s` answers operations that are missing here with `NotImplemented`.

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::authorizer::Authorizer;
use crate::checksums;
use crate::conditions::ETagLists;
use crate::endpoint::{EndpointContext, location};
use crate::error::from_store;
use crate::lifecycle;
use crate::notify::{self, Action};
use crate::ops::contents_xml::ContentsXml;
use crate::ops::{self, acl, lock, settings};
use crate::owners;
use crate::policy::Policy;
use crate::policy_condition::RequestContext;
use crate::wire::{BucketTags, Signer};

/// The implementation of S3's operations.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) context: Arc<EndpointContext>,
    pub(crate) authorizer: Authorizer,
}

impl Service {
    /// Returns the owner of a bucket and its objects.
    async fn owner(&self, bucket: &crate::bucket::Bucket) -> S3Result<Owner> {
        Ok(owners::to_dto(owners::find(bucket, &self.context.users).await?))
    }

    fn now(&self) -> store::Timestamp {
        self.context.clock.now()
    }

    async fn open_bucket(&self, name: &str) -> S3Result<crate::bucket::Bucket> {
        self.context.open_bucket(name).await
    }

    async fn open_source(&self, source: &CopySource) -> S3Result<crate::bucket::Bucket> {
        self.open_bucket(ops::copy::parse_source(source)?.0).await
    }
}

/// Returns the etag lists of a conditional read.
fn etag_lists(extensions: &http::Extensions) -> ETagLists {
    extensions.get().cloned().unwrap_or_default()
}

/// Returns a response with the header of a checksum that the output has no field for.
fn with_checksum<T>(output: T, checksum: Option<&checksums::Checksum>) -> S3Result<S3Response<T>> {
    let mut response = S3Response::new(output);
    checksums::add_checksum_header(&mut response.headers, checksum);
    Ok(response)
}

fn read_response<T>(read: ops::get::ReadOutput<T>) -> S3Result<S3Response<T>> {
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

fn ok<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let name = bucket.name.clone();
        let S3Request { input, uri, extensions, .. } = request;
        match ops::get::get(bucket, input, etag_lists(&extensions)).await {
            Ok(found) => read_response(found),
            Err(error) => Err(self.authorizer.hide_missing_key(&name, &uri, &extensions, error).await),
        }
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let name = bucket.name.clone();
        let S3Request { input, uri, extensions, .. } = request;
        match ops::get::head(bucket, input, etag_lists(&extensions)).await {
            Ok(found) => read_response(found),
            Err(error) => Err(self.authorizer.hide_missing_key(&name, &uri, &extensions, error).await),
        }
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let name = bucket.name.clone();
        let S3Request { input, uri, extensions, .. } = request;
        match ops::get::attributes(bucket, input).await {
            Ok(found) => ok(found),
            Err(error) => Err(self.authorizer.hide_missing_key(&name, &uri, &extensions, error).await),
        }
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let bucket = self
            .context
            .open_observed(&request, &request.input.bucket, Action::of_put(&request.extensions))
            .await?;
        let body = (request.extensions.get().cloned(), request.extensions.get().cloned());
        let (output, checksum) =
            ops::put::put(bucket, request.input, &request.headers, body, &self.context).await?;
        with_checksum(output, checksum.as_ref())
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let from = self.open_source(&request.input.copy_source).await?;
        let to = self.context.open_observed(&request, &request.input.bucket, Action::Copy).await?;
        let admitted = request.extensions.get().cloned();
        ok(ops::copy::copy(from, to, request.input, &request.headers, self.now(), admitted).await?)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let bucket = self.context.open_observed(&request, &request.input.bucket, Action::Delete).await?;
        ok(ops::delete::delete(&bucket, &request.input).await?)
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let bucket = self.context.open_observed(&request, &request.input.bucket, Action::Delete).await?;
        let user = Signer::of(&request.extensions);
        let bypasses = request.input.bypass_governance_retention.unwrap_or(false);
        let request_context = RequestContext::of(&request.uri, &request.extensions);
        let mut denied = BTreeSet::new();
        for (at, object) in request.input.delete.objects.iter().enumerate() {
            let version = object.version_id.as_deref().filter(|version| !version.is_empty());
            let action = if version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
            let bypass = bypasses.then_some("s3:BypassGovernanceRetention");
            for action in std::iter::once(action).chain(bypass) {
                if self
                    .authorizer
                    .authorize(user, action, Some(&bucket.name), Some(&object.key), &request_context)
                    .await
                    .is_err()
                {
                    denied.insert(at);
                }
            }
        }
        ok(ops::delete::delete_many(&bucket, request.input, &denied).await?)
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        listing_response(ops::listing::v1(&bucket, &self.owner(&bucket).await?, request.input).await?)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        listing_response(ops::listing::v2(&bucket, &self.owner(&bucket).await?, request.input).await?)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ok(ops::listing::versions(&bucket, &self.owner(&bucket).await?, request.input).await?)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let initiator = self.context.user_of(Signer::of(&request.extensions));
        ok(ops::multipart::create(&bucket, request.input, &request.headers, initiator, self.now()).await?)
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let body = (request.extensions.get().cloned(), request.extensions.get().cloned());
        let (output, checksum) =
            ops::multipart::upload_part(&bucket, request.input, &request.headers, body, self.context.md5)
                .await?;
        with_checksum(output, checksum.as_ref())
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ops::multipart::part_number(request.input.part_number)?;
        let from = self.open_source(&request.input.copy_source).await?;
        let admitted = request.extensions.get().cloned();
        let with_md5 = self.context.md5;
        ok(ops::multipart::upload_part_copy(from, &bucket, request.input, admitted, with_md5).await?)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let bucket = self.context.open_observed(&request, &request.input.bucket, Action::Complete).await?;
        let at = location(&request.extensions, &request.input.key);
        let mut output = ops::multipart::complete(&bucket, request.input, &request.headers).await?;
        output.location = Some(at);
        ok(output)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ops::multipart::abort(&bucket, &request.input).await?;
        ok(AbortMultipartUploadOutput::default())
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ok(ops::multipart::list_parts(&bucket, &self.owner(&bucket).await?, request.input).await?)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ok(ops::multipart::list_uploads(&bucket, &self.owner(&bucket).await?, request.input).await?)
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ok(ops::tagging::get(&bucket, &request.input.key, request.input.version_id.as_deref()).await?)
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let bucket = self.context.open_observed(&request, &request.input.bucket, Action::PutTags).await?;
        let input = request.input;
        ok(ops::tagging::put(&bucket, &input.key, input.version_id.as_deref(), &input.tagging.tag_set)
            .await?)
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let bucket = self.context.open_observed(&request, &request.input.bucket, Action::DeleteTags).await?;
        let input = request.input;
        ok(ops::tagging::delete(&bucket, &input.key, input.version_id.as_deref()).await?)
    }

    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let user = self.context.user_of(Signer::of(&request.extensions));
        ok(ops::buckets::list(&self.context, user, request.input).await?)
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.open_bucket(&request.input.bucket).await?;
        ok(HeadBucketOutput { bucket_region: Some(self.context.region.clone()), ..Default::default() })
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let maker = self.context.user_of(Signer::of(&request.extensions));
        let tags = request.extensions.get::<BucketTags>();
        ops::buckets::create(&self.context, &request.input, tags, maker.as_deref()).await?;
        let name = &request.input.bucket;
        let mut response = S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) });
        if let Ok(arn) = format!("arn:aws:s3:::{name}").parse() {
            response.headers.insert("x-amz-bucket-arn", arn);
        }
        Ok(response)
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let kept =
            crate::version_lookup::versioning_state(&self.open_bucket(&request.input.bucket).await?).await?;
        let deleted = self.context.buckets.delete(&request.input.bucket).await;
        deleted.map_err(|error| match error {
            store::StoreError::BucketState { .. } => {
                let message = match kept {
                    store::Versioning::Never => "The bucket you tried to delete is not empty.",
                    _ => "The bucket you tried to delete is not empty. You must delete all versions in the bucket.",
                };
                s3_error!(BucketNotEmpty, "{message}")
            }
            error => from_store(error),
        })?;
        ok(DeleteBucketOutput::default())
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.open_bucket(&request.input.bucket).await?;
        // S3 reports us-east-1 as no constraint (S3 API, GetBucketLocation).
        let region = Some(self.context.region.clone()).filter(|region| region != "us-east-1");
        ok(GetBucketLocationOutput { location_constraint: region.map(BucketLocationConstraint::from) })
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        ok(ops::versions::get_state(&self.open_bucket(&request.input.bucket).await?).await?)
    }

    async fn put_bucket_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ops::versions::put_state(&bucket, request.input.versioning_configuration).await?;
        ok(PutBucketVersioningOutput::default())
    }

    async fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let configuration = lock::get_configuration(&bucket).await?;
        ok(GetObjectLockConfigurationOutput { object_lock_configuration: Some(configuration) })
    }

    async fn put_object_lock_configuration(
        &self,
        request: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        lock::put_configuration(&bucket, request.input.object_lock_configuration).await?;
        ok(PutObjectLockConfigurationOutput::default())
    }

    async fn get_object_retention(
        &self,
        request: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let input = request.input;
        let retention = lock::get_retention(&bucket, &input.key, input.version_id.as_deref()).await?;
        ok(GetObjectRetentionOutput { retention: Some(retention) })
    }

    async fn put_object_retention(
        &self,
        request: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        lock::put_retention(&bucket, request.input, self.now()).await?;
        ok(PutObjectRetentionOutput::default())
    }

    async fn get_object_legal_hold(
        &self,
        request: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let input = request.input;
        let held = lock::get_legal_hold(&bucket, &input.key, input.version_id.as_deref()).await?;
        ok(GetObjectLegalHoldOutput { legal_hold: Some(held) })
    }

    async fn put_object_legal_hold(
        &self,
        request: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        lock::put_legal_hold(&bucket, request.input).await?;
        ok(PutObjectLegalHoldOutput::default())
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let owner = self.owner(&bucket).await?;
        let grants = acl::get(&bucket, &owner).await?;
        ok(GetBucketAclOutput { grants: Some(grants), owner: Some(owner) })
    }

    async fn put_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let input = request.input;
        let given = acl::acl_request!(input, input.access_control_policy);
        let owner = owners::find(&bucket, &self.context.users).await?;
        acl::put(&bucket, given, &self.context.users, &owner).await?;
        ok(PutBucketAclOutput::default())
    }

    async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let key = crate::bucket::key(&request.input.key)?;
        crate::version_lookup::head(&bucket, &key, request.input.version_id.as_deref()).await?;
        let owner = self.owner(&bucket).await?;
        let grants = Some(vec![acl::owner_grant(&owner)]);
        ok(GetObjectAclOutput { grants, owner: Some(owner), ..Default::default() })
    }

    async fn put_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let list = request.input.access_control_policy.as_ref();
        acl::put_object(&bucket, &self.owner(&bucket).await?, list, &request.headers).await?;
        ok(PutObjectAclOutput::default())
    }

    async fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        ok(settings::get_tagging(&self.open_bucket(&request.input.bucket).await?).await?)
    }

    async fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        settings::put_tagging(&bucket, &request.input.tagging.tag_set).await?;
        ok(PutBucketTaggingOutput::default())
    }

    async fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        settings::delete_tagging(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(DeleteBucketTaggingOutput::default())
    }

    async fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        let policy = settings::get_policy(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(GetBucketPolicyOutput { policy: Some(policy) })
    }

    async fn put_bucket_policy(
        &self,
        request: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        settings::put_policy(&bucket, request.input.policy, &self.context.users).await?;
        ok(PutBucketPolicyOutput::default())
    }

    async fn delete_bucket_policy(
        &self,
        request: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        settings::delete_policy(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(DeleteBucketPolicyOutput::default())
    }

    async fn get_bucket_policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let policy = Policy::parse(&settings::get_policy(&bucket).await?, &bucket.name)?;
        let status = PolicyStatus { is_public: Some(policy.is_public()) };
        ok(GetBucketPolicyStatusOutput { policy_status: Some(status) })
    }

    async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        ok(settings::get_cors(&self.open_bucket(&request.input.bucket).await?).await?)
    }

    async fn put_bucket_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        settings::put_cors(&bucket, &request.input.cors_configuration).await?;
        ok(PutBucketCorsOutput::default())
    }

    async fn delete_bucket_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        settings::delete_cors(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(DeleteBucketCorsOutput::default())
    }

    async fn get_bucket_website(
        &self,
        request: S3Request<GetBucketWebsiteInput>,
    ) -> S3Result<S3Response<GetBucketWebsiteOutput>> {
        ok(ops::website::get(&self.open_bucket(&request.input.bucket).await?).await?)
    }

    async fn put_bucket_website(
        &self,
        request: S3Request<PutBucketWebsiteInput>,
    ) -> S3Result<S3Response<PutBucketWebsiteOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        ops::website::put(&bucket, &request.input.website_configuration).await?;
        ok(PutBucketWebsiteOutput::default())
    }

    async fn delete_bucket_website(
        &self,
        request: S3Request<DeleteBucketWebsiteInput>,
    ) -> S3Result<S3Response<DeleteBucketWebsiteOutput>> {
        ops::website::delete(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(DeleteBucketWebsiteOutput::default())
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let rules = settings::get_lifecycle(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(GetBucketLifecycleConfigurationOutput { rules: Some(rules), ..Default::default() })
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let rules = request.input.lifecycle_configuration.map(|given| given.rules).unwrap_or_default();
        lifecycle::put(&bucket, rules, &self.context.entropy).await?;
        ok(PutBucketLifecycleConfigurationOutput::default())
    }

    async fn delete_bucket_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        settings::delete_lifecycle(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(DeleteBucketLifecycleOutput::default())
    }

    async fn get_bucket_notification_configuration(
        &self,
        request: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
        let set = settings::get_notification(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(GetBucketNotificationConfigurationOutput {
            event_bridge_configuration: set.event_bridge_configuration,
            lambda_function_configurations: set.lambda_function_configurations,
            queue_configurations: set.queue_configurations,
            topic_configurations: set.topic_configurations,
        })
    }

    async fn put_bucket_notification_configuration(
        &self,
        request: S3Request<PutBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketNotificationConfigurationOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        let given = request.input.notification_configuration;
        let context = &self.context;
        notify::configuration::put(&bucket, given, &context.notifier, &context.entropy).await?;
        ok(PutBucketNotificationConfigurationOutput::default())
    }

    async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        let controls = settings::get_ownership(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(GetBucketOwnershipControlsOutput { ownership_controls: Some(controls) })
    }

    async fn put_bucket_ownership_controls(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        let bucket = self.open_bucket(&request.input.bucket).await?;
        settings::put_ownership(&bucket, &request.input.ownership_controls).await?;
        ok(PutBucketOwnershipControlsOutput::default())
    }

    async fn delete_bucket_ownership_controls(
        &self,
        request: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
        settings::delete_ownership(&self.open_bucket(&request.input.bucket).await?).await?;
        ok(DeleteBucketOwnershipControlsOutput::default())
    }
}
