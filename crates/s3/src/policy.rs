//! Bucket policies (IAM User Guide, "Policy evaluation logic").
//!
//! Pure functions. A policy with elements that this endpoint does not support is refused when it is set, never partly
//! ignored.

use s3s::{S3Error, S3ErrorCode, S3Result};
use serde::Deserialize;
use serde_json::Value;

use crate::iam_actions::{IAM_ACTIONS, IamAction};
use crate::operations::ResourceKind;
use crate::policy_condition::{self, Condition, RequestContext};
use crate::policy_variable;
use crate::users::Users;

/// The beginning of the ARNs of buckets and objects.
pub(crate) const ARN: &str = "arn:aws:s3:::";

/// A parsed policy.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    statements: Vec<Statement>,
}

#[derive(Debug, Clone)]
struct Statement {
    /// Whether the statement allows what it matches; otherwise it denies that.
    allows: bool,
    /// Access keys, or `*`.
    principals: Vec<String>,
    actions: Vec<String>,
    /// Bucket or object patterns, without [`ARN`].
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

/// A request to be decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// The access key; `None` for an unsigned request.
    pub(crate) user: Option<&'a str>,
    /// The IAM action, such as `s3:GetObject`.
    pub(crate) action: &'a str,
    /// `bucket` or `bucket/key`.
    pub(crate) resource: &'a str,
    pub(crate) request_context: &'a RequestContext,
}

/// The effect of a policy on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Deny,
    NoMatch,
}

/// A bucket policy as JSON.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "a policy may have one")]
    id: Option<String>,
    #[serde(default)]
    statement: Option<Value>,
}

/// A statement of a bucket policy as JSON.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct StatementDocument {
    #[serde(default)]
    #[expect(dead_code, reason = "a statement may have one")]
    sid: Option<String>,
    #[serde(default)]
    effect: Option<String>,
    #[serde(default)]
    principal: Option<Value>,
    #[serde(default)]
    action: Option<Value>,
    #[serde(default)]
    resource: Option<Value>,
    #[serde(default)]
    condition: Option<Value>,
}

impl Policy {
    /// Parses the policy of a bucket. Error: `MalformedPolicy`.
    pub(crate) fn parse(text: &str, bucket: &str) -> S3Result<Self> {
        if !text.starts_with('{') {
            return Err(malformed("Policies must be valid JSON and the first byte must be '{'"));
        }
        let document: Document =
            serde_json::from_str(text).map_err(|_| malformed("This policy contains invalid Json"))?;
        if document.version.as_deref().is_some_and(|version| !["2008-10-17", "2012-10-17"].contains(&version))
        {
            return Err(malformed("The policy must contain a valid version string"));
        }
        let statements = match document.statement {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(one @ Value::Object(_)) => vec![one],
            None => return Err(malformed("Missing required field Statement")),
            _ => return Err(malformed("Could not parse the policy: Statement is empty!")),
        };
        let has_variables = document.version.as_deref() == Some("2012-10-17");
        let statements =
            statements.into_iter().map(|statement| Statement::parse(statement, bucket, has_variables));
        Ok(Self { statements: statements.collect::<S3Result<_>>()? })
    }

    pub(crate) fn evaluate(&self, request: AccessRequest<'_>) -> Effect {
        let mut effect = Effect::NoMatch;
        for statement in self.statements.iter().filter(|statement| statement.applies_to(request)) {
            match statement.allows {
                false => return Effect::Deny,
                true => effect = Effect::Allow,
            }
        }
        effect
    }

    /// Fails with `MalformedPolicy` if the policy names unknown users.
    pub(crate) fn check_principals(&self, users: &Users) -> S3Result<()> {
        let names = self.statements.iter().flat_map(|statement| &statement.principals);
        let mut unknown = names.filter(|name| *name != "*" && users.get(name).is_none());
        unknown.next().map_or(Ok(()), |_| Err(malformed("Invalid principal in policy")))
    }

    /// Returns whether the policy unconditionally allows something to everybody.
    pub(crate) fn is_public(&self) -> bool {
        let is_anybody = |statement: &Statement| statement.principals.iter().any(|name| name == "*");
        self.statements
            .iter()
            .any(|statement| statement.allows && is_anybody(statement) && statement.conditions.is_empty())
    }
}

impl Statement {
    fn parse(value: Value, bucket: &str, has_variables: bool) -> S3Result<Self> {
        let known = ["Sid", "Effect", "Principal", "Action", "Resource", "Condition"];
        if let Some(other) =
            value.as_object().and_then(|fields| fields.keys().find(|field| !known.contains(&field.as_str())))
        {
            return Err(malformed(&format!("{other} is not supported here")));
        }
        let document: StatementDocument =
            serde_json::from_value(value).map_err(|_| malformed("This policy contains invalid Json"))?;
        let allows = match document.effect.as_deref() {
            Some("Allow") => true,
            Some("Deny") => false,
            other => return Err(malformed(&format!("Invalid effect: {}", other.unwrap_or_default()))),
        };
        let principals = principals(document.principal)?;
        let actions =
            string_list(document.action).ok_or_else(|| malformed("Missing required field Action"))?;
        if actions.is_empty() || actions.iter().any(|action| !is_action(action)) {
            return Err(malformed("Policy has invalid action"));
        }
        let resources =
            string_list(document.resource).ok_or_else(|| malformed("Missing required field Resource"))?;
        let resources: Vec<String> = resources
            .into_iter()
            .map(|resource| resource.strip_prefix(ARN).map(str::to_owned))
            .collect::<Option<_>>()
            .filter(|resources: &Vec<String>| !resources.is_empty())
            .ok_or_else(|| malformed("Policy has invalid resource"))?;
        if resources.iter().any(|resource| !can_match_bucket(resource, bucket)) {
            return Err(malformed("Policy has invalid resource"));
        }
        let conditions = policy_condition::parse(document.condition, &actions)?;
        let texts = resources.iter().chain(conditions.iter().flat_map(Condition::strings));
        texts.map(String::as_str).try_for_each(|text| policy_variable::check(text, has_variables))?;
        check_applicability(&actions, &resources)?;
        Ok(Self { allows, principals, actions, resources, conditions })
    }

    /// Returns whether the statement is about a request.
    fn applies_to(&self, request: AccessRequest<'_>) -> bool {
        let is_user = |name: &String| name == "*" || request.user == Some(name.as_str());
        self.principals.iter().any(is_user)
            && self
                .actions
                .iter()
                .any(|pattern| is_like(&pattern.to_ascii_lowercase(), &request.action.to_ascii_lowercase()))
            && self.resources.iter().any(|pattern| {
                policy_variable::expand(pattern, request.user)
                    .is_some_and(|pattern| is_like(&pattern, request.resource))
            })
            && self.conditions.iter().all(|condition| condition.holds(request.user, request.request_context))
    }
}

/// Checks that each action applies to some resource of its statement: object actions to objects, bucket actions to the
/// bucket.
fn check_applicability(actions: &[String], resources: &[String]) -> S3Result<()> {
    let has_objects = resources.iter().any(|resource| resource.contains('/') || resource.ends_with('*'));
    let has_buckets = resources.iter().any(|resource| !resource.contains('/'));
    let is_possible = |pattern: &String| {
        matching_actions(pattern).any(|action| match action.on {
            ResourceKind::Object => has_objects,
            _ => has_buckets,
        })
    };
    if actions.iter().all(is_possible) {
        return Ok(());
    }
    Err(malformed("Action does not apply to any resource(s) in statement"))
}

/// Returns the principals of a statement: access keys, or `*` alone. Error: `MalformedPolicy`.
fn principals(value: Option<Value>) -> S3Result<Vec<String>> {
    let invalid = || malformed("Invalid principal in policy");
    let names = match value {
        Some(Value::Object(mut kinds)) => {
            let names = kinds.remove("AWS").ok_or_else(invalid)?;
            if !kinds.is_empty() {
                return Err(invalid());
            }
            string_list(Some(names)).ok_or_else(invalid)?
        }
        other => string_list(other).ok_or_else(invalid)?,
    };
    let names: Vec<String> = names
        .into_iter()
        .map(|name| match name.rsplit_once("user/") {
            Some((arn, user)) if arn.starts_with("arn:aws:iam::") => user.to_owned(),
            _ => name,
        })
        .collect();
    let is_all_and_one = names.len() > 1 && names.iter().any(|name| name == "*");
    if names.is_empty() || is_all_and_one || names.iter().any(String::is_empty) {
        return Err(invalid());
    }
    Ok(names)
}

/// Returns a string or an array of strings as a list; `None` for any other value.
pub(crate) fn string_list(value: Option<Value>) -> Option<Vec<String>> {
    match value? {
        Value::String(text) => Some(vec![text]),
        Value::Array(list) => list.into_iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// Returns whether a resource pattern can match the bucket or its objects.
fn can_match_bucket(resource: &str, bucket: &str) -> bool {
    let name = resource.split('/').next().unwrap_or_default();
    is_like(name, bucket)
}

/// Returns whether a pattern matches an existing action.
fn is_action(pattern: &str) -> bool {
    pattern == "*"
        || (pattern.to_ascii_lowercase().starts_with("s3:") && matching_actions(pattern).next().is_some())
}

/// Returns the actions that a pattern matches, without regard to case.
fn matching_actions(pattern: &str) -> impl Iterator<Item = &'static IamAction> {
    let pattern = pattern.to_ascii_lowercase();
    IAM_ACTIONS.iter().filter(move |action| is_like(&pattern, &action.name.to_ascii_lowercase()))
}

/// Returns whether a text matches a pattern with `*` and `?`.
pub(crate) fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // The position of the last star, and the end of the text it has consumed.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((at, reach)) = star else { return false };
                star = Some((at, reach + 1));
                (p, t) = (at + 1, reach + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

pub(crate) fn malformed(message: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::MalformedPolicy, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_CONTEXT: RequestContext = RequestContext { source: None, prefix: None, delimiter: None };

    fn request<'a>(user: Option<&'a str>, action: &'a str, resource: &'a str) -> AccessRequest<'a> {
        AccessRequest { user, action, resource, request_context: &NO_CONTEXT }
    }

    #[test]
    fn a_denial_wins() {
        let policy = Policy::parse(
            r#"{"Version":"2012-10-17","Statement":[
                {"Effect":"Allow","Principal":"*","Action":"s3:Get*","Resource":"arn:aws:s3:::b/*"},
                {"Effect":"Deny","Principal":{"AWS":["eve"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/secret/*"}]}"#,
            "b",
        )
        .unwrap();
        assert!(policy.is_public());
        assert_eq!(policy.evaluate(request(None, "s3:GetObject", "b/a")), Effect::Allow);
        assert_eq!(policy.evaluate(request(Some("eve"), "s3:GetObject", "b/secret/a")), Effect::Deny);
        assert_eq!(policy.evaluate(request(Some("bob"), "s3:GetObject", "b/secret/a")), Effect::Allow);
        assert_eq!(policy.evaluate(request(None, "s3:PutObject", "b/a")), Effect::NoMatch);
        assert_eq!(policy.evaluate(request(None, "s3:GetObject", "c/a")), Effect::NoMatch);
    }

    #[test]
    fn unsupported_policies_are_refused() {
        let statement = |fields: &str| {
            format!(
                r#"{{"Statement":[{{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"{fields}}}]}}"#
            )
        };
        Policy::parse(&statement(""), "b").unwrap();
        for bad in [
            statement(r#","Condition":{"Bool":{"aws:SecureTransport":"true"}}"#),
            statement(r#","NotAction":"s3:GetObject""#),
            statement("").replace(r#""Principal":"*""#, r#""Principal":["*","eve"]"#),
            statement("").replace("Allow", "allow"),
            statement("").replace("s3:GetObject", "s3:GetNothing"),
            statement("").replace(":::b/", ":::other/"),
            statement("").replace(":::b/*", ":::b"),
            r#"{"Statement":[]}"#.to_owned(),
            "[]".to_owned(),
            "{".to_owned(),
        ] {
            assert!(Policy::parse(&bad, "b").is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_have_stars_and_question_marks() {
        for (pattern, text, is) in [
            ("a*c", "abbc", true),
            ("a*c", "ab", false),
            ("a?c", "abc", true),
            ("*", "", true),
            ("**b*", "aab", true),
            ("a", "ab", false),
        ] {
            assert_eq!(is_like(pattern, text), is, "{pattern} {text}");
        }
    }
}
