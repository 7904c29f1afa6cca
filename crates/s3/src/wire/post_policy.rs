//! Policies of forms (S3 API Reference, "POST policy"): when a form expires, and which fields it may have.

use base64::Engine as _;
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use serde_json::{Map, Value};

use super::form::Form;
use crate::error::custom;
use crate::headers;

/// Fields that need no condition.
const EXEMPT_FIELDS: [&str; 6] =
    ["policy", "x-amz-signature", "signature", "awsaccesskeyid", "file", "submit"];

/// A parsed policy of a form.
pub(super) struct PostPolicy {
    expires: Timestamp,
    conditions: Vec<Condition>,
}

/// A condition of a form's policy.
struct Condition {
    test: Test,
    /// The condition as an error message shows it.
    shown: String,
}

/// The test of a condition: on the value of a field, or on the length of the file.
enum Test {
    Equals(String, String),
    StartsWith(String, String),
    Length(u64, u64),
    /// A test that names no field. It always fails.
    Never,
}

impl PostPolicy {
    /// Parses the base64 policy of a form. Error: `InvalidPolicyDocument`.
    pub(super) fn parse(text: &str) -> S3Result<Self> {
        if text.is_empty() {
            return Err(invalid("Expecting '{' but found End-of-Input"));
        }
        let json = base64::engine::general_purpose::STANDARD.decode(text.trim());
        let json = json.map_err(|_| invalid("invalid Base64 encoding."))?;
        let document: Map<String, Value> = serde_json::from_slice(&json).map_err(|_| invalid_json())?;
        let known = ["expiration", "conditions"];
        if let Some(other) = document.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(invalid(&format!("Unexpected: {other:?}")));
        }
        let expires = match document.get("expiration") {
            None => return Err(invalid("Policy missing expiration.")),
            Some(Value::String(text)) => Timestamp::parse(TimestampFormat::DateTime, text)
                .ok()
                .filter(|_| is_iso_8601(text))
                .ok_or_else(|| invalid(&format!("Invalid 'expiration' value: '{text}'")))?,
            Some(_) => return Err(invalid_json()),
        };
        let conditions = match document.get("conditions") {
            None => return Err(invalid("Policy missing conditions.")),
            Some(Value::Array(list)) => list.iter().map(Condition::parse).collect::<S3Result<_>>()?,
            Some(_) => return Err(invalid("Invalid 'conditions' value: must be a List.")),
        };
        Ok(Self { expires, conditions })
    }

    /// Fails with `AccessDenied` if the form violates the policy or the policy has expired.
    pub(super) fn check(&self, form: &Form, bucket: &str, now: store::Timestamp) -> S3Result<()> {
        if headers::store_timestamp(&self.expires) <= now {
            return Err(expired());
        }
        let value = |name: &str| match name {
            "bucket" => Some(bucket),
            name => form.field(name),
        };
        for condition in &self.conditions {
            if !condition.test.holds(value) {
                return Err(policy_violation(&format!("Policy Condition failed: {}", condition.shown)));
            }
        }
        let is_exempt = |name: &str| EXEMPT_FIELDS.contains(&name) || name.starts_with("x-ignore-");
        let is_named = |name: &str| self.conditions.iter().any(|condition| condition.test.is_about(name));
        match form.fields().find(|(name, _)| !is_exempt(name) && !is_named(name)) {
            Some((name, _)) => Err(policy_violation(&format!("Extra input fields: {name}"))),
            None => Ok(()),
        }
    }

    /// Returns the minimum and maximum length of the file, in bytes.
    pub(super) fn length_range(&self) -> (u64, u64) {
        let lengths = self.conditions.iter().filter_map(|condition| match condition.test {
            Test::Length(min, max) => Some((min, max)),
            _ => None,
        });
        lengths.fold((0, u64::MAX), |(min, max), (more, less)| (min.max(more), max.min(less)))
    }
}

impl Condition {
    fn parse(value: &Value) -> S3Result<Self> {
        match value {
            Value::Object(fields) => Self::simple(fields),
            Value::Array(items) => Self::list(items),
            _ => Err(invalid("Invalid condition test: must be a List or Object.")),
        }
    }

    /// Parses a condition of the form `{"field": "value"}`.
    fn simple(fields: &Map<String, Value>) -> S3Result<Self> {
        let mut fields = fields.iter();
        let (Some((name, value)), None) = (fields.next(), fields.next()) else {
            let what =
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.";
            return Err(invalid(what));
        };
        let Value::String(value) = value else {
            return Err(invalid("Invalid Simple-Condition: value must be a string."));
        };
        let shown = format!("[\"eq\", {}, {}]", quoted(&format!("${name}")), quoted(value));
        Ok(Self { test: Test::Equals(name.to_ascii_lowercase(), value.clone()), shown })
    }

    /// Parses a condition of the form `["operator", first, second]`.
    fn list(items: &[Value]) -> S3Result<Self> {
        let shown = Value::from(items.to_vec()).to_string();
        let Some((operator, arguments)) = items.split_first() else {
            return Err(invalid("Invalid Condition: missing operation identifier."));
        };
        let operator = operator.as_str().ok_or_else(invalid_json)?;
        let lower = operator.to_ascii_lowercase();
        if !["eq", "starts-with", "content-length-range"].contains(&lower.as_str()) {
            return Err(invalid(&format!("Invalid Condition: unknown operation '{operator}'.")));
        }
        let [first, second] = arguments else {
            return Err(invalid(&format!("Invalid {operator}: wrong number of arguments.")));
        };
        if lower == "content-length-range" {
            let length = |value: &Value| match value {
                Value::String(text) => text.parse().ok(),
                value => value.as_u64(),
            };
            let (min, max) = length(first).zip(length(second)).ok_or_else(invalid_json)?;
            return Ok(Self { test: Test::Length(min, max), shown });
        }
        let (name, value) = first.as_str().zip(second.as_str()).ok_or_else(invalid_json)?;
        let test = match name.strip_prefix('$').map(str::to_ascii_lowercase) {
            None => Test::Never,
            Some(name) if lower == "eq" => Test::Equals(name, value.to_owned()),
            Some(name) => Test::StartsWith(name, value.to_owned()),
        };
        Ok(Self { test, shown })
    }
}

impl Test {
    fn holds<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Equals(name, wanted) => value(name) == Some(wanted.as_str()),
            // Every type in a comma-separated list must begin with the prefix.
            Self::StartsWith(name, wanted) if name == "content-type" => {
                value(name).is_some_and(|types| types.split(',').all(|one| one.trim().starts_with(wanted)))
            }
            Self::StartsWith(name, wanted) => value(name).is_some_and(|value| value.starts_with(wanted)),
            Self::Length(..) => true,
            Self::Never => false,
        }
    }

    /// Returns whether the test is on the value of a field.
    fn is_about(&self, field: &str) -> bool {
        matches!(self, Self::Equals(name, _) | Self::StartsWith(name, _) if name == field)
    }
}

/// Returns whether a time is written as `2030-01-01T00:00:00Z`, with or without a fraction.
fn is_iso_8601(text: &str) -> bool {
    let bytes = text.as_bytes();
    let rest = bytes.get(19..).and_then(|rest| rest.strip_suffix(b"Z"));
    let is_fraction = |rest: &[u8]| match rest.strip_prefix(b".") {
        Some(digits) => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
        None => rest.is_empty(),
    };
    bytes.get(10) == Some(&b'T') && rest.is_some_and(is_fraction)
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn invalid(what: &str) -> S3Error {
    let status = http::StatusCode::BAD_REQUEST;
    custom("InvalidPolicyDocument", status, format!("Invalid Policy: {what}"))
}

fn invalid_json() -> S3Error {
    invalid("Invalid JSON.")
}

fn policy_violation(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, format!("Invalid according to Policy: {what}"))
}

pub(super) fn expired() -> S3Error {
    policy_violation("Policy expired.")
}
