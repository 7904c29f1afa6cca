//! Conditional requests: `If-Match`, `If-None-Match` and so on (RFC 9110 section 13, with S3's order of precedence).

use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use store::{ETag, ObjectKey, ObjectMeta, Precondition, StoreError};

use crate::bucket::Bucket;
use crate::error::{from_store, precondition_failed};
use crate::headers;

/// The etags of conditions that list several (RFC 9110 section 13.1). `s3s` parses only single etags; caches that hold
/// several versions send lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct ETagLists {
    if_match: Option<Vec<String>>,
    if_none_match: Option<Vec<String>>,
}

impl ETagLists {
    /// Removes the lists from a request's headers. A condition with a single etag stays there.
    pub(crate) fn take(headers: &mut http::HeaderMap) -> Self {
        let mut take = |name: http::HeaderName| {
            let texts = headers.get_all(&name).iter().map(|value| value.to_str().unwrap_or_default());
            let texts = texts.flat_map(|text| text.split(',')).map(str::trim).filter(|tag| !tag.is_empty());
            let tags: Vec<String> =
                texts.map(|tag| tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"').to_owned()).collect();
            (tags.len() > 1).then(|| {
                headers.remove(&name);
                tags
            })
        };
        let (if_match, if_none_match) = (take(http::header::IF_MATCH), take(http::header::IF_NONE_MATCH));
        Self { if_match, if_none_match }
    }
}

/// The conditions of a read.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) lists: ETagLists,
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Fails with `PreconditionFailed` or `NotModified` (304) if the object does not satisfy the conditions.
    pub(crate) fn check(&self, meta: &ObjectMeta) -> S3Result<()> {
        match self.verdict(meta) {
            Verdict::Holds => Ok(()),
            Verdict::Fails => Err(precondition_failed()),
            Verdict::Unchanged => Err(not_modified(meta)),
        }
    }

    /// Fails with `PreconditionFailed` if the source of a copy does not satisfy the conditions. A copy has no
    /// `NotModified`.
    pub(crate) fn check_source(&self, meta: &ObjectMeta) -> S3Result<()> {
        match self.verdict(meta) {
            Verdict::Holds => Ok(()),
            Verdict::Fails | Verdict::Unchanged => Err(precondition_failed()),
        }
    }

    /// Evaluates the conditions of a read, in the order of S3.
    fn verdict(&self, meta: &ObjectMeta) -> Verdict {
        let etag = &meta.object.etag;
        // S3 compares times in whole seconds.
        let modified = meta.object.last_modified.map(store::Timestamp::secs);
        let is_after = |time: &Timestamp| modified.is_some_and(|modified| modified > headers::secs(time));
        let is_in = |list: &Option<Vec<String>>| {
            list.as_ref().map(|tags| tags.iter().any(|tag| tag == "*" || tag == etag.as_str()))
        };
        let matches = |single: &Option<ETagCondition>, list| match single {
            Some(wanted) => Some(matches_etag(wanted, etag)),
            None => is_in(list),
        };
        match (matches(&self.if_match, &self.lists.if_match), &self.if_unmodified_since) {
            (Some(false), _) => return Verdict::Fails,
            (None, Some(time)) if is_after(time) => return Verdict::Fails,
            _ => {}
        }
        match (matches(&self.if_none_match, &self.lists.if_none_match), &self.if_modified_since) {
            (Some(true), _) => Verdict::Unchanged,
            (None, Some(time)) if !is_after(time) => Verdict::Unchanged,
            _ => Verdict::Holds,
        }
    }
}

/// The result of the conditions: they hold, one fails, or the client has the object already.
enum Verdict {
    Holds,
    Fails,
    Unchanged,
}

/// Returns the precondition of a write. S3 supports `If-None-Match: *` and `If-Match: etag`; anything else is
/// `NotImplemented`.
pub(crate) fn write_precondition(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<Precondition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Precondition::None),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Precondition::Matches(ETag::new(etag.value()))),
        (None, Some(ETagCondition::Any)) => Ok(Precondition::Absent),
        _ => Err(unsupported_condition()),
    }
}

/// Replaces `PreconditionFailed` by `NoSuchKey` if the write expected an object and there is none (S3 API, PutObject:
/// 404 if the key does not exist).
pub(crate) async fn refine_failure(
    error: S3Error,
    wanted: Option<&ETagCondition>,
    bucket: &Bucket,
    key: &ObjectKey,
) -> S3Error {
    if wanted.is_none() || *error.code() != S3ErrorCode::PreconditionFailed {
        return error;
    }
    match bucket.store.find(key).await {
        Ok(None) => from_store(StoreError::NotFound(key.clone())),
        _ => error,
    }
}

/// Returns the precondition of a write as [`write_precondition`] does, for requests whose conditions `s3s` does not
/// parse.
pub(crate) fn header_precondition(headers: &http::HeaderMap) -> S3Result<Precondition> {
    let text = |name: http::HeaderName| headers::text(headers, name);
    match (text(http::header::IF_MATCH), text(http::header::IF_NONE_MATCH)) {
        (None, None) => Ok(Precondition::None),
        (Some(etag), None) if etag != "*" => Ok(Precondition::Matches(ETag::new(etag))),
        (None, Some("*")) => Ok(Precondition::Absent),
        _ => Err(unsupported_condition()),
    }
}

pub(crate) fn unsupported_condition() -> S3Error {
    s3_error!(NotImplemented, "A header you provided implies functionality that is not implemented.")
}

fn matches_etag(condition: &ETagCondition, etag: &ETag) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(wanted) => wanted.value() == etag.as_str(),
    }
}

fn not_modified(meta: &ObjectMeta) -> S3Error {
    let mut unchanged = S3Error::new(S3ErrorCode::NotModified);
    let mut headers = http::HeaderMap::new();
    if let Ok(etag) = meta.object.etag.quoted().parse() {
        headers.insert(http::header::ETAG, etag);
    }
    unchanged.set_headers(headers);
    unchanged
}
