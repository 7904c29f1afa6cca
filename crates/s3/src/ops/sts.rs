//! AssumeRole (AWS Security Token Service API Reference): temporary credentials.
//!
//! There are no roles here: the credentials have the rights of the user who requests them, no matter which role the
//! request names.

use s3s::dto::TimestampFormat;
use s3s::{S3Error, S3Result};
use std::collections::BTreeMap;

use crate::error::{custom, not_implemented};
use crate::headers;
use crate::sessions::Sessions;
use crate::users::User;

/// STS's bounds on the duration of a session, and its default.
const SECS_RANGE: std::ops::RangeInclusive<i64> = 900..=43_200;
const SECS_DEFAULT: i64 = 3600;
/// The form fields that are accepted. The role's name has no effect.
const KNOWN_FIELDS: [&str; 5] = ["Action", "Version", "RoleArn", "RoleSessionName", "DurationSeconds"];

/// Handles a form and returns the XML response.
pub(crate) fn assume_role(form: &[u8], user: &User, sessions: &Sessions, id: &str) -> S3Result<String> {
    let fields: BTreeMap<String, String> = url::form_urlencoded::parse(form).into_owned().collect();
    let field = |name: &str| fields.get(name).map(String::as_str).filter(|value| !value.is_empty());
    if field("Action") != Some("AssumeRole") {
        return Err(not_implemented(&format!("The action {}", field("Action").unwrap_or("without a name"))));
    }
    if let Some(other) = fields.keys().find(|name| !KNOWN_FIELDS.contains(&name.as_str())) {
        return Err(not_implemented(&format!("{other} of AssumeRole")));
    }
    let role = field("RoleArn").ok_or_else(|| invalid("RoleArn"))?;
    let name = field("RoleSessionName").ok_or_else(|| invalid("RoleSessionName"))?;
    let secs = match field("DurationSeconds") {
        None => SECS_DEFAULT,
        Some(text) => {
            let secs = text.parse().ok().filter(|secs| SECS_RANGE.contains(secs));
            secs.ok_or_else(|| invalid("DurationSeconds"))?
        }
    };
    let session = sessions.create(user, secs);
    let expires = headers::format_time(&headers::timestamp(session.expires), TimestampFormat::DateTime);
    let escaped = crate::error_document::escaped;
    Ok(format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser><AssumedRoleId>{}:{}</AssumedRoleId><Arn>{}</Arn></AssumedRoleUser><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{expires}</Expiration></Credentials></AssumeRoleResult><ResponseMetadata><RequestId>{id}</RequestId></ResponseMetadata></AssumeRoleResponse>",
        escaped(&user.access_key),
        escaped(name),
        escaped(role),
        session.access_key,
        session.secret_key,
        session.token,
    ))
}

fn invalid(name: &str) -> S3Error {
    custom("ValidationError", http::StatusCode::BAD_REQUEST, format!("{name} is missing or not valid"))
}
