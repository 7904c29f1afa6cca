//! Policy conditions (IAM User Guide, "IAM JSON policy elements: Condition").
//!
//! Supported conditions are evaluated; all others are refused when the policy is set.

use s3s::S3Result;
use serde_json::Value;
use std::net::IpAddr;

use crate::error::not_implemented;
use crate::policy::{is_like, malformed, string_list};
use crate::policy_variable;
use crate::query::Query;

/// The properties of a request that conditions test (IAM: "request context").
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestContext {
    /// The address of the client.
    pub(crate) source: Option<IpAddr>,
    pub(crate) prefix: Option<String>,
    pub(crate) delimiter: Option<String>,
}

impl RequestContext {
    pub(crate) fn of(query: &Query, source: Option<IpAddr>) -> Self {
        let parameter = |name: &str| query.get(name).map(str::to_owned);
        Self { source, prefix: parameter("prefix"), delimiter: parameter("delimiter") }
    }
}

/// One condition: a key, and a test of its value.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    key: Key,
    test: Test,
    /// Whether the result of the test is negated.
    is_negated: bool,
}

/// The property of a request that a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    SourceIp,
    Prefix,
    Delimiter,
}

/// The test of a condition, with its values.
#[derive(Debug, Clone)]
enum Test {
    Equals(Vec<String>),
    EqualsAnyCase(Vec<String>),
    Like(Vec<String>),
    In(Vec<Network>),
}

/// An IP network: the addresses that begin with the same bits.
#[derive(Debug, Clone, Copy)]
struct Network {
    address: IpAddr,
    /// The number of bits with which the addresses begin alike.
    bits: u8,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok().filter(|bits| *bits <= bits_max))?;
        Some(Self { address, bits })
    }

    fn contains(self, other: IpAddr) -> bool {
        let same = |one: u128, other: u128, width: u32| {
            let rest = width - u32::from(self.bits);
            one.checked_shr(rest).unwrap_or(0) == other.checked_shr(rest).unwrap_or(0)
        };
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(one), IpAddr::V4(other)) => same(one.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl Condition {
    /// Returns the values that the condition compares as text; none for a condition on addresses.
    pub(crate) fn strings(&self) -> &[String] {
        match &self.test {
            Test::Equals(values) | Test::EqualsAnyCase(values) | Test::Like(values) => values,
            Test::In(_) => &[],
        }
    }

    /// Returns whether the condition holds for a user's request.
    pub(crate) fn holds(&self, user: Option<&str>, request_context: &RequestContext) -> bool {
        let any = |values: &[String], is: &dyn Fn(&str) -> bool| {
            values.iter().filter_map(|value| policy_variable::expand(value, user)).any(|value| is(&value))
        };
        let text = match self.key {
            Key::SourceIp => None,
            Key::Prefix => request_context.prefix.as_deref(),
            Key::Delimiter => request_context.delimiter.as_deref(),
        };
        let passes = match &self.test {
            Test::In(networks) => request_context
                .source
                .is_some_and(|source| networks.iter().any(|network| network.contains(source))),
            Test::Equals(values) => text.is_some_and(|text| any(values, &|value| value == text)),
            Test::EqualsAnyCase(values) => {
                text.is_some_and(|text| any(values, &|value| value.eq_ignore_ascii_case(text)))
            }
            Test::Like(patterns) => text.is_some_and(|text| any(patterns, &|like| is_like(like, text))),
        };
        passes != self.is_negated
    }
}

/// Parses the conditions of a statement for the given actions.
pub(crate) fn parse(value: Option<Value>, actions: &[String]) -> S3Result<Vec<Condition>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let invalid = || malformed("This policy contains invalid Json");
    let Value::Object(operators) = value else { return Err(invalid()) };
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        if !is_operator(&operator) {
            return Err(malformed(&format!("Invalid Condition type : {operator}")));
        }
        let Value::Object(keys) = keys else { return Err(invalid()) };
        for (key, values) in keys {
            let values = string_list(Some(values)).ok_or_else(invalid)?;
            conditions.push(parse_one(&operator, &key, values, actions)?);
        }
    }
    Ok(conditions)
}

/// Parses a condition: one operator on one key, with its values.
fn parse_one(operator: &str, key: &str, values: Vec<String>, actions: &[String]) -> S3Result<Condition> {
    let lower = key.to_ascii_lowercase();
    if !KEYS.iter().any(|known| known.eq_ignore_ascii_case(key)) {
        return Err(malformed("Policy has an invalid condition key"));
    }
    let networks: Option<Vec<Network>> = values.iter().map(|value| Network::parse(value)).collect();
    if lower == "aws:sourceip" && networks.is_none() {
        return Err(malformed("Invalid IP address in Conditions"));
    }
    if !actions.iter().all(|action| is_applicable(&lower, action)) {
        return Err(malformed(
            "Conditions do not apply to combination of actions and resources in statement",
        ));
    }
    let unsupported = || not_implemented(&format!("The condition {operator} on {key} in a policy"));
    let key = match lower.as_str() {
        "aws:sourceip" => Key::SourceIp,
        "s3:prefix" => Key::Prefix,
        "s3:delimiter" => Key::Delimiter,
        _ => return Err(unsupported()),
    };
    let (test, is_negated) = match (operator, key, networks) {
        ("IpAddress", Key::SourceIp, Some(networks)) => (Test::In(networks), false),
        ("NotIpAddress", Key::SourceIp, Some(networks)) => (Test::In(networks), true),
        (_, Key::SourceIp, _) => return Err(unsupported()),
        ("StringEquals", ..) => (Test::Equals(values), false),
        ("StringNotEquals", ..) => (Test::Equals(values), true),
        ("StringEqualsIgnoreCase", ..) => (Test::EqualsAnyCase(values), false),
        ("StringNotEqualsIgnoreCase", ..) => (Test::EqualsAnyCase(values), true),
        ("StringLike", ..) => (Test::Like(values), false),
        ("StringNotLike", ..) => (Test::Like(values), true),
        _ => return Err(unsupported()),
    };
    Ok(Condition { key, test, is_negated })
}

/// Returns whether a condition key exists in requests for an action.
fn is_applicable(key: &str, action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    let may_be = |known: &[&str]| known.iter().any(|known| is_like(&action, known));
    match key {
        "s3:prefix" | "s3:delimiter" | "s3:max-keys" => may_be(&["s3:listbucket", "s3:listbucketversions"]),
        "s3:versionid" => action.contains("version") || action.contains('*'),
        "s3:x-amz-acl" => may_be(&["s3:putobject", "s3:putbucketacl", "s3:putobjectacl", "s3:createbucket"]),
        _ => true,
    }
}

/// IAM's operators, without the set prefix and the suffix `IfExists`.
const OPERATORS: [&str; 27] = [
    "StringEquals",
    "StringNotEquals",
    "StringEqualsIgnoreCase",
    "StringNotEqualsIgnoreCase",
    "StringLike",
    "StringNotLike",
    "NumericEquals",
    "NumericNotEquals",
    "NumericLessThan",
    "NumericLessThanEquals",
    "NumericGreaterThan",
    "NumericGreaterThanEquals",
    "DateEquals",
    "DateNotEquals",
    "DateLessThan",
    "DateLessThanEquals",
    "DateGreaterThan",
    "DateGreaterThanEquals",
    "Bool",
    "BinaryEquals",
    "IpAddress",
    "NotIpAddress",
    "ArnEquals",
    "ArnLike",
    "ArnNotEquals",
    "ArnNotLike",
    "Null",
];

fn is_operator(name: &str) -> bool {
    let name = name.strip_prefix("ForAllValues:").or(name.strip_prefix("ForAnyValue:")).unwrap_or(name);
    let bare = name.strip_suffix("IfExists").filter(|bare| *bare != "Null").unwrap_or(name);
    OPERATORS.contains(&bare)
}

/// IAM's condition keys (Service Authorization Reference, "Condition keys for Amazon S3"; IAM User Guide, "AWS global
/// condition context keys").
const KEYS: [&str; 33] = [
    "aws:CurrentTime",
    "aws:EpochTime",
    "aws:PrincipalAccount",
    "aws:PrincipalArn",
    "aws:PrincipalOrgID",
    "aws:PrincipalType",
    "aws:Referer",
    "aws:SecureTransport",
    "aws:SourceAccount",
    "aws:SourceArn",
    "aws:SourceIp",
    "aws:SourceVpc",
    "aws:SourceVpce",
    "aws:UserAgent",
    "aws:userid",
    "aws:username",
    "s3:ExistingObjectTag",
    "s3:LocationConstraint",
    "s3:RequestObjectTag",
    "s3:RequestObjectTagKeys",
    "s3:TlsVersion",
    "s3:VersionId",
    "s3:authType",
    "s3:delimiter",
    "s3:max-keys",
    "s3:object-lock-mode",
    "s3:prefix",
    "s3:signatureAge",
    "s3:signatureversion",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-storage-class",
];

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3Error;

    fn condition(text: &str, action: &str) -> Result<Condition, S3Error> {
        let value: Value = serde_json::from_str(text).unwrap();
        parse(Some(value), &[action.to_owned()]).map(|mut conditions| conditions.remove(0))
    }

    #[test]
    fn addresses_are_in_networks() {
        let from =
            |address: &str| RequestContext { source: address.parse().ok(), ..RequestContext::default() };
        let inside = condition(r#"{"IpAddress":{"aws:SourceIp":["10.1.0.0/16","::1"]}}"#, "s3:*").unwrap();
        for (address, is) in [("10.1.2.3", true), ("10.2.0.1", false), ("::1", true), ("::2", false)] {
            assert_eq!(inside.holds(None, &from(address)), is, "{address}");
        }
        assert!(!inside.holds(None, &RequestContext::default()));
        let everywhere = condition(r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, "s3:*").unwrap();
        assert!(everywhere.holds(None, &from("::ffff:9.9.9.9")));
        let outside = condition(r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, "s3:*").unwrap();
        assert!(outside.holds(None, &from("9.9.9.9")) && !outside.holds(None, &from("10.9.9.9")));
    }

    #[test]
    fn prefixes_are_compared() {
        let of = |prefix: &str| RequestContext { prefix: Some(prefix.into()), ..RequestContext::default() };
        let like = condition(r#"{"StringLike":{"s3:prefix":["home/*"]}}"#, "s3:ListBucket").unwrap();
        assert!(
            like.holds(None, &of("home/a"))
                && !like.holds(None, &of("etc/"))
                && !like.holds(None, &RequestContext::default())
        );
        let not = condition(r#"{"StringNotEquals":{"s3:prefix":"a"}}"#, "s3:ListBucket").unwrap();
        assert!(
            not.holds(None, &of("b"))
                && !not.holds(None, &of("a"))
                && not.holds(None, &RequestContext::default())
        );
    }

    #[test]
    fn unsupported_conditions_are_refused() {
        for (text, action, code) in [
            (r#"{"Nonsense":{"aws:SourceIp":"::1"}}"#, "s3:*", "MalformedPolicy"),
            (r#"{"StringEquals":{"s3:nonsense":"a"}}"#, "s3:*", "MalformedPolicy"),
            (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/33"}}"#, "s3:*", "MalformedPolicy"),
            (r#"{"StringEquals":{"s3:prefix":"a"}}"#, "s3:GetObject", "MalformedPolicy"),
            (r#"{"Bool":{"aws:SecureTransport":"true"}}"#, "s3:*", "NotImplemented"),
            (r#"{"StringEqualsIfExists":{"s3:prefix":"a"}}"#, "s3:ListBucket", "NotImplemented"),
        ] {
            assert_eq!(condition(text, action).unwrap_err().code().as_str(), code, "{text}");
        }
    }
}
