//! Validation of lifecycle rules (S3 API, PutBucketLifecycleConfiguration).

use s3s::dto::{ExpirationStatus, LifecycleExpiration, LifecycleRule, LifecycleRuleFilter, Tag};
use s3s::{S3Result, s3_error};
use std::collections::BTreeSet;

use crate::error::{invalid_argument, malformed_xml, not_implemented};
use crate::headers;

/// S3's limits: the number of rules, the length of an id, and the noncurrent versions that a rule can keep.
const RULES_MAX: usize = 1000;
const ID_CHARS_MAX: usize = 255;
const NEWER_VERSIONS_MAX: i32 = 100;

pub(super) fn check(rules: &[LifecycleRule]) -> S3Result<()> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(malformed_xml());
    }
    let mut ids = BTreeSet::new();
    for rule in rules {
        let id = rule.id.as_deref().unwrap_or_default();
        if id.chars().count() > ID_CHARS_MAX {
            return Err(invalid_argument("ID length should not exceed allowed limit of 255", "ID", id));
        }
        if !id.is_empty() && !ids.insert(id) {
            return Err(invalid_argument(
                "Rule ID must be unique. Found same ID for more than one rule",
                "ID",
                id,
            ));
        }
        check_rule(rule)?;
    }
    Ok(())
}

fn check_rule(rule: &LifecycleRule) -> S3Result<()> {
    if ![ExpirationStatus::ENABLED, ExpirationStatus::DISABLED].contains(&rule.status.as_str()) {
        return Err(malformed_xml());
    }
    let has = |given: Option<usize>| given.is_some_and(|count| count > 0);
    if has(rule.transitions.as_ref().map(Vec::len))
        || has(rule.noncurrent_version_transitions.as_ref().map(Vec::len))
    {
        return Err(not_implemented("A transition to another storage class"));
    }
    let is_by_key_only = match (&rule.filter, &rule.prefix) {
        (None, Some(_)) => true,
        (Some(filter), None) => check_filter(filter)?,
        _ => return Err(malformed_xml()),
    };
    let uploads = rule.abort_incomplete_multipart_upload.as_ref();
    let noncurrent = rule.noncurrent_version_expiration.as_ref();
    if rule.expiration.is_none() && uploads.is_none() && noncurrent.is_none() {
        return Err(s3_error!(InvalidRequest, "At least one action needs to be specified in a rule."));
    }
    if let Some(expiration) = &rule.expiration {
        check_expiration(expiration, is_by_key_only)?;
    }
    if let Some(noncurrent) = noncurrent {
        let days = noncurrent.noncurrent_days.ok_or_else(malformed_xml)?;
        check_positive(
            days,
            "'NoncurrentDays' for NoncurrentVersionExpiration action must be a positive integer",
        )?;
        let newer = noncurrent.newer_noncurrent_versions;
        if newer.is_some_and(|newer| !(1..=NEWER_VERSIONS_MAX).contains(&newer)) {
            let message = "'NewerNoncurrentVersions' must be an integer between 1 and 100";
            return Err(invalid_argument(
                message,
                "NewerNoncurrentVersions",
                &newer.unwrap_or_default().to_string(),
            ));
        }
    }
    if let Some(uploads) = uploads {
        let days = uploads.days_after_initiation.ok_or_else(malformed_xml)?;
        check_positive(
            days,
            "'DaysAfterInitiation' for AbortIncompleteMultipartUpload action must be a positive integer",
        )?;
        if !is_by_key_only {
            return Err(s3_error!(
                InvalidRequest,
                "AbortIncompleteMultipartUpload cannot be specified with Tags or sizes"
            ));
        }
    }
    Ok(())
}

fn check_positive(days: i32, message: &str) -> S3Result<()> {
    if days > 0 { Ok(()) } else { Err(invalid_argument(message, "Days", &days.to_string())) }
}

/// Checks that exactly one of `Days`, `Date` and `ExpiredObjectDeleteMarker` is given.
fn check_expiration(expiration: &LifecycleExpiration, is_by_key_only: bool) -> S3Result<()> {
    match (expiration.days, &expiration.date, expiration.expired_object_delete_marker) {
        (Some(days), None, None) => {
            check_positive(days, "'Days' for Expiration action must be a positive integer")
        }
        (None, Some(date), None) if headers::secs(date) % 86_400 == 0 => Ok(()),
        (None, Some(_), None) => Err(invalid_argument("'Date' must be at midnight GMT", "Date", "")),
        (None, None, Some(_)) if is_by_key_only => Ok(()),
        (None, None, Some(_)) => {
            Err(s3_error!(InvalidRequest, "ExpiredObjectDeleteMarker cannot be specified with Tags or sizes"))
        }
        _ => Err(malformed_xml()),
    }
}

/// Checks the filter. Returns whether it depends on keys alone.
fn check_filter(filter: &LifecycleRuleFilter) -> S3Result<bool> {
    let alone = [
        filter.prefix.is_some(),
        filter.tag.is_some(),
        filter.object_size_greater_than.is_some(),
        filter.object_size_less_than.is_some(),
        filter.and.is_some(),
    ];
    if alone.into_iter().filter(|is_given| *is_given).count() > 1 {
        return Err(malformed_xml());
    }
    let and = filter.and.as_ref();
    let tags: Vec<&Tag> =
        filter.tag.iter().chain(and.and_then(|and| and.tags.as_ref()).into_iter().flatten()).collect();
    let mut keys = BTreeSet::new();
    for tag in &tags {
        let key = tag.key.as_deref().filter(|key| !key.is_empty()).ok_or_else(malformed_xml)?;
        if tag.value.is_none() {
            return Err(malformed_xml());
        }
        if !keys.insert(key) {
            return Err(s3_error!(InvalidRequest, "Duplicate Tag Keys are not allowed."));
        }
    }
    let larger = filter.object_size_greater_than.or(and.and_then(|and| and.object_size_greater_than));
    let smaller = filter.object_size_less_than.or(and.and_then(|and| and.object_size_less_than));
    if larger.is_some_and(|size| size < 0) || smaller.is_some_and(|size| size < 1) {
        return Err(invalid_argument("The size of an object cannot be negative", "ObjectSize", ""));
    }
    if let (Some(larger), Some(smaller)) = (larger, smaller)
        && smaller <= larger
    {
        return Err(s3_error!(
            InvalidRequest,
            "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'"
        ));
    }
    Ok(tags.is_empty() && larger.is_none() && smaller.is_none())
}
