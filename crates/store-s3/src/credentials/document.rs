//! Parsing of the documents with which providers return credentials: JSON with provider-specific field names, and the XML
//! of STS.

use super::{Credentials, ExpiringCredentials};
use crate::{elements, xml};
use serde_json::Value;
use store::Timestamp;

/// The field names of a JSON document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) access_key: &'static str,
    pub(super) secret_key: &'static str,
    pub(super) token: &'static str,
    pub(super) ends: &'static str,
}

/// The names of fields in the output of `credential_process` (AWS SDKs and Tools Reference Guide, "Process credential
/// provider").
pub(super) const PROCESS: Names = Names {
    access_key: "AccessKeyId",
    secret_key: "SecretAccessKey",
    token: "SessionToken",
    ends: "Expiration",
};

/// The names of fields in the documents of containers' and instances' metadata services.
pub(super) const METADATA: Names = Names { token: "Token", ..PROCESS };

/// The names of the SSO portal (GetRoleCredentials), inside `roleCredentials`.
pub(super) const SSO: Names = Names {
    access_key: "accessKeyId",
    secret_key: "secretAccessKey",
    token: "sessionToken",
    ends: "expiration",
};

/// Parses JSON. The error never repeats the text.
pub(super) fn parse_json(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))
}

/// Reads the credentials in a JSON object.
pub(super) fn parse_credentials(object: &Value, names: Names) -> Result<ExpiringCredentials, String> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let must = |name: &str| text(name).ok_or_else(|| format!("a response without {name}"));
    let credentials = Credentials::new(must(names.access_key)?, must(names.secret_key)?, text(names.token))
        .map_err(|error| error.to_string())?;
    Ok(ExpiringCredentials { credentials, ends: parse_expiry(object.get(names.ends), names.ends)? })
}

/// Reads an expiry time: ISO 8601 text, or milliseconds since 1970. Missing, empty or null means no expiry.
fn parse_expiry(value: Option<&Value>, name: &str) -> Result<Option<Timestamp>, String> {
    let unclear = || format!("a response with an invalid {name}");
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => xml::parse_time(text).map(Some).ok_or_else(unclear),
        Some(value) => {
            let millis = value.as_i64().ok_or_else(unclear)?;
            Ok(Some(Timestamp::from_secs(millis.div_euclid(1000), 0)))
        }
    }
}

/// Reads the credentials in STS's response to `action`.
pub(super) fn parse_sts(body: &[u8], action: &str) -> Result<ExpiringCredentials, String> {
    let (mut access, mut secret, mut token, mut ends) = (None, None, None, None);
    let place = [&format!("{action}Response"), &format!("{action}Result"), "Credentials"];
    elements::read(body, |path, text| {
        let field = match path.strip_prefix(&place) {
            Some(["AccessKeyId"]) => &mut access,
            Some(["SecretAccessKey"]) => &mut secret,
            Some(["SessionToken"]) => &mut token,
            Some(["Expiration"]) => &mut ends,
            _ => return Ok(()),
        };
        *field = Some(text.to_owned());
        Ok(())
    })
    .map_err(|_| format!("no response to {action}"))?;
    let (Some(access), Some(secret), Some(ends)) = (access, secret, ends) else {
        return Err(format!("a response to {action} without credentials"));
    };
    let credentials =
        Credentials::new(&access, &secret, token.as_deref()).map_err(|error| error.to_string())?;
    let ends = xml::parse_time(&ends).ok_or("a response with an invalid Expiration")?;
    Ok(ExpiringCredentials { credentials, ends: Some(ends) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, names: Names) -> Result<ExpiringCredentials, String> {
        parse_credentials(&parse_json(text.as_bytes())?, names)
    }

    #[test]
    fn every_form_of_an_expiry_is_read() {
        let ends = |end: &str| {
            let text = format!(r#"{{"AccessKeyId":"A","SecretAccessKey":"s","Expiration":{end}}}"#);
            parse(&text, PROCESS).map(|found| found.ends)
        };
        let moment = Some(Timestamp::from_secs(1_795_219_201, 0));
        assert_eq!(ends("\"2026-11-21T00:00:01Z\"").unwrap(), moment);
        assert_eq!(ends("\"2026-11-21T01:00:01+01:00\"").unwrap(), moment);
        assert_eq!(ends("1795219201000").unwrap(), moment);
        assert_eq!((ends("null").unwrap(), ends("\"\"").unwrap()), (None, None));
        assert!(ends("\"tomorrow\"").unwrap_err().contains("Expiration"));
    }

    #[test]
    fn malformed_documents_are_not_repeated_in_errors() {
        for text in [
            "hush",
            "[\"hush\"]",
            r#"{"AccessKeyId":"A","SecretAccessKey":{"hush":1}}"#,
            r#"{"AccessKeyId":"A","SecretAccessKey":"hush hush"}"#,
            r#"{"AccessKeyId":"A","SecretAccessKey":"hush","#,
        ] {
            let message = parse(text, PROCESS).unwrap_err();
            assert!(!message.contains("hush") && message.lines().count() == 1, "{message}");
        }
        for body in [b"".as_slice(), b"<html/>", b"<AssumeRoleResponse></AssumeRoleResponse>"] {
            assert!(parse_sts(body, "AssumeRole").is_err());
        }
    }
}
