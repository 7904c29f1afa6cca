//! A bucket's website configuration: validated and stored. This is S3's REST endpoint, which serves no websites.

use s3s::dto::{GetBucketWebsiteOutput, RoutingRule, WebsiteConfiguration};
use s3s::{S3Error, S3Result, s3_error};

use crate::bucket::Bucket;
use crate::error::{custom, invalid_argument, malformed_xml};

/// The name of the setting that keeps the configuration.
pub(crate) const SETTING: &str = "website";
/// S3's maximum number of routing rules.
const RULES_MAX: usize = 50;
const REDIRECT_CODES: std::ops::RangeInclusive<u16> = 301..=308;
/// A redirect code that is reserved (RFC 9110 section 15.4.7).
const UNUSED_CODE: u16 = 306;
/// HTTP error statuses (IANA's registry) that a rule can match.
const ERROR_CODES: [std::ops::RangeInclusive<u16>; 2] = [400..=417, 500..=505];

pub(crate) async fn get(bucket: &Bucket) -> S3Result<GetBucketWebsiteOutput> {
    let kept: Option<WebsiteConfiguration> = bucket.setting(SETTING).await?;
    let kept = kept.ok_or_else(|| {
        let message = "The specified bucket does not have a website configuration";
        custom("NoSuchWebsiteConfiguration", http::StatusCode::NOT_FOUND, message)
    })?;
    Ok(GetBucketWebsiteOutput {
        error_document: kept.error_document,
        index_document: kept.index_document,
        redirect_all_requests_to: kept.redirect_all_requests_to,
        routing_rules: kept.routing_rules,
    })
}

pub(crate) async fn put(bucket: &Bucket, given: &WebsiteConfiguration) -> S3Result<()> {
    check(given)?;
    bucket.set(SETTING, Some(given)).await
}

/// Fails unless the configuration of a website is valid.
fn check(given: &WebsiteConfiguration) -> S3Result<()> {
    let rules = given.routing_rules.as_deref().unwrap_or_default();
    if let Some(all) = &given.redirect_all_requests_to {
        if given.index_document.is_some() || given.error_document.is_some() || !rules.is_empty() {
            return Err(malformed_xml());
        }
        return check_protocol(all.protocol.as_ref().map(|protocol| protocol.as_str()));
    }
    let index = given.index_document.as_ref().ok_or_else(malformed_xml)?;
    if index.suffix.is_empty() || index.suffix.contains('/') {
        let message = "The IndexDocument Suffix is not well formed";
        return Err(invalid_argument(message, "IndexDocument", &index.suffix));
    }
    if given.error_document.as_ref().is_some_and(|document| document.key.is_empty()) {
        return Err(invalid_argument("The ErrorDocument Key is not well formed", "ErrorDocument", ""));
    }
    if rules.len() > RULES_MAX {
        let count = rules.len();
        return Err(s3_error!(
            InvalidRequest,
            "{count} routing rules provided, the number of routing rules in a website configuration is limited to 50."
        ));
    }
    rules.iter().try_for_each(check_rule)
}

fn check_rule(rule: &RoutingRule) -> S3Result<()> {
    let redirect = &rule.redirect;
    let is_no_redirect = redirect.host_name.is_none()
        && redirect.http_redirect_code.is_none()
        && redirect.protocol.is_none()
        && redirect.replace_key_prefix_with.is_none()
        && redirect.replace_key_with.is_none();
    let is_no_condition = rule.condition.as_ref().is_some_and(|condition| {
        condition.key_prefix_equals.is_none() && condition.http_error_code_returned_equals.is_none()
    });
    if is_no_redirect || is_no_condition {
        return Err(malformed_xml());
    }
    check_protocol(redirect.protocol.as_ref().map(|protocol| protocol.as_str()))?;
    if redirect.replace_key_prefix_with.is_some() && redirect.replace_key_with.is_some() {
        return Err(s3_error!(
            InvalidRequest,
            "You can only define ReplaceKeyPrefix or ReplaceKey but not both."
        ));
    }
    if let Some(code) = code(redirect.http_redirect_code.as_deref())?
        && (!REDIRECT_CODES.contains(&code) || code == UNUSED_CODE)
    {
        return Err(s3_error!(
            InvalidRequest,
            "The provided HTTP redirect code ({code}) is not valid. Valid codes are 3XX except 300."
        ));
    }
    let error_code =
        rule.condition.as_ref().and_then(|condition| condition.http_error_code_returned_equals.as_deref());
    match code(error_code)? {
        Some(code) if !ERROR_CODES.iter().any(|codes| codes.contains(&code)) => Err(s3_error!(
            InvalidRequest,
            "The provided HTTP error code ({code}) is not valid. Valid codes are 4XX or 5XX."
        )),
        _ => Ok(()),
    }
}

/// Parses the status code of a redirection, if there is one.
fn code(text: Option<&str>) -> S3Result<Option<u16>> {
    text.map(|text| text.parse().map_err(|_| malformed_xml())).transpose()
}

fn check_protocol(protocol: Option<&str>) -> S3Result<()> {
    match protocol {
        None | Some("http" | "https") => Ok(()),
        Some(_) => Err(invalid_protocol()),
    }
}

fn invalid_protocol() -> S3Error {
    s3_error!(
        InvalidRequest,
        "Invalid protocol, protocol can be http or https. If not defined the protocol will be selected automatically."
    )
}
