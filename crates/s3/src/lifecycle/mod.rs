//! Lifecycle rules: deletion of objects, noncurrent versions, delete markers and incomplete uploads that are old enough
//! (S3 User Guide, "Managing the lifecycle of objects").
//!
//! Owns the validation of rules, their due times, the header `x-amz-expiration`, and the worker that applies the rules.
//! Rules with transitions to other storage classes are refused.
//!
//! Invariant: only what a rule was evaluated for is deleted. An object stored after the evaluation stays.

mod rule;
mod sweep;
mod validation;
mod worker;

pub use sweep::Expired;
pub(crate) use worker::{expire_all, run};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{LifecycleRule, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use store::{Entropy, ObjectMeta, ObjectRef, Tags, Timestamp};

use crate::bucket::Bucket;
use crate::headers;
use crate::ops::{settings, tagging};
use rule::Rule;

/// Characters that a rule id keeps unencoded in a header.
const UNENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Validates and stores a bucket's rules. Rules without an id get one.
pub(crate) async fn put(bucket: &Bucket, mut rules: Vec<LifecycleRule>, entropy: &Entropy) -> S3Result<()> {
    validation::check(&rules)?;
    for rule in &mut rules {
        let id = rule.id.take().filter(|id| !id.is_empty());
        rule.id = Some(id.unwrap_or_else(|| format!("{:016x}", entropy.next_u64())));
    }
    settings::put_lifecycle(bucket, &rules).await
}

/// Returns the enabled rules of a bucket.
async fn enabled_rules(bucket: &Bucket) -> S3Result<Vec<Rule>> {
    let is_none = |error: &S3Error| *error.code() == S3ErrorCode::NoSuchLifecycleConfiguration;
    match settings::get_lifecycle(bucket).await {
        Ok(rules) => Ok(rules.iter().filter_map(Rule::from_enabled).collect()),
        Err(error) if is_none(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The properties of an object that determine its expiration header.
pub(crate) struct ExpirationInput<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) size_bytes: Option<u64>,
    pub(crate) modified: Option<Timestamp>,
}

/// Returns the header `x-amz-expiration` of a key's current object; `None` if no rule expires the object, or if the
/// rules cannot be read.
pub(crate) async fn expiration_header(bucket: &Bucket, meta: &ObjectMeta) -> Option<String> {
    let input = ExpirationInput {
        key: meta.object.key.as_bytes(),
        size_bytes: Some(meta.size_bytes),
        modified: meta.object.last_modified,
    };
    let rules = enabled_rules(bucket).await.ok()?;
    let mut tags = None;
    if rules.iter().any(|rule| rule.filter.needs_tags()) {
        tags = tagging::read(bucket, &meta.object).await.ok();
    }
    format_expiration(&rules, &input, tags.as_ref())
}

/// Returns the header for an object that was just stored with the given tags.
pub(crate) async fn expiration_header_of_new(
    bucket: &Bucket,
    object: ExpirationInput<'_>,
    tags: &Tags,
) -> Option<String> {
    format_expiration(&enabled_rules(bucket).await.ok()?, &object, Some(tags))
}

/// Returns the header for an object that was just created by a copy or a completed upload.
pub(crate) async fn expiration_header_of_stored(bucket: &Bucket, object: &ObjectRef) -> Option<String> {
    if enabled_rules(bucket).await.ok()?.is_empty() {
        return None;
    }
    let meta = bucket.store.find(&object.key).await.ok()??;
    expiration_header(bucket, &meta).await
}

/// Formats the header for the matching rule that is due first.
fn format_expiration(rules: &[Rule], object: &ExpirationInput<'_>, tags: Option<&Tags>) -> Option<String> {
    let matching = rules.iter().filter(|rule| {
        let fits = object.size_bytes.is_some_and(|size| rule.filter.matches_size(size));
        (fits || !rule.filter.needs_size())
            && rule.filter.matches_key(object.key)
            && (!rule.filter.needs_tags() || tags.is_some_and(|tags| rule.filter.matches_tags(tags)))
    });
    let dues = matching.filter_map(|rule| Some((rule.expires?.due_at(object.modified?), &rule.id)));
    let (due, id) = dues.min_by_key(|(due, _)| *due)?;
    let date = headers::format_time(&headers::timestamp(due), TimestampFormat::HttpDate);
    let id = utf8_percent_encode(id, &UNENCODED);
    Some(format!("expiry-date=\"{date}\", rule-id=\"{id}\""))
}
