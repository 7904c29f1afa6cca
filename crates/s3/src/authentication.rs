//! Checks of the parameters by which a request authenticates (S3 API Reference, "Authenticating requests: AWS Signature
//! Version 4").
//!
//! This module checks form, region, expiry, session token and the list of signed headers, so that errors say
//! what is wrong. `s3s` checks the access key, the signature and the time of the request.

use http::HeaderMap;
use http::request::Parts;
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, s3_error};
use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::error::{custom, invalid_argument};
use crate::error_document::with_details;
use crate::headers;
use crate::query::Query;
use crate::sessions::Sessions;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const TERMINAL: &str = "aws4_request";
/// The longest validity of a presigned URL (one week), in seconds.
const EXPIRES_SECS_MAX: i64 = 7 * 24 * 3600;

/// Values of `x-amz-content-sha256` that are not hashes.
const NOT_HASHES: [&str; 4] = [
    "UNSIGNED-PAYLOAD",
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
];

/// The facts that authentication parameters are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SigningContext<'a> {
    pub(crate) region: &'a str,
    pub(crate) sessions: &'a Sessions,
    pub(crate) now: store::Timestamp,
}

/// Parameters of signature version 2, which is not supported.
const V2_PARAMETERS: [&str; 2] = ["Signature", "AWSAccessKeyId"];

/// Refuses a request whose authentication parameters are malformed or contradictory, have expired, or have the wrong
/// session token.
pub(crate) fn check(head: &Parts, query: &Query, context: SigningContext<'_>) -> Result<(), S3Error> {
    let headers = &head.headers;
    let is_v2 = V2_PARAMETERS.iter().any(|name| query.has(name));
    match headers.get(http::header::AUTHORIZATION) {
        // With both an Authorization header and a signed query, this module might check the one and `s3s` verify the
        // other.
        Some(_) if is_v2 || query.has("X-Amz-Signature") => {
            return Err(s3_error!(InvalidArgument, "Only one auth mechanism allowed"));
        }
        Some(value) => check_header(value.to_str().unwrap_or_default(), headers, context.region)?,
        // `s3s` would prefer a signature of version 2.
        None if is_v2 => return Err(unsupported()),
        None if query.names().any(|name| name.starts_with("X-Amz-") && name != "X-Amz-Date") => {
            check_query(query, headers, context)?;
        }
        None => {}
    }
    check_token(head, query, named_access_key(head, query).as_deref(), context.sessions)
}

/// Returns the access key in a request's credential, verified or not; `None` without a credential.
pub(crate) fn named_access_key(head: &Parts, query: &Query) -> Option<String> {
    let header = headers::text(&head.headers, http::header::AUTHORIZATION);
    let credential = header.and_then(|text| text.split_once("Credential=")).map(|(_, rest)| rest);
    let credential = credential.or_else(|| query.get("X-Amz-Credential"))?;
    credential.split('/').next().map(str::to_owned)
}

/// Refuses a session's key without its token, a token that belongs to another key, and a token without a session.
pub(crate) fn check_token(
    head: &Parts,
    query: &Query,
    access_key: Option<&str>,
    sessions: &Sessions,
) -> Result<(), S3Error> {
    let in_header = headers::text(&head.headers, "x-amz-security-token");
    sessions.check_token(access_key, in_header.or_else(|| query.get("X-Amz-Security-Token")))
}

fn check_header(value: &str, headers: &HeaderMap, region: &str) -> Result<(), S3Error> {
    let (scheme, rest) = value.split_once(' ').ok_or_else(|| {
        invalid_argument(
            "Authorization header is invalid -- one and only one ' ' (space) required.",
            "Authorization",
            value,
        )
    })?;
    match scheme {
        ALGORITHM => {}
        "AWS" => return Err(unsupported()),
        other => return Err(invalid_argument("Unsupported Authorization Type", "Authorization", other)),
    }
    let components: Vec<&str> = rest.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if components.len() != 3 {
        return Err(malformed(
            "the authorization header requires three components: Credential, SignedHeaders, and Signature.",
        ));
    }
    let mut found = BTreeMap::new();
    for component in components {
        let (name, value) = component
            .split_once('=')
            .ok_or_else(|| malformed(&format!("the authorization component {component:?} is malformed.")))?;
        found.insert(name, value);
    }
    let part = |name: &str| found.get(name).copied().ok_or_else(|| malformed(&format!("missing {name}.")));
    let (credential, signed, _) = (part("Credential")?, part("SignedHeaders")?, part("Signature")?);
    let credential = Credential::parse(credential).ok_or_else(|| {
        malformed(
            "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
        )
    })?;
    credential.check(region).map_err(|wrong| {
        let error = malformed(&wrong.text);
        if wrong.is_region { with_details(error, &[("Region", region)]) } else { error }
    })?;
    let date = date(headers)?;
    if !date.starts_with(credential.date) {
        return Err(malformed(
            "The authorization header is malformed; Invalid credential date. Date is not the same as X-Amz-Date.",
        ));
    }
    check_payload_hash(headers)?;
    check_signed_headers(headers, signed)
}

/// Returns the date of a request as `20130524T000000Z`, from `x-amz-date` or `Date`.
fn date(headers: &HeaderMap) -> Result<String, S3Error> {
    let text = |name: &str| headers::text(headers, name).unwrap_or_default();
    let amz = text("x-amz-date");
    let is_iso = amz.len() == 16 && amz.as_bytes()[8] == b'T' && amz.ends_with('Z');
    if is_iso {
        return Ok(amz.to_owned());
    }
    let parsed = Timestamp::parse(TimestampFormat::HttpDate, text("date"));
    let parsed = parsed.ok().filter(|_| amz.is_empty()).ok_or_else(|| {
        S3Error::with_message(
            S3ErrorCode::AccessDenied,
            "AWS authentication requires a valid Date or x-amz-date header.",
        )
    })?;
    Ok(headers::format_time(&parsed, TimestampFormat::DateTime).replace('-', ""))
}

fn check_payload_hash(headers: &HeaderMap) -> Result<(), S3Error> {
    let Some(value) = headers.get("x-amz-content-sha256") else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash || text.is_empty() || NOT_HASHES.contains(&text) {
        return Ok(());
    }
    if text.starts_with("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD") {
        return Err(s3_error!(
            NotImplemented,
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD is not implemented here"
        ));
    }
    let message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid sha256 value.";
    Err(invalid_argument(message, "x-amz-content-sha256", text))
}

/// Checks that the host and all `x-amz-` headers except `x-amz-content-sha256` are signed. The former change what a
/// request does, the latter may name the bucket.
fn check_signed_headers(headers: &HeaderMap, signed: &str) -> Result<(), S3Error> {
    let signed: Vec<String> = signed.split(';').map(str::to_ascii_lowercase).collect();
    let own = headers.keys().map(http::HeaderName::as_str);
    let own = own.filter(|name| name.starts_with("x-amz-") || *name == "host");
    let mut unsigned: Vec<&str> =
        own.filter(|name| *name != "x-amz-content-sha256" && !signed.iter().any(|s| s == name)).collect();
    if unsigned.is_empty() {
        return Ok(());
    }
    unsigned.sort_unstable();
    let error = S3Error::with_message(
        S3ErrorCode::AccessDenied,
        "There were headers present in the request which were not signed",
    );
    Err(with_details(error, &[("HeadersNotSigned", &unsigned.join(", "))]))
}

fn check_query(
    query: &Query,
    headers: &HeaderMap,
    SigningContext { region, now, .. }: SigningContext<'_>,
) -> Result<(), S3Error> {
    let given = |name: &str| query.non_empty(name);
    let missing = || {
        query_error(
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
        )
    };
    match given("X-Amz-Algorithm") {
        None => return Err(missing()),
        Some(ALGORITHM) => {}
        Some("AWS4-ECDSA-P256-SHA256") => {
            return Err(query_error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        Some(_) => {
            return Err(query_error(
                "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256 and AWS4-ECDSA-P256-SHA256\"",
            ));
        }
    }
    let credential = given("X-Amz-Credential").ok_or_else(missing)?;
    let (date, expires) =
        (given("X-Amz-Date").ok_or_else(missing)?, given("X-Amz-Expires").ok_or_else(missing)?);
    let signed = given("X-Amz-SignedHeaders").ok_or_else(missing)?;
    given("X-Amz-Signature").ok_or_else(missing)?;
    let credential = Credential::parse(credential).ok_or_else(|| {
        query_error(
            "Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
        )
    })?;
    credential.check(region).map_err(|wrong| {
        let error = query_error(&format!("Error parsing the X-Amz-Credential parameter; {}", wrong.text));
        if wrong.is_region { with_details(error, &[("Region", region)]) } else { error }
    })?;
    let expires: i64 = expires.parse().map_err(|_| query_error("X-Amz-Expires should be a number"))?;
    if expires < 0 {
        return Err(query_error("X-Amz-Expires must be non-negative"));
    }
    if expires > EXPIRES_SECS_MAX {
        return Err(query_error(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds",
        ));
    }
    if !date.starts_with(credential.date) {
        let (given, expected) = (credential.date, date.get(..8).unwrap_or(date));
        return Err(query_error(&format!(
            "Invalid credential date {given:?}. This date is not the same as X-Amz-Date: {expected:?}."
        )));
    }
    check_not_expired(date, expires, now)?;
    check_signed_headers(headers, signed)
}

fn check_not_expired(date: &str, expires: i64, now: store::Timestamp) -> Result<(), S3Error> {
    let Some(ends) = headers::basic_date(date).map(|date| date.saturating_add(expires)) else {
        return Ok(());
    };
    if now.secs() <= ends {
        return Ok(());
    }
    let shown = |time| headers::format_time(&headers::timestamp(time), TimestampFormat::DateTime);
    let (server, ends) = (shown(now), shown(store::Timestamp::from_secs(ends, 0)));
    let error = S3Error::with_message(S3ErrorCode::AccessDenied, "Request has expired");
    let seconds = expires.to_string();
    Err(with_details(error, &[("X-Amz-Expires", &seconds), ("Expires", &ends), ("ServerTime", &server)]))
}

/// A credential of the form `AKID/date/region/service/aws4_request`.
pub(crate) struct Credential<'a> {
    pub(crate) date: &'a str,
    region: &'a str,
    service: &'a str,
    terminal: &'a str,
}

/// A fault of a credential.
pub(crate) struct CredentialFault {
    /// The fault as an error message says it.
    pub(crate) text: String,
    /// Whether the credential names another region.
    is_region: bool,
}

impl<'a> Credential<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [_, date, region, service, terminal] => Some(Self { date, region, service, terminal }),
            _ => None,
        }
    }

    pub(crate) fn check(&self, region: &str) -> Result<(), CredentialFault> {
        let wrong = |text: String| Err(CredentialFault { text, is_region: false });
        if self.terminal != TERMINAL {
            return wrong(format!(
                "incorrect terminal {}. This endpoint uses {TERMINAL:?}.",
                quoted(self.terminal)
            ));
        }
        if self.service != "s3" && self.service != "sts" {
            return wrong(format!(
                "incorrect service {}. This endpoint belongs to \"s3\".",
                quoted(self.service)
            ));
        }
        if self.date.len() != 8 || !self.date.bytes().all(|byte| byte.is_ascii_digit()) {
            return wrong(format!(
                "incorrect date format {}. This date in the credential must be in the format \"yyyyMMdd\".",
                quoted(self.date)
            ));
        }
        if self.region != region {
            let text = format!("the region {} is wrong; expecting {}", quoted(self.region), quoted(region));
            return Err(CredentialFault { text, is_region: true });
        }
        Ok(())
    }
}

fn quoted(text: &str) -> impl Debug + std::fmt::Display {
    format!("{text:?}")
}

fn malformed(what: &str) -> S3Error {
    custom(
        "AuthorizationHeaderMalformed",
        http::StatusCode::BAD_REQUEST,
        format!("The authorization header is malformed; {what}"),
    )
}

fn query_error(what: &str) -> S3Error {
    custom("AuthorizationQueryParametersError", http::StatusCode::BAD_REQUEST, what)
}

fn unsupported() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
    )
}
