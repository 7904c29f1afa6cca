//! PutObject, and POST Object, which was rewritten to a PUT before.

use s3s::dto::{PutObjectInput, PutObjectOutput};
use s3s::{S3Result, s3_error};

use crate::admission::AdmittedClient;
use crate::body::{self, BODY_BYTES_MAX, BodyReader, NewObject};
use crate::bucket::{Bucket, key};
use crate::checksums::{
    self, Algorithm, Checksum, Declared, Digests, Trailer, given_checksums, show_checksum,
};
use crate::conditions;
use crate::context::EndpointContext;
use crate::headers::{self, given_attributes};
use crate::lifecycle::{self, ExpirationInput};
use crate::ops::lock;
use crate::version_lookup;

/// Returns the digests that a request declares for its body.
pub(crate) fn declared(
    given: checksums::ChecksumFields,
    algorithm: Option<&str>,
    md5: Option<String>,
    headers: &http::HeaderMap,
    trailer: Option<Trailer>,
) -> S3Result<Declared> {
    let checksum = checksums::single_checksum_with_headers(given, headers)?;
    let after = headers::text(headers, "x-amz-trailer");
    let after = after.and_then(|name| name.trim().strip_prefix("x-amz-checksum-")).map(Algorithm::from_name);
    let sdk = headers::text(headers, "x-amz-sdk-checksum-algorithm");
    let named = sdk.or(algorithm).map(Algorithm::from_name).transpose()?;
    let after = after.transpose()?;
    if after.is_some() && checksum.is_some() {
        return Err(checksums::multiple_checksums_error());
    }
    if sdk.is_some() && checksum.is_none() && headers.get("x-amz-trailer").is_none() {
        return Err(s3_error!(
            InvalidRequest,
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found."
        ));
    }
    let given = checksum.as_ref().map(|(given, _)| *given).or(after);
    if given.zip(named).is_some_and(|(given, named)| given != named) {
        return Err(checksums::invalid_header("x-amz-sdk-checksum-algorithm"));
    }
    Ok(Declared { md5, checksum, algorithm: after.or(named), trailer })
}

/// Returns the declared length of a body. Error: `EntityTooLarge`.
pub(crate) fn announced(length: Option<i64>) -> S3Result<Option<u64>> {
    let announced = length.and_then(|length| u64::try_from(length).ok());
    if announced.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(s3_error!(
            EntityTooLarge,
            "Your proposed upload exceeds the maximum allowed object size."
        ));
    }
    Ok(announced)
}

pub(crate) async fn put(
    bucket: Bucket,
    input: PutObjectInput,
    request_headers: &http::HeaderMap,
    (trailer, admitted): (Option<Trailer>, Option<AdmittedClient>),
    context: &EndpointContext,
) -> S3Result<(PutObjectOutput, Option<Checksum>)> {
    let (key, now) = (key(&input.key)?, context.clock.now());
    let algorithm = input.checksum_algorithm.as_ref().map(|algorithm| algorithm.as_str());
    let declared =
        declared(given_checksums!(input), algorithm, input.content_md5.clone(), request_headers, trailer)?;
    let mut attributes = given_attributes!(input, request_headers)?;
    lock::apply_lock(&bucket, &mut attributes, lock::lock_request!(input), now).await?;
    let tags = headers::tags_of_header(input.tagging.as_deref())?;
    let new_object = NewObject {
        store: bucket.store.as_ref(),
        key: &key,
        attributes,
        tags: tags.clone(),
        precondition: conditions::write_precondition(input.if_match.as_ref(), input.if_none_match.as_ref())?,
    };
    let announced = announced(input.content_length)?;
    let digests = Digests::begin(declared, Some(Algorithm::Crc64Nvme))?;
    let digests = if context.md5 { digests.with_md5() } else { digests };
    let made = match body::put(BodyReader::new(input.body, announced, digests, admitted), new_object).await {
        Ok(made) => made,
        Err(error) => {
            return Err(conditions::refine_failure(error, input.if_match.as_ref(), &bucket, &key).await);
        }
    };
    let mut output = PutObjectOutput {
        e_tag: Some(headers::etag(&made.object.etag)),
        version_id: version_lookup::written_version(&made.object),
        checksum_type: made.checksum.as_ref().map(Checksum::kind),
        ..Default::default()
    };
    show_checksum!(output, made.checksum);
    let object = ExpirationInput { key: key.as_bytes(), size_bytes: announced, modified: Some(now) };
    output.expiration = lifecycle::expiration_header_of_new(&bucket, object, &tags).await;
    Ok((output, made.checksum))
}
